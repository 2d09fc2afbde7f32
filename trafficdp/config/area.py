"""Areas in the configuration file: a box, or polygons of a GeoJSON file beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, ValidationInfo

from trafficdp.config.document import exact_number, line, read_text
from trafficdp.config.table import Built, Refused, Table, naming, text
from trafficdp.errors import ConfigError
from trafficdp.model import StudyArea

LARGEST_GEOJSON = 64 << 20
"""Bytes of the file of an area."""


def _box(value: object) -> StudyArea:
    corners = [exact_number(item) for item in value] if isinstance(value, list) else []
    degrees = [float(corner) for corner in corners if corner is not None]
    if len(corners) != 4 or len(degrees) != 4:
        raise Refused
    with naming():
        return StudyArea.from_bbox(*degrees)


def _file(value: object, info: ValidationInfo[Path]) -> Path:
    if (name := line(value)) is None:
        raise Refused
    return info.context / name


class Area(Table):
    """Either of the two ways to draw an area."""

    bbox: Annotated[
        StudyArea | None, PlainValidator(_box), Field(description="[west, south, east, north] in degrees")
    ] = None
    geojson: Annotated[
        Path | None, PlainValidator(_file), Field(description="the name of a GeoJSON file")
    ] = None

    def drawn(self) -> StudyArea:
        """Return the area; raise Refused unless exactly one is given, and for a file that is none."""
        if self.geojson is None and self.bbox is not None:
            return self.bbox
        if self.geojson is None or self.bbox is not None:
            raise Refused(
                what=": neither bbox nor geojson" if self.bbox is None else ": both bbox and geojson",
                expected='either { bbox = [west, south, east, north] } or { geojson = "area.geojson" }',
                todo="give one of them",
            )
        with naming("geojson"):
            content = read_text(
                self.geojson, what="the file", todo="correct its name", largest=LARGEST_GEOJSON
            )
            try:
                return StudyArea.from_geojson(content, where=self.geojson.name)
            except RecursionError as error:
                what = f"study area {self.geojson.name} is not GeoJSON"
                raise ConfigError(what, expected="polygons in WGS84") from error


class NamedArea(Area):
    """A place that questions may name."""

    name: Annotated[str, text("a name that questions call the area by")]


DRAWN = Built(Area, Area.drawn)
"""An area that is drawn in a table of its own."""
NAMED = Built(NamedArea, lambda area: (area.name, area.drawn()))
"""(name, area)."""
