"""`trafficdp forget`: vehicles leave the vault, by identifiers on standard input."""

from __future__ import annotations

import sys
from dataclasses import asdict
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

    Their records and what they contribute go; what they were charged stays spent, and what was published
    stays published. The same is done and recorded whether the store knows them or not. What stays of them,
    and what backups need: docs/guides/store.md. On a terminal it asks first; elsewhere, and so where a file
    is given, it needs --yes.
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
        questions=lambda: [
            f"This takes the records of {_number(len(lines()), 'identifier')} out of the store for good. "
            "What was charged stays spent, and what was published stays published. Forget?"
        ],
        otherwise="Nothing was changed.",
    )
    with output.spinner("writing the vault anew"):
        found = open_workspace(**settings.opening()).forget(lines())
    output.say(
        f"the store was written anew without the records of {_number(found.identifiers, 'identifier')}, and "
        "its data has a new name: what was charged stays spent, and earlier releases can no longer be "
        "recomputed"
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
