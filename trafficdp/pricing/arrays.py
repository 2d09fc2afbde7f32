"""Arrays of capped samples made anew for the second opinion, by the papers' rules, vehicle after vehicle.

Nothing here shares code with ``bounding`` or ``mechanisms``: BestFit keeps a sorted list of the rooms that
are left, where those place all vehicles of one count at once. One Python step a pair.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.model.counts import Counts

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pieces:
    """``take[i]`` samples of pair ``pair[i]`` stand in a kept array of ``fill[i]`` samples (shape (I,)).

    ``cap`` (G,) is m_UB, ``arrays`` (G,) how many are kept.
    """

    pair: IntArray
    take: IntArray
    fill: IntArray
    cap: IntArray
    arrays: IntArray

    def touched(self, pairs: int) -> IntArray:
        """Return how many arrays every pair has samples in, shape (P,)."""
        return np.bincount(self.pair, minlength=pairs).astype(np.int64)


def caps(counts: Counts, rule: str) -> IntArray:
    """Return m_UB of every bin by "median" (the ceil(L/2)-th largest count) or "argmax".

    "argmax": the count m with the largest (sum of min(m_l, m))^2 / m in floats, the largest of equals.
    """
    cap = np.ones(counts.bins, dtype=np.int64)
    for place, own in _counts(counts):
        ordered = np.sort(counts.count[own])
        if rule == "median":
            cap[place] = ordered[len(ordered) // 2]
            continue
        below = np.cumsum(ordered) - ordered
        total = below + ordered * (len(ordered) - np.arange(len(ordered)))
        score = total.astype(np.float64) ** 2 / ordered
        cap[place] = ordered[np.flatnonzero(score == score.max())[-1]]
    return cap


def wrapped(counts: Counts, cap: IntArray) -> Pieces:
    """WrapAround: samples in a row by descending count, cut every m_UB; the last partial array is dropped."""
    pair: list[int] = []
    take: list[int] = []
    arrays = np.zeros(counts.bins, dtype=np.int64)
    for place, own in _counts(counts):
        size, at = int(cap[place]), 0
        kept = [min(int(counts.count[one]), size) for one in own.tolist()]
        arrays[place] = sum(kept) // size
        end = int(arrays[place]) * size
        for one, samples in zip(own.tolist(), kept, strict=True):
            first = min(samples, size - at % size)
            for begin, number in ((at, first), (at + first, samples - first)):
                if number and begin < end:
                    pair.append(one)
                    take.append(number)
            at += samples
    whole = np.array(pair, dtype=np.int64)
    return Pieces(whole, np.array(take, dtype=np.int64), cap[counts.bin_index[whole]], cap, arrays)


def best_fitted(counts: Counts, cap: IntArray) -> Pieces:
    """BestFit: a vehicle's samples into the fullest array with room, the oldest of equals, else a new one."""
    array_of = np.zeros(counts.pairs, dtype=np.int64)
    take = np.minimum(counts.count, cap[counts.bin_index])
    arrays = np.zeros(counts.bins, dtype=np.int64)
    fill: list[int] = []
    for place, own in _counts(counts):
        rooms: list[tuple[int, int]] = []
        before = len(fill)
        for one, samples in zip(own.tolist(), take[own].tolist(), strict=True):
            at = bisect_left(rooms, (samples, -1))
            if at < len(rooms):
                room, array = rooms.pop(at)
            else:
                room, array = int(cap[place]), len(fill)
                fill.append(0)
            fill[array] += samples
            array_of[one] = array
            insort(rooms, (room - samples, array))
        arrays[place] = len(fill) - before
    filled = np.array(fill, dtype=np.int64)
    return Pieces(np.arange(counts.pairs), take, filled[array_of], cap, arrays)


def _counts(counts: Counts) -> list[tuple[int, IntArray]]:
    """The pairs of every bin, by descending count, then by vehicle."""
    order = np.lexsort((counts.user_index, -counts.count, counts.bin_index))
    ends = np.searchsorted(counts.bin_index[order], np.arange(counts.bins + 1))
    return [(place, order[ends[place] : ends[place + 1]]) for place in range(counts.bins)]
