"""Fixes in the vault with their bins and clipped values: in batches, or as a table that SQL may ask.

Fixes stream out of the vault in record batches and get step, cell and slot in NumPy. Nothing is registered
with the vault's connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.binning.declared import selected
from trafficdp.binning.places import places_of
from trafficdp.binning.slots import slots_of
from trafficdp.engine.clip import Clip
from trafficdp.model import NOWHERE, ContributionBound, Grid
from trafficdp.store.statements import in_memory, registered

IntArray = npt.NDArray[np.int64]

BATCH_ROWS = 500_000
"""Fixes a record batch: memory grows with it, and small batches look at fewer squares of cells."""
_BINNED = pa.schema(
    [
        pa.field("cell", pa.uint64()),
        pa.field("slot", pa.int64()),
        pa.field("vehicle_id", pa.int32()),
        pa.field("time_us", pa.int64()),
        pa.field("value", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Files:
    """The files ``after`` + 1 to ``up_to`` of a vault."""

    after: int
    up_to: int


class VehiclePart(NamedTuple):
    """The vehicles whose number leaves ``number`` when divided by ``of``."""

    number: int = 0
    of: int = 1


EVERYBODY = VehiclePart()


class Binned(NamedTuple):
    """Fixes with their bins, arrays of shape (n,); ``value`` in steps of the bound, clipped."""

    cell: npt.NDArray[np.uint64]
    slot: IntArray
    vehicle: npt.NDArray[np.int32]
    time_us: IntArray
    value: IntArray


@contextmanager
def binned(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    ingests: Files,
    part: VehiclePart = EVERYBODY,
) -> Iterator[Iterator[Binned]]:
    """Give the fixes of ``ingests`` in batches, while the block lasts.

    Only fixes of the grid's period and of its selection count. Raises ConfigError when 64 bits do not hold
    the arithmetic of the step, DataError for impossible positions.
    """
    clip = Clip(bound)
    parameters = {
        "after_ingest": ingests.after,
        "up_to_ingest": ingests.up_to,
        "start_us": int(grid.period.start_utc.timestamp()) * 1_000_000,
        "end_us": int(grid.period.end_utc.timestamp()) * 1_000_000,
        "part": part.number,
        "parts": part.of,
    }
    fixes = connection.sql(_query("fixes"), params=parameters).to_arrow_reader(BATCH_ROWS)
    try:
        yield _binned(fixes, grid, clip)
    finally:
        fixes.close()  # a result left open, after an error, would block the vault's connection


def ask_binned(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    ingests: Files,
    query: str,
    part: VehiclePart = EVERYBODY,
) -> pa.Table:
    """Return what engine/sql/QUERY.sql says of the table `binned`: one row a fix.

    Its columns are those of ``Binned``. Raises as ``binned``.
    """
    failures: list[Exception] = []
    folder = spill_folder(connection)
    with binned(connection, grid, bound, ingests, part) as batches:
        reader = pa.RecordBatchReader.from_batches(_BINNED, _record_batches(batches, failures))
        with in_memory(str(folder)) as scratch:
            try:
                with registered(scratch, "binned", reader):
                    return scratch.sql(_query(query)).to_arrow_table()
            except duckdb.Error:
                # an error of ours inside the stream reaches us wrapped in DuckDB's
                if failures:
                    raise failures[0] from None
                raise


def spill_folder(connection: duckdb.DuckDBPyConnection) -> Path:
    """Return where rows may lie that do not fit in memory, beside what the vault spills: for its owner only.

    DuckDB alone would take the current folder.
    """
    ((folder,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    return Path(folder) / "reduction"


def largest_vehicle(connection: duckdb.DuckDBPyConnection) -> int:
    """Return the largest number of a vehicle with a fix, 0 where there is none."""
    ((largest,),) = connection.execute("SELECT coalesce(max(vehicle_id), 0) FROM fixes").fetchall()
    return int(largest)


def count_of(connection: duckdb.DuckDBPyConnection, ingests: Files) -> int:
    """Return how many fixes the files brought."""
    counted = "SELECT count(*) FROM fixes WHERE ingest_id > ? AND ingest_id <= ?"
    ((count,),) = connection.execute(counted, [ingests.after, ingests.up_to]).fetchall()
    return int(count)


def _query(name: str) -> str:
    return (files("trafficdp.engine") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def _record_batches(batches: Iterator[Binned], failures: list[Exception]) -> Iterator[pa.RecordBatch]:
    try:
        for batch in batches:
            yield pa.record_batch([pa.array(column) for column in batch], schema=_BINNED)
    except Exception as error:
        failures.append(error)
        raise


def _kept(batch: pa.RecordBatch, grid: Grid) -> pa.RecordBatch:
    """Return the fixes that the grid's selection keeps: by place and time, never by value."""
    latitude, longitude, time_us = (
        batch.column(name).to_numpy() for name in ("latitude", "longitude", "time_us")
    )
    zone = grid.period.time_zone
    return batch.filter(pa.array(selected(grid.selection, latitude, longitude, time_us, zone)))


def _binned(fixes: pa.RecordBatchReader, grid: Grid, clip: Clip) -> Iterator[Binned]:
    places = places_of(grid)
    for batch in _rebatched(fixes):
        if not grid.selection.everything:
            batch = _kept(batch, grid)
        cell = places.cells_of(batch.column("latitude").to_numpy(), batch.column("longitude").to_numpy())
        if grid.zones is not None:
            somewhere = cell != NOWHERE
            cell, batch = cell[somewhere], batch.filter(pa.array(somewhere))
        time_us = batch.column("time_us").to_numpy()
        yield Binned(
            cell=cell,
            slot=slots_of(time_us, grid.slot_kind, grid.period.time_zone, grid.day_parts),
            vehicle=batch.column("vehicle_id").to_numpy(),
            time_us=time_us,
            value=clip.steps_of(batch.column("speed_centi"), batch.column("speed_unit")),
        )


def _rebatched(fixes: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Put batches together until there are BATCH_ROWS: DuckDB hands out smaller ones than were asked for."""
    held: list[pa.RecordBatch] = []
    for batch in fixes:
        held.append(batch)
        if sum(map(len, held)) >= BATCH_ROWS:
            yield pa.concat_batches(held)
            held = []
    if held:
        yield pa.concat_batches(held)
