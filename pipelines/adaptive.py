"""How much of Austin a map of several resolutions shows, against every single one, at one width and epsilon.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/adaptive.py [--into data/adaptive]

FOLDER holds ``capmetro/YYYY-MM-DD.csv.gz``: CapMetro open data, archived by scascketta/CapMetrics (MIT). The
four days around Thanksgiving 2016, means alone. Public counts only: nothing is released and nothing spent.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import trafficdp
from capmetro import CONFIG, DAYS, files_of
from trafficdp.binning.cells import area_km2
from trafficdp.errors import TrafficdpError, UninformativeReleaseError
from trafficdp.model import LONGER, SlotKind
from trafficdp.planner.adaptive import choose_mosaic
from trafficdp.planner.request import AdaptiveSettings
from trafficdp.privacy.loss import PureDP
from trafficdp.workspace import Workspace

EPSILON = PureDP.of(4)
WIDTHS = (5, 10)
SLOTS = (SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY)
CHOICES = ((5,), (6,), (7,), (8,), (8, 7, 6), (8, 7, 6, 5))
DETAILS = (0.1, 0.5)
HEADER = """# How much of Austin's buses several resolutions show

Made by `python pipelines/adaptive.py` from public counts (no speed is read for it, nothing is spent):
CapMetro buses, 24 to 27 November 2016, {vehicles} vehicles, {records:,} records, means at epsilon {epsilon},
hexagons with at least {least} vehicles. Only hexagons count whose 95 % interval is at most so wide on each
side; for a single resolution, as many of its hexagons are chosen as the budget allows, by the same program.

covered: share of the records in a hexagon with a number | numbers: of every level, from fine to coarse; with
longer slots the levels are all resolutions by the hour, then by day part and by the whole period in the
coarsest, or first all slots in the finest resolution and then the coarser ones, whichever is worth more |
area: of the hexagon that an average covered record is in | detail: what a level is worth
(docs/guides/small-hexagons.md).

| slot | half width | resolutions | detail | covered | numbers | area (km2) |
|---|---|---|---|---|---|---|
"""


def run(into: Path) -> None:
    """Ingest, count, choose, write the table."""
    files = files_of(DAYS)
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        city = trafficdp.open(CONFIG, store=Path(scratch) / "store", create=True)
        city.ingest(files)
        whole = city.counts()
        text = HEADER.format(
            vehicles=whole.users,
            records=int(whole.count.sum()),
            epsilon=EPSILON,
            least=city.config.map.min_vehicles,
        )
        text += "".join(line(city, *choice) + "\n" for choice in choices())
    (into / "austin.md").write_text(text, encoding="utf-8")


def choices() -> Iterator[tuple[SlotKind, int, tuple[int, ...], float, tuple[SlotKind, ...]]]:
    """Every line's slot, half width, resolutions, detail and longer slots."""
    for slot in SLOTS:
        for width in WIDTHS:
            for resolutions in CHOICES:
                for detail in DETAILS if len(resolutions) > 1 else DETAILS[:1]:
                    yield slot, width, resolutions, detail, ()
            if LONGER[slot]:
                yield slot, width, CHOICES[-1], DETAILS[0], LONGER[slot]
                yield slot, width, CHOICES[-1], DETAILS[1], LONGER[slot]


def line(
    city: Workspace,
    slot: SlotKind,
    width: int,
    resolutions: tuple[int, ...],
    detail: float,
    longer: tuple[SlotKind, ...] = (),
) -> str:
    """Return one line of the table; ``width`` in km/h."""
    grid = replace(city.config.grid, resolution=resolutions[0], slot_kind=slot)
    settings = AdaptiveSettings(resolutions, Fraction(width * 10, 36), Fraction(1, 1000), detail, longer)
    names = ", ".join(str(each) for each in reversed(resolutions))
    fallback = " or longer" if longer else ""
    head = f"| {slot.value.replace('_', ' ')}{fallback} | {width} km/h | {names} | "
    head += f"{detail:g} | " if len(resolutions) > 1 else "- | "
    try:
        chosen = choose_mosaic(
            grid, city.counts(grid), settings, city.config.request(EPSILON).with_proved_intervals()
        )
    except UninformativeReleaseError:
        return head + "0.0 % | - | - |"
    numbers = " + ".join(str(bins) for bins in (level.bins for level in chosen.levels))
    area = sum(level.coverage * area_km2(level.resolution) for level in chosen.levels)
    return f"{head}{chosen.coverage:.1%} | {numbers} | {area / chosen.coverage:.1f} |".replace("%", " %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=Path("data/adaptive"))
    try:
        run(parser.parse_args().into)
    except TrafficdpError as error:
        print(f"trafficdp: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
