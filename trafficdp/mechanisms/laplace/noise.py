"""Laplace noise of the averages of bins: what it costs every vehicle, and how far off statistics are.

==============  =============================================  ==================
average         what one vehicle loses in a bin                its noise
==============  =============================================  ==================
S/N, the mean   U m/(N b) cost(c); cost 1 without W            b
W/N             (``pairs``: both sums together)  c U b
vehicle mean    U/(L b')                                       b'
==============  =============================================  ==================

The variance is mean (U - mean) - W/N, so that its noise is at most U times the mean's and that of W/N. S is
measured in every bin whose mean is asked for, S and W where a variance is that can differ from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.sensitivity import mean_sensitivity, vehicle_mean_sensitivity
from trafficdp.mechanisms.pairs import best_ratio, relative_price, spread
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.sum_tail import two_noises_error, two_noises_mean
from trafficdp.noise.tail import clamped_laplace_error

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Sizes = Mapping[Statistic, float] | Mapping[Statistic, FloatArray]
"""How large the noise of a statistic may be, in its unit: a number, or one a bin (G,)."""


@dataclass(frozen=True, eq=False)
class LaplaceNoise:
    """Scales b (``mean``), b' (``vehicle_mean``) and ratios c (``ratio``) of ``statistics``, shape (G,) each.

    A scale is 0 where nothing is measured, and for a statistic that is not there.
    """

    counts: Counts
    bound: ContributionBound
    statistics: tuple[Statistic, ...]
    mean: FloatArray
    ratio: FloatArray
    vehicle_mean: FloatArray

    @classmethod
    def within(cls, counts: Counts, bound: ContributionBound, allowed: Sizes) -> LaplaceNoise:
        """Return the cheapest noise whose expected absolute size is ``allowed`` a statistic, or less."""
        none = np.zeros(counts.bins)
        mean = none + allowed.get(Statistic.MEAN, np.inf)
        second = none + allowed.get(Statistic.VARIANCE, np.inf)
        ratio = best_ratio(float(bound.upper), mean, second)
        both = np.minimum(mean, second / (float(bound.upper) * spread(ratio)))
        mean = np.where(varying(tuple(allowed), counts), both, mean)
        return cls(
            counts,
            bound,
            in_order(allowed),
            np.where(speeds_measured(tuple(allowed), counts), mean, 0.0),
            ratio,
            none + allowed.get(Statistic.VEHICLE_MEAN, 0.0),
        )

    @classmethod
    def of_sensitivity(cls, counts: Counts, bound: ContributionBound, ratio: Sizes) -> LaplaceNoise:
        """Return noise that costs a bin's largest user 1 a measurement; ``ratio`` are sizes to compare by.

        Measurements are those of the averages, means and variances of a bin together.
        """
        even = cls.within(counts, bound, ratio)
        largest = mean_sensitivity(counts.largest_count_per_bin, counts.samples_per_bin, float(bound.upper))
        return replace(
            even,
            mean=np.where(even.mean > 0, largest * even.price, 0.0),
            vehicle_mean=np.where(
                even.vehicle_mean > 0, vehicle_mean_sensitivity(counts.users_per_bin, float(bound.upper)), 0.0
            ),
        )

    @property
    def varies(self) -> BoolArray:
        """Where W is measured, shape (G,)."""
        return varying(self.statistics, self.counts)

    @property
    def price(self) -> FloatArray:
        """What both sums of a bin cost over what the first would, shape (G,)."""
        return np.where(self.varies, relative_price(self.bound.steps, self.ratio), 1.0)

    def times(self, factor: float) -> LaplaceNoise:
        """Return the noise with all scales multiplied by ``factor``."""
        return replace(self, mean=self.mean * factor, vehicle_mean=self.vehicle_mean * factor)

    def pair_loss(self) -> FloatArray:
        """Return what every (bin, vehicle) pair adds to its vehicle's loss, in floats, shape (P,).

        Infinite where a number that is asked for and can vary has no noise.
        """
        counts, upper, place = self.counts, float(self.bound.upper), self.counts.bin_index
        measured = speeds_measured(self.statistics, counts)
        with np.errstate(divide="ignore"):
            price = np.where(measured, self.price / self.mean, 0.0)[place]
            loss = mean_sensitivity(counts.count, counts.samples_per_bin[place], upper) * price
            if Statistic.VEHICLE_MEAN in self.statistics:
                users = counts.users_per_bin[place]
                loss = loss + vehicle_mean_sensitivity(users, upper) / self.vehicle_mean[place]
        return np.asarray(loss)

    def loss(self) -> FloatArray:
        """Return every vehicle's loss (epsilon, shape (users,)): for planning.

        The exact loss of Theorem A in floats; what is charged is computed on integers, upward.
        """
        return self.counts.total_per_user(self.pair_loss())

    def sizes(self) -> dict[Statistic, FloatArray]:
        """Return the expected absolute noise of every bin (of a mean: its scale), in its unit, (G,) each."""
        of = {
            Statistic.MEAN: self.mean,
            Statistic.VARIANCE: two_noises_mean(*self._of_variances()),
            Statistic.VEHICLE_MEAN: self.vehicle_mean,
        }
        return {statistic: of[statistic] for statistic in self.statistics}

    def errors(self) -> dict[Statistic, FloatArray]:
        """Return the worst case over the truth of E|clipped number - truth|, without rounding, (G,) each.

        b (1 - e^(-R/(2b))), R the statistic's range; for variances E min(|U X + Y|, R)
        (``pairs``).
        """
        found: dict[Statistic, FloatArray] = {}
        for statistic, size in self.sizes().items():
            reach = statistic.largest(self.bound.upper)
            if statistic is Statistic.VARIANCE:
                found[statistic] = two_noises_error(*self._of_variances(), reach)
            else:
                found[statistic] = clamped_laplace_error(size, np.zeros(len(size)), reach)
        return found

    def _of_variances(self) -> tuple[FloatArray, FloatArray]:
        """Scales of U times the mean and of W/N, 0 where a variance can only be 0."""
        first = np.where(self.varies, float(self.bound.upper) * self.mean, 0.0)
        return first, self.ratio * first


def in_order(some: Mapping[Statistic, object]) -> tuple[Statistic, ...]:
    """Return the keys of ``some`` in the order of Statistic."""
    return tuple(statistic for statistic in Statistic if statistic in some)


def varying(statistics: tuple[Statistic, ...], counts: Counts) -> BoolArray:
    """Return where a variance is asked for that is not 0 whatever the speed: of several records, (G,)."""
    return (counts.samples_per_bin > 1) & (Statistic.VARIANCE in statistics)


def speeds_measured(statistics: tuple[Statistic, ...], counts: Counts) -> BoolArray:
    """Return where S is measured, shape (G,)."""
    return varying(statistics, counts) | (Statistic.MEAN in statistics)
