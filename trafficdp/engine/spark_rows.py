"""What runs in Spark's executors: raw records to keyed rows with their bins, by one machine's code.

A worker cleans a part of the records with ``ingest.clean`` itself, replaces plates by pseudonyms under the
key, and gives back cells, slots and clipped steps. Nothing else leaves it: no plate, position or speed. Spark
never sees a raw identifier again, so it cannot shuffle, spill or log one. Errors name no value.

Rows are for ``spark_job``, which removes repeats and adds up. ``place`` orders rows as files and their rows
come: the file's number times 2^40, plus the row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.arrays import IntArray
from trafficdp.binning.cells import CellTable
from trafficdp.binning.places import SlotTable, meets_selection
from trafficdp.engine.reduced import SAID
from trafficdp.errors import TrafficdpError
from trafficdp.ingest.clean import Cleaned, UnitCheck, clean
from trafficdp.ingest.formats.parquet import null_invalid_text, records_of
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import Reading, first_bytes_are_a_record
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.model import Clip, ContributionBound, Grid, SourceDeclaration
from trafficdp.sensitive import Fixes

BATCH_ROWS = 1 << 18
"""Records that are cleaned at once."""
PLACE_BITS = 40
"""Bits of ``place`` that number the rows of a file."""
ROWS = pa.schema(
    [
        pa.field("vehicle", pa.binary()),
        pa.field("slot", pa.int64()),
        pa.field("time_us", pa.int64()),
        pa.field("place", pa.int64()),
        pa.field("cell", pa.int64()),  # H3's 64 bits, signed
        pa.field("value", pa.int64()),
    ]
)
"""One row a record that is kept; the same in Spark's words: ``SPARK_ROWS``."""
SPARK_ROWS = "vehicle BINARY, slot BIGINT, time_us BIGINT, place BIGINT, cell BIGINT, value BIGINT"


@dataclass(frozen=True, repr=False)
class Reduction:
    """What one job computes, for one source: public facts that every executor is sent.

    ``slots`` are looked up, never worked out there: versions of time zones differ between machines. A file
    may be refused for its rows only with ``refuse_by_rows``, see ``Reading``.
    """

    source: SourceDeclaration
    grid: Grid
    bound: ContributionBound
    slots: SlotTable
    refuse_by_rows: bool

    @classmethod
    def of(
        cls, source: SourceDeclaration, grid: Grid, bound: ContributionBound, *, refuse_by_rows: bool = True
    ) -> Reduction:
        """Return the reduction to ``grid``; raise ConfigError where 64 bits do not hold the arithmetic."""
        Clip(bound)
        return cls(
            source, grid, bound, SlotTable.of(grid.period, grid.slot_kind, grid.day_parts), refuse_by_rows
        )


class Facts(NamedTuple):
    """What became of a part of the records; equal again when the part is read again."""

    rows_in: int
    rejected: Mapping[str, int]
    derived: int = 0
    report: str | None = None
    """The report of a whole file, as JSON."""


Noted = Callable[[str, Facts], None]
"""Takes the facts of the part of a name. A part that is read twice is noted twice, alike."""


def rows_of_files(
    batches: Iterator[pa.RecordBatch], job: Reduction, key: Callable[[], VehicleKey], noted: Noted
) -> Iterator[pa.RecordBatch]:
    """Yield ROWS of whole files, read, cleaned and binned as ``job`` says.

    ``batches`` have the columns ``number``, ``name`` and ``content`` (bytes), a row a file. ``key`` returns
    the key of pseudonyms; ``noted`` is called with the facts of each file.
    """
    with _saying_nothing():
        secret, binning = key(), _Binning(job)
        for batch in batches:
            for row in range(len(batch)):
                number, name = batch.column("number")[row].as_py(), batch.column("name")[row].as_py()
                content = batch.column("content")[row].as_py()
                held = InputFile(
                    Path(name),
                    held=content,
                    refuse_by_rows=job.refuse_by_rows,
                    form_by_name=first_bytes_are_a_record(job.source),
                )
                reading = Reading(
                    held,
                    job.source,
                    job.grid.area,
                    secret,
                    refuse_by_rows=job.refuse_by_rows,
                    period=job.grid.period,
                )
                for fixes in reading.parts():
                    # within a file no (vehicle, instant) is left twice
                    place = np.full(len(fixes), number << PLACE_BITS, dtype=np.int64)
                    yield from binning.rows(fixes, place)
                report = reading.report
                facts = Facts(report.rows_in, report.rejected, report.derived, report.to_json())
                noted(str(number), facts)


def rows_of_frame(
    batches: Iterator[pa.RecordBatch],
    job: Reduction,
    key: Callable[[], VehicleKey],
    noted: Noted,
    *,
    part: str,
    numbers: Mapping[str, int] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield ROWS of the records in ``batches``, cleaned and binned as ``job`` says.

    Columns are the declared ones and the row's place: ``file`` and ``row``, with files numbered by
    ``numbers``, or (None) ``place`` itself. ``noted`` is called once, with the name ``part`` of this task.
    Only some of a vehicle's records are here, so repeats are found among these and, later, among all.
    """
    with _saying_nothing():
        secret, binning = key(), _Binning(job)
        rows_in, rejected = 0, dict[str, int]()
        for batch in _in_order(_placed(each, numbers) for each in batches):
            cleaned = _cleaned(batch, job, secret)
            rows_in += len(batch)
            for rule, count in cleaned.rejected.items():
                rejected[rule] = rejected.get(rule, 0) + count
            yield from binning.rows(cleaned.fixes, batch.column("place").to_numpy()[cleaned.rows])
        noted(part, Facts(rows_in, rejected))


@dataclass(frozen=True)
class _Frame:
    name: str


def _cleaned(batch: pa.RecordBatch, job: Reduction, key: VehicleKey) -> Cleaned:
    columns = {name: name for name in batch.schema.names if name != "place"}
    records = records_of(_Frame("the table"), job.source, columns, null_invalid_text(batch), None)
    # of a vehicle's records only some are here
    return clean(records, job.source, job.grid.area, key, UnitCheck(), job.grid.period, whole_vehicles=False)


def _placed(batch: pa.RecordBatch, numbers: Mapping[str, int] | None) -> pa.RecordBatch:
    if numbers is None:
        return batch
    file = batch.column("file").dictionary_encode()
    number = np.array([numbers[normalise_uri(name)] for name in file.dictionary.to_pylist()], dtype=np.int64)
    place = (number << PLACE_BITS)[file.indices.to_numpy()] | batch.column("row").to_numpy()
    return batch.drop_columns(["file", "row"]).append_column("place", pa.array(place))


def normalise_uri(uri: str) -> str:
    """Return one spelling of a file's address, which Spark writes as file:/a b or file:///a%20b."""
    return re.sub(r"^file:/+", "file:/", unquote(uri))


def _in_order(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches of about BATCH_ROWS, each in the order of files and rows."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= BATCH_ROWS:
            yield _sorted(pa.concat_batches(held))
            held = []
    if held:
        yield _sorted(pa.concat_batches(held))


def _sorted(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.column("place").to_numpy()
    if bool((place[1:] >= place[:-1]).all()):
        return batch
    return batch.take(pa.array(np.argsort(place, kind="stable")))


class _Binning:
    """Fixes to ROWS: those of the period and the selection, with cell, slot and steps."""

    def __init__(self, job: Reduction) -> None:
        self._grid, self._slots, self._clip = job.grid, job.slots, Clip(job.bound)
        self._cells = CellTable(job.grid.area.geometry.bounds, job.grid.hexagon_resolution)
        self._start_us, self._end_us = (each * 1_000_000 for each in job.grid.period.utc_seconds)

    def rows(self, fixes: Fixes, place: IntArray) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``fixes``; ``place`` has shape (n,)."""
        start = 0
        for batch in fixes.table.to_batches(max_chunksize=BATCH_ROWS):
            yield self._batch(batch, place[start : start + len(batch)])
            start += len(batch)

    def _batch(self, batch: pa.RecordBatch, place: IntArray) -> pa.RecordBatch:
        grid = self._grid
        time_us, latitude, longitude = (
            batch.column(name).to_numpy() for name in ("time_us", "latitude", "longitude")
        )
        inside = (time_us >= self._start_us) & (time_us < self._end_us)
        if not grid.selection.everything:
            inside &= meets_selection(grid.selection, latitude, longitude, time_us, grid.period.time_zone)
        rows = np.flatnonzero(inside)
        batch, time_us = batch.take(pa.array(rows)), time_us[rows]
        columns = [
            pc.cast(batch.column("vehicle").dictionary_decode(), pa.binary()),
            pa.array(self._slots.slots_of(time_us)),
            pa.array(time_us),
            pa.array(place[rows]),
            pa.array(self._cells.cells_of(latitude[rows], longitude[rows]).view(np.int64)),
            pa.array(self._clip.steps_of(batch.column("speed_centi"), batch.column("speed_unit"))),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)


@contextmanager
def _saying_nothing() -> Iterator[None]:
    """Turn errors into ones that quote no value: Spark writes messages into logs and event logs."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  # whatever it is, it may quote a value
        said = str(error) if isinstance(error, TrafficdpError) else type(error).__name__
        raise RuntimeError(f"{SAID}{json.dumps(said)}") from None
