"""Errors of mechanisms tried on simulated cities.

How far a mechanism's estimates are from the truth, on values that may be looked at for evaluation.

Trying mechanisms on simulated cities: two of ``simulation.city``'s models on the counts of the real one.

In one hexagons differ as they usually do, in the other four times as much. What is reported is the larger
error of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import integer_between
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.protocol import Mechanism
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive import Contributions, Samples
from trafficdp.simulation.city import CityModel, variations
from trafficdp.simulation.speeds import simulated_records

FloatArray = npt.NDArray[np.float64]
AT_ONCE = 10
"""Runs that are held in memory together."""


def true_statistic(own: Contributions, statistic: Statistic) -> FloatArray:
    """Return the statistic of every bin, in its unit, exact up to one rounding, shape (G,)."""
    counts, unit = own.counts, float(own.bound.step)
    if statistic is Statistic.VEHICLE_MEAN:
        rounded = (2 * own.total + counts.count) // (2 * counts.count)
        return _sum_per_bin(counts, rounded) * unit / counts.users_per_bin
    total, records = _sum_per_bin(counts, own.total), counts.samples_per_bin
    if statistic is Statistic.MEAN:
        return total * unit / records
    squares = _sum_per_bin(counts, own.total_of_squares)
    # in whole numbers, as N Q - S^2 can leave 64 bits
    spread = records.astype(object) * squares - total.astype(object) ** 2
    return np.asarray(spread.astype(np.float64) * unit**2 / records.astype(np.float64) ** 2)


def _sum_per_bin(counts: Counts, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(total, counts.bin_index, values)
    return total


def repeated(samples: Samples, times: int, *, apart: bool = False) -> Samples:
    """Return the same bins ``times`` times, in cells of their own: one estimate of all is ``times`` draws.

    For mechanisms that look at every bin, or every cell, by itself; ``apart``: every vehicle, so that copies
    have vehicles of their own.
    """
    one, copy = samples.counts, np.arange(times)[:, None]
    cells, which = np.unique(one.cell, return_inverse=True)
    counts = Counts(
        cell=(1 + copy * len(cells) + which).ravel().astype(np.uint64),
        slot=np.tile(one.slot, times),
        bin_index=(copy * one.bins + one.bin_index).ravel(),
        user_index=(copy * (one.users if apart else 0) + one.user_index).ravel(),
        count=np.tile(one.count, times),
        users=one.users * (times if apart else 1),
    )
    vehicle = np.arange(1, counts.users + 1) if apart else samples.vehicle
    return Samples(counts, np.tile(samples.value, times), vehicle, samples.bound)


def absolute_errors(
    mechanism: Mechanism,
    samples: Samples,
    statistic: Statistic,
    loss: FloatArray,
    measure: Measure,
    runs: int,
) -> FloatArray:
    """Return the mean over ``runs`` independent estimates of |estimate - truth|, a bin, shape (G,).

    ``measure`` meters nothing: ``SimulatedNoise``.
    """
    integer_between(1, 10**6, runs=runs)
    truth = true_statistic(samples.contributions(), statistic)
    total = np.zeros_like(truth)
    # what looks at all bins together runs once an estimate
    most = 1 if mechanism.kind is LossKind.ZCDP else AT_ONCE
    together = cache(
        lambda now: (samples, loss) if now == 1 else (repeated(samples, now), np.tile(loss, now))
    )
    for first in range(0, runs, most):
        now = min(most, runs - first)
        many, given = together(now)
        found = mechanism.estimate(many, statistic, given, measure)
        total += np.abs(found.reshape(now, -1) - truth).sum(axis=0)
    return total / runs


CITIES = ("usual", "four_times_cell_spread")
SEED = 1
MOST_BINS, MOST_RECORDS = 1_000, 1_000_000
"""Of more, the bins of every k-th cell are tried: bins are independent, but for blocks within a cell."""
ESTIMATES = 2_000
"""So many estimates in all, over bins and runs, where there are few bins."""


def simulated_samples(
    counts: Counts, bound: ContributionBound, seed: int, model: CityModel | None = None
) -> Samples:
    """Return speeds of ``model`` (the usual city if None) that depend on ``counts`` and ``seed`` alone."""
    value = simulated_records(counts, bound, CityModel() if model is None else model, seed=seed)
    return Samples(counts, value, np.arange(1, counts.users + 1, dtype=np.int64), bound)


@dataclass(frozen=True)
class SimulatedCities:
    """What a mechanism is tried in: depends on ``counts``, ``bound`` and ``seed`` alone."""

    counts: Counts
    bound: ContributionBound
    seed: int = SEED

    @cached_property
    def _tried(self) -> npt.NDArray[np.bool_]:
        cells, which = np.unique(self.counts.cell, return_inverse=True)
        records = int(self.counts.count.sum())
        stride = min(len(cells), max(1, -(-self.counts.bins // MOST_BINS), -(-records // MOST_RECORDS)))
        tried: npt.NDArray[np.bool_] = np.arange(len(cells))[which] % stride == 0
        return tried

    @cached_property
    def _cities(self) -> list[Samples]:
        return self._made(self.counts.select(self._tried))

    @cached_property
    def _whole_cities(self) -> list[Samples]:
        return self._made(self.counts)

    def _made(self, counts: Counts) -> list[Samples]:
        models = variations()
        return [simulated_samples(counts, self.bound, self.seed, models[name]) for name in CITIES]

    def error(self, mechanism: Mechanism, statistic: Statistic, loss: FloatArray) -> float:
        """Return the largest mean error over simulated cities, in the bins that are tried; in rho in all."""
        joint = mechanism.kind is LossKind.ZCDP
        tried = np.ones_like(self._tried) if joint else self._tried
        least, most = (3, 50) if joint else (1, 100)
        runs = int(np.clip(ESTIMATES // max(1, int(tried.sum())), least, most))
        given = loss if joint else loss[tried]
        return max(
            float(
                np.mean(
                    absolute_errors(mechanism, samples, statistic, given, SimulatedNoise(self.seed), runs)
                )
            )
            for samples in (self._whole_cities if joint else self._cities)
        )
