"""Typical speeds from files of roads, areas and hexagons: exact on small ones, clear about wrong ones."""

from __future__ import annotations

import hashlib
from datetime import date

import geopandas
import numpy as np
import pandas as pd
import pytest
import shapely

from trafficdp.binning.cells import cell_text, cells_of, centres_of, polygons_of
from trafficdp.errors import ConfigError
from trafficdp.knowledge.typical_speeds import CLASSES, read_typical_speeds
from trafficdp.model import Grid, KnowledgeKind, KnowledgeSource, Period, SlotKind, SpeedUnit, StudyArea

AREA = StudyArea.from_bbox(10.0, 50.0, 10.2, 50.2)
PERIOD = Period(date(2024, 1, 8), date(2024, 1, 8), "Europe/Berlin")
GRID = Grid(7, SlotKind.WHOLE_PERIOD, AREA, PERIOD)
(HERE,) = cells_of(np.array([50.1]), np.array([10.1]), 7)
NORTH, EAST = (float(each[0]) for each in centres_of(np.array([HERE])))
ACROSS = 0.004
"""Degrees of longitude on both sides of the middle that lie within the hexagon."""


def line(west, east, north=NORTH):
    return shapely.LineString([(EAST + west, north), (EAST + east, north)])


def write(folder, shapes, column, values, name="roads.geojson"):
    table = geopandas.GeoDataFrame({column: values}, geometry=shapes, crs="EPSG:4326")
    path = folder / name
    table.to_parquet(path) if name.endswith("parquet") else table.to_file(path)
    return path


def source(path, column="speed", unit=None, classes=None):
    unit = unit and SpeedUnit(unit)
    return KnowledgeSource(
        KnowledgeKind.SPEEDS, path=path, licence="CC0", column=column, speed_unit=unit, classes=classes
    )


def speed_here(declared, grid=GRID):
    """km/h in HERE."""
    _, place, speed = read_typical_speeds(declared, grid)
    return dict(zip(place.tolist(), (3.6 * speed).tolist(), strict=True)).get(int(HERE))


@pytest.mark.parametrize("name", ["roads.geojson", "roads.gpkg", "roads.parquet"])
def test_roads_count_by_their_length_in_the_hexagon(tmp_path, name):
    # a third of the way at 90, two thirds at 30; what is far away changes nothing
    shapes = [line(-ACROSS, 0), line(0, 2 * ACROSS), line(0.05, 0.06)]
    path = write(tmp_path, shapes, "speed", [90, 30, 120], name)
    inside = shapely.length(shapely.intersection(shapes[:2], polygons_of(np.array([HERE]))[0]))
    assert speed_here(source(path, unit="kmh")) == pytest.approx(inside @ [90, 30] / inside.sum())
    assert (
        read_typical_speeds(source(path, unit="kmh"), GRID)[0]
        == hashlib.sha256(path.read_bytes()).hexdigest()
    )


def test_a_road_that_leads_north_counts_by_its_metres(tmp_path):
    north = shapely.LineString([(EAST, NORTH), (EAST, NORTH + ACROSS)])
    path = write(tmp_path, [north, line(0, ACROSS)], "speed", [90, 30])
    metres = np.array([1, np.cos(np.radians(50.1))])
    assert speed_here(source(path, unit="kmh")) == pytest.approx(metres @ [90, 30] / metres.sum(), rel=1e-5)


def test_areas_count_by_their_area(tmp_path):
    box = shapely.box(EAST - ACROSS, NORTH - ACROSS, EAST, NORTH + ACROSS)
    narrow = shapely.box(EAST, NORTH - ACROSS, EAST + ACROSS / 2, NORTH + ACROSS)
    path = write(tmp_path, [box, narrow], "limit", [60, 30])
    assert speed_here(source(path, "limit", "mph")) == pytest.approx(50 * 1.609344)


def test_classes_of_road_and_speeds_with_their_own_unit(tmp_path):
    path = write(tmp_path, [line(-ACROSS, 0), line(0, ACROSS)], "highway", ["primary", "footway"])
    assert speed_here(source(path, "highway")) == pytest.approx(CLASSES["primary"])
    assert speed_here(source(path, "highway", "mph", (("footway", 10.0),))) == pytest.approx(16.09344)
    own = write(tmp_path, [line(-ACROSS, 0), line(0, ACROSS)], "maxspeed", ["30 mph", "none"], "own.geojson")
    assert speed_here(source(own, "maxspeed")) == pytest.approx(48.28032)


@pytest.mark.parametrize("name", ["cells.csv", "cells.csv.gz", "cells.parquet"])
def test_hexagons_of_a_table_are_those_of_the_map(tmp_path, name):
    table = pd.DataFrame({"hex_id": cell_text(np.array([HERE])), "typical": [42.5]})
    path = tmp_path / name
    table.to_parquet(path) if name.endswith("parquet") else table.to_csv(path, index=False)
    _, place, speed = read_typical_speeds(source(path, "typical", "kmh"), GRID)
    assert place.tolist() == [int(HERE)], "neighbours only touch it"
    assert 3.6 * speed == pytest.approx([42.5])


@pytest.mark.parametrize(
    ("shapes", "values", "said"),
    [
        ([line(0, ACROSS)], [50], "unit of known speeds is not declared"),
        ([line(0, ACROSS)], ["steps"], "no speed in its column"),
        ([line(5, 6)], ["primary"], "has no speed|lies in the study area"),
        ([shapely.Point(EAST, NORTH)], ["primary"], "points"),
        ([line(0, ACROSS), shapely.box(10.1, 50.1, 10.11, 50.11)], ["primary"] * 2, "lines and areas"),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, shapes, values, said):
    with pytest.raises(ConfigError, match=said):
        read_typical_speeds(source(write(tmp_path, shapes, "speed", values)), GRID)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no.geojson", None, "does not exist"),
        ("bad.geojson", "{}", "cannot be read"),
        ("a.csv", "hex_id,other\n1,2\n", "has no column speed"),
        ("a.csv", "place,speed\n1,50\n", "where its speeds are"),
        ("a.csv", "hex_id,speed\nnowhere,50\n", "cell"),
        ("a.csv", "", "cannot be read"),
        ("a.parquet", "PAR1", "cannot be read"),
    ],
)
def test_files_that_are_none_are_named(tmp_path, name, text, said):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        read_typical_speeds(source(path, unit="kmh"), GRID)
    assert name in str(refused.value)
