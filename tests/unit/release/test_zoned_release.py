"""A map of a city's own districts: the same mechanisms, files, pages and checks as of hexagons."""

import json
import re

import geopandas
import numpy as np
import pandas as pd
import pytest
import shapely

import trafficdp
from trafficdp.errors import ConfigError, UsageError

# the city's records lie at CELLS of tests/small_city.py: one district is empty, one place is in none, and the
# border of Hill has a thousand corners
HILL = shapely.Point(72.80, 21.20).buffer(0.015, quad_segs=300)
DISTRICTS = {
    "South": shapely.box(72.71, 21.11, 72.73, 21.14),
    "Empty": shapely.box(72.735, 21.11, 72.745, 21.14),
    "Middle": shapely.MultiPolygon(
        [shapely.box(72.75, 21.15, 72.77, 21.17), shapely.box(72.71, 21.2, 72.73, 21.22)]
    ),
    "Hill": HILL,
}


def declare(city, **changes):
    """Write the districts beside the configuration, and have the map cut into them."""
    frame = geopandas.GeoDataFrame({"name": [*DISTRICTS]}, geometry=[*DISTRICTS.values()], crs="EPSG:4326")
    frame.to_file(city.folder / "districts.gpkg")
    text = city.config.read_text(encoding="utf-8")
    text = re.sub("resolution = .*", changes.get("zones", 'zones = "districts.gpkg"'), text)
    city.config.write_text(changes.get("edit", lambda given: given)(text), encoding="utf-8")
    return city


@pytest.fixture
def zoned(city):
    return declare(city)


@pytest.fixture
def opened(zoned):
    there = trafficdp.open(zoned.config, create=True)
    there.ingest([zoned.days[1], zoned.days[2]])
    return there


@pytest.mark.usefixtures("two_cities")
def test_counts_are_those_of_the_districts(opened, zoned):
    records = pd.concat([pd.read_csv(day) for day in zoned.days.values()])
    points = shapely.points(records["longitude"], records["latitude"])
    inside = {name: int(shapely.intersects(shape, points).sum()) for name, shape in DISTRICTS.items()}
    counts = opened.plan().allocation.counts
    assert dict(zip(counts.cell.tolist(), counts.samples_per_bin.tolist(), strict=True)) == {
        number: inside[name] for number, name in enumerate(DISTRICTS, start=1) if inside[name]
    }
    assert 0 < sum(inside.values()) < len(records)
    assert inside["Empty"] == 0


def test_a_release_is_verified_and_every_file_says_the_same(opened, zoned, tmp_path):
    release = opened.release(force=True)
    assert all(each.passed for each in opened.verify("r0001"))
    table = release.to_geodataframe()
    assert table["place"].tolist() == ["South", "Middle", "Hill"]
    assert table["hex_id"].tolist() == ["1", "3", "4"]
    assert table["resolution"].isna().all()
    shapes = dict(zip(table["place"], table.geometry, strict=True))
    for name, shape in shapes.items():
        assert shapely.area(shapely.symmetric_difference(shape, DISTRICTS[name])) < 1e-12
    mean = table["speed_mean_kmh"].tolist()
    folder = release.folder
    geojson = json.loads((folder / "map.geojson").read_text())
    assert [each["id"] for each in geojson["features"]] == ["1", "3", "4"]
    assert [each["geometry"]["type"] for each in geojson["features"]] == [
        "Polygon",
        "MultiPolygon",
        "Polygon",
    ]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["coverage"]["resolution"] is None
    assert manifest["coverage"]["zones"]["file"] == "districts.gpkg"
    assert manifest["coverage"]["zones"]["zones"] == 4
    opened.export("r0001", "gpkg", tmp_path / "map.gpkg")
    for read in (
        pd.read_csv(folder / "cells.csv"),
        geopandas.read_parquet(folder / "cells.parquet"),
        geopandas.read_file(tmp_path / "map.gpkg", layer="trafficdp"),
        geopandas.read_file(folder / "map.geojson"),
    ):
        assert read["speed_mean_kmh"].tolist() == mean
    page = (folder / "map.html").read_text()
    assert "Find a street, a place or a zone" in page
    assert "hexagon" not in re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.S).lower()
    report = opened.city_report("r0001", tmp_path / "report.html")
    assert report is not None
    text = (tmp_path / "report.html").read_text()
    assert "4 zones of districts.gpkg" in text
    assert "hexagon" not in text.lower()


def test_sql_reads_districts_and_asks_about_them(opened):
    opened.release(force=True)
    free = opened.ask("SELECT hex_id, place, resolution, speed_mean_kmh FROM latest_cells ORDER BY hex_id")
    assert free.to_frame()["place"].tolist() == ["South", "Middle", "Hill"]
    drawn = free.to_geodataframe()
    assert shapely.area(shapely.symmetric_difference(drawn.geometry[2], HILL)) < 1e-6
    priced = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 6) {} FROM fixes GROUP BY {}"
    answer = opened.ask(priced.format("cell, place, AVG(speed)", "cell"))
    assert answer.to_frame()["cell"].tolist() == ["1", "3", "4"]
    assert answer.to_frame()["place"].tolist() == ["South", "Middle", "Hill"]
    one = opened.ask(
        priced.format("place, AVG(speed)", "place").replace("GROUP", "WHERE place = 'hill' GROUP")
    )
    assert one.to_frame()["place"].tolist() == ["Hill"]
    # hexagons may be asked for in the same city
    counted = opened.ask(priced.format("h3(7), COUNT(*)", "h3(7)")).to_frame()
    assert counted.iloc[:, 0].str.fullmatch("87[0-9a-f]{13}").all()


@pytest.mark.usefixtures("two_cities")
def test_another_map_of_the_same_city_may_have_hexagons(opened):
    hexagons = opened.with_map(resolution=7)
    assert hexagons.plan().grid.zones is None
    assert np.all(hexagons.plan().allocation.counts.cell > 2**58)


def test_a_plan_that_is_refused_offers_no_coarser_hexagons(opened, few_runs):
    plan = opened.plan("0.05")
    assert plan.verdict.refused
    assert plan.suggestions.resolution is None
    assert plan.suggestions.epsilon > 0.05
    # nor is one looked for, where an interval is to be narrow
    options = opened.plan("6", max_half_width="20 km/h", search_maps=True).answer.options
    assert {option.grid.zones.file for option in options} == {"districts.gpkg"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"zones": 'zones = "none.gpkg"'}, r"\[map\] zones does not exist"),
        ({"zones": 'zones = "districts.gpkg"\nresolution = 7'}, r"\[map\] resolution is not valid.*left out"),
        ({"zones": 'zones = { file = "districts.gpkg", name = "title" }'}, "has no column title"),
        ({"zones": ""}, r"\[map\] resolution is missing.*or zones, a file of districts"),
    ],
)
def test_what_a_configuration_may_not_say_of_zones(changes, says, city):
    with pytest.raises(ConfigError, match=says):
        trafficdp.open(declare(city, **changes).config, create=True)


def test_streams_and_spark_say_that_they_need_hexagons(opened, zoned):
    stream = "\n[stream]\nepsilon = 1\npublish_every = 30\nrecords_per_vehicle = 9\n"
    text = zoned.config.read_text(encoding="utf-8").replace('"mean", "variance"', '"mean"')
    zoned.config.write_text(text + stream, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"a stream has hexagons; got .*zones"):
        trafficdp.open(zoned.config).live().begin()
    with pytest.raises(UsageError, match="Spark puts records into hexagons"):
        opened.ingest([zoned.days[1]], engine="spark")
