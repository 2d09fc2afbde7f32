"""Means a hexagon and hour beside two peers: processor seconds, memory and error, in one run.

    python tests/benchmarks/bench_peers.py --peers .venv-peers/bin/python [--rows N] [--into FOLDER]

The same simulated records, the same bins (those with at least 5 vehicles) and the same total epsilon a
vehicle. A fresh process each, after imports:

* ``trafficdp``: from the files: ``ingest`` and ``release``, with its ledger and all its files;
* ``PipelineDP``: its local backend, in an environment of its own, by Gaussian noise at delta 10^-6. It is
  handed records that are clean and binned already, and its bounds are the 90th percentiles of the counts;
* ``IUDX steps``: what the IUDX pipeline does, row by row with pandas and h3, with its Laplace noise and the
  total shared among the bins of the busiest vehicle.

The error is the mean absolute one of the means of all those bins, clamped to what speeds there can be.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

EPSILON, DELTA, UPPER, MIN_VEHICLES, SEED = 4, 1e-6, 30.0, 5, 7
PEER = "pipeline_dp"


def trafficdp(folder: Path) -> None:
    """Ingest the files and release the map; keep its means."""
    import trafficdp as product

    config = folder / "trafficdp.toml"
    workspace = product.open(config, store=folder / "store", create=True)
    workspace.ingest(sorted(folder.glob("records-*.parquet")))
    released = workspace.release(EPSILON, force=True).release
    (estimate,) = released.estimates.values()
    np.savez(folder / "trafficdp.npz", cell=released.cell, slot=released.slot, mean=estimate.value)


def pipelinedp(folder: Path) -> None:
    """Means by PipelineDP's local backend, from records that are binned."""
    import pipeline_dp

    given = np.load(folder / "binned.npz")
    rows = list(zip(given["vehicle"].tolist(), given["bin"].tolist(), given["speed"].tolist(), strict=True))
    epsilon = float(given["epsilon"])
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=DELTA)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    asked = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.MEAN],
        noise_kind=pipeline_dp.NoiseKind.GAUSSIAN,
        max_partitions_contributed=int(given["most_bins"]),
        max_contributions_per_partition=int(given["most_records"]),
        min_value=0.0,
        max_value=UPPER,
    )
    columns = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    found = engine.aggregate(rows, asked, columns, public_partitions=given["kept"].tolist())
    accountant.compute_budgets()
    mean = np.zeros(len(given["cell"]))
    for number, metrics in found:
        mean[number] = metrics.mean
    kept = given["kept"]
    np.savez(folder / "pipelinedp.npz", cell=given["cell"][kept], slot=given["slot"][kept], mean=mean[kept])


def iudx(folder: Path) -> None:
    """The steps of the IUDX pipeline: a hexagon a row, text keys, pandas group by, Laplace noise a bin."""
    import h3
    import pandas as pd

    rules = json.loads((folder / "rules.json").read_text(encoding="utf-8"))
    west, south, east, north = rules["box"]
    table = pd.concat([pd.read_parquet(path) for path in sorted(folder.glob("records-*.parquet"))])
    table = table.dropna(subset=["vehicle", "speed"])
    table = table[table.speed != rules["sentinel"]]
    table = table[table.latitude.between(south, north) & table.longitude.between(west, east)]
    table = table.drop_duplicates(["vehicle", "time"]).reset_index(drop=True)
    index = [None] * len(table)
    for row, (latitude, longitude) in enumerate(zip(table.latitude, table.longitude, strict=True)):
        index[row] = h3.latlng_to_cell(latitude, longitude, rules["resolution"])
    table["h3index"] = index
    table["Timeslot"] = pd.to_datetime(table.time).dt.time.apply(lambda at: at.hour)
    table["HAT"] = table.Timeslot.astype(str) + " " + table.h3index
    table["speed"] = table.speed.clip(0, UPPER)
    table["vehicle"] = table.vehicle.astype(str)
    of_each = table.groupby(["HAT", "vehicle"]).agg(count=("speed", "count"), sum=("speed", "sum"))
    of_each = of_each.reset_index()
    bins = of_each.groupby("HAT").agg(
        vehicles=("vehicle", "nunique"), most=("count", "max"), records=("count", "sum"), sum=("sum", "sum")
    )
    bins = bins[bins.vehicles >= MIN_VEHICLES]
    busiest = int(of_each[of_each.HAT.isin(bins.index)].groupby("vehicle").HAT.nunique().max())
    scale = bins.most * UPPER / bins.records / (EPSILON / busiest)
    mean = bins["sum"] / bins.records + np.random.default_rng(SEED).laplace(0, scale)
    slot, cell = zip(*(each.split() for each in bins.index), strict=True)
    cells = np.array([int(each, 16) for each in cell], dtype=np.uint64)
    np.savez(folder / "iudx.npz", cell=cells, slot=np.array(slot, dtype=np.int64), mean=mean.to_numpy())


STEPS: dict[str, tuple[str, Callable[[Path], None], tuple[str, ...]]] = {
    "trafficdp": (
        "trafficdp",
        trafficdp,
        ("trafficdp.workspace", "trafficdp.export.write", "geopandas", "opendp.prelude"),
    ),
    "pipelinedp": ("PipelineDP, local", pipelinedp, (PEER,)),
    "iudx": ("IUDX steps", iudx, ("pandas", "pyarrow.parquet", "h3")),
}


def prepare(folder: Path, rows: int) -> dict[tuple[int, int], float]:
    """Write the city, its clean and binned records and its rules; return the true means of its bins."""
    import duckdb
    from bench_scale import RESOLUTION, box_of, city
    from bench_scale import floor as grouped

    from trafficdp.binning.cells import cells_of

    config, _, _ = city(folder, rows)
    text = config.read_text(encoding="utf-8").replace("[map]", '[map]\nmechanism = "auto"')
    config.write_text(text, encoding="utf-8")
    box = box_of(text)
    rules = {
        "box": [box["west"], box["south"], box["east"], box["north"]],
        "sentinel": box["sentinel"],
        "resolution": RESOLUTION,
    }
    (folder / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    grouped(folder)
    with duckdb.connect(str(folder / "floor.duckdb"), read_only=True) as connection:
        once = connection.sql(
            "SELECT dense_rank() OVER (ORDER BY vehicle) AS vehicle, "
            "hour(\"time\" AT TIME ZONE 'UTC') AS slot, "
            f"latitude, longitude, least(greatest(speed, 0), {UPPER}) AS speed FROM once"
        ).fetchnumpy()
    cell = cells_of(once["latitude"], once["longitude"], RESOLUTION)
    (cells, slots), number = np.unique(
        np.stack([cell.astype(np.uint64), once["slot"].astype(np.uint64)]), axis=1, return_inverse=True
    )
    number, vehicle = number.ravel(), once["vehicle"].astype(np.int64)
    pairs, records = np.unique(number * (int(vehicle.max()) + 1) + vehicle, return_counts=True)
    of_bin, of_vehicle = np.divmod(pairs, int(vehicle.max()) + 1)
    kept = np.flatnonzero(np.bincount(of_bin) >= MIN_VEHICLES)
    bins = np.unique(of_vehicle[np.isin(of_bin, kept)], return_counts=True)[1]
    np.savez(
        folder / "binned.npz",
        vehicle=vehicle,
        bin=number,
        speed=once["speed"],
        cell=cells,
        slot=slots.astype(np.int64),
        kept=kept,
        epsilon=EPSILON,
        most_bins=int(np.quantile(bins, 0.9)),
        most_records=int(np.quantile(records, 0.9)),
    )
    (folder / "floor.duckdb").unlink()
    mean = np.bincount(number, weights=once["speed"]) / np.bincount(number)
    return {(int(cells[g]), int(slots[g])): float(mean[g]) for g in kept.tolist()}


def error_of(folder: Path, step: str, true: dict[tuple[int, int], float]) -> float:
    """Return the mean absolute error of a step's means; a bin that it does not give is the middle."""
    made = np.load(folder / f"{step}.npz")
    keys = zip(made["cell"].tolist(), made["slot"].tolist(), strict=True)
    given = dict(zip(keys, np.clip(made["mean"], 0, UPPER).tolist(), strict=True))
    found = np.array([given.get(key, np.nan) for key in true])
    found = np.where(np.isnan(found), UPPER / 2, found)
    return float(np.mean(np.abs(found - np.array(list(true.values())))))


def measure(step: str, folder: Path) -> None:
    """Run a step in this process and print what it took, as JSON."""
    _, work, imported = STEPS[step]
    for module in imported:
        importlib.import_module(module)
    cpu = time.process_time()
    work(folder)
    cpu = time.process_time() - cpu
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    print(json.dumps({"cpu": cpu, "mb": peak}))


def main() -> None:
    """Read the command line, print the table and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--peers", default=sys.executable, help="Python with pipeline-dp")
    parser.add_argument("--into", type=Path, help="where the city is written; deleted after")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]))
        return
    from table import keep

    with tempfile.TemporaryDirectory(dir=options.into) as temporary:
        folder = Path(temporary) / "city"
        true = prepare(folder, options.rows)
        rows, ours = [], 0.0
        for step, (name, _, imported) in STEPS.items():
            python = options.peers if PEER in imported else sys.executable
            command = [python, __file__, "--measure", step, str(folder)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            ours = ours or found["cpu"]
            line = [name, f"{found['cpu']:.1f}", f"{found['cpu'] / ours:.1f}", f"{found['mb']:,.0f}"]
            rows.append([*line, f"{error_of(folder, step, true):.2f}"])
            print(" ".join(f"{each:>18}" for each in rows[-1]), flush=True)
    said = (
        f"Means of {len(true):,} bins (resolution 8, hour of day) of {options.rows:,} simulated rows at a "
        f"total epsilon of {EPSILON} a vehicle. trafficdp and IUDX's steps read the files; PipelineDP is "
        "handed binned records. Error: mean absolute, m/s. Relations differ: see "
        "`tests/benchmarks/bench_peers.py`."
    )
    keep("Peers", said, ["", "seconds", "of ours", "MB", "error"], rows)


if __name__ == "__main__":
    main()
