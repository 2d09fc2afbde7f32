"""`trafficdp export`: one file of a release, wherever it is wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import ReleaseArgument, Settings, shorten
from trafficdp.export.write import FORMATS, format_of


def export(
    context: typer.Context,
    release: ReleaseArgument,
    out: Annotated[Path, typer.Argument(help="File to write.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="<format>",
            help=" | ".join(FORMATS) + "; without it, what the file is named.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a release as one file. What was released is free to use: this costs no budget."""
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    to = to or format_of(out)
    open_workspace(**settings.opening()).export(release, to, out)
    settings.output.say(f"wrote {shorten(out)}")
    settings.output.result({"release": release, "format": to, "file": str(out), "bytes": out.stat().st_size})
