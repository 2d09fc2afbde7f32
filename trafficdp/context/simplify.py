"""A public layer brought down to what a page shows: cut to the area, fewer corners, one shape a name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

Shapes = npt.NDArray[np.object_]
Names = npt.NDArray[np.object_]
STEPS_ACROSS = 4000
"""No corner moves farther than the width of the study area through this."""
MOST_CORNERS = 60_000
"""Of one layer. A layer with more is simplified further, and at last loses its shortest shapes."""
_GRID = 2**17
"""Positions are multiples of 1 / _GRID degree, 0.85 m at most: such numbers compress well."""
_LINES = (1, 5)
_TURNS = 6


def simplified(shapes: Shapes, names: Names, area: BaseGeometry) -> tuple[Shapes, Names]:
    """Return the shapes (degrees, shape (n,)) and their names as a page shows them, the longest first.

    Lines of one name become one shape. A shape without name has the name "".
    """
    shapes, names = _joined(*_cut(shapes, names, area))
    west, south, east, north = area.bounds
    tolerance = max(east - west, north - south) / STEPS_ACROSS
    for _ in range(_TURNS):
        shapes, names = _coarser(shapes, names, tolerance)
        if shapely.get_num_coordinates(shapes).sum() <= MOST_CORNERS:
            break
        tolerance *= 2
    order = np.lexsort((names.astype(str), -shapely.length(shapes)))
    within = np.cumsum(shapely.get_num_coordinates(shapes[order])) <= MOST_CORNERS
    return shapes[order][within], names[order][within]


def _cut(shapes: Shapes, names: Names, area: BaseGeometry) -> tuple[Shapes, Names]:
    """Return the parts of the shapes in ``area``, of the dimension that each shape had, and their names."""
    whole = shapely.force_2d(shapely.make_valid(shapes))
    shapely.prepare(area)
    crosses = ~shapely.covered_by(whole, area)
    whole[crosses] = shapely.intersection(whole[crosses], area)
    # what only touches the border leaves points and lines behind
    parts, owner = shapely.get_parts(whole, return_index=True)
    same = shapely.get_dimensions(parts) == shapely.get_dimensions(shapes)[owner]
    keep = same & ~shapely.is_empty(parts)
    return parts[keep], names[owner[keep]]


def _joined(shapes: Shapes, names: Names) -> tuple[Shapes, Names]:
    """Return the same with the lines of every name as one shape, joined where they meet end to end."""
    lines = np.isin(shapely.get_type_id(shapes), _LINES)
    if not lines.any():
        return shapes, names
    parts, owner = shapely.get_parts(shapes[lines], return_index=True)
    known, code = np.unique(names[lines].astype(str)[owner], return_inverse=True)
    order = np.argsort(code, kind="stable")
    joined = shapely.line_merge(shapely.multilinestrings(parts[order], indices=code[order]))
    together = np.concatenate([joined, shapes[~lines]])
    return together, np.concatenate([known.astype(object), names[~lines]])


def _coarser(shapes: Shapes, names: Names, tolerance: float) -> tuple[Shapes, Names]:
    coarse = shapely.simplify(shapes, tolerance)
    coarse = shapely.transform(coarse, lambda xy: np.round(xy * _GRID) / _GRID)
    west, south, east, north = shapely.bounds(coarse).T
    seen = np.maximum(east - west, north - south) >= tolerance
    seen |= shapely.get_dimensions(coarse) == 0
    return coarse[seen], names[seen]
