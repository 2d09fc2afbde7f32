"""Counts with bins and vehicles named anew, in an order that does not depend on the names they came with.

Searches that break ties by position then find the same, up to names, whatever the names are: those of
vehicles follow from the store's secret key, and a price must not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.canonical import canonical_order
from trafficdp.mechanisms.blocks.items import items_of
from trafficdp.model import ContributionBound, Counts, Statistic

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


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
