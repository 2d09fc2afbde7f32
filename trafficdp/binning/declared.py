"""Every bin of a declared grid, whether any vehicle visited it or not: hexagons of the area x slots."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import area_km2, cells_over
from trafficdp.binning.slots import slots_of
from trafficdp.errors import UsageError
from trafficdp.model.grid import Grid
from trafficdp.model.slot import SlotKind

IntArray = npt.NDArray[np.int64]
MOST_BINS = 30_000_000
"""A grid of more bins is refused before its hexagons are listed."""
_SQUARE_DEGREE_KM2 = 12_400.0


def declared_bins(grid: Grid) -> tuple[npt.NDArray[np.uint64], IntArray]:
    """Return hexagon and slot of every bin of ``grid``, by hexagon, then slot, shape (G,) each.

    From study area, period and slots alone. Raises UsageError for a mosaic, a restricted grid, and more than
    MOST_BINS.
    """
    if grid.mosaic is not None or not grid.selection.everything:
        raise UsageError(
            "a grid whose bins are all listed cannot be restricted",
            expected="one resolution, the whole study area and period",
        )
    slots = declared_slots(grid)
    likely = grid.area.geometry.area * _SQUARE_DEGREE_KM2 / area_km2(grid.resolution) * len(slots)
    if likely > MOST_BINS:
        raise UsageError(
            "the study area has too many hexagons",
            got=f"about {likely:,.0f} hexagons times slots",
            expected=f"at most {MOST_BINS:,}",
            todo="choose a coarser resolution or a smaller study area",
        )
    cells = cells_over(grid.area.geometry, grid.resolution)
    return np.repeat(cells, len(slots)), np.tile(slots, len(cells))


def declared_slots(grid: Grid) -> IntArray:
    """Return the number of every slot of ``grid``, rising (SlotKind)."""
    recurring = {
        SlotKind.WHOLE_PERIOD: 1,
        SlotKind.HOUR_OF_DAY: 24,
        SlotKind.WEEKDAY_WEEKEND_HOUR: 48,
        SlotKind.DAY_PART: len(grid.day_parts),
    }
    if grid.slot_kind in recurring:
        return np.arange(recurring[grid.slot_kind], dtype=np.int64)
    start, end = (int(each.timestamp()) for each in (grid.period.start_utc, grid.period.end_utc))
    # a slot holds at least one whole quarter of an hour, whatever the clock does
    quarters = np.arange(start, end, 900, dtype=np.int64) * 1_000_000
    return np.unique(slots_of(quarters, grid.slot_kind, grid.period.time_zone, grid.day_parts))
