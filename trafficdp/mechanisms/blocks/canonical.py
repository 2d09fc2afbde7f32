"""An order of items and users that does not depend on how they are numbered, so that no result does.

Colour refinement (Weisfeiler, Lehman 1968): a label starts from what an item or a user is by itself and is
mixed, round by round, with the labels on the other side of its entries. Sums of 64-bit words wrap and
commute, so the labels are the same under every numbering. What still shares a label is, but for contrived
cases, interchangeable, and then the order between them does not matter.

Searches that break ties by position then find the same in counts in this order, up to names, whatever the
names are: those of vehicles follow from the store's secret key, and a price must not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.items import Items, items_of
from trafficdp.model import ContributionBound, Counts, Statistic

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.uint64]
ROUNDS = 4
CHUNK = 1 << 15
"""Entries at a time: words that are mixed stay in the processor's cache."""


def canonical_order(items: Items) -> tuple[IntArray, IntArray]:
    """Return the items in canonical order (I,) and the rank of every user (users,)."""
    owner = items.of_entry
    entry = _mixed(items.cost.view(np.uint64))
    item = _mixed(items.tolerance.view(np.uint64))
    user = np.zeros(items.users, dtype=np.uint64)
    for _ in range(ROUNDS):
        item = _mixed(item + _sums(np.add, entry, user, items.user, owner, items.number))
        user = _mixed(user + _sums(np.bitwise_xor, entry, item, owner, items.user, items.users))
    heavy = np.bincount(items.user, minlength=items.users)
    order = np.lexsort((item, -np.diff(items.start)))
    rank = np.empty(items.users, dtype=np.int64)
    rank[np.lexsort((user, -heavy))] = np.arange(items.users)
    return order.astype(np.int64), rank


@dataclass(frozen=True)
class Ordered:
    """``counts`` in canonical order; its pair p was ``pair[p]`` (P,) before."""

    counts: Counts
    pair: IntArray

    def to_given(self, marked: BoolArray) -> BoolArray:
        """Return marks of canonical pairs (P,) for the pairs as they were given."""
        result = np.empty_like(marked)
        result[self.pair] = marked
        return result


def in_canonical_order(counts: Counts, bound: ContributionBound) -> Ordered:
    """Return the same counts with bins and vehicles in canonical order (by what they move in means)."""
    if not counts.bins:
        return Ordered(counts, np.zeros(0, dtype=np.int64))
    # every pair moves its mean: the items are the bins, one each
    bins, rank = canonical_order(items_of(counts, bound, {Statistic.MEAN: 1.0}))
    name = np.empty(counts.bins, dtype=np.int64)
    name[bins] = np.arange(counts.bins)
    bin_index, user_index = name[counts.bin_index], rank[counts.user_index]
    pair = np.lexsort((user_index, bin_index)).astype(np.int64)
    return Ordered(
        Counts(
            cell=counts.cell[bins],
            slot=counts.slot[bins],
            bin_index=bin_index[pair],
            user_index=user_index[pair],
            count=counts.count[pair],
            users=counts.users,
        ),
        pair,
    )


def _sums(
    join: np.ufunc, entry: WordArray, label: WordArray, across: IntArray, where: IntArray, size: int
) -> WordArray:
    """Every entry joined with the label across it and mixed; their sums by ``where``, 0..``size`` - 1."""
    total = np.zeros(size, dtype=np.uint64)
    for start in range(0, len(entry), CHUNK):
        part = slice(start, start + CHUNK)
        np.add.at(total, where[part], _mixed(join(entry[part], label[across[part]])))
    return total


def _mixed(words: WordArray) -> WordArray:
    """Scramble 64-bit words (the finaliser of splitmix64); arithmetic wraps."""
    word = words + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: WordArray = word ^ (word >> np.uint64(31))
    return result
