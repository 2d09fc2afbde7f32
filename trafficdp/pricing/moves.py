"""How far one vehicle moves an exact integer, computed anew for the second opinion: Python integers alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic

IntArray = npt.NDArray[np.int64]
ObjectArray = npt.NDArray[np.object_]


def integer_moves(
    statistic: Statistic, bound: ContributionBound, counts: Counts, pairs: IntArray | None = None
) -> ObjectArray:
    """Return K m; K^2 times the most of k (N - k), k <= m; or K, of ``pairs`` (all when left out)."""
    chosen = np.arange(counts.pairs) if pairs is None else pairs
    count = counts.count[chosen].astype(object)
    if statistic is Statistic.MEAN:
        return count * bound.steps
    if statistic is Statistic.VEHICLE_MEAN:
        return count * 0 + bound.steps
    samples = counts.samples_per_bin[counts.bin_index[chosen]].astype(object)
    most = np.minimum(count, samples // 2)
    moved: ObjectArray = most * (samples - most) * bound.steps**2
    return moved
