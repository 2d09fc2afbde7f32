"""Which place of a grid a position lies in, and what shape a place has: hexagons, or a city's own zones."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import shapely

from trafficdp.binning.cells import CellArray, CellTable, FloatArray, check_positions, polygons_of
from trafficdp.errors import DataError
from trafficdp.model.grid import Grid
from trafficdp.model.zones import NOWHERE, Zones


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
