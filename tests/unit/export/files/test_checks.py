from __future__ import annotations

import copy
import json

import pytest

from trafficdp.export.files.checks import check_geojson
from trafficdp.export.files.geojson import geojson_bytes


@pytest.fixture
def document(city):
    return json.loads(geojson_bytes(city))


@pytest.fixture
def island(fiji):
    return json.loads(geojson_bytes(fiji))


def first(document, status="released"):
    return next(f for f in document["features"] if f["properties"]["status"] == status)


def test_a_crs_member_is_found(document):
    document["crs"] = {"type": "name"}
    assert check_geojson(document) == ["the document has a crs member"]


def test_something_else_than_a_collection_is_found():
    assert check_geojson({"type": "Feature"}) == ["the document is not a FeatureCollection"]


def test_a_clockwise_ring_is_found(document):
    document["features"][0]["geometry"]["coordinates"][0].reverse()
    assert any("wrong way round" in problem for problem in check_geojson(document))


def test_an_open_ring_is_found(document):
    document["features"][0]["geometry"]["coordinates"][0].pop()
    assert any("not closed" in problem for problem in check_geojson(document))


def test_an_eighth_decimal_is_found(document):
    document["features"][0]["geometry"]["coordinates"][0][1][0] += 1e-8
    assert any("7 decimals" in problem for problem in check_geojson(document))


def test_a_position_outside_the_box_is_found(document):
    document["bbox"][2] -= 0.05
    assert any("outside the bbox" in problem for problem in check_geojson(document))


def test_a_missing_box_is_found(document):
    del document["bbox"]
    assert check_geojson(document) == ["the document has no bbox of four numbers"]


def test_a_box_turned_round_at_the_antimeridian_is_found(island):
    crossing = next(f for f in island["features"] if f["geometry"]["type"] == "MultiPolygon")
    crossing["bbox"][0], crossing["bbox"][2] = crossing["bbox"][2], crossing["bbox"][0]
    assert any("west is greater" in problem for problem in check_geojson(island))


def test_a_ring_across_the_antimeridian_is_found(document):
    ring = document["features"][0]["geometry"]["coordinates"][0]
    ring[2][0] = 97.7
    assert any("crosses the antimeridian" in problem for problem in check_geojson(document))


def test_an_id_that_occurs_twice_is_found(document):
    document["features"].append(copy.deepcopy(document["features"][0]))
    assert any("occurs twice" in problem for problem in check_geojson(document))


def test_an_id_of_another_cell_is_found(document):
    document["features"][0]["id"] = document["features"][1]["id"]
    assert any("neither h3 nor h3/slot" in problem for problem in check_geojson(document))


def test_text_that_is_no_cell_is_found(document):
    document["features"][0]["id"] = document["features"][0]["properties"]["h3"] = "872830828fffff0"
    assert any("not a cell" in problem for problem in check_geojson(document))


def test_a_number_in_a_withheld_bin_is_found(document):
    first(document, "withheld")["properties"]["speed_mean_kmh"] = 0.0
    assert any("withheld, yet with a number" in problem for problem in check_geojson(document))


def test_a_withheld_bin_without_reason_is_found(document):
    first(document, "withheld")["properties"]["reason"] = None
    assert any("without a reason" in problem for problem in check_geojson(document))


def test_a_released_bin_without_number_is_found(document):
    first(document)["properties"]["speed_mean_kmh_low"] = None
    assert any("a number is missing" in problem for problem in check_geojson(document))
