"""Typical speeds of places from a public file of roads, areas or hexagons: speed limits, or classes of road.

The speed of a place is the mean over the parts of roads in it, by length, or of areas, by area. A road or
area is as fast as its column says, or as its class of road usually is (``CLASSES``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import shapely

from trafficdp._durable import sha256_of
from trafficdp.arrays import FloatArray
from trafficdp.binning.cells import cells_from_text, polygons_of, shapes_of
from trafficdp.binning.places import declared_bins
from trafficdp.context.read import read_table
from trafficdp.errors import ConfigError, DataError
from trafficdp.model import Grid, KnowledgeSource, SlotKind, SpeedUnit, parse_speed_unit

Shapes = npt.NDArray[np.object_]
CLASSES = {
    "motorway": 90.0,
    "motorway_link": 60.0,
    "trunk": 80.0,
    "trunk_link": 50.0,
    "primary": 60.0,
    "primary_link": 40.0,
    "secondary": 50.0,
    "secondary_link": 35.0,
    "tertiary": 40.0,
    "tertiary_link": 30.0,
    "unclassified": 30.0,
    "residential": 25.0,
    "living_street": 10.0,
}
"""km/h, by the values of OpenStreetMap's `highway` that cars use: only how they compare matters."""
HEXAGONS = ("hex_id", "h3")
"""Columns of hexagons, in files without shapes."""
LEAST_PART = 1e-6
"""Of a place: what lies less in it only touches it. Of its area, or of the side of a square as large."""
_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z/]*)", re.ASCII | re.IGNORECASE)


def read_typical_speeds(
    source: KnowledgeSource, grid: Grid
) -> tuple[str, npt.NDArray[np.uint64], FloatArray]:
    """Return the file's SHA-256, the places of ``grid`` that have a speed in it, and these speeds in m/s.

    The hash is hexadecimal; places and speeds have shape (n,). Raises ConfigError for a file that cannot be
    read, lacks its column, or has no speed in the study area.
    """
    path, column = Path(str(source.path)), str(source.column)
    shapes, texts = _read(path, column, grid)
    speed = _speeds(source, texts)
    kept = ~np.isnan(speed) & ~shapely.is_missing(shapes)
    if not kept.any():
        got = next((repr(each) for each in texts if each), "nothing")
        raise ConfigError(
            f"{path.name} has no speed in its column {column}",
            got=got,
            expected='speeds such as 50 or "30 mph", or classes of road',
            todo="name another column, or say in classes how fast each is",
        )
    place, found = _of_places(shapely.make_valid(shapes[kept]), speed[kept], grid, path)
    if not len(place):
        raise ConfigError(f"nothing of {path.name} lies in the study area", todo="name another file")
    return sha256_of(path), place, found


def _read(path: Path, column: str, grid: Grid) -> tuple[Shapes, Shapes]:
    """The shapes of the file, in degrees, and what ``column`` says of each."""
    name = path.name.lower()
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        return read_table(path, column, grid.area)
    import geopandas
    import pandas as pd

    try:
        if not name.endswith(".parquet"):
            table = pd.read_csv(path, dtype=str)
        else:
            try:
                table = geopandas.read_parquet(path).to_crs("EPSG:4326")
            except ValueError:
                table = pd.read_parquet(path)
    except (ValueError, OSError) as error:
        raise ConfigError(f"{path.name} cannot be read", got=str(error).splitlines()[0][:200]) from error
    if column not in table:
        raise ConfigError(f"{path.name} has no column {column}", expected=", ".join(map(str, table)))
    texts = table[column].astype(object).where(table[column].notna(), "").astype(str).to_numpy(object)
    if isinstance(table, geopandas.GeoDataFrame):
        return np.asarray(table.geometry.array, dtype=object), texts
    hexagons = next((each for each in HEXAGONS if each in table), None)
    if hexagons is None:
        raise ConfigError(
            f"{path.name} does not say where its speeds are",
            expected=f"a column {' or '.join(HEXAGONS)} of H3 indices, or a file of shapes",
        )
    try:
        cells = cells_from_text([*table[hexagons].astype(str)])
    except DataError as error:
        raise ConfigError(
            f"the column {hexagons} of {path.name} holds other texts than H3 cells",
            expected="H3 cell indexes (mode 1), such as 87608b0a5ffffff",
        ) from error
    return polygons_of(cells), texts


def _speeds(source: KnowledgeSource, texts: Shapes) -> FloatArray:
    """m/s by each of ``texts``: a number in the source's unit or its own, or a class; NaN: neither."""
    known, code = np.unique(texts.astype(str), return_inverse=True)
    classes, unit = source.classes, source.speed_unit
    if classes is None:
        classes, of_classes = tuple(CLASSES.items()), SpeedUnit.KILOMETRES_PER_HOUR
    else:
        of_classes = unit or SpeedUnit.KILOMETRES_PER_HOUR
    by_class = {name: speed * float(of_classes.metres_per_second) for name, speed in classes}

    def one(text: str) -> float:
        text = text.strip()
        if text in by_class:
            return by_class[text]
        found = _SPEED.fullmatch(text)
        if found is None or float(found[1]) <= 0:
            return np.nan
        own = unit
        if found[2]:
            try:
                own = parse_speed_unit(found[2], where="")
            except ConfigError:
                return np.nan
        if own is None:
            raise ConfigError(
                "the unit of known speeds is not declared",
                got=f"{text} in the column {source.column}",
                todo='write speed_unit = "km/h", "mph" or "m/s" in [[knowledge]]',
            )
        return float(found[1]) * float(own.metres_per_second)

    return np.array([one(each) for each in known], dtype=np.float64)[code]


def _of_places(
    shapes: Shapes, speed: FloatArray, grid: Grid, path: Path
) -> tuple[npt.NDArray[np.uint64], FloatArray]:
    dimension = np.unique(shapely.get_dimensions(shapes))
    if dimension.tolist() not in ([1], [2]):
        raise ConfigError(
            f"the shapes of {path.name} cannot be averaged",
            got="points" if 0 in dimension else "lines and areas",
            expected="lines alone, or areas alone",
        )
    whole = replace(grid, slot_kind=SlotKind.WHOLE_PERIOD, context=())
    place = np.unique(declared_bins(whole)[0])
    _, south, _, north = grid.area.geometry.bounds
    narrow = np.array([np.cos(np.radians((south + north) / 2)), 1.0])
    polygons, own = (
        shapely.transform(each, lambda xy: xy * narrow) for each in (shapes_of(place, grid.zones), shapes)
    )
    shape, at = shapely.STRtree(polygons).query(own, predicate="intersects")
    part, area = shapely.intersection(own[shape], polygons[at]), shapely.area(polygons)[at]
    size = shapely.length(part) if dimension[0] == 1 else shapely.area(part)
    size[size < LEAST_PART * (np.sqrt(area) if dimension[0] == 1 else area)] = 0
    total = np.bincount(at, size, len(place))
    there = np.flatnonzero(total)
    return place[there], np.bincount(at, size * speed[shape], len(place))[there] / total[there]
