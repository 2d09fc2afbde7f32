"""Which parents are measured: those that make averages over parents less noisy, by public counts alone.

A parent and its n released children become one block of n + 1 items. Pulling the children out of the blocks
they lie in changes what vehicles pay, so a parent may cost everything noise: E, the error of all items over
their tolerance, is A/epsilon, A the largest load (``blocks.blocks``). Its own noise costs nothing: its half
width is theta times that of its children, theta the least with which no vehicle's load exceeds A,

    theta = max_l ((d + 1)/2) D_{P,l}/t / ( ((d + 1)/2) max_c D_{c,l}/t + (A - load_l)/k_l ),   d = n + 1,

k_l the number of measured parents that vehicle l visits: a vehicle that loses less than the heaviest pays
what is left in finer parents. D_P is a weighted mean of the D_c, so theta is at most 1.

For some caps on the growth of A, parents are taken in the order of what they gain by themselves while A stays
within the cap; those whose average would not gain are dropped again. Of all caps the one is taken with which
the geometric mean over all parents of the noise of their averages falls most (those not measured grow with
A); none at all is one of the choices. Noise is compared by standard deviations: that of the consistent
parent (``family``) against that of the weighted mean of its children in plain blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.blocks.blocks import Blocks
from trafficdp.mechanisms.blocks.items import Items
from trafficdp.mechanisms.blocks.partition import loads
from trafficdp.mechanisms.consistent.parents import Parents, h3_families
from trafficdp.model import Counts

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
CAPS = (1.0, 1.05, 1.15)
"""How far A may grow."""
HAIR = 1e-9


@dataclass(frozen=True)
class Measured:
    """``blocks`` of the items of the bins, then of the P parents; ``parents`` says whose they are.

    ``gain`` (P,) is the standard deviation of the average over each measured parent, over what it is in plain
    blocks at the same epsilon; ``growth`` that of A; ``families`` the number of parents of several bins.
    """

    blocks: Blocks
    parents: Parents
    gain: FloatArray
    growth: float
    families: int


def measure_parents(plain: Blocks, counts: Counts, upper: float, *, means: bool = True) -> Measured:
    """Return the parents to measure beside ``plain``, the blocks of all bins of ``counts``.

    Parents are means: none are measured where the items of ``plain`` are not (``means``).
    """
    search = _Search(plain, counts, upper, means)
    best, value = search.evaluated([]), 0.0
    for cap in CAPS if search.families else ():
        found = search.evaluated(search.greedy(cap))
        if found.value < value * (1 + HAIR) - HAIR:
            best, value = found, found.value
    return search.result(best)


@dataclass(frozen=True)
class _Choice:
    """Chosen families; each one's theta and ratio of noise; A over that of plain blocks; the objective."""

    chosen: list[int]
    theta: FloatArray
    ratio: FloatArray
    growth: float
    value: float


class _Search:
    def __init__(self, plain: Blocks, counts: Counts, upper: float, means: bool) -> None:
        self._plain, self._counts = plain, counts
        # the means of the bins come first, where they are released
        family = h3_families(counts) if means else np.full(counts.bins, -1, dtype=np.int64)
        self._tolerance = float(plain.items.tolerance[0])
        self._all = int(family.max(initial=-1)) + 1
        size = np.bincount(family[family >= 0], minlength=self._all)
        several = np.flatnonzero(size > 1)
        renumber = np.full(self._all + 1, -1, dtype=np.int64)
        renumber[several] = np.arange(len(several))
        self._parents = Parents(renumber[family])
        self.families = len(several)
        self._members = np.split(
            self._parents.children[np.argsort(self._parents.of[self._parents.children], kind="stable")],
            np.cumsum(size[several])[:-1],
        )
        self._unit = upper / self._tolerance

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """Of every family: where its users begin; users, D_P/t of each, and the largest D_c/t."""
        counts, parents = self._counts, self._parents
        parent, user, place = parents.pairs(counts)
        samples = counts.samples_per_bin
        cost = self._unit * parents.sums(counts, counts.count) / parents.records(samples)[parent]
        below = parents.of[counts.bin_index] >= 0
        most = np.zeros(len(parent))
        np.maximum.at(most, place, self._unit * (counts.count / samples[counts.bin_index])[below])
        start = np.searchsorted(parent, np.arange(parents.number + 1))
        return start.astype(np.int64), user, cost, most

    @cached_property
    def _plain_spread(self) -> FloatArray:
        """Standard deviation over E of the average over each family in plain blocks."""
        d = self._plain.size[self._parents.children]
        variance = 4 * (d + 2) / (3 * (d + 1))
        weight = self._parents.weights(self._counts.samples_per_bin)
        return np.asarray(np.sqrt(self._parents.total(weight**2 * variance)))

    @cached_property
    def _squares(self) -> FloatArray:
        """sum w_c^2 of every family."""
        return self._parents.total(self._parents.weights(self._counts.samples_per_bin) ** 2)

    @cached_property
    def _order(self) -> list[int]:
        """Families by what each gains by itself."""
        alone = _Grouping(self._plain)
        score = np.empty(self.families)
        for family in range(self.families):
            users, change, _ = alone.pulled(self._members[family])
            load = self._plain.load.copy()
            load[users] += change
            score[family] = self._ratios([family], load)[1][0]
        return [int(family) for family in np.argsort(score, kind="stable")]

    def greedy(self, cap: float) -> list[int]:
        """Return the families that A has room for."""
        grouping, chosen = _Grouping(self._plain), []
        most = self._plain.factor * cap * (1 + HAIR)
        for family in self._order:
            members = self._members[family]
            users, change, blocks = grouping.pulled(members)
            if float((grouping.load[users] + change).max(initial=0.0)) <= most:
                grouping.pull(members, users, change, blocks)
                chosen.append(family)
        return chosen

    def evaluated(self, chosen: list[int]) -> _Choice:
        """Return the choice with families dropped until each of them gains."""
        while True:
            load = loads(*self._extended(chosen, np.ones(len(chosen))))
            growth = float(load.max(initial=0.0)) / self._plain.factor if self._plain.factor else 1.0
            theta, ratio = self._ratios(chosen, load)
            if not chosen or float(ratio.max()) < 1:
                break
            worst = int(np.argmax(ratio))
            chosen = [*chosen[:worst], *chosen[worst + 1 :]]
        silent = max(self._all - len(chosen), 0)
        value = float(np.log(ratio).sum() + silent * np.log(growth)) / max(self._all, 1)
        return _Choice(chosen, theta, ratio, growth, value)

    def _ratios(self, chosen: list[int], load: FloatArray) -> tuple[FloatArray, FloatArray]:
        """theta and ratio of every chosen family at these loads, which hold the blocks of families."""
        start, user, cost, most = self._pairs
        parts = [np.arange(start[family], start[family + 1]) for family in chosen]
        visits = np.zeros(len(load))
        for part in parts:
            visits[user[part]] += 1
        largest, theta, ratio = float(load.max(initial=0.0)), np.ones(len(chosen)), np.ones(len(chosen))
        for place, (family, part) in enumerate(zip(chosen, parts, strict=True)):
            half = (len(self._members[family]) + 2) / 2
            room = half * most[part] + np.maximum(largest - load[user[part]], 0.0) / visits[user[part]]
            theta[place] = float((half * cost[part] / room).max())
            # at E = A/epsilon: half widths 2 A/(d + 1), variances (d + 1)(d + 2)/3 times their squares
            d = len(self._members[family]) + 1
            squares = self._squares[family]
            final = squares * theta[place] ** 2 / (squares + theta[place] ** 2)
            spread = largest * np.sqrt(4 * (d + 2) / (3 * (d + 1)) * final)
            ratio[place] = spread / (self._plain.factor * self._plain_spread[family])
        return theta, ratio

    def _extended(self, chosen: list[int], theta: FloatArray) -> tuple[Items, IntArray]:
        """The items and blocks with the chosen families as blocks of their own and their parents in them."""
        items, block = self._plain.items, self._plain.block.copy()
        start, user, cost, _ = self._pairs if chosen else (np.zeros(1, dtype=np.int64), *[np.zeros(0)] * 3)
        free = int(block.max(initial=-1)) + 1
        for place, family in enumerate(chosen):
            block[self._members[family]] = free + place
        block = np.concatenate([block, free + np.arange(len(chosen))])
        parts = [np.arange(start[family], start[family + 1]) for family in chosen]
        entries = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        length = np.array([len(part) for part in parts], dtype=np.int64)
        joined = Items(
            np.concatenate([items.tolerance, theta * self._tolerance]),
            np.concatenate([items.start, items.start[-1] + np.cumsum(length)]),
            np.concatenate([items.user, user[entries].astype(np.int64)]),
            np.concatenate([items.cost, cost[entries] / np.repeat(theta, length)]),
            items.users,
        )
        first, number = np.unique(block, return_index=True, return_inverse=True)[1:]
        renumber = np.empty(len(first), dtype=np.int64)
        renumber[np.argsort(first, kind="stable")] = np.arange(len(first))
        return joined, renumber[number.ravel()]

    def result(self, best: _Choice) -> Measured:
        items, block = self._extended(best.chosen, best.theta)
        of = np.full(self._counts.bins, -1, dtype=np.int64)
        for place, family in enumerate(best.chosen):
            of[self._members[family]] = place
        blocks = Blocks(items, block, loads(items, block), self._plain.lower_bound)
        return Measured(blocks, Parents(of), best.ratio, best.growth, self.families)


class _Grouping:
    """A partition from which families are pulled into blocks of their own, with every user's load."""

    def __init__(self, plain: Blocks) -> None:
        self._items = plain.items
        self._block = plain.block.copy()
        self.load = plain.load.copy()
        order = np.argsort(plain.block, kind="stable")
        self._members = np.split(order, np.cumsum(np.bincount(plain.block))[:-1])
        # with one more for the parent in a family's block
        self._extra = [0] * len(self._members)

    def pulled(self, members: IntArray) -> tuple[IntArray, FloatArray, IntArray]:
        """Return users, the changes of their loads, and the blocks that are left, if ``members`` go."""
        items = self._items
        blocks = np.unique(self._block[members])
        involved = np.concatenate([self._members[block] for block in blocks])
        length = items.start[involved + 1] - items.start[involved]
        entry = np.repeat(items.start[involved] - (np.cumsum(length) - length), length) + np.arange(
            length.sum()
        )
        owner = np.repeat(involved, length)
        users, user = np.unique(items.user[entry], return_inverse=True)
        user, cost = user.ravel(), items.cost[entry]
        before = np.searchsorted(blocks, self._block[owner])
        extra = np.array([self._extra[block] for block in blocks])
        size = np.bincount(np.searchsorted(blocks, self._block[involved])) + extra
        paid = _paid(before, user, cost, size, len(users))
        goes = np.isin(owner, members)
        left = size - np.bincount(np.searchsorted(blocks, self._block[members]), minlength=len(blocks))
        after = np.where(goes, len(blocks), before)
        changed = _paid(after, user, cost, np.append(left, len(members) + 1), len(users))
        return users, changed - paid, blocks

    def pull(self, members: IntArray, users: IntArray, change: FloatArray, blocks: IntArray) -> None:
        """Carry out what ``pulled`` said."""
        for block in blocks.tolist():
            self._members[block] = np.setdiff1d(self._members[block], members, assume_unique=True)
        self._block[members] = len(self._members)
        self._members.append(members)
        self._extra.append(1)
        self.load[users] += change


def _paid(block: IntArray, user: IntArray, cost: FloatArray, size: IntArray, users: int) -> FloatArray:
    """What each user pays: ((d + 1)/2) times its largest cost in every block."""
    key = block * users + user
    order = np.lexsort((cost, key))
    last = np.append(key[order][1:] != key[order][:-1], True)
    top = order[last]
    paid = cost[top] * (size[block[top]] + 1) / 2
    return np.asarray(np.bincount(user[top], weights=paid, minlength=users), dtype=np.float64)
