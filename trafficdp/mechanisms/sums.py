"""What most mechanisms measure: sums of a bin's speeds in whole steps q, with what counts say of them.

============  ===========================================  ==================  =======================
sum           of every vehicle in the bin (m records)      in the set          one unit of it, in units
============  ===========================================  ==================  =======================
speeds        S: its steps k = 0..K, K = U/q, added up     0 .. m K            q / N of the mean
vehicle mean  its own mean, rounded to a whole step        0 .. K              q / L of the vehicle mean
products      W: its k (K - k) added up                    ``Moments``         q^2 / N of W / N
============  ===========================================  ==================  =======================

N records and L vehicles are in the bin. The variance is mean (U - mean) - W/N.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.laws import EntryIndex
from trafficdp.measurement.sets import Box, Moments
from trafficdp.model import ContributionBound, Counts, Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def support_of(counts: Counts) -> EntryIndex:
    """Return the entries: the (bin, vehicle) pairs of ``counts``."""
    return EntryIndex(counts.user_index, counts.bin_index, counts.users, counts.bins)


def speeds(counts: Counts, bound: ContributionBound) -> Box:
    """Return the set of S, shape (P,) a vehicle and bin."""
    return Box(support_of(counts), counts.count * bound.steps)


def vehicle_means(counts: Counts, bound: ContributionBound) -> Box:
    """Return the set of the vehicles' own means."""
    return Box(support_of(counts), np.full(counts.pairs, bound.steps, dtype=np.int64))


def speeds_and_products(counts: Counts, bound: ContributionBound) -> Moments:
    """Return the set of (S, W); a bin of one record has no W, since its variance is 0."""
    return Moments(support_of(counts), counts.count, bound.steps, counts.samples_per_bin > 1)


def values_of(statistic: Statistic, contributions: Contributions) -> IntArray:
    """Return what every pair has, shape (P,): S (MEAN), its own mean (VEHICLE_MEAN); else (S, W), (2, P)."""
    counts, total = contributions.counts, contributions.total
    if statistic is Statistic.MEAN:
        return total
    if statistic is Statistic.VEHICLE_MEAN:
        return (2 * total + counts.count) // (2 * counts.count)
    return np.stack([total, contributions.bound.steps * total - contributions.total_of_squares])


def unit(statistic: Statistic, counts: Counts, bound: ContributionBound) -> FloatArray:
    """Return what one unit of the sum is in the statistic's unit, shape (G,); for VARIANCE, of W in W/N."""
    step = float(bound.step)
    if statistic is Statistic.VEHICLE_MEAN:
        return np.asarray(step / counts.users_per_bin)
    power = 2 if statistic is Statistic.VARIANCE else 1
    return np.asarray(step**power / counts.samples_per_bin)
