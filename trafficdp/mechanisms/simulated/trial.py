"""Trying mechanisms on simulated cities: two public models of speeds on the counts of the real one.

In one city traffic flows: every bin has a level, every vehicle a habit. In the other, three records of ten
are of vehicles that stand still. What is reported is the larger error of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.mechanisms.simulated.accuracy import absolute_errors, true_statistic
from trafficdp.mechanisms.simulated.synthetic import synthetic_samples
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
STANDING = (0.0, 0.3)
SEED = 1
MOST_BINS = 1_000
"""Of more bins, those of every k-th cell are tried: bins are independent, but for blocks within a cell."""
ESTIMATES = 2_000
"""So many estimates in all, over bins and runs, where there are few bins."""


@dataclass(frozen=True)
class SimulatedCities:
    """What a mechanism is tried in: depends on ``counts``, ``bound`` and ``seed`` alone."""

    counts: Counts
    bound: ContributionBound
    seed: int = SEED

    @cached_property
    def _tried(self) -> npt.NDArray[np.bool_]:
        cells, which = np.unique(self.counts.cell, return_inverse=True)
        stride = max(1, -(-self.counts.bins // MOST_BINS))
        tried: npt.NDArray[np.bool_] = np.arange(len(cells))[which] % stride == 0
        return tried

    @cached_property
    def _cities(self) -> list[Samples]:
        chosen = self.counts.select(self._tried)
        return [synthetic_samples(chosen, self.bound, self.seed, standing=share) for share in STANDING]

    def joint_error(self, mechanism: ZCDPMechanism, statistic: Statistic, rho: float) -> float:
        """Return the same of a mechanism that looks at all bins together: tried on all of them."""
        runs = int(np.clip(ESTIMATES // max(1, self.counts.bins), 3, 50))
        found = []
        for share in STANDING:
            samples = synthetic_samples(self.counts, self.bound, self.seed, standing=share)
            truth, noise = true_statistic(samples, statistic), SimulatedNoise(self.seed)
            errors = [
                np.abs(mechanism.estimate(samples, statistic, rho, noise) - truth).mean() for _ in range(runs)
            ]
            found.append(float(np.mean(errors)))
        return max(found)

    def error(self, mechanism: Mechanism, statistic: Statistic, epsilon: FloatArray) -> float:
        """See Tries."""
        chosen = epsilon[self._tried]
        runs = int(np.clip(ESTIMATES // max(1, len(chosen)), 1, 100))
        return max(
            float(
                np.mean(
                    absolute_errors(mechanism, samples, statistic, chosen, SimulatedNoise(self.seed), runs)
                )
            )
            for samples in self._cities
        )
