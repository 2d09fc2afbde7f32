"""How far one vehicle moves an exact integer, computed anew for the second opinion: Python integers alone."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]


def integer_moves(
    statistic: Statistic, bound: ContributionBound, counts: Counts, pairs: IntArray | None = None
) -> ObjectArray:
    """Return K m; K^2 times the most of k (N - k), k <= m; or K, of ``pairs`` (all when left out)."""
    chosen = np.arange(counts.pairs) if pairs is None else pairs
    count = counts.count[chosen].astype(object)
    if statistic is Statistic.MEAN:
        return count * bound.steps
    if statistic is Statistic.VEHICLE_MEAN:
        return count * 0 + bound.steps
    samples = counts.samples_per_bin[counts.bin_index[chosen]].astype(object)
    most = np.minimum(count, samples // 2)
    moved: ObjectArray = most * (samples - most) * bound.steps**2
    return moved


def rank_of(epsilon: FloatArray) -> IntArray:
    """Return ceil(2/eps), at least 1, for the decimal that each epsilon is written as."""
    ranks = {one: max(1, min(ceil(2 / Fraction(str(one))), 2**62)) for one in set(epsilon.tolist())}
    return np.array([ranks[one] for one in epsilon.tolist()], dtype=np.int64)


def clipped_change(counts: Counts, bound: ContributionBound, rank: IntArray) -> ObjectArray:
    """Return the most that each vehicle moves N Q - S^2 of samples clipped to [a_l, K - a_l].

    a_l = ceil(K max(m_l - t, 0)/(2 m_l)), at most floor(K/2), t the ``rank``-th largest count of the bin, 0
    when it has fewer vehicles. With the sum s of all others fixed, a vehicle's share of the integer,

        g = N Q_l - S_l^2 - 2 s S_l,

    is convex in its samples and for two of its values the difference is linear in s, hence extreme where all
    others stand at one of their ends. There g is largest with k samples at the upper and m - k at the lower
    end, for a k next to the vertex of that parabola, and least where all its samples agree (g = m (n t^2 -
    2 s t), n = N - m others, at t nearest to s/n).
    """
    steps = bound.steps
    index = counts.bin_index
    m = counts.count.astype(object)
    order = np.lexsort((-counts.count, index))
    users = counts.users_per_bin
    place = np.cumsum(users) - users + np.minimum(rank, users) - 1
    threshold = np.where(rank <= users, counts.count[order][place], 0)[index].astype(object)
    low = np.minimum(-(-steps * np.maximum(m - threshold, 0) // (2 * m)), steps // 2)
    high = steps - low
    samples = counts.samples_per_bin[index].astype(object)
    n = samples - m
    best = np.zeros(counts.pairs, dtype=object)
    for end in (low, high):
        total = np.zeros(counts.bins, dtype=object)
        np.add.at(total, index, m * end)
        others = total[index] - m * end
        width = high - low
        most = None
        # g(k) - g(0) = k w (N (h + l) - 2 (m l + s) - k w): its vertex, and whole numbers next to it
        peak = (samples * (high + low) - 2 * (m * low + others)) // np.where(width > 0, 2 * width, 1)
        for shift in (0, 1):
            k = np.minimum(np.maximum(peak + shift, 0), m)
            own = k * high + (m - k) * low
            g = samples * (k * high**2 + (m - k) * low**2) - own**2 - 2 * others * own
            most = g if most is None else np.maximum(most, g)
        # the least over real t, times n: rounded up it is the least over what is a whole number
        inside = (n > 0) & (others > n * low) & (others < n * high)
        nearest = np.where(others <= n * low, low, high)
        at_end = m * (n * nearest**2 - 2 * others * nearest)
        safe = np.where(n > 0, n, 1)
        least = np.where(inside, -(m * others**2 // safe), at_end)
        best = np.maximum(best, most - least)
    return best
