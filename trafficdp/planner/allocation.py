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
import numpy.typing as npt

from trafficdp.errors import UninformativeReleaseError, UsageError
from trafficdp.mechanisms.names import FLAT
from trafficdp.mechanisms.protocol import (
    Accounting,
    CalibratedIntervals,
    CalibratedMechanism,
    FromKnownSpeeds,
    Ranked,
)
from trafficdp.mechanisms.publish import MOST_SPANNED
from trafficdp.mechanisms.simulated_cities import (
    LEAST_SKILL,
    MOST_WORSE,
    SimulatedCity,
    SimulatesOwnCity,
    Skill,
    cities_of,
    percent,
    skills_of,
)
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
"""On average, by relation, of taxis and of buses; of a timetable over days that chose nothing:
docs/guides/knowledge.md."""
LEAST_BINS = 2
"""A map of one bin is no more accurate than one city-wide average: it is that number."""


@dataclass(frozen=True, slots=True)
class UtilityVerdict:
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
        """Whether the release would be too inaccurate to publish."""
        if self.yardstick:
            return False
        if self.rule is RefusalRule.INTERVAL:
            return self.value >= self.threshold
        return self.value > self.threshold or self.worse > MOST_WORSE

    @property
    def hopeless(self) -> bool:
        """Whether it would also be too inaccurate with more draws, as far as one a city tells."""
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
            beyond = "of draws in which the map is less accurate than one city-wide average"
            return f"{percent(self.worse)} {beyond}", f"at most {percent(MOST_WORSE)}"
        return (
            f"an expected error of the {self.statistic.words} of {value:.3g} {unit}",
            f"at most {threshold:.3g} {unit}, 90 % of the error of one city-wide average",
        )


def uninformative_error(
    verdict: UtilityVerdict, request: MapRequest, todo: str | None = None
) -> UninformativeReleaseError:
    """Return the error that a release of ``verdict`` is refused with."""
    unit = verdict.statistic.unit(request.display_unit)
    got, expected = verdict.in_words(unit, request.factor(verdict.statistic))
    return UninformativeReleaseError(
        "the release would be too inaccurate to publish", got=got, expected=expected, todo=todo
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


def assess_utility(allocation: Allocation) -> UtilityVerdict:
    """Return the outcome: see the module. Bins with numbers that can only be one do not count."""
    rule, request = rule_of(allocation), allocation.request
    yardstick = request.named == {FLAT}
    if rule is RefusalRule.RANK:
        widest = {each: float(np.median(spanned)) for each, spanned in allocation.spanned.items()}
        least = max(widest, key=lambda each: widest[each])
        return UtilityVerdict(rule, least, widest[least], MOST_SPANNED)
    if rule is RefusalRule.INTERVAL:
        bound, widths = request.map.bound, allocation.half_widths()
        reach = {each: each.largest(bound.upper) for each in widths}
        spanned = {each: min(2 * positive_median(half), reach[each]) for each, half in widths.items()}
        least = max(spanned, key=lambda each: spanned[each] / reach[each])
        return UtilityVerdict(rule, least, spanned[least], reach[least], yardstick=yardstick)
    skills = allocation.skill
    least = min(skills, key=lambda each: (skills[each].enough, skills[each].expected))
    skill = skills[least]
    threshold = (1 - LEAST_SKILL) * float(skill.flat.mean())
    return UtilityVerdict(rule, least, float(skill.error.mean()), threshold, skill.worse, yardstick)


FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
FLEETS = (100, 1_000, 10_000, 100_000)
"""Whose skill is shown where nothing about a vehicle is public."""


@dataclass(frozen=True)
class Allocation:
    """What will be executed, and what it beat.

    ``keep`` (shape (all bins,)) marks the bins that are released; ``counts`` is theirs alone.
    ``calibrated`` is what will be executed, ``event`` its promise with every user's own loss, ``error`` (a
    statistic, shape (G,)) what the refusal looks at, ``reason`` says in one sentence why the calibrated
    mechanism is what it is. Where the baseline is executed, ``best`` is the accounting by which its noise is
    priced, of all ``accountings``; else None.
    ``hour`` is the hour of day of every released bin, None where slots have none; ``tried`` is the skill
    where it was needed for the choice, ``considered`` that of all maps "auto" chose from. ``cities`` are
    simulated ones of these counts that are there already; ``once``: one draw in each is enough to look.
    """

    request: Request
    keep: npt.NDArray[np.bool_]
    counts: Counts
    calibrated: CalibratedMechanism
    event: PrivacyEvent
    error: Mapping[Statistic, FloatArray]
    reason: str
    accountings: tuple[Accounting, ...] = ()
    best: Accounting | None = None
    hour: IntArray | None = None
    tried: Mapping[Statistic, Skill] | None = None
    considered: Mapping[str, Mapping[Statistic, Skill]] = field(default_factory=dict)
    cities: Sequence[SimulatedCity] = ()
    once: bool = False

    @cached_property
    def skill(self) -> Mapping[Statistic, Skill]:
        """How accurate each statistic is beside one city-wide average, in simulated cities."""
        if self.tried is not None:
            return self.tried
        own = self.calibrated
        if isinstance(own, SimulatesOwnCity):
            return {Statistic.MEAN: own.skill()}
        cities = self.cities or cities_of(self.counts, self.request.map.bound, self.hour)
        return skills_of([own], self.request.loss, cities, once=self.once)[0]

    @cached_property
    def fleets(self) -> Mapping[int, Skill]:
        """The skill of means with fleets of other sizes, where nothing about a vehicle is public."""
        own = self.calibrated
        if not isinstance(own, SimulatesOwnCity):
            return {}
        return {n: own.skill(n) for n in FLEETS}

    @property
    def count_errors(self) -> Mapping[str, float]:
        """How far noise puts counts off where nothing is public and they are asked for; a fleet as usual."""
        own = self.calibrated
        return own.count_errors() if isinstance(own, SimulatesOwnCity) else {}

    @property
    def known(self) -> tuple[Knowledge, ...]:
        """The sources of speeds that the map starts from."""
        return self.calibrated.known if isinstance(self.calibrated, FromKnownSpeeds) else ()

    def known_in_words(self) -> Iterator[str]:
        """Yield what people are told of each of these sources."""
        for each in self.known:
            yield (
                f"The map starts from {each.in_words}, at no cost: that took {KNOWLEDGE_BRINGS[each.kind]}. "
                "Errors that are foretold leave it out."
            )

    @cached_property
    def spanned(self) -> Mapping[Statistic, FloatArray]:
        """Which share of a bin's vehicles an interval spans, shape (G,), where intervals are ranks."""
        own = self.calibrated
        return own.spanned(self.request.map.interval_level) if isinstance(own, Ranked) else {}

    @property
    def loss(self) -> Loss:
        """The guarantee: the largest loss of any vehicle, at most the one asked for."""
        return self.event.loss

    @property
    def vehicles(self) -> int:
        """How many vehicles there are: as counted where counts are public, else as expected."""
        return self.request.fleet if self.request.relation.hides_presence else self.counts.users

    @property
    def composition(self) -> str:
        """How the losses of what is executed add up, in words."""
        return self.calibrated.composition if self.best is None else self.best.composition

    @property
    def chosen(self) -> Accounting:
        """The best accounting, or the one that was asked for; raise UsageError where none is executed."""
        if self.best is None:
            rho = self.request.kind is LossKind.ZCDP
            raise UsageError(
                "this map has no accountings", got="losses in rho" if rho else self.event.mechanism
            )
        return self.best

    @property
    def floor(self) -> float:
        """G U / (L epsilon), below which no equal scales of means go."""
        return floor_of_equal_scales(self.counts, self.request.map.bound, float(self.request.loss.exact))

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return the expected error of every released bin, a statistic, shape (G,).

        Where intervals follow from answers what the map says of itself in simulated cities, on average; else
        the worst case over the speeds.
        """
        return self._foreseen("stated_error", self.error)

    def half_widths(self) -> dict[Statistic, FloatArray]:
        """Return the half width of every released bin's interval, likewise; shape (G,) a statistic."""
        return self._foreseen("half_width", self.calibrated.half_widths(self.request.map.interval_level))

    def _foreseen(self, name: str, known: Mapping[Statistic, FloatArray]) -> dict[Statistic, FloatArray]:
        size = (self.counts.bins,)
        return {
            each: np.broadcast_to(getattr(self.skill[each], name), size)
            if self.tried_in_cities(each) and each in self.skill
            else own
            for each, own in known.items()
        }

    def tried_in_cities(self, statistic: Statistic) -> bool:
        """Return whether its intervals follow from answers, so that simulated cities foretell them."""
        return isinstance(self.calibrated, CalibratedIntervals) and statistic in self.calibrated.trials


class Reach(StrEnum):
    """Which bins must be within a half width: the MEDIAN bin (so half of them), or EVERY bin."""

    MEDIAN = "median"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Precision:
    """Half widths of the main statistic's intervals over the bins that carry noise, in its unit."""

    median: float
    worst: float

    def at(self, reach: Reach) -> float:
        """Return the half width that ``reach`` is about."""
        return self.median if reach is Reach.MEDIAN else self.worst


def precision(allocation: Allocation) -> Precision:
    """Return how wide the main statistic's intervals will be (0 where no bin carries noise)."""
    widths = allocation.half_widths()[allocation.request.main]
    return Precision(positive_median(widths), float(widths.max(initial=0.0, where=widths > 0)))


def positive_median(foreseen: npt.NDArray[np.float64]) -> float:
    """Return the median of what is foreseen of all bins (G,), where it is above 0; 0 if nowhere."""
    positive = foreseen[foreseen > 0]
    return float(np.median(positive)) if positive.size else 0.0


def floor_of_equal_scales(counts: Counts, bound: ContributionBound, epsilon: float) -> float:
    """Return G U / (L epsilon): equal scales of means are never smaller, whoever drives where.

    Proof: the mean over the L visiting vehicles of sum_g U m/N is G U / L, and the largest is no less.
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
    """Return who can pay ``allocation``. ``left`` (users,) is what each may still lose, in 10^-12.

    ``allocate_at`` plans the same map at a smaller loss: what is returned was planned and fits all.
    """
    cost = allocation.event.loss_per_user
    paying = cost > 0
    short, empty = paying & (cost > left), paying & (left < CHARGE_STEP)
    visited = np.zeros(allocation.counts.bins, dtype=np.bool_)
    visited[allocation.counts.bin_index[empty[allocation.counts.user_index]]] = True
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
