"""Polygons in degrees as paths of a drawing: equirectangular, true to scale at the middle latitude."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.binning.cells import bounding_box

FloatArray = npt.NDArray[np.float64]
_CELL_UNITS, _ZONE_UNITS = 60.0, 2_000.0
_LARGEST_WIDTH = 100_000.0
_KILOMETRES_PER_DEGREE = 111.195


MOST_CORNERS = 50_000
"""Of all zones of a page together, some 160 kB. Finer outlines are simplified, no more than it takes."""
_FINEST, _COARSEST = 2.0**-15, 2.0**-10


@dataclass(frozen=True, slots=True)
class ScaleBar:
    """A bar of ``kilometres`` that is ``length`` drawing units long."""

    kilometres: float
    length: int


@dataclass(frozen=True)
class Rings:
    """Rings of C polygons, in order: ``a_polygon`` (C,) says how many each has, ``corners`` (rings,) how many
    corners each ring has, ``point`` (all corners, 2) where they are: x, y, whole units, not closed."""

    a_polygon: npt.NDArray[np.int64]
    corners: npt.NDArray[np.int64]
    point: npt.NDArray[np.int64]

    def steps(self) -> npt.NDArray[np.int64]:
        """Return every corner less the one before; a ring's first less the first of the ring before.

        The very first is itself. Neighbours are near, so that these numbers are small.
        """
        first = np.cumsum(self.corners) - self.corners
        step = np.diff(self.point, axis=0, prepend=np.zeros((1, 2), dtype=np.int64))
        step[first] = np.diff(self.point[first], axis=0, prepend=np.zeros((1, 2), dtype=np.int64))
        return step


@dataclass(frozen=True)
class Drawing:
    """Where degrees land in a drawing of ``width`` x ``height`` whole units, y downwards.

    ``cut`` is the longitude west of which positions are moved round the globe, so that what crosses the
    antimeridian stays in one piece; -180 moves nothing.
    """

    west: float
    north: float
    cut: float
    units_per_degree: float
    squeeze: float
    width: int
    height: int
    margin: int

    @classmethod
    def of(cls, polygons: npt.NDArray[np.object_], *, hexagons: bool = True) -> Drawing:
        """Return the drawing that holds ``polygons`` (at least one) with a margin; finer for what bends."""
        west, south, east, north = bounding_box(polygons)
        cut = -180.0 if west <= east else (west + east) / 2
        east = east if west <= east else east + 360.0
        squeeze = max(math.cos(math.radians((south + north) / 2)), 0.05)
        boxes = shapely.bounds(shapely.get_parts(polygons))
        cell = float(np.median(boxes[:, 3] - boxes[:, 1]))
        span = max((east - west) * squeeze, north - south)
        units = _CELL_UNITS if hexagons else _ZONE_UNITS
        scale = min(units / cell, _LARGEST_WIDTH / span)
        margin = round(max(0.03 * span * scale, 0.2 * units))
        width = round((east - west) * squeeze * scale) + 2 * margin
        height = round((north - south) * scale) + 2 * margin
        return cls(west, north, cut, scale, squeeze, width, height, margin)

    def paths(self, polygons: Iterable[BaseGeometry]) -> list[str]:
        """Return the SVG path data of every polygon: whole numbers, relative after the first point."""
        return [self._path(polygon) for polygon in polygons]

    def rings(self, polygons: npt.NDArray[np.object_]) -> Rings:
        """Return the corners of all polygons (C of them) in drawing units."""
        parts, of_polygon = shapely.get_parts(polygons, return_index=True)
        rings, of_part = shapely.get_rings(parts, return_index=True)
        positions, of_ring = shapely.get_coordinates(rings, return_index=True)
        closing = np.append(of_ring[1:] != of_ring[:-1], True)
        return Rings(
            a_polygon=np.bincount(of_polygon[of_part], minlength=len(polygons)),
            corners=np.bincount(of_ring[~closing], minlength=len(rings)),
            point=self._corners(positions[~closing]),
        )

    def outline(self, area: BaseGeometry) -> str:
        """Return the path of ``area`` without the seam that the antimeridian cuts into it."""
        parts = shapely.transform(shapely.get_parts(area), lambda xy: east_of(xy, self.cut))
        return self._path(shapely.union_all(parts))

    @property
    def scale_bar(self) -> ScaleBar | None:
        """A bar of 1, 2 or 5 times a power of ten, at most a quarter of the width; None for a continent."""
        kilometres = self.width / self.units_per_degree * _KILOMETRES_PER_DEGREE / 4
        if kilometres > 1000:
            return None
        power = 10.0 ** math.floor(math.log10(kilometres))
        nice = max(step * power for step in (1, 2, 5) if step * power <= kilometres)
        return ScaleBar(nice, round(nice / _KILOMETRES_PER_DEGREE * self.units_per_degree))

    def placed(self, positions: FloatArray) -> FloatArray:
        """Return where degrees, longitude first, lie in the drawing, shape (n, 2)."""
        degrees = east_of(positions, self.cut)
        x = (degrees[:, 0] - self.west) * self.squeeze * self.units_per_degree + self.margin
        y = (self.north - degrees[:, 1]) * self.units_per_degree + self.margin
        return np.column_stack([x, y])

    def flat(self, polygons: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
        """Return ``polygons`` in drawing units."""
        drawn: npt.NDArray[np.object_] = shapely.transform(
            polygons, lambda at: self._corners(at).astype(float)
        )
        return drawn

    def _path(self, polygon: BaseGeometry) -> str:
        return "".join(
            self._ring(np.asarray(ring.coords))
            for part in shapely.get_parts(polygon)
            for ring in (part.exterior, *part.interiors)
        )

    def _corners(self, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        return np.rint(self.placed(positions)).astype(np.int64)

    def _ring(self, ring: npt.NDArray[np.float64]) -> str:
        points = self._corners(ring[:-1])
        steps = np.diff(points, axis=0).tolist()
        first = points[0].tolist()
        return f"M{first[0]} {first[1]}l" + " ".join(f"{dx} {dy}" for dx, dy in steps) + "z"


def east_of(positions: FloatArray, cut: float) -> FloatArray:
    """Return ``positions`` in degrees, longitude first: those west of ``cut`` go once around the globe."""
    longitude = np.where(positions[:, 0] < cut, positions[:, 0] + 360.0, positions[:, 0])
    return np.column_stack([longitude, positions[:, 1]])


def outlines_shown(zones: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Return the outlines of ``zones`` as a page draws them; a border that two share stays shared.

    They are as they are up to MOST_CORNERS. Beyond, they are simplified by 1/32768 of the map's width, or
    twice as much and so on until they are no more, but by 1/1024 at most: about a pixel of a screen.
    """
    west, south, east, north = shapely.total_bounds(zones)
    tolerance, shown = _FINEST, zones
    while int(shapely.get_num_coordinates(shown).sum()) > MOST_CORNERS and tolerance <= _COARSEST:
        coarse = shapely.coverage_simplify(zones, tolerance * max(east - west, north - south))
        shown, tolerance = shapely.orient_polygons(coarse), 2 * tolerance
    return np.asarray(shown, dtype=object)
