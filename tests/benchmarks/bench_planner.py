"""How planning grows with the city: seconds and memory at 0.1, 1 and 10 million (vehicle, bin) pairs.

    python tests/benchmarks/bench_planner.py [--pairs N ...]

A made-up city of N / 100 vehicles and N / 200 bins: every vehicle visits about 100 bins round a place of its
own, most of its fixes in few of them, and a few vehicles go everywhere. Each step is a fresh process:

* ``best rung``: the ladder, the choice, exact losses and intervals of mean and variance (``allocate``);
* ``blocks``: the partition into l-infinity blocks as a release looks for them (``blocks_of``), with the bound that certifies it.

``growth`` is the time over the time before, divided by the pairs over the pairs before: 1 is linear.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from trafficdp.model.bound import ContributionBound
from trafficdp.model.occupancy import Occupancy
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.model.statistic import Statistic
from trafficdp.planner.allocation import Request, allocate
from trafficdp.planner.block_rung import blocks_of
from trafficdp.privacy.loss import PureDP

BOUND = ContributionBound(Fraction(30), Fraction(1, 10), SpeedUnit.METRES_PER_SECOND)
TOLERANCE = {Statistic.MEAN: 1.0, Statistic.VARIANCE: 30.0}
VISITS = 100
SEED = 7


def city(pairs: int) -> Occupancy:
    """Return a city of about ``pairs`` pairs, the same each time."""
    random = np.random.default_rng(SEED)
    vehicles, bins = pairs // VISITS, pairs // VISITS // 2
    # one in a hundred visits ten times as many bins as the rest
    visits = np.where(random.random(vehicles) < 0.01, 10 * VISITS, VISITS)
    user = np.repeat(np.arange(vehicles), visits)
    home = np.repeat(random.integers(0, bins, vehicles), visits)
    spread = np.repeat(np.where(visits > VISITS, bins / 4, VISITS), visits)
    place = np.floor(home + spread * random.standard_normal(len(user))).astype(np.int64) % bins
    key = np.unique(place * vehicles + user)
    count = random.geometric(0.2, len(key)) * random.integers(1, 20, len(key))
    bin_index, user_index = np.divmod(key, vehicles)
    visited, bin_index = np.unique(bin_index, return_inverse=True)
    return Occupancy(
        visited.astype(np.uint64),
        np.zeros(len(visited), dtype=np.int64),
        bin_index.astype(np.int64),
        user_index.astype(np.int64),
        count.astype(np.int64),
        vehicles,
    )


def best_rung(occupancy: Occupancy) -> dict[str, float]:
    """Plan the configured map."""
    request = Request(PureDP.of(4), BOUND, TOLERANCE, 5, 0.125, 0.95, "equal")
    return {"loss": float(allocate(occupancy, request).loss.epsilon)}


def blocks(occupancy: Occupancy) -> dict[str, float]:
    """Find blocks; return how far they are from one a statistic and from the bound."""
    kept = occupancy.select(occupancy.users_per_bin >= 5)
    found = blocks_of(kept, BOUND, TOLERANCE)
    alone = float(np.bincount(found.items.user, weights=found.items.cost).max())
    return {"saved": 1 - found.factor / alone, "bound": found.lower_bound / found.factor}


STEPS: dict[str, Callable[[Occupancy], dict[str, float]]] = {"best rung": best_rung, "blocks": blocks}


def measure(step: str, pairs: int) -> None:
    """Print one measurement as JSON."""
    occupancy = city(pairs)
    began = time.perf_counter()
    facts = STEPS[step](occupancy)
    seconds = time.perf_counter() - began
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    shape = {"pairs": occupancy.pairs, "vehicles": occupancy.users, "bins": occupancy.bins}
    print(json.dumps({"seconds": seconds, "megabytes": megabytes, **shape, **facts}))


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], int(options.measure[1]))
        return
    print(f"{'step':<10} {'pairs':>10} {'vehicles':>8} {'bins':>7} {'seconds':>8} {'MB':>6} {'growth':>6}")
    for step in STEPS:
        before: dict[str, float] | None = None
        for pairs in options.pairs:
            command = [sys.executable, __file__, "--measure", step, str(pairs)]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found: dict[str, float] = json.loads(answer.stdout)
            growth = ""
            if before is not None:
                ratio = found["seconds"] / before["seconds"] / (found["pairs"] / before["pairs"])
                growth = f"{ratio:.2f}"
            extra = ", ".join(
                f"{name} {found[name]:.3g}" for name in ("loss", "saved", "bound") if name in found
            )
            print(
                f"{step:<10} {found['pairs']:>10,.0f} {found['vehicles']:>8,.0f} {found['bins']:>7,.0f}"
                f" {found['seconds']:>8.2f} {found['megabytes']:>6,.0f} {growth:>6}  {extra}",
                flush=True,
            )
            before = found


if __name__ == "__main__":
    main()
