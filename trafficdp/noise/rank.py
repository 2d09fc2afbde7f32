"""How far out in its law a draw lies: exactly uniform numbers where it was drawn from that law.

**Theorem** (Rosenblatt 1952; Brockwell 2007 for discrete laws). Let N = |Z|, or the norm of a block, have a
known law, and V be uniform on (0, 1) and independent. Then P(N > n) + V P(N = n) at n = N is uniform on
(0, 1). With a law that depends on draws before, the numbers of all draws are still independent.

Every function returns (log outside, log inside) of that number and of 1 minus it, so that neither is lost to
rounding. Whole-number sums of densities are taken as integrals where they are wide: `tests` hold both to
sums of every term.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, logsumexp

from trafficdp.noise.choice import probabilities

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Logs = tuple[FloatArray, FloatArray]
WIDE = 64.0
"""From this standard deviation on, tails of a discrete Gaussian are integrals to 10^-5 of themselves."""
SMOOTH = 30.0
"""The same of norms: sums are integrals to 10^-3 of themselves where it matters, and mostly to 10^-5."""
NODES, PANELS = 16, 24
AT_ONCE = 2000
"""About how many numbers of blocks are looked at at once."""
FARTHEST, LEAST = 1e6, 2.0**-52
"""Logarithms are kept within this: what cannot be is told apart from what can."""


def laplace_rank(z: IntArray, scale: FloatArray, uniform: FloatArray) -> Logs:
    """Of discrete Laplace draws; ``scale`` > 0."""
    n = np.abs(z).astype(np.float64)
    ratio = np.exp(-1.0 / scale)
    # P(|Z| > n) = 2 r^(n + 1) / (1 + r), P(|Z| = n) = 2 r^n (1 - r) / (1 + r), half of it at 0
    here = np.where(n > 0, 1.0, 0.5) * (1.0 - ratio)
    outside = np.log(2.0 / (1.0 + ratio)) - n / scale + np.log(ratio + uniform * here)
    return _both(outside)


def gaussian_rank(z: IntArray, sd: FloatArray, uniform: FloatArray) -> Logs:
    """Of discrete Gaussian draws; ``sd`` > 0."""
    n = np.abs(z).astype(np.float64)
    # between the borders of the cells of n and its neighbours
    outside = np.log(2.0) + log_ndtr(-np.maximum(n + 0.5 - uniform, 0.0) / sd)
    at_zero = n == 0
    outside[at_zero] = np.log(2.0) + log_ndtr((-0.5 + uniform[at_zero] / 2) / sd[at_zero])
    distinct, which = np.unique(sd, return_inverse=True)
    for number in np.flatnonzero(distinct < WIDE).tolist():
        here = np.flatnonzero(which == number)
        j = np.arange(int(40 * distinct[number]) + 2, dtype=np.float64)
        law = np.exp(-(j**2) / (2 * distinct[number] ** 2)) * np.where(j > 0, 2.0, 1.0)
        beyond = np.append(np.cumsum(law[::-1])[::-1], 0.0) / law.sum()
        at = np.minimum(n[here], j[-1]).astype(np.int64)
        with np.errstate(divide="ignore"):
            outside[here] = np.log(beyond[at + 1] + uniform[here] * (beyond[at] - beyond[at + 1]))
    return _both(outside)


def block_rank(z: IntArray, half_width: IntArray, block: IntArray, scale: float, uniform: FloatArray) -> Logs:
    """Of the norms max ceil(|z|/a) of l-infinity noise (``noise.block``), one a block, shape (B,).

    ``block`` numbers the blocks 0.. without gaps. P(norm = m) is proportional to (Q(m) - Q(m - 1)) e^(-m/s),
    where Q(m) = prod (2 a m + 1) counts the vectors of norm m at most.
    """
    order = np.argsort(block, kind="stable")
    blocks = int(block.max(initial=-1)) + 1
    start = np.append(np.searchsorted(block[order], np.arange(blocks)), len(block))
    units, width = -(-np.abs(z) // half_width)[order], half_width[order].astype(np.float64)
    outside, inside = np.zeros(blocks), np.zeros(blocks)
    begin = 0
    while begin < blocks:
        # as many blocks as fit the memory, one at least
        end = max(begin + 1, int(np.searchsorted(start, start[begin] + AT_ONCE, "right")) - 1)
        here = slice(start[begin], start[end])
        law = _Norms(width[here], start[begin : end + 1] - start[begin], scale)
        norm = np.maximum.reduceat(units[here], law.start[:-1])
        outside[begin:end], inside[begin:end] = law.rank(norm, uniform[begin:end])
        begin = end
    return outside, inside


def choice_rank(
    choice: tuple[IntArray, IntArray, IntArray, FloatArray], cell: IntArray, within: FloatArray
) -> Logs:
    """Of exponential choices ``choice`` = (cost, weight, start, scale) of ``noise.choice``, shape (G,).

    Candidates are ordered by cost, those of one cost as they stand: the dearer, the farther out. ``cell`` is
    the position that was chosen, ``within`` in (0, 1) where in it: uniform, so that V is not needed.
    """
    cost, _, start, _ = choice
    share, first = probabilities(*choice), start[:-1]
    dear, place = np.repeat(cost[cell], np.diff(start)), np.repeat(cell, np.diff(start))
    later = (cost > dear) | ((cost == dear) & (np.arange(len(cost)) > place))
    own = share[cell]
    after, before = (
        np.add.reduceat(np.where(side, share, 0.0), first)
        for side in (later, ~later & (np.arange(len(cost)) != place))
    )
    with np.errstate(divide="ignore"):
        logs = np.log(after + own * (1.0 - within)), np.log(before + own * within)
    return np.clip(logs[0], -FARTHEST, 0.0), np.clip(logs[1], -FARTHEST, 0.0)


class _Norms:
    """The laws of norms of a few blocks, whose half widths stand one after the other."""

    def __init__(self, width: FloatArray, start: IntArray, scale: float) -> None:
        self.start, self._width, self._scale = start, 2.0 * width[:, None], scale
        self._size = np.diff(start)

    def rank(self, norm: IntArray, uniform: FloatArray) -> Logs:
        # farther out no weight shows in a float
        reach = (self._size + 60.0 * np.sqrt(self._size) + 60.0) * self._scale + 60.0
        n = np.minimum(norm, np.floor(reach))
        zero = np.where(n > 0, 0.0, -np.inf)
        below = np.logaddexp(zero, self._total(np.ones(len(n)), n))
        above = self._total(n + 1, n + 1 + np.ceil(reach))
        here = self._logs(n[:, None])[:, 0]
        whole = logsumexp([below, here, above], axis=0)
        with np.errstate(divide="ignore"):
            outside = np.logaddexp(above, here + np.log(uniform)) - whole
            inside = np.logaddexp(below, here + np.log1p(-uniform)) - whole
        return np.minimum(outside, 0.0), np.minimum(inside, 0.0)

    def _total(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Log of the weights from ``low`` to ``high`` - 1; of every term unless they are wide."""
        length = np.maximum(high - low, 0.0)
        if float(np.sqrt(self._size.max()) * self._scale) < SMOOTH:
            each = np.arange(float(length.max(initial=0.0)) + 1)
            share = np.where(each < length[:, None], 0.0, -np.inf)
            return np.asarray(logsumexp(self._logs(low[:, None] + each) + share, axis=1))
        at, weight = np.polynomial.legendre.leggauss(NODES)
        nodes = ((at + 1) / 2 + np.arange(PANELS)[:, None]).ravel() / PANELS
        with np.errstate(divide="ignore"):
            share = np.log(np.tile(weight, PANELS) / 2 / PANELS) + np.log(length)[:, None]
        return np.asarray(logsumexp(self._logs(low[:, None] - 0.5 + nodes * length[:, None]) + share, axis=1))

    def _logs(self, m: FloatArray) -> FloatArray:
        """Of the weights at ``m`` (B, K)."""
        # an integral begins half a step before 1
        inside = self._width * np.repeat(np.maximum(m, 1.0), self._size, axis=0)
        many = np.add.reduceat(np.log1p(inside), self.start[:-1], axis=0)
        one_less = np.log1p(-self._width / (1.0 + inside))
        outermost = np.log(-np.expm1(np.add.reduceat(one_less, self.start[:-1], axis=0)))
        return np.asarray(np.where(m > 0, many + outermost, 0.0) - m / self._scale)


def _both(outside: FloatArray) -> Logs:
    outside = np.clip(outside, -FARTHEST, -LEAST)
    return outside, np.maximum(np.log(-np.expm1(outside)), -FARTHEST)
