"""A QGIS style inside the GeoPackage: the classes, colours and hatching of the HTML map.

QGIS looks for the table ``layer_styles`` (its own convention) and applies the style marked as default. The
style is QML with one rule a class, so that withheld and uninformative cells look as they do on the map.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree

from trafficdp.export.files.classes import COLOURS, HATCHED, classes_in_words, hatch_limit, ink_on
from trafficdp.export.files.columns import published_statistics, withheld_because
from trafficdp.export.files.shown import ENDS, READ_ENDS, level_read, shown_breaks
from trafficdp.model import Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release

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
    """One class: which cells (a QGIS expression), in words, colour, and ink of its hatching or None."""

    filter: str
    label: str
    colour: str
    ink: str | None


def with_styles(package: bytes, release: Release, layer: str, moment: str) -> bytes:
    """Return the GeoPackage ``package`` with a style for every statistic; the first is the default.

    ``moment`` (RFC 3339, UTC) dates the rows, so that the same release gives the same bytes.
    """
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(package)
        with connection:
            connection.execute(_TABLE)
            connection.execute(_CONTENTS, (moment,))
            for number, statistic in enumerate(published_statistics(release)):
                column = statistic.column(release.display_unit)
                style, described = qml(release, statistic), statistic.description
                row = (layer, "geom", column, style, number == 0, described, moment)
                connection.execute(_ROW, row)
        return connection.serialize()
    finally:
        connection.close()


def rules_of(release: Release, statistic: Statistic) -> tuple[Rule, ...]:
    """Return the rules of a statistic; every cell meets exactly one of them."""
    unit, column = release.display_unit, statistic.column(release.display_unit)
    breaks = shown_breaks(statistic, release.bound, unit)
    limit, level = hatch_limit(breaks), level_read(release, statistic)
    value, low, high = (
        f'sqrt("{column}{end}")' if statistic.power == 2 else f'"{column}{end}"'
        for end in ("", *(READ_ENDS if release.estimates[statistic].posterior else ENDS))
    )
    wide = f"{high} - {low} > {limit:g}"
    useless = f"\"{statistic.stem}_status\" = '{BinStatus.UNINFORMATIVE.value}'"
    rules = [
        Rule(f'"{column}" is null', withheld_because(release), "#c4c4c4", "#4d4d4d"),
        Rule(
            f'"{column}" is not null and {useless}',
            "uninformative: too noisy to colour",
            "#ffffff",
            "#4d4d4d",
        ),
    ]
    named = "standard deviation " if statistic.power == 2 else ""
    conditions = _conditions(value, breaks)
    texts = [f"{named}{text} {unit.label}" for text in classes_in_words(breaks)]
    for where, text, colour, letter in zip(conditions, texts, COLOURS, HATCHED, strict=True):
        shown = f"{where} and not ({useless})"
        rules.append(Rule(f"{shown} and not ({wide})", text, colour, None))
        text = f"{text}, {100 * level:g} % interval wider than {limit:g}"
        rules.append(Rule(f"{shown} and {wide}", text, colour, ink_on(letter)))
    return tuple(rules)


def qml(release: Release, statistic: Statistic) -> str:
    """Return the style of a statistic as QML (QGIS 3)."""
    root = ElementTree.Element("qgis", version="3.34", styleCategories="Symbology")
    renderer = ElementTree.SubElement(
        root, "renderer-v2", type="RuleRenderer", symbollevels="0", enableorderby="0", forceraster="0"
    )
    rules = ElementTree.SubElement(renderer, "rules", key="{root}")
    symbols = ElementTree.SubElement(renderer, "symbols")
    for number, rule in enumerate(rules_of(release, statistic)):
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


def _conditions(value: str, breaks: tuple[float, ...]) -> list[str]:
    between = [f"{value} >= {low:g} and {value} < {high:g}" for low, high in pairwise(breaks)]
    return [f"{value} < {breaks[0]:g}", *between, f"{value} >= {breaks[-1]:g}"]


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
