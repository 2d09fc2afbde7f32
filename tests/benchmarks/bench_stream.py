"""What a stream costs in time and memory, beside the same files added up by DuckDB without privacy.

    python tests/benchmarks/bench_stream.py [--rows N ...]

Simulated files of 100,000 rows arrive one after another: 5,000 vehicles that report every 10 seconds, about
2,000 hexagons, a map every 15 minutes of stream time.

* ``plain``: DuckDB reads each file, finds the hexagons, and adds count, sum and sum of squares of each to a
  table; at the end the table is summed up;
* ``trafficdp``: the files are taken by a stream: pseudonyms, rules, accounts, one transaction a batch, noise,
  ledger entry, `released.duckdb`, GeoJSON, Parquet and page of every publication.

Rates are records per second of processor time (all threads; on two idle cores the clock shows no less) and
per second of the clock, without making the files; memory is the peak of the process, after imports
and the first file (``start``) and at the end. Flat memory shows as a ratio near 1 between more and fewer
rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv
from duckdb.func import ARROW
from h3ronpy.vector import coordinates_to_cells

FILE_ROWS = 100_000
VEHICLES = 5_000
SECONDS_BETWEEN = 10
WEST, SOUTH, EAST, NORTH = 10.0, 45.0, 10.47, 45.34
RESOLUTION = 8
CONFIG = f"""
[city]
name = "Bench"
publisher = "Bench"
time_zone = "UTC"
study_area = {{ bbox = [{WEST}, {SOUTH}, {EAST}, {NORTH}] }}
period = {{ from = "2026-03-02", to = "2026-03-08" }}
[privacy]
relation = "replace_user_values"
[budget]
epsilon_per_vehicle = 10
[map]
resolution = {RESOLUTION}
slot = "whole_period"
speed_bound = 30
speed_unit = "m/s"
speed_step = 0.01
min_vehicles = 5
statistics = ["mean", "variance"]
[stream]
epsilon = 4
publish_every = 15
lateness = 2
records_per_vehicle = 20000
[[source]]
name = "simulated"
format = "csv"
files = ["*.csv"]
speed_unit = "m/s"
time_format = "epoch_s"
[source.columns]
vehicle = "vehicle"
time = "time"
latitude = "latitude"
longitude = "longitude"
speed = "speed"
"""
PLAIN = """
INSERT INTO totals
SELECT cell_of(latitude, longitude), count(*), sum(least(speed, 30)), sum(least(speed, 30) ** 2)
FROM read_csv($file) GROUP BY ALL
"""


def make_file(path: Path, number: int) -> None:
    """Write file ``number``: every vehicle once in ten seconds, at places that drift over the map."""
    random = np.random.default_rng(number)
    row = np.arange(number * FILE_ROWS, (number + 1) * FILE_ROWS)
    vehicle = row % VEHICLES
    at = 1_772_409_600 + row * SECONDS_BETWEEN // VEHICLES
    x = (vehicle * 0.618 + row / 3e6 + random.normal(0, 0.01, FILE_ROWS)) % 1
    y = (vehicle * 0.414 + row / 5e6 + random.normal(0, 0.01, FILE_ROWS)) % 1
    table = pa.table(
        {
            "vehicle": np.char.add("bus-", vehicle.astype(str)),
            "time": at,
            "latitude": np.round(SOUTH + 0.001 + y * (NORTH - SOUTH - 0.002), 6),
            "longitude": np.round(WEST + 0.001 + x * (EAST - WEST - 0.002), 6),
            "speed": np.round(random.gamma(4, 3, FILE_ROWS), 2),
        }
    )
    pacsv.write_csv(table, path)


def moment() -> npt.NDArray[np.float64]:
    """Return processor time of this process, all its threads, and the clock, in seconds."""
    return np.array([time.process_time(), time.perf_counter()])


def peak_megabytes() -> float:
    """Return the peak of this process."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    return int(kilobytes) / 1024


def plain(folder: Path, files: int) -> dict[str, Any]:
    """Add the files up without privacy."""

    def cell_of(latitude: pa.Array, longitude: pa.Array) -> pa.Array:
        return pa.array(coordinates_to_cells(latitude, longitude, RESOLUTION))

    path, seconds = folder / "plain.csv", np.zeros(2)
    with duckdb.connect(str(folder / "plain.duckdb")) as connection:
        connection.create_function("cell_of", cell_of, ["DOUBLE", "DOUBLE"], "UBIGINT", type=ARROW)
        connection.execute("CREATE TABLE totals (cell UBIGINT, fixes BIGINT, total DOUBLE, squares DOUBLE)")
        for number in range(files):
            make_file(path, number)
            start = start_megabytes(number)
            began = moment()
            connection.execute(PLAIN, {"file": str(path)}).fetchall()
            seconds += moment() - began
        began = moment()
        sums = "SELECT cell, sum(fixes), sum(total) / sum(fixes) FROM totals GROUP BY cell"
        bins = len(connection.execute(sums).fetchall())
        seconds += moment() - began
    return {"seconds": seconds.tolist(), "bins": bins, "start": start, "megabytes": peak_megabytes()}


_START: list[float] = []


def start_megabytes(number: int) -> float:
    """Return the peak after the first file."""
    if number == 1:
        _START.append(peak_megabytes())
    return _START[0] if _START else 0.0


def private(folder: Path, files: int) -> dict[str, Any]:
    """Take the files as a stream."""
    import trafficdp
    from trafficdp.release.feeds import digest_of

    config = folder / "trafficdp.toml"
    config.write_text(CONFIG, encoding="utf-8")
    live = trafficdp.open(config, create=True).live()
    live.begin()
    path, seconds = folder / "stream.csv", np.zeros(2)
    for number in range(files):
        make_file(path, number)
        start = start_megabytes(number)
        began = moment()
        digest = digest_of(path, live.key)
        if digest is None:
            raise SystemExit(f"{path} was written and cannot be read")
        progress = live.ingest([live.read(path, digest)], live=False)
        seconds += moment() - began
    stored = sum(each.stat().st_size for each in (folder / "city.store").glob("*.duckdb")) / 2**20
    return {
        "seconds": seconds.tolist(),
        "bins": len(live._stream.bins),
        "start": start,
        "megabytes": peak_megabytes(),
        "publications": progress.publications,
        "accepted": progress.fates["accepted"],
        "stored": stored,
    }


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        way, rows, folder = options.measure
        if way == "private":
            importlib.import_module("trafficdp")
        run = {"plain": plain, "private": private}[way]
        print(json.dumps(run(Path(folder), int(rows) // FILE_ROWS)))
        return
    print("records a second of processor time and peak megabytes, without privacy and with it")
    print(
        f"{'rows':>11} {'bins':>6} {'maps':>5} {'plain/s':>10} {'ours/s':>10} {'ratio':>6} {'by clock':>11}",
        end="",
    )
    print(f" {'plain MB':>9} {'ours MB':>8} {'ratio':>6} {'vault+released MB':>18}")
    memory = []
    for rows in options.rows:
        found: dict[str, dict[str, Any]] = {}
        for way in ("plain", "private"):
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--measure", way, str(rows), folder]
                answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                found[way] = json.loads(answer.stdout)
        ours, theirs = found["private"], found["plain"]
        if ours["accepted"] != rows or ours["bins"] != theirs["bins"]:
            raise SystemExit(f"the two ways disagree about rows or hexagons: {found}")
        memory.append(ours["megabytes"])
        print(
            f"{rows:>11,} {ours['bins']:>6,} {ours['publications']:>5}"
            f" {rows / theirs['seconds'][0]:>10,.0f} {rows / ours['seconds'][0]:>10,.0f}"
            f" {ours['seconds'][0] / theirs['seconds'][0]:>6.2f} {rows / ours['seconds'][1]:>11,.0f}"
            f" {theirs['megabytes']:>9.0f} {ours['megabytes']:>8.0f}"
            f" {ours['megabytes'] / theirs['megabytes']:>6.2f} {ours['stored']:>18.0f}",
            flush=True,
        )
    if len(memory) > 1:
        print(f"memory at {options.rows[-1]:,} rows over {options.rows[0]:,}: {memory[-1] / memory[0]:.2f}")


if __name__ == "__main__":
    main()
