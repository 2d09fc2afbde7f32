"""A city's own zones from their file: whatever GDAL reads. Nothing is fetched, and no zone is mended."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import shapely

from trafficdp.context.names import told_apart
from trafficdp.context.read import Shapes, read_table
from trafficdp.errors import ConfigError
from trafficdp.model import Zones

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
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    different = told_apart([np.array(given, dtype=object)])
    # GeoJSON wants outer outlines counter-clockwise; layers of several parts have many of one
    plain = np.where(shapely.get_num_geometries(shapes) == 1, shapely.get_geometry(shapes, 0), shapes)
    return Zones(path.name, digest, tuple(different), tuple(shapely.orient_polygons(plain)))


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
