"""The least K that any suppression reaches under Clip-User's ceiling, as nearly as time allows, with proof.

The program is in ``suppression_program``; its relaxation is the proof: ceil(LP) is a lower bound on the K
of every suppression. In general the problem is NP-hard (PARTITION).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trafficdp.errors import positive
from trafficdp.mechanisms.blocks.canonical import in_canonical_order
from trafficdp.mechanisms.clip_user.clip_user import Ceiling, Suppression, ceiling, clip_user
from trafficdp.model import ContributionBound, Counts
from trafficdp.planner.compare.local_search import exchange
from trafficdp.planner.compare.suppression_program import Program, Solution, room

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
    counts: Counts,
    bound: ContributionBound,
    epsilon: float,
    *,
    seconds: float = 30.0,
    relaxation_seconds: float = 60.0,
) -> Certified:
    """Return the best suppression found, never worse than Clip-User, with its certificate.

    The LP is rounded under the caps it is surest of and repaired by exchanges (``local_search``); then a
    MILP under those caps, then the whole MILP, each with ``seconds``, while the bound is not met.
    Without the LP (``relaxation_seconds`` do not suffice) exchanges improve Clip-User's answer, unproved.
    ``relaxation`` is the value of the LP; ``lower_bound`` the better of ceil(LP) and the MILP's own bound.
    """
    positive(seconds=seconds)
    positive(relaxation_seconds=relaxation_seconds)
    ordered = in_canonical_order(counts, bound)
    found = _certified(ordered.counts, bound, epsilon, seconds, relaxation_seconds)
    suppression = replace(found.suppression, kept=ordered.to_given(found.suppression.kept))
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
        guide, point = problem.guide(counts, relaxed, relaxation_seconds)
        best = _better(counts, limit, best, guide.rounded(counts, point, lower))
        if best.bins_per_user > lower:
            found = problem.solve(seconds, at_most=best.bins_per_user, caps=guide)
            best = _better(counts, limit, best, found)
    if best.bins_per_user > lower:
        exact = problem.solve(seconds, at_most=best.bins_per_user)
        lower = max(lower, math.ceil(exact.bound - TOLERANCE)) if exact is not None else lower
        best = _better(counts, limit, best, exact)
    return Certified(best, min(lower, best.bins_per_user), relaxed.value)


def within(counts: Counts, limit: Ceiling, kept: npt.NDArray[np.bool_]) -> bool:
    """Return whether a suppression leaves every bin with data and below the ceiling. From counts alone."""
    dropped = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(dropped, counts.bin_index, np.where(kept, 0, counts.count))
    largest = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(largest, counts.bin_index, np.where(kept, counts.count, 0))
    samples = counts.samples_per_bin
    excess = limit.excess(dropped, samples, largest)
    return bool(np.all(dropped < samples) and np.all(excess <= 1 + 1e-12))


def _exchanged(counts: Counts, limit: Ceiling, start: Suppression) -> Suppression:
    """Lower K one by one by exchanges, under the caps that ``start`` keeps."""
    cap = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(cap, counts.bin_index[start.kept], counts.count[start.kept])
    space = room(limit, counts.samples_per_bin, cap)
    while True:
        kept = exchange(counts, cap, space, start.kept, start.bins_per_user - 1)
        left = int(np.bincount(counts.user_index[kept], minlength=counts.users).max(initial=0))
        if left >= start.bins_per_user or not within(counts, limit, kept):
            return start
        start = Suppression(kept, left)


def _better(counts: Counts, limit: Ceiling, best: Suppression, found: Solution | None) -> Suppression:
    """Return the better of ``best`` and what was found, if that really stays below the ceiling."""
    if found is None or not within(counts, limit, found.kept):
        return best
    left = int(np.bincount(counts.user_index[found.kept], minlength=counts.users).max(initial=0))
    return Suppression(found.kept, left) if left < best.bins_per_user else best
