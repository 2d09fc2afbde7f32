"""Sums a (bin, vehicle) by sorting, and put together over files.

Sums a (bin, vehicle) by sorting: cell, slot, vehicle and value of a record in one 64-bit number.

    key = cell number | slot number | vehicle | value,   at most 63 bits

Cells and slots are numbered as they come, and renumbered in rising order once all are known. Keys are
then cut into buckets of some millions: at keys of a systematic sample, between two (bin, vehicle) pairs,
never inside one. Each bucket is sorted by itself, and the runs of one pair are added up. Memory is that of
one bucket and of the result, whatever the number of records. All arithmetic is in whole numbers.

Contributions of earlier files and of later ones, put together: sums add up, so a day costs a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.errors import UsageError
from trafficdp.model import Counts
from trafficdp.sensitive import LARGEST_TOTAL, Contributions
from trafficdp.store.store_files import Spill

IntArray = npt.NDArray[np.int64]
CellArray = npt.NDArray[np.uint64]

KEY_BITS = 63
"""Keys are never negative, so that they sort like the numbers in them."""
BUCKET_ROWS = 1 << 23
"""Keys that are sorted at once."""
_PIECE = 1 << 17
"""Keys that are worked on together: they stay in the processor's cache."""
_LOW = (1 << 32) - 1
_SAMPLED = 1021
"""One key in so many decides where buckets begin; a prime, so that no period of a feed fits it."""


class Record(NamedTuple):
    """Records with their bins, arrays of shape (n,): the part of ``duckdb_reduce.Binned`` that is packed."""

    cell: CellArray
    slot: IntArray
    vehicle: npt.NDArray[np.int32]
    value: IntArray


@dataclass(frozen=True, repr=False)
class Sums:
    """One row a (bin, vehicle), sorted by cell, slot and vehicle; no sum is above 2^63 - 1."""

    cell: CellArray
    """Cell of each of the G bins, shape (G,)."""
    slot: IntArray
    """Slot of each bin, shape (G,)."""
    bin_index: IntArray
    """Bin of each of the P rows, shape (P,)."""
    vehicle: IntArray
    count: IntArray
    total: IntArray
    total_of_squares: IntArray


@dataclass(frozen=True, slots=True)
class Layout:
    """How many bits each part of a key has; a cell has those that the others leave."""

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
        numbers: IntArray = self.number[place][encoded.indices.to_numpy()]
        return numbers


def packed_sums(batches: Iterable[Record], layout: Layout, folder: Path) -> Sums | None:
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
        in_order = _InOrder(np.argsort(cells.number), np.argsort(slots.number), layout)
        parts = [_summed(bucket, layout.value) for bucket in keys.buckets(in_order, layout.value)]
    # one column after another, and each let go of: never two copies of all
    columns = [list(column) for column in zip(*parts, strict=True)]
    del parts
    pair, count, total, squares = (np.concatenate(columns.pop(0)) for _ in range(4))
    bins = pair >> layout.vehicle
    first = np.ones(len(pair), dtype=np.bool_)
    first[1:] = bins[1:] != bins[:-1]
    of_bin = bins[first]
    return Sums(
        cell=cells.values[of_bin >> layout.slot],
        slot=slots.values[of_bin & ((1 << layout.slot) - 1)],
        bin_index=np.cumsum(first, dtype=np.int64) - 1,
        vehicle=pair & ((1 << layout.vehicle) - 1),
        count=count,
        total=total,
        total_of_squares=squares,
    )


@dataclass(frozen=True)
class _InOrder:
    """Renumbers cells and slots of keys, so that keys sort as their cells and slots do."""

    cell_rank: IntArray
    slot_rank: IntArray
    layout: Layout

    def __call__(self, key: IntArray) -> IntArray:
        low, slot_bits = self.layout.vehicle + self.layout.value, self.layout.slot
        bins = key >> low
        result: IntArray = self.cell_rank[bins >> slot_bits]
        result <<= slot_bits
        bins &= (1 << slot_bits) - 1
        result |= self.slot_rank[bins]
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

    def buckets(self, in_order: _InOrder, value_bits: int) -> Iterator[IntArray]:
        """Yield all keys, put in order, in buckets that follow one another and cut no pair."""
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
    start = np.flatnonzero(np.append(True, pair[1:] != pair[:-1])[: len(pair)])
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


def put_together(earlier: Contributions, later: Contributions) -> Contributions:
    """Return the contributions of all files, of the same grid and bound; no sum is above 2^63 - 1.

    Every (bin, vehicle) is one whole number, rank of its bin times vehicles plus rank of its vehicle, so both
    sides are rising and the later ones are looked up in the earlier ones. Raises UsageError for two bounds.
    """
    if earlier.bound != later.bound:
        raise UsageError("contributions under two speed bounds cannot be put together")
    sides = (earlier, later)
    cell = np.concatenate([each.counts.cell for each in sides])
    slot = np.concatenate([each.counts.slot for each in sides])
    order = np.lexsort((slot, cell))
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (cell[order][1:] != cell[order][:-1]) | (slot[order][1:] != slot[order][:-1])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.cumsum(new) - 1
    vehicle = np.union1d(earlier.vehicle, later.vehicle)
    users = len(vehicle)
    old, fresh = (
        bins[each.counts.bin_index] * users + np.searchsorted(vehicle, each.vehicle)[each.counts.user_index]
        for each, bins in zip(sides, np.split(rank, [earlier.counts.bins]), strict=True)
    )
    place = np.searchsorted(old, fresh)
    known = np.zeros(len(fresh), dtype=np.bool_)
    inside = place < len(old)
    known[inside] = old[place[inside]] == fresh[inside]

    def together(of_old: IntArray, of_fresh: IntArray) -> IntArray:
        result = of_old.copy()
        both = of_old[place[known]] + of_fresh[known]
        # two numbers of at least 0 that leave 64 bits wrap below 0
        result[place[known]] = np.where(both < 0, LARGEST_TOTAL, both)
        return np.insert(result, place[~known], of_fresh[~known])

    pair = np.insert(old, place[~known], fresh[~known])
    counts = Counts(
        cell=cell[order][new],
        slot=slot[order][new],
        bin_index=pair // users if users else pair,
        user_index=pair % users if users else pair,
        count=together(earlier.counts.count, later.counts.count),
        users=users,
    )
    return Contributions(
        counts,
        together(earlier.total, later.total),
        together(earlier.total_of_squares, later.total_of_squares),
        vehicle,
        earlier.bound,
    )
