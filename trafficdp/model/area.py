"""The declared study area: a box or polygons in WGS84 degrees."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.errors import ConfigError


@dataclass(frozen=True)
class StudyArea:
    """Where a record must lie to count. ``geometry`` is in degrees, x = longitude, y = latitude.

    A box whose west is greater than its east crosses the antimeridian.
    """

    geometry: BaseGeometry

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
        return cls(
            shapely.MultiPolygon(
                [shapely.box(west, south, 180, north), shapely.box(-180, south, east, north)]
            )
        )

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
        if (
            geometry.geom_type not in ("Polygon", "MultiPolygon")
            or geometry.is_empty
            or not geometry.is_valid
        ):
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
        """Whether the area is one axis-parallel box (tested by comparison only, much faster)."""
        geometry = self.geometry
        return geometry.geom_type == "Polygon" and bool(geometry.equals(shapely.box(*geometry.bounds)))

    def contains(
        self, latitude: npt.NDArray[np.float64], longitude: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Return for every position whether it lies in the area, its boundary included.

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
