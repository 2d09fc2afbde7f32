"""How far maps of Austin's buses are from the truth where nothing about a vehicle is public, beside others.

    TRAFFICDP_REAL_DATA=FOLDER python pipelines/presence.py [--into data/accuracy/presence.md]

FOLDER is that of pipelines/austin.py; in it ``capmetro_check`` holds days that chose no constant. Speeds are
looked at to know the truth: this evaluates mechanisms and is no private release. Noise is simulated, seeded.
"""

from __future__ import annotations

import csv
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np

import trafficdp
from capmetro import DAYS, config_of, files_of, page, samples_of
from trafficdp.binning.places import declared_bins
from trafficdp.mechanisms.pooling.add_remove_design import FLEET_SHARE, RELATION, AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import (
    add_remove_map,
    estimate_fleet,
    measure_all,
    measure_fleet,
)
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import Grid, NeighbouringRelation, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import LossKind, PureDP
from trafficdp.sensitive import Contributions

ROOT = Path(__file__).resolve().parents[1]
PEERS = ROOT / "data" / "accuracy" / "peers.csv"
EPSILONS = (1, 4)
DELTA = "0.000001"
LEAST_VEHICLES = 5
CHECK_DAYS = ("2015-06-07", "2016-02-07")
DRAWS, SEED = 96, 20161124


@dataclass(frozen=True)
class Days:
    """One map's data: its name and grid, what every vehicle contributes, the declared hexagons."""

    name: str
    grid: Grid
    own: Contributions
    places: np.ndarray


def read(name: str, configured: Callable[[Path], Path], files: list[Path], resolution: int) -> Days:
    """Return what the vehicles of ``files`` contribute, by the configuration written by ``configured``."""
    with tempfile.TemporaryDirectory() as scratch:
        own = configured(Path(scratch))
        city = trafficdp.open(own, store=Path(scratch) / "store", create=True)
        city.ingest(files)
        here = city.with_map(resolution=resolution)
        places = np.unique(declared_bins(here.config.grid)[0])
        return Days(name, here.config.grid, samples_of(here).contributions(), places)


def austin(name: str, days: tuple[str, ...], resolution: int) -> Days:
    """Return what Austin's buses contribute over ``days``, first to last."""
    return read(name, partial(config_of, days), files_of(days), resolution)


def total_of(kind: LossKind, epsilon: int, relation: NeighbouringRelation = RELATION) -> int:
    """Return the loss of ``epsilon`` in 10^-12 of ``kind``, by DELTA and ``relation`` where that is rho."""
    pico = PureDP.of(epsilon).pico
    return pico if kind is LossKind.PURE else approx_to_rho(ApproxDP(pico, Fraction(DELTA)), relation).pico


def measured(days: Days, kind: LossKind, epsilon: int) -> dict[str, float]:
    """Return mean absolute errors of the map and of one number for the city, coverage, seconds a draw."""
    own, counts, total = days.own, days.own.counts, total_of(kind, epsilon)
    design = AddRemoveDesign(days.places, own.bound, kind, total, variance=False)
    alone = AddRemoveDesign(days.places, own.bound, kind, total * 100 // FLEET_SHARE[kind], variance=False)
    seen = counts.users_per_bin >= LEAST_VEHICLES
    truth = true_statistic(own, Statistic.MEAN)[seen]
    at = design.place_numbers(counts.cell, counts.slot)[0][seen]
    noise, found, begin = SimulatedNoise(SEED + epsilon), [], time.monotonic()
    for _ in range(DRAWS):
        drawn = add_remove_map(design, measure_all(design, own, noise)).mean
        low, high = (end[at] for end in drawn.ends[0.95])
        held = (low <= truth + 1e-9) & (truth <= high + 1e-9)
        found.append((np.abs(drawn.value[at] - truth).mean(), held.mean()))
    seconds = (time.monotonic() - begin) / DRAWS
    flat = [
        np.abs(estimate_fleet(alone, measure_fleet(alone, own, noise)).centre - truth).mean()
        for _ in range(DRAWS)
    ]
    errors, coverage = np.array(found).T
    return {
        "error": float(errors.mean()),
        "se": float(errors.std(ddof=1) / np.sqrt(DRAWS)),
        "flat": float(np.mean(flat)),
        "worse": float(np.mean(errors > np.mean(flat))),
        "coverage": float(coverage.mean()),
        "seconds": seconds,
    }


def report() -> Iterator[str]:
    """Yield the lines of the report."""
    yield "# Austin's buses where nothing about a vehicle is public"
    yield ""
    yield (
        "Written by `make accuracy`. Relation `add_or_remove_user`, whole period, means only, all of the "
        f"loss: mean absolute error (m/s, +- its standard error over {DRAWS} draws) in hexagons that at "
        f"least {LEAST_VEHICLES} buses visit; speeds clipped to 30 m/s; noise simulated. Every hexagon of "
        "the study area gets a number or is marked as unknown. One number: the first asking, given "
        "everything. `check`: days on which no constant was chosen."
    )
    yield ""
    yield "| days | buses | loss | epsilon | one number | map | draws worse than it | intervals hold |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|"
    own: dict[int, float] = {}
    slowest = 0.0
    for resolution in (7, 6):
        for days in (
            austin(f"four days, resolution {resolution}", DAYS, resolution),
            *(austin(f"check {day}, resolution {resolution}", (day,), resolution) for day in CHECK_DAYS),
        ):
            for kind in (LossKind.ZCDP, LossKind.PURE):
                for epsilon in EPSILONS:
                    found = measured(days, kind, epsilon)
                    if resolution == 7 and days.name.startswith("four") and kind is LossKind.ZCDP:
                        own[epsilon] = found["error"]
                    slowest = max(slowest, found["seconds"])
                    yield (
                        f"| {days.name} | {days.own.counts.users} | "
                        f"{'pure' if kind is LossKind.PURE else 'zCDP, delta 1e-6'} | {epsilon} | "
                        f"{found['flat']:.2f} | {found['error']:.2f} +- {found['se']:.2f} | "
                        f"{found['worse']:.0%} | {found['coverage']:.1%} |"
                    )
    yield ""
    yield f"A map took at most {slowest:.1f} seconds to ask for and compute."
    yield ""
    yield from beside_others(own)


def beside_others(own: dict[int, float]) -> Iterator[str]:
    """Yield the table of other tools on the four days, resolution 7, at the same relation, and delta."""
    yield "## Beside other tools"
    yield ""
    yield (
        "The same relation, days, hexagons and epsilon, resolution 7 over the whole period: other tools with "
        "the best bounds found for them, measured in November 2026 (`peers.csv`)."
    )
    yield ""
    yield "| tool | epsilon 1 | epsilon 4 |"
    yield "|---|---:|---:|"
    errors: dict[str, dict[int, float]] = {}
    with PEERS.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = line["relation"], line["slot"], line["metric"]
            if key == ("add_or_remove_user", "whole_period", "mae_mean"):
                name = f"{line['peer']} ({line['setting']})"
                errors.setdefault(name, {})[int(line["epsilon"])] = float(line["value"])
    for name, row in errors.items():
        yield f"| {name} | " + " | ".join(f"{row[each]:.2f}" for each in EPSILONS) + " |"
    yield "| this, zCDP, delta 1e-6 | " + " | ".join(f"{own[each]:.2f}" for each in EPSILONS) + " |"
    best = {each: min(row[each] for row in errors.values()) for each in EPSILONS}
    share = ", ".join(f"{own[each] / best[each]:.0%} at epsilon {each}" for each in EPSILONS)
    yield ""
    yield f"Beside the best of them the error is {share}."


def main() -> int:
    """Measure and write."""
    return page("Accuracy where nothing about a vehicle is public.", PEERS.with_name("presence.md"), report)


if __name__ == "__main__":
    sys.exit(main())
