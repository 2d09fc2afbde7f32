"""How many samples of one user a bin takes: m_UB by the median or by the argmax rule; the pooled cap."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import capped_counts, descending
from trafficdp.bounding.rank import rank_in_sorted
from trafficdp.model.counts import Counts

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class CountCap(StrEnum):
    """How m_UB is chosen from the counts of a bin (paper 003, section III-A and equation (10))."""

    MEDIAN = "median"
    ARGMAX = "argmax"

    def of(self, counts: Counts) -> IntArray:
        """Return m_UB of every bin, shape (G,); always one of its counts."""
        rule = median_cap if self is CountCap.MEDIAN else argmax_cap
        return rule(counts)


def median_cap(counts: Counts) -> IntArray:
    """Return the ceil(L/2)-th largest count of every bin: at least half of the users reach it."""
    order = descending(counts)
    users = counts.users_per_bin
    first = np.cumsum(users) - users
    cap: IntArray = counts.count[order[first + (users + 1) // 2 - 1]]
    return cap


def argmax_cap(counts: Counts) -> IntArray:
    """Return the maximiser over m of (sum_l min(m_l, m)) / sqrt(m) of every bin, the largest of equals.

    Only the distinct counts need to be tried: between two consecutive ones the function is A/s + B s with
    s = sqrt(m), A and B >= 0, which is convex in s and so largest at an end.
    """
    order = descending(counts)
    bin_index = counts.bin_index[order]
    count = counts.count[order]
    users = counts.users_per_bin
    first = np.cumsum(users) - users
    up_to = np.cumsum(count)
    all_in_bin = up_to[first + users - 1]
    # users before and at this position give m each, those after it all they have
    capped_sum = count * (rank_in_sorted(bin_index) + 1) + (all_in_bin[bin_index] - up_to)
    score = capped_sum.astype(np.float64) ** 2 / count
    best = np.maximum.reduceat(score, first)
    place = np.where(score == best[bin_index], np.arange(len(order)), len(order))
    cap: IntArray = count[np.minimum.reduceat(place, first)]
    return cap


def kept_counts(counts: Counts, capacity: IntArray) -> Counts:
    """Return the counts after capping: every pair keeps its first min(m_l, m_UB) samples.

    Raises UsageError unless 1 <= m_UB <= m* in every bin.
    """
    return Counts(
        cell=counts.cell,
        slot=counts.slot,
        bin_index=counts.bin_index,
        user_index=counts.user_index,
        count=capped_counts(counts, capacity),
        users=counts.users,
    )


def dropped_mean_bias(dropped: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return U D / N: the most the mean moves when D of N samples are dropped. Exact."""
    return upper * dropped / samples


def dropped_variance_bias(dropped: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return U^2 j (N - j) / N^2, j = min(D, floor(N/2)): the same for the variance. Exact.

    Var = (n/N) V_k + (D/N) V_d + (n D / N^2)(k - d)^2 with n = N - D kept. Upward: all kept at 0 and j
    dropped at U. Downward at most (D/N) U^2 floor(n^2/4)/n^2, which is never larger.
    """
    j = np.minimum(dropped, samples // 2).astype(np.float64)
    return upper**2 * j * (samples - j) / samples.astype(np.float64) ** 2
