"""PLAN: the private mean of n vectors with noise shaped to each coordinate's spread.

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
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError, positive
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.plan.plan import SIXTEENTHS, chi_square_factor, rank_allowance, scaling
from trafficdp.research.aumuller_2023.vectors import exponential_quantiles, noisy_sum

FloatArray = npt.NDArray[np.float64]
NEARLY_LINEAR = 2.0**-10
"""Medians are drawn on the scale asinh(x / (reach * NEARLY_LINEAR)): linear in the middle, logarithmic far
out. A public increasing map changes no rank; it makes the room beyond the data, which competes with the
data's own ranks, about 70 times smaller."""
OCTAVES = 64.0


def private_centre(x: FloatArray, reach: float, rho: float, measure: Measure) -> FloatArray:
    """Return a private median of every column of x, within [-reach, reach], rho-zCDP in total."""
    unit, top = reach * NEARLY_LINEAR, float(np.arcsinh(1 / NEARLY_LINEAR))
    columns = x.shape[1]
    drawn = exponential_quantiles(np.arcsinh(x / unit), -top, top, len(x) // 2, rho / columns, measure)
    return np.asarray(np.sinh(drawn) * unit)


def plan_mean(
    x: FloatArray, reach: float, rho: float, measure: Measure, *, power: int = 2, scaled: bool = True
) -> FloatArray:
    """Return a rho-zCDP estimate of the mean of the rows of x, shape (d,), for small l_``power`` error.

    x : shape (n, d), clipped to [-reach, reach] first. ``scaled`` False skips step 2 (s = 1).
    Raises UsageError for fewer than 4 rows, a power below 1, or a reach or rho that is not positive.
    """
    positive(reach=reach)
    positive(rho=rho)
    rows, columns = x.shape
    if rows < 4 or power < 1:
        raise UsageError(
            "PLAN needs vectors", got=f"{rows} rows, power={power}", expected="4 rows, power >= 1"
        )
    of_centre, of_spread, of_clipping = (rho * each / 16 for each in SIXTEENTHS[scaled])
    of_noise = rho - of_centre - of_spread - of_clipping
    inside = np.clip(x, -reach, reach)
    centre = private_centre(inside, reach, of_centre, measure)
    weight = np.ones(columns)
    if scaled:
        variance = private_variances(inside, reach, of_spread / columns, measure)
        spread = np.sqrt(variance)
        weight = scaling(spread + spread.mean(), power)
    y = (inside - centre) * weight
    # every length is at most |s 2 M|
    limit = float(np.linalg.norm(weight) * 2 * reach)
    length = np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
    rank = int(rows - np.ceil(rank_allowance(rows, of_clipping)))
    found = exponential_quantiles(length, 0.0, limit, max(rank, rows // 2), of_clipping, measure)
    total = noisy_sum(y, float(found[0]), of_noise, measure)
    return np.asarray(centre + total / weight / rows)


def pair_variances(x: FloatArray, group: int, measure: Measure) -> FloatArray:
    """Return averages of ``group`` squared half differences (x - x')^2/2 of random pairs of rows.

    Shape (n // (2 group), d). Every row is in at most one of them: replacing a user changes one. The order is
    random and does not depend on values.
    """
    order = np.argsort(measure.uniform_below(np.full(len(x), 2**61, dtype=np.int64)), kind="stable")
    shuffled = x[order[: len(x) // (2 * group) * 2 * group]]
    half = (shuffled[::2] - shuffled[1::2]) ** 2 / 2
    return np.asarray(half.reshape(-1, group, x.shape[1]).mean(axis=1))


def private_variances(
    x: FloatArray, reach: float, rho: float, measure: Measure, *, group: int = 1, gaussian: bool = True
) -> FloatArray:
    """Return the private median of ``pair_variances`` of every column, rho-zCDP a column, shape (d,).

    Algorithm 2. Entries lie in [-reach, reach], so that a half square is at most (2 reach)^2/2. ``gaussian``
    divides by ``chi_square_factor``, which makes it a variance if the data are Gaussian; else it stays a
    median.

    The quantile is drawn on a logarithmic scale from the largest half square down to 2^-64 of it (the paper:
    linear). Any increasing map that is public keeps the privacy; a range of 64 octaves in place of one of
    (2 reach)^2/2 units makes it unlikely that a draw is off by orders of magnitude.
    """
    pairs = pair_variances(x, group, measure)
    top = float(np.log2((2 * reach) ** 2 / 2))
    octaves = np.log2(np.maximum(pairs, 2.0 ** (top - OCTAVES)))
    found = np.exp2(exponential_quantiles(octaves, top - OCTAVES, top, len(pairs) // 2, rho, measure))
    return np.asarray(found / chi_square_factor(group) if gaussian else found)
