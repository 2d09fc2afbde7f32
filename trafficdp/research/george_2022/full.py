"""Algorithm 6 of paper 002: one counter a level, truncated around private medians, activated by counts.

A level with a median waits until its arrays are full (public); then the median is drawn once, the elements
that wait are truncated and enter in the order of arrival, and later ones follow. Privacy: medians cost
their eps_med each, counters their eps_l given the medians, and all add up to ``LevelPlan.loss``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.arrivals import Arrivals
from trafficdp.research.george_2022.levelled import Centre, levelled_means
from trafficdp.research.george_2022.levels import LevelPlan
from trafficdp.research.george_2022.median import activation, array_sums, private_part
from trafficdp.stream.tree import BINARY, Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def activations(arrivals: Arrivals, plan: LevelPlan) -> IntArray:
    """Return after how many samples each level is active: 0 without a median, T + 1 if never, (L + 1,)."""
    aligned = plan.influence == 1
    return np.array(
        [
            activation(arrivals, int(size), int(arrays), aligned=aligned) if epsilon > 0 else 0
            for size, arrays, epsilon in zip(plan.size, plan.arrays, plan.median_epsilon, strict=True)
        ]
    )


def full_means(
    arrivals: Arrivals,
    plan: LevelPlan,
    source: NoiseSource,
    runs: int,
    at: IntArray,
    tree: Tree = BINARY,
) -> FloatArray:
    """Return the released means after ``at`` (K,) samples (0..T), in steps, shape (runs, K)."""
    scales = plan.median_scales()
    centres: list[Centre | None] = []
    for level, active in enumerate(activations(arrivals, plan)):
        if not plan.median_epsilon[level] > 0:
            centres.append(None)
            continue
        parts, size = int(plan.parts[level]), int(plan.size[level])
        if active > len(arrivals):
            # never used; the level stays empty
            centres.append(Centre(np.zeros(runs, dtype=np.int64), 1, int(active)))
            continue
        sums = array_sums(arrivals, int(active), size, int(plan.arrays[level]), aligned=plan.influence == 1)
        part = private_part(sums, size, plan.steps, parts, float(scales[level]), source, runs)
        centres.append(Centre((2 * part + 1) * plan.steps, 2 * parts, int(active)))
    return levelled_means(arrivals, plan, source, runs, at, centres, tree)
