"""The types that hold people's values: records, contributions and the inputs of a release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, CellArray, FloatArray, IntArray, run_starts
from trafficdp.errors import DataError, UsageError
from trafficdp.model.counts import Counts, distinct_bins, unique_by_counting
from trafficdp.model.speed import ContributionBound

if TYPE_CHECKING:
    import pyarrow as pa

# GPS records of vehicles, as they enter the vault.


@cache
def fixes_schema() -> pa.Schema:
    """Return the Arrow schema of accepted GPS records in the vault: vehicle, time, position, speed."""
    import pyarrow as pa

    return pa.schema(
        [
            # keyed HMAC-SHA256 of the normalised vehicle identifier, 32 bytes; no entry that no row has
            pa.field("vehicle", pa.dictionary(pa.int32(), pa.binary(32)), nullable=False),
            # UTC, microseconds since the epoch
            pa.field("time_us", pa.int64(), nullable=False),
            # WGS84 degrees
            pa.field("latitude", pa.float64(), nullable=False),
            pa.field("longitude", pa.float64(), nullable=False),
            # hundredths of the source's unit, not clipped
            pa.field("speed_centi", pa.int64(), nullable=False),
            # "ms", "kmh" or "mph"
            pa.field("speed_unit", pa.dictionary(pa.int8(), pa.string()), nullable=False),
            # whether the speed was derived from two fixes instead of reported
            pa.field("derived", pa.bool_(), nullable=False),
        ]
    )


@dataclass(frozen=True, repr=False)
class Fixes:
    """Accepted records, one a row, in the order of their file. Columns: ``fixes_schema``."""

    table: pa.Table

    def __post_init__(self) -> None:
        if not self.table.schema.equals(fixes_schema()):
            raise TypeError("a table of fixes must have the columns of fixes_schema")

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"<Fixes: {len(self)} rows, redacted>"


# What a release works on: sums of every (vehicle, bin), every value where its mechanism asks, or entries.


LARGEST_TOTAL = (1 << 63) - 1
"""A larger sum of one vehicle in one bin is this number: no error may tell of it where counts are secret."""
ANYONE = 0
"""The account of every possible vehicle, where nothing about any is public; vehicles count from 1."""


@dataclass(frozen=True, repr=False)
class Contributions:
    """Exact integer sums of clipped values, for every pair of ``counts`` (shape (P,) each).

    ``total`` is the sum and ``total_of_squares`` the sum of squares of the user's values in the bin, in
    steps of ``bound.step`` after clipping to [0, U]; none is above LARGEST_TOTAL. ``vehicle`` (shape
    (users,)) holds the vault's own numbers of the vehicles, by user position.
    """

    counts: Counts
    total: IntArray
    total_of_squares: IntArray
    vehicle: IntArray
    bound: ContributionBound

    def __repr__(self) -> str:
        return f"<Contributions: {self.counts.bins} bins, {self.counts.users} users, redacted>"

    @classmethod
    def from_rows(
        cls,
        *,
        cell: CellArray,
        slot: IntArray,
        vehicle: IntArray,
        count: IntArray,
        total: IntArray,
        total_of_squares: IntArray,
        bound: ContributionBound,
    ) -> Contributions:
        """Return the sums given as rows, one a (bin, vehicle) pair, sorted by cell, slot and vehicle.

        Bins and users are numbered by position: users by rising ``vehicle`` (not negative), over those with a
        row.
        """
        first = run_starts(cell, slot)
        vehicles, user = unique_by_counting(vehicle)
        counts = Counts(
            cell=cell[first].astype(np.uint64, copy=False),
            slot=slot[first].astype(np.int64, copy=False),
            users_per_bin=np.diff(np.flatnonzero(first), append=len(first)),
            user_index=user,
            count=count.astype(np.int64, copy=False),
            users=len(vehicles),
        )
        squares = total_of_squares.astype(np.int64, copy=False)
        return cls(counts, total.astype(np.int64, copy=False), squares, vehicles, bound)

    @classmethod
    def for_declared_grid(cls, cell: CellArray, slot: IntArray, bound: ContributionBound) -> Contributions:
        """Return sums of 0 for one possible vehicle in every declared bin, where nothing about vehicles is
        public.

        Counts are ``Counts.for_declared_grid`` of ``cell`` and ``slot`` (G,); the vehicle's account is
        ANYONE.
        """
        counts = Counts.for_declared_grid(cell, slot)
        nothing = np.zeros(counts.pairs, dtype=np.int64)
        return cls(counts, nothing, nothing, np.array([ANYONE]), bound)

    def zeroed(self) -> Contributions:
        """Return the same counts with sums of 0, which take no memory."""
        nothing = np.broadcast_to(np.int64(0), self.counts.count.shape)
        return replace(self, total=nothing, total_of_squares=nothing)

    def require_exact_sums(self) -> None:
        """Raise DataError when a sum of squares could leave 64 bits, were every speed at the bound.

        The largest of the public counts decides; no sum is read.
        """
        if int(self.counts.count.max(initial=0)) * self.bound.upper_steps**2 >= 1 << 63:
            raise DataError(
                "too many fixes of one vehicle in one bin",
                expected="fixes times the square of the steps up to the speed bound below 2^63",
                todo="choose a larger speed_step or shorter slots",
            )

    def select(self, keep: BoolArray) -> Contributions:
        """Return the contributions to the bins where the mask ``keep`` (G,) is true."""
        if keep.all():
            return self
        pairs = self.counts.per_pair(keep)
        counts = self.counts.select(keep)
        # zeros that take no memory stay so
        total, squares = (
            each[pairs] if any(each.strides) else each[: counts.pairs]
            for each in (self.total, self.total_of_squares)
        )
        return Contributions(counts, total, squares, self.vehicle, self.bound)

    def merged(self, cell: CellArray, slot: IntArray) -> Contributions:
        """Return the contributions added up over larger bins, exactly.

        ``cell`` and ``slot`` (G,) name the larger bin of each bin. Only where counts are public: a sum of
        squares that leaves 64 bits wraps, and ``require_exact_sums`` refuses bins where one could.
        """
        merging = self.counts.merged(cell, slot)
        total = np.zeros(merging.counts.pairs, dtype=np.int64)
        squares = np.zeros(merging.counts.pairs, dtype=np.int64)
        np.add.at(total, merging.pair_of, self.total)
        np.add.at(squares, merging.pair_of, self.total_of_squares)
        return Contributions(merging.counts, total, squares, self.vehicle, self.bound)

    def combined_with(self, later: Contributions) -> Contributions:
        """Return the sums of these contributions and those of ``later`` files, of the same grid and bound.

        No sum is above LARGEST_TOTAL. Every (bin, vehicle) is one whole number, rank of its bin times
        vehicles plus rank of its vehicle, so both sides are rising and the later ones are looked up in the
        earlier ones. Raises UsageError for two bounds.
        """
        if self.bound != later.bound:
            raise UsageError("contributions under two speed bounds cannot be put together")
        sides = (self, later)
        cell, slot, rank = distinct_bins(
            np.concatenate([each.counts.cell for each in sides]),
            np.concatenate([each.counts.slot for each in sides]),
        )
        vehicle = np.union1d(self.vehicle, later.vehicle)
        users = len(vehicle)
        old, fresh = (
            each.counts.per_pair(bins * users)
            + np.searchsorted(vehicle, each.vehicle)[each.counts.user_index]
            for each, bins in zip(sides, np.split(rank, [self.counts.bins]), strict=True)
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
            cell=cell,
            slot=slot,
            users_per_bin=np.bincount(pair // max(users, 1), minlength=len(cell)),
            user_index=pair % users if users else pair,
            count=together(self.counts.count, later.counts.count),
            users=users,
        )
        return Contributions(
            counts,
            together(self.total, later.total),
            together(self.total_of_squares, later.total_of_squares),
            vehicle,
            self.bound,
        )


@dataclass(frozen=True, repr=False)
class Samples:
    """Values in steps of ``bound.step``, clipped to [0, U], sorted by bin, then user, then time.

    ``value`` (int64, shape (sum of counts,)) holds the pairs of ``counts`` one after another:
    those of pair p are ``value[start[p]:start[p + 1]]`` with ``start`` of shape (P + 1,). The order
    inside a pair is the order in time: it does not depend on values.
    """

    counts: Counts
    value: IntArray
    vehicle: IntArray
    bound: ContributionBound

    def __repr__(self) -> str:
        return f"<Samples: {self.counts.bins} bins, {self.counts.users} users, redacted>"

    @property
    def start(self) -> IntArray:
        """The first position of every (bin, vehicle) pair in ``value``, and the end, shape (P + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts.count)]).astype(np.int64)

    def contributions(self) -> Contributions:
        """Return each (bin, vehicle) pair's sum and sum of squares of its values."""
        return self._contributions

    @cached_property
    def _contributions(self) -> Contributions:
        start = self.start[:-1]
        return Contributions(
            counts=self.counts,
            total=np.add.reduceat(self.value, start) if len(start) else self.value[:0],
            total_of_squares=np.add.reduceat(self.value**2, start) if len(start) else self.value[:0],
            vehicle=self.vehicle,
            bound=self.bound,
        )

    def select(self, keep: BoolArray) -> Samples:
        """Return the samples of the bins where the mask ``keep`` (G,) is true."""
        pairs = self.counts.per_pair(keep)
        return Samples(
            counts=self.counts.select(keep),
            value=self.value[np.repeat(pairs, self.counts.count)],
            vehicle=self.vehicle,
            bound=self.bound,
        )


@dataclass(frozen=True, repr=False)
class SensitiveInputs:
    """The private values that a release is computed from.

    ``contributions`` are the sums of (bin, user) pairs, at hand; ``read_samples`` reads every single value of
    the same pairs when called. Where nothing about a vehicle is public, ``contributions`` are
    ``Contributions.for_declared_grid``, and ``recorded`` reads the real sums.
    """

    contributions: Contributions
    read_samples: Callable[[], Samples]
    recorded: Callable[[], Contributions] | None = None

    def __repr__(self) -> str:
        return f"<SensitiveInputs: {self.contributions.counts.bins} bins, redacted>"

    def all_contributions(self) -> Contributions:
        """Return the exact private sums of every (bin, vehicle) pair, reading the store if they are not
        at hand.
        """
        return self.contributions if self.recorded is None else self.recorded()

    def select(self, keep: BoolArray) -> SensitiveInputs:
        """Return the private inputs of the bins where the mask ``keep`` (G,) is true."""
        read = self.read_samples
        return SensitiveInputs(self.contributions.select(keep), lambda: read().select(keep), self.recorded)

    @classmethod
    def zeros(cls, known: Contributions) -> SensitiveInputs:
        """Return inputs with the counts of ``known`` whose values are all 0, to rehearse a release."""

        def samples() -> Samples:
            value = np.zeros(int(known.counts.count.sum()), dtype=np.int64)
            return Samples(known.counts, value, known.vehicle, known.bound)

        return cls(known.zeroed(), samples)


@dataclass(frozen=True, repr=False)
class VectorEntries:
    """Sparse vectors of users: entry e adds ``value[e]`` to coordinate ``coordinate[e]`` of user ``user[e]``.

    Shape (E,) each, in any order; entries of one user and coordinate add up.
    """

    user: IntArray
    coordinate: IntArray
    value: FloatArray

    def __repr__(self) -> str:
        return "<VectorEntries: redacted>"


MeasureInput = npt.NDArray[Any] | VectorEntries
"""What a step reads: values in the order of public entries, or entries."""
