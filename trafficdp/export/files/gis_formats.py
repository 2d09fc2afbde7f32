"""A release in the formats of GIS programs, written by GDAL on demand; the same release gives the same bytes.

A GeoPackage carries styles for QGIS. Columns that this kind of release leaves empty are in none of them.
"""

from __future__ import annotations

import io
import math
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import shapely

from trafficdp.errors import StoreUnavailableError
from trafficdp.export.files import classes, tables
from trafficdp.model import Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release

LAYER = "trafficdp"
"""Name of the one layer; a second table of the GeoPackage, layer_styles, is for QGIS."""
_MAY_BE_EMPTY = ("resolution", *tables.INSTANTS, "vehicles", "records")
"""Columns that what is released may leave empty, whatever the data."""


def _not_empty(table: Any) -> Any:  # noqa: ANN401 - geopandas carries no types
    """Return the GeoDataFrame ``table`` without those of the columns _MAY_BE_EMPTY that have no value."""
    return table.drop(columns=[name for name in _MAY_BE_EMPTY if table[name].isna().all()])


# A QGIS style inside the GeoPackage: the classes, colours and hatching of the HTML map.
#
# QGIS looks for the table ``layer_styles`` (its own convention) and applies the style marked as default. The
# style is QML with one rule a class, so that withheld and uninformative cells look as they do on the map.


_TABLE = """
create table layer_styles (
    id integer primary key autoincrement not null,
    f_table_catalog text(256), f_table_schema text(256), f_table_name text(256), f_geometry_column text(256),
    styleName text(30), styleQML text, styleSLD text, useAsDefault boolean, description text, owner text(30),
    ui text(30), update_time datetime
)
"""
_ROW = """
insert into layer_styles (f_table_catalog, f_table_schema, f_table_name, f_geometry_column, styleName,
    styleQML, styleSLD, useAsDefault, description, owner, ui, update_time)
values ('', '', ?, ?, ?, ?, '', ?, ?, '', null, ?)
"""
_CONTENTS = """
insert into gpkg_contents (table_name, data_type, identifier, description, last_change, srs_id)
values ('layer_styles', 'attributes', 'layer_styles', 'Styles for QGIS', ?, 0)
"""


@dataclass(frozen=True)
class Rule:
    """One class of a QGIS style: its cells (a QGIS expression), text, colour, and hatching ink or None."""

    filter: str
    label: str
    colour: str
    ink: str | None


def _with_styles(package: bytes, release: Release, moment: str) -> bytes:
    """Return the GeoPackage ``package`` with a style for every statistic; the first is the default.

    ``moment`` (RFC 3339, UTC) dates the rows, so that the same release gives the same bytes.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(package)
        with connection:
            connection.execute(_TABLE)
            connection.execute(_CONTENTS, (moment,))
            for number, statistic in enumerate(tables.published_statistics(release)):
                column = statistic.column(release.request.display_unit)
                style, described = qml(release, statistic), statistic.description
                row = (LAYER, "geom", column, style, number == 0, described, moment)
                connection.execute(_ROW, row)
        return connection.serialize()
    finally:
        connection.close()


def qgis_classes(release: Release, statistic: Statistic) -> tuple[Rule, ...]:
    """Return the classes of a QGIS style for ``statistic``; every cell meets exactly one of them."""
    unit, column = release.request.display_unit, statistic.column(release.request.display_unit)
    breaks = classes.shown_breaks(statistic, release.request.bound, unit)
    level = classes.shown_level(release, statistic)
    value, low, high = (
        f'sqrt("{column}{end}")' if statistic.power == 2 else f'"{column}{end}"'
        for end in ("", *(classes.READ_ENDS if release.estimates[statistic].posterior else classes.ENDS))
    )
    useless = f"\"{statistic.stem}_status\" = '{BinStatus.UNINFORMATIVE.value}'"
    rules = [
        Rule(f'"{column}" is null', tables.withheld_because(release), "#c4c4c4", "#4d4d4d"),
        Rule(
            f'"{column}" is not null and {useless}',
            "uninformative: too noisy to colour",
            "#ffffff",
            "#767676",
        ),
    ]
    named = "standard deviation " if statistic.power == 2 else ""
    between = [f"{value} >= {low:g} and {value} < {high:g}" for low, high in pairwise(breaks)]
    conditions = [f"{value} < {breaks[0]:g}", *between, f"{value} >= {breaks[-1]:g}"]
    texts = [f"{named}{text} {unit.label}" for text in classes.classes_in_words(breaks)]
    looks = zip(
        conditions, texts, classes.hatch_limits(breaks), classes.COLOURS, classes.HATCHED, strict=True
    )
    for where, text, limit, colour, letter in looks:
        wide = f"{high} - {low} > {limit:g}"
        shown = f"{where} and not ({useless})"
        rules.append(Rule(f"{shown} and not ({wide})", text, colour, None))
        text = f"{text}, {100 * level:g} % interval wider than {limit:g}"
        rules.append(Rule(f"{shown} and {wide}", text, colour, classes.ink_on(letter)))
    return tuple(rules)


def qml(release: Release, statistic: Statistic) -> str:
    """Return the QGIS style for maps of ``statistic``, as QML text (QGIS 3)."""
    root = ElementTree.Element("qgis", version="3.34", styleCategories="Symbology")
    renderer = ElementTree.SubElement(
        root, "renderer-v2", type="RuleRenderer", symbollevels="0", enableorderby="0", forceraster="0"
    )
    rules = ElementTree.SubElement(renderer, "rules", key="{root}")
    symbols = ElementTree.SubElement(renderer, "symbols")
    for number, rule in enumerate(qgis_classes(release, statistic)):
        ElementTree.SubElement(
            rules,
            "rule",
            key=f"{{{statistic.stem}-{number}}}",
            symbol=str(number),
            filter=rule.filter,
            label=rule.label,
        )
        symbol = ElementTree.SubElement(
            symbols, "symbol", type="fill", name=str(number), alpha="1", clip_to_extent="1"
        )
        _fill(symbol, rule.colour)
        if rule.ink is not None:
            _hatching(symbol, rule.ink)
    ElementTree.indent(root)
    return "<!DOCTYPE qgis>\n" + ElementTree.tostring(root, encoding="unicode")


def _fill(symbol: ElementTree.Element, colour: str) -> None:
    _layer(
        symbol,
        "SimpleFill",
        {
            "color": _rgba(colour),
            "style": "solid",
            "outline_color": _rgba("#595959"),
            "outline_style": "solid",
            "outline_width": "0.1",
            "outline_width_unit": "MM",
        },
    )


def _hatching(symbol: ElementTree.Element, ink: str) -> None:
    layer = _layer(symbol, "LinePatternFill", {"angle": "45", "distance": "1.6", "distance_unit": "MM"})
    line = ElementTree.SubElement(
        layer, "symbol", type="line", name=f"@{symbol.get('name')}@1", alpha="1", clip_to_extent="1"
    )
    _layer(line, "SimpleLine", {"line_color": _rgba(ink), "line_width": "0.3", "line_width_unit": "MM"})


def _layer(symbol: ElementTree.Element, kind: str, options: dict[str, str]) -> ElementTree.Element:
    layer = ElementTree.SubElement(
        symbol, "layer", {"class": kind, "enabled": "1", "locked": "0", "pass": "0"}
    )
    given = ElementTree.SubElement(layer, "Option", type="Map")
    for name, value in options.items():
        ElementTree.SubElement(given, "Option", type="QString", name=name, value=value)
    return layer


def _rgba(colour: str) -> str:
    return ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5)) + ",255"


def gpkg_bytes(release: Release) -> bytes:
    """Return the GeoPackage of ``release``."""
    import pyogrio

    moment = f"{release.created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.000Z}"
    table = tables.to_geodataframe(release)
    for name in tables.INSTANTS:
        # GeoPackage knows no other time zone
        table[name] = table[name].dt.tz_convert("UTC")
    # GDAL stamps "last_change" with the clock unless told otherwise
    name = "OGR_CURRENT_DATE"
    before = pyogrio.get_gdal_config_option(name)
    pyogrio.set_gdal_config_options({name: moment})
    try:
        return _with_styles(_in_memory(_not_empty(table), "GPKG"), release, moment)
    finally:
        pyogrio.set_gdal_config_options({name: before})


def flatgeobuf_bytes(release: Release) -> bytes:
    """Return the FlatGeobuf file of ``release``, with its spatial index."""
    return _in_memory(_not_empty(tables.to_geodataframe(release)), "FlatGeobuf")


_ACROSS = 45
"""A cell of one degree has 512 of the 4096 steps of a tile at the zoom that has so many tiles across."""
_FINEST_ZOOM = 15


def pmtiles_bytes(release: Release) -> bytes:
    """Return the vector tiles of ``release`` as one PMTiles archive; every tile has all bins that touch it.

    Tiles reach from the zoom at which the map is a tile wide to that at which a cell has 512 steps.
    """
    shapes = tables.unique_polygons(release)[0]
    zooms = (0, 0)
    if len(shapes):
        west, _, east, _ = shapely.bounds(shapes).T
        finest = _zoom(_ACROSS / float(np.quantile(east - west, 0.05)), math.ceil)
        zooms = min(finest, _zoom(360 / float(east.max() - west.min()), math.floor)), finest
    table = tables.to_geodataframe(release, instants=False)
    return _in_memory(
        _not_empty(table),
        "PMTiles",
        MINZOOM=zooms[0],
        MAXZOOM=zooms[1],
        NAME=f"{release.disclosure.coverage.place} {release.id}",
        # else GDAL coarsens a full tile and leaves bins out
        MAX_SIZE=2**31 - 1,
        MAX_FEATURES=2**31 - 1,
    )


def _zoom(tiles_across: float, rounded: Callable[[float], int]) -> int:
    return min(max(rounded(math.log2(tiles_across)), 0), _FINEST_ZOOM)


def shapefile_bytes(release: Release) -> bytes:
    """Return the Shapefile of ``release`` in a zip archive, with columns.txt: what each short name means."""
    import pyogrio

    table = _not_empty(tables.to_geodataframe(release, instants=False))
    facts = tables.column_facts(release)
    short = {name: short_name(name) for name in facts if name in table}
    lines = [
        "\t".join((short[name], name, facts[name].unit or "", facts[name].description)) for name in short
    ]
    moment = release.created_at.astimezone(UTC)
    content = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(content, "w") as archive:
        try:
            pyogrio.write_dataframe(
                table.rename(columns=short),
                Path(folder) / f"{LAYER}.shp",
                driver="ESRI Shapefile",
                ENCODING="UTF-8",
                DBF_DATE_LAST_UPDATE=f"{moment:%Y-%m-%d}",
            )
        except pyogrio.errors.DataSourceError as error:
            raise StoreUnavailableError(
                "cannot write the Shapefile",
                got="an error of the disk of temporary files",
                todo="free some space there, or name another disk in TMPDIR",
            ) from error
        files = {each.name: each.read_bytes() for each in sorted(Path(folder).iterdir())}
        for name, written in {**files, "columns.txt": "\r\n".join([*lines, ""]).encode()}.items():
            entry = zipfile.ZipInfo(name, moment.timetuple()[:6])
            archive.writestr(entry, written, zipfile.ZIP_DEFLATED)
    return content.getvalue()


_SHORT = {
    "vehicle_mean": "veh",
    "vehicle_median": "vmed",
    "vehicle_p": "vp",
    "variance": "var",
    "noise_scale": "noise",
    "expected_error": "err",
    "interval_kind": "kind",
    "_status": "_stat",
    "slower_chance": "slow",
    "faster_chance": "fast",
    "of_scheduled_low": "ofslo",
    "of_scheduled_high": "ofshi",
    "of_scheduled": "ofs",
    "scheduled": "sched",
    "rank_low": "rklo",
    "rank_high": "rkhi",
    "low_": "lo",
    "high_": "hi",
}
_PART = re.compile(r"^speed_|_(?:kmh|ms|mph)2?(?=_)")
"""Left out of a short name: that it is a speed, and the unit where more follows."""


def short_name(column: str) -> str:
    """Return the name that a Shapefile has for a published ``column``: at most ten characters."""
    name = _PART.sub("", column)
    for long, short in _SHORT.items():
        name = name.replace(long, short)
    return name


def _in_memory(table: Any, driver: str, **options: object) -> bytes:  # noqa: ANN401 - geopandas carries no types
    # a disk that is full must only ever be met where the file is to lie
    stream = io.BytesIO()
    table.to_file(stream, driver=driver, layer=LAYER, engine="pyogrio", promote_to_multi=True, **options)
    return stream.getvalue()
