"""What the main job costs in time and memory: ingest and release beside the same work without privacy.

    python tests/benchmarks/bench_main_job.py [--rows N ...]

For every city the same raw files go two ways, each step in fresh processes:

* ``plain``: DuckDB reads the files into a table (load); DuckDB with H3 as a function takes count,
  distinct vehicles, mean and variance a hexagon from it and writes them as CSV (query);
* ``trafficdp``: ``ingest`` (cleaning, pseudonyms, unit check, one transaction) and ``release`` (plan,
  ledger, noise, six files, `released.duckdb`).

Time is the best of three processes, after imports; memory is the largest peak of a process, imports
included, and the plain processes import no more than DuckDB, Arrow and H3. The cities: simulated ones
(`trafficdp simulate`), four days in Parquet; and Austin's four days when TRAFFICDP_REAL_DATA is set.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
from duckdb.func import ARROW
from h3ronpy.vector import coordinates_to_cells

ROOT = Path(__file__).resolve().parents[2]
AUSTIN_DAYS = ("2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27")
REPEATS = 3
SIMULATED_DAYS, ROWS_A_DAY = 4, 110
"""Of a simulated city, and about how many rows a vehicle of it sends a day."""
LOAD = """
CREATE TABLE fixes AS
SELECT
    "{vehicle}"::VARCHAR AS vehicle, "{time}"::TIMESTAMPTZ AS time,
    "{latitude}"::DOUBLE AS latitude, "{longitude}"::DOUBLE AS longitude, "{speed}"::DOUBLE AS speed
FROM {rows}
"""
CSV, PARQUET = "read_csv($files, all_varchar = true)", "read_parquet($files)"
QUERY = """
COPY (
    SELECT
        cell_of(latitude, longitude) AS cell, count(*) AS fixes, count(DISTINCT vehicle) AS vehicles,
        avg(least(speed, {upper})) AS mean, var_pop(least(speed, {upper})) AS variance
    FROM fixes
    WHERE speed IS NOT NULL AND speed NOT IN ({sentinels})
        AND latitude BETWEEN {south} AND {north} AND longitude BETWEEN {west} AND {east}
    GROUP BY cell
) TO '{out}' (HEADER)
"""


@dataclass(frozen=True)
class City:
    """A configuration file, the raw files that it declares and, for the plain way, what it says."""

    name: str
    config: str
    files: list[str]
    rows: int
    columns: dict[str, str]
    sentinels: list[str]
    upper: float
    resolution: int | None
    bounds: list[float]


def city_of(name: str, path: Path, files: list[Path], rows: int) -> City:
    """Read the configuration for the plain way; only the parent process does."""
    from trafficdp.config.file import load_config

    config = load_config(path)
    source = config.sources[0]
    return City(
        name=name,
        config=str(path),
        files=[str(file) for file in files],
        rows=rows,
        columns=dict(source.columns),
        sentinels=[str(value) for value in source.sentinels],
        upper=float(config.map.bound.upper),
        resolution=config.grid.resolution,
        bounds=list(config.grid.area.geometry.bounds),
    )


def simulated_city(folder: Path, rows: int) -> City:
    """Write a simulated city of about ``rows`` rows, at a resolution that passes."""
    import trafficdp

    vehicles = max(1, round(rows / SIMULATED_DAYS / ROWS_A_DAY))
    made = trafficdp.simulate(folder, vehicles=vehicles, days=SIMULATED_DAYS, seed=1, resolution=5)
    return city_of("simulated city", made.config, list(made.feeds), made.rows)


def austin(folder: Path, feeds: Path) -> City:
    """Return Austin's four days at the resolution that passes."""
    folder.mkdir(parents=True)
    text = (ROOT / "pipelines" / "austin.toml").read_text(encoding="utf-8")
    config = folder / "city.toml"
    config.write_text(re.sub(r"(?m)^resolution = 7$", "resolution = 5", text), encoding="utf-8")
    files = [feeds / "capmetro" / f"{day}.csv.gz" for day in AUSTIN_DAYS]
    with duckdb.connect(":memory:") as connection:
        query = f"SELECT count(*) FROM {CSV}"
        found = connection.execute(query, {"files": [str(path) for path in files]}).fetchone()
    return city_of("Austin, 4 days", config, files, 0 if found is None else int(found[0]))


def _reader(city: City) -> str:
    return PARQUET if city.files[0].endswith(".parquet") else CSV


def load(city: City, folder: Path) -> int:
    """Read the raw files into a table; return its rows."""
    with duckdb.connect(str(folder / "plain.duckdb")) as connection:
        connection.execute(LOAD.format(rows=_reader(city), **city.columns), {"files": city.files})
        found = connection.execute("SELECT count(*) FROM fixes").fetchone()
    return 0 if found is None else int(found[0])


def query(city: City, folder: Path) -> int:
    """Write count, vehicles, mean and variance of every hexagon; return the number of hexagons."""

    def cell_of(latitude: pa.Array, longitude: pa.Array) -> pa.Array:
        return pa.array(coordinates_to_cells(latitude, longitude, city.resolution))

    west, south, east, north = city.bounds
    statement = QUERY.format(
        upper=city.upper,
        sentinels=", ".join(city.sentinels),
        west=west,
        south=south,
        east=east,
        north=north,
        out=folder / "cells.csv",
    )
    with duckdb.connect(str(folder / "plain.duckdb"), read_only=True) as connection:
        connection.create_function("cell_of", cell_of, ["DOUBLE", "DOUBLE"], "UBIGINT", type=ARROW)
        found = connection.execute(statement).fetchone()
    return 0 if found is None else int(found[0])


def ingest(city: City, folder: Path) -> int:
    """Fill a new store; return the rows that were read."""
    import trafficdp

    workspace = trafficdp.open(city.config, store=folder / "store", create=True)
    return sum(each.report.rows_in for each in workspace.ingest(city.files))


def release(city: City, folder: Path) -> int:
    """Plan, charge, draw and publish; return the number of hexagons."""
    import trafficdp

    return trafficdp.open(city.config, store=folder / "store").release().release.bins


PLAIN: dict[str, Callable[[City, Path], int]] = {"load": load, "query": query}
PRIVATE: dict[str, Callable[[City, Path], int]] = {"ingest": ingest, "release": release}


def measure(step: str, city: City, folder: Path) -> None:
    """Run a step in this process and print what it took, as JSON."""
    if step in PRIVATE:
        importlib.import_module("trafficdp")
    start = time.perf_counter()
    result = {**PLAIN, **PRIVATE}[step](city, folder)
    seconds = time.perf_counter() - start
    print(json.dumps({"result": result, "seconds": seconds, "megabytes": peak_megabytes()}))


def peak_megabytes() -> float:
    """Return the peak of this process. On Linux ru_maxrss is never less than the parent's: ask /proc."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = re.search(r"(?m)^VmHWM:\s+(\d+) kB$", status.read_text(encoding="ascii"))
        if peak is not None:
            return int(peak.group(1)) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(city: City, folder: Path) -> None:
    """Run all steps REPEATS times and print the lines of the table."""
    pairs = tuple(zip(PLAIN, PRIVATE, strict=True))
    found: dict[str, list[dict[str, float]]] = {step: [] for step in (*PLAIN, *PRIVATE)}
    for number in range(REPEATS):
        place = folder / f"run{number}"
        place.mkdir()
        # load and ingest first: query and release build on what they leave in the folder
        for step in [step for pair in pairs for step in pair]:
            command = [sys.executable, __file__, "--measure", step, json.dumps(asdict(city)), str(place)]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[step].append(json.loads(answer.stdout))
        shutil.rmtree(place)
    results = {step: {run["result"] for run in runs} for step, runs in found.items()}
    if results["load"] != results["ingest"] or results["query"] != results["release"]:
        raise SystemExit(f"the two ways disagree about rows or hexagons: {results}")
    seconds = {step: min(run["seconds"] for run in runs) for step, runs in found.items()}
    megabytes = {step: max(run["megabytes"] for run in runs) for step, runs in found.items()}
    for plain, private in pairs:
        _line(city, private, seconds[plain], seconds[private], megabytes[plain], megabytes[private])
    _line(
        city,
        "both",
        seconds["load"] + seconds["query"],
        seconds["ingest"] + seconds["release"],
        max(megabytes["load"], megabytes["query"]),
        max(megabytes["ingest"], megabytes["release"]),
    )


def _line(
    city: City, step: str, plain_s: float, private_s: float, plain_mb: float, private_mb: float
) -> None:
    print(
        f"{city.name:<15} {city.rows:>9,} {step:<8}"
        f" {plain_s:>8.2f} {private_s:>8.2f} {private_s / plain_s:>6.2f}"
        f" {plain_mb:>9.0f} {private_mb:>8.0f} {private_mb / plain_mb:>6.2f}",
        flush=True,
    )


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        step, city, place = options.measure
        measure(step, City(**json.loads(city)), Path(place))
        return
    print(f"best of {REPEATS}: seconds and peak megabytes, without privacy and with it")
    print(f"{'city':<15} {'rows':>9} {'step':<8} {'plain s':>8} {'ours s':>8} {'ratio':>6}", end="")
    print(f" {'plain MB':>9} {'ours MB':>8} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        feeds = os.environ.get("TRAFFICDP_REAL_DATA")
        if feeds:
            _in_new_folder(folder / "austin", lambda place: austin(place, Path(feeds)))
        for rows in options.rows:
            _in_new_folder(folder / f"simulated{rows}", partial(simulated_city, rows=rows))


def _in_new_folder(folder: Path, make: Callable[[Path], City]) -> None:
    compare(make(folder), folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
