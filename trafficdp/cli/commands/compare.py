"""`trafficdp compare`: what could make this map, from public facts, and what is taken.

Where counts are public: every mechanism, and which one `auto` takes. Where nothing about a vehicle is: the
map by both kinds of noise, and one city-wide average, by the size of the fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, ClassVar

import typer

from trafficdp.cli.options import EpsilonOption, Output, RhoOption, Settings, loss_from_options
from trafficdp.cli.plan_words import LossText, MechanismName, Size, Words, loss_facts
from trafficdp.mechanisms.names import AUTO
from trafficdp.mechanisms.simulated_cities import REFERENCE_SEED, SEED, Skill, percent
from trafficdp.model import Schema, SpeedUnit, Statistic, as_json
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import Allocation
from trafficdp.planner.choose import Offer, Split, constant_error
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.disclosure import SkillStated
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.release.results import Plan

SPLITS = {Split.SAME_EPSILON: "same epsilon", Split.EQUAL_NOISE: "equal noise", None: "none"}


@dataclass(frozen=True, kw_only=True)
class OfferFacts:
    """What a mechanism offers. ``idealised``: its noise lacks an exact sampler, so it is never chosen.
    ``unenforced``: the theorem that bounds what one vehicle moves, where it is only claimed. ``split``: how
    epsilon is split among the bins, the better of the two by ``simulated_error``; null in rho. ``loss``: the
    largest exact loss of any vehicle, at most the total. ``median_error``, ``worst_error``: over bins, of the
    expected error, worst case over speeds, from public counts. ``simulated_error``: mean over bins of the
    absolute error in the worse of two simulated cities. ``unavailable``: why it cannot do it here."""

    SCHEMA: ClassVar = Schema(
        {
            "if": {"properties": {"unavailable": {"type": "null"}}},
            "then": {
                "properties": {
                    "loss": {"type": "string"},
                    "median_error": {"type": "number"},
                    "worst_error": {"type": "number"},
                }
            },
            "else": {
                "properties": {
                    each: {"type": "null"}
                    for each in ("split", "loss", "median_error", "worst_error", "simulated_error")
                }
            },
        }
    )

    mechanism: MechanismName
    idealised: bool
    unenforced: Words | None
    split: Split | None
    loss: LossText | None
    median_error: Size | None
    worst_error: Size | None
    simulated_error: Size | None
    unavailable: Words | None


@dataclass(frozen=True, kw_only=True)
class ChoiceFacts:
    """One statistic alone: the ``best`` mechanism, never an idealised one, why, and all of them.

    ``constant_error``: how far a constant in the middle of the range is off at worst."""

    statistic: Statistic
    best: MechanismName
    reason: Words
    constant_error: Annotated[float, Schema(exclusiveMinimum=0)]
    mechanisms: Annotated[tuple[OfferFacts, ...], Schema(minItems=1)]


@dataclass(frozen=True, kw_only=True)
class CostsFacts:
    """What every possible vehicle is charged: ``epsilon``, or ``rho``, which keeps to it at ``delta``."""

    epsilon: LossText | None
    rho: LossText | None
    delta: Words | None


@dataclass(frozen=True, kw_only=True)
class FleetFacts:
    """How much a map says of so many vehicles; ``refused``: too little to be released."""

    vehicles: Annotated[int, Schema(minimum=1)]
    skill: SkillStated
    refused: bool


@dataclass(frozen=True, kw_only=True)
class MapFacts:
    """A whole map, with all of the loss for all statistics: its errors beside those of a city-wide average.

    ``fleets``: the same by how many vehicles there are, where nothing about a vehicle is public, with what it
    ``costs``; there ``skill`` is that of the fleet which is expected."""

    map: Words
    skill: Mapping[str, SkillStated]
    costs: CostsFacts | None = None
    fleets: tuple[FleetFacts, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class ComparisonFacts:
    """All errors are expected absolute errors in ``unit``, that of the map (squared for the variance).

    Every mechanism spends the whole ``epsilon`` or ``rho`` on one statistic; the other is null. ``bins``
    would get numbers; ``bins_withheld`` are visited by fewer than min_vehicles vehicles. ``seed``: that of
    the simulated speeds. ``auto``: why it takes the one that it takes of the whole ``maps``. ``statistics``
    is empty where nothing about a vehicle is public: there one mechanism makes the map, by either noise.
    Every object is closed: a property that is not named here is an error.
    """

    epsilon: LossText | None
    rho: LossText | None
    unit: SpeedUnit
    bins: Annotated[int, Schema(minimum=1)]
    bins_withheld: Annotated[int, Schema(minimum=0)]
    seed: Annotated[int, Schema(minimum=0)]
    auto: Words
    maps: Annotated[tuple[MapFacts, ...], Schema(minItems=2)]
    statistics: tuple[ChoiceFacts, ...]


def compare(
    context: typer.Context,
    epsilon: EpsilonOption = None,
    rho: RhoOption = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the simulated speeds and their noise; `auto` takes 1.")
    ] = SEED,
) -> None:
    """Show how far each mechanism may be off on this map, and which one `auto` takes. Nothing is spent.

    Where nothing about a vehicle is public: the map by either kind of noise, by the size of the fleet.
    """
    settings: Settings = context.obj
    workspace = settings.workspace()
    with settings.output.spinner("comparing from public facts"):
        plan = workspace.plan(loss_from_options(epsilon, rho), suggestions=False)
        if plan.allocation.fleets:
            ways = noise_options(plan)
            reason = noise_reason(plan, ways)
            settings.output.result(as_json(facts_for_declared_grid(plan, ways, reason)))
            show_noise_options(settings.output, plan, ways, reason)
            return
        request, counts = plan.allocation.request, plan.allocation.counts
        free = replace(request, mechanism=dict.fromkeys(request.tolerance, AUTO), accounting="best")
        auto = allocate(counts, free, plan.allocation.hour)
        found = comparison_facts(plan, auto, seed)
    settings.output.result(as_json(found))
    show(settings.output, plan, auto, found)


def comparison_facts(plan: Plan, auto: Allocation, seed: int) -> ComparisonFacts:
    """Return all mechanisms on the map of ``plan``, tried in simulated cities of ``seed``, as plain values.

    ``auto`` is the allocation that the setting auto would make.
    """
    request, shown = plan.allocation.request, plan.in_display_unit
    return ComparisonFacts(
        **loss_facts(request.loss),
        unit=plan.display_unit,
        bins=plan.allocation.counts.bins,
        bins_withheld=int((~plan.allocation.keep).sum()),
        seed=seed,
        auto=auto.reason,
        maps=tuple(
            MapFacts(map=name, skill={each: skill.stated(shown(1.0, each)) for each, skill in own.items()})
            for name, own in auto.considered.items()
        ),
        statistics=tuple(
            ChoiceFacts(
                statistic=choice.statistic,
                best=choice.chosen.mechanism,
                reason=choice.reason,
                constant_error=shown(constant_error(choice.statistic, request.bound), choice.statistic),
                mechanisms=tuple(_offer_facts(plan, offer) for offer in choice.offers),
            )
            for choice in plan.mechanism_choices(seed)
        ),
    )


def facts_for_declared_grid(plan: Plan, options: tuple[NoiseOption, ...], reason: str) -> ComparisonFacts:
    """Return ``options``, and the ``reason`` of one, as the plain values that the command prints as JSON."""
    request = plan.allocation.request
    factor = float(request.bound.unit.factor_to(plan.display_unit))
    return ComparisonFacts(
        **loss_facts(plan.loss),
        unit=plan.display_unit,
        bins=plan.allocation.counts.bins,
        bins_withheld=0,
        seed=REFERENCE_SEED,
        auto=reason,
        maps=tuple(
            MapFacts(
                map=way.name,
                skill={Statistic.MEAN.value: way.skills[request.fleet].stated(factor)},
                costs=CostsFacts(**loss_facts(way.loss), delta=way.delta),
                fleets=tuple(
                    FleetFacts(vehicles=n, skill=skill.stated(factor), refused=not skill.enough)
                    for n, skill in way.skills.items()
                ),
            )
            for way in options
        ),
        statistics=(),
    )


def _offer_facts(plan: Plan, offer: Offer) -> OfferFacts:
    fit = offer.fit

    def shown(error: float | None) -> float | None:
        return None if fit is None or error is None else plan.in_display_unit(error, offer.statistic)

    return OfferFacts(
        mechanism=offer.mechanism,
        idealised=offer.idealised,
        unenforced=offer.unenforced,
        split=None if fit is None else fit.split,
        loss=None if fit is None else str(fit.event.loss),
        median_error=shown(offer.median_error),
        worst_error=shown(offer.worst_error),
        simulated_error=shown(offer.tried),
        unavailable=offer.unavailable,
    )


def show(output: Output, plan: Plan, auto: Allocation, found: ComparisonFacts) -> None:
    """Print the comparison for people."""
    loss = plan.allocation.request.loss
    quantity = loss.kind.quantity
    _show_maps(output, plan, auto)
    for choice in found.statistics:
        output.table(
            f"Expected error of the {choice.statistic.value.replace('_', ' ')} alone, "
            f"{choice.statistic.unit(found.unit)}, at {quantity} {loss}",
            ["mechanism", "median", "worst", "simulated", "noise", f"{quantity} split", "best"],
            [_row(offer, choice.best) for offer in choice.mechanisms],
        )
        output.say(f"best: {choice.reason}.")
        output.say("")
    offers = [offer for choice in found.statistics for offer in choice.mechanisms]
    for said in ("unavailable", "unenforced"):
        reasons = {getattr(offer, said): None for offer in offers}
        for reason in filter(None, reasons):
            names = dict.fromkeys(offer.mechanism for offer in offers if getattr(offer, said) == reason)
            output.say(f"{said}: {', '.join(names)}: {reason}.")
    output.say("")
    output.say(
        f"Each mechanism spends the whole {quantity} on one statistic over {found.bins} bins "
        f"({found.bins_withheld} are withheld); no vehicle loses more. median, worst: over the bins, of the "
        "expected error at the worst speeds there could be, from public counts."
    )
    output.say(
        f"simulated: mean error over the bins in the worse of two simulated cities (seed {found.seed}); no "
        "speed of this city is read. best: the least of those whose median is good enough, or of all."
    )
    output.say(
        "idealised: no exact sampler, so it is never chosen. unenforced: how far one vehicle moves it is a "
        "theorem's claim, not enforced in code. Nothing was spent."
    )


def _show_maps(output: Output, plan: Plan, auto: Allocation) -> None:
    """Whole maps, each with all of the loss for all statistics, beside one city-wide average."""
    statistics = tuple(auto.request.tolerance)
    rows: list[list[object]] = []
    for name, own in auto.considered.items():
        numbers = [f"{plan.in_display_unit(float(own[each].error.mean()), each):#.4g}" for each in statistics]
        smaller = [percent(own[each].expected) for each in statistics]
        rows.append([name, *numbers, *smaller, "<-" if auto.tried is own else ""])
    names = [each.value.replace("_", " ") for each in statistics]
    output.table(
        f"Whole maps in simulated cities, at {auto.request.loss.kind.quantity} {auto.request.loss}",
        ["map", *(f"error of the {name}" for name in names), *(f"smaller, {name}" for name in names), "auto"],
        rows,
    )
    output.say(f"{auto.reason}.")
    output.say(
        "smaller: by how much, compared with the error of one city-wide average shown in every hexagon."
    )
    output.say("")


def _row(offer: OfferFacts, best: str) -> list[object]:
    errors = offer.median_error, offer.worst_error, offer.simulated_error
    numbers = ["-" if each is None else f"{each:#.4g}" for each in errors]
    noise = "idealised" if offer.idealised else "exact"
    if offer.unenforced is not None:
        noise += ", unenforced"
    split = "-" if offer.loss is None else SPLITS[offer.split]
    return [offer.mechanism, *numbers, noise, split, "<-" if offer.mechanism == best else ""]


# The ways to make a map of which nothing about a vehicle is public, side by side; nothing is looked at.


USUAL_DELTA = "0.000001"
"""With which Gaussian noise is compared where a store has no delta."""


@dataclass(frozen=True)
class NoiseOption:
    """The map with the noise of one kind of ``loss``, which is Laplace noise where ``delta`` is None.

    ``skills`` compare the map with one city-wide average, by number of vehicles.
    """

    loss: Loss
    delta: str | None
    skills: Mapping[int, Skill]

    @property
    def name(self) -> str:
        """Name of the noise for people, Gaussian or Laplace."""
        return "Laplace noise, no delta" if self.delta is None else f"Gaussian noise, delta {self.delta}"


def noise_options(plan: Plan) -> tuple[NoiseOption, ...]:
    """Return the map of ``plan`` with Gaussian and with Laplace noise, at one epsilon.

    For stores where nothing about a vehicle is public: no record is read.
    """
    allocation, known = plan.allocation, plan.in_epsilon
    epsilon = PureDP((allocation.request.loss if known is None else known.epsilon).pico)
    delta = USUAL_DELTA if known is None else known.delta
    rho = approx_to_rho(ApproxDP(epsilon.pico, Fraction(delta)), allocation.request.relation)
    found = []
    for each, at in ((rho, delta), (epsilon, None)):
        made = allocate(allocation.counts, allocation.request, allocation.hour, each)
        skills = {made.request.fleet: made.skill[Statistic.MEAN], **made.fleets}
        found.append(NoiseOption(each, at, dict(sorted(skills.items()))))
    return tuple(found)


def noise_reason(plan: Plan, options: tuple[NoiseOption, ...]) -> str:
    """Return one sentence: which noise this store draws, and which would give the most accurate map.

    ``options`` are ``noise_options`` of ``plan``.
    """
    fleet = plan.allocation.request.fleet
    near = min(options, key=lambda way: float(way.skills[fleet].error.mean()))
    own = next(way for way in options if way.loss.kind is plan.loss.kind)
    enough = (
        "is accurate enough to be released" if near.skills[fleet].enough else "would be refused all the same"
    )
    return (
        f"this store draws {own.name}, as its first file has fixed for life; with {fleet:,} vehicles "
        f"{near.name}, makes the nearest map, which {enough}"
    )


def show_noise_options(output: Output, plan: Plan, options: tuple[NoiseOption, ...], reason: str) -> None:
    """Print ``options`` as a table for people, and the ``reason`` of one."""
    request, unit = plan.allocation.request, plan.display_unit.label
    factor = float(request.bound.unit.factor_to(plan.display_unit))
    rows: list[list[object]] = []
    for way in options:
        skills = way.skills.values()
        cost = f"{way.loss.kind.quantity} {float(way.loss.exact):.6g}"
        error = [f"{factor * float(each.error.mean()):#.3g}" for each in skills]
        one = [f"{factor * float(each.flat.mean()):#.3g}" for each in skills]
        smaller = [f"{percent(each.expected)}{'' if each.enough else ' refused'}" for each in skills]
        maps = [", ".join(both) for both in zip(error, smaller, strict=True)]
        rows += [[f"map, {way.name}", cost, *maps], [f"average, {way.name}", cost, *one]]
    epsilon = next(way.loss for way in options if way.delta is None)
    output.table(
        f"Mean absolute error of the mean, {unit}, at epsilon {float(epsilon.exact):.6g}, by the size of the "
        "fleet",
        ["released", "cost", *(f"{n:,}" + " (expected)" * (n == request.fleet) for n in options[0].skills)],
        rows,
    )
    output.say(
        "Nothing in the store was looked at: errors are of simulated cities as large as this one, in "
        "hexagons that 5 vehicles visit. Per cent: how much smaller the error is than that of one city-wide "
        "average, which is given all of the loss. A map is refused if its error is less than 10 % smaller, "
        "or larger in more than 10 % of draws."
    )
    output.say(
        "Both kinds of noise keep to that epsilon for every possible vehicle, Gaussian noise except with "
        "probability delta. The losses of Gaussian noise add up more slowly over many releases."
    )
    output.say(f"{reason[0].upper()}{reason[1:]}. Nothing was spent.")
