"""Units of speed, with exact factors."""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from trafficdp.errors import ConfigError


class SpeedUnit(StrEnum):
    """A unit of speed. The value is the name used in configuration files and column names."""

    METRES_PER_SECOND = "ms"
    KILOMETRES_PER_HOUR = "kmh"
    MILES_PER_HOUR = "mph"

    @property
    def metres_per_second(self) -> Fraction:
        """Exactly how many metres a second one such unit is (a mile is 1609.344 m)."""
        return _METRES_PER_SECOND[self]

    @property
    def label(self) -> str:
        """How people write the unit."""
        return _LABELS[self]

    def factor_to(self, other: SpeedUnit) -> Fraction:
        """Return the exact factor that turns a speed in this unit into one in ``other``."""
        return self.metres_per_second / other.metres_per_second


_METRES_PER_SECOND = {
    SpeedUnit.METRES_PER_SECOND: Fraction(1),
    SpeedUnit.KILOMETRES_PER_HOUR: Fraction(5, 18),
    SpeedUnit.MILES_PER_HOUR: Fraction(44704, 100000),
}
_LABELS = {
    SpeedUnit.METRES_PER_SECOND: "m/s",
    SpeedUnit.KILOMETRES_PER_HOUR: "km/h",
    SpeedUnit.MILES_PER_HOUR: "mph",
}
_SPELLINGS = {
    "ms": SpeedUnit.METRES_PER_SECOND,
    "m/s": SpeedUnit.METRES_PER_SECOND,
    "mps": SpeedUnit.METRES_PER_SECOND,
    "kmh": SpeedUnit.KILOMETRES_PER_HOUR,
    "km/h": SpeedUnit.KILOMETRES_PER_HOUR,
    "kph": SpeedUnit.KILOMETRES_PER_HOUR,
    "mph": SpeedUnit.MILES_PER_HOUR,
    "mi/h": SpeedUnit.MILES_PER_HOUR,
}


def parse_speed_unit(text: object, *, where: str) -> SpeedUnit:
    """Return the unit that ``text`` names ("m/s", "km/h", "mph" and usual spellings).

    Raises ConfigError, naming ``where`` it stood, for anything else.
    """
    unit = _SPELLINGS.get(text.strip().lower()) if isinstance(text, str) else None
    if unit is None:
        raise ConfigError(f"unknown speed unit in {where}", got=repr(text), expected='"m/s", "km/h" or "mph"')
    return unit
