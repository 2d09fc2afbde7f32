"""What is protected and what is public anyway: above all, how many records each vehicle has in each bin."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, CellArray, FloatArray, IndexArray, IntArray, run_starts

if TYPE_CHECKING:
    from scipy import sparse

# What is protected, against which change, and what is assumed to be public anyway.


DEFAULT_FLEET = 1_000
"""How many vehicles are expected where nothing about one is public and nobody says."""


class NeighbouringRelation(StrEnum):
    """Which two data sets must be hard to tell apart.

    REPLACE_USER_VALUES: they differ in the values (speeds) of one vehicle, in all bins at once; how many
    records each vehicle has in each bin is equal in both and treated as public. The papers' relation.
    ADD_OR_REMOVE_USER: one of them has one vehicle more; nothing about a vehicle is public.
    """

    hides_presence: bool
    """Whether nothing about a vehicle is public."""
    may_refuse_by_counts: bool
    """Whether a file may be refused for how few of its rows are kept: only where counts are public."""

    REPLACE_USER_VALUES = "replace_user_values"
    ADD_OR_REMOVE_USER = "add_or_remove_user"

    def __init__(self, value: str) -> None:
        self.hides_presence = value != "replace_user_values"
        self.may_refuse_by_counts = not self.hides_presence


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing that the guarantee takes for granted. Printed on every release."""

    code: str
    text: str


COUNTS_PUBLIC = Assumption(
    "counts_public",
    "How many records each vehicle has in each bin, and so when and where a vehicle drove, is treated as "
    "public. Only the speeds are protected.",
)
VALIDITY_PUBLIC = Assumption(
    "validity_public",
    "Whether a record carries a usable speed (present, readable, not a sentinel of the device) is treated "
    "as public.",
)
NOTHING_PUBLIC = Assumption(
    "nothing_public",
    "Nothing about a vehicle is treated as public: not whether it is in the data, nor where, when, how often "
    "and how fast it drove. Study area, period, hexagons and slots were declared before any record was seen.",
)
DECLARED_BOUNDS = Assumption(
    "declared_bounds",
    "The speed bound, study area, period, resolution and slots were declared without looking at speeds.",
)
ONE_VEHICLE_ONE_IDENTIFIER = Assumption(
    "one_vehicle_one_identifier",
    "Each vehicle has one identifier (after normalising case, spaces and hyphens). A vehicle that appears "
    "under two identifiers is protected under each separately, so its loss may be up to the sum of both.",
)
VEHICLE_NOT_TRIP = Assumption(
    "independent_vehicles",
    "One vehicle's speeds are protected, not what many vehicles have in common: that traffic on a street "
    "was slow is what the map is for.",
)


# Sorting by small whole numbers in linear time: counting, where a sort by comparison takes n log n.
#
# The transpose of a sparse matrix in compressed rows is such a sort; scipy does it in compiled code.


Scalar = TypeVar("Scalar", bound=np.generic)
FEW = 4_000
"""So few keys are sorted by comparison before scipy has begun to count."""
FEW_PAIRS = 8
"""So many possible pairs for every entry are few."""
LONGEST = int(np.iinfo(np.int32).max)
"""Keys whose positions 32 bits can say."""
_LARGEST = int(np.iinfo(np.int64).max)


def stable_order(key: IndexArray, size: int) -> IndexArray:
    """Return the positions (n,) that sort ``key`` (n,); equal keys stay in their order.

    Keys are whole numbers in 0..``size`` - 1. Equal to ``numpy.argsort(key, kind="stable")``, in time n +
    ``size``. Raises IndexError for a key out of range.
    """
    number = len(key)
    _require_keys(key, size)
    if not FEW < number <= LONGEST:
        return np.argsort(key, kind="stable")
    # it takes longer to import than some commands to run
    from scipy import sparse

    positions = np.arange(number, dtype=np.int32)
    one_row = sparse.csr_matrix((positions, key, np.array([0, number])), shape=(1, size))
    result: npt.NDArray[np.int32] = one_row.tocsc().data
    return result


def unique_by_counting(
    key: npt.NDArray[np.integer], kind: npt.DTypeLike = np.int64
) -> tuple[IntArray, npt.NDArray[Any]]:
    """Return the distinct ``key`` (n,), rising, and the position of each key among them, of type ``kind``.

    What ``numpy.unique(key, return_inverse=True)`` gives, in time and memory n + the largest key. Keys are
    at least 0.
    """
    there = np.zeros(int(key.max(initial=0)) + 1, dtype=np.bool_)
    there[key] = True
    distinct = np.flatnonzero(there).astype(np.int64)
    place = np.empty(len(there), dtype=kind)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[key]


def number_pairs(
    first: IndexArray, second: IndexArray, firsts: int, seconds: int
) -> tuple[IntArray, IntArray, IndexArray]:
    """Return the different pairs of ``first`` and ``second``, sorted, and which of them each entry is.

    Entries have shape (n,), values in 0..``firsts`` - 1 and 0..``seconds`` - 1. The result is (first of every
    different pair, second of it, number of every entry's pair (n,)). Raises as ``stable_order``.
    """
    for key, size in ((first, firsts), (second, seconds)):
        _require_keys(key, size)
    if firsts * seconds > _LARGEST:
        raise OverflowError("pairs of so many keys do not fit 64 bits")
    pair = first.astype(np.int64) * seconds
    pair += second
    kind: npt.DTypeLike = np.int32 if len(pair) <= LONGEST else np.int64
    number: IndexArray
    if firsts * seconds <= FEW_PAIRS * len(pair):
        # so few possible pairs are counted off, which is faster than sorting the entries
        different, number = unique_by_counting(pair, kind)
    else:
        order = np.argsort(pair)
        pair = pair[order]
        new = np.ones(len(pair), dtype=np.bool_)
        np.not_equal(pair[1:], pair[:-1], out=new[1:])
        number = np.empty(len(pair), dtype=kind)
        number[order] = np.cumsum(new, dtype=kind) - 1
        different = pair[new]
    one, two = np.divmod(different, seconds)
    return one, two, number


def _require_keys(key: IndexArray, size: int) -> None:
    if len(key) and not 0 <= int(key.min()) <= int(key.max()) < size:
        raise IndexError(f"a key is not in 0..{size - 1}")


def distinct_bins(cell: CellArray, slot: IntArray) -> tuple[CellArray, IntArray, IntArray]:
    """Return cell and slot of the different bins, by cell, then slot, and which of them each bin is.

    ``cell`` and ``slot`` have shape (n,).
    """
    order = np.lexsort((slot, cell))
    cells, slots = cell[order], slot[order]
    new = run_starts(cells, slots)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return cells[new], slots[new], number


def largest_two(
    values: npt.NDArray[Any], group: IndexArray, groups: int
) -> tuple[npt.NDArray[Any], IntArray, npt.NDArray[Any]]:
    """Return of every group the largest value, its position in ``values``, and the second largest value.

    ``group`` (n,) is the group, 0 to ``groups`` - 1, of every one of ``values`` (n,), and no group is empty.
    The second largest is 0 in a group of one. Shape (``groups``,) each.
    """
    if not groups:
        return values[:0], group[:0].astype(np.int64), values[:0]
    order = stable_order(group, groups)
    many = np.bincount(group, minlength=groups)
    start = np.cumsum(many) - many
    by_group = values[order]
    top = np.maximum.reduceat(by_group, start)
    places = np.flatnonzero(by_group == np.repeat(top, many))
    # the first of equals
    places = places[np.searchsorted(places, start)]
    at = order[places].astype(np.int64)
    by_group[places] = by_group.min()
    return top, at, np.where(many > 1, np.maximum.reduceat(by_group, start), 0)


# How many records each vehicle has in each bin: public by assumption, and all that planning may see.


@dataclass(frozen=True, eq=False)
class Counts:
    """Sparse counts m[bin, user] > 0, sorted by bin, then user. Equal to itself alone, so it can be a key.

    ``cell`` (uint64), ``slot`` and ``users_per_bin`` (int64) describe the G bins; ``users_per_bin`` is L_g,
    the number of vehicles seen in each, at least 1. ``user_index`` (int32 wherever it fits) and ``count``
    (int64) describe the P (bin, user) pairs; ``user_index`` runs over 0..users-1 and is a position, not an
    identifier.

    Papers: m_l of 003; G bins, L users.
    """

    cell: CellArray
    slot: IntArray
    users_per_bin: IntArray
    user_index: IndexArray
    count: IntArray
    users: int
    bins: int = field(init=False)
    """Number of bins, G."""
    pairs: int = field(init=False)
    """Number of (bin, user) pairs with at least one record."""
    _selected: dict[bytes, Counts] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", len(self.cell))
        object.__setattr__(self, "pairs", len(self.count))
        if self.users <= LONGEST:
            object.__setattr__(self, "user_index", self.user_index.astype(np.int32, copy=False))

    @classmethod
    def for_declared_grid(cls, cell: CellArray, slot: IntArray) -> Counts:
        """Return the counts to plan with where none are public: one vehicle with one record in every bin.

        ``cell`` and ``slot`` (G,) are the declared bins. The loss of this vehicle, which visits them all,
        bounds the loss of any vehicle.
        """
        one = np.ones(len(cell), dtype=np.int64)
        return cls(cell, slot, one, np.zeros_like(one), one, 1)

    @cached_property
    def bin_index(self) -> IntArray:
        """The bin of every (bin, user) pair, a position in ``cell``, shape (P,)."""
        return self.per_pair(np.arange(self.bins))

    @cached_property
    def start(self) -> IntArray:
        """The first (bin, user) pair of each bin, and the number of pairs, shape (G + 1,)."""
        return np.append(0, np.cumsum(self.users_per_bin))

    def per_pair(self, value: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """Return the ``value`` (G,) of its bin for every (bin, user) pair, shape (P,)."""
        return np.repeat(value, self.users_per_bin)

    @cached_property
    def cells(self) -> CellArray:
        """The different cells, rising, shape (C,)."""
        return self.cell[run_starts(self.cell)]

    @cached_property
    def slots(self) -> IntArray:
        """The different slot numbers, rising."""
        return np.unique(self.slot)

    @cached_property
    def samples_per_bin(self) -> IntArray:
        """N_g: records in each bin, shape (G,)."""
        return np.add.reduceat(self.count, self.start[:-1])

    @cached_property
    def largest_count_per_bin(self) -> IntArray:
        """m*_g: the most records one vehicle has in each bin, shape (G,)."""
        return np.maximum.reduceat(self.count, self.start[:-1])

    @cached_property
    def bins_per_user(self) -> IntArray:
        """G_l: bins each vehicle visits, shape (users,)."""
        return np.bincount(self.user_index, minlength=self.users).astype(np.int64)

    @cached_property
    def visits(self) -> Visits:
        """The different (cell, user) pairs over all slots, and which of them each (bin, user) pair is."""
        cell, of_bin = np.unique(self.cell, return_inverse=True)
        of_bin = of_bin.ravel().astype(np.int64)
        place, user, of_pair = number_pairs(self.per_pair(of_bin), self.user_index, len(cell), self.users)
        return Visits(cell, of_bin, place, user, of_pair)

    @cached_property
    def order(self) -> VehicleOrder:
        """An order of the vehicles that depends on the counts alone, not on how vehicles are numbered.

        Vehicles rise by the sum over their bins of the count times a fixed pseudorandom number of the bin,
        which is equal for equal counts and hardly ever else.
        """
        mixed = np.arange(1, self.bins + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        weight = (mixed >> np.uint64(11)).astype(np.float64)
        sums = self.sum_per_user(self.count * self.per_pair(weight))
        by_sum = np.argsort(sums, kind="stable")
        rank = np.empty_like(by_sum)
        rank[by_sum] = np.arange(self.users)
        place = self.per_pair(np.arange(self.bins) * self.users)
        place += rank[self.user_index]
        pairs = np.argsort(place)
        return VehicleOrder(rank, pairs.astype(np.int32) if len(pairs) <= LONGEST else pairs)

    def select(self, keep: BoolArray) -> Counts:
        """Return the counts of the bins where ``keep`` (shape (G,)) is true; user positions stay.

        Called again with the same ``keep``, it returns the same object, with its cached properties.
        """
        if keep.all():
            return self
        chosen = keep.tobytes()
        if chosen not in self._selected:
            self._selected.clear()
            pairs = self.per_pair(keep)
            self._selected[chosen] = Counts(
                cell=self.cell[keep],
                slot=self.slot[keep],
                users_per_bin=self.users_per_bin[keep],
                user_index=self.user_index[pairs],
                count=self.count[pairs],
                users=self.users,
            )
        return self._selected[chosen]

    def merged(self, cell: CellArray, slot: IntArray) -> Merging:
        """Return the counts after bins are merged: bin g becomes part of the bin (``cell[g]``, ``slot[g]``).

        Both have shape (G,). Bins of the result are the different pairs, sorted by cell, then slot; counts of
        a user in bins that become one are added. User positions stay.
        """
        cells, slots, bin_of = distinct_bins(cell, slot)
        bins, users, pair_of = number_pairs(self.per_pair(bin_of), self.user_index, len(bin_of), self.users)
        count = np.zeros(len(bins), dtype=np.int64)
        np.add.at(count, pair_of, self.count)
        counts = Counts(cells, slots, np.bincount(bins, minlength=len(cells)), users, count, self.users)
        return Merging(counts, bin_of, pair_of)

    def matrix(self, value: FloatArray | IntArray, row: IndexArray, rows: int) -> sparse.csc_matrix:
        """Return a sparse matrix (``rows``, G) of the (bin, user) pairs p: ``value[p]`` in row ``row[p]``.

        Its column is the bin of pair p. ``value`` and ``row`` (0 to ``rows`` - 1) have shape (P,).
        """
        from scipy import sparse

        return sparse.csc_matrix((value, row, self.start), shape=(rows, self.bins))

    def sum_per_user(self, pair_values: FloatArray | IntArray) -> FloatArray:
        """Return the sum of ``pair_values`` over every user's (bin, user) pairs, (users,), in their unit.

        ``pair_values`` (P,) hold any number of each pair, such as a loss or the square of an entry; the sums
        are as private as they are.
        """
        return np.bincount(self.user_index, weights=pair_values, minlength=self.users).astype(np.float64)


@dataclass(frozen=True)
class Visits:
    """The E different (cell, user) pairs, sorted by cell, then user: a visit is a user in a cell in any slot.

    ``cell`` (C,) holds the different cells, ``of_bin`` (G,) the position of every bin's cell among them.
    ``place`` (a position in ``cell``) and ``user`` have shape (E,); ``of_pair`` (P,) is the visit that each
    (bin, user) pair belongs to.
    """

    cell: CellArray
    of_bin: IntArray
    place: IntArray
    user: IntArray
    of_pair: IndexArray


@dataclass(frozen=True)
class VehicleOrder:
    """``rank`` (users,) is the place of every vehicle in the order.

    ``pairs`` (P,) are the positions of the (bin, user) pairs, sorted by bin, then by that place.
    """

    rank: IntArray
    pairs: IndexArray


@dataclass(frozen=True)
class Merging:
    """The ``counts`` of merged bins, and where the old bins and pairs went.

    ``bin_of`` (bins before,) and ``pair_of`` (pairs before,) are the new bin and the new (bin, user) pair of
    each old one.
    """

    counts: Counts
    bin_of: IntArray
    pair_of: IndexArray
