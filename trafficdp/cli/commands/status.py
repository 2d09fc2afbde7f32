"""`trafficdp status`: what the store holds."""

from __future__ import annotations

from dataclasses import asdict

import typer

from trafficdp.cli.words.options import Settings, shorten
from trafficdp.release.status import read_status


def status(context: typer.Context) -> None:
    """Show what the store holds and how much budget is left. For the curator's eyes."""
    settings: Settings = context.obj
    # not by way of a workspace, which takes seconds to load
    config, store, _ = settings.places()
    facts = read_status(config, store, wait=settings.wait)
    left = max(0, facts.budget.pico - facts.largest_spent.pico)
    output = settings.output
    output.say(f"store            {shorten(facts.store)}")
    eyes = " (for the curator's eyes)" if config.relation.hides_presence else ""
    files = f"{facts.files} file{'s'[: facts.files != 1]}"
    output.say(f"records          {facts.records:,} of {facts.vehicles:,} vehicles, from {files}{eyes}")
    if facts.derived:
        output.say(f"derived speeds   {facts.derived:,}: derived runs lower than reported")
    output.say(
        f"releases         {facts.releases}"
        + (f", {facts.unfinished} unfinished" if facts.unfinished else "")
    )
    rho = "" if facts.delta is None else "rho "
    told = "" if facts.in_epsilon is None else f", which is {facts.in_epsilon}"
    hidden = config.relation.hides_presence
    shared = "in the account that all vehicles share, which has spent"
    spent_by = shared if hidden else "a vehicle; the busiest has spent"
    output.say(f"budget           {rho}{facts.budget} {spent_by} {facts.largest_spent}{told}")
    for window in facts.windows:
        output.say(
            f"{'budget ' + window.name:<16} {window.ceiling} a vehicle; the busiest has spent "
            f"{window.largest_spent}"
        )
    for change in facts.budget_changes:
        output.say(f"budget changed   {change.in_words}")
    output.say(f"sum of releases  {facts.sum_of_maxima}")
    budgets = {each.name: str(each.budget) for each in config.analysts}
    spent = {each.name: each for each in facts.analysts}
    analysts = []
    for name in [*budgets, *(each for each in spent if each not in budgets)]:
        largest = str(spent[name].largest_spent) if name in spent else "0"
        charges = spent[name].charges if name in spent else 0
        budget = budgets.get(name)
        ceiling = "not in the configuration" if budget is None else f"may spend {rho}{budget}"
        output.say(
            f"analyst          {name}: {ceiling}; has spent {largest} of a vehicle, by {charges} "
            + ("question" if charges == 1 else "questions")
        )
        analysts.append({"name": name, "budget": budget, "largest_spent": largest, "charges": charges})
    exact = {
        name: str(getattr(facts, name)) for name in ("store", "largest_spent", "sum_of_maxima", "budget")
    }
    windows = [
        {"window": each.name, "budget": str(each.ceiling), "largest_spent": str(each.largest_spent)}
        for each in facts.windows
    ]
    output.result({**asdict(facts), **exact, "left_pico": left, "analysts": analysts, "windows": windows})
