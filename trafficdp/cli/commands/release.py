"""`trafficdp release`: charge, draw, publish."""

from __future__ import annotations

from typing import Annotated

import typer

from trafficdp.cli.words.options import EpsilonOption, RhoOption, WithinBudgetOption, loss_asked
from trafficdp.cli.words.output import shorten
from trafficdp.cli.words.settings import Settings
from trafficdp.privacy.release import BinStatus


def release(
    context: typer.Context,
    epsilon: EpsilonOption = None,
    rho: RhoOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Release even if it says too little; bins are marked.")
    ] = False,
    within_budget: WithinBudgetOption = False,
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
) -> None:
    """Charge every vehicle its loss, draw the noise and publish the map."""
    settings: Settings = context.obj
    workspace = settings.workspace()
    with settings.output.spinner("releasing"):
        done = workspace.release(
            loss_asked(epsilon, rho),
            force=force,
            within_budget=within_budget,
            plan=plan,
            allow_idealised_noise=allow_idealised_noise,
        )
    guarantee = done.release.disclosure.guarantee
    files = sorted(path.name for path in done.folder.iterdir())
    published = done.release
    numbers = int((published.status != BinStatus.WITHHELD.value).sum())
    settings.output.say(
        f"released {done.id} for {guarantee.in_short}: {numbers} bins with numbers, "
        f"{published.bins - numbers} withheld"
    )
    marked = int((published.status == BinStatus.UNINFORMATIVE.value).sum())
    if marked:
        settings.output.say(f"  {marked} of the numbers say too little and are marked so")
    for name in files:
        settings.output.say(f"  {shorten(done.folder / name)}")
    settings.output.result(
        {
            "release": done.id,
            "epsilon": guarantee.epsilon,
            **guarantee.concentrated,
            "folder": str(done.folder),
            "files": files,
        }
    )
