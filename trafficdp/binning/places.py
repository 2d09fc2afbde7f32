"""Which bins there are, which positions are kept, which place a position lies in."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.binning.cells import (
    CellArray,
    CellTable,
    FloatArray,
    area_km2,
    cells_of,
    cells_over,
    check_positions,
    parents_of,
    polygons_of,
    resolutions_of,
)
from trafficdp.binning.slots import slot_facts, slots_of
from trafficdp.errors import DataError, UsageError
from trafficdp.model.context import NOWHERE, Zones
from trafficdp.model.grid import (
    HOURS_A_WEEK,
    OFFSET,
    Grid,
    Selection,
    SlotKind,
    among,
    kinds_of,
    resolution_of,
    zone_of,
)
from trafficdp.privacy.release import SlotFacts

# Which bins there are and which positions are kept: the declared grid, and selections.
#
# Which positions and instants a selection keeps.
#
# Every bin of a declared grid, whether any vehicle visited it or not: hexagons or zones of the
# area x slots.


def selected(
    selection: Selection,
    latitude: npt.NDArray[np.float64],
    longitude: npt.NDArray[np.float64],
    time_us: npt.NDArray[np.int64],
    time_zone: str,
) -> npt.NDArray[np.bool_]:
    """Return for every record whether it meets ``selection``, shape (n,).

    ``latitude`` and ``longitude`` in degrees, ``time_us`` in microseconds since 1970-01-01 UTC, shape (n,)
    each; ``time_zone`` is an IANA name. Raises DataError for impossible positions and instants.
    """
    kept = np.ones(len(time_us), dtype=np.bool_)
    if selection.hours_of_week is not None:
        wanted = np.zeros(HOURS_A_WEEK, dtype=np.bool_)
        wanted[list(selection.hours_of_week)] = True
        kept &= wanted[hours_of_week(time_us, time_zone)]
    for clause in selection.places:
        kept &= np.any([place.area.contains(latitude, longitude) for place in clause], axis=0)
    if selection.cells is not None:
        cells = np.array(selection.cells, dtype=np.uint64)
        resolution = int(resolutions_of(cells[:1])[0])
        inside = np.flatnonzero(kept)
        kept[inside] = np.isin(cells_of(latitude[inside], longitude[inside], resolution), cells)
    return kept


def hours_of_week(time_us: npt.NDArray[np.int64], time_zone: str) -> npt.NDArray[np.int64]:
    """Return the local clock hour of every instant counted from Monday 00:00, 0 to 167, shape (n,).

    Raises as ``slots_of``.
    """
    hour = slots_of(time_us, SlotKind.HOUR_OF_DAY, time_zone)
    starts, back = np.unique(slots_of(time_us, SlotKind.DAY, time_zone), return_inverse=True)
    zone = zone_of(time_zone)
    days = [datetime.fromtimestamp(second, zone).weekday() for second in starts.tolist()]
    return np.array(days, dtype=np.int64)[back] * 24 + hour


IntArray = npt.NDArray[np.int64]
MOST_BINS = 30_000_000
"""A grid of more bins is refused before its hexagons are listed."""
_SQUARE_DEGREE_KM2 = 12_400.0


def declared_bins(grid: Grid) -> tuple[npt.NDArray[np.uint64], IntArray]:
    """Return place and slot of every bin of ``grid``, by place, then slot, shape (G,) each.

    From study area, period, slots and the grid's restrictions alone; of zones those that the area has a part
    of. Raises UsageError for a mosaic, where no place or no slot meets the restrictions, and for more than
    MOST_BINS.
    """
    # what is drawn around bins moves none
    return _bins(replace(grid, context=()))


@lru_cache(maxsize=1)
def _bins(grid: Grid) -> tuple[npt.NDArray[np.uint64], IntArray]:
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
    if wanted is not None and int(resolutions_of(np.array(wanted[:1], np.uint64))[0]) == grid.resolution:
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


def zone_km2(grid: Grid) -> float | None:
    """Return how large a declared zone of ``grid`` is on average, in the study area; None for hexagons."""
    if grid.zones is None:
        return None
    _, parts = _declared_zones(_declared_area(grid), grid.zones)
    narrow = np.cos(np.radians(shapely.get_y(shapely.centroid(parts))))
    return float(np.mean(shapely.area(parts) * narrow) * _SQUARE_DEGREE_KM2) if len(parts) else None


def share_in_zones(grid: Grid, zones: Zones) -> float:
    """Return which share of the study area lies in declared ``zones``, as far as ``grid`` restricts them."""
    _, parts = _declared_zones(_declared_area(grid), zones)
    return min(float(shapely.area(parts).sum() / grid.area.geometry.area), 1.0)


def _largest_km2(area: BaseGeometry) -> float:
    """What ``area`` has at most: as if all of it lay as near to the equator as any of it does."""
    _, south, _, north = area.bounds
    nearest = max(south, -north, 0.0)
    return float(area.area * _SQUARE_DEGREE_KM2 * np.cos(np.radians(nearest)))


def _declared_area(grid: Grid) -> BaseGeometry:
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


def declared_slots(grid: Grid) -> IntArray:
    """Return the number of every slot of ``grid``, rising (SlotKind)."""
    recurring = {
        SlotKind.WHOLE_PERIOD: 1,
        SlotKind.HOUR_OF_DAY: 24,
        SlotKind.WEEKDAY_WEEKEND_HOUR: 48,
        SlotKind.DAY_PART: len(grid.day_parts),
    }
    hours = grid.selection.hours_of_week
    if hours is None and grid.slot_kind in recurring:
        return np.arange(recurring[grid.slot_kind], dtype=np.int64)
    start, end = (int(each.timestamp()) for each in (grid.period.start_utc, grid.period.end_utc))
    # a slot holds at least one whole quarter of an hour, whatever the clock does
    quarters = np.arange(start, end, 900, dtype=np.int64) * 1_000_000
    if hours is not None:
        quarters = quarters[np.isin(hours_of_week(quarters, grid.period.time_zone), hours)]
    return np.unique(slots_of(quarters, grid.slot_kind, grid.period.time_zone, grid.day_parts))


# Which place of a grid a position lies in, and what shape a place has: hexagons, or a city's own zones.


class GridPlaces(Protocol):
    """The places of one grid."""

    def cells_of(self, latitude: FloatArray, longitude: FloatArray) -> CellArray:
        """Return the place of every position (degrees, shape (n,)), NOWHERE where it lies in none.

        Raises DataError for impossible positions, UsageError for arrays of different shapes.
        """


class ZoneTable:
    """The zones of positions. A position on a border belongs to the zone with the smallest number."""

    def __init__(self, zones: Zones) -> None:
        self._shapes = np.array(zones.shapes, dtype=object)
        self._tree = shapely.STRtree(self._shapes)
        shapely.prepare(self._shapes)

    def cells_of(self, latitude: FloatArray, longitude: FloatArray) -> CellArray:
        """Return the zone of every position, NOWHERE where it lies in none."""
        check_positions(latitude, longitude)
        # of the zones whose boxes hold a position, those that do themselves
        position, zone = self._tree.query(shapely.points(longitude, latitude))
        inside = shapely.intersects_xy(self._shapes[zone], longitude[position], latitude[position])
        cells = np.full(len(latitude), len(self._shapes), dtype=np.uint64)
        np.minimum.at(cells, position[inside], zone[inside].astype(np.uint64))
        cells += np.uint64(1)
        cells[cells > len(self._shapes)] = NOWHERE
        return cells


def places_of(grid: Grid) -> GridPlaces:
    """Return the places of ``grid``."""
    if grid.zones is not None:
        return ZoneTable(grid.zones)
    return CellTable(grid.area.geometry.bounds, grid.hexagon_resolution)


def shapes_of(cells: CellArray, zones: Zones | None) -> npt.NDArray[np.object_]:
    """Return the polygon of every place in ``cells``, shape (n,): hexagons without ``zones``.

    In degrees, longitude first. Raises DataError for a number that is no place.
    """
    if zones is None:
        return polygons_of(cells)
    if len(cells) and not (int(cells.min()) > NOWHERE and int(cells.max()) <= len(zones.shapes)):
        raise DataError("not all of these are numbers of zones", expected=f"1 to {len(zones.shapes)}")
    shapes: npt.NDArray[np.object_] = np.array(zones.shapes, dtype=object)
    return shapes[cells.astype(np.int64) - 1]


# From finest bins to the bins of a mosaic, by cell index (aperture 7, logical containment) and slot.


def bins_in_mosaic(grid: Grid, cell: CellArray, slot: IntArray) -> tuple[CellArray, IntArray]:
    """Return (cell, slot) of the bin of the grid's mosaic that holds each finest bin, shape (n,) each.

    That is the published bin it lies in; else the bin of the highest level that holds no published one. So
    every finest bin is in one bin, and no two bins overlap (for the proof see ``planner.adaptive``). Depends
    on the mosaic and the bin alone, not on what other bins there are. Without a mosaic bins stay.

    Raises UsageError unless all cells are of the finest resolution.
    """
    mosaic = grid.mosaic
    if mosaic is None:
        return cell, slot
    if len(cell) and not bool(np.all(resolution_of(cell) == grid.resolution)):
        raise UsageError("cells are not of the finest resolution", expected=grid.resolution)
    published, its_slot = mosaic.cell, mosaic.slot
    its_resolution, its_kind = resolution_of(published), kinds_of(its_slot, grid.slot_kind)
    its_level = np.full(len(published), -1, dtype=np.int64)
    levels = mosaic.levels(grid.slot_kind)
    for number, (resolution, kind) in enumerate(levels):
        its_level[(its_resolution == resolution) & (its_kind == kind)] = number
    result, result_slot = cell.copy(), slot.copy()
    covered = np.zeros(len(cell), dtype=np.bool_)
    for own_level in (True, False):
        # first the bins that are published, then, for what they leave, ever larger ones that hold none
        for number, (resolution, kind) in enumerate(levels):
            ancestor, longer = parents_of(cell, resolution), lengthened(grid, slot, kind)
            some = its_level == number if own_level else its_level <= number
            found = among(
                ancestor,
                longer,
                parents_of(published[some], resolution),
                lengthened(grid, its_slot[some], kind),
            )
            chosen = found if own_level else ~covered & ~found
            result[chosen], result_slot[chosen] = ancestor[chosen], longer[chosen]
            if own_level:
                covered |= found
    return result, result_slot


def lengthened(grid: Grid, slot: IntArray, kind: SlotKind) -> IntArray:
    """Return the slot of ``kind`` that holds each ``slot`` of the grid, its own or a longer one, shape (n,).

    ``kind`` is the grid's own or one in model.LONGER of it, not shorter than any of ``slot``.
    """
    if kind is grid.slot_kind:
        return slot
    if kind is SlotKind.WHOLE_PERIOD:
        return np.full(len(slot), OFFSET[kind], dtype=np.int64)
    result = slot.copy()
    own = slot >= 0
    if kind is SlotKind.DAY:
        longer = slots_of(slot[own] * 1_000_000, kind, grid.period.time_zone)
    else:
        part_of_hour = np.zeros(24, dtype=np.int64)
        for index, part in enumerate(grid.day_parts):
            part_of_hour[list(part.hours)] = index
        longer = part_of_hour[slot[own] % 24]
    result[own] = longer + OFFSET[kind]
    return result


def slot_facts_of(grid: Grid, slots: IntArray) -> dict[int, SlotFacts]:
    """Return ``slot_facts`` of every number in ``slots``, longer slots included."""
    facts: dict[int, SlotFacts] = {}
    kinds = kinds_of(slots, grid.slot_kind)
    for kind in dict.fromkeys(kinds.tolist()):
        mine = slots[kinds == kind]
        offset = np.where(mine < 0, OFFSET.get(kind, 0), 0)
        known = slot_facts(mine - offset, kind, grid.period, grid.day_parts)
        facts |= {int(number): known[int(number - by)] for number, by in zip(mine, offset, strict=True)}
    return facts
