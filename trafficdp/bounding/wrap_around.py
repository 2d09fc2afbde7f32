"""WrapAround: users' capped samples in a row, cut into full arrays (paper 003, section III-A)."""

from __future__ import annotations

import numpy as np

from trafficdp.bounding.arrays import Arrays, IntArray, capped_counts, descending
from trafficdp.model.counts import Counts


def wrap_around(counts: Counts, capacity: IntArray) -> Arrays:
    """Return the arrays of all bins at once.

    The users' r_l = min(m_l, m_UB) first samples stand one user after another, in descending count order;
    the row is cut into arrays of m_UB samples; K = floor(sum r_l / m_UB) full ones are kept, the rest is
    dropped. Since r_l <= m_UB, a user has samples in at most two arrays, m_UB together.
    Raises UsageError unless 1 <= m_UB <= m* in every bin (then K >= 1).
    """
    order = descending(counts)
    bin_index = counts.bin_index[order]
    taken = capped_counts(counts, capacity)[order]
    size = capacity[bin_index]
    per_bin = np.bincount(bin_index, weights=taken, minlength=counts.bins).astype(np.int64)
    arrays = per_bin // capacity
    first_array = np.cumsum(arrays) - arrays

    before = np.cumsum(taken) - taken - (np.cumsum(per_bin) - per_bin)[bin_index]
    first = before // size
    in_first = np.minimum(taken, size - before % size)

    pair = np.concatenate([order, order])
    array = np.concatenate([first, first + 1])
    offset = np.concatenate([np.zeros_like(in_first), in_first])
    count = np.concatenate([in_first, taken - in_first])
    keep = (count > 0) & (array < np.tile(arrays[bin_index], 2))
    pair, array, offset, count = pair[keep], array[keep], offset[keep], count[keep]
    array_bin = np.repeat(np.arange(counts.bins), arrays)
    return Arrays(
        counts=counts,
        capacity=capacity,
        array_bin=array_bin,
        fill=capacity[array_bin],
        piece_pair=pair,
        piece_array=array + first_array[counts.bin_index[pair]],
        piece_offset=offset,
        piece_count=count,
    )
