"""Places of positions: H3 cells, by the only file that calls an H3 library, and a city's own zones.

Cells of positions come from h3ronpy (the h3o library), the vectorised one; h3-py is the reference that
the tests hold it equal to, and the fallback where h3ronpy cannot be imported. Boundaries always come from
h3-py, because h3o's vertices differ from it in the last digits (up to 1e-11 degrees).

H3 libraries give some cell for a latitude of 95 or a longitude of 2000, so positions are checked first.

Cells of very many positions in one area: exact, and faster than asking for each.

The area is cut into small squares of latitude and longitude. Where a whole square provably lies in one
cell, its positions take that cell from a table; all others go through ``cells_of``.

**Theorem.** Let Q be a square of side s <= 0.02 degrees within 80 degrees of the equator, and let the four
corners of Q, each moved outward by w = 4e-6 degrees of latitude and w / cos(85 degrees) of longitude, get
the same cell c from ``cells_of``: a hexagon that touches only one face of the icosahedron. Then
``cells_of`` gives c for every position in Q.

*Proof.* H3 projects the face gnomonically on a plane and takes the nearest point of a hexagonal lattice
[1]. There, great circles are straight lines, the face is a triangle, and c, which leaves it nowhere, is one
regular hexagon: in all, an intersection of at most nine half planes. Lengths near the face grow by a factor
from 1 to 1 / cos(37.4 degrees)^2 < 1.6 on the way to the plane. Let e bound the rounding error, in the
plane, of the position a library works with. A moved corner gets c, so it lies in each of the half planes or
at most e outside. Half planes moved outward by e are convex, so the hull H of the moved corners is at most
e outside as well.

Every p in Q lies at least 2e inside H. The meridians through the moved corners are great circles, and Q is
1.9 w or more away from them (w / cos(85) of longitude, at latitudes up to 80). The other two sides of H are
arcs between corners on one parallel, at latitude f and d radians of longitude apart; an arc strays poleward
from its parallel by at most arctan(tan f / cos(d/2)) - f, about d^2 / 16 or less, and d < 0.0201 degrees
makes that 4.5e-7 degrees. So Q is at least 4e-6 - 4.5e-7 > 3.5e-6 degrees inside H. And e <= 1.4e-6
degrees: the libraries take the distance to the centre of the face from acos(1 - x^2 / 2), which near x = 0
cannot resolve less than sqrt(2^-52) radians = 8.6e-7 degrees, times 1.6; elsewhere e is far smaller.

How far a point is outside a half plane is an affine function: at most e on all of H, it is at most e - 2e =
-e at a point that is 2e inside H. So p is e or more inside all the half planes, and rounding cannot take it
out of c. (Working out which square p is in costs 1e-13 degrees, well within the slack.) QED.

[1] H3 documentation, "Overview of the H3 Geospatial Indexing System"; geoToFaceIjk and hex2dToCoordIJK.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain, pairwise, repeat
from math import ceil, cos, radians, sqrt
from typing import Protocol

import antimeridian
import h3.api.numpy_int as h3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely
from h3 import H3BaseException
from shapely.geometry.base import BaseGeometry

from trafficdp.arrays import BoolArray, CellArray, FloatArray, IntArray
from trafficdp.errors import DataError, UsageError, integer_between
from trafficdp.model.context import NOWHERE, StudyArea, Zones
from trafficdp.model.grid import Grid, resolution_of

_POSITIONS_A_THREAD = 25_000
_RINGS_AT_ONCE = 1 << 14
_KILOMETRES_A_DEGREE = 111.195
# bits of an H3 index: resolution in 52..55; the digit of resolution r in 3 bits from 3 * (15 - r)
_RESOLUTION_SHIFT, _RESOLUTION_MASK = np.uint64(52), np.uint64(15)


def cells_of(latitude: FloatArray, longitude: FloatArray, resolution: int) -> CellArray:
    """Return the H3 cell of every position, shape (n,).

    ``latitude`` and ``longitude`` are WGS84 degrees, shape (n,); ``resolution`` is 0 to 15. As private as the
    positions.

    Raises UsageError for a resolution H3 does not have or arrays of different shapes, and DataError
    unless every latitude lies in -90..90 and every longitude in -180..180 (NaN does not).
    """
    integer_between(0, 15, resolution=resolution)
    check_positions(latitude, longitude)
    try:
        from h3ronpy.vector import coordinates_to_cells
    except ImportError:
        return reference_cells_of(latitude, longitude, resolution)
    if not len(latitude):
        return np.empty(0, dtype=np.uint64)

    # h3ronpy lets go of Python's lock, so threads help
    workers = max(1, min(os.cpu_count() or 1, len(latitude) // _POSITIONS_A_THREAD))
    ends = np.linspace(0, len(latitude), workers + 1).astype(np.int64).tolist()
    parts = [slice(*each) for each in pairwise(ends)]
    latitudes = [pa.array(latitude[each], type=pa.float64()) for each in parts]
    longitudes = [pa.array(longitude[each], type=pa.float64()) for each in parts]
    if workers == 1:
        return np.asarray(coordinates_to_cells(latitudes[0], longitudes[0], resolution), dtype=np.uint64)
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(coordinates_to_cells, latitudes, longitudes, repeat(resolution))
        return np.concatenate([np.asarray(each, dtype=np.uint64) for each in found])


def reference_cells_of(latitude: FloatArray, longitude: FloatArray, resolution: int) -> CellArray:
    """Return what ``cells_of`` returns, one position at a time by h3-py: the reference and the fallback.

    Positions are taken as they are: call ``check_positions`` first.
    """
    pairs = zip(latitude.tolist(), longitude.tolist(), strict=True)
    cells = (h3.latlng_to_cell(lat, lng, resolution) for lat, lng in pairs)
    return np.fromiter(cells, dtype=np.uint64, count=len(latitude))


def check_positions(latitude: FloatArray, longitude: FloatArray) -> None:
    """Raise DataError unless all positions are finite and on the globe (UsageError for unequal shapes)."""
    if latitude.shape != longitude.shape or latitude.ndim != 1:
        raise UsageError(
            "latitudes and longitudes do not pair",
            got=f"shapes {latitude.shape} and {longitude.shape}",
            expected="two arrays of one shape (n,)",
        )
    # comparisons with NaN are false, so NaN counts as off the globe
    on_globe = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 180)
    if not on_globe.all():
        raise DataError(
            "positions are not on the globe",
            got=f"{int(np.count_nonzero(~on_globe))} of {len(latitude)}",
            expected="finite latitudes in -90..90 and longitudes in -180..180 degrees",
            todo="reject such records when they are read",
        )


def boundary_of(cells: CellArray) -> tuple[FloatArray, IntArray]:
    """Return the vertices of ``cells``, exactly as h3-py gives them, not cut at the antimeridian.

    That is longitude and latitude in degrees, shape (vertices, 2), cell by cell, counter-clockwise, the first
    not repeated; and for each vertex the position of its cell, ascending, shape (vertices,). A hexagon has 6
    to 8 vertices, a pentagon 5 or 10. The last result is cached; its arrays are read-only.

    Raises DataError for a number that is no cell.
    """
    return _boundary_of(cells.astype(np.uint64, copy=False).tobytes())


@lru_cache(maxsize=1)
def _boundary_of(different: bytes) -> tuple[FloatArray, IntArray]:
    cells = np.frombuffer(different, dtype=np.uint64)
    lengths, vertices = [np.empty(0, dtype=np.int64)], [np.empty((0, 2))]
    for start in range(0, len(cells), _RINGS_AT_ONCE):
        try:
            rings = [h3.cell_to_boundary(cell) for cell in cells[start : start + _RINGS_AT_ONCE].tolist()]
        except H3BaseException:
            raise _not_cells() from None
        lengths.append(np.fromiter(map(len, rings), dtype=np.int64, count=len(rings)))
        flat = chain.from_iterable(chain.from_iterable(rings))
        numbers = np.fromiter(flat, dtype=np.float64, count=2 * int(lengths[-1].sum()))
        vertices.append(numbers.reshape(-1, 2))
    # h3-py gives latitudes first
    found = (
        np.ascontiguousarray(np.concatenate(vertices)[:, ::-1]),
        np.repeat(np.arange(len(cells), dtype=np.int64), np.concatenate(lengths)),
    )
    for each in found:
        each.setflags(write=False)
    return found


def resolution_holding(area: StudyArea) -> int | None:
    """Return the finest resolution at which one hexagon holds the whole ``area``; None where none does.

    A cell has no holes, so it holds what its boundary encloses: the boundary is sampled every hundredth of
    an edge, of the area widened by a fiftieth of one, which is more than an edge bends between two samples.
    """
    west, south, east, north = area.geometry.bounds
    for resolution in range(15, -1, -1):
        edge = h3.average_hexagon_edge_length(resolution, unit="km") / _KILOMETRES_A_DEGREE
        if north - south > 2 * edge or (east - west) * np.cos(np.radians((north + south) / 2)) > 2 * edge:
            # (boxes across the antimeridian seem to go all round: a coarser cell then, or none)
            continue
        widened = area.geometry.buffer(edge / 50, join_style="mitre")
        line = shapely.get_coordinates(shapely.segmentize(widened.boundary, edge / 100))
        longitude = (line[:, 0] + 180) % 360 - 180
        cells = cells_of(np.clip(line[:, 1], -90, 90), longitude, resolution)
        if bool(np.all(cells == cells[0])):
            return resolution
    return None


def polygons_of(cells: CellArray) -> npt.NDArray[np.object_]:
    """Return the polygons of ``cells`` as shapely geometries, x = longitude and y = latitude, shape (n,).

    Exteriors are counter-clockwise. A cell that crosses the antimeridian is cut there, along great
    circles, into a MultiPolygon; a cell that holds a pole is drawn up to the pole. All are valid.
    Vertices are ``boundary_of``'s exactly, save in cut cells, where the ``antimeridian`` package rounds
    the latitudes of the cut to 7 decimals and puts vertices within 2e-7 degrees (2 cm) of it on it.

    Raises DataError for a number that is no cell.
    """
    vertices, cell_index = boundary_of(cells)
    if not len(cells):
        return np.empty(0, dtype=object)
    first = np.searchsorted(cell_index, np.arange(len(cells)))
    # no cell that stays clear of the antimeridian and the poles spans more than half the circle
    west, east = (each.reduceat(vertices[:, 0], first) for each in (np.minimum, np.maximum))
    rings = shapely.linearrings(vertices, indices=cell_index)
    polygons = np.asarray(shapely.polygons(rings), dtype=object)
    for index in np.flatnonzero(east - west > 180):
        polygons[index] = _cut_at_antimeridian(polygons[index])
    return polygons


def _cut_at_antimeridian(polygon: shapely.Polygon) -> shapely.Polygon | shapely.MultiPolygon:
    cut = antimeridian.fix_polygon(polygon, fix_winding=True)
    if not cut.is_valid:
        # a vertex on the pole itself touches the edge that was drawn along the pole: two pieces then
        parts = shapely.get_parts(shapely.make_valid(cut))
        cut = shapely.MultiPolygon([part for part in parts if part.geom_type == "Polygon"])
    pieces = [shapely.geometry.polygon.orient(piece) for piece in shapely.get_parts(cut)]
    return pieces[0] if len(pieces) == 1 else shapely.MultiPolygon(pieces)


def centres_of(cells: CellArray) -> tuple[FloatArray, FloatArray]:
    """Return latitudes and longitudes (degrees) of the centres of ``cells``, shape (n,) each.

    Raises DataError for a number that is no cell.
    """
    try:
        pairs = chain.from_iterable(h3.cell_to_latlng(cell) for cell in cells.tolist())
        centres = np.fromiter(pairs, dtype=np.float64, count=2 * len(cells)).reshape(-1, 2)
    except H3BaseException:
        raise _not_cells() from None
    return centres[:, 0].copy(), centres[:, 1].copy()


def parents_of(cells: CellArray, resolution: int) -> CellArray:
    """Return the cell of ``resolution`` that H3 puts each of ``cells`` under, shape (n,).

    Computed on the bits of the index: resolution replaced, finer digits set to 7 ("unused").

    Raises UsageError when a cell is coarser than ``resolution``.
    """
    integer_between(0, 15, resolution=resolution)
    if len(cells) and int(resolution_of(cells).min()) < resolution:
        raise UsageError(
            "cells have no parent at a finer resolution",
            got=f"resolution={resolution} for cells of resolution {int(resolution_of(cells).min())}",
            expected="a resolution at most that of every cell",
        )
    unused = np.uint64((1 << 3 * (15 - resolution)) - 1)
    cleared = cells & ~(_RESOLUTION_MASK << _RESOLUTION_SHIFT)
    parents: CellArray = cleared | (np.uint64(resolution) << _RESOLUTION_SHIFT) | unused
    return parents


def cell_text(cells: CellArray) -> list[str]:
    """Return the cells in H3's usual spelling: lower-case hexadecimal digits."""
    return [format(cell, "x") for cell in cells.tolist()]


def cells_from_text(texts: Sequence[str]) -> CellArray:
    """Return the cells that ``texts`` spell, shape (n,). Raises DataError for a text that spells none."""
    if not all(h3.is_valid_cell(cell) for cell in map(_hexadecimal, texts)):
        raise _not_cells()
    return np.fromiter(map(_hexadecimal, texts), dtype=np.uint64, count=len(texts))


def _hexadecimal(text: str) -> int:
    try:
        number = int(text, 16)
    except ValueError:
        return 0
    return number if 0 <= number < 1 << 64 else 0


def _not_cells() -> DataError:
    return DataError("not all of these are H3 cells", expected="H3 cell indexes (mode 1)")


def area_km2(resolution: int) -> float:
    """Return the average area of a hexagon of ``resolution`` in square kilometres."""
    integer_between(0, 15, resolution=resolution)
    return float(h3.average_hexagon_area(resolution, "km^2"))


def lies_in_one_face(cells: CellArray) -> BoolArray:
    """Return for every cell whether it is a hexagon within one face of the icosahedron, shape (n,).

    Such a cell is the image of one plane hexagon under one gnomonic projection: a spherically convex hexagon,
    whose sides are arcs of great circles.
    """
    plain = (len(h3.get_icosahedron_faces(cell)) == 1 and not h3.is_pentagon(cell) for cell in cells.tolist())
    return np.fromiter(plain, dtype=np.bool_, count=len(cells))


def cells_over(area: shapely.Geometry, resolution: int) -> CellArray:
    """Return all cells that overlap ``area`` (degrees, longitude first), in rising order, shape (n,)."""
    integer_between(0, 15, resolution=resolution)
    found: set[int] = set()
    for part in shapely.get_parts(area):
        shape = h3.geo_to_h3shape(shapely.geometry.mapping(part))
        found.update(h3.h3shape_to_cells_experimental(shape, resolution, contain="overlap"))
    return np.sort(np.fromiter(found, dtype=np.uint64, count=len(found)))


def bounding_box(polygons: Sequence[BaseGeometry] | npt.NDArray[np.object_]) -> list[float]:
    """Return [west, south, east, north] of the narrowest box; west > east across the antimeridian.

    The box leaves out the widest gap between the shapes on the circle of longitudes.
    """
    boxes = shapely.bounds(shapely.get_parts(np.asarray(polygons, dtype=object)))
    order = np.argsort(boxes[:, 0], kind="stable")
    west, east = boxes[order, 0], np.maximum.accumulate(boxes[order, 2])
    gaps = np.append(west[1:] - east[:-1], west[0] + 360.0 - east[-1])
    # on a tie the plain box, whose gap is the last
    widest = len(gaps) - 1 - int(np.argmax(gaps[::-1]))
    south, north = float(boxes[:, 1].min()), float(boxes[:, 3].max())
    if widest == len(gaps) - 1 or float(gaps[widest]) <= 0:
        return [float(west[0]), south, float(east[-1]), north]
    return [float(west[widest + 1]), south, float(east[widest]), north]


LARGEST_SIDE = 0.02
"""Degrees: the largest square the theorem allows."""
WIDENING = 4e-6
"""Degrees of latitude by which corners are moved outward."""
_WIDENING_LONGITUDE = WIDENING / cos(radians(85))
_LATITUDE_LIMIT = 80.0
_LONGITUDE_LIMIT = 179.9
_MOST_SQUARES = 8_000_000
_SQUARES_A_CELL = 12  # along the side of a square as large as the cell
_KM_A_DEGREE = 111.2
_WORTHWHILE = 3  # positions in one call that make a square worth four more
_TRIAL = 1_000_000  # positions after which a table that missed more than half is given up

_UNKNOWN = np.uint64(0)
_MIXED = np.uint64(1)


class CellTable:
    """Cells of positions in a box at one resolution, remembering which squares lie in one cell.

    What it remembers are facts of geometry; but which squares it looked at depends on the positions, so
    it must not leave the vault's side.

    Parameters
    ----------
    bounds : west, south, east, north in degrees, as of a geometry: where most positions will lie.
        Positions outside are served too, one by one.
    resolution : H3's, 0 to 15.

    Raises UsageError for a resolution that H3 does not have.
    """

    def __init__(self, bounds: tuple[float, float, float, float], resolution: int) -> None:
        self._resolution = integer_between(0, 15, resolution=resolution)
        west, south, east, north = bounds
        self._west, self._south = max(west, -_LONGITUDE_LIMIT), max(south, -_LATITUDE_LIMIT)
        width = min(east, _LONGITUDE_LIMIT) - self._west
        height = min(north, _LATITUDE_LIMIT) - self._south
        cell_side = sqrt(area_km2(resolution)) / _KM_A_DEGREE
        wanted = min(cell_side / _SQUARES_A_CELL, LARGEST_SIDE)
        self._side = max(wanted, sqrt(max(width * height, 0.0) / _MOST_SQUARES))
        # squares that are too large for the theorem, for the cells or beside the widening are no use
        useful = self._side <= min(LARGEST_SIDE, cell_side / 4) and self._side > 4 * _WIDENING_LONGITUDE
        self._rows = ceil(height / self._side) if useful and height > 0 and width > 0 else 0
        self._columns = ceil(width / self._side) if self._rows else 0
        self._north = self._south + height
        self._east = self._west + width
        self._asked = self._missed = 0
        self._cell_of_square = np.zeros(self._rows * self._columns, dtype=np.uint64)

    def cells_of(self, latitude: FloatArray, longitude: FloatArray) -> CellArray:
        """Return exactly what ``cells.cells_of`` returns, with its errors; shape (n,)."""
        if not self._rows or not len(latitude) or latitude.shape != longitude.shape:
            return cells_of(latitude, longitude, self._resolution)
        # comparisons with NaN are false, so what passes here is on the globe
        if not (
            latitude.min() >= self._south
            and latitude.max() < self._north
            and longitude.min() >= self._west
            and longitude.max() < self._east
        ):
            check_positions(latitude, longitude)
            inside = (latitude >= self._south) & (latitude < self._north)
            inside &= (longitude >= self._west) & (longitude < self._east)
            cells = np.empty(len(latitude), dtype=np.uint64)
            cells[~inside] = cells_of(latitude[~inside], longitude[~inside], self._resolution)
            cells[inside] = self.cells_of(latitude[inside], longitude[inside])
            return cells
        rows = ((latitude - self._south) / self._side).astype(np.int32)
        columns = ((longitude - self._west) / self._side).astype(np.int32)
        # a quotient may round up to the number of rows or columns
        np.minimum(rows, self._rows - 1, out=rows)
        np.minimum(columns, self._columns - 1, out=columns)
        rows *= self._columns
        rows += columns
        cells = self._cell_of_square[rows]
        unknown = rows[cells == _UNKNOWN]
        if len(unknown):
            squares, positions = np.unique(unknown, return_counts=True)
            squares = squares[positions >= _WORTHWHILE]
            south = self._south + (squares // self._columns).astype(np.float64) * self._side
            west = self._west + (squares % self._columns).astype(np.float64) * self._side
            north, east = south + self._side + WIDENING, west + self._side + _WIDENING_LONGITUDE
            south, west = south - WIDENING, west - _WIDENING_LONGITUDE
            corner = cells_of(south, west, self._resolution)
            found, back = np.unique(corner, return_inverse=True)
            one = lies_in_one_face(found)[back]
            for latitudes, longitudes in ((south, east), (north, west), (north, east)):
                one &= corner == cells_of(latitudes, longitudes, self._resolution)
            # by the theorem
            self._cell_of_square[squares] = np.where(one, corner, _MIXED)
            cells = self._cell_of_square[rows]
        left = np.flatnonzero(cells <= _MIXED)
        self._asked += len(cells)
        self._missed += len(left)
        if self._asked >= _TRIAL and 2 * self._missed > self._asked:
            self._rows, self._cell_of_square = 0, self._cell_of_square[:0]  # no use here: see cells_of
        cells[left] = cells_of(latitude[left], longitude[left], self._resolution)
        return cells


# Which place of a grid a position lies in, and what shape a place has: hexagons, or a city's own zones.


class GridPlaces(Protocol):
    """Finds the places (hexagons or zones) of one grid that positions lie in."""

    def cells_of(self, latitude: FloatArray, longitude: FloatArray) -> CellArray:
        """Return the place of every position (degrees, shape (n,)), NOWHERE where it lies in none.

        Raises DataError for impossible positions, UsageError for arrays of different shapes.
        """


class ZoneTable:
    """Finds the zones that positions lie in; on a border the zone with the smallest number."""

    def __init__(self, zones: Zones) -> None:
        self._shapes = np.array(zones.shapes, dtype=object)
        self._tree = shapely.STRtree(self._shapes)
        shapely.prepare(self._shapes)

    def cells_of(self, latitude: FloatArray, longitude: FloatArray) -> CellArray:
        """Return the number of the zone that holds each position, shape (n,): from 1, NOWHERE (0) for none.

        ``latitude`` and ``longitude`` in degrees, shape (n,). Raises as ``GridPlaces.cells_of``.
        """
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
    """Return the table that finds the places of ``grid``: a ZoneTable, or a CellTable of hexagons."""
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
