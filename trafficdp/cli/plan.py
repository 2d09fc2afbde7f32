"""`trafficdp plan`: the ladder, and what a release would say. Nothing is spent."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from trafficdp.cli.output import Output
from trafficdp.cli.settings import Settings
from trafficdp.model.statistic import Statistic
from trafficdp.planner.ladder import Rung
from trafficdp.planner.refusal import judged_statistic
from trafficdp.workspace import Plan

MEANING = {
    "basic": "every bin charged to every vehicle: G x epsilon",
    "grid_count": "bins of the busiest vehicle: G1 x epsilon",
    "exact": "each vehicle's exact own loss",
    "equal": "the same, with equal noise in all bins",
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
    unit = request.bound.unit.label
    statistic = judged_statistic(request)
    ladder = facts["ladder"]
    rows = [
        [each["rung"], MEANING[each["rung"]], each["epsilon"], each["worst_error"], each["mean_error"]]
        for each in (ladder if isinstance(ladder, list) else [])
    ]
    output.table(
        f"What the same noise costs, and what epsilon {request.epsilon} buys ({statistic.value}, {unit})",
        ["rung", "what is counted", "epsilon for the noise below", "worst error", "mean error"],
        rows,
    )
    output.say(
        f"the release: epsilon {allocation.loss} at rung {allocation.chosen.name}, Laplace scale "
        f"{facts['at_worst_error']:.4g} {unit}, {allocation.occupancy.bins} bins, "
        f"{facts['bins_withheld']} withheld (fewer than {request.min_vehicles} vehicles)"
    )
    output.say(f"no equal noise of means goes below G U / (L epsilon) = {allocation.floor:.4g} {unit}")
    output.say(f"left for the vehicles of this map: epsilon {result.budget_left} at most")
    verdict = result.verdict
    judged = f"median expected error {verdict.median_error:.3g} against {verdict.threshold:.3g} {unit}"
    if verdict.refused:
        output.say(f"it would be REFUSED: {judged}")
        if result.suggestions is not None:
            output.say(result.suggestions.in_words())
    else:
        output.say(f"it may be released: {judged}")
    output.say("nothing was spent")
