"""Polygons as paths of a drawing, and maps for paper: plain SVG shapes with their own colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.binning.cells import bounding_box
from trafficdp.export.files import classes
from trafficdp.model import ContextKind, ContextLayer

# Polygons in degrees as paths of a drawing: equirectangular, true to scale at the middle latitude.


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

    a_polygon: IntArray
    corners: IntArray
    point: IntArray

    def corner_offsets(self) -> IntArray:
        """Return each corner as (dx, dy) from the corner before, shape (all corners, 2).

        A ring's first corner is taken from the first of the ring before; the very first is itself.
        """
        first = np.cumsum(self.corners) - self.corners
        step = np.diff(self.point, axis=0, prepend=np.zeros((1, 2), dtype=np.int64))
        step[first] = np.diff(self.point[first], axis=0, prepend=np.zeros((1, 2), dtype=np.int64))
        return step


@dataclass(frozen=True)
class Drawing:
    """The map from degrees to a drawing of ``width`` x ``height`` whole units, with y downwards.

    ``cut``: positions west of this longitude are moved by 360 degrees, so that what crosses the antimeridian
    stays in one piece; -180 moves nothing.
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
        """Return the drawing that just holds ``polygons`` (C,), in degrees, and a margin around them.

        One unit is such that the median polygon is 60 units high for ``hexagons`` and 2000 for zones, whose
        outlines are finer, but the whole no more than 100 000 units wide or high.
        """
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
        """Return the corners of ``polygons`` (C,), given in degrees, in whole drawing units, ring by ring.

        A ring's last corner, which is its first again, is left out.
        """
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
        """Return the SVG path of ``area``; parts that the antimeridian separates are joined."""
        parts = shapely.transform(shapely.get_parts(area), lambda xy: unwrapped_longitudes(xy, self.cut))
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

    def lines(self, shapes: Iterable[BaseGeometry]) -> str:
        """Return the SVG path data of all lines in ``shapes``; an area counts with its edge."""
        parts = shapely.get_parts(np.asarray([*shapes], dtype=object))
        areas = shapely.get_type_id(parts) == shapely.GeometryType.POLYGON
        edges = np.concatenate([parts[~areas], shapely.get_rings(parts[areas])])
        edges = edges[shapely.get_dimensions(edges) == 1]
        positions, of_edge = shapely.get_coordinates(edges, return_index=True)
        points = self._corners(positions) if len(positions) else np.zeros((0, 2), dtype=np.int64)
        first = np.diff(of_edge, prepend=-1) != 0
        steps = np.diff(points, axis=0, prepend=np.zeros((1, 2), dtype=np.int64))
        told = first | steps.any(axis=1)
        steps[first] = points[first]
        return "".join(
            f"{'M' if begins else 'l'}{x} {y}"
            for begins, (x, y) in zip(first[told].tolist(), steps[told].tolist(), strict=True)
        )

    def to_drawing_units(self, positions: FloatArray) -> FloatArray:
        """Return positions in degrees, longitude first, as drawing coordinates (x, y), shape (n, 2)."""
        degrees = unwrapped_longitudes(positions, self.cut)
        x = (degrees[:, 0] - self.west) * self.squeeze * self.units_per_degree + self.margin
        y = (self.north - degrees[:, 1]) * self.units_per_degree + self.margin
        return np.column_stack([x, y])

    def _path(self, polygon: BaseGeometry) -> str:
        path = ""
        for ring in shapely.get_rings(shapely.get_parts(polygon)):
            points = self._corners(shapely.get_coordinates(ring)[:-1])
            (x, y), steps = points[0].tolist(), np.diff(points, axis=0).tolist()
            path += f"M{x} {y}l" + " ".join(f"{dx} {dy}" for dx, dy in steps) + "z"
        return path

    def _corners(self, positions: FloatArray) -> IntArray:
        return np.rint(self.to_drawing_units(positions)).astype(np.int64)


def unwrapped_longitudes(positions: FloatArray, cut: float) -> FloatArray:
    """Return ``positions`` (degrees, longitude first), with 360 added to longitudes west of ``cut``."""
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


@dataclass(frozen=True)
class Centres:
    """Middle of every cell in drawing units, shape (C,), and the radius of a circle that fits into it."""

    x: FloatArray
    y: FloatArray
    radius: FloatArray


def centres_of(drawing: Drawing, polygons: npt.NDArray[np.object_], *, hexagons: bool = True) -> Centres:
    """Return the centres and radii of ``polygons`` (C,), in drawing units, of the largest of several parts.

    A hexagon has its centroid, any other polygon the centre of its largest inscribed circle. ``polygons`` are
    in degrees.
    """
    parts, owner = shapely.get_parts(polygons, return_index=True)
    order = np.lexsort((-shapely.area(parts), owner))
    largest = order[np.unique(owner[order], return_index=True)[1]]
    if not hexagons:
        flat = shapely.transform(parts[largest], lambda at: np.rint(drawing.to_drawing_units(at)))
        radii = shapely.maximum_inscribed_circle(flat)
        ends = shapely.get_coordinates(radii).reshape(-1, 2, 2)
        return Centres(ends[:, 0, 0], ends[:, 0, 1], shapely.length(radii))
    x, y = drawing.to_drawing_units(shapely.get_coordinates(shapely.centroid(parts[largest]))).T
    area = shapely.area(parts[largest]) * drawing.squeeze * drawing.units_per_degree**2
    # the inscribed circle of a hexagon of area A has radius sqrt(A / (2 sqrt 3)); 0.95 for those askew
    return Centres(x, y, 0.95 * np.sqrt(area / (2 * math.sqrt(3))))


# Maps for paper: plain SVG shapes with their own colours, no patterns and no style sheet.
#
# PDF writers ignore the page's style sheet inside SVG and show seams between pattern tiles; so every shape
# carries its colour, and hatching is drawn as lines. Cells of one look are one path.


WITHHELD_COLOUR, EMPTY_COLOUR, SIGN_COLOUR = "#c9c9c9", "#ffffff", "#4d4d4d"
FELL, ROSE, UNSURE = "F", "R", "Q"
CHANGE_COLOURS = {FELL: "#5e3c99", ROSE: "#e66101", UNSURE: "#dcdcdc"}
"""PuOr: purple where speeds fell, orange where they rose; and grey where nothing can be told."""
FILLS = {
    **dict(zip(classes.PLAIN, classes.COLOURS, strict=True)),
    **dict(zip(classes.HATCHED, classes.COLOURS, strict=True)),
    **CHANGE_COLOURS,
    classes.UNINFORMATIVE: EMPTY_COLOUR,
    classes.ABSENT: EMPTY_COLOUR,
    classes.WITHHELD: WITHHELD_COLOUR,
}
"""The colour of a cell, by its class letter."""
_SHIFTS = (-0.55, 0.0, 0.55)


@dataclass(frozen=True, slots=True)
class Shape:
    """One path: filled with ``fill``, or stroked with ``stroke`` where that is given.

    Lines of a public layer have a ``width`` of their own, on a page 900 pixels wide, and perhaps dashes.
    """

    path: str
    fill: str
    stroke: str | None = None
    width: float = 0.0
    dash: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Badge:
    """A name written on the map at (x, y)."""

    x: float
    y: float
    text: str
    dark: bool


@dataclass(frozen=True)
class Surroundings:
    """The public layers around the cells: ``areas`` lie under them, ``lines`` over them.

    ``names`` are those of places that fit, at their middle; ``sources`` says who made the layers.
    """

    areas: tuple[Shape, ...] = ()
    lines: tuple[Shape, ...] = ()
    names: tuple[Badge, ...] = ()
    sources: str = ""


@dataclass(frozen=True)
class Picture:
    """One map: its size in drawing units, and what is drawn in that order.

    ``line`` is the widest stroke of a sign, ``badge_size`` the size of a badge's letters, both in drawing
    units.
    """

    width: int
    height: int
    outline: str
    areas: tuple[Shape, ...]
    signs: tuple[Shape, ...]
    badges: tuple[Badge, ...]
    badge_size: float
    bar: ScaleBar | None
    line: float
    surroundings: Surroundings = Surroundings()


def map_picture(
    drawing: Drawing,
    paths: Sequence[str],
    centres: Centres,
    letters: npt.NDArray[np.str_],
    *,
    outline: str,
    badges: Sequence[tuple[int, str, bool]] = (),
    surroundings: Surroundings | None,
) -> Picture:
    """Return the map of C cells with the path data ``paths``, coloured by their class ``letters`` (C,).

    No letter is written: hatching, a dot, a cross or an arrow around a cell's place in ``centres`` tells its
    class without colour. ``outline`` is the path of the study area. ``badges`` are texts written at the
    centres of cells: (cell, text, whether white on black). ``surroundings`` are the public layers around the
    cells; None makes a small map among others, without a scale bar.
    """
    areas, signs = [], []
    for letter in sorted(set(letters.tolist())):
        cells = np.flatnonzero(letters == letter)
        areas.append(Shape("".join(paths[cell] for cell in cells.tolist()), FILLS[letter]))
        sign = _sign(letter, centres.x[cells], centres.y[cells], centres.radius[cells])
        if sign is not None:
            signs.append(sign)
    size = min(max(0.8 * float(np.median(centres.radius)), drawing.width / 28), drawing.width / 16)
    return Picture(
        width=drawing.width,
        height=drawing.height,
        outline=outline,
        areas=tuple(areas),
        signs=tuple(signs),
        badges=tuple(
            Badge(float(centres.x[cell]), float(centres.y[cell]), text, dark) for cell, text, dark in badges
        ),
        badge_size=size,
        bar=None if surroundings is None else drawing.scale_bar,
        line=0.17 * float(np.median(centres.radius)),
        surroundings=surroundings or Surroundings(),
    )


_UNDER = {ContextKind.PARK: "#dfeedd", ContextKind.WATER: "#cfe3f3"}
_OVER = {
    ContextKind.PARK: ("#2f6b2f", 0.8, (2, 3)),
    ContextKind.WATER: ("#0b4f9e", 1.6, ()),
    ContextKind.BOUNDARY: ("#4d4d4d", 1.2, (8, 4, 2, 4)),
    ContextKind.TRANSIT: ("#7a0177", 1.0, (5, 3)),
    ContextKind.ROADS: ("#262626", 1.0, ()),
}
MOST_NAMES = 12


def surroundings_of(drawing: Drawing, context: Sequence[ContextLayer], names_below: float) -> Surroundings:
    """Return the public layers ``context`` as drawn around the cells.

    Names stand ``names_below`` drawing units under their place, which leaves room for other signs.
    """
    areas, lines, names = [], [], []
    for layer in context:
        if layer.kind in _UNDER:
            parts = shapely.get_parts(np.asarray(layer.shapes, dtype=object))
            polygons = parts[shapely.get_type_id(parts) == shapely.GeometryType.POLYGON]
            areas.append(Shape("".join(drawing.paths(polygons)), _UNDER[layer.kind]))
        if layer.kind in _OVER:
            lines.append(Shape(drawing.lines(layer.shapes), "none", *_OVER[layer.kind]))
        if layer.kind is ContextKind.PLACE:
            names += [*zip(layer.shapes, layer.names, strict=True)]
    return Surroundings(
        tuple(each for each in areas if each.path),
        tuple(each for each in lines if each.path),
        _names_that_fit(drawing, [(shape, name) for shape, name in names if name], names_below),
        "; ".join(dict.fromkeys(layer.attribution for layer in context if layer.shapes)),
    )


def _names_that_fit(
    drawing: Drawing, named: Sequence[tuple[BaseGeometry, str]], below: float
) -> tuple[Badge, ...]:
    """Return the first MOST_NAMES that lie in the drawing and overlap none before them."""
    if not named:
        return ()
    middles = drawing.to_drawing_units(
        shapely.get_coordinates(shapely.centroid([shape for shape, _ in named]))
    )
    middles[:, 1] += below
    size, found = drawing.width / 40, list[Badge]()
    taken: list[BaseGeometry] = []
    for (x, y), (_, name) in zip(middles.tolist(), named, strict=True):
        half = 0.3 * size * len(name)
        box = shapely.box(x - half, y - size, x + half, y + size)
        inside = half <= x <= drawing.width - half and size <= y <= drawing.height - size
        if inside and len(found) < MOST_NAMES and not any(box.intersects(other) for other in taken):
            found.append(Badge(x, y, name, False))
            taken.append(box)
    return tuple(found)


def swatch(letter: str) -> Picture:
    """Return a small picture of the class letter ``letter`` for a legend, 60 by 36 units."""
    centre = Centres(np.array([30.0]), np.array([18.0]), np.array([16.0]))
    sign = _sign(letter, centre.x, centre.y, centre.radius)
    area = Shape("M0 0h60v36h-60z", FILLS[letter])
    return Picture(60, 36, "", (area,), () if sign is None else (sign,), (), 0.0, None, 2.7)


def _sign(letter: str, x: FloatArray, y: FloatArray, radius: FloatArray) -> Shape | None:
    """Return what marks a class letter without colour: hatching, a cross, a dot, an arrow or None."""
    if letter in classes.HATCHED:
        lines = [_line(x, y, radius, shift) for shift in _SHIFTS]
        return Shape("".join(path for line in lines for path in line), "none", classes.ink_on(letter))
    if letter == classes.UNINFORMATIVE:
        cross = zip(x, y, 0.35 * radius, strict=True)
        path = "".join(
            f"M{a - r:.0f} {b - r:.0f}l{2 * r:.0f} {2 * r:.0f}m0 {-2 * r:.0f}l{-2 * r:.0f} {2 * r:.0f}"
            for a, b, r in cross
        )
        return Shape(path, "none", SIGN_COLOUR)
    if letter == classes.WITHHELD:
        dots = zip(x, y, 0.18 * radius, strict=True)
        return Shape(
            "".join(f"M{a - r:.0f} {b - r:.0f}h{2 * r:.0f}v{2 * r:.0f}h{-2 * r:.0f}z" for a, b, r in dots),
            SIGN_COLOUR,
        )
    if letter in (FELL, ROSE):
        down = 1.0 if letter == FELL else -1.0
        tips = zip(x, y, 0.5 * radius, strict=True)
        path = "".join(
            f"M{a - r:.0f} {b - down * r * 0.6:.0f}h{2 * r:.0f}l{-r:.0f} {down * 1.4 * r:.0f}z"
            for a, b, r in tips
        )
        return Shape(path, classes.LIGHT if letter == FELL else classes.DARK)
    return None


def _line(x: FloatArray, y: FloatArray, radius: FloatArray, shift: float) -> list[str]:
    """Return SVG paths of diagonal chords of the circles, ``shift`` times the radius off the centre."""
    half = radius * np.sqrt(1 - shift**2) / np.sqrt(2)
    off = radius * shift / np.sqrt(2)
    return [
        f"M{a - h + o:.0f} {b + h + o:.0f}l{2 * h:.0f} {-2 * h:.0f}"
        for a, b, h, o in zip(x, y, half, off, strict=True)
    ]
