"""What many records cost: ingest, reduction, plan and release beside the same work in plain SQL.

    python tests/benchmarks/bench_scale.py [--rows N ...] [--hexagons N ...] [--into FOLDER]

Simulated cities (`trafficdp simulate`: new trips every day, the flaws of real feeds) of at most 20,000
vehicles, a Parquet file a day. Two ways:

* ``floor``: DuckDB reads the files, cleans and drops repeats, h3ronpy gives cells, and sums are grouped by
  cell, hour of day and vehicle: what anybody would have to do;
* ``trafficdp``: ``ingest``, ``reduce`` (what vehicles contribute) and ``release --force``; and beside them
  ``plan`` of the map, with what would pass were it refused.

Then the same of vehicles that are everywhere (--everywhere): two thirds as many pairs of bin and vehicle as
records.

Then what many hexagons cost where nothing about a vehicle is public: a release of few vehicles in a large
study area, over the whole period.

A fresh process each, after imports. At last the five functions that a day's ingest and its release spend most
in, by the profiler.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import json
import math
import pstats
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from duckdb.func import ARROW
from h3ronpy.vector import coordinates_to_cells
from table import keep

from trafficdp.binning.cells import cells_of, polygons_of
from trafficdp.cli.main import reuse_freed_memory

VEHICLES, RESOLUTION, SEED = 20_000, 8, 1
ROWS_A_VEHICLE = 112
"""A simulated vehicle sends about as many rows a day."""
MOVED = 0.7
"""The share of rows that are moved where vehicles are everywhere."""
FLOOR = """
CREATE TABLE records AS
SELECT vehicle, "time", latitude, longitude, speed
FROM read_parquet($files)
WHERE vehicle IS NOT NULL AND latitude BETWEEN $south AND $north AND longitude BETWEEN $west AND $east
    AND speed IS NOT NULL AND speed <> $sentinel
"""
DISTINCT = """
CREATE TABLE once AS
SELECT
    vehicle, "time", any_value(latitude) AS latitude, any_value(longitude) AS longitude,
    any_value(speed) AS speed
FROM records GROUP BY vehicle, "time"
"""
GROUPED = """
COPY (
    SELECT
        cell_of(latitude, longitude) AS cell, hour("time" AT TIME ZONE 'UTC') AS slot, vehicle,
        count(*) AS records, sum(round(least(greatest(speed, 0), 30) * 100)) AS total,
        sum(round(least(greatest(speed, 0), 30) * 100) ** 2) AS squares
    FROM once GROUP BY ALL ORDER BY cell, slot, vehicle
) TO '{}' (FORMAT parquet)
"""
HIDDEN_VEHICLES, HIDDEN_RESOLUTION = 300, 9
HIDDEN = {
    'relation = "replace_user_values"': 'relation = "add_or_remove_user"\ndelta = 1e-6',
    "epsilon_per_vehicle = 1000": "epsilon = 1000",
    "min_vehicles = 5\n": f"fleet = {HIDDEN_VEHICLES}\n",
}
CHANGES = {
    "whole_period": "hour_of_day",
    "epsilon = 4": "epsilon = 1",
    "epsilon_per_vehicle = 20": "epsilon_per_vehicle = 1000",
    "[privacy]": "[privacy]\naccept_weak_promise = true",
    'statistics = ["mean", "variance"]': 'statistics = ["mean"]',
}
IMPORTED = ("trafficdp.workspace", "trafficdp.export.write", "pandas", "geopandas", "opendp.prelude")
"""Before the clock starts: only the work is measured."""


def city(folder: Path, rows: int) -> tuple[Path, int, int]:
    """Write a city of about ``rows`` rows; return its configuration, its days and its vehicles."""
    import trafficdp

    days = -(-rows // (VEHICLES * ROWS_A_VEHICLE))
    vehicles = round(rows / days / ROWS_A_VEHICLE)
    made = trafficdp.simulate(folder, vehicles=vehicles, days=days, seed=SEED, resolution=RESOLUTION)
    text = made.config.read_text(encoding="utf-8")
    for before, after in CHANGES.items():
        text = text.replace(before, after)
    made.config.write_text(text, encoding="utf-8")
    return made.config, days, vehicles


def everywhere(folder: Path) -> None:
    """Let vehicles of a city be everywhere: most rows take the position of another row of their day."""
    generator = np.random.default_rng(SEED)
    for path in feeds(folder):
        table = pq.read_table(path)
        moved = np.flatnonzero(generator.random(len(table)) < MOVED)
        row = np.arange(len(table))
        row[moved] = generator.permutation(moved)
        for name in ("latitude", "longitude"):
            place = table.schema.get_field_index(name)
            table = table.set_column(place, table.schema.field(name), table.column(name).take(row))
        pq.write_table(table, path)


def declared(folder: Path, hexagons: int) -> None:
    """Ingest a city of HIDDEN_VEHICLES vehicles whose study area has about so many ``hexagons``."""
    import trafficdp

    made = trafficdp.simulate(
        folder, vehicles=HIDDEN_VEHICLES, days=2, seed=SEED, resolution=HIDDEN_RESOLUTION
    )
    text = made.config.read_text(encoding="utf-8")
    west, south, east, north = (box_of(text)[name] for name in ("west", "south", "east", "north"))
    middle = (south + north) / 2
    narrow = math.cos(math.radians(middle))
    one = cells_of(np.array([middle]), np.array([(west + east) / 2]), HIDDEN_RESOLUTION)
    # hexagons are not of one size: by that in the middle
    half = (hexagons * float(shapely.area(polygons_of(one))[0]) * narrow) ** 0.5 / 2
    wide = half / narrow
    sides = (west + east) / 2 - wide, middle - half, (west + east) / 2 + wide, middle + half
    box = ", ".join(f"{side:.6f}" for side in sides)
    text = re.sub(r"bbox = \[[^]]*\]", f"bbox = [{box}]", text)
    for before, after in {**CHANGES, **HIDDEN}.items():
        text = text.replace(before, after)
    made.config.write_text(text, encoding="utf-8")
    trafficdp.open(made.config, store=folder / "store", create=True).ingest(feeds(folder))


def many_hexagons(hexagons: int, into: Path | None) -> list[str]:
    """Print what a release of about so many hexagons costs; return a row of the table."""
    with tempfile.TemporaryDirectory(dir=into) as temporary:
        folder = Path(temporary) / "city"
        declared(folder, hexagons)
        found = measured("release", folder)
        files = sum(path.stat().st_size for path in (folder / "store" / "releases").rglob("*.*"))
        kept = (folder / "store" / "released.duckdb").stat().st_size
    return [
        f"{found['result']:,}",
        f"{found['cpu']:.0f}",
        f"{found['wall']:.0f}",
        f"{found['mb']:,.0f}",
        f"{files / 1e6:,.0f}",
        f"{kept / 1e6:,.0f}",
    ]


def box_of(config: str) -> dict[str, float]:
    """Return the study area of a simulated city's configuration, and the speed of broken sensors."""
    west, south, east, north = map(float, re.findall(r"-?\d+\.\d+", config[config.index("bbox") :])[:4])
    sentinel = float(re.findall(r"sentinels = \[([\d.]+)\]", config)[0])
    return {"south": south, "north": north, "west": west, "east": east, "sentinel": sentinel}


def floor(folder: Path) -> int:
    """Do the same work without privacy; return the number of (cell, slot, vehicle)."""
    box = box_of((folder / "trafficdp.toml").read_text(encoding="utf-8"))

    def cell_of(latitude: pa.Array, longitude: pa.Array) -> pa.Array:
        return pa.array(coordinates_to_cells(latitude, longitude, RESOLUTION))

    with duckdb.connect(str(folder / "floor.duckdb"), config={"memory_limit": "4GB"}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.create_function("cell_of", cell_of, ["DOUBLE", "DOUBLE"], "UBIGINT", type=ARROW)
        connection.execute(FLOOR, {"files": [str(path) for path in feeds(folder)], **box})
        connection.execute(DISTINCT)
        return int(connection.execute(GROUPED.format(folder / "floor.parquet")).fetchall()[0][0])


def feeds(folder: Path) -> list[Path]:
    """Return the city's files, in order."""
    return sorted(folder.glob("records-*.parquet"))


def ingest(folder: Path) -> int:
    """Read all files into a new store; return the new records."""
    import trafficdp

    workspace = trafficdp.open(folder / "trafficdp.toml", store=folder / "store", create=True)
    return sum(each.added for each in workspace.ingest(feeds(folder)))


def reduce(folder: Path) -> int:
    """Bring what vehicles contribute up to date; return the number of (bin, vehicle)."""
    import trafficdp

    return trafficdp.open(folder / "trafficdp.toml", store=folder / "store").counts().pairs


def plan(folder: Path) -> int:
    """Plan the map, with what would pass where it is refused; return the number of its bins."""
    import trafficdp

    made = trafficdp.open(folder / "trafficdp.toml", store=folder / "store").plan()
    said = "no suggestions" if made.suggestions is None else made.suggestions.in_words()
    print(f"refused: {made.verdict.refused}; {said}", file=sys.stderr)
    return made.allocation.counts.bins


def release(folder: Path) -> int:
    """Plan, charge, draw and publish; return the number of bins."""
    import trafficdp

    workspace = trafficdp.open(folder / "trafficdp.toml", store=folder / "store")
    return workspace.release(force=True).release.bins


STEPS: dict[str, Callable[[Path], int]] = {
    each.__name__: each for each in (floor, ingest, reduce, plan, release)
}
OURS = ("ingest", "reduce", "release")
"""What the floor does, and privacy with it."""


def measured(step: str, folder: Path, profile: bool = False) -> dict[str, float]:
    """Run a step in a fresh process; return its result, seconds of both kinds and peak megabytes."""
    command = [sys.executable, __file__, "--measure", step, str(folder), *(["profile"] if profile else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    print(
        f"{step:<8} {found['result']:>12,} {found['cpu']:>8.1f} {found['wall']:>8.1f} {found['mb']:>7.0f}",
        flush=True,
    )
    return found


def measure(step: str, folder: Path, profile: bool) -> None:
    """Run a step in this process and print what it took, as JSON."""
    if step != "floor":
        for module in IMPORTED:
            importlib.import_module(module)
    profiler = cProfile.Profile()
    cpu, wall = time.process_time(), time.perf_counter()
    result = profiler.runcall(STEPS[step], folder) if profile else STEPS[step](folder)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    found: dict[str, Any] = {"result": result, "cpu": cpu, "wall": wall, "mb": peak_megabytes()}
    if profile:
        found["hottest"] = hottest(pstats.Stats(profiler))
    print(json.dumps(found))


def hottest(stats: pstats.Stats) -> list[tuple[str, float]]:
    """Return the five functions with most time of their own, with the share of the whole each has."""
    entries = sorted(stats.stats.items(), key=lambda each: -each[1][2])[:5]  # type: ignore[attr-defined]
    whole = stats.total_tt  # type: ignore[attr-defined]
    named = []
    for (path, _, name), (_, _, own, _, callers) in entries:
        if path == "~":
            # a function of C: said with who calls it most
            path = max(callers, key=lambda each: callers[each][2], default=("?", 0, "?"))[0]
        inside = re.split(r"(?:trafficdp|site-packages)/", path)[1:]
        named.append((f"`{name}` in `{inside[-1] if inside else Path(path).name}`", own / whole))
    return named


def peak_megabytes() -> float:
    """Return the peak of this process. On Linux ru_maxrss is never less than the parent's: ask /proc."""
    status = Path("/proc/self/status")
    peak = re.search(r"(?m)^VmHWM:\s+(\d+) kB$", status.read_text("ascii")) if status.exists() else None
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if peak is None else int(peak.group(1))
    return kilobytes / 1024


def many_records(rows: int, into: Path | None, prepare: Callable[[Path], None] | None = None) -> list[str]:
    """Print what each step costs and the ratio to the floor; return a row of the table."""
    with tempfile.TemporaryDirectory(dir=into) as temporary:
        folder = Path(temporary) / "city"
        _, days, vehicles = city(folder, rows)
        if prepare is not None:
            prepare(folder)
        print(f"{rows:,} rows of {vehicles:,} vehicles, {days} days")
        print(f"{'step':<8} {'result':>12} {'cpu s':>8} {'clock s':>8} {'MB':>7}")
        found = {}
        for step in STEPS:
            found[step] = measured(step, folder)
            (folder / "floor.duckdb").unlink(missing_ok=True)
    return line_of(found)


def line_of(found: dict[str, dict[str, float]]) -> list[str]:
    """Print the ratio of the steps to the floor; return a row of the table."""
    if found["reduce"]["result"] != found["floor"]["result"]:
        raise SystemExit("the two ways disagree")
    ratio = sum(found[step]["cpu"] for step in OURS) / found["floor"]["cpu"]
    peak = max(found[step]["mb"] for step in STEPS if step != "floor")
    print(f"ratio of processor seconds {ratio:.2f}, peak {peak:.0f} MB", flush=True)
    return [
        f"{found['ingest']['result'] / 1e6:.1f} M",
        f"{found['reduce']['result'] / 1e6:.2f} M",
        *(f"{found[step]['cpu']:.1f}" for step in STEPS),
        f"{sum(found[step]['wall'] for step in OURS):.0f}",
        f"{found['floor']['wall']:.0f}",
        f"{ratio:.2f}",
        f"{peak:,.0f}",
        f"{found['floor']['mb']:,.0f}",
    ]


def profiled(rows: int, into: Path | None) -> list[list[str]]:
    """Return the hottest functions of each step, and what the step would cost without each."""
    with tempfile.TemporaryDirectory(dir=into) as temporary:
        folder = Path(temporary) / "city"
        city(folder, rows)
        lines = []
        for step in OURS:
            found = measured(step, folder, profile=True)
            for name, share in found["hottest"]:  # type: ignore[attr-defined]
                lines.append([f"{step}: {name}", f"{share:.0%}", f"{1 - share:.0%}"])
    return lines


def main() -> None:
    """Read the command line; print the tables and keep them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = [1_000_000, 10_000_000, 30_000_000, 100_000_000]
    parser.add_argument("--rows", type=int, nargs="*", default=default)
    parser.add_argument("--everywhere", type=int, nargs="*", default=[10_000_000])
    parser.add_argument("--hexagons", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--profile", type=int, default=1_000_000, help="rows of the profiled city")
    parser.add_argument("--into", type=Path, help="where cities are written; deleted after")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    # as the command line does; the processes that are started have it from here
    reuse_freed_memory()
    if options.measure:
        step, folder, *profile = options.measure
        measure(step, Path(folder), bool(profile))
        return
    columns = ["records", "pairs", *STEPS, "ours, clock", "floor, clock", "ratio", "MB", "floor, MB"]
    rows: list[list[str]] = []
    for each in options.rows:
        rows.append(many_records(each, options.into))
        keep("Records", SAID, columns, rows)
    rows = []
    for each in options.everywhere:
        rows.append(many_records(each, options.into, everywhere))
        keep("Records of vehicles that are everywhere", SAID_OF_EVERYWHERE, columns, rows)
    columns = ["hexagons", "seconds", "clock", "MB", "files, MB", "released.duckdb, MB"]
    rows = []
    for each in options.hexagons:
        rows.append(many_hexagons(each, options.into))
        keep("Hexagons", SAID_OF_HEXAGONS, columns, rows)
    if options.profile:
        lines = profiled(options.profile, options.into)
        columns = ["step: function", "of the step's time", "the step if it were free"]
        keep("Hottest functions", f"By the profiler, at {options.profile:,} rows.", columns, lines)


SAID = (
    f"Simulated cities of at most {VEHICLES:,} vehicles, hexagons of resolution {RESOLUTION} and the hour of "
    "day; pairs are (bin, vehicle). Seconds of the processor a step; `floor` is the same cleaning, removal "
    "of repeats, hexagons and sums in plain SQL. `plan` is that of the map, with suggestions were it "
    "refused. Ratio: ingest, reduce and release over the floor. MB: the largest peak of our steps."
)

SAID_OF_EVERYWHERE = (
    "The same, where most rows have the position of another row: a vehicle is in most bins once. Nothing is "
    "summed up before noise, so planning and release have as much to look at as there is."
)

SAID_OF_HEXAGONS = (
    f"One release of means where nothing about a vehicle is public, in rho at delta 1e-6: {HIDDEN_VEHICLES} "
    f"simulated vehicles in a study area of so many hexagons of resolution {HIDDEN_RESOLUTION}. From the "
    "configuration to files and `released.duckdb`; most of the seconds are exact draws of Gaussian noise, "
    "seven a hexagon."
)


if __name__ == "__main__":
    main()
