"""Clipping of sums that is optimal for the worst case over values; exact sensitivities of means."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf

import numpy as np

from trafficdp.arrays import FloatArray, IntArray

# Exact user-level sensitivities of the means of one bin, values in [0, U].
#
# Relation REPLACE_USER_VALUES: one vehicle's values change, counts are public. N = records in the bin,
# m = records of the vehicle in it. All functions are vectorised over (bin, vehicle) pairs and return floats;
# exact up to rounding of a few units in the last place (losses are computed from integers elsewhere).


def mean_sensitivity(count: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return the most that one vehicle with ``count`` of ``samples`` records moves a bin's mean: U m / N.

    Exact.
    """
    return upper * count / samples


def vehicle_mean_sensitivity(users: IntArray, upper: float) -> FloatArray:
    """Return the most that one of ``users`` vehicles moves the mean of the vehicles' own means: U / L.

    Exact.
    """
    return upper / users


# Clipping of users' sums that is optimal for the worst case over values, all bins at once.
#
# Paper 000 (Rameshwar, Tandon, "Bounding User Contributions for User-Level Differentially Private Mean
# Estimation", arXiv 2502.04749), Theorem III.1. Values in [0, U], m_l samples of user l in a bin, N their
# sum. A user's sum S_l is clipped to the centred interval [(U m_l - T)/2, (U m_l + T)/2] (all of [0, U m_l]
# where that is narrower), so that no user moves the total by more than T:
#
#     sensitivity of the mean  min(T, U m_l)/N,    largest bias  beta = sum_l max(U m_l - T, 0) / (2 N),
#     Laplace scale of the mean  b = T/(N eps).
#
# The paper minimises beta + b. Its slope in T is (1/eps - #{U m_l > T}/2)/N, so that U times the
# ceil(2/eps)-th largest count is a minimiser; fewer users than that, T = 0: release U/2. (Erratum: the
# multipliers of the printed proof break complementary slackness; put the remainder
# 1/eps - #{U m_l > T}/2 on the users with U m_l = T. And Lemma III.4 can make a > b: then take a = b = U/2.)
#
# The exact worst-case error is smaller: E|t + Z| = |t| + b e^(-|t|/b) for Laplace Z of scale b grows with
# |t|, hence beta + b e^(-beta/b) (erratum: the paper's "worst-case error" beta + b is an upper bound).
# ``least_error_threshold`` minimises that instead. On each interval between two counts, with n users above
# T and x = beta/b, its slope has the sign of (1/eps)(1 + x) e^(-x) - (n/2)(1 - e^(-x)), which grows with T
# because x and n fall: the error is convex in T, and bisection finds its least value.
#
# Arrays over (bin, user) pairs have shape (P,) and are sorted by ``bin_index``; arrays over bins shape (G,).


STEPS_OF_BISECTION = 64


def clipping_rank(epsilon: FloatArray, sides: int = 2) -> IntArray:
    """Return the rank of the count that sets the clipping threshold, max(1, ceil(sides/epsilon)), shape (G,).

    Exact for the decimal that each epsilon prints as. ``sides`` is 2 for d = 1 and 2 d for d >= 2
    coordinates. Infinite epsilons give 1; ranks end at 2^62.
    """
    distinct, which = np.unique(epsilon, return_inverse=True)
    ranks = [1 if value == inf else max(1, _ceil(sides, float(value))) for value in distinct]
    return np.array(ranks, dtype=np.int64)[which]


def _ceil(sides: int, epsilon: float) -> int:
    return min(ceil(Fraction(sides) / Fraction(str(epsilon))), 2**62)


def kth_largest(count: IntArray, bin_index: IntArray, bins: int, rank: IntArray) -> IntArray:
    """Return the ``rank``-th largest (from 1) count of every bin, shape (G,).

    0 where the bin has fewer users. ``count`` and ``bin_index`` have shape (P,), in any order; ``rank`` is
    one a bin, (G,). From public counts.
    """
    order = np.lexsort((-count, bin_index))
    users = np.bincount(bin_index, minlength=bins).astype(np.int64)
    first = np.cumsum(users) - users
    exists = rank <= users
    position = np.where(exists, first + np.minimum(rank, users) - 1, 0)
    return np.where(exists, count[order][position] if len(count) else 0, 0)


def worst_case_threshold(
    count: IntArray, bin_index: IntArray, bins: int, epsilon: FloatArray, sides: int = 2
) -> IntArray:
    """Return every bin's optimal clipping threshold T as a number of records T/U, shape (G,).

    It is the ceil(sides/epsilon)-th largest count, from public counts; 0 where a bin has fewer vehicles
    (paper 000, Theorem III.1). ``count`` and ``bin_index`` have shape (P,), ``epsilon`` (G,); ``sides`` is 2
    for speeds, 2 d for d coordinates.
    """
    return kth_largest(count, bin_index, bins, clipping_rank(epsilon, sides))


def least_error_threshold(count: IntArray, bin_index: IntArray, bins: int, epsilon: FloatArray) -> FloatArray:
    """Return the threshold T with the least exact worst-case error, as a number of records T/U, (G,).

    The error is beta + b e^(-beta/b); beta is the bias and b the Laplace scale it leads to. ``count`` and
    ``bin_index`` have shape (P,), ``epsilon`` (G,) is finite. From public counts.
    """
    high = np.zeros(bins)
    np.maximum.at(high, bin_index, count)
    low = np.zeros(bins)
    for _ in range(STEPS_OF_BISECTION):
        middle = (low + high) / 2
        above = count > middle[bin_index]
        n = np.bincount(bin_index, above, bins)
        bias = np.bincount(bin_index, np.where(above, count - middle[bin_index], 0.0), bins) / 2
        x = bias * epsilon / middle
        falling = (1 + x) * np.exp(-x) / epsilon < -n / 2 * np.expm1(-x)
        low, high = np.where(falling, middle, low), np.where(falling, high, middle)
    return high


def largest_bias(
    count: IntArray, bin_index: IntArray, bins: int, threshold_records: FloatArray, upper: float
) -> FloatArray:
    """Return the largest bias of each bin's mean when vehicles' totals are clipped to width T, shape (G,).

    In the unit of ``upper`` = U: sum max(count - T/U, 0) U / (2 N), attained when all values are 0 or all are
    U. ``threshold_records`` is T/U, one a bin. From public counts.
    """
    excess = np.maximum(count - threshold_records[bin_index], 0.0)
    samples = np.bincount(bin_index, count, bins)
    return np.asarray(upper * np.bincount(bin_index, excess, bins) / (2 * samples))


def exact_worst_error(bias: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the largest mean absolute error by a ``bias`` up to beta and Laplace noise of ``scale`` b.

    It is beta + b e^(-beta/b), the largest E|t + Z| over |t| <= beta. A discrete Laplace Z of the same scale
    has E|t + Z| = |t| + e^(-|t|/b)/sinh(1/b) at whole t: never more.
    """
    safe = np.where(scale > 0, scale, 1.0)
    return np.where(scale > 0, bias + scale * np.exp(-bias / safe), bias)


def clip_cut(count: IntArray, bin_index: IntArray, threshold_steps: IntArray, upper_steps: int) -> IntArray:
    """Return the low end to which each pair's total is clipped, in speed steps, (P,).

    The high end is K m - cut: m is the pair's public ``count``, K = ``upper_steps`` is U in steps and
    ``threshold_steps`` (G,) is T > 0 in steps. Ends are rounded inward to whole steps, so that no interval is
    wider than T: cut = ceil(max(K m - T, 0)/2).
    """
    return np.asarray((np.maximum(upper_steps * count - threshold_steps[bin_index], 0) + 1) // 2)


def project_to_simplex(x: FloatArray, limit: FloatArray) -> FloatArray:
    """Return the rows of ``x`` (n, d), which are >= 0, scaled down to sums of at most ``limit`` (n,)."""
    length = x.sum(axis=1)
    factor = np.where(length > limit, limit / np.where(length > 0, length, 1.0), 1.0)
    return np.asarray(x * factor[:, None])
