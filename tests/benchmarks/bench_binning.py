"""What privacy costs in time and memory: the reduction beside the same query without privacy.

    python tests/benchmarks/bench_binning.py [--rows N ...] [--resolution R]

For every number of rows, the same synthetic fixes are read from the same file by two fresh processes:

* ``private``: ``reduce_fixes`` - exact integer sums a (cell, vehicle), sorted;
* ``plain``: DuckDB with H3 as a function - count, distinct vehicles, mean and variance a cell.

Time is the best of three, after imports; memory is the process's peak. Then positions a second of the
ways to find cells, which is why ``CellTable`` is used.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import ARROW
from h3ronpy.vector import coordinates_to_cells

from trafficdp.binning.cells import CellTable, cells_of, reference_cells_of
from trafficdp.engine.duckdb_reduce import BATCH_ROWS, reduce_fixes
from trafficdp.model import ContributionBound, Grid, Period, SlotKind, SpeedUnit, StudyArea

AREA = StudyArea.from_bbox(-98.3, 29.9, -97.3, 30.7)
PERIOD = Period(date(2016, 11, 24), date(2016, 11, 27), "America/Chicago")
BOUND = ContributionBound(Fraction(30), Fraction(1, 10), SpeedUnit.METRES_PER_SECOND)
REPEATS = 3
# 500 vehicles that drift along closed curves, a fix each in turn over four days; two units of speed
FIXES = """
INSERT INTO fixes
SELECT
    (i % 500)::INTEGER + 1,
    $start_us + ((i // 500) * 345600000000 // ($rows // 500 + 1)),
    30.27 + 0.15 * sin(i % 500 + (i // 500) * 500 * 7.0 / $rows) * cos(i % 83)
        + ((hash(3 * i) % 10000)::BIGINT - 5000) * 2e-6,
    -97.75 + 0.15 * cos(2 * (i % 500) + (i // 500) * 500 * 11.0 / $rows)
        + ((hash(7 * i) % 10000)::BIGINT - 5000) * 2e-6,
    (hash(i) % 3500)::BIGINT,
    CASE WHEN i % 3 = 0 THEN 'mph' ELSE 'ms' END,
    FALSE,
    1
FROM range($rows) AS fix(i)
"""
PLAIN = """
SELECT
    cell_of(latitude, longitude) AS cell,
    count(*),
    count(DISTINCT vehicle_id),
    avg(speed_centi * CASE speed_unit WHEN 'mph' THEN 0.0044704 ELSE 0.01 END),
    var_pop(speed_centi * CASE speed_unit WHEN 'mph' THEN 0.0044704 ELSE 0.01 END)
FROM fixes
GROUP BY cell
"""


def write_fixes(path: Path, rows: int) -> None:
    """Make a vault with ``rows`` synthetic fixes."""
    with duckdb.connect(str(path)) as connection:
        connection.execute(files("trafficdp.store").joinpath("sql/tables/vault.sql").read_text())
        start_us = PERIOD.utc_seconds[0] * 1_000_000
        connection.execute(FIXES, {"rows": rows, "start_us": start_us})


def private(connection: duckdb.DuckDBPyConnection, resolution: int) -> Callable[[], int]:
    """The reduction; returns its number of bins."""
    grid = Grid(resolution, SlotKind.WHOLE_PERIOD, AREA, PERIOD)
    return lambda: reduce_fixes(connection, grid, BOUND, 1).counts.bins


def plain(connection: duckdb.DuckDBPyConnection, resolution: int) -> Callable[[], int]:
    """The query without privacy; returns its number of cells."""

    def cell_of(latitude: pa.Array, longitude: pa.Array) -> pa.Array:
        return pa.array(coordinates_to_cells(latitude, longitude, resolution))

    connection.create_function("cell_of", cell_of, ["DOUBLE", "DOUBLE"], "UBIGINT", type=ARROW)
    return lambda: int(connection.sql(PLAIN).to_arrow_table().num_rows)


def measure(what: str, path: Path, resolution: int) -> None:
    """Run one of the two in this process and print what it took, as JSON."""
    seconds = []
    with duckdb.connect(str(path), read_only=True) as connection:
        run = {"private": private, "plain": plain}[what](connection, resolution)
        for _ in range(REPEATS):
            start = time.perf_counter()
            bins = run()
            seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"bins": bins, "seconds": min(seconds), "megabytes": peak}))


def compare(rows: int, resolution: int) -> None:
    """Print one line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vault.duckdb"
        write_fixes(path, rows)
        found = {}
        for what in ("plain", "private"):
            command = [
                sys.executable,
                __file__,
                "--measure",
                what,
                str(path),
                "--resolution",
                str(resolution),
            ]
            answer = subprocess.run(command, check=True, capture_output=True, text=True)
            found[what] = json.loads(answer.stdout)
    mine, theirs = found["private"], found["plain"]
    if mine["bins"] != theirs["bins"]:
        raise SystemExit(f"the two disagree: {mine['bins']} and {theirs['bins']} cells")
    line = f"{rows:>12,} {mine['bins']:>7,}"
    for key, decimals in (("seconds", 3), ("megabytes", 0)):
        line += f" {theirs[key]:>9.{decimals}f} {mine[key]:>9.{decimals}f} {mine[key] / theirs[key]:>6.2f}"
    print(line, flush=True)


def rates(resolution: int, rows: int = 2_000_000) -> None:
    """Print how many million positions a second each way to find cells takes."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(files("trafficdp.store").joinpath("sql/tables/vault.sql").read_text())
        connection.execute(FIXES, {"rows": rows, "start_us": 0})
        fixes = connection.sql("SELECT latitude, longitude FROM fixes").to_arrow_table()
    lat, lng = (fixes[name].to_numpy() for name in ("latitude", "longitude"))
    parts = [slice(start, start + BATCH_ROWS) for start in range(0, rows, BATCH_ROWS)]

    def table() -> None:
        squares = CellTable(AREA.geometry.bounds, resolution)
        for part in parts:
            squares.cells_of(lat[part], lng[part])

    ways: dict[str, Callable[[], object]] = {
        "h3-py, one at a time": lambda: reference_cells_of(lat, lng, resolution),
        "h3ronpy, one thread": lambda: coordinates_to_cells(pa.array(lat), pa.array(lng), resolution),
        "cells_of (h3ronpy)": lambda: cells_of(lat, lng, resolution),
        "CellTable": table,
    }
    expected = cells_of(lat, lng, resolution)
    squares = CellTable(AREA.geometry.bounds, resolution)
    for part in parts:
        if not np.array_equal(squares.cells_of(lat[part], lng[part]), expected[part]):
            raise SystemExit("CellTable disagrees with h3ronpy")
    for name, way in ways.items():
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            way()
            seconds.append(time.perf_counter() - start)
        print(f"{name:>22} {rows / min(seconds) / 1e6:>6.1f} M positions/s")


def main() -> None:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[115_000, 2_000_000])
    parser.add_argument("--resolution", type=int, default=7)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        what, path = options.measure
        measure(what, Path(path), options.resolution)
        return
    print(f"resolution {options.resolution}, best of {REPEATS}: seconds and peak megabytes")
    print(f"{'rows':>12} {'cells':>7} {'plain s':>9} {'private s':>9} {'ratio':>6}", end="")
    print(f" {'plain MB':>9} {'private':>9} {'ratio':>6}")
    for rows in options.rows:
        compare(rows, options.resolution)
    rates(options.resolution)


if __name__ == "__main__":
    main()
