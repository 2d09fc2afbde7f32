"""`trafficdp report`: the page on a release that engineers and councillors read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import ReleaseArgument, Settings, shorten


def report(
    context: typer.Context,
    release: ReleaseArgument,
    out: Annotated[Path, typer.Argument(help="File to write: .html or .pdf.")],
    against: Annotated[
        str | None, typer.Option("--against", metavar="<release>", help="Earlier release to compare with.")
    ] = None,
) -> None:
    """Write a page on a release: map, what can be told apart, what changed.

    It calls an area slower, faster or changed only where the intervals prove it. This costs no budget. PDF
    needs pip install 'trafficdp[report]' and the library Pango.
    """
    from trafficdp.workspace import open_workspace

    settings: Settings = context.obj
    open_workspace(**settings.opening()).city_report(release, out, against=against)
    settings.output.say(f"wrote {shorten(out)}")
    settings.output.result(
        {"release": release, "against": against, "file": str(out), "bytes": out.stat().st_size}
    )
