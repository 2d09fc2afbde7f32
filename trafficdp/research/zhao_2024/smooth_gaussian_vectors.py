"""Gaussian noise for smooth sensitivities of vectors: (epsilon, delta)-DP in R^d.

Releasing f(D) + S(D)/alpha N(0, I) with a beta-smooth S (l2 norm of R^d) is (epsilon, delta)-DP when for all
|c| <= beta, as in one dimension (``noise.smooth_gaussian``),

    H_d(epsilon, c) = sup over events A of  P(A) - e^epsilon Q(A) <= delta,
    P = N(0, I),   Q = N(alpha min(1, e^c) e_1, e^(2c) I).

**One integral.** Across the shift only t = |z_2..d|^2 matters, a chi-square variable with d - 1 degrees of
freedom under P, where the log-ratio of the two densities gains (d - 1) c - t (1 - e^(-2c))/2. So

    H_d(epsilon, c) = E_t H_1(epsilon - (d - 1) c + t (1 - e^(-2c))/2, c),

with H_1 the closed form of one dimension: exact up to the error of a quadrature (Gauss-Legendre; QUADRATURE
is added), and growing with the shift because every H_1 does. Beyond the last node H_1 counts as 1.

**Between the values of c** that are looked at nothing can hide. For 0 <= c1 <= c <= c2 the density of Q_c is
at least e^(-d (c - c1)) times that of Q_c1; for negative c, in units of the other data set, the density of P
is at most e^(d (c2 - c)) times that of P_c2, where c now stands for -c. Hence, with h = d (c2 - c1),

    H_d(epsilon, c) <= H_d(epsilon - h, c1),    H_d(epsilon, -c) <= e^h H_d(epsilon - h, -c2).

``largest_alpha`` keeps these bounds below delta on a grid, so that its alpha is safe for every c and, the
grid being fine, within a percent of the largest possible. Drawn in floats: mechanisms that use it are
idealised.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc, ndtr

FloatArray = npt.NDArray[np.float64]
STEPS = 64
"""Parts into which [0, beta] is cut."""
NODES = 60
TAIL = 1e-30
"""P(t beyond the last node)."""
QUADRATURE = 1e-6
"""More than the relative error of the quadrature."""
BISECTIONS = 50
ROUNDING = 1 - 1e-9


def privacy_profile(epsilon: FloatArray, alpha: float, c: FloatArray, dimensions: int) -> FloatArray:
    """Return H_d(epsilon, c) for arrays of one shape; ``dimensions`` is d >= 1."""
    if dimensions == 1:
        return _line(epsilon, alpha, c)
    degrees = dimensions - 1
    end = math.sqrt(degrees) + math.sqrt(-2 * math.log(TAIL))
    # in x = sqrt(t) everything is smooth but for the place from which on the event has no border
    a, b, constant = _quadratic(epsilon - degrees * c, alpha, c)
    with np.errstate(divide="ignore", invalid="ignore"):
        border = np.where(a == 0, end**2, (b * b / (4 * a) - constant) / np.where(a == 0, 1.0, a))
    cut = np.sqrt(np.clip(border, 0.0, end**2))[..., None]
    node, weight = np.polynomial.legendre.leggauss(NODES)
    x = np.concatenate([cut * (node + 1) / 2, cut + (end - cut) * (node + 1) / 2], axis=-1)
    share = np.concatenate([cut * weight / 2, (end - cut) * weight / 2], axis=-1)
    # the law of chi: 2^(1 - k/2)/Gamma(k/2) x^(k - 1) e^(-x^2/2)
    log_factor = (1 - degrees / 2) * math.log(2) - math.lgamma(degrees / 2)
    density = np.exp(log_factor - x**2 / 2) * x ** (degrees - 1)
    inner = (epsilon - degrees * c)[..., None] - x**2 * np.expm1(-2 * c)[..., None] / 2
    profile = _line(inner, alpha, np.broadcast_to(c[..., None], inner.shape))
    result: FloatArray = (profile * density * share).sum(axis=-1) + float(gammaincc(degrees / 2, end**2 / 2))
    return result


def _quadratic(epsilon: FloatArray, alpha: float, c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a, b and the constant of ln(p/q) - epsilon = a z^2 + b z + constant."""
    centre, width = alpha * np.exp(np.minimum(c, 0.0)), np.exp(c)
    return np.expm1(-2 * c) / 2, -centre / width**2, centre**2 / (2 * width**2) + c - epsilon


def _line(epsilon: FloatArray, alpha: float, c: FloatArray) -> FloatArray:
    """Return H_1: the event {ln(p/q) > epsilon} lies inside, outside or on one side of two roots."""
    centre, width = alpha * np.exp(np.minimum(c, 0.0)), np.exp(c)
    a, b, constant = _quadratic(epsilon, alpha, c)
    discriminant = b * b - 4 * a * constant
    half = (-b + np.sqrt(np.maximum(discriminant, 0.0))) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(a == 0, np.inf, half / np.where(a == 0, 1.0, a))
        near = np.where(half == 0, 0.0, constant / np.where(half == 0, 1.0, half))
    low, high = np.minimum(near, far), np.maximum(near, far)
    # a = 0: everything below the one root
    low, high = np.where(a == 0, -np.inf, low), np.where(a == 0, near, high)
    inside = _mass(low, high, epsilon, centre, width)
    outside = _mass(-np.inf, low, epsilon, centre, width) + _mass(high, np.inf, epsilon, centre, width)
    # without roots it is everything (a > 0) or nothing
    everything = -np.expm1(epsilon)
    found = np.where(
        a > 0, np.where(discriminant > 0, outside, everything), np.where(discriminant > 0, inside, 0.0)
    )
    result: FloatArray = np.maximum(found, 0.0)
    return result


def _mass(
    low: FloatArray | float,
    high: FloatArray | float,
    epsilon: FloatArray,
    centre: FloatArray,
    width: FloatArray,
) -> FloatArray:
    """Return P - e^epsilon Q of an interval."""
    other = _normal((low - centre) / width, (high - centre) / width)
    result: FloatArray = _normal(low, high) - np.exp(epsilon) * other
    return result


def _normal(low: FloatArray | float, high: FloatArray | float) -> FloatArray:
    """Return the standard normal probability of an interval, accurate in both tails."""
    mirrored = np.asarray(low) > 0
    left, right = np.where(mirrored, -np.asarray(high), low), np.where(mirrored, -np.asarray(low), high)
    result: FloatArray = ndtr(right) - ndtr(left)
    return result


def delta_bound(epsilon: float, alpha: float, beta: float, dimensions: int) -> float:
    """Return an upper bound of the largest H_d over all |c| <= beta: the delta that alpha and beta give."""
    c = np.linspace(0.0, beta, STEPS + 1)
    h = dimensions * beta / STEPS
    reduced = np.full(STEPS, epsilon - h)
    wider = privacy_profile(reduced, alpha, c[:-1], dimensions)
    narrower = math.exp(h) * privacy_profile(reduced, alpha, -c[1:], dimensions)
    return float(max(wider.max(), narrower.max())) * (1 + QUADRATURE)


@lru_cache(maxsize=256)
def largest_alpha(epsilon: float, delta: float, beta: float, dimensions: int) -> float:
    """Return an alpha whose delta is at most ``delta`` for every |c| <= beta, rounded down; 0 if none is
    found.

    ``dimensions`` is d >= 1; epsilon, delta > 0, beta >= 0.
    """
    low, high = 0.0, 1.0
    while delta_bound(epsilon, high, beta, dimensions) <= delta and high < 1e6:
        high *= 2
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if delta_bound(epsilon, middle, beta, dimensions) <= delta:
            low = middle
        else:
            high = middle
    return low * ROUNDING


def default_beta(epsilon: float, delta: float, dimensions: int) -> float:
    """Return epsilon / (8 ln(2/delta) + 4 (d - 1)): a choice, not a condition."""
    return epsilon / (8 * math.log(2 / delta) + 4 * (dimensions - 1))
