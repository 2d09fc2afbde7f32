"""`trafficdp release`: charge, draw, publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from trafficdp.cli.words.options import MapOptions, Settings, YesOption, shorten, with_map_options
from trafficdp.cli.words.plan_words import one_slot
from trafficdp.ingest.clean import FileReport
from trafficdp.release.results import Plan


@with_map_options
def release(
    context: typer.Context,
    asked: MapOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Release even if it says too little; bins are marked.")
    ] = False,
    plan: Annotated[
        str | None, typer.Option(metavar="<name>", help="Draw the very noise of this saved plan.")
    ] = None,
    allow_idealised_noise: Annotated[
        str | None,
        typer.Option(
            metavar="<mechanism>",
            help="Release by a mechanism whose noise has no exact sampler; the manifest records it.",
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Charge and draw anew what an earlier release answers for nothing."),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Charge every vehicle its loss, draw the noise and publish the map.

    On a terminal it asks first; elsewhere it needs --yes. The same release again costs nothing.
    """
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    workspace = open_workspace(**settings.opening()).with_map(**asked.changes)

    def questions() -> Iterator[str]:
        noisy = workspace
        if allow_idealised_noise is not None:
            noisy = workspace.with_idealised_noise(allow_idealised_noise)
        with settings.output.spinner("planning"):
            planned = noisy.plan(asked.loss, suggestions=False, within_budget=asked.within_budget, saved=plan)
        refused = planned.affordable.short or (planned.verdict.refused and not force)
        # what is refused anyway, or free, needs no answer
        if not refused and (again or not planned.earlier):
            yield _price(planned)
            little = workspace.kept_little()
            if little:
                yield _doubt(little)

    settings.output.confirm(yes=yes, questions=questions, otherwise="Nothing was charged.")
    with settings.output.spinner("releasing"):
        done = workspace.release(
            asked.loss,
            force=force,
            within_budget=asked.within_budget,
            plan=plan,
            allow_idealised_noise=allow_idealised_noise,
            again=again,
        )
    guarantee = done.release.disclosure.guarantee
    files = sorted(path.name for path in done.folder.iterdir())
    there = done.release.disclosure.coverage.bins
    bins = f"{there.total - there.withheld} bins with numbers, {there.withheld} withheld"
    if done.earlier:
        settings.output.say(
            f"release {done.id} answers this question of this data already, so nothing was charged: {bins}"
        )
        settings.output.say("  (--again charges every vehicle once more and draws new noise)")
    else:
        settings.output.say(f"released {done.id} for {guarantee.in_short}: {bins}")
    if done.left is not None:
        hidden = workspace.config.relation.hides_presence
        has = (
            "the account that all vehicles share has" if hidden else "every vehicle on this map has at least"
        )
        settings.output.say(f"  {has} {done.left.kind.quantity} {done.left} left")
    if workspace.config.slot_not_measured is not None:
        settings.output.say(f"  {one_slot(workspace.config.slot_not_measured, done.release.grid.noun)}")
    if there.uninformative:
        settings.output.say(f"  {there.uninformative} of the numbers say too little and are marked so")
    for name in files:
        settings.output.say(f"  {shorten(done.folder / name)}")
    settings.output.result(
        {
            "release": done.id,
            "epsilon": guarantee.epsilon,
            **guarantee.concentrated,
            "charged": not done.earlier,
            "left": None if done.left is None else str(done.left),
            "folder": str(done.folder),
            "files": files,
        }
    )


def _doubt(little: Sequence[FileReport]) -> str:
    """Return what is asked besides: only on a terminal, for it tells of records."""
    more = f", and little of {len(little) - 3} more" if len(little) > 3 else ""
    said = ", ".join(
        f"{report.rows_kept:,} of {report.rows_in:,} rows of {report.file}" for report in little[:3]
    )
    return (
        f"For your eyes only, outside the privacy guarantee: ingest kept {said}{more}. The price is the same "
        "for a map that says nothing. Release all the same?"
    )


def _price(planned: Plan) -> str:
    quantity, paying = planned.loss.kind.quantity, planned.affordable.paying
    cost, left = f"{quantity} {planned.loss}", f"{quantity} {planned.left_after}"
    if planned.allocation.request.relation.hides_presence:
        price = f"This charges the account that all vehicles share {cost}. It then has {left} left."
    elif paying == 1:
        price = f"This charges 1 vehicle at most {cost}. It then has at least {left} left."
    else:
        price = (
            f"This charges {paying} vehicles, each at most {cost}. Every one then has at least {left} left."
        )
    asked = planned.slot_not_measured
    times = "" if asked is None else f"{one_slot(asked, planned.grid.noun)} "
    return f"{times}{price} What is spent never comes back. Release?"
