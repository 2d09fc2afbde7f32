"""Simulated speeds for real counts: to try a mechanism on a store without looking at its speeds."""

from __future__ import annotations

import numpy as np

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.noise.simulate import generator, normal
from trafficdp.sensitive.samples import Samples

CELL_RANGE = (0.15, 0.75)
VEHICLE_SPREAD = 0.07
SAMPLE_SPREAD = 0.15


def synthetic_samples(
    counts: Counts, bound: ContributionBound, seed: int, *, standing: float = 0.0
) -> Samples:
    """Return speeds that depend on ``counts`` and ``seed`` alone.

    Every bin has a level, uniform on CELL_RANGE, every vehicle a habit (normal, VEHICLE_SPREAD) and every
    sample its own deviation (normal, SAMPLE_SPREAD), all as shares of U; clipped to [0, U] and rounded.
    A share ``standing`` of the samples, drawn at random, is 0 instead.
    """
    random = generator(seed)
    level = random.uniform(*CELL_RANGE, counts.bins)[counts.bin_index]
    habit = normal(random, VEHICLE_SPREAD, counts.users)[counts.user_index]
    centre = np.repeat(level + habit, counts.count)
    share = np.clip(centre + normal(random, SAMPLE_SPREAD, len(centre)), 0.0, 1.0)
    value = np.rint(share * bound.steps).astype(np.int64)
    if standing > 0:
        value[random.uniform(0.0, 1.0, len(value)) < standing] = 0
    return Samples(counts, value, np.arange(1, counts.users + 1, dtype=np.int64), bound)
