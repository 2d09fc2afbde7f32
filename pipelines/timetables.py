"""How much nearer to the truth maps of buses are that start from a timetable, right or wrong.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/timetables.py [--into data/accuracy/timetables.md]

FOLDER is that of pipelines/austin.py. Beside ``capmetro`` there, ``capmetro_timetable`` holds timetables of
the archive scascketta/CapMetrics (MIT), two tables each: ``schedule_FROM_TO.csv.gz`` (trip, time, stop, and a
1 for every day of the week of service) and ``stops_FROM_TO.csv.gz``. ``warsaw_timetable`` holds that of
2024-02-10 (a Saturday) from the repository of Warsaw's records, as it is below its ``static_data``:
``bus_stops.json`` and ``schedules/LINE.json``, when vehicles of a line call at stops. Wrong timetables are
right ones whose speeds are shuffled over the hexagons. Speeds of records are looked at to know the truth:
this evaluates maps and is no private release. Noise is simulated, seeded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmetro import DAYS, folder, page, write_section
from cities import WARSAW
from presence import EPSILONS, LEAST_VEHICLES, Days, austin, read, total_of
from trafficdp.knowledge.timetable import read_timetable
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.pooling.design import Design
from trafficdp.mechanisms.pooling.estimates import pooled_estimates
from trafficdp.mechanisms.pooling.posterior import LEVELS
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import Knowledge, KnowledgeKind, KnownSpeeds, NeighbouringRelation, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind

FloatArray = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
INTO, GUIDE = ROOT / "data" / "accuracy" / "timetables.md", ROOT / "docs" / "guides" / "knowledge.md"
EARLY, CHECK_2016, LATE = "20150607_20150822", "20160110_20160820", "20160821_20170121"
"""Timetables, by the days that they hold for; for days without one it is the nearest."""
TUNED: dict[tuple[str, ...], str] = {
    **{(f"2015-03-{day}",): EARLY for day in ("07", "08", "18", "19")},
    ("2016-11-25",): LATE,
    DAYS: LATE,
    ("2017-03-16",): LATE,
    ("2017-03-21",): LATE,
}
HELD_OUT: dict[tuple[str, ...], str] = {("2015-06-07",): EARLY, ("2016-02-07",): CHECK_2016}
RESOLUTION, DRAWS = 7, 4
KIND = KnowledgeKind.TIMETABLE
COUNTS_PUBLIC = NeighbouringRelation.REPLACE_USER_VALUES
NOTHING_PUBLIC = NeighbouringRelation.ADD_OR_REMOVE_USER
LAYOVER = 6
"""Minutes."""
WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def austin_timetable(name: str, into: Path) -> Path:
    """Write the two tables ``name`` as static GTFS into ``into``; return the file."""
    tables = folder().parent / "capmetro_timetable"
    rows = pd.read_csv(tables / f"schedule_{name}.csv.gz", dtype=str)
    rows["service_id"] = rows[WEEK[0]].str.cat(rows[[*WEEK[1:]]])
    first, last = name.split("_")
    calendar = rows[["service_id", *WEEK]].drop_duplicates("service_id")
    stops = pd.read_csv(tables / f"stops_{name}.csv.gz", dtype=str)
    return gtfs_of(stops, rows, calendar.assign(start_date=first, end_date=last), into)


def warsaw_timetable(into: Path) -> Path:
    """Write Warsaw's timetable as static GTFS into ``into``; return the file.

    It says when a vehicle of a line calls at every stop, and not where its trips begin: they are taken to
    begin after LAYOVER minutes and more without a stop.
    """
    tables = folder().parent / "warsaw_timetable"
    said = json.loads((tables / "bus_stops.json").read_text(encoding="utf-8"))
    stops = pd.DataFrame(
        [(name, stop["szer_geo"], stop["dlug_geo"]) for name, stop in said.items()],
        columns=["stop_id", "stop_lat", "stop_lon"],
    )
    calls = [
        (f"{file.stem}/{vehicle}", time, stop.replace("/", "|"))
        for file in sorted(tables.glob("schedules/*.json"))
        for vehicle, line in json.loads(file.read_text(encoding="utf-8")).items()
        for stop, times in line.items()
        for time in times
    ]
    rows = pd.DataFrame(calls, columns=["vehicle", "arrival_time", "stop_id"])
    rows = rows[rows["stop_id"].isin(stops["stop_id"])].sort_values(["vehicle", "arrival_time", "stop_id"])
    minutes = pd.to_timedelta(rows["arrival_time"]).dt.total_seconds() / 60
    begins = (rows["vehicle"] != rows["vehicle"].shift()) | (minutes.diff() >= LAYOVER)
    rows = rows.assign(trip_id=begins.cumsum(), service_id="every day")
    calendar = pd.DataFrame([{"service_id": "every day", **dict.fromkeys(WEEK, 1)}])
    return gtfs_of(stops, rows, calendar.assign(start_date="20240210", end_date="20240219"), into)


def gtfs_of(stops: pd.DataFrame, rows: pd.DataFrame, calendar: pd.DataFrame, into: Path) -> Path:
    """Write ``stops``, ``calendar`` and the calls of ``rows``, in the order of trips; return the file."""
    calls = rows.assign(
        departure_time=rows["arrival_time"], stop_sequence=rows.groupby("trip_id", sort=False).cumcount()
    )
    written = {
        "stops.txt": stops,
        "trips.txt": rows[["trip_id", "service_id"]].drop_duplicates("trip_id"),
        "calendar.txt": calendar,
        "stop_times.txt": calls[["trip_id", "arrival_time", "departure_time", "stop_id", "stop_sequence"]],
    }
    path = into / "gtfs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for table, frame in written.items():
            archive.writestr(table, frame.to_csv(index=False))
    return path


@dataclass(frozen=True)
class Drawn:
    """What one draw of a map says of the hexagons that enough vehicles visit."""

    value: FloatArray
    low: FloatArray
    high: FloatArray


def with_public_counts(
    days: Days, kind: LossKind, epsilon: int
) -> Callable[[KnownSpeeds | None, int], Drawn]:
    """Return what draws the map by partial pooling."""
    own = days.own.select(days.own.counts.users_per_bin >= LEAST_VEHICLES)
    design = Design(own.counts, own.bound, kind, total_of(kind, epsilon, COUNTS_PUBLIC), (Statistic.MEAN,))

    def draw(known: KnownSpeeds | None, seed: int) -> Drawn:
        found = pooled_estimates(design, own, SimulatedNoise(seed), known).means[Statistic.MEAN]
        return Drawn(found.value, *found.ends[LEVELS[-1]])

    return draw


def with_nothing_public(
    days: Days, kind: LossKind, epsilon: int
) -> Callable[[KnownSpeeds | None, int], Drawn]:
    """Return what draws the map of all hexagons of the study area."""
    own = days.own
    design = AddRemoveDesign(days.places, own.bound, kind, total_of(kind, epsilon), variance=False)
    at = design.place_numbers(own.counts.cell, own.counts.slot)[0][own.counts.users_per_bin >= LEAST_VEHICLES]

    def draw(known: KnownSpeeds | None, seed: int) -> Drawn:
        found = add_remove_map(design, measure_all(design, own, SimulatedNoise(seed), known)).mean
        low, high = found.ends[LEVELS[-1]]
        return Drawn(found.value[at], low[at], high[at])

    return draw


RELATIONS = {
    COUNTS_PUBLIC: ("counts public", with_public_counts),
    NOTHING_PUBLIC: ("nothing public", with_nothing_public),
}


@dataclass(frozen=True)
class Measured:
    """Errors of one map without, with and with a shuffled timetable; what 95 % intervals held."""

    group: str
    name: str
    relation: str
    loss: str
    errors: tuple[float, float, float]
    held: tuple[float, float, float]

    @property
    def gain(self) -> tuple[float, float]:
        """What a right and a wrong timetable change of the error, as a share."""
        plain, right, wrong = self.errors
        return right / plain - 1, wrong / plain - 1


def measured(group: str, here: Days, timetable: Callable[[Path], Path]) -> Iterator[Measured]:
    """Yield every map of some days, with the file that ``timetable`` writes."""
    grid = here.grid
    with tempfile.TemporaryDirectory() as scratch:
        table = read_timetable(timetable(Path(scratch)), grid)
    counts = here.own.counts
    seen = counts.users_per_bin >= LEAST_VEHICLES
    truth = true_statistic(here.own, Statistic.MEAN)[seen]
    for relation, (said, drawing) in RELATIONS.items():
        cells = counts.cell[seen] if relation is COUNTS_PUBLIC else here.places
        speed = np.round(table.traffic(grid, cells, np.zeros(len(cells), dtype=np.int64))[0], 2)
        source = Knowledge(kind=KIND, name=table.file, sha256=table.sha256, share=KIND.share(relation))
        for kind in LossKind:
            for epsilon in EPSILONS:
                draw, scores = drawing(here, kind, epsilon), []
                for seed in range(DRAWS):
                    wrong = speed.copy()
                    there = ~np.isnan(speed)
                    wrong[there] = np.random.default_rng(seed).permutation(speed[there])
                    known = [KnownSpeeds((source,), each[None]) for each in (speed, wrong)]
                    found = [draw(each, seed) for each in (None, *known)]
                    off = [np.abs(each.value - truth).mean() for each in found]
                    held = [np.mean((each.low <= truth) & (truth <= each.high)) for each in found]
                    scores.append((off, held))
                errors, held = np.mean(scores, axis=0).tolist()
                loss = f"{'pure' if kind is LossKind.PURE else 'zCDP'} {epsilon}"
                yield Measured(group, here.name, said, loss, tuple(errors), tuple(held))


def summary(found: list[Measured]) -> Iterator[str]:
    """Yield the lines of a table, one a mark and relation."""
    yield "| marked | relation | maps | timetable | worst map | shuffled | worst map | 95 % intervals hold |"
    yield "|---|---|---:|---:|---:|---:|---:|---|"
    for group in dict.fromkeys(each.group for each in found):
        for relation, _ in RELATIONS.values():
            own = [each for each in found if (each.group, each.relation) == (group, relation)]
            right, wrong = np.array([each.gain for each in own]).T
            held = ", ".join(f"{each:.3f}" for each in np.mean([each.held for each in own], axis=0))
            yield (
                f"| {group} | {relation} | {len(own)} | {right.mean():+.1%} | {right.max():+.1%} | "
                f"{wrong.mean():+.1%} | {wrong.max():+.1%} | {held} |"
            )


def report() -> Iterator[str]:
    """Yield the lines of the page."""
    found: list[Measured] = []
    for group, sets in (("tuned", TUNED), ("held out", HELD_OUT)):
        for days, timetable in sets.items():
            name = days[0] if len(days) == 1 else f"{days[0]} to {days[-1][-2:]}"
            print(group, name, file=sys.stderr, flush=True)
            found += measured(group, austin(name, days, RESOLUTION), partial(austin_timetable, timetable))
    with tempfile.TemporaryDirectory() as scratch:
        files = WARSAW.files(Path(scratch))
        warsaw = read(f"{WARSAW.name} {WARSAW.day}", WARSAW.config, files, RESOLUTION)
    found += measured("other city", warsaw, warsaw_timetable)
    table = [*summary(found)]
    write_section(GUIDE, "timetables", table)
    yield "# Maps that start from a timetable"
    yield ""
    yield (
        "Written by `make accuracy`: buses of Austin and Warsaw, means of hexagons of resolution "
        f"{RESOLUTION} that at least {LEAST_VEHICLES} buses visit, whole period, {DRAWS} draws of "
        "simulated noise a map, delta 10^-6 where noise is Gaussian (zCDP). Mean absolute errors beside "
        "those of the same map without a timetable; *shuffled*: speeds of the timetable in any other "
        "hexagon, another order for every draw. Days of 2015-03 have the timetable of 2015-06, days of "
        "2017-03 that of 2016-11, Warsaw's Monday that of a Saturday nine days before. 95 % intervals "
        "hold: without, with, and with a shuffled timetable. Held-out days were looked at once, after all "
        "choices. So was Warsaw with counts public; where nothing is public, it was seen before how far a "
        "map follows was learnt from answers (-0.8 % on average, +7.1 % on the worst map)."
    )
    yield ""
    yield from table
    yield ""
    yield "## Every map"
    yield ""
    yield "| marked | days | relation | loss | without | timetable | shuffled | 95 % hold |"
    yield "|---|---|---|---|---:|---:|---:|---|"
    for each in found:
        plain, right, wrong = each.errors
        yield (
            f"| {each.group} | {each.name} | {each.relation} | {each.loss} | {plain:.2f} | {right:.2f} "
            f"({each.gain[0]:+.0%}) | {wrong:.2f} ({each.gain[1]:+.0%}) | "
            f"{', '.join(f'{share:.2f}' for share in each.held)} |"
        )


def main() -> int:
    """Measure and write."""
    return page("Maps that start from a timetable.", INTO, report)


if __name__ == "__main__":
    sys.exit(main())
