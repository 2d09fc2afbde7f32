"""Sums of several Laplace draws: their tail, exactly for continuous noise and safely for integers.

**The tail.** Let X be the sum of n independent Laplace variables of scale 1. Then |X| is Gamma(j, 1) with
probability p_j = 2 C(2n - j - 1, n - 1) 2^(j - 2n), j = 1..n, so that

    P(|X| > h) = sum_j p_j Q(j, h),   Q the regularised upper incomplete gamma function.

*Proof.* X has the law of G - G', both Gamma(n, 1): the n-th arrivals of two independent Poisson processes
of rate 1. Merged, their arrivals belong to either with probability 1/2. Let one process be the first to
reach n, at arrival number 2n - j in all, while the other has n - j: this has probability p_j. The other
then needs j more arrivals, of its own rate: the difference is Gamma(j, 1). QED. All terms are positive, so
floating point loses no digits.

**Integers.** Discrete Laplace Z of scale B (P(z) proportional to exp(-|z|/B)) can be drawn together with
continuous L of the same scale and sign such that |Z - L| < 1. *Proof.* P(|Z| >= j) = 2 e^(-j/B) / (1 +
e^(-1/B)) = e^(-(j - 1/2)/B) / cosh(1/(2B)) <= P(|L| >= j - 1/2), and it is at least e^(-j/B) = P(|L| >= j).
Pairing quantiles, |Z| = j implies j - 1/2 <= |L| < j + 1. QED. So n draws are off their continuous twins
by less than n together, and P(|sum Z| > n + B h) <= P(|X| > h).
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma, log

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaincc

from trafficdp.errors import in_range
from trafficdp.noise.tail import half_width

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
_SLACK = 1 + 2.0**-30
"""Covers the rounding of sum, special functions and root; the sum of n <= 64 terms is good to 1e-12."""


def stages(terms: int) -> FloatArray:
    """Return p_1..p_n: the chance that |X| is Gamma(j, 1), shape (n,)."""
    n, j = terms, np.arange(1, terms + 1)
    logs = [lgamma(2 * n - k) - lgamma(n) - lgamma(n - k + 1) + (k - 2 * n + 1) * log(2) for k in j.tolist()]
    return np.exp(np.array(logs, dtype=np.float64))


def tail_of_sum(height: float, terms: int) -> float:
    """Return P(|X| > height) for the sum X of ``terms`` Laplace variables of scale 1."""
    return float(np.sum(stages(terms) * gammaincc(np.arange(1, terms + 1), height)))


def half_width_of_sum(scale: FloatArray, terms: IntArray, level: float) -> FloatArray:
    """Return h with P(|sum of ``terms`` discrete Laplace draws of ``scale``| > h) <= 1 - level.

    Both of shape (G,); 0 where there are no terms. Exact on the lattice for one term; for more, the
    module's bound. Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    distinct, which = np.unique(terms, return_inverse=True)
    heights = np.array([_height(int(n), level) for n in distinct], dtype=np.float64)[which]
    several = terms + scale * heights
    return np.where(terms <= 0, 0.0, np.where(terms == 1, half_width(scale, level), several))


def clamped_sum_error(scale: FloatArray, terms: IntArray, reach: float) -> FloatArray:
    """Return the worst case over the truth of E|clip(truth + noise) - truth|, clipping to [0, reach].

    Noise is symmetric, so the error at truth t is g(t) + g(reach - t), g(a) = E min(X+, a) concave: worst
    in the middle, E min(|X|, reach/2) = sum_j p_j (j P(j + 1, a) + a Q(j, a)), a = reach/(2 scale), times
    the scale. ``scale`` (in the unit of ``reach``) and ``terms`` have shape (G,). Continuous noise; the
    integers' is at most ``terms`` lattice steps more.
    """
    result = np.zeros(scale.shape)
    safe = np.where(scale > 0, scale, 1.0)
    half = reach / (2 * safe)
    for n in np.unique(terms[terms > 0]).tolist():
        j = np.arange(1, n + 1)
        here = (terms == n) & (scale > 0)
        a = half[here][:, None]
        result[here] = (stages(n) * (j * gammainc(j + 1, a) + a * gammaincc(j, a))).sum(axis=1) * safe[here]
    return np.minimum(result, reach / 2)


@lru_cache(maxsize=1024)
def _height(terms: int, level: float) -> float:
    """The h of scale 1, rounded up."""
    from scipy.optimize import brentq

    if terms <= 0:
        return 0.0
    alpha = (1 - level) / _SLACK
    # n Laplaces have tail at most that of n times one at h/n
    most = 1.0 + terms * (log(1 / alpha) + log(terms) + 1)
    root = float(brentq(lambda h: tail_of_sum(h, terms) - alpha, 0.0, most, xtol=1e-12))
    return root * _SLACK + 1e-9
