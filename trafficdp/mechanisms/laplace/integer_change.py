"""How far one vehicle moves the integer of a statistic (see ``lattice``), a pair at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.laplace.lattice import steps_per_unit
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic

FloatArray = npt.NDArray[np.float64]


def integer_change(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return the exact change of S (mean: K m) or N Q - S^2 (variance: K^2 k (N - k)), shape (P,), K = U/q.

    Whole numbers, exact below 2^53 and correctly rounded above.
    """
    count: FloatArray = counts.count.astype(np.float64)
    if statistic is Statistic.MEAN:
        return count * float(bound.steps)
    samples = counts.samples_per_bin[counts.bin_index]
    return vertex(counts.count, samples) * float(bound.steps) ** 2


def vertex(count: npt.NDArray[np.int64], samples: npt.NDArray[np.int64]) -> FloatArray:
    """Return the integer k (N - k), k = min(m, floor(N/2)), as floats (exact up to N of 10^8)."""
    k = np.minimum(count, samples // 2).astype(np.float64)
    return k * (samples - k)


def largest_change(change: FloatArray, counts: Counts) -> FloatArray:
    """Return the largest of ``change`` (P,) in every bin, shape (G,)."""
    largest = np.zeros(counts.bins)
    np.maximum.at(largest, counts.bin_index, change)
    return largest


def integer_unit(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return one step of the integer in the statistic's unit, shape (G,): q/N, or q^2/N^2."""
    unit: FloatArray = 1.0 / steps_per_unit(statistic, counts, bound)
    return unit
