"""PLAN for binary vectors and the l_1 error (paper 004, arXiv 2306.08745, section 7.1).

Coordinate j is 1 with probability q_j and has variance q_j (1 - q_j), so that a noisy mean tells the
spread: rho_1 with l2 sensitivity sqrt(d), clipped to [d^-0.4, 1 - d^-0.4]; s = variance^(-1/3) (p = 1). No
centring. Clipped vectors have no negative entries: two of length C differ by at most sqrt(2) C, where
the paper adds noise for 2 C.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import positive
from trafficdp.measurement.laws import Gaussian
from trafficdp.measurement.sets import Box, Measure, plain
from trafficdp.research.aumuller_2023.vectors import binary_search_quantiles, entries, noisy_sum

FloatArray = npt.NDArray[np.float64]
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
        ones = plain(Box(entries(x), np.ones(x.size, dtype=np.int64)), Gaussian(sd))
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
