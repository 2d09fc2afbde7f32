"""The heavy reduction, on one machine: fixes in the vault to per (vehicle, bin) sums, by DuckDB.

Fixes stream out of the vault in record batches, get step, cell and slot in NumPy, and stream on into a
``GROUP BY`` of a DuckDB of its own, in memory. Nothing is registered with the vault's connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.binning.cell_table import CellTable
from trafficdp.binning.mosaic import bins_in_mosaic
from trafficdp.binning.selected import selected
from trafficdp.binning.slots import slots_of
from trafficdp.engine.clip import Clip
from trafficdp.errors import DataError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.grid import Grid
from trafficdp.sensitive.contributions import Contributions
from trafficdp.store.connection import connect

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


def reduce_fixes(
    connection: duckdb.DuckDBPyConnection, grid: Grid, bound: ContributionBound, up_to_ingest: int
) -> Contributions:
    """Return what each vehicle contributes to each bin of ``grid``, over the vault's table ``fixes``.

    Only fixes of files 1 to ``up_to_ingest``, of the grid's period and of its selection count. Their
    positions lie in the study area because the vault takes in no others. Equal inputs give equal arrays,
    whatever the number of threads. Users are numbered by rising ``vehicle_id``, over those with a fix. Under
    a mosaic fixes are binned at its finest resolution and the finest bins put together.

    Raises ConfigError when the step is so fine or so odd a fraction that 64 bits do not hold the exact
    arithmetic, and DataError when positions are impossible or a vehicle has so many fixes in a bin that the
    sum of its squares might not fit 64 bits: decided by the count alone, whatever the speeds are.
    """
    grouped = ask_binned(connection, grid, bound, up_to_ingest, "contributions")
    _require_exact_sums(grouped["fixes"].to_numpy(), bound)
    finest = Contributions.from_rows(
        cell=grouped["cell"].to_numpy(),
        slot=grouped["slot"].to_numpy(),
        vehicle=grouped["vehicle_id"].to_numpy(),
        count=grouped["fixes"].to_numpy(),
        total=grouped["total"].to_numpy(),
        total_of_squares=grouped["total_of_squares"].to_numpy(),
        bound=bound,
    )
    if grid.mosaic is None:
        return finest
    merged = finest.merged(*bins_in_mosaic(grid, finest.counts.cell, finest.counts.slot))
    _require_exact_sums(merged.counts.count, bound)
    return merged


def _require_exact_sums(count: npt.NDArray[np.int64], bound: ContributionBound) -> None:
    if int(count.max(initial=0)) * bound.steps**2 >= 1 << 63:
        raise DataError(
            "too many fixes of one vehicle in one bin",
            expected="fixes times the square of the steps up to the speed bound below 2^63",
            todo="choose a larger speed_step or shorter slots",
        )


def ask_binned(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    up_to_ingest: int,
    query: str,
) -> pa.Table:
    """Return what engine/sql/QUERY.sql says of the table `binned`: one row a fix of ``reduce_fixes``.

    Its columns are cell, slot, vehicle_id, time_us and value (in steps). Raises as ``reduce_fixes``.
    """
    parameters = {
        "up_to_ingest": up_to_ingest,
        "start_us": int(grid.period.start_utc.timestamp()) * 1_000_000,
        "end_us": int(grid.period.end_utc.timestamp()) * 1_000_000,
    }
    # beside what the vault spills, in a folder for its owner only: DuckDB would take the current folder
    ((folder,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    spill = f"{folder}/reduction"
    fixes = connection.sql(_query("fixes"), params=parameters).to_arrow_reader(BATCH_ROWS)
    try:
        return _answer(fixes, grid, Clip(bound), spill, query)
    finally:
        fixes.close()  # a result left open, after an error, would block the vault's connection


def _query(name: str) -> str:
    return (files("trafficdp.engine") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


def _answer(fixes: pa.RecordBatchReader, grid: Grid, clip: Clip, spill: str, query: str) -> pa.Table:
    """Bin the fixes and ask, in a DuckDB that lives for this call only and spills to ``spill``."""
    failures: list[Exception] = []
    binned = pa.RecordBatchReader.from_batches(_BINNED, _binned(fixes, grid, clip, failures))
    with connect(temp_directory=spill) as scratch:
        scratch.register("binned", binned)
        try:
            return scratch.sql(_query(query)).to_arrow_table()
        except duckdb.Error:
            # an error of ours inside the stream reaches us wrapped in DuckDB's
            if failures:
                raise failures[0] from None
            raise


def _kept(batch: pa.RecordBatch, grid: Grid) -> pa.RecordBatch:
    """Return the fixes that the grid's selection keeps: by place and time, never by value."""
    latitude, longitude, time_us = (
        batch.column(name).to_numpy() for name in ("latitude", "longitude", "time_us")
    )
    zone = grid.period.time_zone
    return batch.filter(pa.array(selected(grid.selection, latitude, longitude, time_us, zone)))


def _binned(
    fixes: pa.RecordBatchReader, grid: Grid, clip: Clip, failures: list[Exception]
) -> Iterator[pa.RecordBatch]:
    table = CellTable(grid.area.geometry.bounds, grid.resolution)
    try:
        for batch in fixes:
            if not grid.selection.everything:
                batch = _kept(batch, grid)
            cell = table.cells_of(batch.column("latitude").to_numpy(), batch.column("longitude").to_numpy())
            slot = slots_of(
                batch.column("time_us").to_numpy(), grid.slot_kind, grid.period.time_zone, grid.day_parts
            )
            value = clip.steps_of(batch.column("speed_centi"), batch.column("speed_unit"))
            kept = [batch.column(name) for name in ("vehicle_id", "time_us")]
            columns = [pa.array(cell), pa.array(slot), *kept, pa.array(value)]
            yield pa.record_batch(columns, schema=_BINNED)
    except Exception as error:
        failures.append(error)
        raise
