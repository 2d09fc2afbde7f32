"""The exponential mechanism: over candidates, and by ranks.

The exponential mechanism over finitely many candidates, all bins at once: exact, or from floats.

Candidate i of a bin is drawn with P(i) proportional to weight_i exp(-cost_i / scale): whole weights say
how many equal candidates i stands for, weight 0 is never drawn. If one user changes every cost of a bin
by at most c, the draw is (2 c / scale)-DP (McSherry and Talwar 2007); epsilon c_i / (2 c) in the exponent
is scale = 2 c / epsilon. (OpenDP 0.16 has the same law in ``make_noisy_max`` for zero-concentrated
divergence, one bin a call; its form for pure DP is permute-and-flip, another law with the same promise.
Both laws are compared in the tests.)

How the exact draw works: a uniform number u in [0, 1), read bit by bit, falls between two neighbours of
the exact running sums F_i = P(candidate <= i). Floats give each F_i with a proved error (``_margin``); if
u's first 62 bits are further than that from every F_i, they decide. Otherwise (about once in 10^10 per
candidate) the sums are taken in decimal arithmetic of growing precision and u gets more bits, until the
comparison is certain. So the law is exactly the stated one for the numbers as given, and rounding decides
nothing.

How far out in its law a draw lies: exactly uniform numbers where it was drawn from that law.

**Theorem** (Rosenblatt 1952; Brockwell 2007 for discrete laws). Let N = |Z|, or the norm of a block, have a
known law, and V be uniform on (0, 1) and independent. Then P(N > n) + V P(N = n) at n = N is uniform on
(0, 1). With a law that depends on draws before, the numbers of all draws are still independent.

Every function returns (log outside, log inside) of that number and of 1 minus it, so that neither is lost to
rounding. Whole-number sums of densities are taken as integrals where they are wide: `tests` hold both to
sums of every term.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import numpy as np
from scipy.special import log_ndtr, logsumexp

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError

Bits = Callable[[int], IntArray]
"""Bits(n) gives n independent uniform integers of BITS bits."""
BITS = 62
MOST_CANDIDATES = 2**31


def draw(
    cost: IntArray,
    weight: IntArray,
    start: IntArray,
    scale: FloatArray,
    runs: int,
    bits: Bits,
    *,
    exact: bool,
) -> IntArray:
    """Return candidates drawn by the exponential mechanism, one a bin and run, as positions, shape (runs, G).

    ``cost`` and ``weight`` (shape (C,)) hold the candidates of the bins one after another, those of bin g in
    ``start[g]:start[g + 1]``; P is proportional to weight exp(-cost/scale). Where ``scale`` (shape (G,)) is
    0, the first candidate of least cost is taken. ``exact`` decides doubtful draws exactly; simulations need
    not. Raises UsageError when a bin has no candidate of positive weight, or a scale is negative or infinite.
    """
    bins = len(start) - 1
    if bins == 0:
        return np.zeros((runs, 0), dtype=np.int64)
    _check(cost, weight, start, scale)
    excess = _excess(cost, weight, start)
    ends = _running_sums(excess, weight, start, scale)
    word = bits(runs * bins)
    which = np.tile(np.arange(bins), runs)
    found = _first_above(ends, start[which], start[which + 1] - 1, word)
    if exact:
        before = np.where(found > start[which], ends[np.maximum(found, 1) - 1], 0)
        margin = _margin(np.diff(start))[which]
        doubtful = (word - before <= margin) | (ends[found] - word <= margin)
        for i in np.flatnonzero(doubtful & (scale[which] > 0)):
            part = slice(int(start[which[i]]), int(start[which[i] + 1]))
            chosen = exact_candidate(excess[part], weight[part], float(scale[which[i]]), int(word[i]), bits)
            found[i] = start[which[i]] + chosen
    return found.reshape(runs, bins)


def probabilities(cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray) -> FloatArray:
    """Return the probability with which ``draw`` takes each candidate, up to rounding, shape (C,)."""
    _check(cost, weight, start, scale)
    return _shares(_excess(cost, weight, start), weight, start, scale)


def exact_candidate(excess: IntArray, weight: IntArray, scale: float, word: int, bits: Bits) -> int:
    """Return the candidate of one bin into whose part of [0, 1) the random bits ``word`` fall, decided
    exactly.

    More ``bits`` are asked for as long as the comparison is open. Decimal's exp is correctly rounded, so with
    p digits every term is off by at most 3 units of 10^-p of itself, and the sum of n terms by another n
    10^-p of the total; 10 n 10^-p bounds the difference of any F_i.
    """
    positive = np.flatnonzero(weight > 0)
    length = BITS
    while True:
        with localcontext() as context:
            context.rounding = ROUND_HALF_EVEN
            context.prec = length * 4 // 13 + 25 + len(str(len(weight)))
            exponent = Decimal(scale)
            terms = [Decimal(int(weight[i])) * (-Decimal(int(excess[i])) / exponent).exp() for i in positive]
            total = sum(terms, Decimal(0))
            slack = total * len(terms) * Decimal(10) ** (1 - context.prec)
            unit = total / Decimal(2) ** length
            low, high = word * unit, (word + 1) * unit
            below = Decimal(0)
            for position, term in enumerate(terms):
                above = below + term
                starts = position == 0 or below + slack <= low
                stops = position == len(terms) - 1 or high <= above - slack
                if starts and stops:
                    return int(positive[position])
                if not starts:
                    break
                below = above
        word = (word << BITS) | int(bits(1)[0])
        length += BITS


def _check(cost: IntArray, weight: IntArray, start: IntArray, scale: FloatArray) -> None:
    sizes = np.diff(start)
    valid = (
        len(cost) == len(weight) == start[-1]
        and int(sizes.min()) > 0
        and int(weight.min()) >= 0
        and bool(np.all(np.maximum.reduceat(weight, start[:-1]) > 0))
        and len(cost) < MOST_CANDIDATES
    )
    if not valid:
        raise UsageError(
            "there is nothing to choose from", expected="a candidate of positive weight in every bin"
        )
    if not bool(np.all(np.isfinite(scale) & (scale >= 0))):
        raise UsageError("the scale of a choice is out of range", expected="finite scales of at least 0")


def _excess(cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
    """Costs above the bin's least (0 for candidates that are never drawn)."""
    least = np.minimum.reduceat(np.where(weight > 0, cost, np.iinfo(np.int64).max), start[:-1])
    return np.where(weight > 0, cost - np.repeat(least, np.diff(start)), 0)


def _shares(excess: IntArray, weight: IntArray, start: IntArray, scale: FloatArray) -> FloatArray:
    sizes = np.diff(start)
    per = np.repeat(scale, sizes)
    with np.errstate(over="ignore"):
        mass = weight * np.exp(-excess / np.where(per > 0, per, 1.0))
    if bool(np.any(scale == 0)):
        least = np.where((excess == 0) & (weight > 0), np.arange(len(excess)), len(excess))
        first = np.repeat(np.minimum.reduceat(least, start[:-1]), sizes)
        mass = np.where(per > 0, mass, np.arange(len(excess)) == first)
    return np.asarray(mass / np.repeat(np.add.reduceat(mass, start[:-1]), sizes), dtype=np.float64)


def _running_sums(excess: IntArray, weight: IntArray, start: IntArray, scale: FloatArray) -> IntArray:
    """F_i in units of 2^-62, sums of integers, so that no bin's rounding touches another's.

    The last candidate that can be drawn, and all after it, get the full 2^62.
    """
    share = _shares(excess, weight, start, scale)
    whole = np.rint(np.ldexp(share, BITS)).astype(np.uint64)
    # unsigned sums wrap around; differences within a bin do not
    running = np.cumsum(whole, dtype=np.uint64)
    before = np.repeat(running[start[:-1]] - whole[start[:-1]], np.diff(start))
    full = np.uint64(1) << np.uint64(BITS)
    ends = np.minimum(running - before, full)
    sizes = np.diff(start)
    last = np.where(share > 0, np.arange(len(share)), -1)
    from_here = np.arange(len(share)) >= np.repeat(np.maximum.reduceat(last, start[:-1]), sizes)
    return np.where(from_here, full, ends).astype(np.int64)


def _margin(sizes: IntArray) -> IntArray:
    """Bound the error of ``_running_sums`` in its units.

    An exponent up to 745 is off by 745 * 2^-53, below 2^-43; exp, the product and the division by a few
    2^-53; the total of n terms by n 2^-53; rounding to integers by n/2 units.
    """
    error: FloatArray = np.ldexp(2.0**-42 + sizes * 2.0**-51, BITS) + sizes + 2.0
    return np.ceil(error).astype(np.int64)


def _first_above(ends: IntArray, low: IntArray, high: IntArray, word: IntArray) -> IntArray:
    """Return, a query, the first position in low..high whose end exceeds its word (binary search)."""
    low, high = low.copy(), high.copy()
    while bool(np.any(low < high)):
        middle = (low + high) // 2
        beyond = ends[middle] > word
        high = np.where(beyond, middle, high)
        low = np.where(beyond, low, np.minimum(middle + 1, high))
    return low


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
    """Return ln P(farther from 0) and ln P(nearer to 0) of discrete Laplace draws ``z``, elementwise.

    ``uniform`` in (0, 1) breaks ties, so that both probabilities are uniform for right draws; ``scale`` > 0.
    """
    n = np.abs(z).astype(np.float64)
    ratio = np.exp(-1.0 / scale)
    # P(|Z| > n) = 2 r^(n + 1) / (1 + r), P(|Z| = n) = 2 r^n (1 - r) / (1 + r), half of it at 0
    here = np.where(n > 0, 1.0, 0.5) * (1.0 - ratio)
    outside = np.log(2.0 / (1.0 + ratio)) - n / scale + np.log(ratio + uniform * here)
    return _both(outside)


def gaussian_rank(z: IntArray, sd: FloatArray, uniform: FloatArray) -> Logs:
    """Return ln P(farther from 0) and ln P(nearer to 0) of discrete Gaussian draws ``z``, elementwise.

    ``uniform`` in (0, 1) breaks ties, so that both probabilities are uniform for right draws; ``sd`` > 0.
    """
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
    """Return ln P(larger) and ln P(smaller) of each block's norm max ceil(|z|/a) in l-infinity noise, (B,).

    ``block`` numbers the blocks 0.. without gaps; ``uniform`` (B,) breaks ties. P(norm = m) is proportional
    to (Q(m) - Q(m - 1)) e^(-m/s), where Q(m) = prod (2 a m + 1) counts the vectors of norm m at most.
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
    """Return ln P(costlier) and ln P(cheaper) of each exponential mechanism's drawn candidate, shape (G,).

    ``choice`` = (cost, weight, start, scale) as in ``draw``. Candidates are ordered by cost, those of one
    cost by position. ``cell`` is the drawn position, ``within`` in (0, 1) breaks ties.
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
        """Return ln P(larger) and ln P(smaller) of each block's norm, ties broken by ``uniform`` in (0,
        1).
        """
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
