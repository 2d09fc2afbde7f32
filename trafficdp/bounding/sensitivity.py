"""Exact user-level sensitivities of the statistics of one bin, values in [0, U].

Relation REPLACE_USER_VALUES: one vehicle's values change, counts are public. N = records in the bin,
m = records of the vehicle in it. All functions are vectorised over (bin, vehicle) pairs and return floats;
exact up to rounding of a few units in the last place (losses are computed from integers elsewhere).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def mean_sensitivity(count: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return U m / N: the most that one vehicle moves the mean of a bin. Exact."""
    return upper * count / samples


def variance_sensitivity(count: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return U^2 k (N - k) / N^2 with k = min(m, floor(N/2)). Exact.

    Var = (m/N) V_x + (n/N) V_y + (m n / N^2) (xbar - ybar)^2 with n = N - m. For two values of the
    vehicle the V_y term cancels and the rest is linear in ybar, so the extreme is at ybar in {0, U}; by
    reflection take 0. The least value is then 0 and the largest of a convex function is at a vertex:
    k samples at U, the others at 0.
    """
    return upper**2 * vertex(count, samples) / samples.astype(np.float64) ** 2


def vertex(count: IntArray, samples: IntArray) -> FloatArray:
    """Return the integer k (N - k), k = min(m, floor(N/2)), as floats (exact up to N of 10^8)."""
    k = np.minimum(count, samples // 2).astype(np.float64)
    return k * (samples - k)


def joint_cost(count: IntArray, samples: IntArray, linear: FloatArray, quadratic: FloatArray) -> FloatArray:
    """Return max over k in 0..m of ``linear`` k + ``quadratic`` k (N - k), both prices >= 0.

    With linear = (U/N)/b_mean and quadratic = (U/N)^2/b_variance this is the exact loss of a vehicle when
    mean and variance of a bin are released together with Laplace noise: the same vertex argument holds
    for the sum, because both changes are largest for the same others. A concave quadratic in k: its
    integer neighbours of k0 = N/2 + linear/(2 quadratic), clipped to 0..m, contain the maximum.
    """
    n = samples.astype(np.float64)
    m = count.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        peak = np.where(quadratic > 0, n / 2 + linear / (2 * quadratic), np.inf)
    around = np.floor(np.minimum(np.where(np.isnan(peak), np.inf, peak), m))
    best = np.zeros(np.broadcast(n, m, linear, quadratic).shape)
    # the neighbours of floor(k0) as well, so that rounding of k0 cannot hide the maximum
    for shift in (-1.0, 0.0, 1.0, 2.0):
        k = np.clip(around + shift, 0.0, m)
        # an infinite price gives "not a number" at k = 0, which no accountant accepts
        with np.errstate(invalid="ignore", over="ignore"):
            best = np.maximum(best, linear * k + quadratic * (k * (n - k)))
    return best


def vehicle_mean_sensitivity(users: IntArray, upper: float) -> FloatArray:
    """Return U / L: every vehicle's own mean lies in [0, U] and weighs 1/L of a bin with L vehicles."""
    return upper / users
