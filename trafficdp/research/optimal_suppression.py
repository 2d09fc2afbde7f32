"""The least K that any suppression reaches under Clip-User's ceiling, as nearly as time allows, with proof.

A mixed-integer program is solved as far as time allows; its linear relaxation is the proof: ceil(LP) is a
lower bound on the K of every suppression. In general the problem is NP-hard (PARTITION).

# The program

Variables: z[p] in {0, 1}, pair p is suppressed; c[g, v] in {0, 1}, the kept counts of bin g are at most v
(v runs over the distinct counts of the bin at which the ceiling can be met at all, c rises along them
and u[g, v] = c[g, v] - c[g, previous v] marks the cap that is chosen); K.

    minimise K subject to
    c[g, v] >= c[g, previous v],  c[g, last v] = 1           one cap a bin
    z[p] >= c[g(p), largest v < m[p]]                        users above the cap go
    sum_p in g m[p] z[p] <= sum_v u[g, v] room[g, v]         the bin stays below the ceiling
    sum_p of l z[p] + K >= G_l                               every user is in at most K bins

room[g, v] is the most samples bin g may lose with kept counts at most v: the largest D with
error(D, v) <= E, found exactly by bisection on whole D (floor(N x),
x = 2(e - s)/((1 + e) + sqrt((1 - e)^2 + 4 s)), e = E/U, s = v/(eps N)). A bin is never emptied:
D <= N - v (erratum E11).

# The exchanges

Fewer bins a user by exchange: augmenting paths over the suppressions that a fixed cap a bin allows.

With caps fixed, bin g must lose the users with more than cap_g samples and may lose others while it loses
at most room_g samples in all: a matching of users to bins with weights. To take user l out of one more
bin when every bin is full, another user, who can afford that bin, goes back into it; or one who
cannot, but can be taken out of a third bin in turn, and so on: breadth-first, shortest exchange first.
Every step keeps every bin below its ceiling, so every state is a valid suppression.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from trafficdp.arrays import BoolArray, FloatArray, IndexArray, IntArray
from trafficdp.errors import positive
from trafficdp.mechanisms.blocks.partition import in_canonical_order
from trafficdp.mechanisms.clip_user import Ceiling, Suppression, ceiling, clip_user
from trafficdp.model import ContributionBound, Counts

TOLERANCE = 1e-6
"""How far HiGHS may be off a whole number; bounds are rounded with it, never past it."""


@dataclass(frozen=True)
class Certified:
    """A suppression of pairs, and the proof that every one leaves some user ``lower_bound`` bins or more.

    ``relaxation`` is the optimum of the linear program.
    """

    suppression: Suppression
    lower_bound: int
    relaxation: float

    @property
    def optimal(self) -> bool:
        """Whether no other suppression leaves each user fewer bins: ``lower_bound`` is attained."""
        return self.suppression.bins_per_user == self.lower_bound


def suppress_to_fewest_bins(
    counts: Counts,
    bound: ContributionBound,
    epsilon: float,
    *,
    seconds: float = 30.0,
    relaxation_seconds: float = 60.0,
) -> Certified:
    """Return which pairs to keep so that the user left in most bins is in as few as possible, with a proof.

    K, that number of bins, is never above Clip-User's, and the error of every bin stays below Clip-User's
    ceiling.

    The LP is rounded under the caps it is surest of and repaired by exchanges (``exchange``); then a MILP
    under those caps, then the whole MILP, each with ``seconds``, while the bound is not met. Without the LP
    (``relaxation_seconds`` do not suffice) exchanges improve Clip-User's answer, unproved. ``relaxation`` is
    the value of the LP; ``lower_bound`` the better of ceil(LP) and the MILP's own bound.
    """
    positive(seconds=seconds)
    positive(relaxation_seconds=relaxation_seconds)
    ordered = in_canonical_order(counts, bound)
    found = _certified(ordered.counts, bound, epsilon, seconds, relaxation_seconds)
    suppression = replace(found.suppression, kept=ordered.to_original_order(found.suppression.kept))
    return replace(found, suppression=suppression)


def _certified(
    counts: Counts,
    bound: ContributionBound,
    epsilon: float,
    seconds: float,
    relaxation_seconds: float,
) -> Certified:
    limit = ceiling(counts, bound, epsilon)
    best = clip_user(counts, bound, epsilon)
    problem = Program.of(counts, limit)
    relaxed = problem.relax(relaxation_seconds)
    if relaxed is None:
        return Certified(_exchanged(counts, limit, best), 1 if counts.bins else 0, 0.0)
    lower = max(1, math.ceil(relaxed.value - TOLERANCE))
    if best.bins_per_user > lower:
        guide, point = problem.surest_caps(counts, relaxed, relaxation_seconds)
        best = _better(counts, limit, best, guide.rounded(counts, point, lower))
        if best.bins_per_user > lower:
            found = problem.solve(seconds, at_most=best.bins_per_user, caps=guide)
            best = _better(counts, limit, best, found)
    if best.bins_per_user > lower:
        exact = problem.solve(seconds, at_most=best.bins_per_user)
        lower = max(lower, math.ceil(exact.bound - TOLERANCE)) if exact is not None else lower
        best = _better(counts, limit, best, exact)
    return Certified(best, min(lower, best.bins_per_user), relaxed.value)


def stays_within(counts: Counts, limit: Ceiling, kept: BoolArray) -> bool:
    """Return whether every bin keeps records and an error of at most ``limit`` with the pairs ``kept`` (P,).

    From public counts alone.
    """
    dropped = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(dropped, counts.bin_index, np.where(kept, 0, counts.count))
    largest = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(largest, counts.bin_index, np.where(kept, counts.count, 0))
    samples = counts.samples_per_bin
    excess = limit.relative_error(dropped, samples, largest)
    return bool(np.all(dropped < samples) and np.all(excess <= 1 + 1e-12))


def _exchanged(counts: Counts, limit: Ceiling, start: Suppression) -> Suppression:
    """Lower K one by one by exchanges, under the caps that ``start`` keeps."""
    cap = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(cap, counts.bin_index[start.kept], counts.count[start.kept])
    space = droppable_records(limit, counts.samples_per_bin, cap)
    while True:
        kept = exchange(counts, cap, space, start.kept, start.bins_per_user - 1)
        left = int(np.bincount(counts.user_index[kept], minlength=counts.users).max(initial=0))
        if left >= start.bins_per_user or not stays_within(counts, limit, kept):
            return start
        start = Suppression(kept, left)


def _better(counts: Counts, limit: Ceiling, best: Suppression, found: Solution | None) -> Suppression:
    """Return the better of ``best`` and what was found, if that really stays below the ceiling."""
    if found is None or not stays_within(counts, limit, found.kept):
        return best
    left = int(np.bincount(counts.user_index[found.kept], minlength=counts.users).max(initial=0))
    return Suppression(found.kept, left) if left < best.bins_per_user else best


LIKELY = (0.7, 0.9, 0.99)
"""A cap is taken that the relaxation gives this much of."""


def droppable_records(limit: Ceiling, samples: IntArray, cap: IntArray) -> IntArray:
    """Return for each bin the largest number of records that may be dropped before its error exceeds
    ``limit``.

    ``samples`` is the bin's number of records and ``cap`` its largest kept count, same shape; -1 where not
    even dropping none fits.
    """
    low = np.full(samples.shape, -1, dtype=np.int64)
    high = samples - cap
    for _ in range(int(np.max(samples, initial=1)).bit_length() + 1):
        middle = (low + high + 1) // 2
        fits = limit.relative_error(np.maximum(middle, 0), samples, cap) <= 1 + 1e-12
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        high = np.maximum(high, low)
    return low


@dataclass(frozen=True)
class Solution:
    """A point of the program: ``value`` is its K, ``kept`` (P,) the pairs that stay, ``point`` all unknowns.

    K is the most bins that a user is left in. ``bound``: no suppression has a smaller K, under the same caps
    where these were given. Both numbers are 0 where nothing is said.
    """

    value: float
    bound: float
    kept: BoolArray
    point: FloatArray


@dataclass(frozen=True)
class Caps:
    """For every bin the largest count that may stay and the most samples it may lose then, both shape (G,).

    ``choice`` are the program's columns c, one a (bin, cap): 0 or 1. From public counts.
    """

    cap: IntArray
    room: IntArray
    choice: FloatArray

    def rounded(self, counts: Counts, relaxed: Solution, target: int) -> Solution:
        """Return a whole-number suppression near the LP solution ``relaxed`` under these caps.

        The surest pairs are dropped first; exchanges then bring users down to ``target`` bins, or as near as
        they get. Only ``kept`` says what was found: ``value`` and ``bound`` are 0, ``point`` is that of
        ``relaxed``.
        """
        forced = counts.count > self.cap[counts.bin_index]
        suppressed = relaxed.point[: counts.pairs]
        slack = self.room.copy()
        np.subtract.at(slack, counts.bin_index[forced], counts.count[forced])
        kept = ~forced
        likely = np.flatnonzero(kept & (suppressed > 0.5))
        for pair in likely[np.argsort(-suppressed[likely], kind="stable")].tolist():
            if counts.count[pair] <= slack[counts.bin_index[pair]]:
                slack[counts.bin_index[pair]] -= counts.count[pair]
                kept[pair] = False
        kept = exchange(counts, self.cap, self.room, kept, target)
        return Solution(0.0, 0.0, kept, relaxed.point)


@dataclass(frozen=True)
class Program:
    """The program in HiGHS's form: columns z (one a pair), c (one a bin and cap; ``certain`` are 1), K.

    ``bins``, ``values`` and ``space`` (one each a column c) are the bin, the cap v and room[g, v].
    """

    pairs: int
    columns: int
    certain: IntArray
    matrix: sparse.csr_matrix
    low: FloatArray
    bins: IntArray
    values: IntArray
    space: IntArray

    @classmethod
    def of(cls, counts: Counts, limit: Ceiling) -> Program:
        """Return the integer program: which pairs of ``counts`` to suppress so that K is least.

        K is the most bins that a user is left in, ``limit`` the error that no bin may exceed. The unknowns
        are z, c and K, and each row of ``matrix`` times these is at least ``low``. From public counts;
        nothing is solved yet.
        """
        keys = np.unique(np.column_stack([counts.bin_index, counts.count]), axis=0)
        bins, caps = keys[:, 0], keys[:, 1]
        space = droppable_records(limit, counts.samples_per_bin[bins], caps)
        bins, caps, space = bins[space >= 0], caps[space >= 0], space[space >= 0]
        pairs, choices, k = counts.pairs, len(bins), counts.pairs + len(bins)
        every, chain = np.arange(pairs), pairs + np.arange(choices)
        has_next = np.flatnonzero(bins[1:] == bins[:-1])
        last = np.setdiff1d(np.arange(choices), has_next)
        above = np.flatnonzero(_rank(bins, caps, counts) > np.searchsorted(bins, counts.bin_index))
        below = pairs + _rank(bins, caps, counts)[above] - 1
        # sum_v room_v (c_v - c_before) = sum_v c_v (room_v - room_next)
        gain = space.copy()
        gain[has_next] -= space[has_next + 1]
        g, users = counts.bins, counts.users
        blocks = [
            _block(len(has_next), k + 1, [_row(chain[has_next + 1], 1.0), _row(chain[has_next], -1.0)]),
            _block(len(above), k + 1, [_row(above, 1.0), _row(below, -1.0)]),
            _block(g, k + 1, [(counts.bin_index, every, -counts.count), (bins, chain, gain)]),
            _block(users, k + 1, [(counts.user_index, every, 1.0), _row(np.full(users, k), 1.0)]),
        ]
        low = np.concatenate([np.zeros(len(has_next) + len(above) + g), counts.bins_per_user])
        matrix = sparse.csr_matrix(sparse.vstack(blocks))
        return cls(pairs, k + 1, chain[last], matrix, low.astype(np.float64), bins, caps, space)

    def relax(self, seconds: float, caps: Caps | None = None) -> Solution | None:
        """Return the least K, the most bins a user is left in, and its point when unknowns need not be whole.

        ``caps`` fixes each bin's largest kept count; None leaves it free. K is in ``value`` and ``bound``, a
        lower bound of every whole K under the same caps. None if ``seconds`` do not suffice.
        """
        from scipy.optimize import linprog

        cost, lower, upper = self._bounds(caps)
        solver: Any = linprog
        result = solver(
            cost,
            A_ub=-self.matrix,
            b_ub=-self.low,
            bounds=np.column_stack([lower, upper]),
            method="highs-ipm",
            options={"time_limit": seconds},
        )
        if result.status != 0:
            return None
        point = np.asarray(result.x, dtype=np.float64)
        return Solution(float(result.fun), float(result.fun), point[: self.pairs] < 0.5, point)

    def surest_caps(self, counts: Counts, relaxed: Solution, seconds: float) -> tuple[Caps, Solution]:
        """Return caps of kept counts near the LP solution ``relaxed``, and the LP solution under these caps.

        Of several roundings that whose own LP has the least K; ``seconds`` is the time for each. K is
        infinite where no LP was solved in time.
        """
        options = []
        for likely in LIKELY:
            caps = self.caps(counts, relaxed, likely)
            options.append((caps, self.relax(seconds, caps) or replace(relaxed, value=math.inf)))
        return min(options, key=lambda option: option[1].value)

    def caps(self, counts: Counts, relaxed: Solution, likely: float) -> Caps:
        """Return for every bin the least cap of kept counts to which ``relaxed`` gives more than ``likely``.

        That is a share from 0 to 1. Only caps whose forced drops the bin's error allows. From public counts.
        """
        chosen = relaxed.point[self.pairs : -1] > likely
        chosen[self.certain - self.pairs] = True
        chosen &= self._samples_above(counts) <= self.space
        # c rises along the caps of a bin: the first that is chosen
        first = np.full(counts.bins, len(self.bins), dtype=np.int64)
        np.minimum.at(first, self.bins[chosen], np.flatnonzero(chosen))
        choice = (np.arange(len(self.bins)) >= first[self.bins]).astype(np.float64)
        return Caps(self.values[first], self.space[first], choice)

    def solve(self, seconds: float, *, at_most: int, caps: Caps | None = None) -> Solution | None:
        """Return the suppression with the least K found in ``seconds``, K the most bins of a user.

        None if none is found. K is at most ``at_most``. ``caps`` fixes each bin's largest kept count; None
        leaves it free. The result's ``bound`` is a proven lower bound of K, 0 where ``caps`` are given or the
        solver proved none. From public counts.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        cost, lower, upper = self._bounds(caps)
        upper[-1] = at_most
        result = milp(
            cost,
            integrality=np.ones(self.columns, dtype=np.int64),
            bounds=Bounds(lower, upper),
            constraints=LinearConstraint(self.matrix, self.low, np.inf),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        if result.x is None:
            return None
        point = np.asarray(result.x, dtype=np.float64)
        dual = getattr(result, "mip_dual_bound", None)
        # under given caps the solver proves nothing about others
        proved = 0.0 if caps is not None or dual is None else float(dual)
        return Solution(float(result.fun), proved, point[: self.pairs] < 0.5, point)

    def _bounds(self, caps: Caps | None) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Cost, lower and upper bounds of the columns; with ``caps`` given, c is fixed."""
        cost, lower, upper = np.zeros(self.columns), np.zeros(self.columns), np.ones(self.columns)
        cost[-1], upper[-1] = 1.0, np.inf
        lower[self.certain] = 1.0
        if caps is not None:
            lower[self.pairs : -1] = upper[self.pairs : -1] = caps.choice
        return cost, lower, upper

    def _samples_above(self, counts: Counts) -> IntArray:
        """For every (bin, cap), the samples of users above the cap."""
        order = np.lexsort((counts.count, counts.bin_index))
        width = int(max(self.values.max(initial=0), counts.count.max(initial=0))) + 1
        key = (counts.bin_index * width + counts.count)[order]
        upto = np.concatenate([[0], np.cumsum(counts.count[order])])
        at = np.searchsorted(key, self.bins * width + self.values, side="right")
        end = np.searchsorted(key, (self.bins + 1) * width)
        return np.asarray((upto[end] - upto[at]).astype(np.int64))


def _rank(bins: IntArray, caps: IntArray, counts: Counts) -> IntArray:
    """For every pair, the position of the first (bin, cap) with cap >= its count."""
    width = int(max(caps.max(initial=0), counts.count.max(initial=0))) + 1
    return np.searchsorted(bins * width + caps, counts.bin_index * width + counts.count)


def _row(column: IntArray, value: float) -> tuple[IntArray, IntArray, float]:
    """One entry in each row, in order."""
    return np.arange(len(column)), column, value


def _block(
    rows: int, columns: int, parts: Sequence[tuple[IndexArray, IntArray, float | IntArray]]
) -> sparse.csr_matrix:
    row = np.concatenate([part[0] for part in parts])
    column = np.concatenate([part[1] for part in parts])
    value = np.concatenate([np.broadcast_to(part[2], part[0].shape).astype(np.float64) for part in parts])
    return sparse.csr_matrix((value, (row, column)), shape=(rows, columns))


def exchange(counts: Counts, cap: IntArray, room: IntArray, kept: BoolArray, target: int) -> BoolArray:
    """Return a suppression whose most bins of a user are as near to ``target`` as exchanges get, a mask (P,).

    ``kept`` (P,) must obey ``cap`` and ``room`` (G,): no kept count above the cap, no more dropped samples
    than the room. Users above the target are taken out of bins while there is an exchange; where none is left
    the target rises by one, until it is met. Deterministic.
    """
    search = _Search(counts, cap, room, kept)
    while True:
        over = np.flatnonzero(search.left > target)
        if not len(over):
            return search.kept
        for user in over[np.argsort(-search.left[over], kind="stable")].tolist():
            while search.left[user] > target and search.take_out(user, target):
                pass
        target += 1


class _Search:
    def __init__(self, counts: Counts, cap: IntArray, room: IntArray, kept: BoolArray) -> None:
        self._bin, self._user, self._count = counts.bin_index, counts.user_index, counts.count
        self.kept = kept.copy()
        self._forced = self._count > cap[self._bin]
        dropped = np.bincount(self._bin[~kept], self._count[~kept], counts.bins)
        self._slack = room - dropped.astype(np.int64)
        self.left = np.bincount(self._user[kept], minlength=counts.users).astype(np.int64)
        self._order = np.argsort(self._user, kind="stable")
        self._ends = np.concatenate([[0], np.cumsum(counts.bins_per_user)])
        self._starts = np.searchsorted(self._bin, np.arange(counts.bins + 1))

    def take_out(self, user: int, target: int) -> bool:
        """Drop ``user`` from one more bin, by the shortest chain of exchanges.

        Return False when none is found. No bin is used twice on a way, so that what each exchange needs is
        still there when it is made.
        """
        # a user reached: the pair that is dropped for it, and its own that comes back
        parent: dict[int, tuple[int, int]] = {user: (-1, -1)}
        used: set[int] = set()
        queue = deque([user])
        while queue:
            current = queue.popleft()
            pairs = self._order[self._ends[current] : self._ends[current + 1]]
            pairs = pairs[self.kept[pairs]]
            need = self._count[pairs] - self._slack[self._bin[pairs]]
            way = self._bins_on_the_way(current, parent)
            for pair in pairs[need <= 0].tolist():
                if int(self._bin[pair]) not in way:
                    self._flip(pair, kept=False)
                    self._carry_on(current, parent)
                    return True
            for pair, short in zip(pairs.tolist(), need.tolist(), strict=True):
                if int(self._bin[pair]) in used or short <= 0:
                    continue
                used.add(int(self._bin[pair]))
                back = self._may_return(pair, short)
                owners = self._user[back]
                can = np.flatnonzero(self.left[owners] < target)
                if len(can):
                    self._swap(pair, int(back[can[0]]))
                    self._carry_on(current, parent)
                    return True
                for pair_back, owner in zip(back.tolist(), owners.tolist(), strict=True):
                    if owner not in parent:
                        parent[owner] = (pair, pair_back)
                        queue.append(owner)
        return False

    def _may_return(self, pair: int, short: int) -> IntArray:
        """Dropped pairs of the same bin, under its cap, that make room for ``short`` samples."""
        start, end = self._starts[self._bin[pair]], self._starts[self._bin[pair] + 1]
        free = ~self.kept[start:end] & ~self._forced[start:end] & (self._count[start:end] >= short)
        return np.asarray(np.flatnonzero(free) + start)

    def _bins_on_the_way(self, user: int, parent: dict[int, tuple[int, int]]) -> set[int]:
        bins = set()
        while (pair := parent[user][0]) >= 0:
            bins.add(int(self._bin[pair]))
            user = int(self._user[pair])
        return bins

    def _carry_on(self, user: int, parent: dict[int, tuple[int, int]]) -> None:
        """Walk back: ``user`` was reached by going back into a bin for the drop of the one before."""
        while True:
            pair, back = parent[user]
            if pair < 0:
                return
            self._swap(pair, back)
            user = int(self._user[pair])

    def _swap(self, pair: int, back: int) -> None:
        self._flip(back, kept=True)
        self._flip(pair, kept=False)

    def _flip(self, pair: int, *, kept: bool) -> None:
        self.kept[pair] = kept
        sign = 1 if kept else -1
        self.left[self._user[pair]] += sign
        self._slack[self._bin[pair]] += sign * self._count[pair]
