"""Why a map may be cut by regions, in numbers: the table of `notebooks/scale.ipynb` that is no measurement.

    make scale        # or: .venv/bin/python pipelines/regions.py [--into data/scale]

20,000 vehicles on public counts in eight regions: most stay in theirs, one in twenty drives everywhere. Every
region works out its own terms and hands on one number a vehicle; noise by the largest sum of these costs each
vehicle what it costs in the uncut city. Then the same hexagons with more vehicles. Nothing is drawn.
"""

from __future__ import annotations

import argparse
import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import cells_of
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.privacy.loss import CHARGE_STEP, PICO

BOUND = ContributionBound(Fraction(30), Fraction(1, 100), SpeedUnit.METRES_PER_SECOND)
MEAN = {Statistic.MEAN: 1.0}
REGIONS, PLACES, VISITS, EPSILON = 8, 60, 8, 4
VEHICLES = (2_000, 20_000, 200_000)
ROUNDED_UP = 2 * REGIONS * CHARGE_STEP / PICO
"""Of EPSILON, kept free: every region rounds what its vehicles lose up to 10^-9."""
HERE = Path(__file__)


def world(vehicles: int, seed: int = 1) -> tuple[Counts, npt.NDArray[np.int64]]:
    """Return public counts and every hexagon's region: a twentieth of the vehicles is at home in all."""
    random = np.random.default_rng(seed)
    north, east = np.divmod(np.arange(REGIONS * PLACES), PLACES)
    cell = cells_of(40 + 1.0 * north, 10 + 0.05 * east, 8)
    region = np.argsort(np.argsort(cell)) // PLACES
    home = np.repeat(random.integers(0, REGIONS, vehicles), VISITS)
    away = np.repeat(random.random(vehicles) < 0.05, VISITS)
    home = np.where(away, random.integers(0, REGIONS, len(home)), home)
    place = home * PLACES + random.integers(0, PLACES, len(home))
    bins, users = np.divmod(np.unique(place * vehicles + np.repeat(np.arange(vehicles), VISITS)), vehicles)
    count = random.geometric(0.15, len(bins))
    slot = np.zeros(len(cell), dtype=np.int64)
    return Counts(np.sort(cell), slot, np.bincount(bins, minlength=len(cell)), users, count, vehicles), region


def charged(part: Counts, factor: float) -> npt.NDArray[np.int64]:
    """Return what every vehicle is charged in ``part``, shape (vehicles,), by noise scaled by ``factor``."""
    noise = laplace_accountings(part, BOUND, MEAN)[-1].shape.scaled(factor / (EPSILON - ROUNDED_UP))
    return CalibratedLaplace.of(noise).event().loss_per_user


def figures() -> dict[str, float]:
    """Return every figure by its name."""
    counts, region = world(VEHICLES[1])
    whole = laplace_accountings(counts, BOUND, MEAN)[-1]
    parts = [counts.select(region == number) for number in range(REGIONS)]
    loads = [laplace_accountings(part, BOUND, MEAN)[-1].shape.loss() for part in parts]
    together = np.sum(loads, axis=0)
    by_regions = np.sum([charged(part, together.max()) for part in parts], axis=0)
    uncut = charged(counts, whole.factor)
    careless = np.sum([charged(part, load.max()) for part, load in zip(parts, loads, strict=True)], axis=0)
    return {
        "load: largest in any one region": max(load.max() for load in loads),
        "load: largest sum over regions": together.max(),
        "load: largest of the uncut city": whole.factor,
        "epsilon: largest loss, by regions": by_regions.max() / PICO,
        "epsilon: largest loss, uncut": uncut.max() / PICO,
        "epsilon: most that any vehicle differs": np.abs(by_regions - uncut).max() / PICO,
        "epsilon: largest loss, every region by itself": careless.max() / PICO,
        "share of vehicles that pay more than 4 then": float(np.mean(careless > EPSILON * PICO)),
        **{
            f"noise of a mean with {vehicles:,} vehicles (m/s)": laplace_accountings(
                world(vehicles)[0], BOUND, MEAN
            )[-1]
            .scales(EPSILON)[Statistic.MEAN]
            .max()
            for vehicles in VEHICLES
        },
    }


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=HERE.parents[1] / "data" / "scale")
    into: Path = parser.parse_args().into
    with (into / "regions.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["figure", "value"])
        rows.writerows([name, f"{value:.10g}"] for name, value in figures().items())


if __name__ == "__main__":
    main()
