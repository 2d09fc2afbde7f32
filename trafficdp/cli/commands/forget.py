"""`trafficdp forget`: vehicles leave the vault, by identifiers on standard input."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated

import typer

from trafficdp.cli.words.options import Output, Settings, YesOption
from trafficdp.errors import UsageError


def forget(
    context: typer.Context,
    identifiers: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    yes: YesOption = False,
) -> None:
    """Take the vehicles whose identifiers stand on standard input, one a line, out of the store.

    Their records, what they contribute and their pseudonyms go; what they were charged stays spent, and what
    was published stays published. Nothing brings them back: docs/guides/store.md says what backups need. On a
    terminal it asks first; elsewhere, and so where a file is given, it needs --yes.
    """
    from trafficdp.workspace import open_workspace

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
        question=lambda: (
            f"This takes what the store knows of {_identifiers(len(lines()))} out of it for good. What was "
            "charged stays spent, and what was published stays published. Forget?"
        ),
        otherwise="Nothing was changed.",
    )
    with output.spinner("writing the vault anew"):
        found = open_workspace(**settings.opening()).forget(lines())
    if found.vehicles:
        vehicles = "vehicle" if found.vehicles == 1 else "vehicles"
        output.say(
            f"forgot {found.vehicles} {vehicles}; charges stay spent, and releases of the same data can no "
            "longer be recomputed"
        )
    else:
        output.say("nothing was changed")
    if found.unknown:
        output.say(
            f"{found.unknown} of the identifiers "
            f"{'is' if found.unknown == 1 else 'are'} of no vehicle in this store"
        )
    output.result({"forgotten": found.vehicles, "unknown": found.unknown, "outside_the_guarantee": True})


def _typed(output: Output) -> list[str]:
    if sys.stdin.isatty():
        output.say("Identifiers, one a line; end with Ctrl-D:")
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise UsageError(
            "the identifiers cannot be read", got="bytes that are not UTF-8", expected="text, one a line"
        ) from None


def _identifiers(number: int) -> str:
    return f"{number} identifier{'s'[: number != 1]}"
