"""The sets that a vehicle's numbers are brought into, each with its projection, its price and the proof.

Below them: the steps that are made of sets and noise, and all that a mechanism sees of noise (``Measure``).

# Vectors in a box (``Box``)

Every entry is a whole number from 0 to a public most.

**Theorem.** With x_e, x'_e in 0..h_e, two vectors of one vehicle differ by at most h_e in entry e, in all
entries at once, and by exactly that for x = 0, x' = h. So noise that charges for a move of h charges for the
worst, and for no more. Sums that are multiplied by 2^k move by 2^k times as much; sums that are floored to
multiples of 2^k move by at most ceil(h/2^k) multiples: floor((r + h)/c) - floor(r/c) <= ceil(h/c), with
equality for some r.

# Pairs of sums (``Moments``)

Of x, and of x (K - x), over the m records of a vehicle in a bin, x a whole number in 0..K.

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

# Vectors in a ball (``Ball``, ``AddRemoveBall``)

All of a vehicle's numbers together are no longer than a bound C, in l1 or l2.

A vehicle's real vector v becomes whole numbers of a grain C / 2^20: v min(1, C/|v|) is cut off toward zero,
every entry is brought into -2^20..2^20, and only then squared or added up; while the vector is longer than
2^20 grains, every entry loses one grain. So the bound holds for integers, whatever floats did before, and
whatever v was: what is not finite is 0.

**Theorem (REPLACE_USER_VALUES, ``Ball``).** Two vectors of one vehicle, z and z', are at most 2 * 2^20 grains
apart in the ball's norm. Where entry e is moreover kept in a public interval low_e..high_e that contains 0,
they differ by at most high_e - low_e there, and so by at most the norm of these. Laplace noise of scale b in
all coordinates costs the l1 distance over b; Gaussian noise of standard deviation s the square of the l2
distance over 2 s^2 (``laws``). *Proof.* Triangle inequality; shrinking and cutting off toward zero leave an
interval that contains zero. QED.

**Theorem (ADD_OR_REMOVE_USER, ``AddRemoveBall``).** A vehicle that is added or removed, with all its records,
moves the sums by its own vector z, of at most 2^20 grains, wherever its entries are: 2^20/b in epsilon,
2^40/(2 s^2) in rho, for s >= LEAST_SD: with less, rho would not become (epsilon, delta) as it does there
(``privacy.conversion.gaussian_to_approx``). *Proof.* z follows from the vehicle's own entries alone, so no
other vehicle's changes (Canonne, Kamath, Steinke 2020, Proposition 5, for the shift of a discrete Gaussian).
QED. So every possible vehicle loses the same, and the price is one number, whoever is there.

# A private quantile of the vehicles' own numbers (``Ranks``)

The set: one whole number a vehicle and coordinate, x_e in 0..high_c. Candidates are all whole numbers t in
0..high_c, and t is drawn with probability proportional to exp(-cost(t) / scale_c) (the exponential mechanism;
Smith 2011 for quantiles), where

    cost(t) = max(0, #{x < t} - rank_c, above_c - #{x <= t}),

by how many vehicles t misses: a q-quantile of n vehicles is what costs nothing at rank = floor(q n) and
above = ceil(q n), and there always is one, also where many vehicles have the same number.

**Theorem.** One vehicle has one number in a coordinate, so #{x < t} and #{x <= t} move by at most 1 for every
t, and the largest of the three with them. The draw costs each of the coordinate's vehicles 2/scale in epsilon
(McSherry and Talwar 2007), and, as a mechanism of bounded range 2/scale, (2/scale)^2/8 in rho (Cesar and
Rogers 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.measurement import laws
from trafficdp.model.counts import largest_two, number_pairs
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.conversion import LEAST_SD
from trafficdp.privacy.loss import LossKind, loss_upper_bound, round_up, to_pico
from trafficdp.sensitive import MeasureInput, VectorEntries


@dataclass(frozen=True)
class Box:
    """Entries that are clipped to whole numbers in 0..``high`` (E,).

    Raises UsageError for a negative ``high``, or sums beyond 64 bits.
    """

    support: laws.EntryIndex
    high: IntArray

    def __post_init__(self) -> None:
        if self.high.shape != self.support.user.shape or int(self.high.min(initial=0)) < 0:
            raise UsageError("a box has no such sides", expected="a whole number of at least 0 an entry")
        self.support.require_64_bits(self.high)

    def sums(self, values: laws.Values) -> IntArray:
        """Return the sum over vehicles in each coordinate, every value first clipped to 0..``high``."""
        return self.support.sums(np.clip(laws.as_integers(values, len(self.high)), 0, self.high))

    def largest(self) -> IntArray:
        """Return the largest possible sum of every coordinate, from public bounds, shape (coordinates,)."""
        return self.support.sums(self.high)

    def loss(self, law: laws.Law, shift: IntArray) -> IntArray:
        """Return every vehicle's privacy loss, 10^-12, for sums times 2^``shift`` with noise of ``law``."""
        return law.loss(self.support, self.moves(shift))

    def moves(self, shift: IntArray) -> IntArray:
        """Return by how much each entry can change its sum, which is multiplied by 2^``shift``.

        Rounded up.
        """
        by = shift[self.support.coordinate]
        # rounded up: right shifts of negative numbers floor
        floored = -np.right_shift(-self.high, np.maximum(-by, 0))
        return np.asarray(np.where(by < 0, floored, np.left_shift(self.high, np.maximum(by, 0))))


@dataclass(frozen=True)
class Moments:
    """``count`` (E,) is m, ``steps`` K; ``second`` (B,) marks the bins whose W is measured as well.

    Sums, and the numbers of laws and shifts, are those of S in all bins, then those of W, shape (2 B,).
    Raises UsageError for counts below 1 or sums beyond 64 bits.
    """

    support: laws.EntryIndex
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
    def box(self) -> Box:
        """The intervals of every entry's S, 0..K m, then of its W, 0..m floor(K^2 / 4) where it is
        measured.
        """
        at, user, bins = self.support.coordinate, self.support.user, self.support.coordinates
        both = laws.EntryIndex(
            np.tile(user, 2), np.concatenate([at, at + bins]), self.support.users, 2 * bins
        )
        most = self.count * (self.steps**2 // 4)
        return Box(both, np.concatenate([self.count * self.steps, np.where(self.second[at], most, 0)]))

    def sums(self, values: laws.Values) -> IntArray:
        """Return the sums of S in all B bins, then of W, (2 B,).

        The private pairs (S, W) are clipped first.
        """
        m, top = self.count, self.steps
        first, second = laws.as_integers(values, 2 * len(m)).reshape(2, len(m))
        first = np.clip(first, 0, m * top)
        low, more = first // m, first % m
        largest = (m - more) * low * (top - low) + more * (low + 1) * (top - low - 1)
        return self.box.sums(np.concatenate([first, np.minimum(second, largest)]))

    def largest(self) -> IntArray:
        """Return the largest possible sums, from public bounds: of S in all B bins, then of W, (2 B,)."""
        return self.box.largest()

    def loss(self, law: laws.Law, shift: IntArray) -> IntArray:
        """Return every vehicle's privacy loss, 10^-12, for both sums times 2^``shift`` with noise of ``law``.

        Raises UsageError unless the noise is Laplace or Block.
        """
        if isinstance(law, laws.Laplace):
            return self.support.losses(self._price(law.scale, shift))
        if isinstance(law, laws.Block):
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

    def _units(self, law: laws.Block, shift: IntArray) -> IntArray:
        """The theorem's most of every bin g over all h of its block, shape (E,), in units of 1/s.

        Raises UsageError when the sums W of a block are not those of the bins of one block of sums S.
        """
        support, bins = self.support, self.support.coordinates
        one, two = law.block[:bins], law.block[bins:]
        pairs = set(zip(one[self.second].tolist(), two[self.second].tolist(), strict=True))
        same = len(pairs) == len({each for each, _ in pairs}) == len({each for _, each in pairs})
        if not same:
            raise UsageError("sums of products are not in the blocks of their means", expected="one to one")
        alone, other = law.units(self.box.support, self.box.moves(shift)).reshape(2, len(self.count))
        joint = self._price(np.maximum(law.half_width, 1).astype(np.float64), shift)
        # what is more than 2^62 is more than both alone, which fit 64 bits
        both = np.ceil(np.minimum(joint, 2.0**62)).astype(np.int64) + 1
        blocks = max(law.blocks, 1)
        _, _, which = number_pairs(one[support.coordinate], support.user, blocks, support.users)
        top, at, next_top = largest_two(other, which, int(which.max(initial=-1)) + 1)
        elsewhere = np.where(at[which] == np.arange(len(which)), next_top[which], top[which])
        return np.asarray(alone + np.maximum(np.minimum(both - alone, other), elsewhere))


def record_price(steps: int, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return an upper bound of one record's epsilon: max over d of d / first + d (steps - d) / second.

    ``first`` and ``second`` are Laplace scales of the sums of x and of x (steps - x), for x in 0..``steps``.
    Infinite where a scale is 0; an infinite ``second`` means no second sum.
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


LARGEST_ENTRIES = 1 << 20
"""Of a vehicle in a hidden ball, in order of coordinate: squares add up to 2^60. Others count as 0."""
LARGEST_USERS = 1 << 40
"""More vehicles than this are no city: sums of a hidden ball stay below 2^60."""


class _Vectors:
    """What a move of vectors costs, of either relation: by its length in the ``norm``, at the least noise."""

    norm: int
    least_sd: ClassVar[float] = 0.0
    """Gaussian noise of less, in grains, has no theorem."""

    def largest_move(self) -> IntArray:
        """Return each vehicle's largest l1 (squared l2) change of the sums, in grains."""
        raise NotImplementedError

    def loss(self, law: laws.Law, shift: IntArray) -> IntArray:
        """Return every vehicle's privacy loss under ``law``, whole 10^-12, by ``largest_move``.

        Raises UsageError unless the noise is Laplace for l1, or Gaussian of at least ``least_sd`` for l2.
        """
        move = self.largest_move().astype(np.float64)
        if self.norm == 1 and isinstance(law, laws.Laplace):
            return to_pico(loss_upper_bound(move, np.asarray(law.scale.min(initial=np.inf))))
        if self.norm == 2 and isinstance(law, laws.Gaussian) and bool(np.all(law.sd >= self.least_sd)):
            least = np.asarray(law.sd.min(initial=np.inf))
            return to_pico(loss_upper_bound(loss_upper_bound(move, least), 2 * least))
        raise UsageError(
            "no theorem prices a ball under this noise",
            got=f"l{self.norm}, {type(law).__name__}",
            expected=f"l1 with Laplace noise, or l2 with Gaussian noise of at least {self.least_sd:g} grains",
        )


@dataclass(frozen=True)
class Ball(_Vectors):
    """``norm`` is 1 or 2, ``bound`` C; ``low`` <= 0 <= ``high`` (E,) bound entries, in grains.

    ``support`` has the entries, which are public. Raises UsageError when these do not fit together.
    """

    support: laws.EntryIndex
    norm: int
    bound: float
    low: IntArray
    high: IntArray

    def __post_init__(self) -> None:
        fits = self.low.shape == self.high.shape == self.support.user.shape and self.norm in (1, 2)
        fits = fits and -laws.GRAINS <= int(self.low.min(initial=0)) <= int(self.low.max(initial=0)) <= 0
        fits = fits and 0 <= int(self.high.min(initial=0)) <= int(self.high.max(initial=0)) <= laws.GRAINS
        if not (fits and 0 < self.bound < np.inf):
            raise UsageError("a ball is out of range", expected="a bound above 0, intervals around 0")
        self.support.require_64_bits(self.high - self.low)

    def sums(self, values: laws.Values) -> IntArray:
        """Return the sum over vehicles in each coordinate, each vector clipped to the ball, in bound /
        2^20.
        """
        user, users = self.support.user, self.support.users
        real, flat = np.zeros(len(user)), np.ravel(values)[: len(user)]
        np.copyto(real[: len(flat)], flat, where=np.isfinite(flat))
        whole = _scaled(real, user, users, self.norm, self.bound)
        np.clip(whole, self.low, self.high, out=whole)
        return self.support.sums(_shrunk(whole, user, users, self.norm))

    def largest(self) -> IntArray:
        """Return the largest possible size of every sum, in grains, from public bounds, one a coordinate."""
        size = -self.low
        return self.support.sums(np.maximum(size, self.high, out=size))

    def largest_move(self) -> IntArray:
        """Return the largest distance of two vectors of each vehicle, in grains (squared for l2),
        (users,).
        """
        far = np.zeros(self.support.users, dtype=np.int64)
        between = self.high - self.low
        between **= self.norm
        np.add.at(far, self.support.user, between)
        return np.asarray(np.minimum(far, (2 * laws.GRAINS) ** self.norm))


@dataclass(frozen=True)
class AddRemoveBall(_Vectors):
    """A ball over ``coordinates`` of which nothing is public: not who has entries, nor where, nor how many.

    ``norm`` is 1 or 2, ``bound`` C. Raises UsageError when these are out of range.
    """

    coordinates: int
    norm: int
    bound: float
    least_sd: ClassVar[float] = LEAST_SD

    def __post_init__(self) -> None:
        if not (self.norm in (1, 2) and self.coordinates >= 1 and 0 < self.bound < np.inf):
            raise UsageError("a ball is out of range", expected="a bound above 0, coordinates, norm 1 or 2")

    def sums(self, values: VectorEntries) -> IntArray:
        """Return the sum over vehicles in each coordinate, each vector clipped to the ball, in bound / 2^20.

        What a vehicle adds depends on its own (vehicle, coordinate, value) entries alone.
        """
        there = (values.coordinate >= 0) & (values.coordinate < self.coordinates)
        users, user = np.unique(values.user[there], return_inverse=True)
        many = max(len(users), 1)
        user, place, entry = number_pairs(user, values.coordinate[there], many, self.coordinates)
        with np.errstate(over="ignore", invalid="ignore"):
            real = np.where(np.isfinite(values.value[there]), values.value[there], 0.0)
            real = np.bincount(entry, real, len(user)).astype(np.float64)
        real = np.where(np.isfinite(real), real, 0.0)
        kept = np.arange(len(user)) - np.searchsorted(user, user) < LARGEST_ENTRIES
        user, place, real = user[kept], place[kept], real[kept]
        whole = _shrunk(_scaled(real, user, many, self.norm, self.bound), user, many, self.norm)
        total = np.zeros(self.coordinates, dtype=np.int64)
        np.add.at(total, place, whole)
        return total

    def largest(self) -> IntArray:
        """Return a bound on the size of every sum, in grains, by 2^40 vehicles, shape (coordinates,)."""
        return np.full(self.coordinates, LARGEST_USERS * laws.GRAINS, dtype=np.int64)

    def largest_move(self) -> IntArray:
        """Return the largest length of a vehicle's vector in grains, squared for the l2 norm, shape (1,)."""
        return np.array([laws.GRAINS**self.norm])


def _scaled(real: FloatArray, user: IntArray, users: int, norm: int, bound: float) -> IntArray:
    """``real`` (E,), finite, each vehicle's vector clipped to ``bound``, in grains, cut off toward zero.

    It is worked on where it lies.
    """
    # the longest entry first, so that no square leaves the floats
    largest = np.zeros(users)
    np.maximum.at(largest, user, np.abs(real))
    share = np.where(largest > 0, largest, 1.0)[user]
    np.abs(np.divide(real, share, out=share), out=share)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        share **= norm
        length = largest * np.bincount(user, share, users) ** (1 / norm)
        del share
        real *= np.minimum(1.0, bound / np.where(length > 0, length, 1.0))[user]
        real /= bound / laws.GRAINS
    np.copyto(real, 0.0, where=~np.isfinite(real))
    return np.clip(real, -laws.GRAINS, laws.GRAINS, out=real).astype(np.int64)


def _shrunk(whole: IntArray, user: IntArray, users: int, norm: int) -> IntArray:
    """``whole`` (E,), entries of at most GRAINS, brought toward 0 until no vehicle's vector is too long.

    It is worked on where it lies.
    """
    while True:
        size = np.zeros(users, dtype=np.int64)
        np.add.at(size, user, np.abs(whole) if norm == 1 else whole * whole)
        if not bool((long := size > laws.GRAINS**norm).any()):
            return whole
        np.subtract(whole, np.sign(whole), out=whole, where=long[user])


@dataclass(frozen=True)
class Ranks:
    """Private selections of one whole number 0..``high`` for each coordinate, by the rank it has.

    A number t costs how many more numbers than ``rank`` are below it, or how many fewer than ``above`` are
    not above it; it is drawn in proportion to exp(-cost / ``scale``). ``high``, ``rank``, ``above`` and
    ``scale`` (C,) are public; scale 0 takes the first of least cost.
    """

    support: laws.EntryIndex
    high: IntArray
    rank: IntArray
    above: IntArray
    scale: FloatArray
    kind: LossKind

    def __post_init__(self) -> None:
        if int(self.high.min(initial=0)) < 0 or not bool(np.all(self.scale >= 0)):
            raise UsageError("a choice is out of range", expected="lattices and scales of at least 0")

    def loss(self) -> IntArray:
        """Return every vehicle's loss by these private selections, whole 10^-12 of ``kind``, (users,)."""
        return choice_loss(self.support, np.ones(len(self.scale)), self.scale, self.kind)

    def draw(self, source: NoiseSource, values: laws.Values) -> IntArray:
        """Return one private quantile of each coordinate's ``values`` (E,), clipped to 0..``high`` first."""
        begin, cost, weight, start = self.cells(values)
        cell = source.choose(cost, weight, start, self.scale)[0]
        return np.asarray(begin[cell] + source.uniform_below(weight[cell]))

    def cells(self, values: laws.Values) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the candidate numbers in cells of equal cost: first number, cost, how many, and ``start``.

        The cells of coordinate c are ``start[c]:start[c + 1]``; the cost is by how many vehicles one misses
        its rank.
        """
        at, many = self.support.coordinate, np.arange(self.support.coordinates)
        inside = np.clip(laws.as_integers(values, len(at)), 0, self.high[at])
        # the cost changes only at a number that a vehicle has, and behind it; of equal ends the last counts
        owner = np.concatenate([many, at, at])
        begin = np.concatenate([np.zeros_like(many), inside, inside + 1])
        order = np.lexsort((begin, owner))
        owner, begin = owner[order], begin[order]
        start = np.searchsorted(owner, np.arange(len(many) + 1))
        earlier = ((start[:-1] - many) // 2)[owner]
        upto = np.cumsum((order >= len(many)) & (order < len(many) + len(at))) - earlier
        below = np.cumsum(order >= len(many) + len(at)) - earlier
        weight = np.diff(begin, append=0)
        weight[start[1:] - 1] = self.high + 1 - begin[start[1:] - 1]
        cost = np.maximum(np.maximum(below - self.rank[owner], self.above[owner] - upto), 0)
        return begin, cost, weight, start


def choice_loss(support: laws.EntryIndex, change: FloatArray, scale: FloatArray, kind: LossKind) -> IntArray:
    """Return every vehicle's privacy loss by exponential mechanisms, whole 10^-12 of ``kind``.

    In coordinate c, P(candidate) is proportional to exp(-score / ``scale``[c]); one vehicle changes a score
    by at most ``change``[c]. That is 2 change / scale in epsilon, (2 change / scale)^2 / 8 in rho.
    """
    loss = loss_upper_bound(2.0 * change, scale)
    if kind is LossKind.ZCDP:
        loss = np.where(loss > 0, round_up(round_up(loss * loss) / 8), 0.0)
    return support.losses(loss[support.coordinate])


ENFORCED = (Box, Moments, Ball, AddRemoveBall)
"""The sets that a vehicle's numbers are brought into, whatever they are. A step of any other is a claim."""


class Set(Protocol):
    """The set into which each vehicle's entries are clipped before a step sums them."""

    def sums(self, values: Any) -> IntArray:  # noqa: ANN401
        """Return the sum over vehicles in each coordinate, each vehicle's ``values`` clipped to the set
        first.
        """

    def largest(self) -> IntArray:
        """Return the largest possible size of every sum, from public bounds, one a coordinate."""

    def loss(self, law: laws.Law, shift: IntArray) -> IntArray:
        """Return every vehicle's privacy loss, 10^-12, for sums times 2^``shift`` with noise of ``law``."""


@dataclass(frozen=True)
class Step:
    """Sums over vehicles of what is in ``of``, times 2^``shift`` (C,) or as they are, with noise of ``law``.

    Raises UsageError when sums or noise do not fit each other, or 64 bits.
    """

    of: Set
    law: laws.Law
    shift: IntArray = field(default_factory=lambda: np.zeros((), dtype=np.int64))

    def __post_init__(self) -> None:
        largest, farthest = self.of.largest(), 62 if isinstance(self.of, Box | Moments) else 0
        if not self.shift.ndim:
            object.__setattr__(self, "shift", np.full_like(largest, self.shift))
        fits = self.shift.shape == largest.shape and int(np.abs(self.shift).max(initial=0)) <= farthest
        if (
            not fits
            or float(np.ldexp(largest.astype(np.float64), self.shift).max(initial=0)) >= laws.LARGEST_SUM
        ):
            raise UsageError("sums and their noise do not fit", todo="choose a larger speed_step")

    @property
    def kind(self) -> LossKind:
        """The kind of privacy loss: pure epsilon or rho."""
        return self.law.kind

    def loss(self) -> IntArray:
        """Return every vehicle's privacy loss, whole 10^-12 of epsilon or rho, rounded up, shape (users,)."""
        return self.of.loss(self.law, self.shift)

    def exact(self, values: MeasureInput) -> IntArray:
        """Return the sums of private ``values``, clipped to the set, times 2^``shift``, without noise."""
        if isinstance(self.of, AddRemoveBall) != isinstance(values, VectorEntries):
            raise UsageError("a step was handed what it does not read", expected="entries for a hidden ball")
        sums = self.of.sums(values)
        # times 2^shift, floored where that is no whole number
        return np.right_shift(np.left_shift(sums, np.maximum(self.shift, 0)), np.maximum(-self.shift, 0))

    def draw(self, source: NoiseSource, values: MeasureInput) -> IntArray:
        """Return the sums of private ``values``, clipped to the set, times 2^``shift``, with noise; (C,)."""
        return self.law.add(self.exact(values), source)


class Claim(Protocol):
    """What a vehicle loses by noise that no set bounds, as ``theorem`` says."""

    @property
    def kind(self) -> LossKind:
        """The kind of privacy loss: pure epsilon or rho."""

    @property
    def theorem(self) -> str:
        """The theorem, in words, on which the claimed loss rests."""

    def loss(self) -> IntArray:
        """Return every vehicle's privacy loss if the theorem holds, in whole 10^-12, shape (users,)."""


class Scores(Claim, Protocol):
    """A choice with probability proportional to exp(-cost/``scale``), ``scale`` (C,)."""

    @property
    def scale(self) -> FloatArray:
        """The scale of the exponential mechanism for every coordinate, shape (C,)."""


Priced = Step | Ranks | Claim


class Measure(Protocol):
    """The interface through which a mechanism draws noise.

    A release meters the loss of every call that looks at values; ``SimulatedNoise`` has the same methods and
    meters nothing.
    """

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Return the noisy sum of private ``values``, clipped to the step's set, of each coordinate."""

    def select(self, ranks: Ranks, values: laws.Values) -> IntArray:
        """Return one privately selected quantile of ``values`` for every coordinate of ``ranks``."""

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return, for every coordinate, the candidate that the exponential mechanism draws, by position.

        P(i) is proportional to ``weight``[i] exp(-``cost``[i] / scale) in ``start``[c]:``start``[c + 1];
        unenforced.
        """

    def charge_unverified(self, noise: Claim) -> None:
        """Charge the claimed loss of ``noise`` that a mechanism makes itself out of ``uniform_below``."""

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return independent uniform whole numbers in 0..``count`` - 1: free, as they depend on no value."""
