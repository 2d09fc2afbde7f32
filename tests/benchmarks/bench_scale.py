"""What many records cost: ingest, reduction and release beside the same work in plain SQL.

    python tests/benchmarks/bench_scale.py [--rows N ...] [--days D] [--store-days D --every D]

Vehicles make new trips every day; each day is a Parquet file with plates and times as text. Two ways:

* ``floor``: DuckDB reads the files, cleans and drops repeats, h3ronpy gives cells, and sums are grouped by
  cell, hour of day and vehicle: what anybody would have to do;
* ``trafficdp``: ``ingest``, ``reduce`` (what vehicles contribute) and ``release --force``.

Processor seconds of a fresh process each, both threads, after imports; memory is the peak of the process.
Then days of one store: what the last of them cost beside the first, and releases likewise.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from h3ronpy.vector import coordinates_to_cells

VEHICLES = 20_000
SOUTH, WEST, NORTH, EAST = 12.6, 77.2, 13.3, 78.0
FIRST_DAY = np.datetime64("2026-01-01", "s")
DAY_SECONDS = 86_400
CONFIG = f"""
[city]
name = "Benchmark"
publisher = "Benchmark"
time_zone = "Asia/Kolkata"
study_area = {{ bbox = [{WEST}, {SOUTH}, {EAST}, {NORTH}] }}
period = {{ from = "2026-01-01", to = "2026-12-31" }}
[privacy]
relation = "replace_user_values"
epsilon = 1
[budget]
epsilon_per_vehicle = 100000
[map]
resolution = 8
slot = "hour_of_day"
speed_bound = 30
speed_unit = "m/s"
speed_step = 0.01
display_unit = "km/h"
min_vehicles = 5
statistics = ["mean"]
[[source]]
name = "cars"
format = "parquet"
files = ["*.parquet"]
speed_unit = "m/s"
time_format = "iso8601"
columns = {{ vehicle = "plate", time = "at", latitude = "north", longitude = "east", speed = "speed" }}
"""
FLOOR = """
CREATE TABLE records AS
SELECT plate, CAST("at" AS TIMESTAMPTZ) AS "at", north AS latitude, east AS longitude, speed
FROM read_parquet($files)
WHERE plate IS NOT NULL AND north BETWEEN $south AND $north AND east BETWEEN $west AND $east
    AND speed IS NOT NULL;
"""
DISTINCT = """
CREATE TABLE once AS
SELECT
    plate, "at", any_value(latitude) AS latitude, any_value(longitude) AS longitude, any_value(speed) AS speed
FROM records GROUP BY plate, "at"
"""
GROUPED = """
COPY (
    SELECT
        cell_of(latitude, longitude) AS cell, hour("at" AT TIME ZONE 'Asia/Kolkata') AS slot, plate,
        count(*) AS records, sum(round(least(greatest(speed, 0), 30) * 100)) AS total,
        sum(round(least(greatest(speed, 0), 30) * 100) ** 2) AS squares
    FROM once GROUP BY ALL ORDER BY cell, slot, plate
) TO '{}' (FORMAT parquet)
"""


def write_day(path: Path, rows: int, day: int, vehicles: int) -> None:
    """Write one day of about ``rows`` records: vehicles start at a place of theirs and turn now and then."""
    random = np.random.default_rng(day)
    steps = max(1, rows // vehicles)
    seconds = max(1, min(30, DAY_SECONDS // (2 * steps)))
    begin = random.integers(0, DAY_SECONDS - steps * seconds, vehicles)
    plates = pa.array([f"KA{v % 60:02d}AB{v:05d}" for v in range(vehicles)])
    heading = random.uniform(0, 2 * np.pi, vehicles)
    latitude = (SOUTH + NORTH) / 2 + 0.08 * random.standard_normal(vehicles)
    longitude = (WEST + EAST) / 2 + 0.08 * random.standard_normal(vehicles)
    at_once = max(1, (1 << 18) // vehicles)
    names = ["plate", "at", "north", "east", "speed"]
    kinds = [pa.string(), pa.string(), pa.float64(), pa.float64(), pa.float64()]
    with pq.ParquetWriter(path, pa.schema(list(zip(names, kinds, strict=True)))) as writer:
        for start in range(0, steps, at_once):
            shape = (min(at_once, steps - start), vehicles)
            speed = np.clip(random.normal(8, 5, shape), 0, 35).round(2)
            turned = heading + np.cumsum(random.normal(0, 0.3, shape), axis=0)
            north = latitude + np.cumsum(speed * seconds * np.cos(turned) / 111_195, axis=0)
            east = longitude + np.cumsum(speed * seconds * np.sin(turned) / 108_000, axis=0)
            heading, latitude, longitude = turned[-1], north[-1], east[-1]
            passed = (begin + (start + np.arange(shape[0]))[:, None] * seconds).ravel()
            order = np.argsort(passed, kind="stable")
            at = FIRST_DAY + (passed[order] + day * DAY_SECONDS)
            columns = [
                plates.take(pa.array(np.tile(np.arange(vehicles), shape[0])[order])),
                pa.array(np.char.add(np.datetime_as_string(at), "Z")),
                *(
                    pa.array(_folded(each.ravel()[order], *ends))
                    for each, ends in ((north, (SOUTH, NORTH)), (east, (WEST, EAST)))
                ),
                pa.array(speed.ravel()[order]),
            ]
            writer.write_table(pa.table(columns, names))


def _folded(degrees: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return degrees that turn back at both ends of the area."""
    width = high - low - 0.02
    return low + 0.01 + np.abs((degrees - low) % (2 * width) - width).round(6)


def floor(folder: Path, files: list[str]) -> int:
    """Do the same work without privacy; return the number of (cell, slot, vehicle)."""

    def cell_of(latitude: pa.Array, longitude: pa.Array) -> pa.Array:
        return pa.array(coordinates_to_cells(latitude, longitude, 8))

    box = {"south": SOUTH, "north": NORTH, "west": WEST, "east": EAST}
    with duckdb.connect(str(folder / "floor.duckdb"), config={"memory_limit": "4GB"}) as connection:
        connection.create_function("cell_of", cell_of, ["DOUBLE", "DOUBLE"], "UBIGINT", type="arrow")
        connection.execute(FLOOR, {"files": files, **box})
        connection.execute(DISTINCT)
        return int(connection.execute(GROUPED.format(folder / "floor.parquet")).fetchall()[0][0])


def ingest(folder: Path, files: list[str]) -> int:
    """Read the files into a store, a new one if there is none; return the new records."""
    import trafficdp

    workspace = trafficdp.open(folder / "city.toml", store=folder / "store", create=True)
    return sum(each.added for each in workspace.ingest(files))


def reduce(folder: Path, files: list[str]) -> int:
    """Bring what vehicles contribute up to date; return the number of (bin, vehicle)."""
    import trafficdp

    return trafficdp.open(folder / "city.toml", store=folder / "store").counts().pairs


def release(folder: Path, files: list[str]) -> int:
    """Plan, charge, draw and publish; return the number of bins."""
    import trafficdp

    return trafficdp.open(folder / "city.toml", store=folder / "store").release(force=True).release.bins


STEPS: dict[str, Callable[[Path, list[str]], int]] = {
    each.__name__: each for each in (floor, ingest, reduce, release)
}


def measured(step: str, folder: Path, files: list[Path]) -> dict[str, float]:
    """Run a step in a fresh process; return its result, processor seconds, seconds and peak megabytes."""
    command = [sys.executable, __file__, "--measure", step, str(folder), *map(str, files)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    print(
        f"{step:<8} {found['result']:>12,} {found['cpu']:>8.1f} {found['wall']:>8.1f} {found['mb']:>7.0f}",
        flush=True,
    )
    return found


def measure(step: str, folder: Path, files: list[str]) -> None:
    """Run a step in this process and print what it took, as JSON."""
    if step != "floor":
        # only the work is measured
        for module in (
            "trafficdp.workspace",
            "trafficdp.export.write",
            "pandas",
            "geopandas",
            "opendp.prelude",
        ):
            importlib.import_module(module)
    cpu, wall = time.process_time(), time.perf_counter()
    result = STEPS[step](folder, files)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"result": result, "cpu": cpu, "wall": wall, "mb": peak}))


def many_records(rows: int, days: int, release_too: bool) -> None:
    """Print what each step costs, and the ratio to the floor."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "city.toml").write_text(CONFIG, encoding="utf-8")
        files = [folder / f"day{day:03}.parquet" for day in range(days)]
        for day, path in enumerate(files):
            write_day(path, rows // days, day, VEHICLES)
        print(f"{rows:,} records, {days} days, {VEHICLES:,} vehicles")
        print(f"{'step':<8} {'result':>12} {'cpu s':>8} {'wall s':>8} {'MB':>7}")
        plain = measured("floor", folder, files)
        (folder / "floor.duckdb").unlink()
        ours = [measured("ingest", folder, files), measured("reduce", folder, [])]
        if ours[1]["result"] != plain["result"]:
            raise SystemExit("the two ways disagree")
        if release_too:
            ours.append(measured("release", folder, []))
        ratio = sum(each["cpu"] for each in ours) / plain["cpu"]
        print(f"ratio of processor seconds {ratio:.2f}, peak {max(each['mb'] for each in ours):.0f} MB")


def many_days(days: int, every: int) -> None:
    """Print what a day costs in a store that grows, with a release every so many days."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        coarse = CONFIG.replace("resolution = 8", "resolution = 6").replace("hour_of_day", "whole_period")
        (folder / "city.toml").write_text(coarse, encoding="utf-8")
        print(f"{days} days of 20,000 records of 1,000 vehicles, a release every {every} days")
        print(f"{'day':>5} {'ingest cpu s':>13} {'release cpu s':>14}")
        for day in range(days):
            path = folder / f"day{day:03}.parquet"
            write_day(path, 20_000, day, 1000)
            cpu = time.process_time()
            ingest(folder, [str(path)])
            taken = time.process_time() - cpu
            path.unlink()
            if day % every == 0:
                cpu = time.process_time()
                release(folder, [])
                print(f"{day:>5} {taken:>13.2f} {time.process_time() - cpu:>14.2f}", flush=True)


def main() -> None:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--days", type=int, default=1, help="files that the records are in")
    parser.add_argument("--reduce-only", action="store_true", help="no release")
    parser.add_argument("--store-days", type=int, default=0, help="days of one store that grows")
    parser.add_argument("--every", type=int, default=7, help="days from release to release in it")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        step, folder, *files = options.measure
        measure(step, Path(folder), files)
        return
    for rows in options.rows:
        many_records(rows, options.days, not options.reduce_only)
    if options.store_days:
        many_days(options.store_days, options.every)


if __name__ == "__main__":
    main()
