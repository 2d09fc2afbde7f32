"""A store that grows: what its last day and its last release cost beside the first.

    python tests/benchmarks/bench_store.py [--days D --every E] [--releases N]

* days: a file a day of a simulated city, ingested and, every so many days, released;
* releases: one map again and again, each charged, of the same records.

Processor seconds in one process, after imports and one release of another store that is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from table import keep

import trafficdp

VEHICLES, RESOLUTION, SEED = 300, 6, 1
AT = (1, 10, 100, 1000)
AROUND = 5
"""Releases whose median is told."""


def city(folder: Path, days: int) -> tuple[Path, list[Path]]:
    """Write a simulated city with a budget for many releases; return its configuration and its files."""
    made = trafficdp.simulate(folder, vehicles=VEHICLES, days=days, seed=SEED, resolution=RESOLUTION)
    text = made.config.read_text(encoding="utf-8")
    text = text.replace("[privacy]", "[privacy]\naccept_weak_promise = true")
    made.config.write_text(
        text.replace("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 100000"), encoding="utf-8"
    )
    return made.config, list(made.feeds)


def seconds_of(work: Callable[[], object]) -> float:
    """Return the processor seconds that ``work`` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def warm(folder: Path) -> None:
    """Make one release, so that everything is imported."""
    config, files = city(folder, 1)
    workspace = trafficdp.open(config, store=folder / "store", create=True)
    workspace.ingest(files)
    workspace.release(force=True)


def days_of_a_store(folder: Path, days: int, every: int) -> None:
    """Ingest a day at a time, release now and then, and print and keep what each cost."""
    config, files = city(folder, days)
    store = folder / "store"
    trafficdp.open(config, store=store, create=True)

    def ingest(path: Path) -> None:
        trafficdp.open(config, store=store).ingest([path])

    ingests: list[float] = []
    releases: list[float] = []
    for day, path in enumerate(files[:days]):
        ingests.append(seconds_of(partial(ingest, path)))
        if day % every == 0:
            releases.append(seconds_of(lambda: trafficdp.open(config, store=store).release(force=True)))
            print(f"day {day:>4} ingest {ingests[-1]:.2f} release {releases[-1]:.2f}", flush=True)
    rows = []
    for start in range(0, days, max(1, days // 5)):
        end = min(start + max(1, days // 5), days)
        own = releases[-(-start // every) : -(-end // every)]
        if end - start > 1 and own:
            rows.append(
                [
                    f"{start + 1} to {end}",
                    f"{statistics.median(ingests[start:end]):.2f}",
                    f"{max(ingests[start:end]):.2f}",
                    f"{statistics.median(own):.2f}",
                    f"{max(own):.2f}",
                ]
            )
    keep(
        "Days of one store",
        f"A file of {VEHICLES} vehicles a day, a release every {every} days: seconds a day and a release, "
        "median and largest.",
        ["days", "ingest", "largest", "release", "largest"],
        rows,
    )


def releases_of_a_store(folder: Path, many: int) -> None:
    """Release the same map ``many`` times; print and keep what it costs on the way."""
    config, files = city(folder, 3)
    store = folder / "store"
    trafficdp.open(config, store=store, create=True).ingest(files)
    seconds: list[float] = []
    for number in range(1, many + 1):
        seconds.append(
            seconds_of(lambda: trafficdp.open(config, store=store).release(force=True, again=True))
        )
        if number in AT or number % 50 == 0:
            print(f"release {number:>5} {statistics.median(seconds[-AROUND:]):.2f}", flush=True)
    rows = []
    for at in (each for each in AT if each <= many):
        first = max(0, min(at - AROUND // 2 - 1, many - AROUND))
        some = seconds[first : first + AROUND]
        rows.append([f"{at:,}", f"{statistics.median(some):.2f}", f"{max(some):.2f}"])
    keep(
        "Releases of one store",
        f"The same map again and again; median and largest seconds of the {AROUND} releases around the one "
        "that is named.",
        ["release", "seconds", "largest"],
        rows,
    )


def main() -> None:
    """Read the command line and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--every", type=int, default=7, help="days from release to release")
    parser.add_argument("--releases", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        warm(Path(temporary) / "warm")
        if options.releases:
            releases_of_a_store(Path(temporary) / "releases", options.releases)
        if options.days:
            days_of_a_store(Path(temporary) / "days", options.days, options.every)


if __name__ == "__main__":
    main()
