"""`trafficdp withdraw`: take a release back. The budget stays spent."""

from __future__ import annotations

import typer

from trafficdp.cli.words.options import ReleaseArgument, Settings


def withdraw(
    context: typer.Context,
    release: ReleaseArgument,
) -> None:
    """Remove a release's files and rows. Its budget is not given back: what was seen stays seen."""
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    open_workspace(**settings.opening()).withdraw(release)
    settings.output.say(f"withdrew {release}; its budget stays spent")
    settings.output.result({"release": release, "status": "withdrawn", "budget_given_back": False})
