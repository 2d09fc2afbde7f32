"""The integers of N Q - S^2: what families still take from here that do not measure pairs yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions

FloatArray = npt.NDArray[np.float64]


def steps_per_unit(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return how many integer steps one unit of the statistic is, shape (G,)."""
    per_unit = np.float64(1 / bound.step)
    if statistic is Statistic.MEAN:
        return (counts.samples_per_bin * per_unit).astype(np.float64)
    if statistic is Statistic.VARIANCE:
        return counts.samples_per_bin.astype(np.float64) ** 2 * per_unit**2
    return (counts.users_per_bin * per_unit).astype(np.float64)


def check_squares(counts: Counts, bound: ContributionBound) -> None:
    """Raise UsageError for bins whose sum of squares could leave 64 bits."""
    most = int(counts.samples_per_bin.max(initial=0))
    if most * bound.steps**2 > np.iinfo(np.int64).max:
        raise UsageError(
            "sums of squares could leave 64 bits",
            got=f"{most} records in a bin at {bound.steps} steps up to the speed bound",
            todo="choose a larger speed_step",
        )


def exact_integer(statistic: Statistic, contributions: Contributions) -> npt.NDArray[np.object_]:
    """Return the exact integer of every bin (Python ints, shape (G,))."""
    counts = contributions.counts
    if statistic is Statistic.VEHICLE_MEAN:
        rounded = (2 * contributions.total + counts.count) // (2 * counts.count)
        return _sum_per_bin(counts, rounded).astype(object)
    total = _sum_per_bin(counts, contributions.total).astype(object)
    if statistic is Statistic.MEAN:
        return total
    squares = _sum_per_bin(counts, contributions.total_of_squares).astype(object)
    samples = counts.samples_per_bin.astype(object)
    result: npt.NDArray[np.object_] = samples * squares - total * total
    return result


def _sum_per_bin(counts: Counts, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total = np.zeros(counts.bins, dtype=np.int64)
    np.add.at(total, counts.bin_index, values)
    return total
