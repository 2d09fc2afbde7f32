from __future__ import annotations

import csv
import io
import json

import geopandas
import numpy as np
import pandas as pd
import pyarrow.parquet
import pyogrio
import pytest

from trafficdp.export.files import tables
from trafficdp.export.files.tables import to_geodataframe
from trafficdp.privacy.release import published_frame


def test_the_first_csv_column_is_h3(any_release):
    rows = list(csv.reader(io.StringIO(tables.csv_bytes(any_release).decode(), newline="")))
    assert rows[0][0] == "hex_id"
    assert len(rows) == any_release.bins + 1
    assert {len(row) for row in rows} == {len(rows[0])}


def test_csv_keeps_every_digit_of_the_published_table(any_release):
    read = pd.read_csv(io.BytesIO(tables.csv_bytes(any_release)))
    published = published_frame(any_release)
    for name in published.select_dtypes("float"):
        assert np.array_equal(read[name].to_numpy(dtype=float), published[name].to_numpy(), equal_nan=True)


def test_csv_lines_end_as_rfc_4180_says(city):
    content = tables.csv_bytes(city)
    assert content.count(b"\r\n") == content.count(b"\n") == city.bins + 1


def test_geoparquet_is_version_1_1_with_a_covering_box_in_crs84(fiji):
    content = tables.geoparquet_bytes(fiji)
    metadata = json.loads(pyarrow.parquet.read_metadata(io.BytesIO(content)).metadata[b"geo"])
    column = metadata["columns"]["geometry"]
    assert metadata["version"] == "1.1.0"
    assert column["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]
    assert column["crs"]["id"] == {"authority": "OGC", "code": "CRS84"}


def test_geoparquet_reads_back_as_the_published_table(any_release):
    read = geopandas.read_parquet(io.BytesIO(tables.geoparquet_bytes(any_release)))
    published = published_frame(any_release)
    assert (read.geometry.to_numpy() == to_geodataframe(any_release).geometry.to_numpy()).all()
    for name in published.select_dtypes("float"):
        assert np.array_equal(read[name].to_numpy(), published[name].to_numpy(), equal_nan=True)


def test_geopackage_reads_back_with_one_layer_and_its_styles(any_release, tmp_path):
    (tmp_path / "map.gpkg").write_bytes(tables.gpkg_bytes(any_release))
    layers = dict(pyogrio.list_layers(tmp_path / "map.gpkg").tolist())
    assert layers == {"trafficdp": "MultiPolygon", "layer_styles": None}
    read = geopandas.read_file(tmp_path / "map.gpkg", layer="trafficdp")
    assert len(read) == any_release.bins
    assert set(published_frame(any_release).columns) < set(read.columns)


def test_a_geopackage_is_dated_as_its_release_not_as_the_clock(city):
    content = tables.gpkg_bytes(city)
    assert b"2016-12-01T09:30:00.000Z" in content


def test_the_date_that_gdal_is_told_is_taken_back(city):
    before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
    tables.gpkg_bytes(city)
    assert pyogrio.get_gdal_config_option("OGR_CURRENT_DATE") == before


@pytest.mark.parametrize("render", [tables.csv_bytes, tables.geoparquet_bytes, tables.gpkg_bytes])
def test_the_same_release_gives_the_same_bytes(render, rush_hours):
    assert render(rush_hours) == render(rush_hours)
