"""PLAN for matrices of vectors (paper 004), and what it measures of them.

What all of them measure of a matrix x (shape (n, d)), a user a row: quantiles of columns, clipped sums.

Entries are all that a user has, so that a row is a vector of the measurement layer: one number a column and
user (``measurement.sets``), whether it lies below a threshold (a box), or the whole row, clipped (a ball).

PLAN: the private mean of n vectors with noise shaped to each coordinate's spread.

Paper 004: Aumueller, Lebeda, Nelson, Pagh, "PLAN: Variance-Aware Private Mean Estimation", arXiv 2306.08745,
Algorithm 1, replacing one user's vector, rho-zCDP in total.

1. A private median c_j of every coordinate, rho_1/d each.
2. Private standard deviations s'_j (``private_variances``), plus their mean; scaling
   s_j = s'_j^(-2/(p+2)): the printed Sigma^(-1/(p+2)) is a power of the matrix of variances (erratum E19).
   It minimises sum v_j^p for noises v_j at a given privacy: with 1/(p+2) the error is 8 to 12 % larger.
3. y_i = s (x_i - c); C = private quantile of the lengths |y_i|, so that about k of them are longer.
4. c + (1/(n s)) [sum of y_i clipped to length C, plus Gaussian noise for sensitivity 2 C].

After centring lengths reach 2 M sqrt(d), not M sqrt(d) (E27). Quantiles divide ranks by their sensitivity
1 under replacement (E22: the authors' code takes max(q, 1 - q), for medians up to four times the stated
rho) and no value is used twice (E23: storing a value three times needs rho/9, not rho/3). To keep the
accuracy all the same, medians are drawn on a curved scale that gives far-away values less room.

PLAN for binary vectors and the l_1 error (paper 004, arXiv 2306.08745, section 7.1).

Coordinate j is 1 with probability q_j and has variance q_j (1 - q_j), so that a noisy mean tells the
spread: rho_1 with l2 sensitivity sqrt(d), clipped to [d^-0.4, 1 - d^-0.4]; s = variance^(-1/3) (p = 1). No
centring. Clipped vectors have no negative entries: two of length C differ by at most sqrt(2) C, where
the paper adds noise for 2 C.
"""

from __future__ import annotations

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError, positive
from trafficdp.measurement.laws import GRAINS, EntryIndex, Gaussian
from trafficdp.measurement.sets import Ball, Box, Measure, Ranks, Step
from trafficdp.mechanisms.per_statistic.plan import SIXTEENTHS, chi_square_factor, rank_allowance, scaling
from trafficdp.privacy.loss import LossKind

TOP = 1 << 60
"""Reals are floored to one of 2^60 steps of their range."""


def exponential_quantiles(
    x: FloatArray, low: float, high: float, rank: int, rho: float, measure: Measure
) -> FloatArray:
    """Return a private ``rank``-th smallest of every column of ``x`` in low..high, shape (d,).

    By the exponential mechanism, rho-zCDP a column: eps = sqrt(8 rho), scale 2/eps.
    """
    columns = x.shape[1]
    scale, ranks = np.full(columns, 2 / np.sqrt(8 * rho)), np.full(columns, rank)
    of = Ranks(entries(x), np.full(columns, TOP), ranks, ranks, scale, LossKind.ZCDP)
    return np.asarray(low + measure.select(of, _whole(x, low, high)) * ((high - low) / TOP))


def binary_search_quantiles(
    x: FloatArray, low: float, high: float, rank: float, rho: float, steps: int, measure: Measure
) -> FloatArray:
    """Return a private quantile of every column of ``x``, by ``steps`` noisy halvings of low..high, (d,).

    rho-zCDP a column (Huang et al. 2021): with c = #{values <= middle} plus Gaussian noise, go left if c >
    rank, else right. Each comparison costs 1/(2 sd^2), so that sd = sqrt(steps/(2 rho)) is rho-zCDP. A rank
    is missed by at most sqrt(steps ln(2 steps/beta)/rho) with probability 1 - beta (the authors' code takes
    sqrt(steps ln(steps/beta)/(2 rho)), which fails with probability 0.35 at beta = 0.1).
    """
    support, whole, columns = entries(x), _whole(x, low, high), x.shape[1]
    sd = np.full(columns, np.sqrt(steps / (2 * rho)))
    below = Step(Box(support, np.ones(x.size, dtype=np.int64)), Gaussian(sd))
    left, right = np.zeros(columns, dtype=np.int64), np.full(columns, TOP)
    for _ in range(steps):
        middle = left + (right - left) // 2
        goes_right = measure.measure(below, whole <= middle[support.coordinate]) <= rank
        left, right = np.where(goes_right, middle, left), np.where(goes_right, right, middle)
    return np.asarray(low + (left + (right - left) / 2) * ((high - low) / TOP))


def noisy_sum(
    y: FloatArray, length: float, rho: float, measure: Measure, *, factor: float = 2.0
) -> FloatArray:
    """Return the sum of the rows of ``y`` (n, d), each clipped to l2 ``length``, with Gaussian noise, (d,).

    rho-zCDP; 0 for ``length`` 0. ``factor`` is the l2 sensitivity in lengths: 2, or sqrt(2) for entries that
    are never negative, as |y - y'|^2 = |y|^2 + |y'|^2 - 2 y y'.
    """
    if length <= 0:
        return np.zeros(y.shape[1])
    whole = np.full(y.size, GRAINS, dtype=np.int64)
    ball = Ball(entries(y), 2, length, -whole, whole)
    sd = np.full(y.shape[1], factor * GRAINS / np.sqrt(2 * rho) * (1 + 2.0**-40))
    return np.asarray(measure.measure(Step(ball, Gaussian(sd)), y.T.ravel()) * (ball.bound / GRAINS))


def clip_to_length(y: FloatArray, length: float) -> FloatArray:
    """Return rows of y (shape (n, d)) scaled to l2 length at most ``length``."""
    norm = np.sqrt(np.einsum("ij,ij->i", y, y))
    factor = np.where(norm > length, length / np.where(norm > 0, norm, 1.0), 1.0)
    return np.asarray(y * factor[:, None])


def entries(x: FloatArray) -> EntryIndex:
    """Return one entry for each element of ``x`` (n, d), column by column: row i is user i, column j
    coordinate j.
    """
    rows, columns = x.shape
    return EntryIndex(np.tile(np.arange(rows), columns), np.repeat(np.arange(columns), rows), rows, columns)


def _whole(x: FloatArray, low: float, high: float) -> IntArray:
    return np.clip(np.floor((x.T.ravel() - low) / ((high - low) / TOP)), 0, TOP).astype(np.int64)


NEARLY_LINEAR = 2.0**-10
"""Medians are drawn on the scale asinh(x / (clip_bound * NEARLY_LINEAR)): linear in the middle, logarithmic
far out. A public increasing map changes no rank; it makes the room beyond the data, which competes with the
data's own ranks, about 70 times smaller.
"""
OCTAVES = 64.0


def private_centre(x: FloatArray, clip_bound: float, rho: float, measure: Measure) -> FloatArray:
    """Return a private median of every column of x, within [-clip_bound, clip_bound], rho-zCDP in total."""
    unit, top = clip_bound * NEARLY_LINEAR, float(np.arcsinh(1 / NEARLY_LINEAR))
    columns = x.shape[1]
    drawn = exponential_quantiles(np.arcsinh(x / unit), -top, top, len(x) // 2, rho / columns, measure)
    return np.asarray(np.sinh(drawn) * unit)


def plan_mean(
    x: FloatArray, clip_bound: float, rho: float, measure: Measure, *, power: int = 2, scaled: bool = True
) -> FloatArray:
    """Return a rho-zCDP estimate of the mean of the rows of ``x`` (n, d), shape (d,), for small l_p error.

    p is ``power``; entries of x are clipped to [-clip_bound, clip_bound] first. ``scaled`` False gives all
    coordinates the same noise. Raises UsageError for fewer than 4 rows, a power below 1, or a clip_bound or
    rho that is not positive.
    """
    positive(clip_bound=clip_bound)
    positive(rho=rho)
    rows, columns = x.shape
    if rows < 4 or power < 1:
        raise UsageError(
            "PLAN needs vectors", got=f"{rows} rows, power={power}", expected="4 rows, power >= 1"
        )
    of_centre, of_spread, of_clipping = (rho * each / 16 for each in SIXTEENTHS[scaled])
    of_noise = rho - of_centre - of_spread - of_clipping
    inside = np.clip(x, -clip_bound, clip_bound)
    centre = private_centre(inside, clip_bound, of_centre, measure)
    weight = np.ones(columns)
    if scaled:
        variance = private_variances(inside, clip_bound, of_spread / columns, measure)
        spread = np.sqrt(variance)
        weight = scaling(spread + spread.mean(), power)
    y = (inside - centre) * weight
    # every length is at most |s 2 M|
    limit = float(np.linalg.norm(weight) * 2 * clip_bound)
    length = np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
    rank = int(rows - np.ceil(rank_allowance(rows, of_clipping)))
    found = exponential_quantiles(length, 0.0, limit, max(rank, rows // 2), of_clipping, measure)
    total = noisy_sum(y, float(found[0]), of_noise, measure)
    return np.asarray(centre + total / weight / rows)


def pair_variances(x: FloatArray, group: int, measure: Measure) -> FloatArray:
    """Return averages of ``group`` squared half differences (x - x')^2/2 of random pairs of rows of ``x``.

    Private.

    Shape (n // (2 group), d). Every row is in at most one of them: replacing a user changes one. The order is
    random and does not depend on values.
    """
    order = np.argsort(measure.uniform_below(np.full(len(x), 2**61, dtype=np.int64)), kind="stable")
    shuffled = x[order[: len(x) // (2 * group) * 2 * group]]
    half = (shuffled[::2] - shuffled[1::2]) ** 2 / 2
    return np.asarray(half.reshape(-1, group, x.shape[1]).mean(axis=1))


def private_variances(
    x: FloatArray, clip_bound: float, rho: float, measure: Measure, *, group: int = 1, gaussian: bool = True
) -> FloatArray:
    """Return a private estimate of the variance of every column of ``x``, rho-zCDP a column, shape (d,).

    It is the private median of ``pair_variances`` (Algorithm 2). Entries lie in [-clip_bound, clip_bound], so
    that a half square is at most (2 clip_bound)^2/2. ``gaussian`` divides by ``chi_square_factor``, which
    makes it a variance if the data are Gaussian; else it stays a median.

    The quantile is drawn on a logarithmic scale from the largest half square down to 2^-64 of it (the paper:
    linear). Any increasing map that is public keeps the privacy; a range of 64 octaves in place of one of (2
    clip_bound)^2/2 units makes it unlikely that a draw is off by orders of magnitude.
    """
    pairs = pair_variances(x, group, measure)
    top = float(np.log2((2 * clip_bound) ** 2 / 2))
    octaves = np.log2(np.maximum(pairs, 2.0 ** (top - OCTAVES)))
    found = np.exp2(exponential_quantiles(octaves, top - OCTAVES, top, len(pairs) // 2, rho, measure))
    return np.asarray(found / chi_square_factor(group) if gaussian else found)


SPREAD_SHARE = 0.1
STEPS = 10


def plan_binary_mean(x: FloatArray, rho: float, measure: Measure, *, scaled: bool = True) -> FloatArray:
    """Return a rho-zCDP estimate of the mean of the rows of x (shape (n, d), entries 0 or 1), shape (d,).

    Raises UsageError unless rho is positive.
    """
    positive(rho=rho)
    rows, columns = x.shape
    bits = (x > 0.5).astype(np.float64)
    weight, rest = np.ones(columns), rho
    if scaled:
        sd = np.full(columns, np.sqrt(columns / (2 * SPREAD_SHARE * rho)))
        ones = Step(Box(entries(x), np.ones(x.size, dtype=np.int64)), Gaussian(sd))
        noisy = measure.measure(ones, bits.T) / rows
        edge = columns**-0.4
        share = np.clip(noisy, min(edge, 0.5), max(1 - edge, 0.5))
        weight = (share * (1 - share)) ** (-1 / 3)
        rest = (1 - SPREAD_SHARE) * rho
    for_length = rest / columns if columns > 1 else rest / 4
    for_noise = rest - for_length
    y = bits * weight
    length = np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
    # at d = 2048 a d-th of rho finds no rank: C is then wherever the noise leads, privately all the same
    rank = rows - np.sqrt(rows) - np.sqrt(STEPS * np.log(STEPS) / for_length)
    limit = float(np.linalg.norm(weight))
    found = binary_search_quantiles(length, 0.0, limit, rank, for_length, STEPS, measure)
    total = noisy_sum(y, float(found[0]), for_noise, measure, factor=np.sqrt(2))
    return np.asarray(total / weight / rows)
