"""What will be executed: calibrated noise on public counts, with its losses and expected errors.

And the public rules against maps that say nothing, by counts and committed simulations only, never a value:

**By skill.** A map is refused when it is expected to be less than 10 % more accurate than one private
number for the whole city, or further off than it in more than one draw in ten: in simulated cities on the
public counts (``mechanisms.simulated_cities``), or where nothing about a vehicle is public in the reference
city at the expected size of the fleet. That number itself is never refused.
How many numbers are informative decides nothing: on a day of Austin's buses a map that was worse than one
number had as many as one whose errors were a fifth smaller, and with nothing public maps of 4 % had errors
that were 19 % smaller. `plan` says how many are expected.
**By interval.** An answer to a question and a map of one bin have no such number to be compared with. They
are refused when the interval of the median bin can be the whole range.
**By rank.** Quantiles are refused when the interval of the median bin spans more than half of its vehicles.

Where several statistics are released, the one that says least decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import UninformativeReleaseError, UsageError
from trafficdp.mechanisms import protocol, simulated_cities
from trafficdp.mechanisms.names import FLAT
from trafficdp.mechanisms.publish import MOST_SPANNED
from trafficdp.model import ContributionBound, Counts, Knowledge, KnowledgeKind, MapRequest, Statistic
from trafficdp.planner.request import Affordable, Request
from trafficdp.privacy.estimate import RefusalRule
from trafficdp.privacy.loss import CHARGE_STEP, Loss, LossKind, PrivacyEvent

WORSE_ONCE = 0.3
"""With one draw a city, so few that more than this share is further off may be chance."""
KNOWLEDGE_BRINGS = {
    KnowledgeKind.RELEASE: "13 % off the errors of maps of a whole period in San Francisco and 4 to 7 % in "
    "Austin",
    KnowledgeKind.TIMETABLE: "5 to 6 % off the errors of maps of a whole period in Austin and 2 to 8 % in "
    "Warsaw",
    KnowledgeKind.SPEEDS: "14 to 17 % off the errors of maps of a whole period in Austin, where speeds of "
    "other days stood for typical ones",
}
"""What starting from a source brought, on average, by relation, of taxis and of buses; of a timetable over
days that chose nothing: docs/guides/knowledge.md."""
LEAST_BINS = 2
"""A map of one bin is no more accurate than one city-wide average: it is that number."""


@dataclass(frozen=True, slots=True)
class UtilityVerdict:
    """What ``rule`` finds for the ``statistic`` that fares worst: ``value`` against ``threshold``.

    SKILL: the mean absolute error expected in simulated cities, against nine tenths of that of one city-wide
    average, in the statistic's unit; ``worse`` is the share of simulated draws with a larger error than that
    average. INTERVAL: the width that the median bin's interval can have, against the whole range. RANK: the
    share of a bin's vehicles that the median bin's interval spans. ``yardstick``: the city-wide average
    itself was asked for by name, and is never refused.
    """

    rule: RefusalRule
    statistic: Statistic
    value: float
    threshold: float
    worse: float = 0.0
    yardstick: bool = False

    @property
    def refused(self) -> bool:
        """Whether the release would be too inaccurate to publish."""
        if self.yardstick:
            return False
        if self.rule is RefusalRule.INTERVAL:
            return self.value >= self.threshold
        return self.value > self.threshold or self.worse > simulated_cities.MOST_WORSE

    @property
    def ruled_out_quickly(self) -> bool:
        """Whether one draw in each simulated city already rules the map out.

        As ``refused``, but by rule SKILL up to WORSE_ONCE of the draws may be worse: so few draws tell
        little.
        """
        if self.rule is RefusalRule.SKILL and not self.yardstick:
            return self.value > self.threshold or self.worse > WORSE_ONCE
        return self.refused

    def in_words(self, unit: str, factor: float) -> tuple[str, str]:
        """Return two phrases for an error message: what was found, and what is required.

        ``unit`` is the unit that errors are printed in, ``factor`` converts errors from the speed bound's
        unit to it. By rule SKILL the share of worse draws is given where only that is too large, else the
        expected error.
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
        if self.worse > simulated_cities.MOST_WORSE and self.value <= self.threshold:
            beyond = "of draws in which the map is less accurate than one city-wide average"
            return (
                f"{simulated_cities.percent(self.worse)} {beyond}",
                f"at most {simulated_cities.percent(simulated_cities.MOST_WORSE)}",
            )
        return (
            f"an expected error of the {self.statistic.words} of {value:.3g} {unit}",
            f"at most {threshold:.3g} {unit}, 90 % of the error of one city-wide average",
        )


def uninformative_error(
    verdict: UtilityVerdict, request: MapRequest, todo: str | None = None
) -> UninformativeReleaseError:
    """Return (do not raise) the error that refuses a release of ``verdict``; ``todo`` is its advice."""
    unit = verdict.statistic.unit(request.display_unit)
    got, expected = verdict.in_words(unit, request.factor(verdict.statistic))
    return UninformativeReleaseError(
        "the release would be too inaccurate to publish", got=got, expected=expected, todo=todo
    )


def rule_of(allocation: Allocation) -> RefusalRule:
    """Return which test of accuracy may refuse the release of ``allocation``.

    RANK for quantiles; INTERVAL for a map of one bin, and for an answer where counts are public; else SKILL.
    """
    request = allocation.request
    if allocation.rank_widths:
        return RefusalRule.RANK
    one_bin = allocation.counts.bins < LEAST_BINS
    if one_bin or (request.answer and not request.relation.hides_presence):
        return RefusalRule.INTERVAL
    return RefusalRule.SKILL


def assess_utility(allocation: Allocation) -> UtilityVerdict:
    """Return whether ``allocation`` is accurate enough to publish, judged by its least accurate statistic.

    From public counts and simulated cities alone; the test is that of ``rule_of``.
    """
    rule, request = rule_of(allocation), allocation.request
    yardstick = request.mechanism_names == {FLAT}
    if rule is RefusalRule.RANK:
        widest = {each: float(np.median(spanned)) for each, spanned in allocation.rank_widths.items()}
        least = max(widest, key=lambda each: widest[each])
        return UtilityVerdict(rule, least, widest[least], MOST_SPANNED)
    if rule is RefusalRule.INTERVAL:
        bound, widths = request.bound, allocation.half_widths()
        max_value = {each: each.largest(bound.upper) for each in widths}
        spanned = {each: min(2 * positive_median(half), max_value[each]) for each, half in widths.items()}
        least = max(spanned, key=lambda each: spanned[each] / max_value[each])
        return UtilityVerdict(rule, least, spanned[least], max_value[least], yardstick=yardstick)
    skills = allocation.skill
    least = min(skills, key=lambda each: (skills[each].enough, skills[each].expected))
    skill = skills[least]
    threshold = (1 - simulated_cities.LEAST_SKILL) * float(skill.flat.mean())
    return UtilityVerdict(rule, least, float(skill.error.mean()), threshold, skill.worse, yardstick)


FLEETS = (100, 1_000, 10_000, 100_000)
"""Whose skill is shown where nothing about a vehicle is public."""


def cities_of_request(
    request: Request, counts: Counts, hour: IntArray | None
) -> Iterator[simulated_cities.SimulatedCity]:
    """Yield the simulated cities in which maps of ``request`` are tried, behind the public ``counts``.

    ``hour`` (G,) is the hour of day of every bin, None where slots have none.
    """
    squares = Statistic.VARIANCE in request.tolerance
    return simulated_cities.simulated_cities_of(counts, request.bound, hour, squares=squares)


@dataclass(frozen=True)
class Allocation:
    """A planned release: its bins, its calibrated mechanism with the exact loss, and what was compared.

    ``keep`` (shape (all bins,)) marks the bins that are released; ``counts`` holds the counts of those alone.
    ``calibrated`` will be executed; ``event`` holds every user's own loss, ``error`` (a statistic, shape
    (G,)) the expected error by the mechanism, ``reason`` one sentence on why it was chosen. Where the
    baseline is executed, ``best`` is the accounting that prices its noise, out of ``accountings``; else None.
    ``hour`` is the hour of day of every released bin, None where slots have none. ``tried`` is the skill
    where the choice needed it, ``considered`` the skill of all maps that "auto" chose from. ``cities`` are
    simulated cities of these counts, if made already; ``once``: one draw in each is enough.
    """

    request: Request
    keep: BoolArray
    counts: Counts
    calibrated: protocol.CalibratedMechanism
    event: PrivacyEvent
    error: Mapping[Statistic, FloatArray]
    reason: str
    accountings: tuple[protocol.Accounting, ...] = ()
    best: protocol.Accounting | None = None
    hour: IntArray | None = None
    tried: Mapping[Statistic, simulated_cities.Skill] | None = None
    considered: Mapping[str, Mapping[Statistic, simulated_cities.Skill]] = field(default_factory=dict)
    cities: Sequence[simulated_cities.SimulatedCity] = ()
    once: bool = False

    @cached_property
    def skill(self) -> Mapping[Statistic, simulated_cities.Skill]:
        """How accurate each statistic is beside one city-wide average, in simulated cities."""
        if self.tried is not None:
            return self.tried
        own = self.calibrated
        if isinstance(own, simulated_cities.SimulatesOwnCity):
            return {Statistic.MEAN: own.skill()}
        cities = self.cities or cities_of_request(self.request, self.counts, self.hour)
        return simulated_cities.skills_of([own], self.request.loss, cities, once=self.once)[0]

    @cached_property
    def fleets(self) -> Mapping[int, simulated_cities.Skill]:
        """How accurate means would be beside one city-wide number with each number of vehicles in FLEETS.

        Simulated; empty where counts are public.
        """
        own = self.calibrated
        if not isinstance(own, simulated_cities.SimulatesOwnCity):
            return {}
        return {n: own.skill(n) for n in FLEETS}

    @property
    def count_errors(self) -> Mapping[str, float]:
        """The expected absolute noise of each published count of a place, by its name, for the expected
        fleet.

        Empty where counts are public or none are asked for.
        """
        own = self.calibrated
        return own.count_errors() if isinstance(own, simulated_cities.SimulatesOwnCity) else {}

    @property
    def known(self) -> tuple[Knowledge, ...]:
        """The public sources of known speeds that the map's prior starts from."""
        return self.calibrated.known if isinstance(self.calibrated, protocol.FromKnownSpeeds) else ()

    @cached_property
    def rank_widths(self) -> Mapping[Statistic, FloatArray]:
        """Width of each quantile's rank interval as a share of the bin's vehicles, a statistic, shape (G,).

        From public counts, at the requested interval level; empty for mechanisms that release no quantiles.
        """
        own = self.calibrated
        return own.rank_widths(self.request.interval_level) if isinstance(own, protocol.Ranked) else {}

    @property
    def loss(self) -> Loss:
        """The privacy guarantee: the largest loss of any vehicle, at most the one asked for."""
        return self.event.loss

    @property
    def vehicles(self) -> int:
        """The number of vehicles: counted where counts are public, else as expected."""
        return self.request.fleet if self.request.relation.hides_presence else self.counts.users

    @property
    def composition(self) -> str:
        """How the privacy losses of the mechanism's steps add up, in words."""
        return self.calibrated.composition if self.best is None else self.best.composition

    @property
    def chosen_accounting(self) -> protocol.Accounting:
        """The accounting that prices the noise: as requested, or the best; UsageError where there is none."""
        if self.best is None:
            rho = self.request.loss.kind is LossKind.ZCDP
            raise UsageError(
                "this map has no accountings", got="losses in rho" if rho else self.event.mechanism
            )
        return self.best

    @property
    def equal_scale_bound(self) -> float:
        """A lower bound on equal Laplace scales of means, G U / (L epsilon): see
        ``floor_of_equal_scales``.
        """
        return floor_of_equal_scales(self.counts, self.request.bound, float(self.request.loss.exact))

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return each statistic's expected absolute error in every released bin, in its unit, shape (G,).

        Where ``intervals_from_trials``, the error that the map states of itself, averaged over simulated
        cities; else the worst case over all speeds. No real value is read.
        """
        return self._foreseen("stated_error", self.error)

    def half_widths(self) -> dict[Statistic, FloatArray]:
        """Return the half width of every released bin's interval, a statistic, in its unit, shape (G,).

        Where ``intervals_from_trials``, as found in simulated cities; else by the mechanism from public
        counts.
        """
        return self._foreseen("half_width", self.calibrated.half_widths(self.request.interval_level))

    def _foreseen(self, name: str, known: Mapping[Statistic, FloatArray]) -> dict[Statistic, FloatArray]:
        size = (self.counts.bins,)
        return {
            each: np.broadcast_to(getattr(self.skill[each], name), size)
            if self.intervals_from_trials(each) and each in self.skill
            else own
            for each, own in known.items()
        }

    def intervals_from_trials(self, statistic: Statistic) -> bool:
        """Return whether intervals of ``statistic`` were tuned in trials, without a theorem.

        Their widths and errors are then predicted by simulated cities.
        """
        return (
            isinstance(self.calibrated, protocol.CalibratedIntervals) and statistic in self.calibrated.trials
        )


class WidthGoal(StrEnum):
    """Which bins must be within a half width: the MEDIAN bin (so half of them), or EVERY bin."""

    MEDIAN = "median"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Precision:
    """Half widths of the main statistic's intervals over the bins that carry noise, in its unit."""

    median: float
    worst: float

    def at(self, goal: WidthGoal) -> float:
        """Return the median bin's half width for MEDIAN, the widest bin's for EVERY."""
        return self.median if goal is WidthGoal.MEDIAN else self.worst


def precision(allocation: Allocation) -> Precision:
    """Return the median and the largest half width of the main statistic's intervals, in its unit.

    Over the released bins that carry noise; both are 0 where none does. From public counts.
    """
    widths = allocation.half_widths()[allocation.request.main]
    return Precision(positive_median(widths), float(widths.max(initial=0.0, where=widths > 0)))


def positive_median(widths: FloatArray) -> float:
    """Return the median of those entries of ``widths`` (G,) that are above 0; 0 if none is."""
    positive = widths[widths > 0]
    return float(np.median(positive)) if positive.size else 0.0


def floor_of_equal_scales(counts: Counts, bound: ContributionBound, epsilon: float) -> float:
    """Return G U / (L epsilon): equal Laplace scales of means are never smaller, whoever drives where.

    G is the number of bins, U the speed bound, L the number of vehicles that visit any bin. Proof: the mean
    over these L vehicles of sum_g U m/N is G U / L, and the largest is no less.
    """
    visiting = int(np.count_nonzero(counts.bins_per_user))
    return counts.bins * float(bound.upper) / (visiting * epsilon)


# What the vehicles of a map can still pay: Tuesday's map charges Tuesday's vehicles, each its own loss.
#
# Every vehicle has its own account, so what is left of it is a ceiling of its own: the loss of vehicle l, not
# the largest of the map, must not exceed left_l.
#
# Theorem. Let losses be l_l / B at noise of size B (as on every accounting: they fall in proportion). Under
# ceilings c_l = min(epsilon, left_l) the least B at a given shape is max_l l_l / c_l, which is the noise of
# the whole map at epsilon' = min(epsilon, min_l left_l L / l_l), L = max_l l_l. And for equal scales (b_g = B
# t_g) no other unsuppressed Laplace scales have a smaller largest b_g / t_g: any with b_g <= B t_g cost
# vehicle l at least l_l / B, so that B >= l_l / c_l for every l. So individual ceilings need no scales of
# their own: they come down to an epsilon' for the map, which is larger than the least remainder wherever the
# vehicle that has least left does not lose most.

ATTEMPTS = 20
"""So often a smaller loss is tried."""


def affordable(
    allocation: Allocation, left: IntArray, allocate_at: Callable[[Loss], Allocation]
) -> Affordable:
    """Return how many vehicles can pay for ``allocation``, and a loss that all of them can pay.

    ``left`` (users,) is what each vehicle may still lose, in 10^-12. ``allocate_at`` plans the same map at a
    smaller loss: the loss that is returned was planned with it.
    """
    cost = allocation.event.loss_per_user
    paying = cost > 0
    short, empty = paying & (cost > left), paying & (left < CHARGE_STEP)
    counts = allocation.counts
    # pairs are sorted by bin, and every bin has one
    visited = np.logical_or.reduceat(empty[counts.user_index], counts.start[:-1])
    return Affordable(
        paying=int(np.count_nonzero(paying)),
        short=int(np.count_nonzero(short)),
        empty=int(np.count_nonzero(empty)),
        loss=_payable(allocation, left, allocate_at),
        bins_without_empty=int(np.count_nonzero(~visited)),
    )


def _payable(
    allocation: Allocation, left: IntArray, allocate_at: Callable[[Loss], Allocation]
) -> Loss | None:
    asked = allocation.request.loss
    pico = asked.pico
    for _ in range(ATTEMPTS):
        cost = allocation.event.loss_per_user
        paying = cost > 0
        if not bool(np.any(cost[paying] > left[paying])):
            return allocation.request.loss
        share = float(np.min(left[paying] / cost[paying]))
        # a little less: every loss is rounded up to a charge step
        pico = min(int(pico * share), pico - CHARGE_STEP) // CHARGE_STEP * CHARGE_STEP
        if pico < CHARGE_STEP:
            return None
        try:
            allocation = allocate_at(type(asked)(pico))
        except UsageError:
            return None
    return None
