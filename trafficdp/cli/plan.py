"""`trafficdp plan`: the ladder, and what a release would say. Nothing is spent."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from trafficdp.cli.output import Output
from trafficdp.cli.settings import Settings
from trafficdp.model.statistic import Statistic
from trafficdp.outcomes import Plan
from trafficdp.planner.ladder import Rung
from trafficdp.planner.refusal import judged_statistic

MEANING = {
    "basic": "every bin to every vehicle",
    "grid_count": "the bins of the busiest vehicle",
    "exact": "each vehicle's own loss",
    "equal": "own loss, equal noise in all bins",
    "blocks": "own loss, bins share draws of noise",
}


def plan(
    context: typer.Context,
    epsilon: Annotated[str | None, typer.Option(help="Total epsilon instead of the configured one.")] = None,
) -> None:
    """Show what a release would cost and how far its numbers would be off. Nothing is spent."""
    settings: Settings = context.obj
    with settings.output.spinner("planning from public counts"):
        result = settings.workspace().plan(epsilon)
    facts = plan_facts(result)
    settings.output.result(facts)
    show(settings.output, result, facts)


def plan_facts(result: Plan) -> dict[str, object]:
    """Return the plan as plain JSON values: plan.schema.json."""
    allocation = result.allocation
    request = allocation.request
    statistic = judged_statistic(request)
    epsilon = float(request.epsilon.epsilon)
    scale = allocation.chosen.worst_relative_scale(epsilon, request.tolerance)
    noise = float(allocation.chosen.scales(epsilon)[statistic].max())
    return {
        "epsilon": str(request.epsilon),
        "loss": str(allocation.loss),
        "chosen": allocation.chosen.name,
        "statistic": statistic.value,
        "unit": request.bound.unit.value,
        "bins": allocation.occupancy.bins,
        "bins_withheld": int((~allocation.keep).sum()),
        "at_worst_error": noise,
        "floor": allocation.floor,
        "refused": result.verdict.refused,
        "median_error": result.verdict.median_error,
        "refuse_above": result.verdict.threshold,
        "suggestions": None
        if result.suggestions is None
        else {
            "epsilon": result.suggestions.epsilon,
            "min_vehicles": result.suggestions.min_vehicles,
            "resolution": result.suggestions.resolution,
            "slot": result.suggestions.slot_kind.value if result.suggestions.slot_kind else None,
        },
        "budget_left": str(result.budget_left),
        "ladder": [_rung_facts(rung, result, statistic, scale, noise) for rung in allocation.rungs],
    }


def _rung_facts(
    rung: Rung, result: Plan, statistic: Statistic, scale: float, noise: float
) -> dict[str, object]:
    request = result.allocation.request
    errors = rung.errors(float(request.epsilon.epsilon), request.bound)
    return {
        "rung": rung.name,
        "epsilon": rung.epsilon_at(scale, request.tolerance),
        "at_worst_error": noise,
        "worst_error": float(errors[statistic].max()),
        "mean_error": float(errors[statistic].mean()),
        "by_statistic": {
            each.value: {"worst_error": float(error.max()), "mean_error": float(np.mean(error))}
            for each, error in errors.items()
        },
    }


def show(output: Output, result: Plan, facts: dict[str, object]) -> None:
    """Print the plan for people."""
    allocation = result.allocation
    request = allocation.request
    statistic = judged_statistic(request)
    unit = _unit(statistic, request.bound.unit.label)
    epsilon, loss, left = request.epsilon, allocation.loss, result.budget_left
    rungs = facts["ladder"]
    rows = [
        [each["rung"], each["epsilon"], each["worst_error"], each["mean_error"], MEANING[each["rung"]]]
        for each in (rungs if isinstance(rungs, list) else [])
    ]
    name = statistic.value.replace("_", " ")
    output.table(
        f"Five ways to account for one release ({name}, {unit})",
        ["rung", "epsilon", "worst error", "mean error", "charges"],
        rows,
        prose=("charges",),
    )
    output.say("epsilon: what each would have to spend for the noise of the best")
    output.say(f"errors: what each would reach with epsilon {epsilon}; worst and mean over the bins")
    output.say("")
    errors = allocation.errors()[statistic]
    worst, typical = f"{errors.max():.3g}", f"{errors.mean():.3g}"
    output.say(
        f"In plain words: on average, noise puts the published {name} of a bin (a hexagon in a time slot) "
        f"{typical} {unit} off"
        + ("" if worst == typical else f", {worst} in the worst bin")
        + f", on a scale from 0 to {statistic.largest(request.bound.upper):g}."
    )
    withheld = int((~allocation.keep).sum())
    output.say(
        f"{allocation.occupancy.bins} bins get numbers; {withheld} are withheld, "
        f"with fewer than {request.min_vehicles} vehicles."
    )
    output.say(
        f"The noise is {facts['at_worst_error']:.4g} {unit} in size, on average, by rung "
        f"{allocation.chosen.name}. Equal Laplace noise of means is never below {allocation.floor:.4g} here."
    )
    output.say(
        f"The release costs a vehicle at most epsilon {loss}; every vehicle on this map has {left} left."
    )
    if loss > left:
        output.say("That may not be enough: then `trafficdp release` is refused, with exit code 3.")
    verdict = result.verdict
    judged = (
        f"the median expected error is {verdict.median_error:.3g} {unit}, the limit {verdict.threshold:.3g}"
    )
    output.say(f"It would be REFUSED: {judged}." if verdict.refused else f"It may be released: {judged}.")
    if result.suggestions is not None:
        words = result.suggestions.in_words()
        output.say(f"{words[0].upper()}{words[1:]}.")
        needed = result.suggestions.epsilon
        if needed is not None and needed > float(left.epsilon):
            output.say(f"(Epsilon {needed:.3g} is more than the {left} that every vehicle has left.)")
    output.say("Nothing was spent.")


def _unit(statistic: Statistic, label: str) -> str:
    return f"({label})^2" if statistic is Statistic.VARIANCE else label
