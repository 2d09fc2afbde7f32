"""`trafficdp status`: what the store holds."""

from __future__ import annotations

from dataclasses import asdict

import typer

from trafficdp.cli.output import shorten
from trafficdp.cli.settings import Settings


def status(context: typer.Context) -> None:
    """Show what the store holds and how much budget is left. For the curator's eyes."""
    settings: Settings = context.obj
    facts = settings.workspace().status()
    left = max(0, facts.budget.pico - facts.largest_spent.pico)
    output = settings.output
    output.say(f"store            {shorten(facts.store)}")
    output.say(f"fixes            {facts.fixes:,} of {facts.vehicles:,} vehicles, from {facts.files} files")
    if facts.derived:
        output.say(f"derived speeds   {facts.derived:,}: derived runs lower than reported")
    output.say(
        f"releases         {facts.releases}"
        + (f", {facts.unfinished} unfinished" if facts.unfinished else "")
    )
    output.say(f"budget           {facts.budget} a vehicle; the busiest has spent {facts.largest_spent}")
    output.say(f"sum of releases  {facts.sum_of_maxima}")
    exact = {
        name: str(getattr(facts, name)) for name in ("store", "largest_spent", "sum_of_maxima", "budget")
    }
    output.result({**asdict(facts), **exact, "left_pico": left})
