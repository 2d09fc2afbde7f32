"""Names of hexagons: the street with most of its length in one, and the place that is near.

Without public layers a hexagon is named by where it lies, seen from the middle of the map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import shapely

from trafficdp.binning.cells import polygons_of
from trafficdp.model import ContextKind, ContextLayer, Zones

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]
Texts = npt.NDArray[np.object_]
KILOMETRES_PER_DEGREE = 111.195
_SECTORS = ("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east")
_STREETS, _BESIDE = (ContextKind.ROADS,), (ContextKind.WATER, ContextKind.PARK, ContextKind.TRANSIT)


def place_names(
    cell: npt.NDArray[np.uint64], context: Sequence[ContextLayer], zones: Zones | None = None
) -> Texts:
    """Return the name of every bin's hexagon, shape (G,); ``cell`` holds H3 indices, shape (G,).

    With ``zones`` it holds their numbers, and these have names of their own.

    "Ring Road near Old City", or what else tells one from another: a second street, the way and the distance
    from the place, a number. With public layers that name a street or a place, different hexagons have
    different names. The same cells and layers give the same names.
    """
    if zones is not None:
        return np.array(zones.names, dtype=object)[cell.astype(np.int64) - 1]
    cells, position = np.unique(cell, return_inverse=True)
    if not len(cells):
        return np.zeros(0, dtype=object)
    return _of_hexagons(cells.tobytes(), tuple(context))[position]


@lru_cache(maxsize=1)
def _of_hexagons(different: bytes, context: tuple[ContextLayer, ...]) -> Texts:
    """The names of ``different`` cells, given as bytes: those of the last map are kept."""
    cells = np.frombuffer(different, dtype=np.uint64)
    polygons = np.asarray(polygons_of(cells), dtype=object)
    plane = _Plane.of(polygons)
    hexagons = plane.flat(polygons)
    named = _named(context)
    if not len(named):
        return plane.from_the_middle(hexagons)
    named["shape"] = plane.flat(named["shape"].to_numpy(dtype=object))
    return told_apart(_choices(hexagons, named))


class _Plane:
    """Kilometres east and north of the middle of the map, true near it."""

    def __init__(self, west: float, south: float, east: float, north: float) -> None:
        self._cut = -180.0 if west <= east else (west + east) / 2
        east += 0.0 if west <= east else 360.0
        self._middle = (west + east) / 2, (south + north) / 2
        self._squeeze = max(math.cos(math.radians(self._middle[1])), 0.05)

    @classmethod
    def of(cls, polygons: Texts) -> _Plane:
        west, south, east, north = shapely.bounds(shapely.get_parts(polygons)).T
        if np.ptp(np.concatenate([west, east])) <= 180:
            return cls(west.min(), south.min(), east.max(), north.max())
        # across the antimeridian: the far west begins it, unless the map goes all round
        wide = west[west > 0], east[east < 0]
        if not all(map(len, wide)) or wide[0].min() <= wide[1].max():
            return cls(west.min(), south.min(), east.max(), north.max())
        return cls(wide[0].min(), south.min(), wide[1].max(), north.max())

    def flat(self, shapes: Texts) -> Texts:
        def moved(positions: FloatArray) -> FloatArray:
            longitude = np.where(positions[:, 0] < self._cut, positions[:, 0] + 360, positions[:, 0])
            east = (longitude - self._middle[0]) * self._squeeze
            return np.column_stack([east, positions[:, 1] - self._middle[1]]) * KILOMETRES_PER_DEGREE

        flat: Texts = shapely.transform(shapes, moved)
        return flat

    def from_the_middle(self, hexagons: Texts) -> Texts:
        """Return "4.1 km north-east" of the middle of the map, or "in the middle"."""
        centre = shapely.get_coordinates(shapely.centroid(hexagons))
        # the inscribed circle of a hexagon of area A has radius sqrt(A / (2 sqrt 3)); 0.95 for those askew
        radius = 0.95 * np.sqrt(shapely.area(hexagons) / (2 * math.sqrt(3)))
        far = np.hypot(*centre.T) >= radius
        return np.where(far, _ways(centre), "in the middle").astype(object)


def _ways(centre: FloatArray) -> Texts:
    """Return "4.1 km north-east" for offsets in kilometres, shape (n, 2)."""
    distance = np.hypot(*centre.T)
    sector = np.round(np.arctan2(centre[:, 1], centre[:, 0]) / (math.pi / 4)).astype(int) % 8
    return np.array(
        [
            f"{far:.{1 if far < 10 else 0}f} km {_SECTORS[way]}"
            for far, way in zip(distance.tolist(), sector.tolist(), strict=True)
        ],
        dtype=object,
    )


def _named(context: Sequence[ContextLayer]) -> pd.DataFrame:
    """Return every shape that has a name: columns ``kind``, ``name``, ``shape``."""
    import pandas as pd

    frames = [
        pd.DataFrame({"kind": layer.kind.value, "name": list(layer.names), "shape": list(layer.shapes)})
        for layer in context
        if layer.kind is not ContextKind.BOUNDARY
    ]
    together = pd.concat(frames) if frames else pd.DataFrame({"kind": [], "name": [], "shape": []})
    named: pd.DataFrame = together.loc[together["name"] != ""].reset_index(drop=True)
    return named


def _choices(hexagons: Texts, named: pd.DataFrame) -> list[Texts]:
    """Return names of every hexagon, the shortest first, each more telling than the one before."""
    first, second = _streets(hexagons, named[named["kind"].isin(_STREETS)])
    beside, _ = _streets(hexagons, named[named["kind"].isin(_BESIDE)])
    street = np.where(first != "", first, beside)
    crossing = np.where((first != "") & (second != ""), first + " at " + second, street)
    near, way = _places(hexagons, named[named["kind"] == ContextKind.PLACE])
    return [_with(street, near, way), _with(crossing, near, way), _with(crossing, way, way)]


def _with(street: Texts, near: Texts, otherwise: Texts) -> Texts:
    import pandas as pd

    joint = np.where(pd.Series(near).str.startswith("near "), " ", ", ").astype(object)
    both = np.where(near != "", street + joint + near, street)
    return np.where(street != "", both, otherwise).astype(object)


def _streets(hexagons: Texts, streets: pd.DataFrame) -> tuple[Texts, Texts]:
    """Return the names with most and second most length (or area's outline) in every hexagon; "" for none."""
    import pandas as pd

    found = np.full((2, len(hexagons)), "", dtype=object)
    if len(streets):
        shapes, owner = _pieces(streets["shape"].to_numpy(dtype=object))
        place, street = shapely.STRtree(shapes).query(hexagons, predicate="intersects")
        within = shapely.length(shapely.intersection(hexagons[place], shapes[street]))
        pairs = pd.DataFrame(
            {"place": place, "name": streets["name"].to_numpy()[owner[street]], "length": within}
        )
        pairs = pairs.groupby(["place", "name"]).agg({"length": "sum"}).reset_index()
        pairs = pairs.sort_values(["place", "length", "name"], ascending=[True, False, True])
        rank = pairs.groupby("place").cumcount()
        for number in (0, 1):
            best = pairs[rank == number]
            found[number, best["place"]] = best["name"]
    return found[0], found[1]


def _pieces(shapes: Texts) -> tuple[Texts, npt.NDArray[np.int64]]:
    """Return the straight pieces of lines and outlines, and points as they are, and the shape each is of.

    Small boxes are found faster: a street from one end of a city to the other would be near every hexagon.
    """
    points = shapely.get_dimensions(shapes) == 0
    areas = shapely.get_dimensions(shapes) == 2
    lines = np.where(areas, shapely.boundary(shapes), shapes)[~points]
    parts, of_line = shapely.get_parts(lines, return_index=True)
    position, of_part = shapely.get_coordinates(parts, return_index=True)
    joined = np.flatnonzero(of_part[1:] == of_part[:-1])
    pieces = shapely.linestrings(np.stack([position[joined], position[joined + 1]], axis=1))
    owner = np.flatnonzero(~points)[of_line[of_part[joined]]]
    return np.concatenate([pieces, shapes[points]]), np.concatenate([owner, np.flatnonzero(points)])


def _places(hexagons: Texts, places: pd.DataFrame) -> tuple[Texts, Texts]:
    """Return "near Old City" and "2.1 km north of Old City" for every hexagon; "" without places.

    What is farther than two hexagons is not near; a place in the middle of its hexagon needs no way to it.
    """
    if not len(places):
        return np.full(len(hexagons), "", dtype=object), np.full(len(hexagons), "", dtype=object)
    points = shapely.centroid(places["shape"].to_numpy(dtype=object))
    centre, size = shapely.centroid(hexagons), np.sqrt(shapely.area(hexagons))
    nearest = shapely.STRtree(points).nearest(centre)
    name = places["name"].to_numpy(dtype=object)[nearest]
    offset = shapely.get_coordinates(centre) - shapely.get_coordinates(points[nearest])
    distance = np.hypot(*offset.T)
    way = np.where(distance < size / 2, name, _ways(offset) + " of " + name)
    return np.where(distance < 2 * size, "near " + name, way).astype(object), way.astype(object)


def told_apart(choices: list[Texts]) -> Texts:
    """Return for every hexagon the shortest choice that no other has; at last with a number."""
    import pandas as pd

    names = choices[0].copy()
    for longer in choices[1:]:
        again = pd.Series(names).duplicated(keep=False).to_numpy()
        names[again] = longer[again]
    names[names == ""] = "unnamed"
    count = pd.Series(names).groupby(names).cumcount().to_numpy()
    taken = set(names[count == 0])
    for row in np.flatnonzero(count):
        number = int(count[row]) + 1
        while (name := f"{names[row]} ({number})") in taken:
            number += 1
        taken.add(name)
        names[row] = name
    return names
