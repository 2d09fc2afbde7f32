"""Cells of very many positions in one area: exact, and faster than asking for each.

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

from math import ceil, cos, radians, sqrt

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import (
    CellArray,
    FloatArray,
    area_km2,
    cells_of,
    check_positions,
    touches_one_face,
)
from trafficdp.errors import integer_between

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
        if (
            latitude.min() >= self._south
            and latitude.max() < self._north
            and longitude.min() >= self._west
            and longitude.max() < self._east
        ):
            return self._inside(latitude, longitude)
        check_positions(latitude, longitude)
        inside = (latitude >= self._south) & (latitude < self._north)
        inside &= (longitude >= self._west) & (longitude < self._east)
        cells = np.empty(len(latitude), dtype=np.uint64)
        cells[~inside] = cells_of(latitude[~inside], longitude[~inside], self._resolution)
        cells[inside] = self._inside(latitude[inside], longitude[inside])
        return cells

    def _inside(self, latitude: FloatArray, longitude: FloatArray) -> CellArray:
        if not len(latitude):
            return np.empty(0, dtype=np.uint64)
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
            self._look_at(squares[positions >= _WORTHWHILE])
            cells = self._cell_of_square[rows]
        left = np.flatnonzero(cells <= _MIXED)
        self._asked += len(cells)
        self._missed += len(left)
        if self._asked >= _TRIAL and 2 * self._missed > self._asked:
            self._rows, self._cell_of_square = 0, self._cell_of_square[:0]  # no use here: see cells_of
        cells[left] = cells_of(latitude[left], longitude[left], self._resolution)
        return cells

    def _look_at(self, squares: npt.NDArray[np.int32]) -> None:
        """Find the one cell, or _MIXED, of ``squares``, by the theorem."""
        if not len(squares):
            return
        south = self._south + (squares // self._columns).astype(np.float64) * self._side
        west = self._west + (squares % self._columns).astype(np.float64) * self._side
        corners = [
            cells_of(latitude, longitude, self._resolution)
            for latitude in (south - WIDENING, south + self._side + WIDENING)
            for longitude in (west - _WIDENING_LONGITUDE, west + self._side + _WIDENING_LONGITUDE)
        ]
        one = (corners[0] == corners[1]) & (corners[0] == corners[2]) & (corners[0] == corners[3])
        cells, back = np.unique(corners[0], return_inverse=True)
        one &= touches_one_face(cells)[back]
        self._cell_of_square[squares] = np.where(one, corners[0], _MIXED)
