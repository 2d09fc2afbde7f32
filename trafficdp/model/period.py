"""The declared period: whole local days."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trafficdp.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Period:
    """Local days ``first`` to ``last``, both included, in ``time_zone`` (an IANA name).

    Raises ConfigError for an unknown time zone, or a period that ends before it starts or lies outside the
    years 1900 to 2900.
    """

    first: date
    last: date
    time_zone: str

    def __post_init__(self) -> None:
        zone_of(self.time_zone)
        if not (1900 <= self.first.year <= 2900 and 1900 <= self.last.year <= 2900):
            raise ConfigError(
                "period is out of range",
                got=f"from {self.first.isoformat()} to {self.last.isoformat()}",
                expected="days of the years 1900 to 2900",
            )
        if self.last < self.first:
            raise ConfigError(
                "period ends before it starts",
                got=f"from {self.first.isoformat()} to {self.last.isoformat()}",
                expected="from <= to (both days are included)",
            )

    @property
    def start_utc(self) -> datetime:
        """First instant that belongs to the period, in UTC."""
        return datetime.combine(self.first, time(), zone_of(self.time_zone)).astimezone(UTC)

    @property
    def end_utc(self) -> datetime:
        """First instant after the period, in UTC."""
        after = self.last + timedelta(days=1)
        return datetime.combine(after, time(), zone_of(self.time_zone)).astimezone(UTC)


def zone_of(name: str) -> ZoneInfo:
    """Return the IANA time zone ``name``; raise ConfigError when there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            "unknown time zone", got=repr(name), expected='an IANA name such as "America/Chicago"'
        ) from error
