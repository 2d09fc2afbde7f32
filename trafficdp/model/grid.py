"""The declared grid: hexagons or zones times slots of one kind; and maps of hexagons of several sizes.

With it, where and when a record must be sent to count: the period of whole local days, the study area, and a
choice of places and hours within it. A selection looks at nothing but where and when a record was sent, never
at its speed, so choosing one says as much about a vehicle as the counts that are public already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, CellArray, IntArray
from trafficdp.errors import ConfigError, UsageError, integer_between
from trafficdp.model.context import ContextLayer, StudyArea, Zones
from trafficdp.model.json_codec import Schema, Text, as_json

Hour = Annotated[int, Schema({"minimum": 0, "maximum": 24})]


class SlotKind(StrEnum):
    """How time is cut. The number of a slot means:

    ===================  ==========================================================================
    WHOLE_PERIOD         0
    HOUR_OF_DAY          0..23, the local clock hour
    WEEKDAY_WEEKEND_HOUR 0..23 on Monday to Friday, 24..47 on Saturday and Sunday
    DAY_PART             index into the declared day parts
    WEEKDAY              0 for Monday to 6 for Sunday
    DAY                  UTC epoch second at which the local day starts
    CALENDAR_HOUR        UTC epoch second at which the local clock hour starts (a repeated hour of a
                         clock change counts as two)
    ===================  ==========================================================================

    The first five recur or span the period; DAY and CALENDAR_HOUR are points on the calendar. Where a map
    falls back on longer slots, their numbers are negative (OFFSET), so that no other slot has them.
    """

    WHOLE_PERIOD = "whole_period"
    HOUR_OF_DAY = "hour_of_day"
    WEEKDAY_WEEKEND_HOUR = "weekday_weekend_hour"
    DAY_PART = "day_part"
    WEEKDAY = "weekday"
    DAY = "day"
    CALENDAR_HOUR = "calendar_hour"

    @property
    def recurs(self) -> bool:
        """Whether a slot covers several stretches of time, such as an hour of every day."""
        return self not in (SlotKind.WHOLE_PERIOD, SlotKind.DAY, SlotKind.CALENDAR_HOUR)

    @property
    def longer_kinds(self) -> tuple[SlotKind, ...]:
        """Kinds of longer slots that a suggestion may propose instead, from many slots to few."""
        return () if self is SlotKind.WHOLE_PERIOD else (*_LONGER[self], SlotKind.WHOLE_PERIOD)


_LONGER = {
    SlotKind.CALENDAR_HOUR: (SlotKind.DAY, SlotKind.WEEKDAY_WEEKEND_HOUR, SlotKind.HOUR_OF_DAY),
    SlotKind.DAY: (),
    SlotKind.WEEKDAY_WEEKEND_HOUR: (SlotKind.HOUR_OF_DAY, SlotKind.DAY_PART),
    SlotKind.HOUR_OF_DAY: (SlotKind.DAY_PART,),
    SlotKind.DAY_PART: (),
    SlotKind.WEEKDAY: (),
    SlotKind.WHOLE_PERIOD: (),
}

OFFSET = {SlotKind.DAY: -(10**12), SlotKind.DAY_PART: -100, SlotKind.WHOLE_PERIOD: -1}
"""What is added to a slot's own number."""
LONGER = {
    SlotKind.WHOLE_PERIOD: (),
    SlotKind.HOUR_OF_DAY: (SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD),
    SlotKind.WEEKDAY_WEEKEND_HOUR: (SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD),
    SlotKind.DAY_PART: (SlotKind.WHOLE_PERIOD,),
    SlotKind.WEEKDAY: (SlotKind.WHOLE_PERIOD,),
    SlotKind.DAY: (SlotKind.WHOLE_PERIOD,),
    SlotKind.CALENDAR_HOUR: (SlotKind.DAY, SlotKind.WHOLE_PERIOD),
}
"""The kinds that a kind of slot can fall back on, from short to long: unions of its slots."""


def slot_kinds_of(slot: IntArray, kind: SlotKind) -> npt.NDArray[np.object_]:
    """Return the kind of every slot number, shape (n,), on a map whose own slots are of ``kind``.

    Negative numbers belong to the longer kinds of slot that such a map falls back on.
    """
    # members by their place, because NumPy would turn a single one into plain text
    members = np.empty(4, dtype=object)
    members[:] = [kind, SlotKind.WHOLE_PERIOD, SlotKind.DAY_PART, SlotKind.DAY]
    place = np.where(slot < OFFSET[SlotKind.DAY_PART], 3, 2)
    place[slot == OFFSET[SlotKind.WHOLE_PERIOD]] = 1
    place[slot >= 0] = 0
    result: npt.NDArray[np.object_] = members[place]
    return result


@dataclass(frozen=True, slots=True)
class Period:
    """Local days ``first`` to ``last``, both included, in ``time_zone`` (an IANA name).

    Raises ConfigError for an unknown time zone, or a period that ends before it starts or lies outside the
    years 1900 to 2200.
    """

    first: date
    last: date
    time_zone: Text

    def __post_init__(self) -> None:
        zone_of(self.time_zone)
        if not (1900 <= self.first.year <= 2200 and 1900 <= self.last.year <= 2200):
            raise ConfigError(
                "period is out of range",
                got=f"from {self.first.isoformat()} to {self.last.isoformat()}",
                expected="days of the years 1900 to 2200",
            )
        if self.last < self.first:
            raise ConfigError(
                "period ends before it starts",
                got=f"from {self.first.isoformat()} to {self.last.isoformat()}",
                expected="from <= to (both days are included)",
            )

    @property
    def utc_seconds(self) -> tuple[int, int]:
        """The first second (since 1970-01-01 UTC) that belongs to the period, and the first after it."""
        zone, after = zone_of(self.time_zone), self.last + timedelta(days=1)
        start, end = (datetime.combine(day, time(), zone) for day in (self.first, after))
        return int(start.timestamp()), int(end.timestamp())


def zone_of(name: str) -> ZoneInfo:
    """Return the IANA time zone ``name``; raise ConfigError when there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(
            "unknown time zone", got=repr(name), expected='an IANA name such as "America/Chicago"'
        ) from error


def rfc3339(moment: datetime, zone: ZoneInfo) -> str:
    """Return ``moment`` to the second by the clocks of ``zone``, such as "2026-03-05T10:30:00+01:00".

    In UTC where they are off by no whole minutes, as before 1972. Raises UsageError for a time without an
    offset from UTC.
    """
    if moment.tzinfo is None:
        raise UsageError("a time carries no offset", got=moment.isoformat(), expected="an aware datetime")
    local = moment.astimezone(zone)
    whole = (local.utcoffset() or timedelta()) % timedelta(minutes=1) == timedelta()
    return (local if whole else local.astimezone(UTC)).isoformat(timespec="seconds")


HOURS_A_WEEK = 168
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Place:
    """An area with the name that people call it by."""

    name: str
    area: StudyArea


@dataclass(frozen=True, slots=True)
class Selection:
    """Restrictions that a record must meet, all of them; None or nothing: no restriction.

    ``hours_of_week`` are local clock hours counted from Monday 00:00, 0 to 167, sorted. Of every tuple in
    ``places`` one place must hold the record. ``cells`` are H3 cells of one resolution, sorted, one of which
    must hold it.

    Raises UsageError for an empty tuple, which no record could meet, and for hours that are none.
    """

    hours_of_week: tuple[int, ...] | None = None
    places: tuple[tuple[Place, ...], ...] = ()
    cells: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.hours_of_week == () or self.cells == () or () in self.places:
            raise UsageError("the selection holds no place or no time", expected="at least one")
        if self.hours_of_week and not all(0 <= hour < HOURS_A_WEEK for hour in self.hours_of_week):
            raise UsageError("an hour of the week is out of range", expected="0 to 167")

    @property
    def everything(self) -> bool:
        """Whether the selection restricts nothing, so that every record meets it."""
        return self.hours_of_week is None and not self.places and self.cells is None

    @property
    def key(self) -> dict[str, object]:
        """What decides which records count, as JSON values: equal for equal restrictions, however named."""
        clauses = {tuple(sorted({place.area.hash for place in clause})) for clause in self.places}
        return {
            "hours_of_week": None if self.hours_of_week is None else list(self.hours_of_week),
            "places": [list(clause) for clause in sorted(clauses)],
            "cells": None if self.cells is None else [format(cell, "x") for cell in self.cells],
        }

    def in_words(self) -> str:
        """Return the restriction as one phrase, such as "Monday to Friday 07:00-10:00; within centre"."""
        parts = [] if self.hours_of_week is None else [hours_in_words(self.hours_of_week)]
        parts += ["within " + " or ".join(place.name for place in clause) for clause in self.places]
        if self.cells is not None:
            number = len(self.cells)
            parts.append(f"within {number} listed hexagon" + ("s" if number > 1 else ""))
        return "; ".join(parts) or "all of the area and period"


EVERYTHING = Selection()
"""No restriction."""


def hours_by_day(hours_of_week: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Return [(days, hours)] for hours of the week: days with the same clock hours are put together.

    ``hours_of_week`` are 0 to 167 from Monday 00:00, sorted; days are 0 (Monday) to 6, hours 0 to 23. In
    order of the first day.
    """
    hours_of_day: dict[int, list[int]] = {}
    for hour in hours_of_week:
        hours_of_day.setdefault(hour // 24, []).append(hour % 24)
    groups: dict[tuple[int, ...], list[int]] = {}
    for day, hours in sorted(hours_of_day.items()):
        groups.setdefault(tuple(hours), []).append(day)
    return [(days, list(hours)) for hours, days in groups.items()]


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the runs of consecutive whole numbers in a sorted list, as (first, last) each."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def hours_in_words(hours_of_week: tuple[int, ...]) -> str:
    """Return hours of the week (0 to 167) in words, such as "Monday to Friday 07:00-10:00, Sunday"."""
    parts = []
    for days, hours in hours_by_day(hours_of_week):
        named = [_days(first, last) for first, last in runs(days)]
        times = [f"{first:02d}:00-{last + 1:02d}:00" for first, last in runs(hours)]
        parts.append(" and ".join(named) + ("" if len(hours) == 24 else " " + " and ".join(times)))
    return ", ".join(parts)


def _days(first: int, last: int) -> str:
    if first == last:
        return DAYS[first]
    return f"{DAYS[first]} {'to' if last > first + 1 else 'and'} {DAYS[last]}"


_RESOLUTION_SHIFT, _RESOLUTION_MASK = np.uint64(52), np.uint64(15)


@dataclass(frozen=True, slots=True)
class Mosaic:
    """``resolutions`` falls from the finest; ``bins`` are the published (cell, slot), rising.

    None of them lies within another (not checked). A finest bin in none of them lies, withheld, in its
    largest ancestor that holds none of them (``binning.mosaic``). ``half_width`` is what was asked of every
    interval, in the unit of the speed bound. Bins may also be of ``longer`` slots (``SlotKind``);
    going up from the finest bins, cells grow before slots do when ``cells_first``, after them otherwise.
    Raises UsageError for resolutions that do not fall, and bins of other resolutions or out of order.
    """

    resolutions: tuple[int, ...]
    bins: tuple[tuple[int, int], ...]
    half_width: Fraction
    longer: tuple[SlotKind, ...] = ()
    cells_first: bool = True

    def __post_init__(self) -> None:
        for resolution in self.resolutions:
            integer_between(0, 15, resolution=resolution)
        if not self.resolutions or list(self.resolutions) != sorted(set(self.resolutions), reverse=True):
            raise UsageError(
                "resolutions of a map do not fall", got=self.resolutions, expected="such as (8, 7, 6)"
            )
        known = np.isin(resolution_of(self.cell), self.resolutions)
        if not bool(known.all()) or list(self.bins) != sorted(set(self.bins)):
            raise UsageError(
                "published bins of a map are out of order or of other resolutions",
                got=f"{len(self.bins)} bins",
                expected="different bins of its resolutions, rising by cell, then slot",
            )

    @property
    def cell(self) -> CellArray:
        """H3 cells of the published bins, shape (bins,)."""
        return np.array([cell for cell, _ in self.bins], dtype=np.uint64)

    @property
    def slot(self) -> IntArray:
        """Slot numbers of the published bins, shape (bins,)."""
        return np.array([slot for _, slot in self.bins], dtype=np.int64)

    def levels(self, kind: SlotKind) -> tuple[tuple[int, SlotKind], ...]:
        """Return (resolution, kind of slot) of every level, from the finest, whose slots are of ``kind``.

        Coarser levels may have longer slots, of the kinds in ``longer``.
        """
        return levels_of(self.resolutions, (kind, *self.longer), self.cells_first)

    def bins_per_level(self, kind: SlotKind) -> dict[tuple[int, SlotKind], int]:
        """Return how many published bins each level has, by (resolution, kind of slot).

        ``kind`` is the kind of slot of the finest level.
        """
        resolution, kinds = resolution_of(self.cell), slot_kinds_of(self.slot, kind)
        return {
            level: int(np.count_nonzero((resolution == level[0]) & (kinds == level[1])))
            for level in self.levels(kind)
        }


def levels_of(
    resolutions: tuple[int, ...], kinds: tuple[SlotKind, ...], cells_first: bool
) -> tuple[tuple[int, SlotKind], ...]:
    """Return (resolution, kind of slot) of every level, from (finest, shortest) to (coarsest, longest).

    With ``cells_first`` resolutions coarsen first, at the shortest kind, and slots lengthen at the coarsest
    resolution; else the other way round.
    """
    if cells_first:
        return (
            *((resolution, kinds[0]) for resolution in resolutions),
            *((resolutions[-1], kind) for kind in kinds[1:]),
        )
    return (
        *((resolutions[0], kind) for kind in kinds),
        *((resolution, kinds[-1]) for resolution in resolutions[1:]),
    )


def resolution_of(cells: CellArray) -> IntArray:
    """Return the resolution of every H3 cell, shape (n,): bits 52 to 55 of its index."""
    return ((cells >> _RESOLUTION_SHIFT) & _RESOLUTION_MASK).astype(np.int64)


def are_pairs_of(cell: CellArray, slot: IntArray, known_cell: CellArray, known_slot: IntArray) -> BoolArray:
    """Return for every pair (``cell``, ``slot``) whether it is a known one, shape (n,).

    ``known_cell`` and ``known_slot`` have a shape (m,) of their own.
    """
    cell_number = np.unique(np.concatenate([known_cell, cell]), return_inverse=True)[1]
    slots, slot_number = np.unique(np.concatenate([known_slot, slot]), return_inverse=True)
    key = cell_number * len(slots) + slot_number
    return np.isin(key[len(known_cell) :], key[: len(known_cell)])


@dataclass(frozen=True, slots=True)
class DayPart:
    """A named part of the local day: clock hours ``first_hour`` up to, not including, ``end_hour``.

    ``first_hour > end_hour`` runs past midnight (22 to 5, say).
    """

    name: Text
    first_hour: Hour
    end_hour: Hour

    def __post_init__(self) -> None:
        integer_between(0, 23, first_hour=self.first_hour)
        integer_between(0, 24, end_hour=self.end_hour)

    @property
    def hours(self) -> tuple[int, ...]:
        """The clock hours that belong to the part."""
        length = (self.end_hour - self.first_hour) % 24 or 24
        return tuple((self.first_hour + i) % 24 for i in range(length))


DEFAULT_DAY_PARTS = (
    DayPart("night", 22, 6),
    DayPart("morning peak", 6, 10),
    DayPart("midday", 10, 15),
    DayPart("afternoon peak", 15, 19),
    DayPart("evening", 19, 22),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """What is binned: declared, never inferred from data.

    ``resolution`` is H3's, 0 to 15, or None with ``zones``: places are then these, by number; a record that
    lies in none does not count. ``day_parts`` counts only for SlotKind.DAY_PART and must cover
    each of the 24 clock hours exactly once. ``selection`` restricts which records count, by place and time.
    With a ``mosaic``, ``resolution`` is its finest one, and bins are of all its resolutions.
    ``context`` is what is drawn around the bins and names them; no bin depends on it.
    """

    resolution: int | None
    slot_kind: SlotKind
    area: StudyArea
    period: Period
    day_parts: tuple[DayPart, ...] = DEFAULT_DAY_PARTS
    selection: Selection = EVERYTHING
    mosaic: Mosaic | None = None
    context: tuple[ContextLayer, ...] = ()
    zones: Zones | None = None

    def __post_init__(self) -> None:
        if self.zones is None:
            integer_between(0, 15, resolution=self.resolution)
        elif self.resolution is not None or self.mosaic is not None:
            raise UsageError("a map of zones has no resolution", got=self.resolution)
        if self.mosaic is not None and self.mosaic.resolutions[0] != self.resolution:
            raise UsageError(
                "the finest resolution of the mosaic is not that of the grid",
                got=self.mosaic.resolutions[0],
                expected=self.resolution,
            )
        known = LONGER[self.slot_kind]
        if self.mosaic is not None and [k for k in known if k in self.mosaic.longer] != [*self.mosaic.longer]:
            raise UsageError(
                f"slots of kind {self.slot_kind.value} do not add up to longer ones of these kinds",
                got=", ".join(self.mosaic.longer),
                expected=", ".join(known) or "none",
            )
        covered = sorted(hour for part in self.day_parts for hour in part.hours)
        if covered != list(range(24)):
            raise ConfigError(
                "day parts do not cut the day", got=f"hours {covered}", expected="each hour 0 to 23 once"
            )

    @property
    def key(self) -> str:
        """SHA-256 of everything that decides which bin a record falls into."""
        facts: dict[str, object] = {
            "resolution": self.resolution,
            "slot_kind": self.slot_kind.value,
            "area": self.area.hash,
            "first": self.period.first.isoformat(),
            "last": self.period.last.isoformat(),
            "time_zone": self.period.time_zone,
            "day_parts": [[p.name, p.first_hour, p.end_hour] for p in self.day_parts]
            if self.slot_kind is SlotKind.DAY_PART
            else [],
        }
        if not self.selection.everything:
            facts["selection"] = self.selection.key
        if self.zones is not None:
            facts["zones"] = self.zones.key
        if self.mosaic is not None:
            facts["mosaic"] = as_json(self.mosaic)
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def resolutions(self) -> tuple[int, ...]:
        """The H3 resolutions that bins may have, from the finest; none on a map of zones."""
        if self.zones is not None:
            return ()
        return (self.hexagon_resolution,) if self.mosaic is None else self.mosaic.resolutions

    @property
    def hexagon_resolution(self) -> int:
        """The resolution of hexagons. Raises UsageError for a map of zones."""
        if self.resolution is None:
            raise UsageError(
                "this needs hexagons",
                got="a map of zones",
                todo="give [map] resolution instead of [map] zones, or --resolution",
            )
        return self.resolution

    def with_resolution(self, resolution: int) -> Grid:
        """Return this grid with hexagons of one ``resolution`` in place of zones or several resolutions."""
        return replace(self, resolution=resolution, zones=None, mosaic=None)

    @property
    def noun(self) -> str:
        """The word for a place of this map in texts: "hexagon" or "zone", in the singular."""
        return "hexagon" if self.zones is None else "zone"

    def in_words(self) -> str:
        """Return what the places are, as a phrase: hexagons of which resolutions, or zones of which file."""
        if self.zones is not None:
            return f"{len(self.zones.names)} zones of {self.zones.file}"
        coarsest, finest = min(self.resolutions), max(self.resolutions)
        return f"H3 hexagons of resolution {finest if coarsest == finest else f'{coarsest} to {finest}'}"

    def spelled(self, cells: CellArray) -> list[str]:
        """Return the text that tables have for every place: H3's hexadecimal digits, or a zone's number."""
        form = "x" if self.zones is None else "d"
        return [format(cell, form) for cell in cells.tolist()]

    def read_spelled(self, texts: Iterable[str]) -> CellArray:
        """Return the places whose ``spelled`` texts are ``texts``. Raises ValueError for any other text."""
        base = 16 if self.zones is None else 10
        return np.array([int(text, base) for text in texts], dtype=np.uint64)

    def may_publish(self, cell: CellArray, slot: IntArray) -> BoolArray:
        """Return for every bin whether the map may have a number for it, shape (G,).

        True for all bins, or on a map of several resolutions for the bins of its mosaic.
        """
        if self.mosaic is None:
            return np.ones(len(cell), dtype=np.bool_)
        return are_pairs_of(cell, slot, self.mosaic.cell, self.mosaic.slot)
