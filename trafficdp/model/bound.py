"""What one vehicle may contribute: values clipped to [0, U] on a lattice."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from trafficdp.errors import ConfigError
from trafficdp.model.speed_unit import SpeedUnit


@dataclass(frozen=True, slots=True)
class ContributionBound:
    """Speeds are clipped to [0, ``upper``] and then rounded to multiples of ``step``.

    Both are exact numbers in ``unit``; ``step`` must divide ``upper``, else rounding could carry a
    clipped value past U and the sensitivity would be understated. Clipping is never dropping: a speed
    above U counts as U.

    Raises ConfigError unless 0 < step <= upper and step divides upper.
    """

    upper: Fraction
    step: Fraction
    unit: SpeedUnit

    def __post_init__(self) -> None:
        if not 0 < self.step <= self.upper:
            raise ConfigError(
                "speed bound and step are out of range",
                got=f"speed_bound={float(self.upper)}, speed_step={float(self.step)}",
                expected="0 < speed_step <= speed_bound",
            )
        if (self.upper / self.step).denominator != 1:
            raise ConfigError(
                "speed bound is not a multiple of the speed step",
                got=f"speed_bound={float(self.upper)}, speed_step={float(self.step)}",
                expected="speed_bound = whole number x speed_step",
                todo="choose another speed_step",
            )
        if self.steps > 1_000_000:
            raise ConfigError(
                "speed step is too fine",
                got=f"{self.steps} steps up to the bound",
                expected="at most 1,000,000",
                todo="choose a larger speed_step",
            )

    @property
    def steps(self) -> int:
        """U as a number of steps: the largest integer a clipped value can be."""
        return int(self.upper / self.step)
