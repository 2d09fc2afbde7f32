"""The statistics that can be released for a bin."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from trafficdp.model.speed_unit import SpeedUnit


class Statistic(StrEnum):
    """What is estimated of the clipped speeds of a bin.

    MEAN: mean over records (a vehicle that reports more often weighs more).
    VARIANCE: population variance over records, 1/N * sum (x - mean)^2.
    VEHICLE_MEAN: mean over vehicles of each vehicle's own mean (each vehicle weighs the same).
    """

    MEAN = "mean"
    VARIANCE = "variance"
    VEHICLE_MEAN = "vehicle_mean"

    @property
    def power(self) -> int:
        """Power of the speed unit the statistic is measured in: 1, or 2 for the variance."""
        return 2 if self is Statistic.VARIANCE else 1

    @property
    def stem(self) -> str:
        """First part of the published column names."""
        return {
            Statistic.MEAN: "speed_mean",
            Statistic.VARIANCE: "speed_variance",
            Statistic.VEHICLE_MEAN: "speed_vehicle_mean",
        }[self]

    @property
    def description(self) -> str:
        """What the published number is, in words."""
        return {
            Statistic.MEAN: "mean speed over GPS records (vehicles that report more often weigh more)",
            Statistic.VARIANCE: "population variance of speed over GPS records",
            Statistic.VEHICLE_MEAN: "mean over vehicles of each vehicle's own mean speed "
            "(each vehicle weighs the same)",
        }[self]

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
