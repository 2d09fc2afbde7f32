"""Trying mechanisms on simulated cities: two of ``simulation.city``'s models on the counts of the real one.

In one hexagons differ as they usually do, in the other four times as much. What is reported is the larger
error of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.protocol import Mechanism
from trafficdp.mechanisms.simulated.accuracy import absolute_errors
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive.values import Samples
from trafficdp.simulation.city import CityModel, variations
from trafficdp.simulation.speeds import simulated_records

FloatArray = npt.NDArray[np.float64]
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
