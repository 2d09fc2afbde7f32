"""Fixes in the vault to sums and samples of every (vehicle, bin), on one machine.

Fixes stream out of the vault and get step, cell and slot in NumPy: in batches, or as a table that SQL may
ask. Nothing is registered with the vault's connection. For the sums records are packed in 64-bit numbers and
sorted. Where 63 bits do not hold a record, DuckDB groups them instead, one part of the vehicles after
another. Samples are every value, by the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.arrays import IntArray, run_starts
from trafficdp.binning.cells import places_of
from trafficdp.binning.places import bins_in_mosaic, meets_selection, slots_of
from trafficdp.model import NOWHERE, Clip, ContributionBound, Counts, Grid, SlotKind, unique_by_counting
from trafficdp.sensitive import LARGEST_TOTAL, Contributions, Samples
from trafficdp.store.store_files import Spill, in_memory, registered, store_failures
from trafficdp.store.vault_fixes import CachedContributions, cache_key, imported_rows, is_imported

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
    """The files of a vault with the numbers ``after`` + 1 to ``up_to``."""

    after: int
    up_to: int


class VehiclePart(NamedTuple):
    """One of ``of`` parts of the vehicles: those whose number modulo ``of`` is ``number``."""

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


def binned(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    ingests: Files,
    part: VehiclePart = EVERYBODY,
) -> Generator[Binned]:
    """Yield batches of fixes with their bins; to be closed, as an open result blocks the vault's connection.

    Of the files ``ingests`` and the vehicles ``part``, within the grid's period and selection; speeds are
    clipped to ``bound``. Private. Raises ConfigError when 64 bits do not hold the arithmetic of the step,
    DataError for impossible positions.
    """
    clip = Clip(bound)
    start, end = grid.period.utc_seconds
    parameters = {
        "after_ingest": ingests.after,
        "up_to_ingest": ingests.up_to,
        "start_us": start * 1_000_000,
        "end_us": end * 1_000_000,
        "part": part.number,
        "parts": part.of,
    }
    places = places_of(grid)
    with connection.sql(_query("fixes"), params=parameters).to_arrow_reader(BATCH_ROWS) as fixes:
        while True:
            # until there are BATCH_ROWS: DuckDB hands out smaller batches than were asked for
            held: list[pa.RecordBatch] = []
            while sum(map(len, held)) < BATCH_ROWS and (read := next(fixes, None)) is not None:
                held.append(read)
            if not held:
                return
            batch = pa.concat_batches(held)
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


def query_binned(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    ingests: Files,
    query: str,
    part: VehiclePart = EVERYBODY,
) -> pa.Table:
    """Return the rows of the SQL in engine/sql/``query``.sql on the table `binned`, which has one row a fix.

    The columns of `binned` are those of ``Binned``. Raises as ``binned``.
    """
    failures: list[Exception] = []
    folder = spill_folder(connection)
    with closing(binned(connection, grid, bound, ingests, part)) as batches:
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
    """Return the folder for rows that do not fit in memory, inside that of ``connection``."""
    ((folder,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    return Path(folder) / "reduction"


def count_fixes_of(connection: duckdb.DuckDBPyConnection, ingests: Files) -> int:
    """Return how many fixes in the vault are from the files ``ingests``."""
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
    return batch.filter(pa.array(meets_selection(grid.selection, latitude, longitude, time_us, zone)))


def read_samples(
    connection: duckdb.DuckDBPyConnection, grid: Grid, bound: ContributionBound, up_to_ingest: int
) -> Samples:
    """Return every clipped speed in steps of ``bound``, ordered by bin (cell, then slot), vehicle and time.

    Of the vault's files 1 to ``up_to_ingest``. Private. Bins and users are numbered as by ``reduce_fixes``,
    so that ``read_samples(...).contributions()`` equals its result; raises as it does (but for sums, which
    are not taken). On a map of several resolutions the values of a pair are ordered by finest cell, then
    time. Memory grows with the fixes: 8 bytes each in the result, about ten times that on the way.
    """
    rows = query_binned(connection, grid, bound, Files(0, up_to_ingest), "samples")
    cell, slot, vehicle, value = (rows[name].to_numpy() for name in ("cell", "slot", "vehicle_id", "value"))
    if grid.mosaic is not None:
        cell, slot = bins_in_mosaic(grid, cell, slot)
        order = np.lexsort((vehicle, slot, cell))
        cell, slot, vehicle, value = cell[order], slot[order], vehicle[order], value[order]
    place = np.flatnonzero(run_starts(cell, slot, vehicle))
    nothing = np.zeros(len(place), dtype=np.int64)
    pairs = Contributions.from_rows(
        cell=cell[place],
        slot=slot[place],
        vehicle=vehicle[place],
        count=np.diff(place, append=len(cell)),
        total=nothing,
        total_of_squares=nothing,
        bound=bound,
    )
    return Samples(pairs.counts, value.astype(np.int64), pairs.vehicle, bound)


# Sums a (bin, vehicle) by sorting: cell, slot, vehicle and value of a record in one 64-bit number.
#
#     key = cell number | slot number | vehicle | value,   at most 63 bits
#
# Cells and slots are numbered as they come, and renumbered in rising order once all are known. Keys are
# then cut into buckets of some millions: at keys of a systematic sample, between two (bin, vehicle) pairs,
# never inside one. Each bucket is sorted by itself, and the runs of one pair are added up. Memory is that of
# one bucket and of the result, whatever the number of records. All arithmetic is in whole numbers.


KEY_BITS = 63
"""Keys are never negative, so that they sort like the numbers in them."""
BUCKET_ROWS = 1 << 23
"""Keys that are sorted at once."""
_PIECE = 1 << 17
"""Keys that are worked on together: they stay in the processor's cache."""
_LOW = (1 << 32) - 1
_SAMPLED = 1021
"""One key in so many decides where buckets begin; a prime, so that no period of a feed fits it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The bits of a 63-bit sort key that slot, vehicle and value take; the cell takes the remaining ones."""

    slot: int
    vehicle: int
    value: int


@dataclass
class _Numbers:
    """Numbers 0, 1, 2, ... for distinct values, in the order in which they come; ``values`` rise."""

    values: npt.NDArray[Any]
    number: IntArray

    def of(self, values: npt.NDArray[np.uint64] | IntArray) -> IntArray:
        encoded = pa.array(values).dictionary_encode()
        distinct = encoded.dictionary.to_numpy()
        place = np.searchsorted(self.values, distinct)
        known = np.zeros(len(distinct), dtype=np.bool_)
        inside = place < len(self.values)
        known[inside] = self.values[place[inside]] == distinct[inside]
        if not known.all():
            new = distinct[~known]
            values_then = np.concatenate([self.values, new])
            numbers_then = np.concatenate([self.number, np.arange(len(self.values), len(values_then))])
            order = np.argsort(values_then)
            self.values, self.number = values_then[order], numbers_then[order]
            place = np.searchsorted(self.values, distinct)
        return np.asarray(self.number[place][encoded.indices.to_numpy()])


def _packed_sums(
    batches: Iterable[Binned], layout: Layout, folder: Path, bound: ContributionBound
) -> Contributions | None:
    """Return the sums of all ``batches``; None where there are more cells or slots than fit ``layout``.

    Keys are written to unnamed files in ``folder``. Raises OSError where the disk is full.
    """
    cell_bits = KEY_BITS - layout.slot - layout.vehicle - layout.value
    if cell_bits <= 0:
        return None
    none = np.empty(0, dtype=np.int64)
    cells, slots = _Numbers(none.astype(np.uint64), none), _Numbers(none, none)
    with ExitStack() as opened:
        keys = _Keys(folder, opened)
        for batch in batches:
            key = cells.of(batch.cell)
            key <<= layout.slot
            key |= slots.of(batch.slot)
            if len(cells.values) > 1 << cell_bits or len(slots.values) > 1 << layout.slot:
                return None
            key <<= layout.vehicle
            key |= batch.vehicle
            key <<= layout.value
            key |= batch.value
            keys.append(key)
        # for every number the place of its value in rising order
        ranks = np.argsort(cells.number), np.argsort(slots.number)
        in_order = partial(_in_order, ranks=ranks, layout=layout)
        parts = [_summed(bucket, layout.value) for bucket in keys.buckets(in_order, layout.value)]
    # one column after another, and each let go of: never two copies of all
    columns = [list(column) for column in zip(*parts, strict=True)]
    del parts
    pair, count, total, squares = (np.concatenate(columns.pop(0)) for _ in range(4))
    bins = pair >> layout.vehicle
    first = run_starts(bins)
    of_bin, users_per_bin = bins[first], np.diff(np.flatnonzero(first), append=len(first))
    del bins, first
    # what is left of a pair is its vehicle
    pair &= (1 << layout.vehicle) - 1
    vehicles, user = unique_by_counting(pair)
    counts = Counts(
        cell=cells.values[of_bin >> layout.slot],
        slot=slots.values[of_bin & ((1 << layout.slot) - 1)],
        users_per_bin=users_per_bin,
        user_index=user,
        count=count,
        users=len(vehicles),
    )
    return Contributions(counts, total, squares, vehicles, bound)


def _in_order(key: IntArray, ranks: tuple[IntArray, IntArray], layout: Layout) -> IntArray:
    """Renumber cells and slots of keys by their ``ranks``, so that keys sort as their cells and slots do."""
    low, slot_bits = layout.vehicle + layout.value, layout.slot
    cell_rank, slot_rank = ranks
    bins = key >> low
    result: IntArray = cell_rank[bins >> slot_bits]
    result <<= slot_bits
    bins &= (1 << slot_bits) - 1
    result |= slot_rank[bins]
    result <<= low
    result |= key & ((1 << low) - 1)
    return result


@dataclass
class _Keys:
    """Keys as they come: in memory while they are few, then in a spill file that ``opened`` closes."""

    folder: Path
    opened: ExitStack
    rows: int = 0
    held: list[IntArray] = field(default_factory=list)
    sample: list[IntArray] = field(default_factory=list)
    spill: Spill | None = None

    def append(self, key: IntArray) -> None:
        self.sample.append(key[-self.rows % _SAMPLED :: _SAMPLED].copy())
        self.rows += len(key)
        self.held.append(key)
        if self.rows > BUCKET_ROWS:
            if self.spill is None:
                self.spill = self.opened.enter_context(Spill(self.folder))
            while self.held:
                self.spill.append(self.held.pop(0))

    def buckets(self, in_order: Callable[[IntArray], IntArray], value_bits: int) -> Iterator[IntArray]:
        """Yield all keys, sorted between buckets but not within; no (bin, vehicle) pair is in two buckets.

        ``in_order`` renumbers cells and slots in keys; ``value_bits`` are the bits of the value in a key.
        """
        if self.spill is None:
            pieces = [
                held[start : start + _PIECE] for held in self.held for start in range(0, len(held), _PIECE)
            ]
            yield np.concatenate([np.empty(0, dtype=np.int64), *map(in_order, pieces)])
            return
        sample = np.sort(in_order(np.concatenate(self.sample))) >> value_bits
        wanted = -(-self.rows // BUCKET_ROWS)
        first = np.unique(sample[len(sample) * np.arange(1, wanted) // wanted]) << value_bits
        with ExitStack() as opened:
            buckets = [opened.enter_context(Spill(self.folder)) for _ in range(len(first) + 1)]
            for start in range(0, self.rows, _PIECE):
                key = in_order(self.spill.read(start, _PIECE))
                bucket = np.searchsorted(first, key, side="right").astype(np.uint16)
                key = key[np.argsort(bucket, kind="stable")]
                end = np.cumsum(np.bincount(bucket, minlength=len(buckets)))
                for target, rows in zip(buckets, np.split(key, end[:-1]), strict=True):
                    target.append(rows)
            for each in buckets:
                yield each.read(0, len(each))


def _summed(key: IntArray, value_bits: int) -> tuple[IntArray, ...]:
    """Return pair, count, sum and sum of squares of every run of one pair; sorts ``key`` in place."""
    key.sort()
    pair = key >> value_bits
    start = np.flatnonzero(run_starts(pair))
    count = np.diff(start, append=len(pair))
    pair = pair[start]
    key &= (1 << value_bits) - 1
    if not len(start):
        return pair, count, key, key
    total = np.add.reduceat(key, start)
    key *= key
    # sums of runs of fewer than 2^31 numbers of at least 0, none above LARGEST_TOTAL
    low, high = np.add.reduceat(key & _LOW, start), np.add.reduceat(key >> 32, start)
    high += low >> 32
    return pair, count, total, np.where(high >> 31 > 0, LARGEST_TOTAL, high << 32 | low & _LOW)


# The sums of a vault: by sorting, or by DuckDB where 63 bits do not hold a record.


PART_ROWS = 1 << 23
"""Records that DuckDB groups at once, where they do not fit 63 bits."""
_RECURRING = {
    SlotKind.WHOLE_PERIOD: 1,
    SlotKind.HOUR_OF_DAY: 24,
    SlotKind.WEEKDAY_WEEKEND_HOUR: 48,
    SlotKind.WEEKDAY: 7,
}


def reduce_fixes(
    connection: duckdb.DuckDBPyConnection,
    grid: Grid,
    bound: ContributionBound,
    up_to_ingest: int,
    known: CachedContributions | None = None,
) -> Contributions:
    """Return what each vehicle contributes to each bin of ``grid``, over the vault's table ``fixes``.

    Only records of files 1 to ``up_to_ingest``, of the grid's period and of its selection count. What is
    ``known`` of the first files is taken over, and only later ones are read. Positions lie in the study area
    because the vault takes in no others. Equal inputs give equal arrays, whatever the number of threads.
    Users are numbered by rising ``vehicle_id``, over those with a record. Under a mosaic records are binned
    at its finest resolution and the finest bins put together. A store of imported contributions adds those
    up.

    A sum of more than 2^63 - 1 is that number. No error tells of it: where counts are secret, so is whether
    there is one. Where they are public ask ``Contributions.require_exact_sums``, before anything is charged.

    Raises ConfigError when the step is so fine or so odd a fraction that 64 bits do not hold the exact
    arithmetic, and DataError when positions are impossible.
    """
    if is_imported(connection):
        rows = imported_rows(connection, cache_key(replace(grid, mosaic=None), bound), up_to_ingest)
        known, found = None, _of_rows([rows], bound)
    else:
        ingests = Files(0 if known is None else known.up_to_ingest, up_to_ingest)
        ((largest,),) = connection.execute("SELECT coalesce(max(vehicle_id), 0) FROM fixes").fetchall()
        days = (grid.period.last - grid.period.first).days + 1
        # a day has at most 25 hours of the clock; with more slots (odd clock changes) DuckDB groups
        slots = {**_RECURRING, SlotKind.DAY_PART: len(grid.day_parts), SlotKind.DAY: days}
        limits = slots.get(grid.slot_kind, 25 * days) - 1, int(largest), bound.upper_steps
        layout = Layout(*(limit.bit_length() for limit in limits))
        folder = spill_folder(connection)
        with (
            store_failures("sorting what vehicles contribute"),
            closing(binned(connection, grid, bound, ingests)) as batches,
        ):
            sums = _packed_sums(batches, layout, folder, bound)
        found = _grouped(connection, grid, bound, ingests) if sums is None else sums
    if grid.mosaic is not None:
        found = found.merged(*bins_in_mosaic(grid, found.counts.cell, found.counts.slot))
    return found if known is None else known.contributions.combined_with(found)


def _grouped(
    connection: duckdb.DuckDBPyConnection, grid: Grid, bound: ContributionBound, ingests: Files
) -> Contributions:
    parts = max(1, -(-count_fixes_of(connection, ingests) // PART_ROWS))
    return _of_rows(
        [
            query_binned(connection, grid, bound, ingests, "contributions", VehiclePart(number, parts))
            for number in range(parts)
        ],
        bound,
    )


def _of_rows(tables: list[pa.Table], bound: ContributionBound) -> Contributions:
    """Return the contributions of ``tables``, each one row a (cell, slot, vehicle), in this order."""
    table = pa.concat_tables(tables)
    columns: list[npt.NDArray[np.generic]] = [
        table.column(name).to_numpy()
        for name in ("cell", "slot", "vehicle_id", "fixes", "total", "total_of_squares")
    ]
    if len(tables) > 1:
        order = np.lexsort(columns[2::-1])
        columns = [column[order] for column in columns]
    cell, slot, vehicle, count, total, squares = columns
    return Contributions.from_rows(
        cell=cell.astype(np.uint64, copy=False),
        slot=slot.astype(np.int64, copy=False),
        vehicle=vehicle.astype(np.int64),
        count=count.astype(np.int64, copy=False),
        total=total.astype(np.int64, copy=False),
        total_of_squares=squares.astype(np.int64, copy=False),
        bound=bound,
    )
