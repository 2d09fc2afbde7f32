"""The marginal law of one statistic in a block of l-infinity noise: tail, interval, absolute error.

Continuous form: z = s r u with r ~ Gamma(d + 1), u uniform on [-1, 1], so that for h >= 0
    P(|z| > h s) = T_d(h) = Q(d + 1, h) - (h/d) Q(d, h),      E|z| = s (d + 1)/2,
with Q the regularised upper incomplete gamma function; d = 1 is Laplace noise: T_1(h) = e^-h.

The lattice noise of ``noise.block`` obeys P(|z| > j) <= T_d((j/a - 1)/s). Proof: given k, P(|z| > j) is at
most (1 - t/k)^+ with t = j/a, which grows with k. P(k) is proportional to prod(2 a_i k + 1) q^k; its ratio
to k^d q^k falls in k, so k is stochastically at most K with P(K = k) proportional to k^d q^k. The ratio of
P(ceil(R) = k), R = s r, to that of K is proportional to the integral over v in [0, 1] of
(1 - v/k)^d e^(v/s), which grows in k, so K is stochastically at most ceil(R) <= R + 1, and
E(1 - t/(R+1))^+ <= E(1 - (t-1)/R)^+.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammainc, gammaincc

from trafficdp.errors import in_range

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def block_tail(size: IntArray, h: FloatArray) -> FloatArray:
    """Return T_d(h) for blocks of ``size`` d >= 1 and h >= 0 (arrays of one shape, or scalars)."""
    d = np.asarray(size, dtype=np.float64)
    return np.asarray(gammaincc(d + 1, h) - np.asarray(h) / d * gammaincc(d, h))


def block_quantile(size: IntArray, level: float) -> FloatArray:
    """Return h with T_d(h) = 1 - level, rounded up by a relative 10^-9, for every entry of ``size``.

    Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    distinct, which = np.unique(size, return_inverse=True)
    low = np.zeros(len(distinct))
    high = distinct + 1 - np.log1p(-level) + 1
    while bool(np.any(beyond := block_tail(distinct, high) > 1 - level)):
        high = np.where(beyond, 2 * high, high)
    for _ in range(100):
        middle = (low + high) / 2
        inside = block_tail(distinct, middle) > 1 - level
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray((high * (1 + 1e-9))[which])


def block_half_width(half_width: IntArray, size: IntArray, scale: FloatArray, level: float) -> FloatArray:
    """Return a whole j with P(|z_g| > j) <= 1 - level for lattice block noise: floor(a (s h + 1)).

    ``half_width`` a_g, ``size`` of the block and ``scale`` s of the block, each of shape (G,).
    Raises UsageError unless 0 < level < 1.
    """
    return np.floor(half_width * (scale * block_quantile(size, level) + 1))


def block_absolute_error(
    half_width: IntArray, size: IntArray, scale: FloatArray, limit: FloatArray
) -> FloatArray:
    """Return at least E min(|z_g|, limit) for lattice block noise, shape (G,).

    The integral of the tail: with c = limit/(a s), a + a s (c Q(d+1, c) + ((d+1)/2) P(d+2, c)
    - (c^2/(2d)) Q(d, c)), P = 1 - Q; without a limit a + a s (d+1)/2.
    """
    d = np.asarray(size, dtype=np.float64)
    spread = half_width * scale
    c = np.minimum(limit / spread, 1e6)
    within = c * gammaincc(d + 1, c) + (d + 1) / 2 * gammainc(d + 2, c) - c**2 / (2 * d) * gammaincc(d, c)
    return np.asarray(np.minimum(half_width + spread * within, limit))
