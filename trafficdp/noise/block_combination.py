"""Tail of a linear combination of the noises of one l-infinity block: they share a radius, so they depend.

Given the block's k (``noise.block``), f = sum_j w_j z_j has independent z_j, uniform on -a_j k..a_j k.
Z + U, U uniform on +-1/2, is then uniform on +-(a_j k + 1/2), within a_j (k + 1/2), and E e^(t Z) <=
E e^(t (Z + U)) <= e^(x^2/6), x = t a_j (k + 1/2). So f is sub-Gaussian with the variance proxy
(k + 1/2)^2 v, v = sum_j (w_j a_j)^2 / 3, and with k stochastically at most s r + 1, r ~ Gamma(d + 1)
(``noise.block_tail``),

    P(|f| > h) <= E min(1, 2 exp(-h^2 / (2 v (s r + 3/2)^2))),

because the right side grows with k. The expectation is a sum over cells of r, each taken at its upper end.

E|f| is bounded in the same way: with M = |w_i a_i| of any one i and the rest R = f - w_i z_i,

    E(|f| | k) <= (k + 1/2) b,   b = min( sqrt(v), M/2 + (v - M^2/3)/(2 M) ).

Proof. E|w Z + R| <= E|w (Z + U) + R| by Jensen, and that grows when the uniform w (Z + U) is stretched to
+-m, m = M (k + 1/2). For u uniform on +-m, E|u + x| = (m^2 + x^2)/(2 m) for |x| <= m and |x| <= the same
beyond; the mean square of R is at most (k + 1/2)^2 (v - M^2/3). sqrt(v) is Cauchy and Schwarz. For one noise
alone b is M/2, exactly. min(., c) is concave and grows, so E min(|f|, c) <= E min((s r + 3/2) b, c).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaincc, gammainccinv

from trafficdp.errors import in_range

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CELLS = 4_000
"""Cells of r, evenly in the logarithm of its upper tail."""
BEYOND = 1e-6
"""Share of the error probability that is left for radii beyond the last cell."""


def combination_half_width(spread: FloatArray, size: IntArray, scale: float, error: float) -> FloatArray:
    """Return h with P(|f| > h) <= ``error`` for combinations with ``spread`` sqrt(v), shape (n,).

    ``size`` (n,) is the number d of all items of the block, ``scale`` its s. Raises UsageError unless
    0 < ``error`` < 1.
    """
    in_range(0, 1, error=error)
    distinct, which = np.unique(size, return_inverse=True)
    each = np.array([_quantile(int(d), scale, error) for d in distinct])
    return np.asarray(spread * scale * each[which.ravel()])


def combination_absolute(spread: FloatArray, largest: FloatArray) -> FloatArray:
    """Return b, see the module: ``spread`` sqrt(v) and ``largest`` M > 0 of one item, shape (n,)."""
    pivot = largest / 2 + np.maximum(spread**2 - largest**2 / 3, 0.0) / (2 * largest)
    return np.asarray(np.minimum(spread, pivot))


def combination_absolute_error(
    absolute: FloatArray, size: FloatArray | IntArray, scale: float, limit: FloatArray, lattice: float = 1.5
) -> FloatArray:
    """Return at least E min(|f|, limit) for ``absolute`` b, shape (n,); ``lattice`` 0: continuous noise.

    The integral: b 3/2 + b s (d + 1) P(d + 2, x) + c Q(d + 1, x), x = c/(b s), c the limit.
    """
    d = np.asarray(size, dtype=np.float64)
    reach = absolute * scale
    x = np.minimum(limit / reach, 1e6)
    within = reach * (d + 1) * gammainc(d + 2, x) + reach * x * gammaincc(d + 1, x)
    return np.asarray(np.minimum(absolute * lattice + within, limit))


def _quantile(size: int, scale: float, error: float) -> float:
    """h / (s sqrt(v)), rounded up."""
    tail = np.exp(np.linspace(0.0, np.log(error * BEYOND), CELLS + 1))
    upper = gammainccinv(size + 1.0, tail[1:]) * (1 + 1e-9) + 1.5 / scale
    share = tail[:-1] - tail[1:]

    def missed(h: float) -> float:
        return float(share @ np.minimum(1.0, 2 * np.exp(-((h / upper) ** 2) / 2))) + float(tail[-1])

    low, high = 0.0, float(upper[0]) + 1.0
    while missed(high) > error * (1 - 1e-9):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if missed(middle) > error * (1 - 1e-9) else (low, middle)
    return high * (1 + 1e-9)
