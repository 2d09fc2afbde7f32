"""The public rules against maps that say nothing, and what would pass them. Counts only, never a value.

**By skill.** A map that "auto" chooses, or one in one piece, is refused when it is expected to be less than
10 % nearer to the truth than one private number for the whole city, or further off than it in more than one
draw in ten: in simulated cities on the public counts (``mechanisms.simulated.skill``), or where nothing about
a vehicle is public in the reference city at the expected size of the fleet (``simulated.reference``).
That number itself, asked for by name, is never refused.
**By error.** Other maps that are named have errors by a theorem; an answer to a question and a map of one bin
have no other number to be compared with. They are refused by the median worst-case expected error.
**By rank.** Quantiles are refused when the interval of the median bin spans more than half of its vehicles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UninformativeReleaseError, UsageError
from trafficdp.mechanisms.names import AUTO, FLAT, POOLED
from trafficdp.mechanisms.publish import MOST_SPANNED
from trafficdp.mechanisms.registry import WHOLE
from trafficdp.mechanisms.simulated.cities import City, cities_of
from trafficdp.mechanisms.simulated.skill import LEAST_SKILL, MOST_WORSE
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.model.statistic import Statistic
from trafficdp.planner.allocation import (
    Allocation,
    accountings_for,
    allocate,
    choose_accounting,
    judged_by_error,
    passes,
)
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, Loss, PureDP, rounded_up

FloatArray = npt.NDArray[np.float64]
DOUBLINGS, HALVINGS = 6, 4
"""Of a loss that is refused: one that passes is looked for up to 64 times it, and known to 5 %."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The rule's outcome: ``median_error`` of the judged statistic against ``threshold`` (its unit).

    ``by_skill``: the error is that expected in simulated cities, the threshold nine tenths of that of one
    number for the city; ``worse`` is the share of draws that are further off than it. ``yardstick``: that
    number was asked for by name. ``by_rank``: not an error, but the share of vehicles that an interval spans.
    """

    statistic: Statistic
    median_error: float
    threshold: float
    by_skill: bool = False
    worse: float = 0.0
    yardstick: bool = False
    by_rank: bool = False

    @property
    def refused(self) -> bool:
        """Whether the release would say too little."""
        return not self.yardstick and (self.median_error > self.threshold or self.worse > MOST_WORSE)

    def in_words(self, unit: str, factor: float) -> tuple[str, str]:
        """Return what there is and what is expected, of the first thing that is not as it must be.

        Errors are told in ``unit``, of which there are ``factor`` in one of the speed bound's.
        """
        if self.by_rank:
            spans = f"an interval that spans {self.median_error:.0%} of a hexagon's vehicles"
            return spans, f"at most {self.threshold:.0%} of them, in the median hexagon"
        if self.by_skill and self.median_error <= self.threshold and not self.yardstick:
            beyond = "of all draws farther from the truth than one number for the whole city"
            return f"{self.worse:.0%} {beyond}", f"at most {MOST_WORSE:.0%}"
        what, limit = "a median expected error", ""
        if self.by_skill:
            what, limit = "an expected error", ", nine tenths of that of one number for the whole city"
        return (
            f"{what} of {self.median_error * factor:.3g} {unit}",
            f"at most {self.threshold * factor:.3g} {unit}{limit}",
        )


def too_little(
    verdict: Verdict,
    bound: ContributionBound,
    todo: str | None = None,
    what: str = "release",
    shown: SpeedUnit | None = None,
) -> UninformativeReleaseError:
    """Return the error that a release (or an answer) of ``verdict`` is refused with, told in ``shown``."""
    told = shown or bound.unit
    got, expected = verdict.in_words(verdict.statistic.unit(told), verdict.statistic.factor(bound.unit, told))
    return UninformativeReleaseError(
        f"the {what} would say too little", got=got, expected=expected, todo=todo
    )


def judge(allocation: Allocation) -> Verdict:
    """Return the outcome: see the module.

    By error: when the median over bins of b (1 - e^(-U/(2b))) exceeds ``refuse_above`` * U.
    Judged on the mean (records first, then vehicles); on the variance, with its range U^2/4, only when no
    mean is released. Bins where the statistic can only be one number (no noise) do not count.
    """
    request = allocation.request
    statistic = request.judged
    if allocation.spanned:
        widest = max(float(np.median(each)) for each in allocation.spanned.values())
        return Verdict(statistic, widest, MOST_SPANNED, by_rank=True)
    if judged_by_error(allocation):
        return Verdict(
            statistic,
            _median(_noisy(allocation.errors()[statistic])),
            request.refuse_above * statistic.largest(request.bound.upper),
        )
    skill = allocation.skill[statistic]
    return Verdict(
        statistic,
        float(skill.error.mean()),
        (1 - LEAST_SKILL) * float(skill.flat.mean()),
        by_skill=True,
        worse=skill.worse,
        yardstick=request.named == {FLAT},
    )


class SkilledMaps:
    """Whether maps of ``counts`` pass by skill, at any epsilon: all in the same cities, made once.

    Where "auto" chooses, partial pooling is looked at alone: where it passes, auto has a map that does.
    """

    def __init__(self, counts: Counts, request: Request, hour: npt.NDArray[np.int64] | None) -> None:
        auto = request.named == {AUTO}
        named = request.with_proved_intervals()
        if auto and set(request.tolerance) <= {*WHOLE[POOLED].estimable}:
            named = replace(request, mechanism=dict.fromkeys(request.tolerance, POOLED))
        self._counts, self._hour, self._request = counts, hour, named
        self._cities: list[City] = []

    def passes(self, loss: Loss) -> bool:
        """Return whether the map at ``loss`` would be released."""
        try:
            found = allocate(self._counts, replace(self._request, loss=loss), self._hour)
        except UsageError:
            # no bin, or noise that cannot be drawn
            return False
        if judged_by_error(found):
            return passes(found)
        if not self._cities:
            self._cities = list(cities_of(found.counts, found.request.bound, found.hour))
        return found.skill_in(self._cities)[found.request.judged].enough

    def least(self) -> Loss | None:
        """Return a loss near the least that passes, of three digits; None where none does."""
        of, asked = type(self._request.loss), float(self._request.loss.exact)
        steps = range(1, DOUBLINGS + 1)
        power = (
            0
            if self.passes(of.of(f"{asked:.12f}"))
            else next((each for each in steps if self.passes(of.of(f"{asked * 2**each:.12f}"))), None)
        )
        if power is None:
            return None
        low, high = asked * 2.0 ** (power - 1), asked * 2.0**power
        for _ in range(HALVINGS):
            middle = of.of(rounded_up(float(np.sqrt(low * high))))
            if self.passes(middle):
                high = float(middle.exact)
            else:
                low = float(middle.exact)
        found = of.of(rounded_up(high))
        return found if self.passes(found) else None


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
    if request.by_rank:
        return _epsilon_of_ranks(kept, request)
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


def _epsilon_of_ranks(kept: Counts, request: Request) -> float | None:
    """The least epsilon, to a thousandth, at which quantiles of the bins of ``kept`` pass: see ``judge``."""

    def passes(epsilon: float) -> bool:
        asked = replace(request, loss=PureDP.of(f"{epsilon:.12f}"), min_vehicles=1)
        return not judge(allocate(kept, asked)).refused

    high = 1.0
    while not passes(high):
        high *= 2
        if high > LARGEST_LOSS / PICO:
            return None
    low = high / 2
    while low > 1e-6 and passes(low):
        low /= 2
    while low < high * (1 - 1e-3):
        between = math.sqrt(low * high)
        low, high = (low, between) if passes(between) else (between, high)
    return high


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
