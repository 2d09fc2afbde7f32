"""`trafficdp plan`: what does it cost, what would it take, which map fits? Nothing is spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from trafficdp._durable import disk_errors
from trafficdp.cli.options import MapOptions, Settings, loss_from_options, with_options
from trafficdp.cli.plan_words import plan_facts, show, show_full
from trafficdp.errors import UsageError, one_of
from trafficdp.export.report.loss_chart import KINDS, Line, LossChart, Point, chart_bytes
from trafficdp.model import Grid, Statistic
from trafficdp.planner.allocate import by_baseline
from trafficdp.release.results import Plan
from trafficdp.research.full_comparison import FullCurves, accounting_curves, full_curves

NAMES = {
    "basic": "basic: G x eps",
    "grid_count": "grid count: G1 x eps",
    "clip_user": "Clip-User: K x eps",
    "suppression": "best suppression",
    "exact": "exact loss",
    "suppressed": "exact, suppressed",
    "equal": "equal noise",
    "blocks": "block noise",
    "joint": "ranges and scales",
    "gaussian": "Gaussian, delta 10^-6",
}


@with_options
def plan(
    context: typer.Context,
    map_options: MapOptions,
    max_half_width: Annotated[
        str | None,
        typer.Option(
            metavar="<speed>",
            help='What makes intervals so narrow, in the median bin ("5 km/h") or "5 km/h in every bin"? '
            "Alone: which loss; with --epsilon or --rho: which is the finest map that keeps to both? "
            "(A bare number: in speed_unit.)",
        ),
    ] = None,
    every_accounting: Annotated[
        float | None,
        typer.Option(
            metavar="<seconds>",
            min=1.0,
            help="Compare every accounting for the means, solvers included, in about so many seconds.",
        ),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(metavar="<name>", help="Keep the plan for `release --plan <name>`."),
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="<file>", help="Draw loss against error: .svg, .png or .pdf.")
    ] = None,
) -> None:
    """Show what a release would cost, what a precision would take, or which map fits. Nothing is spent."""
    settings: Settings = context.obj
    output = settings.output
    workspace = settings.workspace(map_options=map_options)
    kind = None if chart is None else one_of(KINDS, chart=chart.suffix.lower().removeprefix("."))
    config = workspace.config
    loss = loss_from_options(map_options.epsilon, map_options.rho)
    with output.progress_steps("planning from public counts") as step:

        def looked_at(grid: Grid) -> None:
            step(f"looking at {grid.in_words()}, slot {grid.slot_kind.value}", 0, None)

        result = workspace.plan(
            loss,
            max_half_width=max_half_width,
            search_maps=looked_at if max_half_width is not None and loss is not None else False,
            within_budget=map_options.within_budget,
            save=save,
        )
        full = None
        priced = result
        if chart is not None or every_accounting is not None:
            priced = replace(result, allocation=by_baseline(result.allocation))
        if every_accounting is not None:
            step("computing every accounting", 0, None)
            full = full_curves(
                priced.allocation,
                every_accounting,
                lambda done, of: step("computing every accounting", done, of),
            )
    if chart is not None and kind is not None:
        drawn = chart_bytes(_chart(priced, full, config.city.name), kind)
        with disk_errors(chart):
            chart.write_bytes(drawn)
    facts = plan_facts(result, full)
    output.result(facts)
    show(output, result, facts)
    if full is not None:
        show_full(output, priced, full)
    output.say("Nothing was spent.")
    if save is not None:
        output.say(f"Saved as {save}: `trafficdp release --plan {save}` draws this very noise.")


def _chart(result: Plan, full: FullCurves | None, city: str) -> LossChart:
    """What is drawn: the accountings of the release or, once computed, every accounting of the means."""
    allocation = result.allocation
    request = allocation.request
    statistic = Statistic.MEAN if full is not None else request.main
    curves = accounting_curves(allocation) if full is None else full.curves
    if not curves:
        raise UsageError("there is nothing to draw", got="a map that needs no noise")
    epsilon = float(request.loss.exact)
    noise = float(allocation.chosen_accounting.scales(epsilon)[statistic].max())

    def shown(points: tuple[Point, ...]) -> tuple[Point, ...]:
        return tuple((result.in_display_unit(error, statistic), needed) for error, needed in points)

    released = ", ".join(each.value for each in request.tolerance)
    what = released if full is None else f"every accounting for means alone; planned: {released}"
    return LossChart(
        title=f"Privacy loss against error: {city}",
        subtitle=f"{what.replace('_', ' ')}; {allocation.counts.bins} bins, "
        f"{result.grid.in_words()}, {result.grid.slot_kind.value.replace('_', ' ')}, at least "
        f"{request.min_vehicles} vehicles",
        unit=statistic.unit(result.display_unit),
        lines=tuple(
            Line(
                NAMES[curve.name], shown(curve.points), chosen=curve.name == allocation.chosen_accounting.name
            )
            for curve in curves
        ),
        planned=(result.in_display_unit(noise, statistic), epsilon),
        left=float(result.budget_left.exact),
    )
