"""Public layers and a city's own zones from their files, cut to the area. Nothing is fetched."""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp._durable import sha256_of, unpacking
from trafficdp.arrays import FloatArray
from trafficdp.binning.cells import polygons_of
from trafficdp.errors import ConfigError
from trafficdp.model import ContextFile, ContextKind, ContextLayer, StudyArea, Zones

if TYPE_CHECKING:
    import pandas as pd

# A public layer from its file (whatever GDAL reads of what is local, or static GTFS), cut to the area and
# brought down to what a page shows: fewer corners, one shape a name.


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


def simplified_layer(shapes: Shapes, names: Names, area: BaseGeometry) -> tuple[Shapes, Names]:
    """Return the shapes (degrees, shape (n,)) and their names as a page shows them, the longest first.

    Lines of one name become one shape. A shape without name has the name "".
    """
    whole = shapely.force_2d(shapely.make_valid(shapes))
    shapely.prepare(area)
    crosses = ~shapely.covered_by(whole, area)
    whole[crosses] = shapely.intersection(whole[crosses], area)
    # what only touches the border leaves points and lines behind
    parts, owner = shapely.get_parts(whole, return_index=True)
    same = shapely.get_dimensions(parts) == shapely.get_dimensions(shapes)[owner]
    keep = same & ~shapely.is_empty(parts)
    shapes, names = parts[keep], names[owner[keep]]
    lines = np.isin(shapely.get_type_id(shapes), _LINES)
    if lines.any():
        # those of a name are one shape, joined where they meet end to end
        parts, owner = shapely.get_parts(shapes[lines], return_index=True)
        known, code = np.unique(names[lines].astype(str)[owner], return_inverse=True)
        order = np.argsort(code, kind="stable")
        joined = shapely.line_merge(shapely.multilinestrings(parts[order], indices=code[order]))
        shapes = np.concatenate([joined, shapes[~lines]])
        names = np.concatenate([known.astype(object), names[~lines]])
    west, south, east, north = area.bounds
    tolerance = max(east - west, north - south) / STEPS_ACROSS
    for _ in range(_TURNS):
        shapes = shapely.simplify(shapes, tolerance)
        shapes = shapely.transform(shapes, lambda xy: np.round(xy * _GRID) / _GRID)
        left, bottom, right, top = shapely.bounds(shapes).T
        seen = np.maximum(right - left, top - bottom) >= tolerance
        seen |= shapely.get_dimensions(shapes) == 0
        shapes, names = shapes[seen], names[seen]
        if shapely.get_num_coordinates(shapes).sum() <= MOST_CORNERS:
            break
        tolerance *= 2
    order = np.lexsort((names.astype(str), -shapely.length(shapes)))
    within = np.cumsum(shapely.get_num_coordinates(shapes[order])) <= MOST_CORNERS
    return shapes[order][within], names[order][within]


_WAYS = ("shape_id", "shape_pt_sequence", "shape_pt_lon", "shape_pt_lat")
_STOPS = ("stop_name", "stop_lon", "stop_lat")
_TEXTS = ("stop_name", "shape_id")


def read_gtfs(path: Path, kind: ContextKind) -> tuple[Shapes, Names, str]:
    """Return (shapes, names, SHA-256) of static GTFS: its stops and, for the kind TRANSIT, vehicles' ways.

    Stops have names, ways have none. Positions are in degrees, longitude first. Raises ConfigError where
    stops.txt is missing or is none.
    """
    files = {name: _content(path, name) for name in ("shapes.txt", "stops.txt")}
    stops = _table(files["stops.txt"], path, "stops.txt", _STOPS).dropna()
    shapes: list[Shapes] = [np.asarray(shapely.points(stops["stop_lon"], stops["stop_lat"]), dtype=object)]
    names = [stops["stop_name"].astype(str).str.strip().str[:60].to_numpy(dtype=object)]
    if kind is ContextKind.TRANSIT and files["shapes.txt"]:
        ways = _table(files["shapes.txt"], path, "shapes.txt", _WAYS).dropna()
        ways = ways.sort_values(["shape_id", "shape_pt_sequence"])
        ways = ways[ways.groupby("shape_id")["shape_id"].transform("size") > 1]
        number = ways.groupby("shape_id", sort=False).ngroup().to_numpy()
        if len(ways):
            lines = shapely.linestrings(ways[["shape_pt_lon", "shape_pt_lat"]].to_numpy(), indices=number)
            # lines that run both ways, or share a street, are drawn once
            shapes.append(shapely.get_parts(shapely.union_all(lines)))
            names.append(np.full(len(shapes[1]), "", dtype=object))
    digest = hashlib.sha256(b"\0".join(files[name] for name in sorted(files))).hexdigest()
    return np.concatenate(shapes), np.concatenate(names), digest


def _content(path: Path, name: str) -> bytes:
    if path.is_dir():
        return (path / name).read_bytes() if (path / name).is_file() else b""
    with unpacking(f"the context layer {path.name}", name), zipfile.ZipFile(path) as archive:
        return archive.read(name) if name in archive.namelist() else b""


def _table(content: bytes, path: Path, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    try:
        table = pd.read_csv(io.BytesIO(content), dtype=dict.fromkeys(_TEXTS, str), encoding="utf-8-sig")
        words = table[[each for each in columns if each in _TEXTS]]
        numbers = table[[each for each in columns if each not in words]].apply(pd.to_numeric, errors="coerce")
        return words.join(numbers.where(numbers.abs() < 1e9).astype(float))
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"the context layer {path.name} is not static GTFS",
            got=f"a file {name} without what it should have" if content else f"no {name}",
            expected=f"{name} with the columns {', '.join(columns)}",
        ) from error


WGS84 = "EPSG:4326"
ENDINGS = (".gpkg", ".geojson", ".json", ".shp", ".fgb", ".osm.pbf", ".zip")
"""Of files that can be read; .zip and a folder are static GTFS."""
_DRIVEN = (
    "motorway", "trunk", "primary", "secondary", "tertiary", "motorway_link", "trunk_link", "primary_link",
    "secondary_link", "tertiary_link", "unclassified", "residential", "living_street",
)  # fmt: skip
_OPENSTREETMAP: Mapping[ContextKind, tuple[tuple[str, str | None], ...]] = {
    ContextKind.ROADS: (("lines", f"highway IN {_DRIVEN}"),),
    ContextKind.WATER: (
        ("lines", "waterway IN ('river', 'canal')"),
        ("multipolygons", "natural = 'water'"),
    ),
    ContextKind.PARK: (("multipolygons", "leisure IN ('park', 'nature_reserve')"),),
    ContextKind.BOUNDARY: (("multipolygons", "boundary = 'administrative'"),),
    ContextKind.PLACE: (
        ("points", "place IN ('city', 'town', 'village', 'suburb', 'quarter', 'neighbourhood')"),
    ),
    ContextKind.TRANSIT: (("points", 'other_tags LIKE \'%"public_transport"=>"station"%\''),),
}
"""What of an OpenStreetMap extract belongs to a kind: tables and conditions, in GDAL's words."""


def read_context(files: Sequence[ContextFile], area: StudyArea) -> tuple[ContextLayer, ...]:
    """Return the public layers in ``files``, simplified and cut to ``area``; empty ones are left out.

    The same files give the same layers. Raises ConfigError for a file that is not there or cannot be read,
    has no such column, or no coordinate system.
    """
    layers = []
    for file in files:
        path = file.path
        if isinstance(path, str):
            digest = hashlib.sha256(path.encode()).hexdigest()
            layers.append(ContextLayer(file.kind, path, digest, file.attribution, (), ()))
            continue
        if is_gtfs(path):
            shapes, names, digest = read_gtfs(path, file.kind)
        else:
            digest = sha256_of(path)
            with _reading(path):
                tables = [
                    _read_table(path, file.name, area, table, where)
                    for table, where in _wanted(file.kind, path)
                ]
            shapes, names = (np.concatenate(each) for each in zip(*tables, strict=True))
            there = ~shapely.is_missing(shapes)
            shapes, names = shapes[there], names[there]
        shapes, names = simplified_layer(shapes, names, area.geometry)
        if len(shapes):
            layers.append(
                ContextLayer(file.kind, path.name, digest, file.attribution, tuple(names), tuple(shapes))
            )
    return tuple(layers)


def check_context(files: Sequence[ContextFile]) -> None:
    """Raise as ``read_context`` for files that are missing or lack a column, without reading shapes."""
    import pyogrio

    for file in files:
        if isinstance(file.path, Path) and not is_gtfs(file.path):
            with _reading(file.path):
                for table, _ in _wanted(file.kind, file.path):
                    _column(file.path, file.name, pyogrio.read_info(file.path, layer=table))


def is_gtfs(path: Path) -> bool:
    """Return whether ``path`` is static GTFS: a folder, or a .zip with stops.txt; else GDAL reads it.

    Raises ConfigError for a path that does not exist or has no ending of ENDINGS.
    """
    if not path.exists():
        raise ConfigError(f"the context layer {path.name} does not exist", got=str(path), todo="correct file")
    if path.is_dir():
        return True
    with suppress(zipfile.BadZipFile, RuntimeError, ValueError, OSError), zipfile.ZipFile(path) as archive:
        if "stops.txt" in archive.namelist():
            return True
    if not path.name.lower().endswith(ENDINGS):
        raise ConfigError(f"the context layer {path.name} cannot be read", expected=", ".join(ENDINGS))
    return False


def read_table(path: Path, name: str | None, area: StudyArea | None = None) -> tuple[Shapes, Names]:
    """Return (shapes in degrees, names) of the first layer of ``path``; ``name`` is the column of names.

    All shapes in the file's order, or those near ``area``; None where a row has no shape. Of an OpenStreetMap
    extract they are its roads. Raises as ``read_context``.
    """
    if not path.exists():
        raise ConfigError(f"the file {path.name} does not exist", got=str(path), todo="correct its name")
    with _reading(path):
        ((table, where),) = _wanted(ContextKind.ROADS, path)
        return _read_table(path, name, area, table, where)


def _wanted(kind: ContextKind, path: Path) -> tuple[tuple[str, str | None], ...]:
    """The tables of ``path`` that are of the kind, with a condition on their rows."""
    import pyogrio

    if path.name.lower().endswith(".osm.pbf"):
        return _OPENSTREETMAP[kind]
    return ((pyogrio.list_layers(path)[0, 0], None),)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyogrio

    try:
        yield
    except (
        pyogrio.errors.DataSourceError,
        pyogrio.errors.DataLayerError,
        shapely.errors.ShapelyError,
        UnicodeDecodeError,
        IndexError,
    ) as error:
        raise ConfigError(
            f"{path.name} cannot be read as a map",
            expected="GeoPackage, GeoJSON, Shapefile, FlatGeobuf, an OpenStreetMap extract or static GTFS",
        ) from error


def _read_table(
    path: Path, name: str | None, area: StudyArea | None, table: str, where: str | None
) -> tuple[Shapes, Names]:
    import pyogrio
    import pyproj

    about = pyogrio.read_info(path, layer=table)
    if about["crs"] is None:
        raise ConfigError(
            f"{path.name} does not say in which coordinate system it is",
            todo="write it anew with one, such as EPSG:4326",
        )
    column = _column(path, name, about)
    to_file = pyproj.Transformer.from_crs(WGS84, about["crs"], always_xy=True)
    box = None if area is None else to_file.transform_bounds(*area.geometry.bounds)
    _, _, packed, columns = pyogrio.raw.read(
        path, layer=table, columns=[column] if column else [], bbox=box, where=where, force_2d=True
    )
    shapes = shapely.transform(
        shapely.from_wkb(packed),
        lambda xy: np.column_stack(to_file.transform(xy[:, 0], xy[:, 1], direction="INVERSE")),
    )
    names = np.asarray(columns[0], dtype=object) if column else np.full(len(shapes), None, dtype=object)
    # one printable line of at most 60 letters each, "" for nothing (NaN is not itself)
    lines = [" ".join(str(each).split()) if each is not None and each == each else "" for each in names]
    return shapes, np.array([each[:60] if each.isprintable() else "" for each in lines], dtype=object)


def _column(path: Path, name: str | None, about: Mapping[str, Any]) -> str | None:
    """The column of names: ``name``, else that called "name" where there is one; raise ConfigError."""
    known = list(about["fields"])
    column = name or ("name" if "name" in known else None)
    if column is not None and column not in known:
        raise ConfigError(f"{path.name} has no column {column}", expected=", ".join(known) or None)
    return column


# A city's own zones from their file: whatever GDAL reads. Nothing is fetched, and no zone is mended.


MOST_ZONES = 100_000
SLIVER = 0.001
"""Zones may share this part of the smaller one: borders are not always drawn twice in the same way."""


def read_zones(path: Path, name: str | None) -> Zones:
    """Return the polygons of ``path`` in its order, called as its column ``name`` says (None: the usual one).

    Raises ConfigError for a file that cannot be read, has no such column or coordinate system, and for shapes
    that are no valid polygons, lie off the globe or overlap by more than a SLIVER.
    """
    shapes, names = read_table(path, name)
    if not 0 < len(shapes) <= MOST_ZONES:
        raise ConfigError(
            f"the zones of {path.name} cannot be used",
            got=f"{len(shapes)} shapes",
            expected=f"1 to {MOST_ZONES:,} polygons in one layer",
        )
    given = [str(each) or f"zone {number}" for number, each in enumerate(names, start=1)]
    _require_polygons(shapes, given, path.name)
    _require_apart(shapes, given, path.name)
    different = distinct_names([np.array(given, dtype=object)])
    # GeoJSON wants outer outlines counter-clockwise; layers of several parts have many of one
    plain = np.where(shapely.get_num_geometries(shapes) == 1, shapely.get_geometry(shapes, 0), shapes)
    return Zones(path.name, sha256_of(path), tuple(different), tuple(shapely.orient_polygons(plain)))


def _require_polygons(shapes: Shapes, names: list[str], file: str) -> None:
    kind, bounds = shapely.get_type_id(shapes), shapely.bounds(shapes)
    wrong = {
        "no polygon": ~np.isin(kind, (3, 6)) | shapely.is_empty(shapes),
        "off the globe": ~np.all((bounds >= [-180, -90, -180, -90]) & (bounds <= [180, 90, 180, 90]), axis=1),
        "not valid, such as an outline that crosses itself": ~shapely.is_valid(shapes),
    }
    for what, those in wrong.items():
        if those.any():
            first = int(np.flatnonzero(those)[0])
            raise ConfigError(
                f"{int(those.sum())} zones of {file} cannot be used",
                got=f"{names[first]} (number {first + 1}) is {what}",
                expected="valid polygons, one a zone",
                todo="mend the file, in QGIS by Vector > Geometry Tools > Check Validity",
            )


def _require_apart(shapes: Shapes, names: list[str], file: str) -> None:
    one, other = shapely.STRtree(shapes).query(shapes, predicate="intersects")
    one, other = one[one < other], other[one < other]
    area = shapely.area(shapes)
    shared = shapely.area(shapely.intersection(shapes[one], shapes[other]))
    wrong = np.flatnonzero(shared > SLIVER * np.minimum(area[one], area[other]))
    if len(wrong):
        first, second = names[one[wrong[0]]], names[other[wrong[0]]]
        raise ConfigError(
            f"zones of {file} overlap: a record belongs to one of them",
            got=f"{len(wrong)} pairs, such as {first} and {second}",
            expected="zones beside each other",
            todo="keep one level of districts in the file, and cut what overlaps",
        )


# Names of hexagons: the street with most of its length in one, and the place that is near.
#
# Without public layers a hexagon is named by where it lies, seen from the middle of the map.


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
    import pandas as pd

    cells = np.frombuffer(different, dtype=np.uint64)
    polygons = np.asarray(polygons_of(cells), dtype=object)
    plane = _Plane(polygons)
    hexagons = shapely.transform(polygons, plane.kilometres)
    frames = [
        pd.DataFrame({"kind": layer.kind.value, "name": list(layer.names), "shape": list(layer.shapes)})
        for layer in context
        if layer.kind is not ContextKind.BOUNDARY
    ]
    named = pd.concat(frames) if frames else pd.DataFrame({"kind": [], "name": [], "shape": []})
    named = named.loc[named["name"] != ""].reset_index(drop=True)
    if not len(named):
        return plane.from_the_middle(hexagons)
    named["shape"] = shapely.transform(named["shape"].to_numpy(dtype=object), plane.kilometres)
    first, second = _streets(hexagons, named[named["kind"].isin(_STREETS)])
    beside, _ = _streets(hexagons, named[named["kind"].isin(_BESIDE)])
    street = np.where(first != "", first, beside)
    crossing = np.where((first != "") & (second != ""), first + " at " + second, street)
    near, way = _places(hexagons, named[named["kind"] == ContextKind.PLACE])
    choices = []
    # the shortest first, each more telling than the one before
    for road, place in ((street, near), (crossing, near), (crossing, way)):
        joint = np.where(pd.Series(place).str.startswith("near "), " ", ", ").astype(object)
        both = np.where(place != "", road + joint + place, road)
        choices.append(np.where(road != "", both, way).astype(object))
    return distinct_names(choices)


class _Plane:
    """Kilometres east and north of the middle of the map, true near it."""

    def __init__(self, polygons: Texts) -> None:
        wests, souths, easts, norths = shapely.bounds(shapely.get_parts(polygons)).T
        west, east = wests.min(), easts.max()
        self._cut = -180.0
        far_west, far_east = wests[wests > 0], easts[easts < 0]
        if np.ptp(np.concatenate([wests, easts])) > 180 and len(far_west) and len(far_east):
            # across the antimeridian: the far west begins it
            self._cut = (far_west.min() + far_east.max()) / 2
            west, east = far_west.min(), far_east.max() + 360.0
        self._middle = (west + east) / 2, (souths.min() + norths.max()) / 2
        self._squeeze = max(math.cos(math.radians(self._middle[1])), 0.05)

    def kilometres(self, positions: FloatArray) -> FloatArray:
        """Return positions in degrees, longitude first, shape (n, 2), on the plane."""
        longitude = np.where(positions[:, 0] < self._cut, positions[:, 0] + 360, positions[:, 0])
        east = (longitude - self._middle[0]) * self._squeeze
        return np.column_stack([east, positions[:, 1] - self._middle[1]]) * KILOMETRES_PER_DEGREE

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


def _streets(hexagons: Texts, streets: pd.DataFrame) -> tuple[Texts, Texts]:
    """Return the names with most and second most length (or area's outline) in every hexagon; "" for none."""
    import pandas as pd

    found = np.full((2, len(hexagons)), "", dtype=object)
    if len(streets):
        shapes = streets["shape"].to_numpy(dtype=object)
        # straight pieces of lines and outlines, and points as they are: small boxes are found faster, and a
        # street from one end of a city to the other would be near every hexagon
        points = shapely.get_dimensions(shapes) == 0
        areas = shapely.get_dimensions(shapes) == 2
        lines = np.where(areas, shapely.boundary(shapes), shapes)[~points]
        parts, of_line = shapely.get_parts(lines, return_index=True)
        position, of_part = shapely.get_coordinates(parts, return_index=True)
        joined = np.flatnonzero(of_part[1:] == of_part[:-1])
        straight = shapely.linestrings(np.stack([position[joined], position[joined + 1]], axis=1))
        owner = np.concatenate([np.flatnonzero(~points)[of_line[of_part[joined]]], np.flatnonzero(points)])
        pieces = np.concatenate([straight, shapes[points]])
        place, street = shapely.STRtree(pieces).query(hexagons, predicate="intersects")
        within = shapely.length(shapely.intersection(hexagons[place], pieces[street]))
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


def distinct_names(choices: list[Texts]) -> Texts:
    """Return for every hexagon the first of its names that no other hexagon has, shape (n,).

    Each of ``choices`` holds one name a hexagon, shape (n,), from short to long. Names that stay equal get
    numbers.
    """
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
