"""GeoJSON as we write it: rings, boxes and identifiers, which no schema can check; a spoilt one is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeGuard

import pytest

from trafficdp.binning.cells import cells_from_text
from trafficdp.errors import DataError
from trafficdp.export.files.tables import geojson_bytes

_RINGS = {"Polygon": 1, "MultiPolygon": 2}


def check_geojson(document: Mapping[str, object]) -> list[str]:
    """Return what is wrong with a FeatureCollection of ours; an empty list when nothing is.

    Checked: no ``crs`` member; ids unique, text, and equal to ``hex_id`` or "hex_id/slot"; ``hex_id``
    a valid cell;
    every ring closed, of at least four positions, counter-clockwise (holes clockwise), within the globe,
    of at most 7 decimals, and never across the antimeridian; every position within the ``bbox``; a
    withheld bin without numbers and with a reason, any other with its numbers.
    """
    if document.get("type") != "FeatureCollection" or not isinstance(document.get("features"), list):
        return ["the document is not a FeatureCollection"]
    problems = ["the document has a crs member"] if "crs" in document else []
    features = document["features"]
    seen: set[object] = set()
    for number, feature in enumerate(features if isinstance(features, list) else []):
        name = f"feature {number}"
        problems += [f"{name}: {problem}" for problem in _check_feature(feature, document.get("bbox"))]
        identifier = feature.get("id")
        if identifier in seen:
            problems.append(f"{name}: id {identifier} occurs twice")
        seen.add(identifier)
    if seen and not _is_box(document.get("bbox")):
        problems.append("the document has no bbox of four numbers")
    return problems


def _check_feature(feature: Mapping[str, object], outer: object) -> Iterator[str]:
    properties, geometry = feature.get("properties"), feature.get("geometry")
    if not isinstance(properties, Mapping) or not isinstance(geometry, Mapping):
        yield "no properties or no geometry"
        return
    yield from _check_id(feature.get("id"), properties)
    yield from _check_status(properties)
    own = feature.get("bbox")
    if geometry.get("type") == "MultiPolygon" and not (_is_box(own) and own[0] > own[2]):
        yield "crosses the antimeridian without a bbox whose west is greater than its east"
    rings = list(_rings_of(geometry))
    if not rings:
        yield "the geometry is not a Polygon or MultiPolygon"
    for role, ring in rings:
        yield from _check_ring(role, ring)
        for box in (outer, own):
            if _is_box(box) and not all(_in_box(position, box) for position in ring):
                yield "a position lies outside the bbox"


def _check_id(identifier: object, properties: Mapping[str, object]) -> Iterator[str]:
    cell, slot = properties.get("hex_id"), properties.get("slot")
    if not isinstance(cell, str):
        yield "hex_id is not text"
        return
    if identifier not in (cell, f"{cell}/{slot}"):
        yield "id is neither hex_id nor hex_id/slot"
    try:
        cells_from_text([cell])
    except DataError:
        yield "hex_id is not a cell"


def _check_status(properties: Mapping[str, object]) -> Iterator[str]:
    withheld = properties.get("status") == "withheld"
    if withheld and not properties.get("reason"):
        yield "withheld without a reason"
    for name in properties:
        if not name.startswith("speed_") or not name.endswith("_status"):
            continue
        stem = name.removesuffix("status")
        # a mechanism's noise may have no scale that is public
        numbers = [
            value
            for other, value in properties.items()
            if other.startswith(stem) and other != name and not other.endswith("_noise_scale")
        ]
        if withheld or properties[name] == "withheld":
            if any(value is not None for value in numbers):
                yield f"{stem}*: withheld, yet with a number"
        elif any(value is None for value in numbers):
            yield f"{stem}*: a number is missing though it is not withheld"


def _rings_of(geometry: Mapping[str, object]) -> Iterator[tuple[int, list[list[float]]]]:
    """Yield (0, exterior) and (1, 2, ... hole) rings of a Polygon or MultiPolygon."""
    coordinates = geometry.get("coordinates")
    if geometry.get("type") not in _RINGS or not isinstance(coordinates, Sequence):
        return
    polygons = [coordinates] if geometry["type"] == "Polygon" else coordinates
    for polygon in polygons:
        yield from enumerate(polygon)


def _check_ring(role: int, ring: list[list[float]]) -> Iterator[str]:
    if len(ring) < 4 or ring[0] != ring[-1]:
        yield "a ring is not closed"
        return
    if any(abs(x) > 180 or abs(y) > 90 for x, y in ring):
        yield "a position is off the globe"
    if any(round(value, 7) != value for position in ring for value in position):
        yield "a position has more than 7 decimals"
    spans = [abs(after[0] - before[0]) for before, after in pairwise(ring)]
    if max(spans) > 180 and not any(abs(y) == 90 for _, y in ring):
        yield "a ring crosses the antimeridian"
    (x, y), corners = ring[0], ring[1:]
    twice_area = sum(
        (before[0] - x) * (after[1] - y) - (after[0] - x) * (before[1] - y)
        for before, after in pairwise(corners)
    )
    if (twice_area > 0) != (role == 0):
        yield "a ring runs the wrong way round"


def _is_box(box: object) -> TypeGuard[list[float]]:
    return isinstance(box, list) and len(box) == 4 and all(isinstance(value, (int, float)) for value in box)


def _in_box(position: Sequence[float], box: Sequence[float]) -> bool:
    west, south, east, north = box
    longitude, latitude = position
    across = longitude >= west or longitude <= east
    return south <= latitude <= north and (west <= longitude <= east if west <= east else across)


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
    assert any("neither hex_id nor hex_id/slot" in problem for problem in check_geojson(document))


def test_text_that_is_no_cell_is_found(document):
    document["features"][0]["id"] = document["features"][0]["properties"]["hex_id"] = "872830828fffff0"
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


def test_every_release_passes(any_release):
    assert check_geojson(json.loads(geojson_bytes(any_release))) == []
