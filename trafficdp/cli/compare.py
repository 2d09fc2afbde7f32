"""`trafficdp compare`: every mechanism on this map, from public counts, and which one `auto` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from trafficdp.audit.accuracy import absolute_errors
from trafficdp.audit.synthetic import synthetic_samples
from trafficdp.cli.output import Output
from trafficdp.cli.settings import Settings
from trafficdp.mechanisms.registry import mechanism_named
from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.outcomes import Plan
from trafficdp.planner.choose import Choice, choose, constant_error
from trafficdp.planner.fit import Split
from trafficdp.planner.offer import Offer
from trafficdp.privacy.loss import PureDP

RUNS = 5
SPLITS = {Split.SAME_EPSILON: "same epsilon", Split.EQUAL_NOISE: "equal noise"}


@dataclass(frozen=True)
class Comparison:
    """The choices of a map's statistics; ``simulated`` by statistic and mechanism, empty without a seed."""

    epsilon: PureDP
    bound: ContributionBound
    occupancy: Occupancy
    withheld: int
    choices: tuple[Choice, ...]
    seed: int | None
    simulated: dict[tuple[Statistic, str], float]


def compare(
    context: typer.Context,
    epsilon: Annotated[str | None, typer.Option(help="Total epsilon instead of the configured one.")] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Try each on made-up speeds too; the store's are not read.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the made-up speeds and their noise.")] = 1,
) -> None:
    """Show how far each mechanism may be off on this map, and which one `auto` takes. Nothing is spent."""
    settings: Settings = context.obj
    with settings.output.spinner("comparing from public counts"):
        plan = settings.workspace().plan(epsilon, suggestions=False)
        found = comparison(plan, seed if simulate else None)
    settings.output.result(comparison_facts(found))
    show(settings.output, found)


def comparison(plan: Plan, seed: int | None) -> Comparison:
    """Return the comparison on the bins of ``plan``; with a ``seed``, simulated on made-up speeds."""
    allocation = plan.allocation
    request, occupancy = allocation.request, allocation.occupancy
    choices = tuple(
        choose(occupancy, request.bound, statistic, request.epsilon) for statistic in request.tolerance
    )
    simulated = {} if seed is None else _simulated(occupancy, request.bound, choices, seed)
    withheld = int((~allocation.keep).sum())
    return Comparison(request.epsilon, request.bound, occupancy, withheld, choices, seed, simulated)


def _simulated(
    occupancy: Occupancy, bound: ContributionBound, choices: tuple[Choice, ...], seed: int
) -> dict[tuple[Statistic, str], float]:
    samples = synthetic_samples(occupancy, bound, seed)
    found = {}
    for choice in choices:
        for offer in choice.offers:
            if offer.fit is not None:
                errors = absolute_errors(
                    mechanism_named(offer.mechanism),
                    samples,
                    choice.statistic,
                    offer.fit.epsilon,
                    SimulatedNoise(seed),
                    RUNS,
                )
                found[choice.statistic, offer.mechanism] = float(np.mean(errors))
    return found


def comparison_facts(found: Comparison) -> dict[str, object]:
    """Return the comparison as plain JSON values: compare.schema.json."""
    return {
        "epsilon": str(found.epsilon),
        "unit": found.bound.unit.value,
        "bins": found.occupancy.bins,
        "bins_withheld": found.withheld,
        "seed": found.seed,
        "statistics": [
            {
                "statistic": choice.statistic.value,
                "auto": choice.chosen.mechanism,
                "reason": choice.reason,
                "constant_error": constant_error(choice.statistic, found.bound),
                "mechanisms": [_offer_facts(found, offer) for offer in choice.offers],
            }
            for choice in found.choices
        ],
    }


def _offer_facts(found: Comparison, offer: Offer) -> dict[str, object]:
    fit = offer.fit
    return {
        "mechanism": offer.mechanism,
        "idealised": offer.idealised,
        "split": None if fit is None else fit.split.value,
        "loss": None if fit is None else str(fit.event.loss),
        "median_error": None if fit is None else offer.median_error,
        "worst_error": None if fit is None else offer.worst_error,
        "simulated_error": found.simulated.get((offer.statistic, offer.mechanism)),
        "unavailable": offer.unavailable,
    }


def show(output: Output, found: Comparison) -> None:
    """Print the comparison for people."""
    for choice in found.choices:
        label = found.bound.unit.label
        unit = f"({label})^2" if choice.statistic is Statistic.VARIANCE else label
        columns = ["mechanism", "median", "worst", "noise", "epsilon split", "auto"]
        if found.seed is not None:
            columns.insert(3, "simulated")
        output.table(
            f"Expected error of the {choice.statistic.value.replace('_', ' ')}, {unit}, "
            f"at epsilon {found.epsilon}",
            columns,
            [_row(found, choice, offer) for offer in choice.offers],
        )
        for offer in choice.offers:
            if offer.unavailable is not None:
                output.say(f"{offer.mechanism} is not available: {offer.unavailable}.")
        output.say(f"auto: {choice.reason}.")
        output.say("")
    output.say(
        f"Each spends the whole epsilon on one statistic over {found.occupancy.bins} bins "
        f"({found.withheld} are withheld); no vehicle loses more. median, worst: over the bins, of the "
        "expected error at the worst speeds there could be, from public counts."
    )
    if found.seed is not None:
        output.say(
            f"simulated: mean error over the bins on made-up speeds (seed {found.seed}, {RUNS} runs); "
            "it says nothing about this city's speeds, and `auto` does not look at it."
        )
    output.say("idealised: no exact sampler, so it is never chosen. Nothing was spent.")


def _row(found: Comparison, choice: Choice, offer: Offer) -> list[object]:
    if offer.fit is None:
        numbers: list[object] = ["-", "-"]
        split = "-"
    else:
        numbers = [f"{offer.median_error:#.4g}", f"{offer.worst_error:#.4g}"]
        split = SPLITS[offer.fit.split]
    if found.seed is not None:
        simulated = found.simulated.get((choice.statistic, offer.mechanism))
        numbers.append("-" if simulated is None else f"{simulated:#.4g}")
    noise = "idealised" if offer.idealised else "exact"
    return [offer.mechanism, *numbers, noise, split, "<-" if offer is choice.chosen else ""]
