"""The ways to make a map of which nothing about a vehicle is public, side by side; nothing is looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from trafficdp.cli.words.options import Output
from trafficdp.mechanisms.simulated_cities import Skill
from trafficdp.model import Statistic
from trafficdp.planner.allocate import allocate
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.release.results import Plan

USUAL_DELTA = "0.000001"
"""With which Gaussian noise is compared where a store has no delta."""


@dataclass(frozen=True)
class Way:
    """The map by noise of the kind of ``loss``; ``skills`` by the size of the fleet.

    All ways keep to one epsilon; that of rho at ``delta``.
    """

    loss: Loss
    delta: str | None
    skills: Mapping[int, Skill]

    @property
    def name(self) -> str:
        """What people call its noise."""
        return "Laplace noise, no delta" if self.delta is None else f"Gaussian noise, delta {self.delta}"


def ways_of(plan: Plan) -> tuple[Way, ...]:
    """Return the ways to make the map of ``plan``, of which nothing is public; nothing is looked at."""
    allocation, known = plan.allocation, plan.in_epsilon
    epsilon = PureDP((allocation.request.loss if known is None else known.epsilon).pico)
    delta = USUAL_DELTA if known is None else known.delta
    rho = approx_to_rho(ApproxDP(epsilon.pico, Fraction(delta)), allocation.request.relation)
    found = []
    for each, at in ((rho, delta), (epsilon, None)):
        made = allocate(allocation.counts, replace(allocation.request, loss=each), allocation.hour)
        skills = {made.request.fleet: made.skill[Statistic.MEAN], **made.fleets}
        found.append(Way(each, at, dict(sorted(skills.items()))))
    return tuple(found)


def why(plan: Plan, ways: tuple[Way, ...]) -> str:
    """Return which way this store goes, and which would be the nearest to the truth."""
    fleet = plan.allocation.request.fleet
    near = min(ways, key=lambda way: float(way.skills[fleet].error.mean()))
    own = next(way for way in ways if way.loss.kind is plan.loss.kind)
    enough = "says enough to be released" if near.skills[fleet].enough else "would be refused all the same"
    return (
        f"this store draws {own.name}, as its first file has fixed for life; with {fleet:,} vehicles "
        f"{near.name}, makes the nearest map, which {enough}"
    )


def show_ways(output: Output, plan: Plan, ways: tuple[Way, ...]) -> None:
    """Print them for people."""
    request, unit = plan.allocation.request, plan.display_unit.label
    factor = float(request.bound.unit.factor_to(plan.display_unit))
    rows: list[list[object]] = []
    for way in ways:
        skills = way.skills.values()
        cost = f"{way.loss.kind.quantity} {float(way.loss.exact):.6g}"
        error, one = (
            [f"{factor * float(each.mean()):#.3g}" for each in errors]
            for errors in ([skill.error for skill in skills], [skill.flat for skill in skills])
        )
        nearer = [f"{each.expected:.0%}{'' if each.enough else ' refused'}" for each in skills]
        maps = [", ".join(both) for both in zip(error, nearer, strict=True)]
        rows += [[f"map, {way.name}", cost, *maps], [f"one number, {way.name}", cost, *one]]
    epsilon = next(way.loss for way in ways if way.delta is None)
    output.table(
        f"Mean absolute error of the mean, {unit}, at epsilon {float(epsilon.exact):.6g}, by the size of the "
        "fleet",
        ["released", "cost", *(f"{n:,}" + " (expected)" * (n == request.fleet) for n in ways[0].skills)],
        rows,
    )
    output.say(
        "Nothing in the store was looked at: errors are of simulated cities as large as this one, in "
        "hexagons that 5 vehicles visit. Per cent: nearer than one number for the city, which is given all "
        "of the loss; refused is a map that is less than 10 % nearer, or further off in more than one draw "
        "in ten."
    )
    output.say(
        "Both kinds of noise keep to that epsilon for every possible vehicle; Gaussian noise but for a "
        "probability of delta, and its losses add up more slowly over many releases."
    )
    words = why(plan, ways)
    output.say(f"{words[0].upper()}{words[1:]}. Nothing was spent.")
