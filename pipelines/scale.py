"""What vehicles cost, step by step, on one machine and by Spark: the curves of `notebooks/scale.ipynb`.

    make scale        # or: .venv-spark/bin/python pipelines/scale.py [--into data/scale] [--vehicles N ...]

Simulated cities of more and more vehicles, a day each, hexagons of resolution 8 by the hour of day. Every
step is the command that a curator types, in a process of its own: processor seconds of it and of all that it
started (Java, Python workers), start included, the largest memory of a single process, and the bytes that it
leaves. Seconds of the processor, not of the clock: the machine may have other work. The two stores must agree
in every integer, or nothing is written.

``ingest``: files into a vault. ``first plan``: sums of every vehicle, accountings, blocks, and, for a map
that says too little, what would pass. ``plan``: the same with the sums at hand. ``release``: by force where
it says too little. ``charges``: what vehicles lost in it, alone, as Parquet. ``spark``: the job by
spark-submit. ``shuffle``: what its tasks wrote for one another. ``import``: its result into a store.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import duckdb
import pyarrow as pa

import trafficdp
from trafficdp.store.vault import Vault
from trafficdp.store.vault_fixes import load_contributions

VEHICLES = (1_000, 30_000, 90_000, 900_000)
MAP = {"resolution = 7": "resolution = 8", '"whole_period"': '"hour_of_day"'}
COLUMNS = ("vehicles", "records", "pairs", "step", "cpu_seconds", "peak_mb", "bytes")
BIN, HERE = Path(sys.executable).parent, Path(__file__)
REFUSED = 5
SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "localhost",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "16",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}
DIFFERENT = """
SELECT count(*) FROM (
    (FROM vault_sums EXCEPT ALL FROM cluster_sums) UNION ALL (FROM cluster_sums EXCEPT ALL FROM vault_sums)
)
"""


def measured(command: Sequence[str | Path]) -> tuple[float, float]:
    """Run a command in a process of its own; return processor seconds and megabytes."""
    done = subprocess.run(
        [sys.executable, HERE, "--measure", *map(str, command)], check=True, stdout=subprocess.PIPE, text=True
    )
    cpu, peak = json.loads(done.stdout.splitlines()[-1])
    return cpu, peak


def measure(command: Sequence[str]) -> None:
    """Run a command, wait for all that it started, and print what they took."""
    # orphans, such as the workers of a Java that has ended, become ours
    if ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) != 0:
        raise SystemExit("the processes of a command cannot be counted here: this needs Linux")
    # so that spark-submit and executors find this Python
    path = {"PATH": f"{BIN}:{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL, env=os.environ | path)
    if done.returncode not in (0, REFUSED):
        raise SystemExit(f"{command} ended with {done.returncode}")
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps([used.ru_utime + used.ru_stime, used.ru_maxrss / 1024]))


def bytes_in(path: Path, pattern: str = "*") -> int:
    """Return the bytes of a file, or of those in a folder."""
    files = [path] if path.is_file() else [each for each in path.rglob(pattern) if each.is_file()]
    return sum(each.stat().st_size for each in files)


def shuffled(log: Path) -> int:
    """Return the bytes that tasks wrote for other tasks to read, from Spark's event log."""
    found = 0
    for line in log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            found += event["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    return found


def charges_alone(vault: Path, scratch: Path) -> int:
    """Return the bytes of the accounts of all vehicles after one release, as a Parquet file.

    Not of a DuckDB file: that grows by whole blocks, which hold more than the smaller cities here fill.
    """
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{vault}' AS vault (READ_ONLY)")
        connection.execute(f"COPY (FROM vault.vehicle_charges ORDER BY ALL) TO '{scratch}' (FORMAT parquet)")
    return bytes_in(scratch)


def one_city(folder: Path, vehicles: int) -> list[tuple[int, int, int, str, float, float, int]]:
    """Return rows of COLUMNS for a city of so many vehicles."""
    tool = BIN / "trafficdp"
    steps: list[tuple[str, float, float, int]] = []

    def note(step: str, command: Sequence[str | Path], left: Path | None) -> None:
        cpu, peak = measured(command)
        steps.append((step, cpu, peak, 0 if left is None else bytes_in(left)))
        print(f"{vehicles:>7,} {step:<12} {cpu:8.1f} s {peak:7.0f} MB {steps[-1][3]:>13,} bytes", flush=True)

    city, config, log = folder / "city", folder / "city" / "trafficdp.toml", folder / "events"
    log.mkdir()
    note("simulate", [tool, "simulate", "--vehicles", str(vehicles), "--days", "1", "--into", city], None)
    text = config.read_text(encoding="utf-8")
    for old, new in MAP.items():
        text = text.replace(old, new)
    config.write_text(text, encoding="utf-8")
    files = sorted(city.glob("records-*.parquet"))
    one, other = folder / "one.store", folder / "other.store"
    on: list[str | Path] = [tool, "--config", config, "--store", one]
    on_other: list[str | Path] = [tool, "--config", config, "--store", other]
    subprocess.run([*on, "init"], check=True, stdout=subprocess.DEVNULL)
    key = Path(f"{one}.key")
    Path(f"{other}.key").write_bytes(key.read_bytes())
    Path(f"{other}.key").chmod(0o600)
    subprocess.run([*on_other, "init"], check=True, stdout=subprocess.DEVNULL)
    steps.append(("records", 0.0, 0.0, sum(map(bytes_in, files))))
    note("ingest", [*on, "ingest", *files], one / "vault.duckdb")
    note("first plan", [*on, "plan"], one / "vault.duckdb")
    note("plan", [*on, "plan"], None)
    note("release", [*on, "release", "--force", "--yes"], one / "vault.duckdb")
    steps.append(("charges", 0.0, 0.0, charges_alone(one / "vault.duckdb", folder / "charges.parquet")))
    settings = SPARK | {"spark.local.dir": str(folder), "spark.eventLog.dir": f"file://{log}"}
    submit: list[str | Path] = [
        *(BIN / "spark-submit", "--master", "local[2]"),
        *(text for name, value in settings.items() for text in ("--conf", f"{name}={value}")),
        *(HERE.with_name("spark_reduce.py"), "--config", config, "--key", key, "--into", folder / "jobs"),
        *files,
    ]
    note("spark", submit, folder / "jobs")
    (events,) = (path for path in log.iterdir() if not path.name.startswith("."))
    steps.append(("shuffle", 0.0, 0.0, shuffled(events)))
    note("import", [*on_other, "ingest", "--engine", "reduced", folder / "jobs"], other / "vault.duckdb")
    # as the first plan does for the other store
    trafficdp.open(config, store=other).counts()
    with duckdb.connect() as connection:
        for name, store in (("vault_sums", one), ("cluster_sums", other)):
            connection.register(name, sums_of(config, store))
        sums = connection.sql("SELECT count(*), sum(fixes) FROM vault_sums").fetchall()
        pairs, records = map(int, sums[0])
        (different,) = connection.sql(DIFFERENT).fetchall()
    if different != (0,) or not pairs:
        raise SystemExit(f"the two ways disagree in {different[0]} of {pairs} sums")
    print(f"{vehicles:>7,} equal in {pairs:,} sums of {records:,} records", flush=True)
    return [(vehicles, records, pairs, name, cpu, peak, size) for name, cpu, peak, size in steps]


def sums_of(config: Path, store: Path) -> pa.Table:
    """Return what the store keeps of every pair of a bin and a vehicle, by the vehicle's pseudonym."""
    city = trafficdp.open(config, store=store).config
    with Vault.open(store) as vault:
        kept = load_contributions(vault, city.grid, city.map.bound, 1 << 31)
        pseudonyms = dict(vault.run("SELECT vehicle_id, hmac FROM vehicles"))
    if kept is None:
        raise SystemExit(f"{store} keeps no sums")
    found, counts = kept.contributions, kept.contributions.counts
    known = pa.array([pseudonyms[vehicle] for vehicle in found.vehicle.tolist()])
    return pa.table(
        {
            "hmac": known.take(pa.array(counts.user_index)),
            "cell": counts.cell[counts.bin_index],
            "slot": counts.slot[counts.bin_index],
            "fixes": counts.count,
            "total": found.total,
            "total_of_squares": found.total_of_squares,
        }
    )


def write(into: Path, sizes: Sequence[int]) -> None:
    """Measure cities of ``sizes`` and write the table."""
    into.mkdir(parents=True, exist_ok=True)
    rows = []
    for vehicles in sizes:
        with tempfile.TemporaryDirectory() as folder:
            rows += one_city(Path(folder), vehicles)
        with (into / "curves.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows((*row[:4], f"{row[4]:.2f}", f"{row[5]:.0f}", row[6]) for row in rows)
    names = ("duckdb", "pyspark", "numpy", "pyarrow")
    facts = ", ".join(f"{name} {version(name)}" for name in names)
    text = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {facts}\n"
    (into / "machine.txt").write_text(text, encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--into", type=Path, default=HERE.parents[1] / "data" / "scale")
    parser.add_argument("--vehicles", type=int, nargs="*", default=VEHICLES)
    parser.add_argument("--measure", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
    else:
        write(options.into, options.vehicles)


if __name__ == "__main__":
    main()
