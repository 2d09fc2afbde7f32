"""`trafficdp simulate`: a city that is made, as files, with the truth beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trafficdp.cli.words.options import Settings, shorten
from trafficdp.errors import one_of
from trafficdp.simulation.city import VARIATIONS, like_release, variations
from trafficdp.simulation.write import simulate as write_city


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
    with output.steps("simulating") as step:
        made = write_city(
            into, vehicles=vehicles, days=days, seed=seed, model=model, resolution=resolution, step=step
        )
    output.say(f"made {made.rows:,} rows in {len(made.feeds)} files in {shorten(made.folder)}")
    output.say(f"  {shorten(made.config)}   a configuration that reads them")
    output.say(f"  {shorten(made.truth)}   the truth, of {made.records:,} records: simulated data")
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
