"""`trafficdp withdraw`: take a release back. The budget stays spent."""

from __future__ import annotations

import typer

from trafficdp.cli.words.options import ReleaseArgument, Settings, YesOption


def withdraw(
    context: typer.Context,
    release: ReleaseArgument,
    yes: YesOption = False,
) -> None:
    """Remove a release's files and rows. Its budget is not given back: what was seen stays seen.

    On a terminal it asks first; elsewhere it needs --yes.
    """
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    workspace = open_workspace(**settings.opening())
    settings.output.confirm(
        yes=yes,
        questions=lambda: [
            f"This removes the files and rows of {release} for good. What it cost stays spent, and whoever "
            "has a copy keeps it. Withdraw?"
        ],
        otherwise="Nothing was withdrawn.",
    )
    workspace.withdraw(release)
    settings.output.say(f"withdrew {release}; its budget stays spent")
    settings.output.result({"release": release, "status": "withdrawn", "budget_given_back": False})
