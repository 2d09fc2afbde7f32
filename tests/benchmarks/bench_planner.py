"""How planning grows with the city: seconds and memory at 0.1, 1 and 10 million (vehicle, bin) pairs.

    python tests/benchmarks/bench_planner.py [--pairs N ...]

A simulated city of N / 100 vehicles and N / 200 hexagons: every vehicle visits about 100 hexagons round a
place of its own, most of its records in few of them, and a few vehicles go everywhere. Each step is a fresh
process:

* ``accountings``: the four accountings of Laplace noise, for mean and variance together;
* ``plan``: what `trafficdp plan` does for one map - the accountings, the blocks with the bound that certifies
  them, the best of all as noise that can be drawn, every vehicle's exact loss, the widths of all intervals;
* ``refused``: the same at a tenth of an epsilon, where the map says nothing: verdict, and what would pass;
* ``adaptive``: the map of three resolutions whose intervals of the mean are all within 2 m/s at epsilon 4,
  with the bound that certifies it;
* ``all in one run``: ``plan`` and ``adaptive``, one after the other in one process.

Seconds are of the processor, in one thread. ``ratio`` is the time over the first. ``growth`` is the time over
the time before, divided by the pairs over the pairs before: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from fractions import Fraction

import numpy as np
from table import keep

from trafficdp.binning.cells import cells_of, parents_of
from trafficdp.mechanisms.blocks.calibrated import BlockAccounting
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.model import (
    ContributionBound,
    Counts,
    Grid,
    Period,
    SlotKind,
    SpeedUnit,
    Statistic,
    StudyArea,
)
from trafficdp.planner.adaptive import choose_mosaic
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import assess_utility, precision
from trafficdp.planner.request import AdaptiveSettings, Request
from trafficdp.planner.suggest import suggest
from trafficdp.privacy.loss import Loss, PureDP

BOUND = ContributionBound(Fraction(30), Fraction(1, 10), SpeedUnit.METRES_PER_SECOND)
ASKED = BOUND, 5, 0.95, BOUND.unit
RESOLUTIONS = (9, 8, 7)
GRID = Grid(
    RESOLUTIONS[0],
    SlotKind.WHOLE_PERIOD,
    StudyArea.from_bbox(-98.5, 29.5, -96.0, 32.0),
    Period(date(2026, 3, 1), date(2026, 3, 31), "America/Chicago"),
)
BOTH = {Statistic.MEAN: 1.0, Statistic.VARIANCE: 30.0}
VISITS = 100
SPACING = 0.0045
"""Degrees between neighbouring places: more than an edge of a hexagon of resolution 9."""
SEED = 7


def city(pairs: int) -> Counts:
    """Return a city of about ``pairs`` pairs, the same each time."""
    random = np.random.default_rng(SEED)
    vehicles, bins = pairs // VISITS, pairs // VISITS // 2
    side = int(np.ceil(np.sqrt(bins * 1.1)))
    north, east = np.divmod(np.arange(side * side), side)
    # in the order of their indices, neighbouring hexagons follow one another
    cell = np.unique(cells_of(30.0 + SPACING * north, -98.0 + SPACING * east, RESOLUTIONS[0]))[:bins]
    bins = len(cell)
    # one in a hundred visits ten times as many hexagons as the rest
    visits = np.where(random.random(vehicles) < 0.01, 10 * VISITS, VISITS)
    user = np.repeat(np.arange(vehicles), visits)
    home = np.repeat(random.integers(0, bins, vehicles), visits)
    spread = np.repeat(np.where(visits > VISITS, bins / 4, VISITS), visits)
    place = np.floor(home + spread * random.standard_normal(len(user))).astype(np.int64) % bins
    key = np.unique(place * vehicles + user)
    count = random.geometric(0.2, len(key)) * random.integers(1, 20, len(key))
    bin_index, user_index = np.divmod(key, vehicles)
    visited, users_per_bin = np.unique(bin_index, return_counts=True)
    return Counts(
        cell[visited],
        np.zeros(len(visited), dtype=np.int64),
        users_per_bin,
        user_index.astype(np.int64),
        count.astype(np.int64),
        vehicles,
    )


def accountings(counts: Counts) -> str:
    """Compute the accountings; say how far apart its ends are."""
    kept = counts.select(counts.users_per_bin >= 5)
    first, *_, last = laplace_accountings(kept, BOUND, BOTH)
    ends = (accounting.worst_relative_scale(1.0, BOTH) for accounting in (first, last))
    return f"basic over equal: {next(ends) / next(ends):.3g}"


def plan(counts: Counts) -> str:
    """Plan one map; say how much blocks save and how much any blocks could."""
    made = allocate(counts, Request(*ASKED, tolerance=BOTH, loss=PureDP.of(4)))
    widths = precision(made)
    found = next(
        accounting.blocks for accounting in made.accountings if isinstance(accounting, BlockAccounting)
    )
    return (
        f"{made.chosen_accounting.name}, epsilon {made.loss}, half width {widths.median:.3g}; blocks within "
        f"{found.factor / found.lower_bound:.3g} of the bound"
    )


def refused(counts: Counts) -> str:
    """Plan a map that is refused; say what would pass."""
    request = Request(*ASKED, tolerance=BOTH, loss=PureDP.of("0.1"))
    verdict = assess_utility(allocate(counts, request))

    def on(grid: Grid) -> Counts:
        return counts.merged(parents_of(counts.cell, int(grid.resolution or 0)), counts.slot).counts

    def epsilon(loss: Loss) -> float:
        return float(loss.exact)

    # what there is for nothing are the parents: a store would reduce the one that passes
    return f"refused {verdict.refused}; {suggest(GRID, request, on, on, epsilon).in_words()}"


def adaptive(counts: Counts) -> str:
    """Choose the map of several resolutions; say what it covers."""
    settings = AdaptiveSettings(RESOLUTIONS, Fraction(2), Fraction(1, 1000))
    request = Request(*ASKED, tolerance={Statistic.MEAN: 1.0}, loss=PureDP.of(4))
    chosen = choose_mosaic(GRID, counts, settings, request)
    bins = ", ".join(str(number) for number in chosen.mosaic.bins_per_level(GRID.slot_kind).values())
    worth = chosen.value / chosen.bound
    return f"{chosen.coverage:.0%} of the records, bins {bins}; worth {worth:.3g} of the bound"


def whole(counts: Counts) -> str:
    """Plan the one map and choose the other."""
    return f"{plan(counts)}; {adaptive(counts)}"


ONE_RUN = "all in one run"
STEPS: dict[str, Callable[[Counts], str]] = {
    "accountings": accountings,
    "plan": plan,
    "refused": refused,
    "adaptive": adaptive,
    ONE_RUN: whole,
}


def measure(step: str, pairs: int) -> None:
    """Print one measurement as JSON."""
    counts = city(pairs)
    began = time.process_time()
    found = STEPS[step](counts)
    seconds = time.process_time() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    shape = {"pairs": counts.pairs, "vehicles": counts.users, "bins": counts.bins}
    print(json.dumps({"seconds": seconds, "megabytes": megabytes, "found": found, **shape}))


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--steps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], int(options.measure[1]))
        return
    print(
        f"{'step':<14} {'pairs':>10} {'vehicles':>8} {'bins':>7} {'seconds':>8} {'MB':>6} {'ratio':>6}"
        f" {'growth':>6}  found"
    )
    rows = []
    for step in options.steps:
        before: tuple[float, int] | None = None
        first = 0.0
        for pairs in options.pairs:
            command = [sys.executable, __file__, "--measure", step, str(pairs)]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            one = json.loads(answer.stdout)
            first, growth = first or one["seconds"], ""
            if before is not None:
                growth = f"{one['seconds'] / before[0] / (one['pairs'] / before[1]):.2f}"
            print(
                f"{step:<14} {one['pairs']:>10,} {one['vehicles']:>8,} {one['bins']:>7,}"
                f" {one['seconds']:>8.2f} {one['megabytes']:>6,.0f} {one['seconds'] / first:>6.1f}"
                f" {growth:>6}  {one['found']}",
                flush=True,
            )
            before = one["seconds"], one["pairs"]
            shape = [f"{one[name]:,}" for name in ("pairs", "vehicles", "bins")]
            rows.append([step, *shape, f"{one['seconds']:.2f}", f"{one['megabytes']:,.0f}", one["found"]])
            columns = ["step", "pairs", "vehicles", "bins", "seconds", "MB", "found"]
            keep("Planner", "Simulated counts, a fresh process a line; no record is read.", columns, rows)


if __name__ == "__main__":
    main()
