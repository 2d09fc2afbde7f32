"""The least K that any suppression reaches under Clip-User's ceiling: a MILP, its LP bound as certificate.

Variables: z[p] in {0, 1}, pair p is suppressed; c[g, v] in {0, 1}, the kept counts of bin g are at most v
(v runs over the distinct counts of the bin at which the ceiling can be met at all, c rises along them
and u[g, v] = c[g, v] - c[g, previous v] marks the cap that is chosen); K.

    minimise K subject to
    c[g, v] >= c[g, previous v],  c[g, last v] = 1           one cap a bin
    z[p] >= c[g(p), largest v < m[p]]                        users above the cap go
    sum_p in g m[p] z[p] <= sum_v u[g, v] room[g, v]         the bin stays below the ceiling
    sum_p of l z[p] + K >= G_l                               every user is in at most K bins

room[g, v] is the most samples bin g may lose with kept counts at most v: the largest D with
error(D, v) <= E for every statistic, found exactly by bisection on whole D (for means it is
floor(N x), x = 2(e - s)/((1 + e) + sqrt((1 - e)^2 + 4 s)), e = E/U, s = v/(eps N)). A bin is never emptied:
D <= N - v (erratum E11). In general NP-hard (PARTITION); ceil(LP) is a lower bound on every solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from trafficdp._validate import positive
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.planner.clip_user import Ceiling, Suppression, ceiling, clip_user

IntArray = npt.NDArray[np.int64]
TOLERANCE = 1e-6
"""How far HiGHS may be off a whole number; bounds are rounded with it, never past it."""


@dataclass(frozen=True)
class Certified:
    """A suppression and the proof of how good it is: no other has fewer than ``lower_bound`` bins a user."""

    suppression: Suppression
    lower_bound: int
    relaxation: float

    @property
    def optimal(self) -> bool:
        """Whether nothing better exists."""
        return self.suppression.bins_per_user == self.lower_bound


def least_bins_per_user(
    occupancy: Occupancy,
    bound: ContributionBound,
    epsilon: float,
    statistics: Sequence[Statistic] = (Statistic.MEAN,),
    *,
    seconds: float = 30.0,
) -> Certified:
    """Return the best suppression found in ``seconds``, never worse than Clip-User, with its certificate.

    ``relaxation`` is the value of the LP; ``lower_bound`` the better of ceil(LP) and the MILP's own bound.
    """
    positive(seconds=seconds)
    limit = ceiling(occupancy, bound, epsilon, statistics)
    greedy = clip_user(occupancy, bound, epsilon, statistics)
    problem = _Problem.of(occupancy, limit)
    relaxed = problem.solve(integer=False, seconds=seconds)
    if relaxed is None:
        return Certified(greedy, 1 if occupancy.bins else 0, 0.0)
    lower = max(1, math.ceil(relaxed.value - TOLERANCE))
    if greedy.bins_per_user <= lower:
        return Certified(greedy, greedy.bins_per_user, relaxed.value)
    exact = problem.solve(integer=True, seconds=seconds, at_most=greedy.bins_per_user)
    if exact is None:
        return Certified(greedy, lower, relaxed.value)
    lower = max(lower, math.ceil(exact.bound - TOLERANCE))
    found = _checked(occupancy, limit, exact.kept)
    best = found if found is not None and found.bins_per_user < greedy.bins_per_user else greedy
    return Certified(best, min(lower, best.bins_per_user), relaxed.value)


def within(occupancy: Occupancy, limit: Ceiling, kept: npt.NDArray[np.bool_]) -> bool:
    """Return whether a suppression leaves every bin with data and below the ceiling. From counts alone."""
    dropped = np.zeros(occupancy.bins, dtype=np.int64)
    np.add.at(dropped, occupancy.bin_index, np.where(kept, 0, occupancy.count))
    largest = np.zeros(occupancy.bins, dtype=np.int64)
    np.maximum.at(largest, occupancy.bin_index, np.where(kept, occupancy.count, 0))
    samples = occupancy.samples_per_bin
    excess = limit.excess(dropped, samples, largest)
    return bool(np.all(dropped < samples) and np.all(excess <= 1 + 1e-12))


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
class _Solution:
    value: float
    bound: float
    kept: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Problem:
    """The program in HiGHS's form: columns z (one a pair), c (one a bin and cap; ``certain`` are 1), K."""

    pairs: int
    columns: int
    certain: IntArray
    matrix: sparse.csr_matrix
    low: npt.NDArray[np.float64]

    @classmethod
    def of(cls, occupancy: Occupancy, limit: Ceiling) -> _Problem:
        """Build the program; each row reads ``low <= matrix @ x``."""
        keys = np.unique(np.column_stack([occupancy.bin_index, occupancy.count]), axis=0)
        bins, caps = keys[:, 0], keys[:, 1]
        space = room(limit, occupancy.samples_per_bin[bins], caps)
        bins, caps, space = bins[space >= 0], caps[space >= 0], space[space >= 0]
        pairs, choices, k = occupancy.pairs, len(bins), occupancy.pairs + len(bins)
        every, chain = np.arange(pairs), pairs + np.arange(choices)
        has_next = np.flatnonzero(bins[1:] == bins[:-1])
        last = np.setdiff1d(np.arange(choices), has_next)
        above = np.flatnonzero(_rank(bins, caps, occupancy) > np.searchsorted(bins, occupancy.bin_index))
        below = pairs + _rank(bins, caps, occupancy)[above] - 1
        # sum_v room_v (c_v - c_before) = sum_v c_v (room_v - room_next)
        gain = space.copy()
        gain[has_next] -= space[has_next + 1]
        g, users = occupancy.bins, occupancy.users
        blocks = [
            _block(len(has_next), k + 1, [_row(chain[has_next + 1], 1.0), _row(chain[has_next], -1.0)]),
            _block(len(above), k + 1, [_row(above, 1.0), _row(below, -1.0)]),
            _block(g, k + 1, [(occupancy.bin_index, every, -occupancy.count), (bins, chain, gain)]),
            _block(users, k + 1, [(occupancy.user_index, every, 1.0), _row(np.full(users, k), 1.0)]),
        ]
        low = np.concatenate([np.zeros(len(has_next) + len(above) + g), occupancy.bins_per_user])
        matrix = sparse.csr_matrix(sparse.vstack(blocks))
        return cls(pairs, k + 1, chain[last], matrix, low.astype(np.float64))

    def solve(self, *, integer: bool, seconds: float, at_most: int | None = None) -> _Solution | None:
        """Return the solution (or the best found in time), None when there is none."""
        cost = np.zeros(self.columns)
        cost[-1] = 1.0
        upper = np.ones(self.columns)
        upper[-1] = np.inf if at_most is None else at_most
        lower = np.zeros(self.columns)
        lower[self.certain] = 1.0
        result = milp(
            cost,
            integrality=np.full(self.columns, int(integer)),
            bounds=Bounds(lower, upper),
            constraints=LinearConstraint(self.matrix, self.low, np.inf),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        if result.x is None:
            return None
        dual = getattr(result, "mip_dual_bound", None)
        proved = float(result.fun) if dual is None or not integer else float(dual)
        return _Solution(float(result.fun), proved, np.asarray(result.x[: self.pairs]) < 0.5)


def _rank(bins: IntArray, caps: IntArray, occupancy: Occupancy) -> IntArray:
    """For every pair, the position of the first (bin, cap) with cap >= its count."""
    width = int(max(caps.max(initial=0), occupancy.count.max(initial=0))) + 1
    ranks: IntArray = np.searchsorted(bins * width + caps, occupancy.bin_index * width + occupancy.count)
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


def _checked(occupancy: Occupancy, limit: Ceiling, kept: npt.NDArray[np.bool_]) -> Suppression | None:
    """Return the solver's answer as a suppression, None unless it really stays below the ceiling."""
    if not within(occupancy, limit, kept):
        return None
    left = np.bincount(occupancy.user_index[kept], minlength=occupancy.users)
    return Suppression(kept, int(left.max(initial=0)))
