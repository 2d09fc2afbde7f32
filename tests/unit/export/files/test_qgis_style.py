"""The style in the GeoPackage: read by SQLite and by an XML parser, its rules run as SQL."""

import sqlite3
from xml.etree import ElementTree

import numpy as np
import pytest

from trafficdp.export.files.classes import ABSENT, COLOURS, HATCHED, PLAIN, hatch_limits, shown_breaks
from trafficdp.export.files.gis_formats import gpkg_bytes, qgis_classes, qml
from trafficdp.export.files.tables import published_statistics
from trafficdp.export.map.html_map import LOOKS
from trafficdp.privacy.release import published_frame


@pytest.fixture
def package(rush_hours, tmp_path):
    (tmp_path / "map.gpkg").write_bytes(gpkg_bytes(rush_hours))
    connection = sqlite3.connect(tmp_path / "map.gpkg")
    yield connection
    connection.close()


def test_every_statistic_has_a_style_and_the_first_is_the_default(rush_hours, package):
    rows = package.execute(
        "select f_table_name, f_geometry_column, styleName, useAsDefault, update_time"
        " from layer_styles order by id"
    ).fetchall()
    names = [each.column(rush_hours.request.display_unit) for each in published_statistics(rush_hours)]
    assert rows == [
        ("trafficdp", "geom", name, number == 0, "2016-12-01T09:30:00.000Z")
        for number, name in enumerate(names)
    ]


def test_the_styles_are_registered_as_the_standard_asks(package):
    (kind,) = package.execute(
        "select data_type from gpkg_contents where table_name = 'layer_styles'"
    ).fetchone()
    (column,) = package.execute("select column_name from gpkg_geometry_columns").fetchone()
    assert (kind, column) == ("attributes", "geom")
    assert package.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("number", [0, 1])
def test_every_cell_meets_one_rule_and_has_the_look_of_the_map(number, rush_hours, package):
    statistic = list(published_statistics(rush_hours))[number]
    rules = qgis_classes(rush_hours, statistic)
    found = {}
    for rule in rules:
        for (fid,) in package.execute(f"select fid from trafficdp where {rule.filter}"):
            assert fid not in found
            found[fid] = rule
    table, unit = published_frame(rush_hours), rush_hours.request.display_unit
    column = statistic.column(unit)
    value, low, high = (
        table[column + end].to_numpy() ** (1 / statistic.power) for end in ("", "_low", "_high")
    )
    breaks = shown_breaks(statistic, rush_hours.request.bound, unit)
    number = np.searchsorted(breaks, value, side="right")
    wide = high - low > np.array(hatch_limits(breaks))[number]
    status = table[f"{statistic.stem}_status"]
    letters = [
        {"withheld": "w", "uninformative": "u"}.get(own, (HATCHED if far else PLAIN)[min(at, 6)])
        for own, far, at in zip(status, wide, number, strict=True)
    ]
    assert len(set(letters)) > 6
    for fid, letter in enumerate(letters, start=1):
        look = LOOKS[str(letter)]
        assert (found[fid].colour, found[fid].ink) == (look.colour, look.ink)


def test_the_style_is_well_formed_and_every_rule_has_its_symbol(rush_hours):
    for statistic in published_statistics(rush_hours):
        root = ElementTree.fromstring(qml(rush_hours, statistic))
        rules = root.findall("renderer-v2/rules/rule")
        symbols = {each.get("name"): each for each in root.findall("renderer-v2/symbols/symbol")}
        assert len(rules) == len(symbols) == 2 + 2 * len(COLOURS)
        expected = qgis_classes(rush_hours, statistic)
        for element, rule in zip(rules, expected, strict=True):
            symbol = symbols[element.get("symbol")]
            assert (element.get("filter"), element.get("label")) == (rule.filter, rule.label)
            layers = [each.get("class") for each in symbol.findall("layer")]
            assert layers == (["SimpleFill"] if rule.ink is None else ["SimpleFill", "LinePatternFill"])
            colour = symbol.find("layer/Option/Option[@name='color']").get("value")
            assert tuple(map(int, colour.split(","))) == (
                *(int(rule.colour[i : i + 2], 16) for i in (1, 3, 5)), 255,
            )  # fmt: skip


def test_letters_without_a_rule_are_those_of_absent_bins(rush_hours):
    assert set(LOOKS) >= {*PLAIN, *HATCHED, "w", "u"}
    assert ABSENT not in np.unique([*PLAIN, *HATCHED])
