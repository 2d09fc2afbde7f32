"""The public rule against maps that say nothing, and what would pass it. Counts only, never a value.

Where nothing about a vehicle is public, the map is tried in the reference city (``mechanisms.simulated``) at
the expected size of the fleet, and is refused unless it is nearer to the truth than one number for the city.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.planner.allocation import Allocation, accountings_for, choose_accounting
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import PICO

FloatArray = npt.NDArray[np.float64]
LEAST_SKILL, MOST_WORSE = 0.1, 0.1
"""Where nothing is public: so much nearer than one number, and the share of draws that may be worse."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rule's outcome: ``median_error`` of the judged statistic against ``threshold`` (its unit).

    ``worse``: the share of draws that are worse than one number for the city, where that is judged.
    """

    statistic: Statistic
    median_error: float
    threshold: float
    worse: float = 0.0

    @property
    def refused(self) -> bool:
        """Whether the release would say too little."""
        return self.median_error > self.threshold or self.worse > MOST_WORSE

    def in_words(self, unit: str, factor: float) -> tuple[str, str]:
        """Return what there is and what is expected, of the first thing that is not as it must be.

        Errors are told in ``unit``, of which there are ``factor`` in one of the speed bound's.
        """
        if self.median_error <= self.threshold:
            beyond = "of all draws farther from the truth than one number for the whole city"
            return f"{self.worse:.0%} {beyond}", f"at most {MOST_WORSE:.0%}"
        return (
            f"a median expected error of {self.median_error * factor:.3g} {unit}",
            f"at most {self.threshold * factor:.3g} {unit}",
        )


def judge(allocation: Allocation) -> Verdict:
    """Refuse when the median over bins of b (1 - e^(-U/(2b))) exceeds ``refuse_above`` * U.

    Judged on the mean (records first, then vehicles); on the variance, with its range U^2/4, only when no
    mean is released. Bins where the statistic can only be one number (no noise) do not count.
    """
    request = allocation.request
    statistic = request.judged
    if request.hides_presence and allocation.counts.bins > 1:
        skill = allocation.skill[statistic]
        return Verdict(
            statistic,
            float(skill.error.mean()),
            (1 - LEAST_SKILL) * float(skill.flat.mean()),
            worse=skill.worse,
        )
    return Verdict(
        statistic,
        _median(_noisy(allocation.errors()[statistic])),
        request.refuse_above * statistic.largest(request.bound.upper),
    )


def largest_passing_scale(request: Request) -> float:
    """Return the Laplace scale b (judged statistic's unit) at which the rule just passes.

    Solves b (1 - e^(-R/(2b))) = refuse_above * R; increasing in b, by bisection, rounded down.
    """
    reach = request.judged.largest(request.bound.upper)
    low, high = 0.0, reach
    while -np.expm1(-reach / (2 * high)) * high <= request.refuse_above * reach and high < 1e9 * reach:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        passes = -np.expm1(-reach / (2 * middle)) * middle <= request.refuse_above * reach
        low, high = (middle, high) if passes else (low, middle)
    return low


def passing_epsilon(counts: Counts, request: Request) -> float | None:
    """Return the least epsilon (a whole number of 10^-12) that passes on the bins of ``counts``.

    By the accounting that ``request`` would execute. None when no bin has ``min_vehicles`` vehicles.
    """
    kept = counts.select(counts.users_per_bin >= request.min_vehicles)
    if kept.bins == 0:
        return None
    statistic = request.judged
    accounting = choose_accounting(accountings_for(kept, request, thorough=False), request)
    if not _noisy(accounting.scales(1.0)[statistic]).size:
        return 1 / PICO
    threshold = request.refuse_above * statistic.largest(request.bound.upper)

    def passes(epsilon: float) -> bool:
        return _median(_noisy(accounting.errors(epsilon, request.bound)[statistic])) <= threshold

    # Laplace noise of one scale in all bins would pass here
    high = _median(_noisy(accounting.scales(1.0)[statistic])) / largest_passing_scale(request)
    while not passes(high):
        high *= 2
    low = high / 2
    while low * PICO > 1 and passes(low):
        low /= 2
    while low < high * (1 - 1e-13):
        between = (low + high) / 2
        low, high = (low, between) if passes(between) else (between, high)
    # a hair more, so that rounding of the scales cannot spoil it; a decimal that PureDP.of reads whole
    return math.ceil(high * (1 + 1e-12) * PICO) / PICO


def passing_min_vehicles(counts: Counts, request: Request) -> int | None:
    """Return the least ``min_vehicles`` at which the request passes, None when no such bin remains.

    Fewer bins never cost a vehicle more, so under equal scales the noise falls as ``min_vehicles`` grows:
    a binary search over the distinct numbers of vehicles. (Other accountings compare bins differently: there
    the answer passes as well but need not be the least.)
    """
    choices = np.unique(counts.users_per_bin)
    choices = choices[choices >= request.min_vehicles]
    low, high = 0, len(choices)
    while low < high:
        middle = (low + high) // 2
        needed = passing_epsilon(counts.select(counts.users_per_bin >= choices[middle]), request)
        if needed is not None and needed <= float(request.loss.exact):
            high = middle
        else:
            low = middle + 1
    if low == len(choices):
        return None
    # every number down to the one before keeps the same bins
    return request.min_vehicles if low == 0 else int(choices[low - 1]) + 1


def _noisy(values: FloatArray) -> FloatArray:
    return values[values > 0]


def _median(values: FloatArray) -> float:
    return float(np.median(values)) if values.size else 0.0
