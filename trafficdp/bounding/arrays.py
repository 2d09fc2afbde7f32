"""Samples of a bin grouped into arrays by public counts: which of whose samples stand in which array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.counts import Counts

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Arrays:
    """The kept arrays of all bins, and the pieces that fill them.

    ``capacity`` (shape (G,)) is m_UB, the most samples an array of the bin takes. Array i belongs to bin
    ``array_bin[i]`` (ascending; within a bin in order of creation) and holds ``fill[i]`` >= 1
    samples, w_i. A piece is a run of samples of one (bin, user) pair in one array: ``piece_count`` samples
    of pair ``piece_pair`` (a position in the counts) from its sample ``piece_offset`` on (the order in
    time) in array ``piece_array``. A pair has one or two pieces, or none if its samples were dropped.

    Made from counts alone, so public wherever counts are.
    """

    counts: Counts
    capacity: IntArray
    array_bin: IntArray
    fill: IntArray
    piece_pair: IntArray
    piece_array: IntArray
    piece_offset: IntArray
    piece_count: IntArray

    @cached_property
    def per_bin(self) -> IntArray:
        """K (WrapAround) or Kbar (BestFit): kept arrays in each bin, at least 1, shape (G,)."""
        return np.bincount(self.array_bin, minlength=self.counts.bins).astype(np.int64)

    @cached_property
    def start(self) -> IntArray:
        """First array of every bin, and the end, shape (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.per_bin)]).astype(np.int64)

    @cached_property
    def touched_per_pair(self) -> IntArray:
        """How many kept arrays a pair has samples in: 0, 1 or 2, shape (P,)."""
        return np.bincount(self.piece_pair, minlength=self.counts.pairs).astype(np.int64)

    @cached_property
    def influence(self) -> IntArray:
        """c_u: the most kept arrays that one user can change, shape (G,): BestFit 1, WrapAround 1 or 2."""
        most = np.zeros(self.counts.bins, dtype=np.int64)
        np.maximum.at(most, self.counts.bin_index, self.touched_per_pair)
        return most

    @cached_property
    def kept_per_bin(self) -> IntArray:
        """Samples in kept arrays, shape (G,)."""
        return np.bincount(self.array_bin, weights=self.fill, minlength=self.counts.bins).astype(np.int64)


def descending(counts: Counts) -> IntArray:
    """Return the pairs' positions by bin, then count (largest first), then user index."""
    return np.lexsort((counts.user_index, -counts.count, counts.bin_index)).astype(np.int64)


def capped_counts(counts: Counts, capacity: IntArray) -> IntArray:
    """Return r_l = min(m_l, m_UB) of every pair, shape (P,).

    Raises UsageError unless 1 <= capacity <= m*_g in every bin.
    """
    if not bool(np.all((capacity >= 1) & (capacity <= counts.largest_count_per_bin))):
        raise UsageError(
            "a cap on samples a user is out of range", expected="1 to the largest count of the bin"
        )
    return np.minimum(counts.count, capacity[counts.bin_index])
