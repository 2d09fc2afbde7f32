"""The program whose solution is the least K of any suppression under Clip-User's ceiling.

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
D <= N - v (erratum E11). In general NP-hard (PARTITION); ceil(LP) is a lower bound on every solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from trafficdp.mechanisms.clip_user.clip_user import Ceiling
from trafficdp.model import Counts
from trafficdp.planner.compare.local_search import exchange

IntArray = npt.NDArray[np.int64]
LIKELY = (0.7, 0.9, 0.99)
"""A cap is taken that the relaxation gives this much of."""


def room(limit: Ceiling, samples: IntArray, cap: IntArray) -> IntArray:
    """Return the most samples D that bins with kept counts at most ``cap`` may lose; -1 where none."""
    low = np.full(samples.shape, -1, dtype=np.int64)
    high = samples - cap
    for _ in range(int(np.max(samples, initial=1)).bit_length() + 1):
        middle = (low + high + 1) // 2
        fits = limit.excess(np.maximum(middle, 0), samples, cap) <= 1 + 1e-12
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        high = np.maximum(high, low)
    return low


@dataclass(frozen=True)
class Solution:
    """``bound``: no suppression has fewer bins a user (0: nothing is said). ``point``: the variables."""

    value: float
    bound: float
    kept: npt.NDArray[np.bool_]
    point: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Caps:
    """One cap a bin and what the bin may lose under it, shape (G,); ``choice`` are the columns c."""

    cap: IntArray
    room: IntArray
    choice: npt.NDArray[np.float64]

    def rounded(self, counts: Counts, relaxed: Solution, target: int) -> Solution:
        """Round the relaxation under these caps, the surest first, and repair it by exchanges."""
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
    low: npt.NDArray[np.float64]
    bins: IntArray
    values: IntArray
    space: IntArray

    @classmethod
    def of(cls, counts: Counts, limit: Ceiling) -> Program:
        """Build the program; each row reads ``low <= matrix @ x``."""
        keys = np.unique(np.column_stack([counts.bin_index, counts.count]), axis=0)
        bins, caps = keys[:, 0], keys[:, 1]
        space = room(limit, counts.samples_per_bin[bins], caps)
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
        """Return the optimum of the LP, with given caps or any; None when ``seconds`` do not suffice."""
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

    def guide(self, counts: Counts, relaxed: Solution, seconds: float) -> tuple[Caps, Solution]:
        """Return the caps, of those that the relaxation is surest of, whose own relaxation is least."""
        options = []
        for likely in LIKELY:
            caps = self.caps(counts, relaxed, likely)
            options.append((caps, self.relax(seconds, caps) or replace(relaxed, value=math.inf)))
        return min(options, key=lambda option: option[1].value)

    def caps(self, counts: Counts, relaxed: Solution, likely: float) -> Caps:
        """Return for every bin the least v with c[g, v] > ``likely`` whose forced drops fit its room."""
        chosen = relaxed.point[self.pairs : -1] > likely
        chosen[self.certain - self.pairs] = True
        chosen &= self._samples_above(counts) <= self.space
        # c rises along the caps of a bin: the first that is chosen
        first = np.full(counts.bins, len(self.bins), dtype=np.int64)
        np.minimum.at(first, self.bins[chosen], np.flatnonzero(chosen))
        choice = (np.arange(len(self.bins)) >= first[self.bins]).astype(np.float64)
        return Caps(self.values[first], self.space[first], choice)

    def solve(self, seconds: float, *, at_most: int, caps: Caps | None = None) -> Solution | None:
        """Return the best suppression found in time, with given caps or any; None when there is none."""
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

    def _bounds(
        self, caps: Caps | None
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
        above: IntArray = (upto[end] - upto[at]).astype(np.int64)
        return above


def _rank(bins: IntArray, caps: IntArray, counts: Counts) -> IntArray:
    """For every pair, the position of the first (bin, cap) with cap >= its count."""
    width = int(max(caps.max(initial=0), counts.count.max(initial=0))) + 1
    ranks: IntArray = np.searchsorted(bins * width + caps, counts.bin_index * width + counts.count)
    return ranks


def _row(column: IntArray, value: float) -> tuple[IntArray, IntArray, float]:
    """One entry in each row, in order."""
    return np.arange(len(column)), column, value


def _block(
    rows: int, columns: int, parts: Sequence[tuple[IntArray, IntArray, float | IntArray]]
) -> sparse.csr_matrix:
    row = np.concatenate([part[0] for part in parts])
    column = np.concatenate([part[1] for part in parts])
    value = np.concatenate([np.broadcast_to(part[2], part[0].shape).astype(np.float64) for part in parts])
    return sparse.csr_matrix((value, (row, column)), shape=(rows, columns))
