from __future__ import annotations

import csv
import io
import json
import zipfile

import geopandas
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pyogrio
import pytest

from trafficdp.errors import StoreUnavailableError
from trafficdp.export.files import gis_formats, tables
from trafficdp.export.files.tables import INSTANTS, to_geodataframe
from trafficdp.model import SpeedUnit, Statistic
from trafficdp.privacy.estimate import POSTERIOR_SHARES, POSTERIOR_SPEEDS
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
    (tmp_path / "map.gpkg").write_bytes(gis_formats.gpkg_bytes(any_release))
    layers = dict(pyogrio.list_layers(tmp_path / "map.gpkg").tolist())
    assert layers == {"trafficdp": "MultiPolygon", "layer_styles": None}
    read = geopandas.read_file(tmp_path / "map.gpkg", layer="trafficdp")
    assert len(read) == any_release.bins
    assert {*filled(any_release)} < {*read.columns}
    if "slot_start" in read:
        assert (read.slot_start == to_geodataframe(any_release).slot_start).all()


def filled(release):
    """The columns of a release that are not empty by what is released."""
    table = published_frame(release)
    plain = ("resolution", *INSTANTS, "vehicles", "records")
    return [name for name in table if name not in plain or table[name].notna().any()]


def test_empty_columns_of_parquet_have_their_type(any_release):
    schema = pyarrow.parquet.read_schema(io.BytesIO(tables.geoparquet_bytes(any_release)))
    assert not [field.name for field in schema if pyarrow.types.is_null(field.type)]
    assert {schema.field(name).type for name in INSTANTS} == {pyarrow.timestamp("ms", "America/Chicago")}
    assert {schema.field(name).type for name in ("vehicles", "records")} == {pyarrow.int64()}


def test_flatgeobuf_has_every_bin_and_its_instants(any_release, tmp_path):
    (tmp_path / "map.fgb").write_bytes(gis_formats.flatgeobuf_bytes(any_release))
    read = geopandas.read_file(tmp_path / "map.fgb").sort_values(["hex_id", "slot"], ignore_index=True)
    made = to_geodataframe(any_release)
    assert [*read.columns] == [*filled(any_release), "geometry"]
    assert read.hex_id.tolist() == made.hex_id.tolist()
    assert (read.speed_mean_kmh.to_numpy() == made.speed_mean_kmh.to_numpy()).sum() == (
        made.speed_mean_kmh.notna().sum()
    )
    if "slot_start" in read:
        assert (read.slot_start == made.slot_start).all()
    # as a reader on the web does: a part of the file by its index
    west, south, _, north = made.total_bounds
    part = geopandas.read_file(tmp_path / "map.fgb", bbox=(west, south, west + 0.01, north))
    assert 0 < len(part) <= len(read)


@pytest.mark.slow
def test_every_bin_is_in_the_tiles_of_every_zoom(any_release, tmp_path):
    path = tmp_path / "map.pmtiles"
    path.write_bytes(gis_formats.pmtiles_bytes(any_release))
    assert path.read_bytes()[:8] == b"PMTiles\x03"
    about = pyogrio.read_info(path)["dataset_metadata"]
    published = published_frame(any_release)
    # Web Mercator ends before the poles
    middle = to_geodataframe(any_release).cx[:, -80:80]
    expected = set(zip(middle.hex_id, middle.slot, middle.speed_mean_kmh.fillna(-1), strict=True))
    for zoom in range(int(about["minzoom"]), int(about["maxzoom"]) + 1):
        read = pyogrio.read_dataframe(path, ZOOM_LEVEL=zoom)
        assert [*read.columns[1:-1]] == filled(any_release)
        found = set(zip(read.hex_id, read.slot, read.speed_mean_kmh.fillna(-1), strict=True))
        assert expected <= found
        assert len({each[:2] for each in found}) <= len(published)


def test_tiles_reach_from_the_whole_map_to_one_cell(city, tmp_path):
    path = tmp_path / "map.pmtiles"
    path.write_bytes(gis_formats.pmtiles_bytes(city))
    about = pyogrio.read_info(path)["dataset_metadata"]
    # 0.24 degrees wide, cells of 0.028
    assert (about["minzoom"], about["maxzoom"]) == ("10", "11")


def test_a_shapefile_says_what_its_short_names_mean(any_release, tmp_path):
    path = tmp_path / "map.zip"
    path.write_bytes(gis_formats.shapefile_bytes(any_release))
    read, published = geopandas.read_file(path), published_frame(any_release)
    with zipfile.ZipFile(path) as archive:
        lines = archive.read("columns.txt").decode("utf-8").splitlines()
    names = {short: (name, unit) for short, name, unit, _ in (line.split("\t") for line in lines)}
    assert [*names] == [*read.columns[:-1]]
    assert [name for name, _ in names.values()] == filled(any_release)
    assert names["mean_kmh"] == ("speed_mean_kmh", "km/h")
    for short, (name, _) in names.items():
        expected = published[name].astype(object).where(published[name].notna(), None).tolist()
        assert read[short].astype(object).where(read[short].notna(), None).tolist() == expected


def test_short_names_are_all_different_and_no_longer_than_ten():
    for unit in SpeedUnit:
        names = ["hex_id", "place", "resolution", "slot", "slot_kind", "slot_label", *INSTANTS, "status"]
        for each in Statistic:
            ends = ("low", "high", "noise_scale", "expected_error", "rank_low", "rank_high")
            name = each.column(unit)
            names += [name, *(f"{name}_{end}" for end in (*ends, *POSTERIOR_SPEEDS))]
            names += [f"{each.stem}_{end}" for end in (*POSTERIOR_SHARES, "status", "interval_kind")]
        short = [gis_formats.short_name(name) for name in names]
        assert len({each.lower() for each in short}) == len(names)
        assert max(map(len, short)) == 10


def test_a_full_disk_of_temporary_files_is_no_bug(city, monkeypatch):
    def full(*_, **__):
        raise pyogrio.errors.DataSourceError("no space")

    monkeypatch.setattr(pyogrio, "write_dataframe", full)
    with pytest.raises(StoreUnavailableError, match="TMPDIR"):
        gis_formats.shapefile_bytes(city)


def test_a_geopackage_is_dated_as_its_release_not_as_the_clock(city):
    content = gis_formats.gpkg_bytes(city)
    assert b"2016-12-01T09:30:00.000Z" in content


def test_the_date_that_gdal_is_told_is_taken_back(city):
    before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
    gis_formats.gpkg_bytes(city)
    assert pyogrio.get_gdal_config_option("OGR_CURRENT_DATE") == before


@pytest.mark.parametrize(
    "render",
    [
        tables.csv_bytes,
        tables.geoparquet_bytes,
        gis_formats.gpkg_bytes,
        gis_formats.flatgeobuf_bytes,
        gis_formats.pmtiles_bytes,
        gis_formats.shapefile_bytes,
    ],
)
def test_the_same_release_gives_the_same_bytes(render, rush_hours):
    assert render(rush_hours) == render(rush_hours)
