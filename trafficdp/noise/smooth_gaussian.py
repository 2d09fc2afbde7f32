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
from functools import lru_cache

import numpy as np

GRID = 33
BISECTIONS = 60
ROUNDING = 1 - 1e-9


def privacy_profile(epsilon: float, alpha: float, shift: float) -> float:
    """Return the least delta at ``epsilon`` for two neighbours under Gaussian noise scaled by smooth
    sensitivity.

    They differ by one smooth sensitivity in value and by a factor e^``shift`` in it; ``alpha`` divides the
    sensitivity to give the standard deviation.
    """
    centre, width = alpha * min(1.0, math.exp(shift)), math.exp(shift)
    # ln(p/q) - epsilon = a z^2 + b z + constant
    a = math.expm1(-2 * shift) / 2
    b = -centre / width**2
    constant = centre**2 / (2 * width**2) + shift - epsilon
    discriminant = b * b - 4 * a * constant
    if a == 0 or discriminant <= 0:
        if a == 0:
            return _mass(-math.inf, -constant / b, epsilon, centre, width) if b < 0 else 0.0
        return 0.0
    # without cancellation: b <= 0
    half = (-b + math.sqrt(discriminant)) / 2
    roots = sorted((half / a, constant / half))
    inside = _mass(roots[0], roots[1], epsilon, centre, width)
    if a < 0:
        return max(0.0, inside)
    left = _mass(-math.inf, roots[0], epsilon, centre, width)
    right = _mass(roots[1], math.inf, epsilon, centre, width)
    return max(0.0, left + right)


def _mass(low: float, high: float, epsilon: float, centre: float, width: float) -> float:
    """Return P - e^epsilon Q of an interval."""
    other = _normal((low - centre) / width, (high - centre) / width)
    return _normal(low, high) - math.exp(epsilon) * other


def _normal(low: float, high: float) -> float:
    """Return the standard normal probability of an interval, accurate in both tails."""
    if low > 0:
        low, high = -high, -low
    return (math.erfc(-high / math.sqrt(2)) - math.erfc(-low / math.sqrt(2))) / 2


def actual_delta(epsilon: float, alpha: float, beta: float) -> float:
    """Return the delta at ``epsilon`` of Gaussian noise S/``alpha``, S being ``beta``-smooth.

    It is the largest ``privacy_profile`` over shifts from -beta to beta.
    """
    return max(privacy_profile(epsilon, alpha, float(c)) for c in np.linspace(-beta, beta, GRID))


@lru_cache(maxsize=1024)
def largest_alpha(epsilon: float, delta: float, beta: float) -> float:
    """Return the largest alpha whose ``actual_delta`` is at most ``delta``, rounded down.

    0 if there is none.
    """
    low, high = 0.0, 1.0
    while actual_delta(epsilon, high, beta) <= delta and high < 1e6:
        high *= 2
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if actual_delta(epsilon, middle, beta) <= delta:
            low = middle
        else:
            high = middle
    return low * ROUNDING


def default_beta(epsilon: float, delta: float) -> float:
    """Return the usual smoothness beta for (epsilon, delta): epsilon / (8 ln(2/delta))."""
    return epsilon / (8 * math.log(2 / delta))
