"""`trafficdp demo`: the main job on the embedded city."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import Settings, shorten
from trafficdp.cli.words.plan_facts import plan_facts
from trafficdp.cli.words.plan_words import show
from trafficdp.errors import UsageError, VerificationError
from trafficdp.export.files.file import disk_errors
from trafficdp.workspace import open_workspace

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "sample"


def demo(
    context: typer.Context,
    into: Annotated[
        Path, typer.Option(metavar="<folder>", help="Folder for the demo's files; it must not exist.")
    ] = Path("demo"),
) -> None:
    """Turn the embedded city (217 synthetic buses) into a private map, and say where it is."""
    settings: Settings = context.obj
    output = settings.output
    if not SAMPLE.is_dir():
        raise UsageError(
            "the embedded city is not here", expected=str(SAMPLE), todo="run it from a source checkout"
        )
    with disk_errors(into):
        there = into.exists()
    if there:
        raise UsageError(
            "the demo's folder exists", got=str(into), todo="remove it or name another with --into"
        )
    with disk_errors(into / "trafficdp.toml"):
        into.mkdir(parents=True)
        for each in (SAMPLE / "trafficdp.toml", *SAMPLE.glob("*.geojson")):
            shutil.copy(each, into / each.name)
    city = open_workspace(into / "trafficdp.toml", create=True, wait=settings.wait)
    done = city.ingest(sorted(SAMPLE.glob("*.csv.gz")))
    kept, read = (sum(getattr(each.report, name) for each in done) for name in ("rows_kept", "rows_in"))
    output.say(f"read {len(done)} raw files: {kept:,} of {read:,} rows kept")
    plan = city.plan()
    show(output, plan, plan_facts(plan))
    released = city.release()
    checks = city.verify(released.id)
    if not all(check.passed for check in checks):
        raise VerificationError("the demo's release does not verify")
    output.say(f"released {released.id}, and verified it ({len(checks)} checks). Look at it:")
    output.say(f"  {shorten(released.folder / 'map.html')}      the map, in any browser, offline")
    output.say(f"  {shorten(released.folder / 'map.geojson')}   the same for a GIS")
    output.say(f"  {shorten(released.folder / 'manifest.json')} what it cost and what it does not protect")
    output.result({"release": released.id, "folder": str(released.folder), "store": str(city.store)})
