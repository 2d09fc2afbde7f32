"""What a priced question may show, and how its columns are called and written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trafficdp.model import QUANTILES, SlotKind, SpeedUnit, Statistic

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class Kind(StrEnum):
    """What a column holds. The value is how it is written in a question."""

    CELL = "cell"
    SLOT = "slot"
    SLOT_LABEL = "slot_label"
    SLOT_START = "slot_start"
    SLOT_END = "slot_end"
    HOUR = "hour"
    WEEKDAY = "weekday"
    DATE = "date"
    PLACE = "place"
    STATUS = "status"
    FIXES = "COUNT(*)"
    VEHICLES = "COUNT(DISTINCT vehicle)"
    MEAN = "AVG(speed)"
    VARIANCE = "VAR_POP(speed)"
    STDDEV = "STDDEV_POP(speed)"
    VEHICLE_MEAN = "VEHICLE_AVG(speed)"
    MEDIAN = "MEDIAN(speed)"
    P05 = "QUANTILE_CONT(speed, 0.05)"
    P10 = "QUANTILE_CONT(speed, 0.1)"
    P15 = "QUANTILE_CONT(speed, 0.15)"
    P25 = "QUANTILE_CONT(speed, 0.25)"
    P75 = "QUANTILE_CONT(speed, 0.75)"
    P85 = "QUANTILE_CONT(speed, 0.85)"
    P90 = "QUANTILE_CONT(speed, 0.9)"
    P95 = "QUANTILE_CONT(speed, 0.95)"

    @property
    def statistic(self) -> Statistic | None:
        """The noisy statistic it comes from, None for what is public under the counts assumption."""
        return _STATISTICS.get(self)

    @property
    def of_slot(self) -> bool:
        """Whether it belongs to the slot, which must then be grouped by."""
        return self in (Kind.SLOT, Kind.SLOT_LABEL, Kind.SLOT_START, Kind.SLOT_END) or self.of_clock

    @property
    def of_clock(self) -> bool:
        """Whether it is a part of the local time, which says what slots there are."""
        return self in (Kind.HOUR, Kind.WEEKDAY, Kind.DATE)

    @property
    def of_place(self) -> bool:
        """Whether it belongs to the hexagon, which must then be grouped by."""
        return self in (Kind.CELL, Kind.PLACE)

    @property
    def counts(self) -> bool:
        """Whether it is an exact count."""
        return self in (Kind.FIXES, Kind.VEHICLES)

    @property
    def measured(self) -> bool:
        """Whether it is a number that may have an interval: a statistic or a count."""
        return self.counts or self.statistic is not None

    @property
    def by_rank(self) -> bool:
        """Whether it is a quantile, whose interval is one of ranks."""
        return self.statistic in QUANTILES

    @property
    def ends(self) -> tuple[End, End]:
        """The ends of its interval."""
        return (End.RANK_LOW, End.RANK_HIGH) if self.by_rank else (End.LOW, End.HIGH)


class End(StrEnum):
    """Which number of a measured column: the value, or an end of its interval (of a quantile: ranks)."""

    VALUE = ""
    LOW = "_low"
    HIGH = "_high"
    RANK_LOW = "_rank_low"
    RANK_HIGH = "_rank_high"

    @property
    def of_rank(self) -> bool:
        """Whether it is the number of a vehicle, counted from the slowest."""
        return self in (End.RANK_LOW, End.RANK_HIGH)

    @property
    def function(self) -> str:
        """What asks for it."""
        return f"DP{'' if self.of_rank else '_INTERVAL'}{self.upper()}"


_STATISTICS = {
    Kind.MEAN: Statistic.MEAN,
    Kind.VARIANCE: Statistic.VARIANCE,
    Kind.STDDEV: Statistic.VARIANCE,
    Kind.VEHICLE_MEAN: Statistic.VEHICLE_MEAN,
    Kind.MEDIAN: Statistic.VEHICLE_MEDIAN,
    **{kind: Statistic[f"VEHICLE_{kind.name}"] for kind in Kind if kind.startswith("QUANTILE")},
}
KIND_OF = {QUANTILES[each]: kind for kind, each in _STATISTICS.items() if each in QUANTILES}
"""Which quantiles may be asked for."""
SLOTS_BY_CLOCK = {
    SlotKind.HOUR_OF_DAY: {Kind.HOUR},
    SlotKind.WEEKDAY: {Kind.WEEKDAY},
    SlotKind.DAY: {Kind.DATE},
    SlotKind.CALENDAR_HOUR: {Kind.DATE, Kind.HOUR},
}
"""Which parts of the local time a slot of each kind has one of."""
RESERVED = {
    "cell": Kind.CELL,
    "h3": Kind.CELL,
    "hex_id": Kind.CELL,
    **{kind.value: kind for kind in Kind if kind.of_slot},
    "place": Kind.PLACE,
    "status": Kind.STATUS,
}
"""Names that only a column of their kind may bear."""


class Meaning(NamedTuple):
    """What a column shows: see Column."""

    kind: Kind
    end: End = End.VALUE
    digits: int | None = None

    def expression(self, cell: str = "cell", slot: str = "slot") -> str:
        """Return how it is written; ``cell`` and ``slot`` are how the question writes those two."""
        inner = {Kind.CELL: cell, Kind.SLOT: slot}.get(self.kind, self.kind.value)
        shown = inner if self.end is End.VALUE else f"{self.end.function}({inner})"
        return shown if self.digits is None else f"ROUND({shown}, {self.digits})"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the answer; ``name`` is how the answer calls it.

    ``digits`` are the decimals that it is rounded to; None: as it was released. Values are rounded to the
    nearest, ends of intervals outward.
    """

    kind: Kind
    end: End
    name: str
    digits: int | None = None

    @property
    def meaning(self) -> Meaning:
        """What it shows, whatever its name."""
        return Meaning(self.kind, self.end, self.digits)

    def expression(self, cell: str, slot: str) -> str:
        """Return how it is written; ``cell`` and ``slot`` are how the question writes those two."""
        return self.meaning.expression(cell, slot)


def default_name(kind: Kind, unit: SpeedUnit) -> str:
    """Return what a column is called that is given no name: with the unit of its speeds."""
    if kind is Kind.STDDEV:
        return f"speed_stddev_{unit.value}"
    if kind.statistic is not None:
        return kind.statistic.column(unit)
    return {Kind.FIXES: "records", Kind.VEHICLES: "vehicles"}.get(kind, kind.value)


def identifier(name: str) -> str:
    """Return a name as SQL takes it: in quotes where it needs them."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'
