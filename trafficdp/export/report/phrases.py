"""The words that sentences are made of: how statistics, things, numbers and days are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

from trafficdp.model import QUANTILES, Statistic

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August"),
    *("September", "October", "November", "December"),
)


@dataclass(frozen=True, slots=True)
class Words:
    """How a statistic is spoken of."""

    noun: str
    below: str
    above: str


WORDS: Mapping[Statistic, Words] = MappingProxyType(
    {
        Statistic.MEAN: Words("mean speed", "slower", "faster"),
        Statistic.VEHICLE_MEAN: Words("mean speed of the vehicles", "slower", "faster"),
        Statistic.VARIANCE: Words("standard deviation of speed", "steadier", "more varied"),
        **{each: Words(f"{each.words} of their mean speed", "slower", "faster") for each in QUANTILES},
    }
)


@dataclass(frozen=True, slots=True)
class Things:
    """What is compared: areas, or combinations of area and time."""

    one: str
    many: str

    def count(self, number: int) -> str:
        """Return "1 area" or "7 areas"."""
        return f"{number:,} {self.one if number == 1 else self.many}"


AREAS = Things("area", "areas")
AREAS_AND_TIMES = Things("combination of area and time", "combinations of area and time")


def days(first: date, last: date) -> str:
    """Return "24 to 27 November 2016", naming month and year once where they are the same."""
    if first == last:
        return _day(first)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {_day(last)}"
    if first.year == last.year:
        return f"{first.day} {_MONTHS[first.month - 1]} to {_day(last)}"
    return f"{_day(first)} to {_day(last)}"


def span(low: float, high: float, digits: int) -> str:
    """Return "12.3 to 45.6"."""
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def signed_span(low: float, high: float, digits: int) -> str:
    """Return "-1.2 to +3.4" with a true minus sign."""
    return f"{signed(low, digits)} to {signed(high, digits)}"


def _day(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def signed(number: float, digits: int) -> str:
    """Return "+1.2" or "−1.2" with a true minus sign; 0 without any."""
    text = f"{abs(number):,.{digits}f}"
    if not text.strip("0.,"):
        return text
    return f"−{text}" if number < 0 else f"+{text}"


def is_or_are(number: int) -> str:
    """Return the verb for so many things."""
    return "is" if number == 1 else "are"


def has_or_have(number: int) -> str:
    """Return the verb for so many things."""
    return "has" if number == 1 else "have"


def listed(parts: Sequence[str]) -> str:
    """Return "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def capital(text: str) -> str:
    """Return ``text`` with its first letter large."""
    return text[0].upper() + text[1:]
