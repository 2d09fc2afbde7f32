"""The statistics that can be released for a bin."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType

from trafficdp.model.speed_unit import SpeedUnit


class Statistic(StrEnum):
    """What is estimated of the clipped speeds of a bin.

    MEAN: mean over records (a vehicle that reports more often weighs more).
    VARIANCE: population variance over records, 1/N * sum (x - mean)^2.
    VEHICLE_MEAN: mean over vehicles of each vehicle's own mean (each vehicle weighs the same).
    VEHICLE_MEDIAN, VEHICLE_P85 and so on: quantiles over vehicles of each vehicle's own mean, which only
    answers to questions have, never maps (``QUANTILES``, ``OF_MAPS``).
    """

    MEAN = "mean"
    VARIANCE = "variance"
    VEHICLE_MEAN = "vehicle_mean"
    VEHICLE_MEDIAN = "vehicle_median"
    VEHICLE_P05 = "vehicle_p05"
    VEHICLE_P10 = "vehicle_p10"
    VEHICLE_P15 = "vehicle_p15"
    VEHICLE_P25 = "vehicle_p25"
    VEHICLE_P75 = "vehicle_p75"
    VEHICLE_P85 = "vehicle_p85"
    VEHICLE_P90 = "vehicle_p90"
    VEHICLE_P95 = "vehicle_p95"

    @property
    def power(self) -> int:
        """Power of the speed unit the statistic is measured in: 1, or 2 for the variance."""
        return 2 if self is Statistic.VARIANCE else 1

    @property
    def stem(self) -> str:
        """First part of the published column names."""
        return f"speed_{self.value}"

    @property
    def description(self) -> str:
        """What the published number is, in words."""
        if self in QUANTILES:
            return f"{self.words} of each vehicle's own mean speed (each vehicle weighs the same)"
        return {
            Statistic.MEAN: "mean speed over GPS records (vehicles that report more often weigh more)",
            Statistic.VARIANCE: "population variance of speed over GPS records",
            Statistic.VEHICLE_MEAN: "mean over vehicles of each vehicle's own mean speed "
            "(each vehicle weighs the same)",
        }[self]

    @property
    def words(self) -> str:
        """How it is called in a sentence: "vehicle mean", "85th percentile over vehicles"."""
        if self in QUANTILES and self is not Statistic.VEHICLE_MEDIAN:
            return f"{float(100 * QUANTILES[self]):g}th percentile over vehicles"
        return "median over vehicles" if self in QUANTILES else self.value.replace("_", " ")

    def unit(self, unit: SpeedUnit) -> str:
        """Return how people write its unit: "km/h", or "(km/h)²" for the variance."""
        return f"({unit.label})²" if self.power == 2 else unit.label

    def factor(self, unit: SpeedUnit, other: SpeedUnit) -> float:
        """Return what turns it from ``unit`` into ``other``: of the variance the square."""
        return float(unit.factor_to(other) ** self.power)

    def largest(self, upper: Fraction | float) -> float:
        """Largest value the statistic can take for speeds in [0, upper]: U, or U^2/4 (Popoviciu)."""
        return float(upper * upper / 4) if self is Statistic.VARIANCE else float(upper)

    def column(self, unit: SpeedUnit) -> str:
        """Return the published column name with its unit: ``speed_mean_kmh``, ``speed_variance_kmh2``."""
        return f"{self.stem}_{unit.value}{'2' if self.power == 2 else ''}"


QUANTILES: Mapping[Statistic, Fraction] = MappingProxyType(
    {Statistic.VEHICLE_MEDIAN: Fraction(1, 2)}
    | {each: Fraction(int(each[-2:]), 100) for each in Statistic if each.startswith("vehicle_p")}
)
"""Which share of the vehicles is slower, of every quantile."""
OF_MAPS = tuple(each for each in Statistic if each not in QUANTILES)
"""What a map may show."""
