"""BestFit: every user's capped samples into the fullest array with room (paper 003, section III-A)."""

from __future__ import annotations

import numpy as np

from trafficdp.bounding.arrays import Arrays, IntArray, capped_counts, descending
from trafficdp.bounding.rank import rank_in_sorted
from trafficdp.model.counts import Counts


def best_fit(counts: Counts, capacity: IntArray) -> Arrays:
    """Return the arrays of all bins at once; every user's samples stand in exactly one array.

    User by user in descending count order, all r_l = min(m_l, m_UB) first samples go into the fullest
    array that still has room (the oldest among equals), else into a new one; all Kbar nonempty arrays
    are kept. (Algorithm 1 as printed allocates only K arrays and may write into array K + 1.)

    Users with the same r are placed together, in one vectorised step for all bins: the array with the
    least room >= r has, after one of them, the strictly least room of all, so it is filled until its room
    is below r before the next is touched. So arrays in order of (room, age) take floor(room / r) users each,
    then new ones floor(m_UB / r) each. There are at most as many steps as distinct capped counts.
    Raises UsageError unless 1 <= m_UB <= m* in every bin.
    """
    bins = counts.bins
    capped = capped_counts(counts, capacity)
    order = descending(counts)
    order = order[np.argsort(-capped[order], kind="stable")]
    sizes, group_start = np.unique(-capped[order], return_index=True)
    group_end = np.append(group_start, len(order))[1:]

    room = np.zeros(counts.pairs, dtype=np.int64)
    array_bin = np.zeros(counts.pairs, dtype=np.int64)
    array_of_pair = np.zeros(counts.pairs, dtype=np.int64)
    made = 0
    for size, start, end in zip(-sizes, group_start, group_end, strict=True):
        group = order[start:end]
        bin_of = counts.bin_index[group]
        waiting = np.bincount(bin_of, minlength=bins)

        fitting = np.flatnonzero(room[:made] >= size)
        fitting = fitting[waiting[array_bin[fitting]] > 0]
        fitting = fitting[np.lexsort((fitting, room[fitting], array_bin[fitting]))]
        bin_of_fitting = array_bin[fitting]
        places = room[fitting] // size
        before = np.cumsum(places) - places
        if len(fitting):
            before = before - before[np.arange(len(fitting)) - rank_in_sorted(bin_of_fitting)]
        used = np.clip(waiting[bin_of_fitting] - before, 0, places)
        placed = np.bincount(bin_of_fitting, weights=used, minlength=bins).astype(np.int64)

        rank = rank_in_sorted(bin_of)
        old = rank < placed[bin_of]
        array_of_pair[group[old]] = np.repeat(fitting, used)
        room[fitting] -= used * size

        each = capacity // size
        left = waiting - placed
        opened = np.where(left > 0, -(-left // np.maximum(each, 1)), 0)
        first = made + np.cumsum(opened) - opened
        bin_of_new = bin_of[~old]
        target = first[bin_of_new] + (rank[~old] - placed[bin_of_new]) // each[bin_of_new]
        array_of_pair[group[~old]] = target
        newly = int(opened.sum())
        fresh = np.repeat(np.arange(bins), opened)
        array_bin[made : made + newly] = fresh
        inside = np.bincount(target - made, minlength=newly).astype(np.int64)
        room[made : made + newly] = capacity[fresh] - inside * size
        made += newly

    by_bin = np.argsort(array_bin[:made], kind="stable")
    position = np.empty(made, dtype=np.int64)
    position[by_bin] = np.arange(made)
    sorted_bin = array_bin[:made][by_bin]
    return Arrays(
        counts=counts,
        capacity=capacity,
        array_bin=sorted_bin,
        fill=capacity[sorted_bin] - room[:made][by_bin],
        piece_pair=np.arange(counts.pairs),
        piece_array=position[array_of_pair],
        piece_offset=np.zeros(counts.pairs, dtype=np.int64),
        piece_count=capped,
    )
