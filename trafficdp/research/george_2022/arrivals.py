"""Streams of samples: when a vehicle's samples become elements, and the budgets of their levels.

Exponential withhold-release: which of a vehicle's samples become an element of a stream, and when.

Paper 002, section 3 and Appendix C.1. When a vehicle's count reaches 2^l, one element of level l is
released: l = 0 its first sample, l >= 1 the sum of samples 2^(l-1) + 1 .. 2^l, B_l = 2^(l-1) of
them. Until then they are withheld. Released samples of a vehicle with M are 2^floor(log2 M) >= (M + 1)/2,
so that at any time more than half of all samples have been released. Counts alone decide, so the pattern
is public.

Samples are of (bin, vehicle) pairs here: everything holds for every bin on its own. A pair contributes at
most one element to a level.

One stream of samples in the order of arrival: whose they are is public, what they say is not.

Budgets, truncation and noise of the levels of continual mean estimation. Public facts only.

Paper 002, sections 3 and E, adapted from {0, 1} to whole steps in 0..u (u = U/q), with its budget split
corrected (erratum E18): with L = floor(log2 m) there are L + 1 levels, 0..L, but only L private medians, for
levels 1..L. Medians get eps/(2 L) each and counters eps/(2 (L + 1)) each, which adds up to eps; dividing
both halves by L would spend eps (1/2 + (L + 1)/(2 L)).

An element of level l is the sum of B_l samples, projected onto [B_l mu - D_l, B_l mu + D_l] (rounded inward)
and [0, u B_l], so one vehicle moves it by at most the width W_l = min(u B_l, 2 D_l):

    D_l = ceil( u sqrt((B_l/2) ln(2 n max(1, L)/(delta/4))) + B_l acc_l )
    acc_l = u sqrt(ln(2 k_l/beta)/(2 B_l)) + u/(2 J_l)        accuracy of the private median
    J_l = ceil(sqrt(B_l)),  beta = delta/(4 L),  k_l = ceil((8 c/eps_med) ln(J_l/beta))

with c the arrays of B_l samples that a vehicle may touch: 2 as in the paper, 1 when arrays are aligned
(``median``). Utility alone rests on these; privacy on W_l, which is exact.

Past the paper: a level whose 2 D_l >= u B_l gains nothing from truncation, so it needs no median and no
waiting, and its budget goes to the others; medians need not have half of the budget; and since the summed
variance of the levels is proportional to sum (W_l/eps_l)^2, the best split has eps_l proportional to
W_l^(2/3) (the derivative of W^2/e^2 is -2 W^2/e^3, equal for all levels), with (sum W^(2/3))^3 at the
optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray, run_starts
from trafficdp.bounding.arrays import rank_within
from trafficdp.errors import UsageError, in_range, integer_between, positive
from trafficdp.mechanisms.means import choice_scale, laplace_scale
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import PICO, PureDP
from trafficdp.stream.tree import BINARY, Tree, bit_length


def level_size(level: IntArray) -> IntArray:
    """Return the number of samples in an element of each ``level``: 1 for level 0, else 2^(level - 1)."""
    return np.left_shift(np.int64(1), np.maximum(np.asarray(level, dtype=np.int64) - 1, 0))


@dataclass(frozen=True)
class Elements:
    """Elements in the order of release, all shape (E,) or (E, C).

    ``sample``: the position in the batch of the sample that completed it; ``pair``; ``level``; ``value``:
    sums of the B_l samples, one column for every column of values.
    """

    sample: IntArray
    pair: IntArray
    level: IntArray
    value: IntArray

    def __len__(self) -> int:
        return len(self.pair)


class WithholdRelease:
    """Counts and withheld sums of every pair. State: ``count`` (P,), ``withheld`` (P, C).

    C columns are handled alike (say, steps and their squares). Pairs are dense indexes 0..P-1.
    """

    def __init__(self, pairs: int, columns: int = 1) -> None:
        self.count = np.zeros(pairs, dtype=np.int64)
        self.withheld = np.zeros((pairs, columns), dtype=np.int64)

    def append(self, pair: IntArray, value: IntArray) -> Elements:
        """Add samples in the given order; return the completed elements, sums of 1, 1, 2, 4, ...

        Samples of a pair. ``pair`` (T,) says whose each sample is, ``value`` (T,) or (T, C) what. The same
        elements come out however a stream is cut into batches. Private. Raises UsageError for pairs out of
        range.
        """
        pair = np.asarray(pair, dtype=np.int64)
        columns = np.asarray(value, dtype=np.int64)
        columns = columns[:, None] if columns.ndim == 1 else columns
        if len(pair) and not (int(pair.min()) >= 0 and int(pair.max()) < len(self.count)):
            raise UsageError("a sample is of no known pair", expected=f"pairs below {len(self.count)}")
        if columns.shape[1] != self.withheld.shape[1]:
            raise UsageError("values have another width than the state", expected=f"{self.withheld.shape[1]}")
        order = np.argsort(pair, kind="stable")
        ordered = pair[order]
        fresh = run_starts(ordered)
        first = np.flatnonzero(fresh)
        group = np.cumsum(fresh) - 1
        place = np.arange(len(ordered))
        number = self.count[ordered] + place - first[group] + 1
        running = np.concatenate(
            [np.zeros((1, columns.shape[1]), dtype=np.int64), np.cumsum(columns[order], axis=0)]
        )
        released = np.flatnonzero((number & (number - 1)) == 0)
        # an element holds what was withheld and all samples since the group began, or since the one before it
        again = np.concatenate([[False], group[released[1:]] == group[released[:-1]]])[: len(released)]
        previous = np.concatenate([[0], released[:-1] + 1])[: len(released)]
        since = np.where(again, previous, first[group[released]])
        carried = np.where(again[:, None], 0, self.withheld[ordered[released]])
        total = running[released + 1] - running[since] + carried

        rows = ordered[first]
        ends = np.append(first[1:], len(ordered))
        last = np.full(len(first), -1, dtype=np.int64)
        last[group[released]] = released
        emptied = last >= 0
        rest = running[ends] - running[np.where(emptied, last + 1, first)]
        self.withheld[rows] = rest + np.where(emptied[:, None], 0, self.withheld[rows])
        self.count[rows] += ends - first

        in_time = np.argsort(order[released], kind="stable")
        chosen = released[in_time]
        result = total[in_time]
        flat = result[:, 0] if np.ndim(value) == 1 else result
        return Elements(order[chosen], ordered[chosen], bit_length(number[chosen]) - 1, flat)


@dataclass(frozen=True)
class Arrivals:
    """A stream of T samples: sample t is from vehicle ``user[t]`` (0..users-1) with speed ``value[t]``.

    Speeds are whole steps, 0..``upper_steps``. ``users`` is the declared largest number of vehicles,
    ``samples`` the largest number of samples of a vehicle. Raises UsageError when the stream exceeds what was
    declared.
    """

    user: IntArray
    value: IntArray = field(repr=False)
    users: int
    samples: int
    upper_steps: int

    def __post_init__(self) -> None:
        fits = len(self.user) == len(self.value) and min(self.users, self.samples, self.upper_steps) >= 1
        if fits and len(self.user):
            fits = (
                int(self.user.min()) >= 0
                and int(self.user.max()) < self.users
                and int(self.value.min()) >= 0
                and int(self.value.max()) <= self.upper_steps
                and int(np.bincount(self.user).max()) <= self.samples
            )
        if not fits:
            steps, users, samples = self.upper_steps, self.users, self.samples
            raise UsageError(
                "a stream is not what was declared",
                expected=f"0..{steps} steps, at most {users} vehicles x {samples} samples",
            )

    def __len__(self) -> int:
        return len(self.user)

    @cached_property
    def rank(self) -> IntArray:
        """Which sample of its vehicle each sample is, 1, 2, ..., shape (T,)."""
        return rank_within(self.user) + 1

    @cached_property
    def elements(self) -> Elements:
        """The completed elements of the stream, sums of 1, 1, 2, 4, ... samples of one vehicle; private."""
        return WithholdRelease(self.users).append(self.user, self.value)

    def running_mean(self) -> FloatArray:
        """Return the exact mean of the first t samples for t = 1..T, in steps, (T,). Never published."""
        return np.asarray(np.cumsum(self.value) / np.arange(1, len(self) + 1))


class ArrivalOrder(StrEnum):
    """The four orders of the experiments."""

    ROUND_ROBIN = "round robin"
    CONTIGUOUS = "contiguous"
    RANDOM = "random"
    DOMINATING = "one dominating"


def arrival_order(order: ArrivalOrder, users: int, samples: int, source: NoiseSource) -> IntArray:
    """Return the vehicle of each sample of a stream, in order of arrival: ``samples`` of each of ``users``.

    DOMINATING: vehicle 0 sends all of its samples before any other comes; the others, in turn, send a
    sixteenth (at least one) each. RANDOM takes a uniform order from ``source``.
    """
    if order is ArrivalOrder.CONTIGUOUS:
        return np.repeat(np.arange(users), samples)
    if order is ArrivalOrder.DOMINATING:
        rest = np.tile(np.arange(1, users), max(1, samples // 16))
        return np.concatenate([np.zeros(samples, dtype=np.int64), rest])
    turns = np.tile(np.arange(users), samples)
    if order is ArrivalOrder.RANDOM:
        keys = source.uniform_below(np.full(len(turns), 2**60, dtype=np.int64))
        turns = turns[np.argsort(keys, kind="stable")]
    return turns


MEDIAN_SHARES = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Parts of epsilon that medians may get."""


@dataclass(frozen=True)
class LevelPlan:
    """What is decided before the first sample comes; one entry a level 0..L.

    ``users`` n and ``samples`` m: the declared most; ``upper_steps`` u. ``half_width`` D_l and ``width`` W_l
    in steps; ``counter_epsilon``; ``median_epsilon``, 0 where there is no median; ``arrays`` k_l and
    ``parts`` J_l of the medians; ``influence`` c.
    """

    users: int
    samples: int
    upper_steps: int
    half_width: IntArray
    width: IntArray
    counter_epsilon: FloatArray
    median_epsilon: FloatArray
    arrays: IntArray
    parts: IntArray
    influence: int

    @property
    def size(self) -> IntArray:
        """The number of samples in an element of each level, 1, 1, 2, 4, ..., shape (L + 1,)."""
        return level_size(np.arange(len(self.width)))

    @property
    def truncated(self) -> BoolArray:
        """Whether elements of each level are clipped to an interval around a centre, shape (L + 1,)."""
        return np.asarray(self.width < self.upper_steps * self.size)

    def scales(self, tree: Tree = BINARY) -> FloatArray:
        """Return the Laplace scale of each level's counter, in steps, rounded up, shape (L + 1,).

        It is the most that a vehicle moves an element, times the most nodes of ``tree`` that hold one, over
        the level's epsilon.
        """
        return laplace_scale(self.width * int(tree.nodes_per_element(self.users).max()), self.counter_epsilon)

    def median_scales(self) -> FloatArray:
        """Return the scale of each level's private median, an exponential mechanism, (L + 1,).

        0 where there is none.
        """
        needed = self.median_epsilon > 0
        epsilon = np.where(needed, self.median_epsilon, 1.0)
        return np.where(needed, choice_scale(np.full(len(self.width), self.influence), epsilon), 0.0)

    def loss(self, tree: Tree = BINARY) -> PureDP:
        """Return the epsilon that the whole stream costs a vehicle, rounded up: counters and medians added
        up.

        A vehicle has one element a level, which moves each node that holds it by at most the level's width.
        """
        price = int(tree.nodes_per_element(self.users).max())
        total = Fraction(0)
        for width, scale, median in zip(self.width, self.scales(tree), self.median_scales(), strict=True):
            total += Fraction(int(width) * price) / Fraction(float(scale))
            if median > 0:
                total += Fraction(2 * self.influence) / Fraction(float(median))
        return PureDP(-(-total.numerator * PICO // total.denominator))


def last_level(samples: int) -> int:
    """Return the last level for ``samples`` samples of a vehicle: floor(log2 samples)."""
    return int(bit_length(integer_between(1, 2**40, samples=samples))) - 1


def paper_plan(
    users: int,
    samples: int,
    upper_steps: int,
    epsilon: float,
    delta: float,
    *,
    counter_levels: int | None = None,
) -> LevelPlan:
    """Return the plan of levels of the paper's Algorithm 6, E18 corrected: a median for every level but 0.

    ``users`` and ``samples`` are the declared most vehicles and most samples of a vehicle; ``upper_steps`` is
    U/q. Half of ``epsilon`` is for the counters of the levels, half for the medians, in equal shares.
    ``counter_levels``: by how many the counters' half is divided; L + 1 unless an audit asks for the literal
    L, whose ``loss`` then exceeds ``epsilon``.
    """
    last = last_level(samples)
    half = positive(epsilon=epsilon) / 2
    counters = np.full(last + 1, (half if last else epsilon) / (counter_levels or last + 1))
    medians = np.where(np.arange(last + 1) > 0, half / max(last, 1), 0.0)
    return _planned(users, samples, upper_steps, delta, counters, medians, influence=2)


def best_plan(
    users: int, samples: int, upper_steps: int, epsilon: float, delta: float, *, aligned: bool = True
) -> LevelPlan:
    """Return the plan of levels with the least noise: medians only where they pay, budgets by W_l^(2/3).

    It minimises sum (W_l/eps_l)^2 for widths W_l. Truncation gains the more the larger an element is, so the
    levels with medians are the last ones: every first such level (or none) and every share of
    ``MEDIAN_SHARES`` is tried. Levels whose width does not fall, or whose median would wait for more than
    half of the vehicles, are no candidates.
    """
    last, influence = last_level(samples), 1 if aligned else 2
    level, total = np.arange(last + 1), positive(epsilon=epsilon)
    best = _shared(users, samples, upper_steps, delta, total, np.zeros(last + 1), influence)
    for first in range(1, last + 1):
        for share in MEDIAN_SHARES:
            medians = np.where(level >= first, total * share / (last + 1 - first), 0.0)
            plan = _shared(users, samples, upper_steps, delta, total * (1 - share), medians, influence)
            pays = bool(np.all(plan.truncated[first:])) and 2 * int(plan.arrays.max()) <= users
            if pays and _spread(plan) < _spread(best):
                best = plan
    return best


def prior_plan(
    users: int,
    samples: int,
    upper_steps: int,
    epsilon: float,
    delta: float,
    *,
    prior: bool = True,
    best_split: bool = False,
) -> LevelPlan:
    """Return the plan of levels of the paper's Algorithms 4 and 5: no medians, all of ``epsilon`` to the
    counters.

    With ``prior`` a centre is given from outside (paid for elsewhere) that is within u/sqrt(m) of the mean;
    without, nothing is truncated and W_l = u B_l.
    """
    last = last_level(samples)
    size = level_size(np.arange(last + 1))
    half_width = np.where(size > 0, size * upper_steps, 0)
    if prior:
        spread = _concentration(users, last, size, delta)
        half_width = np.ceil(upper_steps * (spread + size / np.sqrt(samples))).astype(np.int64)
        half_width[0] = upper_steps
    width = np.minimum(upper_steps * size, 2 * half_width)
    weight = width ** (2 / 3) if best_split else np.ones(last + 1)
    none = np.zeros(last + 1)
    counters = positive(epsilon=epsilon) * weight / weight.sum()
    zeros = none.astype(np.int64)
    return LevelPlan(users, samples, upper_steps, half_width, width, counters, none, zeros, zeros, 1)


def doubling_epsilon(epsilon: str | float | Fraction, epoch: int) -> PureDP:
    """Return the epsilon of epoch i = 1, 2, ...: 6 eps/(pi^2 i^2), rounded down; all together stay below eps.

    For an unknown number of users or samples: when a declared number is passed, the mechanism starts again
    with twice the number and this budget.
    """
    whole = PureDP.of(epsilon)
    square = integer_between(1, 10**6, epoch=epoch) ** 2
    # 6/pi^2 = 0.60792710185402...
    return PureDP(whole.pico * 607_927_101_854 // (10**12 * square))


def _concentration(users: int, last: int, size: IntArray, delta: float) -> FloatArray:
    """How far a sum of B_l samples strays from its expectation, in units of u, for all vehicles at once."""
    rare = in_range(0, 1, delta=delta) / 4
    return np.asarray(np.sqrt(size / 2 * np.log(2 * users * max(1, last) / rare)))


def _spread(plan: LevelPlan) -> float:
    """What the variance of all levels together is proportional to."""
    return float(((plan.width / plan.counter_epsilon) ** 2).sum())


def _shared(
    users: int,
    samples: int,
    upper_steps: int,
    delta: float,
    counters: float,
    medians: FloatArray,
    influence: int,
) -> LevelPlan:
    """The plan whose counters share ``counters`` by W_l^(2/3)."""
    plan = _planned(users, samples, upper_steps, delta, np.ones(len(medians)), medians, influence)
    weight = plan.width ** (2 / 3)
    return replace(plan, counter_epsilon=counters * weight / weight.sum())


def _planned(
    users: int,
    samples: int,
    upper_steps: int,
    delta: float,
    counters: FloatArray,
    medians: FloatArray,
    influence: int,
) -> LevelPlan:
    integer_between(1, 2**40, users=users)
    integer_between(1, 10**6, upper_steps=upper_steps)
    last = len(counters) - 1
    size = level_size(np.arange(last + 1))
    beta = in_range(0, 1, delta=delta) / (4 * max(1, last))
    has = medians > 0
    root = np.ceil(np.sqrt(size)).astype(np.int64)
    parts = np.where(has, root, 0)
    safe = np.where(has, medians, 1.0)
    arrays = np.where(has, np.ceil(8 * influence / safe * np.log(root / beta)), 0).astype(np.int64)
    accuracy = np.sqrt(np.log(2 * np.maximum(arrays, 1) / beta) / (2 * size)) + 1 / (2 * root)
    spread = _concentration(users, last, size, delta) + size * accuracy
    half_width = np.where(has, np.ceil(upper_steps * spread), upper_steps * size).astype(np.int64)
    width = np.minimum(upper_steps * size, 2 * half_width)
    return LevelPlan(
        users, samples, upper_steps, half_width, width, counters, medians, arrays, parts, influence
    )
