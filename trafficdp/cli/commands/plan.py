"""`trafficdp plan`: what does it cost, what would it take, which map fits? Nothing is spent."""

from __future__ import annotations

import re
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import EpsilonOption, RhoOption, WithinBudgetOption
from trafficdp.cli.words.plan_facts import plan_facts
from trafficdp.cli.words.plan_words import show, unit_in_words
from trafficdp.cli.words.plan_zcdp import require_rho_only, show_zcdp, zcdp_facts
from trafficdp.cli.words.settings import Settings
from trafficdp.errors import UsageError
from trafficdp.export.files.file import disk_errors
from trafficdp.export.report.loss_chart import Line, LossChart, loss_chart
from trafficdp.model.bound import ContributionBound
from trafficdp.model.grid import Grid
from trafficdp.model.speed_unit import parse_speed_unit
from trafficdp.model.statistic import Statistic
from trafficdp.planner.compare.loss_curves import FullCurves, accounting_curves, full_curves
from trafficdp.planner.precision import Reach
from trafficdp.planner.refusal import judged_statistic, largest_passing_scale
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.release.outcomes import Plan

__all__ = ["plan", "plan_facts", "show"]

NAMES = {
    "basic": "basic: G x eps",
    "grid_count": "grid count: G1 x eps",
    "clip_user": "Clip-User: K x eps",
    "suppression": "best suppression",
    "exact": "exact loss",
    "suppressed": "exact, suppressed",
    "equal": "equal noise",
    "blocks": "block noise",
    "moments": "sums of x, x (U - x)",
    "consistent": "blocks with larger hexagons",
    "joint": "ranges and scales",
    "gaussian": "Gaussian, delta 10^-6",
}
_HALF_WIDTH = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(\D.*?)?\s*")


class Accountings(StrEnum):
    """Which accountings are compared."""

    QUICK = "quick"
    ALL = "all"


def plan(
    context: typer.Context,
    epsilon: EpsilonOption = None,
    rho: RhoOption = None,
    max_half_width: Annotated[
        str | None,
        typer.Option(
            metavar="<speed>",
            help='Which epsilon makes intervals so narrow, such as "5 km/h"? (A bare number: in speed_unit.)',
        ),
    ] = None,
    max_epsilon: Annotated[
        str | None,
        typer.Option(
            metavar="<number>", help="With --max-half-width: which is the finest map that keeps to both?"
        ),
    ] = None,
    every_bin: Annotated[
        bool,
        typer.Option("--every-bin", help="The half width must hold in every bin, not in the median."),
    ] = False,
    within_budget: WithinBudgetOption = False,
    accountings: Annotated[
        Accountings,
        typer.Option(help="all: compare every accounting for the means, solvers included."),
    ] = Accountings.QUICK,
    seconds: Annotated[
        float, typer.Option(min=1.0, help="About how long --accountings all may take.")
    ] = 60.0,
    save: Annotated[
        str | None,
        typer.Option(metavar="<name>", help="Keep the plan for `release --plan <name>`."),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="<file>", help="Draw loss against error into this SVG file.")
    ] = None,
) -> None:
    """Show what a release would cost, what a precision would take, or which map fits. Nothing is spent."""
    settings: Settings = context.obj
    output = settings.output
    if max_half_width is not None and epsilon is not None:
        raise UsageError(
            "--epsilon and --max-half-width ask two questions",
            todo="give --max-half-width alone (which epsilon?) or with --max-epsilon (which map?)",
        )
    if max_half_width is None and (max_epsilon is not None or every_bin):
        raise UsageError(
            "--max-epsilon and --every-bin belong to --max-half-width",
            todo='add --max-half-width "5 km/h", or ask with --epsilon',
        )
    workspace = settings.workspace()
    config = workspace.config
    if rho is not None or config.policy.kind is LossKind.ZCDP:
        require_rho_only(
            epsilon=epsilon,
            max_half_width=max_half_width,
            max_epsilon=max_epsilon,
            every_bin=every_bin,
            within_budget=within_budget,
            accountings=accountings is Accountings.ALL,
            save=save,
            chart=chart,
        )
        found = workspace.zcdp.plan(rho)
        output.result(zcdp_facts(found))
        show_zcdp(output, found)
        return
    width = (
        None if max_half_width is None else _half_width(max_half_width, config.bound, config.map.statistics)
    )
    with output.steps("planning from public counts") as step:

        def looked_at(grid: Grid) -> None:
            step(f"looking at resolution {grid.resolution}, slot {grid.slot_kind.value}", 0, None)

        result = workspace.plan(
            epsilon if max_epsilon is None else max_epsilon,
            max_half_width=width,
            reach=Reach.EVERY if every_bin else Reach.MEDIAN,
            search_maps=looked_at if max_epsilon is not None else False,
            within_budget=within_budget,
            save=save,
        )
        full = None
        if accountings is Accountings.ALL:
            step("computing every accounting", 0, None)
            full = full_curves(
                result.allocation, seconds, lambda done, of: step("computing every accounting", done, of)
            )
    if chart is not None:
        drawn = loss_chart(_chart(result, full, config.city.name))
        with disk_errors(chart):
            chart.write_text(drawn, encoding="utf-8")
    facts = plan_facts(result, full)
    output.result(facts)
    show(output, result, facts, full)
    if save is not None:
        output.say(f"Saved as {save}: `trafficdp release --plan {save}` draws this very noise.")


def _half_width(text: str, bound: ContributionBound, statistics: tuple[Statistic, ...]) -> float:
    """Return what was asked in the unit of the speed bound; raise UsageError when it is no speed."""
    expected = 'a number above 0, alone or with a unit, such as "5 km/h"'
    found = _HALF_WIDTH.fullmatch(text)
    if found is None or not (number := Fraction(found[1])):
        raise UsageError("--max-half-width is not a speed", got=f"{text:.40}", expected=expected)
    if found[2] is None:
        return float(number)
    if statistics == (Statistic.VARIANCE,):
        raise UsageError(
            "a half width of a variance has no unit of speed",
            got=f"{text:.40}",
            expected=f"a bare number, in ({bound.unit.label})^2",
        )
    return float(number * parse_speed_unit(found[2], where="--max-half-width").factor_to(bound.unit))


def _chart(result: Plan, full: FullCurves | None, city: str) -> LossChart:
    """What is drawn: the accountings of the release or, once computed, every accounting of the means."""
    allocation = result.allocation
    request = allocation.request
    statistic = Statistic.MEAN if full is not None else judged_statistic(request)
    curves = accounting_curves(allocation) if full is None else full.curves
    if not curves:
        raise UsageError("there is nothing to draw", got="a map that needs no noise")
    epsilon = float(request.epsilon.epsilon)
    noise = float(allocation.chosen.scales(epsilon)[statistic].max())
    released = ", ".join(each.value for each in request.tolerance)
    what = released if full is None else f"every accounting for means alone; planned: {released}"
    return LossChart(
        title=f"Privacy loss against error: {city}",
        subtitle=f"{what.replace('_', ' ')}; {allocation.counts.bins} bins, resolution "
        f"{result.grid.resolution}, {result.grid.slot_kind.value.replace('_', ' ')}, at least "
        f"{request.min_vehicles} vehicles",
        unit=unit_in_words(result),
        lines=tuple(
            Line(NAMES[curve.name], curve.points, chosen=curve.name == allocation.chosen.name)
            for curve in curves
        ),
        planned=(noise, epsilon),
        left=float(result.budget_left.epsilon),
        limit=largest_passing_scale(request),
    )
