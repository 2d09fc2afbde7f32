"""`trafficdp releases`: what was released."""

from __future__ import annotations

import typer

from trafficdp.cli.words.options import Settings, minute, on_clocks, shorten


def releases(context: typer.Context) -> None:
    """List the releases, withdrawn ones included."""
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    workspace = open_workspace(**settings.opening())
    found, quantity = workspace.releases(), workspace.config.kind.quantity
    zone = workspace.config.grid.period.time_zone
    settings.output.table(
        "Releases",
        ["release", "status", quantity, f"charged ({zone})"],
        [[each.id, each.status, str(each.loss), minute(each.created_at, zone)] for each in found],
    )
    published = [each.folder for each in found if each.status == "published"]
    if published:
        settings.output.say(f"Their files: {shorten(published[0].parent)}/RELEASE/")
    settings.output.result(
        {
            "releases": [
                {
                    "release": each.id,
                    "status": each.status,
                    quantity: str(each.loss),
                    "ledger_sequence": each.sequence,
                    "created_at": on_clocks(each.created_at, zone),
                    "folder": str(each.folder),
                }
                for each in found
            ]
        }
    )
