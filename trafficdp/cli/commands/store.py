"""The commands `status`, `doctor`, `budget` and `forget`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import cache
from typing import Annotated

import typer

from trafficdp.cli.options import Output, Settings, YesOption, relative_path
from trafficdp.config.document import read_places, store_and_key
from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.release.status import read_budget, read_status


def status(context: typer.Context) -> None:
    """Show what the store holds and how much budget is left. For the curator's eyes."""
    settings: Settings = context.obj
    # not by way of a workspace, which takes seconds to load
    config, store, _ = settings.places()
    facts = read_status(config, store, wait=settings.wait)
    left = max(0, facts.budget.pico - facts.largest_spent.pico)
    output = settings.output
    output.say(f"store            {relative_path(facts.store)}")
    hidden = config.relation.hides_presence
    eyes = " (for the curator's eyes)" if hidden else ""
    files = f"{facts.files} file{'s'[: facts.files != 1]}"
    output.say(f"records          {facts.records:,} of {facts.vehicles:,} vehicles, from {files}{eyes}")
    if facts.derived:
        output.say(f"derived speeds   {facts.derived:,}: they are lower than reported speeds")
    output.say(
        f"releases         {facts.releases}"
        + (f", {facts.unfinished} unfinished" if facts.unfinished else "")
    )
    quantity = "epsilon" if facts.delta is None else "rho"
    implied = "" if facts.epsilon_in_words is None else f", which is {facts.epsilon_in_words}"
    shared = "for all vehicles together; spent:"
    spent_by = shared if hidden else "for each vehicle; the most that one has spent:"
    output.say(f"budget           {quantity} {facts.budget} {spent_by} {facts.largest_spent}{implied}")
    for window in facts.windows:
        output.say(
            f"{'budget ' + window.name:<16} {quantity} {window.ceiling} for each vehicle; the most that one "
            f"has spent: {window.largest_spent}"
        )
    for change in facts.budget_changes:
        output.say(f"budget changed   {change.in_words}")
    output.say(f"sum of releases  {quantity} {facts.sum_of_maxima}")
    budgets = {each.name: str(each.budget) for each in config.analysts}
    spent = {each.name: each for each in facts.analysts}
    analysts = []
    for name in [*budgets, *(each for each in spent if each not in budgets)]:
        largest = str(spent[name].largest_spent) if name in spent else "0"
        charges = spent[name].charges if name in spent else 0
        budget = budgets.get(name)
        ceiling = "not in the configuration" if budget is None else f"may spend {quantity} {budget}"
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


def doctor(context: typer.Context) -> None:
    """Check records, ledger, key, releases and plans; say what to restore, and change nothing."""
    from trafficdp.release.diagnosis import State, examine

    settings: Settings = context.obj
    store, key = store_and_key(settings.config, settings.store, *read_places(settings.config))
    with settings.output.spinner("looking"):
        findings = examine(store, key, wait=settings.wait)
    for each in findings:
        mark = each.state.upper() if each.state is State.DAMAGED else each.state
        said = "; ".join(part for part in (each.found, each.todo) if part)
        settings.output.say(f"{mark:<8} {each.what}" + (f": {said}" if said else ""))
    whole = all(each.state in (State.WHOLE, State.NOTE) for each in findings)
    settings.output.result(
        {
            "store": str(store),
            "whole": whole,
            "findings": [
                {"what": each.what, "state": each.state.value, "found": each.found, "todo": each.todo}
                for each in findings
            ],
        }
    )
    if not whole:
        damaged = [each for each in findings if each.state is State.DAMAGED]
        raise StoreDamagedError(
            "the store is not whole",
            got="; ".join(f"{each.what}: {each.found}" for each in damaged),
            todo="; ".join(dict.fromkeys(each.todo for each in damaged if each.todo)),
        )


RAISE = "raise"


def budget(
    context: typer.Context,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[raise]", help="raise: from now on promise what the configuration says."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(metavar="<text>", help="Why; it is published with every later release."),
    ] = None,
) -> None:
    """Show what the store promises: budgets, delta, speed bound and the analysts' budgets.

    Until the first ingest or charge they are those of the configuration; from then on the ledger holds them.
    To change one, write it into the configuration, then run `trafficdp budget raise --reason TEXT`; it may
    also become smaller. The ledger and every later release show the old and the new value, when and why. The
    neighbouring relation and the kind of loss never change.
    """
    settings: Settings = context.obj
    if action not in (None, RAISE):
        raise UsageError("there is no such action", got=f"{action:.40}", expected="raise, or nothing to see")
    if action is None:
        if reason is not None:
            raise UsageError("a reason changes nothing by itself", todo="run `trafficdp budget raise`")
        _show(settings)
        return
    if reason is None:
        raise UsageError("a change of the budget needs a reason", todo='add --reason "..."')
    changed = settings.workspace().raise_budget(reason)
    for each in changed:
        settings.output.say(f"{each.what}: {each.before} before, {each.after} from now on")
    settings.output.say("every later release shows it, with the reason")
    settings.output.result({"changed": [asdict(each) for each in changed], "reason": reason.strip()})


def _show(settings: Settings) -> None:
    config, store, _ = settings.places()
    found = read_budget(config, store, wait=settings.wait)
    output = settings.output
    promised = found.promised
    if promised is None:
        output.say("the store promises nothing yet: the configuration counts until the first file or charge")
    for what, said in ({} if promised is None else promised.in_words()).items():
        output.say(f"{what}: {said}")
    for change in found.changes:
        output.say(f"changed {change.in_words}")
    for each in found.configured_otherwise:
        output.say(f"the configuration says otherwise: {each.what} {each.after}")
    output.result(
        {
            "promised": None if promised is None else promised.in_words(),
            "changes": [asdict(change) for change in found.changes],
            "configured_otherwise": [asdict(each) for each in found.configured_otherwise],
        }
    )


def forget(
    context: typer.Context,
    identifiers: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    yes: YesOption = False,
) -> None:
    """Remove all records of vehicles, whose identifiers are read from standard input, one a line.

    Example: `trafficdp forget --yes < plates.txt`. What these vehicles were charged stays spent, and what was
    published stays published. The same is done and recorded whether the store knows a vehicle or not. What
    stays of them, and what backups need: docs/guides/store.md. On a terminal it asks first; with a file or a
    pipe it needs --yes.
    """
    settings: Settings = context.obj
    output = settings.output
    if identifiers:
        raise UsageError(
            "identifiers are not taken as arguments, which all users of this computer can see",
            todo="give them on standard input, one a line",
        )
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("there is no standard input", expected="identifiers, one a line")

    @cache
    def lines() -> list[str]:
        return _typed(output)

    output.confirm(
        yes=yes,
        questions=lambda: [
            f"This takes the records of {_number(len(lines()), 'identifier')} out of the store for good. "
            "What was charged stays spent, and what was published stays published. Forget?"
        ],
        if_declined="Nothing was changed.",
    )
    with output.spinner("writing the store anew"):
        found = settings.workspace().forget(lines())
    output.say(
        f"the store was written anew without the records of {_number(found.identifiers, 'identifier')}, and "
        "its data counts as new: what was charged stays spent, and `verify` can no longer recompute earlier "
        "releases"
    )
    output.say(
        "for the curator's eyes, outside the privacy guarantee: "
        f"{_number(found.vehicles, 'vehicle')} of this store {'was' if found.vehicles == 1 else 'were'} "
        f"named, and {_number(found.unknown, 'identifier')} of none"
    )
    output.result(asdict(found) | {"outside_the_guarantee": True})


def _typed(output: Output) -> list[str]:
    if sys.stdin.isatty():
        output.say("Identifiers, one a line; end with Ctrl-D:")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UsageError(
            "the identifiers cannot be read", got="bytes that are not UTF-8", expected="text, one a line"
        ) from None


def _number(number: int, of: str) -> str:
    return f"{number} {of}{'s'[: number != 1]}"
