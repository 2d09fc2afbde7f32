"""Areas in the configuration file: a box, or polygons of a GeoJSON file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trafficdp.config.reading import Table, exact_number, naming, read_text
from trafficdp.errors import ConfigError
from trafficdp.model.area import StudyArea

AREA_KEYS = ("bbox", "geojson")
LARGEST_GEOJSON = 64 << 20
"""Bytes of the file of an area."""


def read_area(table: Table, key: str, folder: Path) -> StudyArea:
    """Return the area inside ``key``; GeoJSON files are relative to ``folder``.

    Raises ConfigError, naming the key, unless there is either a box or a file of polygons.
    """
    return _area(table.table(key, AREA_KEYS), table, key, folder)


def read_areas(content: object, folder: Path) -> Mapping[str, StudyArea]:
    """Return the areas of [[areas]] by name; raise ConfigError for a wrong one or a name used twice."""
    expected = "a list of tables [[areas]] with name and bbox or geojson"
    if not isinstance(content, list):
        raise ConfigError("[[areas]] is not a list of tables", expected=expected)
    found: dict[str, StudyArea] = {}
    for item in content:
        table = Table(item, "[[areas]] ", ("name", *AREA_KEYS))
        name = table.text("name", "a name that questions call the area by")
        if name.casefold() in {each.casefold() for each in found}:
            raise table.wrong("name", "another name for every area", got=f"{name} twice")
        found[name] = _area(table, table, "bbox", folder)
    return found


def _area(area: Table, outer: Table, key: str, folder: Path) -> StudyArea:
    if area.has("bbox") == area.has("geojson"):
        raise outer.wrong(
            key,
            'either { bbox = [west, south, east, north] } or { geojson = "area.geojson" }',
            got="both" if area.has("bbox") else "neither",
        )
    if area.has("bbox"):
        expected = "[west, south, east, north] in degrees"
        corners = [exact_number(item) for item in area.items("bbox", expected)]
        degrees = [float(corner) for corner in corners if corner is not None]
        if len(corners) != 4 or len(degrees) != 4:
            raise area.wrong("bbox", expected)
        with naming(area.where("bbox")):
            return StudyArea.from_bbox(*degrees)
    where = area.where("geojson")
    path = folder / area.text("geojson", "the name of a GeoJSON file")
    text = read_text(path, what=f"the file of {where}", todo="correct its name", largest=LARGEST_GEOJSON)
    with naming(where):
        try:
            return StudyArea.from_geojson(text, where=path.name)
        except RecursionError as error:
            raise ConfigError(
                f"study area {path.name} is not GeoJSON", expected="polygons in WGS84"
            ) from error
