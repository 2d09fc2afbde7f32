"""The public rules against maps that say nothing. Counts and committed simulations only, never a value.

**By skill.** A map is refused when it is expected to be less than 10 % nearer to the truth than one private
number for the whole city, or further off than it in more than one draw in ten: in simulated cities on the
public counts (``mechanisms.simulated.skill``), or where nothing about a vehicle is public in the reference
city at the expected size of the fleet (``simulated.reference``). That number itself is never refused.
**By interval.** An answer to a question and a map of one bin have no such number to be compared with. They
are refused when the interval of the median bin can be the whole range.
**By rank.** Quantiles are refused when the interval of the median bin spans more than half of its vehicles.

Where several statistics are released, the one that says least decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trafficdp.errors import UninformativeReleaseError
from trafficdp.mechanisms.names import FLAT
from trafficdp.mechanisms.publish import MOST_SPANNED
from trafficdp.mechanisms.simulated.skill import LEAST_SKILL, MOST_WORSE
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.planner.choose import median_noisy
from trafficdp.privacy.refusal_rule import RefusalRule

if TYPE_CHECKING:
    from trafficdp.planner.allocation import Allocation

WORSE_ONCE = 0.3
"""With one draw a city, so few that more than this share is further off may be chance."""
LEAST_BINS = 2
"""A map of one bin is no nearer to the truth than one number for the city: it is that number."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What ``rule`` finds of ``statistic``, which says least: ``value`` against ``threshold``.

    By skill the error that is expected in simulated cities against nine tenths of that of one number for the
    city, in the statistic's unit; ``worse`` is the share of draws that are further off than it. By interval
    how much of the range the interval of the median bin can span, against all of it, in the same unit. By
    rank the share of vehicles that an interval spans. ``yardstick``: that one number was asked for by name.
    """

    rule: RefusalRule
    statistic: Statistic
    value: float
    threshold: float
    worse: float = 0.0
    yardstick: bool = False

    @property
    def refused(self) -> bool:
        """Whether the release would say too little."""
        if self.yardstick:
            return False
        if self.rule is RefusalRule.INTERVAL:
            return self.value >= self.threshold
        return self.value > self.threshold or self.worse > MOST_WORSE

    @property
    def hopeless(self) -> bool:
        """Whether it would say too little with more draws as well, as far as one a city tells."""
        if self.rule is RefusalRule.SKILL and not self.yardstick:
            return self.value > self.threshold or self.worse > WORSE_ONCE
        return self.refused

    def in_words(self, unit: str, factor: float) -> tuple[str, str]:
        """Return what there is and what is expected, of the first thing that is not as it must be.

        Errors are told in ``unit``, of which there are ``factor`` in one of the speed bound's.
        """
        value, threshold = self.value * factor, self.threshold * factor
        if self.rule is RefusalRule.RANK:
            spans = f"an interval that spans {self.value:.0%} of a hexagon's vehicles"
            return spans, f"at most {self.threshold:.0%} of them, in the median hexagon"
        if self.rule is RefusalRule.INTERVAL:
            spans = "the whole possible range" if self.refused else f"{value:.3g} {unit}"
            return (
                f"an interval of the {self.statistic.words} that spans {spans}",
                f"less than the {threshold:.3g} {unit} of that range, in the median hexagon",
            )
        if self.worse > MOST_WORSE and self.value <= self.threshold:
            beyond = "of all draws farther from the truth than one number for the whole city"
            return f"{self.worse:.0%} {beyond}", f"at most {MOST_WORSE:.0%}"
        return (
            f"an expected error of the {self.statistic.words} of {value:.3g} {unit}",
            f"at most {threshold:.3g} {unit}, nine tenths of that of one number for the whole city",
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


def rule_of(allocation: Allocation) -> RefusalRule:
    """Return by what ``allocation`` is judged."""
    request = allocation.request
    if allocation.spanned:
        return RefusalRule.RANK
    one_bin = allocation.counts.bins < LEAST_BINS
    if one_bin or (request.answer and not request.relation.hides_presence):
        return RefusalRule.INTERVAL
    return RefusalRule.SKILL


def judge(allocation: Allocation) -> Verdict:
    """Return the outcome: see the module. Bins with numbers that can only be one do not count."""
    rule, request = rule_of(allocation), allocation.request
    yardstick = request.named == {FLAT}
    if rule is RefusalRule.RANK:
        widest = {each: float(np.median(spanned)) for each, spanned in allocation.spanned.items()}
        least = max(widest, key=lambda each: widest[each])
        return Verdict(rule, least, widest[least], MOST_SPANNED)
    if rule is RefusalRule.INTERVAL:
        level, bound = request.interval_level, request.bound
        widths = allocation.calibrated.half_widths(level)
        reach = {each: each.largest(bound.upper) for each in widths}
        spanned = {each: min(2 * median_noisy(half), reach[each]) for each, half in widths.items()}
        least = max(spanned, key=lambda each: spanned[each] / reach[each])
        return Verdict(rule, least, spanned[least], reach[least], yardstick=yardstick)
    skills = allocation.skill
    least = min(skills, key=lambda each: (skills[each].enough, skills[each].expected))
    skill = skills[least]
    threshold = (1 - LEAST_SKILL) * float(skill.flat.mean())
    return Verdict(rule, least, float(skill.error.mean()), threshold, skill.worse, yardstick)
