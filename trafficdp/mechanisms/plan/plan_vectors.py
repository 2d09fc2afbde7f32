"""PLAN: the private mean of n vectors with noise shaped to each coordinate's spread.

Paper 004: Aumueller, Lebeda, Nelson, Pagh, "PLAN: Variance-Aware Private Mean Estimation", arXiv 2306.08745,
Algorithm 1, replacing one user's vector, rho-zCDP in total.

1. A private median c_j of every coordinate, rho_1/d each.
2. Private standard deviations s'_j (``private_variance``), plus their mean; scaling
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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp._validate import positive
from trafficdp.errors import UsageError
from trafficdp.mechanisms.plan.clipped_vectors import noisy_sum
from trafficdp.mechanisms.plan.coordinate_quantile import exponential_quantiles
from trafficdp.mechanisms.plan.private_variance import private_variances
from trafficdp.noise.source import NoiseSource

FloatArray = npt.NDArray[np.float64]
RANK_STEPS = 20
"""T of the rank allowance."""
FAILURE = 0.1
"""beta of the rank allowance."""


NEARLY_LINEAR = 2.0**-10
"""Medians are drawn on the scale asinh(x / (reach * NEARLY_LINEAR)): linear in the middle, logarithmic far
out. A public increasing map changes no rank; it makes the room beyond the data, which competes with the
data's own ranks, about 70 times smaller."""


@dataclass(frozen=True)
class PlanBudget:
    """Shares of rho: centre, spread, clipping length, noise. They add up to 1."""

    centre: float
    spread: float
    clipping: float
    noise: float


SCALED = PlanBudget(0.0625, 0.1875, 0.1875, 0.5625)
UNSCALED = PlanBudget(0.25, 0.0, 0.1875, 0.5625)


def scaling(spread: FloatArray, power: int) -> FloatArray:
    """Return s = spread^(-2/(p+2)) for standard deviations ``spread`` > 0 and the l_p error, p >= 1."""
    return np.asarray(spread ** (-2 / (power + 2)))


def rank_allowance(vectors: int, rho: float) -> float:
    """Return k = sqrt(n) + sqrt(T ln(2T/beta)/rho): how many vectors may be longer than C."""
    return float(np.sqrt(vectors) + np.sqrt(RANK_STEPS * np.log(2 * RANK_STEPS / FAILURE) / rho))


def private_centre(x: FloatArray, reach: float, rho: float, noise: NoiseSource) -> FloatArray:
    """Return a private median of every column of x, within [-reach, reach], rho-zCDP in total."""
    unit, top = reach * NEARLY_LINEAR, float(np.arcsinh(1 / NEARLY_LINEAR))
    columns = x.shape[1]
    drawn = exponential_quantiles(np.arcsinh(x / unit), -top, top, len(x) // 2, rho / columns, noise)
    return np.asarray(np.sinh(drawn) * unit)


def plan_mean(
    x: FloatArray, reach: float, rho: float, noise: NoiseSource, *, power: int = 2, scaled: bool = True
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
    budget = SCALED if scaled else UNSCALED
    inside = np.clip(x, -reach, reach)
    centre = private_centre(inside, reach, rho * budget.centre, noise)
    weight = np.ones(columns)
    if scaled:
        variance = private_variances(inside, reach, rho * budget.spread / columns, noise)
        spread = np.sqrt(variance)
        weight = scaling(spread + spread.mean(), power)
    y = (inside - centre) * weight
    # every length is at most |s 2 M|
    limit = float(np.linalg.norm(weight) * 2 * reach)
    length = np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
    rank = int(rows - np.ceil(rank_allowance(rows, rho * budget.clipping)))
    found = exponential_quantiles(length, 0.0, limit, max(rank, rows // 2), rho * budget.clipping, noise)
    total = noisy_sum(y, float(found[0]), rho * budget.noise, noise)
    return np.asarray(centre + total / weight / rows)
