"""Slots of instants, which bins there are, which positions are kept, and bins of several sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.arrays import BoolArray, CellArray, FloatArray, IntArray
from trafficdp.binning.cells import area_km2, cells_of, cells_over, parents_of, polygons_of
from trafficdp.errors import DataError, UsageError
from trafficdp.model import grid as model_grid
from trafficdp.model.context import Zones
from trafficdp.privacy.release import SlotFacts

# Slots in the city's time zone: of instants, and what their numbers mean.
#
# A slot is looked up by 15-minute stretch of UTC ("quarter"): the local clock hour is the same throughout
# one when the UTC offset is a multiple of 15 minutes and does not change inside it. Both are checked for
# every quarter that occurs, by comparing the offsets at its two ends (clock changes never come twice
# within 15 minutes). Quarters that fail - offsets before 1970, clock changes at 00:01 - are worked out
# second by second, so the answer equals ``datetime.astimezone`` for every instant.


QUARTER_SECONDS = 900
_QUARTERS_A_DAY = 96
_DAY_SECONDS = 86_400
_HOUR_SECONDS = 3600
FIRST_INSTANT = datetime(1900, 1, 1, tzinfo=UTC)
"""Instants before it are refused."""
END_OF_INSTANTS = datetime(2200, 1, 1, tzinfo=UTC)
"""Instants from it on are refused."""
_ODD = np.iinfo(np.int64).min
"""Stands for the slot of a quarter that does not lie in one slot."""


def hours_of_day(grid: model_grid.Grid, slot: IntArray) -> IntArray | None:
    """Return the local clock hour 0..23 of every slot number, None where slots are no hours."""
    if grid.slot_kind is model_grid.SlotKind.CALENDAR_HOUR:
        return slots_of(slot * 1_000_000, model_grid.SlotKind.HOUR_OF_DAY, grid.period.time_zone)
    if grid.slot_kind in (model_grid.SlotKind.HOUR_OF_DAY, model_grid.SlotKind.WEEKDAY_WEEKEND_HOUR):
        return slot % 24
    return None


def slots_of(
    time_us: IntArray,
    kind: model_grid.SlotKind,
    time_zone: str,
    day_parts: Sequence[model_grid.DayPart] = model_grid.DEFAULT_DAY_PARTS,
) -> IntArray:
    """Return the slot number (see SlotKind) of every instant, shape (n,).

    ``time_us`` is microseconds since 1970-01-01 UTC, int64, shape (n,); ``time_zone`` an IANA name.
    ``day_parts`` counts only for SlotKind.DAY_PART.

    Raises ConfigError for an unknown time zone and DataError for instants outside 1900 to 2199.
    """
    zone = model_grid.zone_of(time_zone)
    if not len(time_us):
        return np.empty(0, dtype=np.int64)
    first, last = int(time_us.min()), int(time_us.max())
    if first < FIRST_INSTANT.timestamp() * 1e6 or last >= END_OF_INSTANTS.timestamp() * 1e6:
        raise DataError(
            "times are out of range",
            expected="instants from 1900 to 2199",
            todo="check the declared time format (seconds or milliseconds?)",
        )
    if kind is model_grid.SlotKind.WHOLE_PERIOD:
        return np.zeros(len(time_us), dtype=np.int64)
    first_day = first // (_DAY_SECONDS * 1_000_000)
    quarters = time_us // (QUARTER_SECONDS * 1_000_000)
    quarters -= first_day * _QUARTERS_A_DAY
    table = _table(quarters, first_day, kind, zone, day_parts)
    slots = table[quarters]
    odd = np.flatnonzero(slots == _ODD)
    if len(odd):
        seconds, back = np.unique(time_us[odd] // 1_000_000, return_inverse=True)
        exact = [slot_of_second(second, kind, zone, day_parts) for second in seconds.tolist()]
        slots[odd] = np.array(exact, dtype=np.int64)[back]
    return slots


@dataclass(frozen=True, repr=False)
class SlotTable:
    """The slots of a period, to be sent to machines whose time zones may be of another version.

    ``start_us`` (n,) are the instants, rising, from which on ``slot`` (n,) counts; the first is the start of
    the period. Equal to ``slots_of`` at every instant of it.
    """

    start_us: IntArray
    slot: IntArray

    @classmethod
    def of(
        cls,
        period: model_grid.Period,
        kind: model_grid.SlotKind,
        day_parts: Sequence[model_grid.DayPart] = model_grid.DEFAULT_DAY_PARTS,
    ) -> SlotTable:
        """Return the table of ``period``; raises as ``slots_of``."""
        begin, end = period.utc_seconds
        after = np.arange(begin // QUARTER_SECONDS + 1, -(-end // QUARTER_SECONDS)) * QUARTER_SECONDS
        first = np.append(begin, after).astype(np.int64)
        last = np.append(after, end) - 1

        def slots(second: IntArray) -> IntArray:
            return slots_of(second * 1_000_000, kind, period.time_zone, day_parts)

        # where a quarter lies in two slots, all its seconds are asked
        cut = np.flatnonzero(slots(first) != slots(last))
        seconds = [np.arange(a, b + 1) for a, b in zip(first[cut].tolist(), last[cut].tolist(), strict=True)]
        second = np.unique(np.concatenate([first, *seconds]))
        slot = slots(second)
        changes = np.append(True, slot[1:] != slot[:-1])
        return cls(second[changes] * 1_000_000, slot[changes])

    def slots_of(self, time_us: IntArray) -> IntArray:
        """Return the slot of every instant of the period, shape (n,)."""
        return self.slot[np.searchsorted(self.start_us, time_us, side="right") - 1]


def _table(
    quarters: IntArray,
    first_day: int,
    kind: model_grid.SlotKind,
    zone: ZoneInfo,
    day_parts: Sequence[model_grid.DayPart],
) -> IntArray:
    """Slot of every quarter from the start of ``first_day``; _ODD where a quarter lies in several."""
    days = int(quarters.max()) // _QUARTERS_A_DAY + 1
    occurs = np.zeros(days * _QUARTERS_A_DAY, dtype=np.bool_)
    occurs[quarters] = True
    offset = np.full(days * _QUARTERS_A_DAY, _ODD, dtype=np.int64)
    for day in np.flatnonzero(occurs.reshape(days, -1).any(axis=1)).tolist():
        stretch = slice(day * _QUARTERS_A_DAY, (day + 1) * _QUARTERS_A_DAY)
        offset[stretch] = _quarter_offsets(zone.key, first_day + day)
    plain = np.flatnonzero(offset != _ODD)
    start = first_day * _DAY_SECONDS + plain * QUARTER_SECONDS
    table = np.full(len(offset), _ODD, dtype=np.int64)
    table[plain] = _slots_of_starts(start, offset[plain], kind, zone, day_parts)
    return table


@lru_cache(maxsize=4096)
def _quarter_offsets(zone_key: str, day: int) -> IntArray:
    """UTC offset in seconds in each quarter of one UTC day, or _ODD, shape (96,). Read only."""
    zone = ZoneInfo(zone_key)
    first = day * _DAY_SECONDS
    starts = range(first, first + _DAY_SECONDS, QUARTER_SECONDS)
    begin = np.array([_offset(second, zone) for second in starts], dtype=np.int64)
    end = np.array([_offset(second + QUARTER_SECONDS - 1, zone) for second in starts], dtype=np.int64)
    offsets = np.where((begin == end) & (begin % QUARTER_SECONDS == 0), begin, _ODD)
    offsets.setflags(write=False)
    return offsets


def _slots_of_starts(
    start: IntArray,
    offset: IntArray,
    kind: model_grid.SlotKind,
    zone: ZoneInfo,
    day_parts: Sequence[model_grid.DayPart],
) -> IntArray:
    """Slots of instants (UTC seconds) whose UTC offset is known."""
    local = start + offset
    if kind is model_grid.SlotKind.DAY:
        days, back = np.unique(local // _DAY_SECONDS, return_inverse=True)
        starts = [_start_of_day(date(1970, 1, 1) + timedelta(days=day), zone) for day in days.tolist()]
        return np.array(starts, dtype=np.int64)[back]
    if kind is model_grid.SlotKind.CALENDAR_HOUR:
        # one number for each pair of clock hour and offset (offsets are shorter than 2^17 seconds)
        pairs, back = np.unique((local // _HOUR_SECONDS << 18) + (offset + (1 << 17)), return_inverse=True)
        hours, shifts = (pairs >> 18) * _HOUR_SECONDS, (pairs & ((1 << 18) - 1)) - (1 << 17)
        begins = [
            _start_of_hour(begin, shift, zone)
            for begin, shift in zip((hours - shifts).tolist(), shifts.tolist(), strict=True)
        ]
        return np.array(begins, dtype=np.int64)[back]
    hour: IntArray = local // _HOUR_SECONDS % 24
    if kind is model_grid.SlotKind.HOUR_OF_DAY:
        return hour
    weekday: IntArray = (local // _DAY_SECONDS + 3) % 7  # 1970-01-01 was a Thursday; Monday is 0
    if kind is model_grid.SlotKind.WEEKDAY:
        return weekday
    if kind is model_grid.SlotKind.WEEKDAY_WEEKEND_HOUR:
        return np.where(weekday >= 5, hour + 24, hour)
    return _part_of_hour(day_parts)[hour]


def _part_of_hour(day_parts: Sequence[model_grid.DayPart]) -> IntArray:
    """Return the number of the part of the day that each of the 24 hours lies in, shape (24,)."""
    part_of_hour = np.zeros(24, dtype=np.int64)
    for index, part in enumerate(day_parts):
        part_of_hour[list(part.hours)] = index
    return part_of_hour


def slot_of_second(
    second: int, kind: model_grid.SlotKind, zone: ZoneInfo, day_parts: Sequence[model_grid.DayPart]
) -> int:
    """Return the slot of the instant ``second`` (since 1970-01-01 UTC), straight from the time zone."""
    start = np.array([second], dtype=np.int64)
    offset = np.array([_offset(second, zone)], dtype=np.int64)
    if kind is model_grid.SlotKind.WHOLE_PERIOD:
        return 0
    return int(_slots_of_starts(start, offset, kind, zone, day_parts)[0])


def _offset(second: int, zone: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(second, zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _start_of_day(day: date, zone: ZoneInfo) -> int:
    """UTC second at which the local ``day`` starts: its first midnight, or the clock change over it."""
    return int(datetime.combine(day, time(), zone).timestamp())


def _start_of_hour(start: int, offset: int, zone: ZoneInfo) -> int:
    """UTC second from which clocks show the hour that would start at ``start`` under ``offset``.

    Later than ``start`` only where a clock change lies within the hour (Lord Howe's half hours).
    """
    if _offset(start, zone) == offset:
        return start
    return _first_second(start, start + _HOUR_SECONDS - 1, lambda second: _offset(second, zone) == offset)


def _first_second(before: int, after: int, holds: Callable[[int], bool]) -> int:
    """Smallest second in (before, after] from which ``holds``; bisection over one change."""
    return before + 1 + bisect_left(range(before + 1, after), True, key=holds)


def slot_facts(
    slots: IntArray,
    kind: model_grid.SlotKind,
    period: model_grid.Period,
    day_parts: Sequence[model_grid.DayPart] = model_grid.DEFAULT_DAY_PARTS,
) -> dict[int, SlotFacts]:
    """Return label, start and end of every number in ``slots`` (shape (n,), repeats allowed), by number.

    Start and end (not included) are RFC 3339 with the city's UTC offset then in force; None for slots
    that recur.

    Raises UsageError for a number that is no slot of ``kind``.
    """
    zone = model_grid.zone_of(period.time_zone)
    numbers = np.unique(slots).tolist()
    most = _number_of_slots(kind, day_parts)
    if most is not None and not all(0 <= number < most for number in numbers):
        raise UsageError("slot number is out of range", expected=f"0 to {most - 1} for {kind.value}")
    if kind is model_grid.SlotKind.DAY:
        return {number: _day(number, zone) for number in numbers}
    if kind is model_grid.SlotKind.CALENDAR_HOUR:
        return {number: _calendar_hour(number, zone) for number in numbers}
    if kind is model_grid.SlotKind.WHOLE_PERIOD:
        days = period.first.isoformat(), period.last.isoformat()
        facts = SlotFacts(" to ".join(dict.fromkeys(days)), *_stamps(zone, *period.utc_seconds))
        return dict.fromkeys(numbers, facts)
    hours = [f"{hour:02d}:00-{hour + 1:02d}:00" for hour in range(24)]
    labels = {
        model_grid.SlotKind.HOUR_OF_DAY: hours,
        model_grid.SlotKind.WEEKDAY_WEEKEND_HOUR: [
            f"{days} {hour}" for days in ("weekday", "weekend") for hour in hours
        ],
        model_grid.SlotKind.WEEKDAY: model_grid.DAYS,
        model_grid.SlotKind.DAY_PART: [
            f"{part.name} ({part.first_hour:02d}:00-{part.end_hour:02d}:00)" for part in day_parts
        ],
    }[kind]
    return {number: SlotFacts(labels[number], None, None) for number in numbers}


def _number_of_slots(kind: model_grid.SlotKind, day_parts: Sequence[model_grid.DayPart]) -> int | None:
    """Return how many slots of a ``kind`` there are, numbered from 0; None where they are instants."""
    return {
        model_grid.SlotKind.WHOLE_PERIOD: 1,
        model_grid.SlotKind.HOUR_OF_DAY: 24,
        model_grid.SlotKind.WEEKDAY_WEEKEND_HOUR: 48,
        model_grid.SlotKind.WEEKDAY: 7,
        model_grid.SlotKind.DAY_PART: len(day_parts),
    }.get(kind)


def _day(slot: int, zone: ZoneInfo) -> SlotFacts:
    day = datetime.fromtimestamp(slot, zone).date()
    if _start_of_day(day, zone) != slot:
        raise UsageError("slot number is not the start of a local day", expected="a slot of kind day")
    end = _start_of_day(day + timedelta(days=1), zone)
    return SlotFacts(day.isoformat(), *_stamps(zone, slot, end))


def _calendar_hour(slot: int, zone: ZoneInfo) -> SlotFacts:
    offset = _offset(slot, zone)
    if slot_of_second(slot, model_grid.SlotKind.CALENDAR_HOUR, zone, ()) != slot:
        raise UsageError("slot number is not the start of an hour", expected="a slot of kind calendar_hour")
    end = slot + _HOUR_SECONDS - (slot + offset) % _HOUR_SECONDS
    if _offset(end - 1, zone) != offset:  # a clock change cuts the hour short
        end = _first_second(slot, end - 1, lambda second: _offset(second, zone) != offset)
    stamp, stamp_of_end = _stamps(zone, slot, end)
    return SlotFacts(f"{stamp[:10]} {stamp[11:16]} {stamp[19:]}", stamp, stamp_of_end)


def _stamps(zone: ZoneInfo, *seconds: int) -> list[str]:
    return [model_grid.rfc3339(datetime.fromtimestamp(each, zone), zone) for each in seconds]


# Which positions and instants a selection keeps; every bin of a declared grid, whether any vehicle visited it
# or not: hexagons or zones of the area x slots.


def meets_selection(
    selection: model_grid.Selection,
    latitude: FloatArray,
    longitude: FloatArray,
    time_us: IntArray,
    time_zone: str,
) -> BoolArray:
    """Return for every record whether it meets the restrictions of ``selection``, shape (n,).

    ``latitude`` and ``longitude`` in degrees, ``time_us`` in microseconds since 1970-01-01 UTC, shape (n,)
    each; ``time_zone`` is an IANA name. Raises DataError for impossible positions and instants.
    """
    kept = np.ones(len(time_us), dtype=np.bool_)
    if selection.hours_of_week is not None:
        wanted = np.zeros(model_grid.HOURS_A_WEEK, dtype=np.bool_)
        wanted[list(selection.hours_of_week)] = True
        kept &= wanted[hours_of_week(time_us, time_zone)]
    for clause in selection.places:
        kept &= np.any([place.area.contains(latitude, longitude) for place in clause], axis=0)
    if selection.cells is not None:
        cells = np.array(selection.cells, dtype=np.uint64)
        resolution = int(model_grid.resolution_of(cells[:1])[0])
        inside = np.flatnonzero(kept)
        kept[inside] = np.isin(cells_of(latitude[inside], longitude[inside], resolution), cells)
    return kept


def hours_of_week(time_us: IntArray, time_zone: str) -> IntArray:
    """Return the local clock hour of every instant counted from Monday 00:00, 0 to 167, shape (n,).

    Raises as ``slots_of``.
    """
    hour = slots_of(time_us, model_grid.SlotKind.HOUR_OF_DAY, time_zone)
    starts, back = np.unique(slots_of(time_us, model_grid.SlotKind.DAY, time_zone), return_inverse=True)
    zone = model_grid.zone_of(time_zone)
    days = [datetime.fromtimestamp(second, zone).weekday() for second in starts.tolist()]
    return np.array(days, dtype=np.int64)[back] * 24 + hour


MOST_BINS = 30_000_000
"""A grid of more bins is refused before its hexagons are listed."""
_SQUARE_DEGREE_KM2 = 12_400.0


def declared_bins(grid: model_grid.Grid) -> tuple[npt.NDArray[np.uint64], IntArray]:
    """Return place and slot of every bin of ``grid``, by place, then slot, shape (G,) each.

    From study area, period, slots and the grid's restrictions alone; of zones those that the area has a part
    of. Raises UsageError for a mosaic, where no place or no slot meets the restrictions, and for more than
    MOST_BINS.
    """
    # what is drawn around bins moves none
    return _bins(replace(grid, context=()))


@lru_cache(maxsize=1)
def _bins(grid: model_grid.Grid) -> tuple[npt.NDArray[np.uint64], IntArray]:
    if grid.mosaic is not None:
        raise UsageError("a grid whose bins are all listed has one resolution", got="several")
    slots, area = declared_slots(grid), _declared_area(grid)
    if grid.zones is None:
        likely = _largest_km2(area) / area_km2(grid.hexagon_resolution) * len(slots)
    else:
        likely = float(len(grid.zones.shapes) * len(slots))
    if likely > MOST_BINS:
        raise UsageError(
            f"the study area has too many {grid.noun}s",
            got=f"about {likely:,.0f} {grid.noun}s times slots",
            expected=f"at most {MOST_BINS:,}",
            todo="choose a coarser resolution or a smaller study area",
        )
    cells = _declared_zones(area, grid.zones)[0] if grid.zones else cells_over(area, grid.hexagon_resolution)
    wanted = grid.selection.cells
    if (
        wanted is not None
        and int(model_grid.resolution_of(np.array(wanted[:1], np.uint64))[0]) == grid.resolution
    ):
        cells = np.intersect1d(cells, np.array(wanted, dtype=np.uint64))
    if not len(cells) or not len(slots):
        raise UsageError(
            "no place or no hour of the study area and period meets the conditions",
            got=grid.selection.in_words(),
            todo="ask for more hours, days or places",
        )
    bins = np.repeat(cells, len(slots)), np.tile(slots, len(cells))
    for each in bins:
        each.setflags(write=False)
    return bins


def _declared_zones(
    area: BaseGeometry, zones: Zones
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.object_]]:
    """Return the numbers, rising, of zones that ``area`` has a part of, and that part of each."""
    shapes = np.array(zones.shapes, dtype=object)
    near = np.sort(shapely.STRtree(shapes).query(area, predicate="intersects"))
    parts = shapely.intersection(shapes[near], area)
    # where both only touch nobody drives
    some = shapely.area(parts) > 0
    return near[some].astype(np.uint64) + np.uint64(1), parts[some]


def zone_km2(grid: model_grid.Grid) -> float | None:
    """Return the mean area in km² of declared zones, of each its part in the area; None for hexagons.

    The area is the study area within the grid's selection.
    """
    if grid.zones is None:
        return None
    _, parts = _declared_zones(_declared_area(grid), grid.zones)
    narrow = np.cos(np.radians(shapely.get_y(shapely.centroid(parts))))
    return float(np.mean(shapely.area(parts) * narrow) * _SQUARE_DEGREE_KM2) if len(parts) else None


def share_of_area_in_zones(grid: model_grid.Grid, zones: Zones) -> float:
    """Return the share (0 to 1) of the study area that lies in ``zones`` and within the grid's selection."""
    _, parts = _declared_zones(_declared_area(grid), zones)
    return min(float(shapely.area(parts).sum() / grid.area.geometry.area), 1.0)


def _largest_km2(area: BaseGeometry) -> float:
    """Return an upper bound on ``area`` in km²: all of it taken at its latitude nearest to the equator."""
    _, south, _, north = area.bounds
    nearest = max(south, -north, 0.0)
    return float(area.area * _SQUARE_DEGREE_KM2 * np.cos(np.radians(nearest)))


def _declared_area(grid: model_grid.Grid) -> BaseGeometry:
    """The part of the study area that the grid's restrictions leave."""
    area = grid.area.geometry
    for clause in grid.selection.places:
        area = area.intersection(shapely.union_all([place.area.geometry for place in clause]))
    if grid.selection.cells is not None:
        hexagons = polygons_of(np.array(grid.selection.cells, dtype=np.uint64))
        area = area.intersection(shapely.union_all(hexagons))
    # where both only touch there is no place
    surfaces = [part for part in shapely.get_parts(area) if part.area > 0]
    return shapely.MultiPolygon(surfaces)


def declared_slots(grid: model_grid.Grid) -> IntArray:
    """Return the number of every slot of ``grid``, rising (SlotKind)."""
    hours, number = grid.selection.hours_of_week, _number_of_slots(grid.slot_kind, grid.day_parts)
    # a short period has not every weekday
    if hours is None and number is not None and grid.slot_kind is not model_grid.SlotKind.WEEKDAY:
        return np.arange(number, dtype=np.int64)
    start, end = grid.period.utc_seconds
    # a slot holds at least one whole quarter of an hour, whatever the clock does
    quarters = np.arange(start, end, 900, dtype=np.int64) * 1_000_000
    if hours is not None:
        quarters = quarters[np.isin(hours_of_week(quarters, grid.period.time_zone), hours)]
    return np.unique(slots_of(quarters, grid.slot_kind, grid.period.time_zone, grid.day_parts))


# From finest bins to the bins of a mosaic, by cell index (aperture 7, logical containment) and slot.


def bins_in_mosaic(grid: model_grid.Grid, cell: CellArray, slot: IntArray) -> tuple[CellArray, IntArray]:
    """Return (cell, slot) of the bin of the grid's mosaic that holds each finest bin, shape (n,) each.

    That is the published bin it lies in; else the bin of the highest level that holds no published one. So
    every finest bin is in one bin, and no two bins overlap (for the proof see ``planner.adaptive``). Depends
    on the mosaic and the bin alone, not on what other bins there are. Without a mosaic bins stay.

    Raises UsageError unless all cells are of the finest resolution.
    """
    mosaic = grid.mosaic
    if mosaic is None:
        return cell, slot
    if len(cell) and not bool(np.all(model_grid.resolution_of(cell) == grid.resolution)):
        raise UsageError("cells are not of the finest resolution", expected=grid.resolution)
    published, its_slot = mosaic.cell, mosaic.slot
    its_resolution, its_kind = (
        model_grid.resolution_of(published),
        model_grid.slot_kinds_of(its_slot, grid.slot_kind),
    )
    its_level = np.full(len(published), -1, dtype=np.int64)
    levels = mosaic.levels(grid.slot_kind)
    for number, (resolution, kind) in enumerate(levels):
        its_level[(its_resolution == resolution) & (its_kind == kind)] = number
    result, result_slot = cell.copy(), slot.copy()
    covered = np.zeros(len(cell), dtype=np.bool_)
    for own_level in (True, False):
        # first the bins that are published, then, for what they leave, ever larger ones that hold none
        for number, (resolution, kind) in enumerate(levels):
            ancestor, longer = parents_of(cell, resolution), longer_slots_of(grid, slot, kind)
            some = its_level == number if own_level else its_level <= number
            found = model_grid.are_pairs_of(
                ancestor,
                longer,
                parents_of(published[some], resolution),
                longer_slots_of(grid, its_slot[some], kind),
            )
            chosen = found if own_level else ~covered & ~found
            result[chosen], result_slot[chosen] = ancestor[chosen], longer[chosen]
            if own_level:
                covered |= found
    return result, result_slot


def longer_slots_of(grid: model_grid.Grid, slot: IntArray, kind: model_grid.SlotKind) -> IntArray:
    """Return the number of the slot of ``kind`` that holds each of ``slot``, shape (n,).

    ``slot`` are slot numbers of ``grid``, of its own kind or a longer one. ``kind`` is the grid's own or one
    in model.LONGER of it, not shorter than any of ``slot``.
    """
    if kind is grid.slot_kind:
        return slot
    if kind is model_grid.SlotKind.WHOLE_PERIOD:
        return np.full(len(slot), model_grid.OFFSET[kind], dtype=np.int64)
    result = slot.copy()
    own = slot >= 0
    if kind is model_grid.SlotKind.DAY:
        longer = slots_of(slot[own] * 1_000_000, kind, grid.period.time_zone)
    else:
        longer = _part_of_hour(grid.day_parts)[slot[own] % 24]
    result[own] = longer + model_grid.OFFSET[kind]
    return result


def slot_facts_of(grid: model_grid.Grid, slots: IntArray) -> dict[int, SlotFacts]:
    """Return ``slot_facts`` of every number in ``slots``, longer slots included."""
    facts: dict[int, SlotFacts] = {}
    kinds = model_grid.slot_kinds_of(slots, grid.slot_kind)
    for kind in dict.fromkeys(kinds.tolist()):
        mine = slots[kinds == kind]
        offset = np.where(mine < 0, model_grid.OFFSET.get(kind, 0), 0)
        known = slot_facts(mine - offset, kind, grid.period, grid.day_parts)
        facts |= {int(number): known[int(number - by)] for number, by in zip(mine, offset, strict=True)}
    return facts
