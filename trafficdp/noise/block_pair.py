"""The sum of two independent marginals of block noise: its expected size, and how far it reaches.

X = r u and Y = c r' u' with r, r' ~ Gamma(d + 1) and u, u' uniform on [-1, 1], all independent: what one item
of a block of d has (``noise.block_tail``, P(|X| > h) = T_d(h)), and c times another of the same size.

**Size.** |x + y| + |x - y| = 2 max(|x|, |y|), and Y is symmetric: E|X + Y| = E max(|X|, |Y|), the integral
of 1 - (1 - T_d(h))(1 - T_d(h/c)). It falls in h, so a sum over steps, by their lower ends, bounds it.

**Reach.** Both are cut at a quantile and rounded to multiples of a step D, which moves either by at most D/2;
the law of the sum of what is rounded is a convolution of finitely many positive numbers. So
P(|X + Y| > h) <= P(|rounded sum| > h - D) + P(|X| beyond) + P(|Y| beyond), and the h that is returned is D
more than the least multiple where this is at most the error. Smaller blocks, or a smaller c, reach less far.

**Integers.** z of the lattice block (half width a, scale s) and Z = a s X obey P(z > x) <= P(Z + 2 a > x) for
every x. *Proof.* For x >= 0 by ``noise.block_tail`` (a + 1 would do). For x < 0 this asks, with y = -x > 0,
for P(z >= y) >= P(Z >= y + 2 a). Let K have P(K = k) proportional to k^d q^k. P(k)/P(K = k + 1) is
proportional to prod (2 a_i k + 1)/(k + 1), which grows, so k is stochastically at least K - 1, and K at least
floor(s r): the ratio of P(floor(s r) = k) to P(K = k) is proportional to the integral of (1 + v/k)^d e^(-v/s)
over v in [0, 1], which falls. So k >= s r - 2 stochastically, P(z >= y | k) >= (a k - y)^+/(2 a k + 1) grows
with k, and at k = s r - 2 it is at least (a s r - y - 2 a)^+/(2 a s r) = P(Z >= y + 2 a | r). QED.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trafficdp.errors import in_range, positive
from trafficdp.noise.block_tail import block_quantile, block_tail

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
STEPS = 2_000
"""Steps up to the quantile where the laws are cut."""
CUT = 1e-3
"""Share of the error that is left for what lies beyond."""


@lru_cache(maxsize=4096)
def pair_mean(size: int, ratio: float) -> float:
    """Return at least E|X + Y| for d = ``size`` and c = ``ratio`` > 0, nearer than 1 in 300."""
    positive(ratio=ratio)
    top = float(block_quantile(np.array([size]), 1 - 1e-9)[0]) * max(ratio, 1.0)
    h = np.linspace(0.0, top, 4 * STEPS + 1)
    inside = (1 - _tail(size, h)) * (1 - _tail(size, h / ratio))
    step = float(h[1])
    # beyond the top the tails of both: less than a hundredth of a step
    return float((1 - inside[:-1]).sum() * step + step / 100)


@lru_cache(maxsize=4096)
def pair_reach(size: int, ratio: float, level: float) -> float:
    """Return h with P(|X + Y| > h) <= 1 - ``level`` for d = ``size`` and c = ``ratio`` > 0.

    Raises UsageError unless 0 < level < 1.
    """
    in_range(0, 1, level=level)
    positive(ratio=ratio)
    error = 1 - level
    top = float(block_quantile(np.array([size]), 1 - CUT * error / 2)[0])
    step = top * max(ratio, 1.0) / STEPS
    law = np.convolve(_rounded(size, 1.0, step, top), _rounded(size, ratio, step, ratio * top))
    middle = len(law) // 2
    folded = law[middle:].copy()
    folded[1:] += law[middle - 1 :: -1] if middle else 0
    # P(|sum| > j D), most significant last; a little for the rounding of floats
    beyond = np.concatenate([np.cumsum(folded[::-1])[::-1][1:], [0.0]]) + CUT * error + 1e-13
    return float((int(np.argmax(beyond <= error * (1 - 1e-9))) + 1) * step)


def pair_bounds(
    size: IntArray, first: FloatArray, second: FloatArray, level: float | None
) -> tuple[FloatArray, FloatArray]:
    """Return bounds of E|X + Y| and its reach at ``level`` (None: 0), of scales ``first`` and ``second`` > 0.

    ``size`` are the d, all of shape (I,). Items of one size are bounded together, by the largest ratio of
    their scales. Raises UsageError unless 0 < level < 1.
    """
    mean, reach = np.zeros(len(size)), np.zeros(len(size))
    ratio = second / first
    for each in np.unique(size).tolist():
        here = size == each
        # a few digits, upward: equal blocks of another map are known already
        most = float(np.ceil(ratio[here].max() * 1e4) / 1e4)
        mean[here] = pair_mean(each, most) * first[here]
        if level is not None:
            reach[here] = pair_reach(each, most, level) * first[here]
    return mean, reach


def _rounded(size: int, factor: float, step: float, top: float) -> FloatArray:
    """Probabilities of the multiples -n..n of ``step`` that a marginal times ``factor`` is rounded to."""
    number = int(np.ceil(top / step))
    edges = (np.arange(number + 1) + 0.5) * step / factor
    tail = _tail(size, np.concatenate([[0.0], edges]))
    cell = np.maximum(tail[:-1] - tail[1:], 0.0)
    half = cell[1:] / 2
    return np.concatenate([half[::-1], cell[:1], half])


def _tail(size: int, h: FloatArray) -> FloatArray:
    return np.clip(block_tail(np.full(h.shape, size), h), 0.0, 1.0)
