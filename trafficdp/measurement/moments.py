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
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Block, Laplace, Law
from trafficdp.measurement.support import FloatArray, IntArray, Support, as_integers, shifted_move
from trafficdp.model import largest_two, number_pairs
from trafficdp.privacy.loss import loss_upper_bound, round_up, sum_per_user, to_pico


@dataclass(frozen=True)
class Moments:
    """``count`` (E,) is m, ``steps`` K; ``second`` (B,) marks the bins whose W is measured as well.

    Sums, and the numbers of laws and shifts, are those of S in all bins, then those of W, shape (2 B,).
    Raises UsageError for counts below 1 or sums beyond 64 bits.
    """

    support: Support
    count: IntArray
    steps: int
    second: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.count.shape != self.support.user.shape or int(self.count.min(initial=1)) < 1:
            raise UsageError("pairs of sums have no such counts", expected="at least 1 record an entry")
        if float(self.count.max(initial=0)) * self.steps**2 >= 2.0**61:
            raise UsageError("sums of squares could leave 64 bits", todo="choose a larger speed_step")
        self._both.require_room(self._most)

    @property
    def size(self) -> int:
        """How many sums there are, 2 B."""
        return 2 * self.support.coordinates

    @cached_property
    def _both(self) -> Support:
        """The entries of S in all bins, then those of W."""
        at, user = self.support.coordinate, self.support.user
        bins = self.support.coordinates
        return Support(np.tile(user, 2), np.concatenate([at, at + bins]), self.support.users, 2 * bins)

    @cached_property
    def _most(self) -> IntArray:
        """The largest S and W of every entry, shape (2 E,); W is 0 where it is not measured."""
        products = self.count * (self.steps // 2) * (self.steps - self.steps // 2)
        has_second = self.second[self.support.coordinate]
        return np.concatenate([self.count * self.steps, np.where(has_second, products, 0)])

    def sums(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the sums (2 B,) of ``values`` (2, E): S and W of every entry, brought into the set first."""
        entries, m, top = len(self.count), self.count, self.steps
        both = as_integers(values, 2 * entries).reshape(2, entries)
        first = np.clip(both[0], 0, m * top)
        low, more = first // m, first % m
        largest = (m - more) * low * (top - low) + more * (low + 1) * (top - low - 1)
        second = np.clip(both[1], 0, np.where(self.second[self.support.coordinate], largest, 0))
        return self._both.sums(np.concatenate([first, second]))

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (2 B,)."""
        return self._both.sums(self._most)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses, shape (users,); raises UsageError for a law without theorem."""
        if isinstance(law, Laplace):
            return sum_per_user(to_pico(self._price(law.scale, shift)), self.support.user, self.support.users)
        if isinstance(law, Block):
            return law.loss_of_units(self.units(law, shift))
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

    def units(self, law: Block, shift: IntArray) -> IntArray:
        """Return what every vehicle pays in units of 1/s, the theorem's added over blocks, shape (users,).

        Raises UsageError when the sums W of a block are not those of the bins of one block of sums S.
        """
        support, bins = self.support, self.support.coordinates
        has_second = self.second[support.coordinate]
        one, two = law.block[:bins], law.block[bins:]
        if bool(np.any(one < 0)) or bool(np.any((two >= 0) != self.second)):
            raise UsageError("the blocks are not those of the bins", expected="one for each that can vary")
        _require_same(one[self.second], two[self.second])
        move = shifted_move(self._most, shift[self._both.coordinate])
        alone, other = law.units(self._both, move).reshape(2, len(self.count))
        joint = self._price(np.maximum(law.half_width, 1).astype(np.float64), shift)
        if float(joint.max(initial=0.0)) >= 2.0**60:
            raise UsageError("a change does not fit 64 bits", todo="choose a larger speed_step")
        both = np.where(has_second, np.ceil(joint).astype(np.int64) + 1, alone)
        block = one[support.coordinate]
        _, user, which = number_pairs(block, support.user, max(law.blocks, 1), support.users)
        total = np.zeros(support.users, dtype=np.int64)
        np.add.at(total, user, _dearest(both, alone, other, which, len(user)))
        return total


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


def _dearest(both: IntArray, alone: IntArray, other: IntArray, which: IntArray, groups: int) -> IntArray:
    """The theorem's largest over bins g and h of each (vehicle, block), shape (groups,)."""
    most = np.zeros(groups, dtype=np.int64)
    np.maximum.at(most, which, np.minimum(both, alone + other))
    top, at, next_top = largest_two(alone, which, groups)
    own, own_at, next_own = largest_two(other, which, groups)
    apart = np.where(at != own_at, top + own, np.maximum(top + next_own, next_top + own))
    single = np.bincount(which, minlength=groups) == 1
    return np.where(single, most, np.maximum(most, apart))


def _require_same(one: IntArray, two: IntArray) -> None:
    """Raise UsageError unless both numberings of blocks say the same partition."""
    pairs = len(np.unique(np.stack([one, two]), axis=1).T)
    if not pairs == len(np.unique(one)) == len(np.unique(two)):
        raise UsageError("sums of products are not drawn in the blocks of their means")
