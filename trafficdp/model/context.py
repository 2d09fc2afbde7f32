"""Public polygons and lines: the study area, a city's own zones, and what maps say of a place."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated

import numpy as np
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.arrays import BoolArray, FloatArray
from trafficdp.errors import ConfigError
from trafficdp.model.json_codec import Coded, Text


def _packed(shapes: tuple[BaseGeometry, ...]) -> str:
    packed = zlib.compress(shapely.to_wkb(shapely.GeometryCollection(list(shapes))), 9)
    return base64.b64encode(packed).decode("ascii")


def _unpacked(text: str) -> tuple[BaseGeometry, ...]:
    return tuple(shapely.get_parts(shapely.from_wkb(zlib.decompress(base64.b64decode(text)))))


Shapes = Annotated[tuple[BaseGeometry, ...], Coded(_packed, _unpacked)]


@dataclass(frozen=True)
class StudyArea:
    """Where a record must lie to count. ``geometry`` is in degrees, x = longitude, y = latitude.

    A box whose west is greater than its east crosses the antimeridian.
    """

    geometry: Annotated[BaseGeometry, Coded(partial(shapely.to_wkb, hex=True), shapely.from_wkb)]

    @classmethod
    def from_bbox(cls, west: float, south: float, east: float, north: float) -> StudyArea:
        """Build the box; raise ConfigError unless -180..180, -90..90 and south < north, west != east."""
        corners = f"[{west}, {south}, {east}, {north}]"
        valid = -180 <= west <= 180 and -180 <= east <= 180 and -90 <= south < north <= 90 and west != east
        if not valid:
            raise ConfigError(
                "study area is not a box", got=corners, expected="[west, south, east, north] in degrees"
            )
        if west < east:
            return cls(shapely.box(west, south, east, north))
        sides = [shapely.box(west, south, 180, north), shapely.box(-180, south, east, north)]
        return cls(shapely.MultiPolygon(sides))

    @classmethod
    def from_geojson(cls, text: str, *, where: str) -> StudyArea:
        """Read a Polygon, MultiPolygon, Feature or FeatureCollection; raise ConfigError otherwise."""
        try:
            document = json.loads(text)
            features = document.get("features", [document])
            shapes = [shapely.from_geojson(json.dumps(item.get("geometry", item))) for item in features]
            geometry = shapely.union_all(shapes)
        except (ValueError, AttributeError, TypeError, shapely.errors.ShapelyError) as error:
            raise ConfigError(f"study area {where} is not GeoJSON", expected="polygons in WGS84") from error
        polygons = geometry.geom_type in ("Polygon", "MultiPolygon")
        if not polygons or geometry.is_empty or not geometry.is_valid:
            raise ConfigError(
                f"study area {where} is not a valid polygon",
                got=geometry.geom_type,
                expected="a valid, non-empty Polygon or MultiPolygon in WGS84",
            )
        west, south, east, north = geometry.bounds
        if west < -180 or east > 180 or south < -90 or north > 90:
            raise ConfigError(
                f"study area {where} leaves the globe", expected="WGS84 degrees, longitude first"
            )
        return cls(geometry)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the normalised geometry: what the manifest and the vault pin."""
        canonical = shapely.to_wkb(shapely.normalize(self.geometry), byte_order=1)
        return hashlib.sha256(canonical).hexdigest()

    @cached_property
    def is_box(self) -> bool:
        """Whether the area is one axis-parallel box, for which ``contains`` only compares numbers."""
        geometry = self.geometry
        return geometry.geom_type == "Polygon" and bool(geometry.equals(shapely.box(*geometry.bounds)))

    def contains(self, latitude: FloatArray, longitude: FloatArray) -> BoolArray:
        """Return for every position (degrees, shape (n,)) whether it lies in the area or on its boundary.

        Positions that are not finite or off the globe are outside.
        """
        west, south, east, north = self.geometry.bounds
        inside = (latitude >= south) & (latitude <= north) & (longitude >= west) & (longitude <= east)
        if self.is_box:
            return inside
        chosen = np.flatnonzero(inside)
        shapely.prepare(self.geometry)
        inside[chosen] = shapely.intersects_xy(self.geometry, longitude[chosen], latitude[chosen])
        return inside

    def to_geojson(self) -> dict[str, object]:
        """Return the geometry as a GeoJSON object."""
        result: dict[str, object] = json.loads(shapely.to_geojson(self.geometry))
        return result


# What public maps say of a place: streets, water, parks, names. It decides nothing about the numbers.


class ContextKind(StrEnum):
    """What a layer shows, and so how it is drawn and what it gives names to."""

    ROADS = "roads"
    WATER = "water"
    PARK = "park"
    BOUNDARY = "boundary"
    PLACE = "place"
    TRANSIT = "transit"
    TILES = "tiles"


@dataclass(frozen=True)
class ContextFile:
    """A layer as the configuration names it. ``name`` is the column with names (None: the usual one).

    ``path`` is the address of a server for TILES, as text.
    """

    path: Path | str
    kind: ContextKind
    name: str | None
    attribution: str


@dataclass(frozen=True)
class ContextLayer:
    """One public layer as the page shows it: simplified, cut to the study area.

    ``shapes`` are in degrees, longitude first; ``names`` has one text for each, "" for none. ``file`` is the
    file's name and ``sha256`` its hash (hexadecimal); ``attribution`` must be shown wherever the layer is.
    TILES have no shapes: ``file`` is the address of their server, and ``sha256`` the hash of that.
    """

    kind: ContextKind
    file: str
    sha256: str
    attribution: str
    names: tuple[str, ...]
    shapes: Shapes


# A city's own zones, such as districts: public polygons, numbered from 1 in the order of their file.


NOWHERE = 0
"""Stands for the number of a zone where a position lies in none."""


@dataclass(frozen=True)
class Zones:
    """What a map is cut into instead of hexagons. ``file`` is the file's name, ``sha256`` its hash.

    Zone number i + 1 is called ``names[i]``, different from all others, and has the shape ``shapes[i]``: a
    valid polygon or several, in degrees, longitude first. No two overlap, save by slivers of their borders.
    """

    file: str
    sha256: str
    names: tuple[str, ...]
    shapes: Shapes

    @cached_property
    def key(self) -> str:
        """SHA-256 of all shapes in their order: what decides in which zone a position lies."""
        return hashlib.sha256(b"".join(shapely.to_wkb(list(self.shapes), byte_order=1))).hexdigest()


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """What open-data portals are told beside a map, as configured; ``previous`` names the map before it.

    ``licence`` is an SPDX identifier or an address, ``contact`` an e-mail address or an address, ``language``
    the BCP 47 tag of the keywords.
    """

    licence: Text | None = None
    contact: Text | None = None
    landing_page: Text | None = None
    keywords: tuple[Text, ...] = ()
    language: Text | None = None
    previous: Text | None = None


NO_CATALOGUE_ENTRY = CatalogueEntry()
"""Where nothing is configured."""
