"""What a record costs when sums of x and of x (U - x) are released: mean and variance for (nearly) one price.

Let x be a clipped speed as a whole number of steps 0..K, K = U/q, S = sum x and W = sum x (K - x) over the N
records of a bin. With mean = S/N

    variance = mean (K - mean) - W/N.

**Theorem** (REPLACE_USER_VALUES). S + Z and W + Z', Z and Z' independent discrete Laplace of scales B and C,
multiply the probability of an outcome, when the values of a vehicle with m records in the bin change, by at
most e^(m p), and for some change and outcome by exactly that,

    p(B, C) = max over d = 0..K of  d/B + d (K - d)/C.

*Proof.* Let one record move from a to b, d = |b - a|. Then x (K - x) moves by |b - a| |K - a - b|, and
a + b lies in d..2K - d, so by at most d (K - d), attained at {a, b} = {0, d}. The exponent of the ratio is at
most |dS|/B + |dW|/C, at most the sum over the vehicle's records of d_i/B + d_i (K - d_i)/C, at most m p.
When all m move from 0 to the best d, S grows by m d and W by m d (K - d): equality, at outcomes above both.
QED. A W floored to multiples of s (then C counts those) moves by less than d (K - d)/s + 1 for the vehicle:
1/C more, once. Bins hold different records, so their exponents add up.

With C = c K B, p = (K/B) cost(c) with cost(c) = max over d of t + t (1 - t)/c, t = d/K, and over real t

    cost(c) = 1 for c >= 1, else (1 + c)^2/(4 c), at t = (1 + c)/2:

from c = 1 on variances are free: a whole move 0 -> K, the dearest for the mean, leaves x (K - x) as it is.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.privacy.loss import round_up

FloatArray = npt.NDArray[np.float64]


def record_price(steps: int, first: float, second: float) -> Fraction:
    """Return p(B, C), what one record costs, exactly: ``steps`` K, scales ``first`` B and ``second`` C."""
    one, two = Fraction(first), Fraction(second)
    top = (steps + two / one) / 2
    near = {min(steps, int(top)), min(steps, int(top) + 1)}
    return max(Fraction(d) / one + Fraction(d * (steps - d)) / two for d in near)


def record_price_bound(steps: int, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return floats >= p(B, C), elementwise, by a few units in the last place; infinite where B or C is 0.

    An infinite C is no second sum at all: K/B.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        top = (steps + second / first) / 2
        around = np.floor(np.minimum(np.where(np.isnan(top), np.inf, top), steps))
        best = np.zeros(np.broadcast(first, second).shape)
        # the neighbours as well, so that rounding of the top cannot hide the maximum
        for shift in (-1.0, 0.0, 1.0, 2.0):
            d = np.clip(around + shift, 0.0, steps)
            best = np.maximum(best, d / first + d * (steps - d) / second)
    # five roundings of relative size 2^-53 at most
    bound = round_up(best * (1 + 2.0**-50))
    return np.where((first > 0) & (second > 0) & ~np.isnan(best), bound, np.inf)


def relative_price(steps: int, ratio: float) -> float:
    """Return cost(c), the price of both sums over that of the first; c is ``ratio`` > 0, K ``steps``."""
    top = min(int(steps * (1 + ratio) / 2), steps)
    shares = [d / steps for d in (top, min(top + 1, steps))]
    return max(t + t * (1 - t) / ratio for t in shares)
