"""Gaussian noise for smooth sensitivities: (epsilon, delta)-DP, calibrated exactly.

Releasing f(D) + S(D)/alpha N(0, 1) with a beta-smooth S is (epsilon, delta)-DP when for all |c| <= beta

    H(c) = sup over events A of  P(A) - e^epsilon Q(A) <= delta,
    P = N(0, 1),   Q = N(alpha min(1, e^c), e^(2c)),

because in units of the noise of D the neighbour is shifted by at most alpha min(1, e^c) (|f - f'| is at most
min(S, S')) and stretched by e^c, and H grows with the shift. The best event is {ln(p/q) > epsilon}: outside,
inside or on one side of the roots of a quadratic, so H is a difference of normal probabilities.

The pair that is quoted for one dimension, alpha = eps/sqrt(ln(1/delta)), beta = eps/(2 ln(1/delta)), is
**not** sufficient (erratum E17): at epsilon 1 and delta 1e-5 its delta is 1.3e-3. Drawn in floats: idealised.
H is evaluated at GRID values of c (the ends among them); between them it is smooth, which is not proved here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from trafficdp.arrays import FloatArray

GRID = 33
BISECTIONS = 60
ROUNDING = 1 - 1e-9


def log_ratio(epsilon: FloatArray, alpha: float, c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a, b and the constant of ln(p/q) - ``epsilon`` = a z^2 + b z + constant, elementwise."""
    centre, width = alpha * np.exp(np.minimum(c, 0.0)), np.exp(c)
    return np.expm1(-2 * c) / 2, -centre / width**2, centre**2 / (2 * width**2) + c - epsilon


def privacy_profile(epsilon: FloatArray, alpha: float, c: FloatArray) -> FloatArray:
    """Return the least delta at ``epsilon`` for two neighbours under Gaussian noise scaled by smooth
    sensitivity.

    They differ by one smooth sensitivity in value and by a factor e^``c`` in it; ``alpha`` divides the
    sensitivity to give the standard deviation. Elementwise. The event {ln(p/q) > epsilon} lies inside,
    outside or on one side of two roots.
    """
    centre, width = alpha * np.exp(np.minimum(c, 0.0)), np.exp(c)
    a, b, constant = log_ratio(epsilon, alpha, c)
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
    return np.maximum(found, 0.0)


def _mass(
    low: FloatArray | float,
    high: FloatArray | float,
    epsilon: FloatArray,
    centre: FloatArray,
    width: FloatArray,
) -> FloatArray:
    """Return P - e^epsilon Q of an interval."""
    other = _normal((low - centre) / width, (high - centre) / width)
    return _normal(low, high) - np.exp(epsilon) * other


def _normal(low: FloatArray | float, high: FloatArray | float) -> FloatArray:
    """Return the standard normal probability of an interval, accurate in both tails."""
    mirrored = np.asarray(low) > 0
    left, right = np.where(mirrored, -np.asarray(high), low), np.where(mirrored, -np.asarray(low), high)
    return ndtr(right) - ndtr(left)


def actual_delta(epsilon: float, alpha: float, beta: float) -> float:
    """Return the delta at ``epsilon`` of Gaussian noise S/``alpha``, S being ``beta``-smooth.

    It is the largest ``privacy_profile`` over shifts from -beta to beta.
    """
    return float(privacy_profile(np.full(GRID, epsilon), alpha, np.linspace(-beta, beta, GRID)).max())


@lru_cache(maxsize=1024)
def largest_alpha(epsilon: float, delta: float, beta: float) -> float:
    """Return the largest alpha whose ``actual_delta`` is at most ``delta``, rounded down.

    0 if there is none.
    """
    return largest_within(lambda alpha: actual_delta(epsilon, alpha, beta), delta, BISECTIONS)


def largest_within(delta_of: Callable[[float], float], delta: float, bisections: int) -> float:
    """Return the largest alpha, up to 2^20, at which ``delta_of`` is at most ``delta``, rounded down.

    0 if there is none. ``delta_of`` rises with alpha.
    """
    low, high = 0.0, 1.0
    while delta_of(high) <= delta and high < 1e6:
        high *= 2
    for _ in range(bisections):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low * ROUNDING


def default_beta(epsilon: float, delta: float, dimensions: int = 1) -> float:
    """Return the usual smoothness beta for (epsilon, delta): epsilon / (8 ln(2/delta) + 4 (d - 1)).

    Any other is as private; d is ``dimensions``.
    """
    return epsilon / (8 * math.log(2 / delta) + 4 * (dimensions - 1))
