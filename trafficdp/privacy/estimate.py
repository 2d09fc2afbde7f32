"""One statistic's noisy numbers over all bins, and what is said of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.model.speed import Statistic

FloatArray = npt.NDArray[np.float64]


class BinStatus(StrEnum):
    """What became of a bin, or of one statistic of it.

    RELEASED: a noisy number with its interval.
    CONSTANT: the statistic can only be one number (the variance of one record is 0), at no cost.
    WITHHELD: no number, because fewer vehicles than ``min_vehicles`` were seen.
    UNINFORMATIVE: a number whose expected error is more than an eighth of the range; where there is a
    posterior, one whose 80 % interval is more than nine tenths of that of one number for the city.
    """

    RELEASED = "released"
    CONSTANT = "constant"
    WITHHELD = "withheld"
    UNINFORMATIVE = "uninformative"


class IntervalKind(StrEnum):
    """What an interval is.

    GUARANTEED: a theorem says how often it holds the statistic of its bin, whatever the speeds are.
    CALIBRATED: by a posterior, right as far as cities are like those that it was tried on. No theorem.
    RANKS: a theorem says between which vehicles' speeds the number lies, ``rank_low`` and ``rank_high`` among
    ``Estimate.noise``. Its ends in speed are those of the whole range.
    """

    GUARANTEED = "guaranteed"
    CALIBRATED = "calibrated"
    RANKS = "ranks"


POSTERIOR_SPEEDS = {
    "low_50": "lower end of the interval that holds the mean with a chance of 50 %, by the posterior",
    "high_50": "upper end of that interval",
    "low_80": "the same with a chance of 80 %",
    "high_80": "upper end of that interval",
    "city": "the city's speed that the chances compare with, by noisy answers",
}
POSTERIOR_CHANCES = {
    "slower_chance": "chance that it is slower than the city's speed by a fifth of that, by the posterior",
    "faster_chance": "chance that it is faster than the city's speed by a fifth of that, by the posterior",
}
"""What a posterior says of a mean beside its value, its interval and its expected error."""


@dataclass(frozen=True)
class Estimate:
    """One statistic over all bins of a release; arrays of shape (G,), in ``bound.unit`` to its power.

    NaN where the bin is withheld. ``value`` lies in [0, U] (variance: [0, mean*(U - mean)]); ``low`` and
    ``high`` hold the sample statistic with at least the release's interval level. ``noise_scale`` is
    the expected absolute noise before clamping (Laplace noise: its scale), also NaN where the mechanism has
    none that is public. ``noise`` holds, by their names in NOISE_COLUMNS, the columns that say exactly how
    the noise was drawn (its scale, a mechanism's epsilon): with them anyone who has the
    counts can compute every vehicle's loss. ``expected_error`` is the worst case over
    the truth of the mean absolute error of the noisy number clamped to its range, rounding of
    speeds included; keeping a variance below mean*(U - mean) helps where the mean is good, and can add at
    most U times the expected error of the mean. Where there is a posterior, ``expected_error`` is by it, and
    ``posterior`` holds what else it says, by the names in POSTERIOR_SPEEDS and POSTERIOR_CHANCES. ``status``
    holds BinStatus values.
    """

    statistic: Statistic
    value: FloatArray
    low: FloatArray
    high: FloatArray
    noise_scale: FloatArray
    expected_error: FloatArray
    status: npt.NDArray[np.object_]
    noise: Mapping[str, npt.NDArray[Any]]
    posterior: Mapping[str, FloatArray] = field(default_factory=dict)

    def of(self, rows: npt.NDArray[np.int64]) -> Estimate:
        """Return the estimate of ``rows``, each as often as it is there."""
        numbers = ("value", "low", "high", "noise_scale", "expected_error", "status")
        taken = {name: getattr(self, name)[rows] for name in numbers}
        noise, posterior = (
            {name: own[rows] for name, own in each.items()} for each in (self.noise, self.posterior)
        )
        return replace(self, **taken, noise=noise, posterior=posterior)
