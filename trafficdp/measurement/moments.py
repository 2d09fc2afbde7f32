"""Pairs of sums: of x, and of x (K - x), over the m records of a vehicle in a bin, x a whole number in 0..K.

**The set.** S in 0..m K, and 0 <= W <= f(S), f(S) the largest sum of x (K - x) over m whole numbers that add
up to S: all of them floor(S/m) or one more. f is m times the line through the points d (K - d) at whole d.

**Theorem.** For scales B and C of independent Laplace noises, two pairs of the set differ in |dS|/B + |dW|/C
by at most m p, and two of them by exactly that,

    p(B, C) = max over d = 0..K of  d/B + d (K - d)/C.

*Proof.* Let W be the larger of the two. The bound grows when the smaller one falls to 0, where any S' is
allowed, and when W rises to f(S); then |S - S'| is largest for S' = 0 or m K. As f(S) = f(m K - S), the bound
is at most D/B + f(D)/C for a D in 0..m K, linear between multiples D = m d, so at most m p. For d where p is
attained, (m d, f(m d)) and (0, 0) differ by m p. QED. Records that are all d, or all 0, give these pairs: no
smaller price holds for what vehicles can send. A sum floored to multiples of 2^k moves by less than one
multiple more, at the price of one, once.

**In blocks** (``laws.Block``; S and W of a block drawn apart, half widths a and a', one s): a vehicle pays
1/s times the largest, over bins g and h of the block, of ceil(|dS_g|/a_g) + ceil(|dW_h|/a'_h). For g != h
these are at most ceil(m K/a) and ceil(m floor(K/2) ceil(K/2)/a'); for g = h their sum is at most
ceil(m p(a, a')) + 1, since ceil(x) + ceil(y) <= ceil(x + y) + 1.

With C = c K B, p = (K/B) cost(c): 1 from c = 1 on, so that variances are free; (1 + c)^2/(4 c) below.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trafficdp.errors import UsageError
from trafficdp.measurement.box import Box
from trafficdp.measurement.laws import Block, Laplace, Law
from trafficdp.measurement.support import BoolArray, FloatArray, IntArray, Support, Values, as_integers
from trafficdp.model import largest_two, number_pairs
from trafficdp.privacy.loss import loss_upper_bound, round_up


@dataclass(frozen=True)
class Moments:
    """``count`` (E,) is m, ``steps`` K; ``second`` (B,) marks the bins whose W is measured as well.

    Sums, and the numbers of laws and shifts, are those of S in all bins, then those of W, shape (2 B,).
    Raises UsageError for counts below 1 or sums beyond 64 bits.
    """

    support: Support
    count: IntArray
    steps: int
    second: BoolArray

    def __post_init__(self) -> None:
        if self.count.shape != self.support.user.shape or int(self.count.min(initial=1)) < 1:
            raise UsageError("pairs of sums have no such counts", expected="at least 1 record an entry")
        if float(self.count.max(initial=0)) * self.steps**2 >= 2.0**61:
            raise UsageError("sums of squares could leave 64 bits", todo="choose a larger speed_step")
        # refuses sums beyond 64 bits
        self.largest()

    @cached_property
    def around(self) -> Box:
        """The box of S of all entries, then of W: 0 where it is not measured, else m floor(K^2 / 4)."""
        at, user, bins = self.support.coordinate, self.support.user, self.support.coordinates
        both = Support(np.tile(user, 2), np.concatenate([at, at + bins]), self.support.users, 2 * bins)
        most = self.count * (self.steps**2 // 4)
        return Box(both, np.concatenate([self.count * self.steps, np.where(self.second[at], most, 0)]))

    def sums(self, values: Values) -> IntArray:
        """Return the sums (2 B,) of ``values`` (2, E): S and W of every entry, brought into the set first."""
        m, top = self.count, self.steps
        first, second = as_integers(values, 2 * len(m)).reshape(2, len(m))
        first = np.clip(first, 0, m * top)
        low, more = first // m, first % m
        largest = (m - more) * low * (top - low) + more * (low + 1) * (top - low - 1)
        return self.around.sums(np.concatenate([first, np.minimum(second, largest)]))

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (2 B,)."""
        return self.around.largest()

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses, shape (users,); raises UsageError for a law without theorem."""
        if isinstance(law, Laplace):
            return self.support.losses(self._price(law.scale, shift))
        if isinstance(law, Block):
            return law.loss_of_units(law.largest(self.support, self._units(law, shift)))
        raise UsageError(
            "no theorem prices pairs of sums under this noise", got=type(law).__name__, expected="Laplace"
        )

    def _price(self, scale: FloatArray, shift: IntArray) -> FloatArray:
        """Floats >= m p of every entry, and what flooring adds, shape (E,), by what is (2 B,) a sum."""
        bins, place = self.support.coordinates, self.support.coordinate
        measured = np.concatenate([np.ones_like(self.second), self.second])
        # powers of two are exact; what is not measured has noise without end
        coarse = np.where(measured, np.ldexp(scale, -shift), np.inf)
        price = record_price(self.steps, coarse[:bins], coarse[bins:])
        floored = loss_upper_bound((measured & (shift < 0)).astype(np.float64), scale)
        with np.errstate(invalid="ignore"):
            pair = round_up(self.count * price[place])
            for more in (floored[:bins][place], floored[bins:][place]):
                pair = np.where(more > 0, round_up(pair + more), pair)
        return pair

    def _units(self, law: Block, shift: IntArray) -> IntArray:
        """The theorem's most of every bin g over all h of its block, shape (E,), in units of 1/s.

        Raises UsageError when the sums W of a block are not those of the bins of one block of sums S.
        """
        support, bins = self.support, self.support.coordinates
        one, two = law.block[:bins], law.block[bins:]
        pairs = set(zip(one[self.second].tolist(), two[self.second].tolist(), strict=True))
        same = len(pairs) == len({each for each, _ in pairs}) == len({each for _, each in pairs})
        if not same:
            raise UsageError("sums of products are not in the blocks of their means", expected="one to one")
        alone, other = law.units(self.around.support, self.around.moves(shift)).reshape(2, len(self.count))
        joint = self._price(np.maximum(law.half_width, 1).astype(np.float64), shift)
        # what is more than 2^62 is more than both alone, which fit 64 bits
        both = np.ceil(np.minimum(joint, 2.0**62)).astype(np.int64) + 1
        blocks = max(law.blocks, 1)
        _, _, which = number_pairs(one[support.coordinate], support.user, blocks, support.users)
        top, at, next_top = largest_two(other, which, int(which.max(initial=-1)) + 1)
        elsewhere = np.where(at[which] == np.arange(len(which)), next_top[which], top[which])
        return np.asarray(alone + np.maximum(np.minimum(both - alone, other), elsewhere))


def record_price(steps: int, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return floats >= p(B, C) of the module, elementwise; infinite where B or C is 0.

    An infinite C is no second sum at all: K/B.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        top = (steps + second / first) / 2
        around = np.floor(np.minimum(np.where(np.isnan(top), np.inf, top), steps))
        best = np.zeros(np.broadcast(first, second).shape)
        # the neighbours as well, so that rounding of the top cannot hide the maximum
        for near in (-1.0, 0.0, 1.0, 2.0):
            d = np.clip(around + near, 0.0, steps)
            best = np.maximum(best, d / first + d * (steps - d) / second)
    # five roundings of relative size 2^-53 at most
    bound = round_up(best * (1 + 2.0**-50))
    return np.where((first > 0) & (second > 0) & ~np.isnan(best), bound, np.inf)
