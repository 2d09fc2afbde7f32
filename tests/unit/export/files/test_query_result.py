"""Rows of a query leave as CSV, Parquet, JSON and GeoJSON with every number whole."""

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import h3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from geojson_pydantic import FeatureCollection
from shapely.geometry import shape

from trafficdp.binning.cells import cells_from_text, polygons_of
from trafficdp.errors import DataError, UsageError
from trafficdp.export.files.query_result import FORMATS, cell_texts, json_rows, result_bytes, write_result

CELLS = ["8742d98a2ffffff", "8742d98b0ffffff"]
FIJI = h3.latlng_to_cell(-17.0, 180.0, 5)


def table(**columns):
    return pa.table(columns)


def features(rows):
    return json.loads(result_bytes(rows, "geojson"))


def test_csv_has_every_digit_and_an_empty_field_for_null():
    rows = table(hex_id=[*CELLS], mean=[0.1 + 0.2, None], text=['a,"b"', "c\nd"], many=[2**63 - 1, -1])
    text = result_bytes(rows, "csv").decode()
    assert text.startswith("hex_id,mean,text,many\r\n")
    assert list(csv.DictReader(io.StringIO(text, newline=""))) == [
        {"hex_id": CELLS[0], "mean": "0.30000000000000004", "text": 'a,"b"', "many": "9223372036854775807"},
        {"hex_id": CELLS[1], "mean": "", "text": "c\nd", "many": "-1"},
    ]


def test_parquet_gives_the_rows_back():
    rows = table(a=[1, None], b=["x", "y"], at=[datetime(2026, 3, 3, tzinfo=UTC)] * 2)
    assert pq.read_table(io.BytesIO(result_bytes(rows, "parquet"))).equals(rows)


def test_json_has_a_member_a_row():
    rows = table(a=[1, None], b=[{"x": [0.5, 2.5]}, None])
    assert json.loads(result_bytes(rows, "json")) == [
        {"a": 1, "b": {"x": [0.5, 2.5]}},
        {"a": None, "b": None},
    ]


def test_what_json_has_no_value_for_becomes_null_or_text():
    rows = table(
        infinite=[float("inf"), float("nan")],
        whole=[Decimal("6.000"), None],
        parts=[Decimal("0.125"), None],
        day=[date(2026, 3, 3), None],
        at=[datetime(2026, 3, 3, 7, tzinfo=UTC), None],
        blob=[b"\x00\xff", None],
        span=[timedelta(hours=1), None],
    )
    assert json_rows(rows)[0] == {
        "infinite": None,
        "whole": 6,
        "parts": 0.125,
        "day": "2026-03-03",
        "at": "2026-03-03T07:00:00+00:00",
        "blob": "00ff",
        "span": "1:00:00",
    }


def test_numbers_that_javascript_would_round_are_text_in_the_whole_column():
    numbers = pa.array([609161983194824703, 1], type=pa.uint64())
    assert [row["cell"] for row in json_rows(pa.table({"cell": numbers}))] == ["609161983194824703", "1"]
    exact = pa.array([2**53, -(2**53)])
    assert [row["n"] for row in json_rows(pa.table({"n": exact}))] == [2**53, -(2**53)]


def test_a_screen_shows_numbers_that_are_not_finite_as_such():
    assert cell_texts(table(x=[float("inf"), float("nan"), None, 1e22, 0.1]), "x") == [
        "inf",
        "nan",
        "",
        "1e+22",
        "0.1",
    ]


@pytest.mark.parametrize("format", ["csv", "json", "geojson"])
def test_a_time_beyond_every_calendar_is_our_error(format):
    at = pa.array([2**62], type=pa.timestamp("us"))
    with pytest.raises(DataError, match=r"column at.*CAST\(at AS VARCHAR\)"):
        result_bytes(pa.table({"hex_id": CELLS[:1], "at": at}), format)


@pytest.mark.parametrize("name", ["hex_id", "h3"])
def test_geojson_draws_the_hexagon_of_every_row(name):
    found = features(pa.table({name: CELLS, "speed_mean": [20.5, None]}))
    FeatureCollection.model_validate(found)
    assert "crs" not in found
    expected = polygons_of(cells_from_text(CELLS))
    for feature, cell, polygon, mean in zip(found["features"], CELLS, expected, [20.5, None], strict=True):
        assert feature["id"] == feature["properties"]["hex_id"] == cell
        assert feature["properties"]["speed_mean"] == mean
        drawn = shape(feature["geometry"])
        assert shapely.is_ccw(drawn.exterior)
        assert shapely.equals_exact(drawn, polygon, tolerance=1e-7)
    west, south, east, north = found["bbox"]
    assert (west, south) <= (east, north)


def test_geojson_takes_cells_that_are_numbers():
    numbers = pa.array([int(cell, 16) for cell in CELLS], type=pa.uint64())
    found = features(pa.table({"cell": numbers}))
    assert [each["properties"] for each in found["features"]] == [
        {"hex_id": cell, "cell": str(int(cell, 16))} for cell in CELLS
    ]


def test_several_rows_of_a_cell_have_ids_of_their_own_or_none():
    twice = CELLS[:1] * 2
    assert [each["id"] for each in features(table(hex_id=twice, slot=[7, 8]))["features"]] == [
        f"{CELLS[0]}/7",
        f"{CELLS[0]}/8",
    ]
    assert ["id" in each for each in features(table(hex_id=twice, slot=[7, 7]))["features"]] == [False, False]
    assert ["id" in each for each in features(table(hex_id=twice))["features"]] == [False, False]


def test_a_row_without_a_cell_has_no_geometry():
    found = features(table(hex_id=[None, CELLS[0]], n=[1, 2]))
    FeatureCollection.model_validate(found)
    first, second = found["features"]
    assert first["geometry"] is None
    assert "id" not in first
    assert first["properties"] == {"hex_id": None, "n": 1}
    assert second["id"] == CELLS[0]


def test_a_cell_on_the_antimeridian_is_cut():
    found = features(table(hex_id=[FIJI]))
    (feature,) = found["features"]
    assert feature["geometry"]["type"] == "MultiPolygon"
    assert found["bbox"][0] > found["bbox"][2]
    assert feature["bbox"] == found["bbox"]


def test_no_rows_make_an_empty_collection():
    assert features(pa.table({"hex_id": pa.array([], type=pa.string())})) == {
        "type": "FeatureCollection",
        "features": [],
    }


def test_geojson_without_cells_says_what_to_select():
    with pytest.raises(UsageError, match="columns slot, mean; expected one called hex_id"):
        result_bytes(table(slot=[1], mean=[2.0]), "geojson")


@pytest.mark.parametrize("cell", ["", "x", "ffffffffffffffff", "8742d98a2fffff", 0, -1, 1, 2.5, True])
def test_what_is_no_cell_is_refused(cell):
    with pytest.raises(DataError, match="H3 cells"):
        result_bytes(table(hex_id=[cell]), "geojson")


def test_an_unknown_format_is_refused():
    with pytest.raises(UsageError, match="csv, geojson, json, parquet"):
        result_bytes(table(a=[1]), "xlsx")


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_rows_are_the_same_bytes_and_the_file_has_them(format, tmp_path):
    rows = table(hex_id=CELLS, slot=[0, 0], x=np.array([1.5, 2.5]))
    size = write_result(rows, format, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == result_bytes(rows, format)
    assert size == (tmp_path / "out").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_refused_result_leaves_the_file_that_was_there(tmp_path):
    path = tmp_path / "out"
    path.write_text("before", encoding="utf-8")
    with pytest.raises(UsageError):
        write_result(table(a=[1]), "geojson", path)
    assert path.read_text(encoding="utf-8") == "before"
