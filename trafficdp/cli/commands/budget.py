"""`trafficdp budget`: what the store promises, and changing it for a reason."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from trafficdp.cli.words.options import Settings
from trafficdp.errors import UsageError
from trafficdp.release.status import read_budget

RAISE = "raise"


def budget(
    context: typer.Context,
    action: Annotated[
        str | None,
        typer.Argument(metavar="[raise]", help="raise: promise from now on what the configuration says."),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(metavar="<text>", help="Why; it is published with every later release."),
    ] = None,
) -> None:
    """Show what the store promises: its ceilings, delta, speed bound and analysts' ceilings.

    They are those of the configuration until the first file is read or the first charge is made; from then on
    the ledger holds them. `trafficdp budget raise --reason TEXT` takes what the configuration says now, be it
    more or less. The ledger and every later release show from what to what, when and why. The neighbouring
    relation and the kind of loss never change.
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
        raise UsageError("a budget is changed for a reason", todo='add --reason "..."')
    from trafficdp.workspace import open_workspace

    changed = open_workspace(**settings.opening()).raise_budget(reason)
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
    for what, said in ({} if promised is None else promised.stated()).items():
        output.say(f"{what}: {said}")
    for change in found.changes:
        output.say(f"changed {change.in_words}")
    for each in found.configured_otherwise:
        output.say(f"the configuration says otherwise: {each.what} {each.after}")
    output.result(
        {
            "promised": None if promised is None else promised.stated(),
            "changes": [asdict(change) for change in found.changes],
            "configured_otherwise": [asdict(each) for each in found.configured_otherwise],
        }
    )
