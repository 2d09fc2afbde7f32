"""Which bins there are and which positions are kept: the declared grid, and selections.

Which positions and instants a selection keeps.

Every bin of a declared grid, whether any vehicle visited it or not: hexagons or zones of the
area x slots.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.binning.cells import area_km2, cells_of, cells_over, polygons_of, resolutions_of
from trafficdp.binning.slots import slots_of
from trafficdp.errors import UsageError
from trafficdp.model.grid import HOURS_A_WEEK, Grid, Selection, zone_of
from trafficdp.model.slot import SlotKind
from trafficdp.model.zones import Zones


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
