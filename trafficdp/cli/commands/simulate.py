"""The commands `simulate` and `demo`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from trafficdp._durable import disk_errors
from trafficdp.cli.options import Settings, relative_path
from trafficdp.cli.plan_words import plan_facts, show
from trafficdp.errors import UsageError, VerificationError, one_of
from trafficdp.simulation.city import VARIATIONS, like_release, variations
from trafficdp.simulation.write import simulate as write_city
from trafficdp.workspace import open_workspace


def simulate(
    context: typer.Context,
    vehicles: Annotated[
        int, typer.Option(help="How many vehicles; each sends about 110 records a day.")
    ] = 200,
    days: Annotated[int, typer.Option(help="How many days, from 2026-03-02 on.")] = 4,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 1,
    into: Annotated[
        Path, typer.Option(metavar="<folder>", help="Folder for the files; it must not exist.")
    ] = Path("simulated"),
    resolution: Annotated[int, typer.Option(help="Of the hexagons of the truth and the map, 0 to 10.")] = 7,
    variation: Annotated[
        str, typer.Option(metavar="<name>", help=f"What city: {', '.join(VARIATIONS)}.")
    ] = "usual",
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="<file>", help="A released map.geojson to take level and spread of speeds from."
        ),
    ] = None,
) -> None:
    """Make a city: a feed of records with the flaws of real ones, a configuration, and the truth.

    No vehicle, record or speed of it exists, so it can be shown, sent and asked anything.
    """
    settings: Settings = context.obj
    output = settings.output
    usual = None if like is None else like_release(like)
    model = variations(usual)[one_of(VARIATIONS, variation=variation)]
    with output.progress_steps("simulating") as step:
        made = write_city(
            into, vehicles=vehicles, days=days, seed=seed, model=model, resolution=resolution, step=step
        )
    output.say(f"made {made.rows:,} rows in {len(made.feeds)} files in {relative_path(made.folder)}")
    output.say(f"  {relative_path(made.config)}   a configuration that reads them")
    output.say(f"  {relative_path(made.truth)}   the truth, of {made.records:,} records: simulated data")
    output.result(
        {
            "folder": str(made.folder),
            "configuration": str(made.config),
            "feeds": [str(feed) for feed in made.feeds],
            "truth": str(made.truth),
            "rows": made.rows,
            "records": made.records,
        }
    )


_PACKAGE = Path(__file__).resolve().parents[2]
SAMPLE = next(each for each in (_PACKAGE / "sample", _PACKAGE.parent / "data" / "sample") if each.is_dir())
"""The sample city: within the wheel, or of a source checkout."""


def demo(
    context: typer.Context,
    into: Annotated[
        Path, typer.Option(metavar="<folder>", help="Folder for the demo's files; it must not exist.")
    ] = Path("demo"),
) -> None:
    """Turn the embedded city (217 synthetic buses) into a private map, and say where it is."""
    settings: Settings = context.obj
    output = settings.output
    with disk_errors(into):
        there = into.exists()
    if there:
        raise UsageError(
            "the demo's folder exists", got=str(into), todo="remove it or name another with --into"
        )
    with disk_errors(into / "trafficdp.toml"):
        into.mkdir(parents=True)
        for each in (SAMPLE / "trafficdp.toml", *SAMPLE.glob("*.geojson"), *SAMPLE.glob("*.zip")):
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
    output.say(f"  {relative_path(released.folder / 'map.html')}      the map, in any browser, offline")
    output.say(f"  {relative_path(released.folder / 'map.geojson')}   the same for a GIS")
    output.say(
        f"  {relative_path(released.folder / 'manifest.json')} what it cost and what it does not protect"
    )
    output.result({"release": released.id, "folder": str(released.folder), "store": str(city.store)})
