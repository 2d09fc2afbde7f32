"""Exact integer noise for a block of statistics: its sampler, its tail, and sums of it.

The marginal law of one statistic in a block of l-infinity noise: tail, interval, absolute error.

Continuous form: z = s r u with r ~ Gamma(d + 1), u uniform on [-1, 1], so that for h >= 0
    P(|z| > h s) = T_d(h) = Q(d + 1, h) - (h/d) Q(d, h),      E|z| = s (d + 1)/2,
with Q the regularised upper incomplete gamma function; d = 1 is Laplace noise: T_1(h) = e^-h.

The lattice noise of ``noise.block`` obeys P(|z| > j) <= T_d((j/a - 1)/s). Proof: given k, P(|z| > j) is at
most (1 - t/k)^+ with t = j/a, which grows with k. P(k) is proportional to prod(2 a_i k + 1) q^k; its ratio
to k^d q^k falls in k, so k is stochastically at most K with P(K = k) proportional to k^d q^k. The ratio of
P(ceil(R) = k), R = s r, to that of K is proportional to the integral over v in [0, 1] of
(1 - v/k)^d e^(v/s), which grows in k, so K is stochastically at most ceil(R) <= R + 1, and
E(1 - t/(R+1))^+ <= E(1 - (t-1)/R)^+.

Exact integer noise for a block of statistics that are released together (the l-infinity mechanism).

For d integer statistics with half widths a_g >= 1 and a scale s, P(z) is proportional to
exp(-max_g ceil(|z_g| / a_g) / s) on the integer vectors. A user who moves statistic g by at most D_g
therefore loses at most max_g ceil(D_g / a_g) / s: ceil(|z + D|/a) <= ceil(|z|/a) + ceil(D/a). The maximum
over the block, where separate noises would cost the sum. (K-norm mechanism, Hardt and Talwar 2010, for the
l-infinity ball; the lattice form and its sampler are ours.)

Sampler. Draw k with P(k) proportional to prod_g (2 a_g k + 1) e^(-k/s), then z_g uniform on
{-a_g k, ..., a_g k}: a z with max_g ceil(|z_g|/a_g) = c gets sum over k >= c of e^(-k/s), proportional to
e^(-c/s). To draw k, propose the sum of d + 1 geometric variables, P(k) proportional to
C(k+d, d) e^(-k/s), and accept with probability prod_{i=1..d} (2 a_i k + 1) / (2 a_i (k + i)), one
Bernoulli draw of whole numbers for each i. An exact geometric is a discrete Laplace that is not negative.

The sum of two independent marginals of block noise: its expected size, and how far it reaches.

X = r u and Y = c r' u' with r, r' ~ Gamma(d + 1) and u, u' uniform on [-1, 1], all independent: what one item
of a block of d has (``noise.block``, P(|X| > h) = T_d(h)), and c times another of the same size.

**Size.** |x + y| + |x - y| = 2 max(|x|, |y|), and Y is symmetric: E|X + Y| = E max(|X|, |Y|), the integral
of 1 - (1 - T_d(h))(1 - T_d(h/c)). It falls in h, so a sum over steps, by their lower ends, bounds it.

**Reach.** Both are cut at a quantile and rounded to multiples of a step D, which moves either by at most D/2;
the law of the sum of what is rounded is a convolution of finitely many positive numbers. So
P(|X + Y| > h) <= P(|rounded sum| > h - D) + P(|X| beyond) + P(|Y| beyond), and the h that is returned is D
more than the least multiple where this is at most the error. Smaller blocks, or a smaller c, reach less far.

**Integers.** z of the lattice block (half width a, scale s) and Z = a s X obey P(z > x) <= P(Z + 2 a > x) for
every x. *Proof.* For x >= 0 by ``noise.block`` (a + 1 would do). For x < 0 this asks, with y = -x > 0,
for P(z >= y) >= P(Z >= y + 2 a). Let K have P(K = k) proportional to k^d q^k. P(k)/P(K = k + 1) is
proportional to prod (2 a_i k + 1)/(k + 1), which grows, so k is stochastically at least K - 1, and K at least
floor(s r): the ratio of P(floor(s r) = k) to P(K = k) is proportional to the integral of (1 + v/k)^d e^(-v/s)
over v in [0, 1], which falls. So k >= s r - 2 stochastically, P(z >= y | k) >= (a k - y)^+/(2 a k + 1) grows
with k, and at k = s r - 2 it is at least (a s r - y - 2 a)^+/(2 a s r) = P(Z >= y + 2 a | r). QED.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import gammainc, gammaincc

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError, in_range, positive


def block_tail(size: IntArray, h: FloatArray) -> FloatArray:
    """Return P(|z| > ``h`` s) of one item of a block of ``size`` d items with continuous block noise of half
    width s.

    It is Q(d + 1, h) - (h/d) Q(d, h), Q the regularised upper incomplete gamma function; elementwise, h >= 0.
    """
    d = np.asarray(size, dtype=np.float64)
    return np.asarray(gammaincc(d + 1, h) - np.asarray(h) / d * gammaincc(d, h))


def block_quantile(size: IntArray, level: float) -> FloatArray:
    """Return h with P(|z| > h s) = 1 - ``level`` for continuous block noise of blocks of ``size``,
    elementwise.

    s is the half width. Rounded up by a relative 10^-9. Raises UsageError unless 0 < level < 1.
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
    """Return a whole j, as a float, with P(|z| > j) <= 1 - ``level`` for each item's integer noise z, (G,).

    Block noise z is uniform in -a k..a k, with one random k for all items of a block. ``half_width`` a,
    ``size`` and ``scale`` s of each item's block, shape (G,), are public; j = floor(a (s h + 1)) with h of
    ``block_quantile``. Raises UsageError unless 0 < level < 1.
    """
    return np.floor(half_width * (scale * block_quantile(size, level) + 1))


def mean_within(size: IntArray, limit: FloatArray) -> FloatArray:
    """Return E min(|z|, c), c = ``limit``, for continuous block noise z of half width 1, elementwise.

    With d = ``size``: c Q(d+1, c) + ((d+1)/2) P(d+2, c) - (c^2/(2d)) Q(d, c), P = 1 - Q; without a limit
    (d+1)/2.
    """
    d, c = np.asarray(size, dtype=np.float64), np.minimum(limit, 1e6)
    return np.asarray(
        c * gammaincc(d + 1, c) + (d + 1) / 2 * gammainc(d + 2, c) - c**2 / (2 * d) * gammaincc(d, c)
    )


def block_absolute_error(
    half_width: IntArray, size: IntArray, scale: FloatArray, limit: FloatArray
) -> FloatArray:
    """Return an upper bound of E min(|z|, ``limit``) for the integer block noise z of each item, shape (G,).

    ``half_width`` a, ``size`` and ``scale`` s of each item's block: a more than that of continuous noise of
    half width a s.
    """
    spread = half_width * scale
    return np.asarray(np.minimum(half_width + spread * mean_within(size, limit / spread), limit))


SAMPLER = (
    "l-infinity block noise on integers, from OpenDP make_laplace on 64-bit integers (exact discrete "
    "Laplace, P(z) proportional to exp(-|z|/scale)) and the operating system's random bits"
)
FARTHEST = 512.0
"""A geometric draw beyond this many scales is drawn again (probability e^-512), so that 64 bits suffice."""

Draw = Callable[[FloatArray], IntArray]
Below = Callable[[IntArray], IntArray]


def acceptance_terms(k: IntArray, half_width: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """Return numerators 2 a k + 1 and denominators 2 a (k + i) of the sampler's Bernoulli probabilities.

    For the proposed radius ``k``, ``half_width`` a and ``place`` i = 1..d, elementwise.
    """
    return 2 * half_width * k + 1, 2 * half_width * (k + place)


def block_noise(
    half_width: IntArray, block: IntArray, scale: FloatArray, laplace: Draw, below: Below
) -> IntArray:
    """Return integer block (l-infinity) noise for every statistic, shape (G,), exact if the two samplers are.

    ``half_width`` (G,) holds a_g >= 1, ``block`` (G,) the number 0..B-1 of each statistic's block (every
    block has at least one), ``scale`` (B,) the blocks' s > 0. ``laplace`` draws discrete Laplace noise of
    scales, ``below`` uniform whole numbers below counts. Raises UsageError when these are out of range or the
    noise could leave 64 bits.
    """
    size = np.bincount(block, minlength=len(scale)).astype(np.int64)
    _check(half_width, size, scale)
    order = np.argsort(block, kind="stable")
    first = np.cumsum(size) - size
    place = np.empty(len(block), dtype=np.int64)
    place[order] = np.arange(len(block)) - first[block[order]] + 1
    radius = _radii(half_width, block, scale, size, place, laplace, below)
    reach = half_width * radius[block]
    return below(2 * reach + 1) - reach


def _radii(
    half_width: IntArray,
    block: IntArray,
    scale: FloatArray,
    size: IntArray,
    place: IntArray,
    laplace: Draw,
    below: Below,
) -> IntArray:
    """One k for every block, shape (B,)."""
    radius = np.zeros(len(scale), dtype=np.int64)
    pending = np.ones(len(scale), dtype=bool)
    while pending.any():
        blocks = np.flatnonzero(pending)
        owner = np.repeat(np.arange(len(blocks)), size[blocks] + 1)
        parts = _geometric(scale[blocks][owner], laplace)
        proposal = np.zeros(len(scale), dtype=np.int64)
        np.add.at(proposal, blocks[owner], parts)
        member = np.flatnonzero(pending[block])
        k = proposal[block[member]]
        hit, out_of = acceptance_terms(k, half_width[member], place[member])
        failed = below(out_of) >= hit
        pending[:] = False
        pending[block[member[failed]]] = True
        accepted = np.setdiff1d(blocks, np.flatnonzero(pending), assume_unique=True)
        radius[accepted] = proposal[accepted]
    return radius


def _geometric(scale: FloatArray, laplace: Draw) -> IntArray:
    """P(k) proportional to e^(-k/scale) on k >= 0: a discrete Laplace draw, given that it is >= 0."""
    drawn = np.zeros(len(scale), dtype=np.int64)
    pending = np.arange(len(scale))
    while len(pending):
        value = laplace(scale[pending])
        accepted = (value >= 0) & (value <= FARTHEST * np.maximum(scale[pending], 1.0))
        drawn[pending[accepted]] = value[accepted]
        pending = pending[~accepted]
    return drawn


def _check(half_width: IntArray, size: IntArray, scale: FloatArray) -> None:
    if len(size) != len(scale) or int(size.min(initial=1)) < 1:
        raise UsageError("blocks are not numbered 0, 1, ... without gaps", got=f"{len(scale)} scales")
    if not bool(np.all(np.isfinite(scale) & (scale > 0))) or int(half_width.min(initial=1)) < 1:
        raise UsageError(
            "block noise is out of range", expected="scales above 0 and half widths of at least 1"
        )
    farthest = float(((size + 1) * FARTHEST * np.maximum(scale, 1.0) + size).max(initial=0.0))
    if 2.0 * float(half_width.max(initial=1)) * farthest >= 2.0**61:
        raise UsageError(
            "block noise of this size cannot be drawn exactly",
            got=f"half width {int(half_width.max())}, scale {float(scale.max()):.3g}",
            todo="ask for a larger epsilon or a larger speed_step",
        )


STEPS = 2_000
"""Steps up to the quantile where the laws are cut."""
CUT = 1e-3
"""Share of the error that is left for what lies beyond."""


@lru_cache(maxsize=4096)
def pair_mean(size: int, ratio: float) -> float:
    """Return an upper bound, within 1 in 300, of E|X + Y| for two independent block noises of ``size`` items.

    X has half width 1, Y ``ratio`` > 0.
    """
    positive(ratio=ratio)
    top = float(block_quantile(np.array([size]), 1 - 1e-9)[0]) * max(ratio, 1.0)
    h = np.linspace(0.0, top, 4 * STEPS + 1)
    inside = (1 - _tail(size, h)) * (1 - _tail(size, h / ratio))
    step = float(h[1])
    # beyond the top the tails of both: less than a hundredth of a step
    return float((1 - inside[:-1]).sum() * step + step / 100)


@lru_cache(maxsize=4096)
def pair_half_width(size: int, ratio: float, level: float) -> float:
    """Return h with P(|X + Y| > h) <= 1 - ``level`` for two independent block noises of ``size`` items.

    X has half width 1, Y ``ratio`` > 0. Raises UsageError unless 0 < level < 1.
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
    """Return upper bounds of E|X + Y| and of its ``level`` quantile (None: 0) for pairs of block noises, (I,)
    each.

    X and Y have half widths ``first`` and ``second`` > 0 and blocks of ``size`` items, shape (I,). Items of
    one size are bounded together, by the largest ratio of their scales. Raises UsageError unless 0 < level <
    1.
    """
    mean, reach = np.zeros(len(size)), np.zeros(len(size))
    ratio = second / first
    for each in np.unique(size).tolist():
        here = size == each
        # a few digits, upward: equal blocks of another map are known already
        most = float(np.ceil(ratio[here].max() * 1e4) / 1e4)
        mean[here] = pair_mean(each, most) * first[here]
        if level is not None:
            reach[here] = pair_half_width(each, most, level) * first[here]
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
