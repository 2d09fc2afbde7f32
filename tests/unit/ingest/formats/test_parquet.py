from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from datetime import datetime

import geopandas
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import shapely
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import DataError
from trafficdp.ingest.formats.parquet import unpacked_sizes
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source

WHEN = datetime(2020, 11, 28, 6, 30)
GEOMETRY = {"vehicle": "plate", "time": "when", "geometry": "geometry", "speed": "v"}


@pytest.fixture
def source(source):
    return replace(source, format="parquet")


def write(reader, *, metadata=None, **columns):
    table = pa.table(
        {
            "plate": ["A1"],
            "when": pa.array([WHEN], pa.timestamp("us", "UTC")),
            "lat": [21.2],
            "lng": [72.8],
            "v": [30.0],
        }
        | columns
    )
    path = reader.folder / "day.parquet"
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)
    return path


def write_points(reader, points, crs, **options):
    frame = geopandas.GeoDataFrame(
        {
            "plate": ["A1"] * len(points),
            "when": ["2020-11-28T06:30:00Z"] * len(points),
            "v": np.arange(len(points)),
        },
        geometry=points,
        crs=crs,
    )
    path = reader.folder / "day.parquet"
    frame.to_parquet(path, **options)
    return path


def facts(result):
    table = result.fixes.table
    return [table.column(name).to_pylist()[0] for name in ("time_us", "latitude", "longitude", "speed_centi")]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"plate": pa.array(["A1"], pa.large_string())},
        {"plate": pa.array(["A1"]).dictionary_encode()},
        {"when": pa.array([WHEN], pa.timestamp("ns", "America/Chicago"))},
        {"when": ["2020-11-28T12:00:00+05:30"]},
        {"lat": ["21.2"], "v": ["30"]},
        {"lat": pa.array(["21.2"]).cast(pa.decimal128(8, 4)), "v": pa.array([30], pa.int8())},
    ],
)
def test_columns_of_any_fitting_type_are_read(reader, columns, key):
    result = reader.file(write(reader, **columns))
    assert facts(result) == [1606545000_000000, 21.2, 72.8, 3000]
    assert (
        result.fixes.table.column("vehicle").to_pylist() == key.pseudonyms(pa.array(["A1"]), "").to_pylist()
    )


def test_a_declared_operator_belongs_to_the_identifier(reader, key):
    rows = {"plate": [7, 7], "when": [1606545000] * 2, "lat": [21.2] * 2, "lng": [72.8] * 2, "v": [3.0] * 2}
    table = pyarrow.table(rows | {"agency": pyarrow.array(["X", None]).dictionary_encode()})
    pyarrow.parquet.write_table(table, reader.folder / "day.parquet")
    columns = {**reader.source.columns, "operator": "agency"}
    for feed in (reader.folder / "day.parquet", table):
        result = reader.file(feed, format="parquet", columns=columns, time_format="epoch_s")
        assert result.fixes.table["vehicle"].to_pylist() == key.pseudonyms(["X/7"], "").to_pylist()
        assert result.report.rejected == {"missing_operator": 1}


def test_whole_float_identifiers_are_text_without_a_point(reader, key):
    result = reader.file(write(reader, plate=[2010.0]))
    assert (
        result.fixes.table.column("vehicle").to_pylist() == key.pseudonyms(pa.array(["2010"]), "").to_pylist()
    )


def test_naive_timestamps_take_the_declared_zone(reader):
    path = write(reader, when=pa.array([datetime(2020, 11, 28, 12)], pa.timestamp("us")))
    with pytest.raises(DataError, match="set time_zone"):
        reader.file(path)
    assert facts(reader.file(path, time_zone="Asia/Kolkata"))[0] == 1606545000_000000


def test_epoch_numbers_are_read(reader):
    assert facts(reader.file(write(reader, when=[1606545000]), time_format="epoch_s"))[0] == 1606545000_000000


def test_a_null_speed_is_missing_and_nan_is_unreadable(reader):
    assert reader.file(write(reader, v=pa.array([None], pa.float64()))).report.rejected == {
        "missing_speed": 1
    }
    assert reader.file(write(reader, v=[float("nan")])).report.rejected == {"unreadable_speed": 1}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"plate": [b"A"]}, "cannot hold vehicle identifiers"),
        ({"when": pa.array([1], pa.date32())}, "time column of day.parquet has the wrong type"),
        ({"lat": [[21.2]]}, "latitude column of day.parquet has the wrong type"),
        ({"v": [True]}, "speed column of day.parquet has the wrong type"),
        ({"v": pa.array([], pa.float64()), "plate": [], "when": [], "lat": [], "lng": []}, "has no rows"),
    ],
)
def test_columns_of_a_wrong_type_are_refused(reader, columns, message):
    with pytest.raises(DataError, match=message):
        reader.file(write(reader, **columns))


def test_a_missing_column_is_named(reader):
    with pytest.raises(DataError, match="lacks the column speed; got the columns plate, when, lat, lng, v"):
        reader.file(write(reader), columns={**GEOMETRY, "speed": "speed", "geometry": "lat"})


@pytest.mark.parametrize("crs", ["OGC:CRS84", "EPSG:4326", "EPSG:3857", "EPSG:32643"])
def test_geoparquet_points_end_as_degrees_whatever_their_system(reader, crs):
    points = geopandas.GeoSeries([shapely.Point(72.8, 21.2)], crs="EPSG:4326").to_crs(crs)
    found = facts(reader.file(write_points(reader, points, crs), columns=GEOMETRY))
    assert found[1:3] == pytest.approx([21.2, 72.8], abs=1e-9)


@pytest.mark.parametrize("crs", ["OGC:CRS84", "EPSG:3857"])
def test_native_points_are_read_like_those_in_wkb(reader, crs):
    points = geopandas.GeoSeries([shapely.Point(72.8, 21.2), None], crs="EPSG:4326").to_crs(crs)
    frame = geopandas.GeoDataFrame(
        {"plate": ["A1", "B2"], "when": ["2020-11-28T12:00:00Z"] * 2, "v": [30.0, 40.0]}, geometry=points
    )
    for encoding in ("WKB", "geoarrow"):
        frame.to_parquet(reader.folder / "day.parquet", geometry_encoding=encoding)
        read = reader.file(reader.folder / "day.parquet", format="parquet", columns=GEOMETRY)
        assert facts(read)[1:3] == pytest.approx([21.2, 72.8], abs=1e-9)
        assert read.report.rejected == {"missing_position": 1}
    kept = source_table_in_toml(suggest_source(InputFile(reader.folder / "day.parquet")), "a", "*.parquet")
    assert 'geometry = "geometry"' in kept


def test_a_struct_that_is_no_point_is_refused(reader):
    table = pa.table({"plate": ["A1"], "when": [1.0], "v": [3.0], "geometry": [{"x": 1.0, "y": [1.0]}]})
    pyarrow.parquet.write_table(table, reader.folder / "day.parquet")
    with pytest.raises(DataError, match=r"the geometry column of .* has the wrong type"):
        reader.file(reader.folder / "day.parquet", format="parquet", columns=GEOMETRY)


def test_geoparquet_without_a_system_is_longitude_and_latitude(reader):
    geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    path = write(
        reader, geometry=[shapely.to_wkb(shapely.Point(72.8, 21.2))], metadata={"geo": json.dumps(geo)}
    )
    assert facts(reader.file(path, columns=GEOMETRY))[1:3] == [21.2, 72.8]


def test_plain_wkb_without_metadata_is_longitude_and_latitude(reader):
    path = write(reader, geometry=[shapely.to_wkb(shapely.Point(72.8, 21.2))])
    assert facts(reader.file(path, columns=GEOMETRY))[1:3] == [21.2, 72.8]


def test_a_system_stated_to_be_unknown_is_refused(reader):
    path = write_points(reader, [shapely.Point(72.8, 21.2)], None)
    with pytest.raises(DataError, match="reference system of geometry is unknown"):
        reader.file(path, columns=GEOMETRY)


@pytest.mark.parametrize(
    "geo",
    ["{", "[]", "[" * 5000 + "]" * 5000, '{"columns": {"geometry": {"crs": "EPSG:0"}}}', '{"columns": 3}'],
)
def test_broken_geoparquet_metadata_is_refused(reader, geo):
    path = write(reader, geometry=[shapely.to_wkb(shapely.Point(72.8, 21.2))], metadata={"geo": geo})
    with pytest.raises(DataError, match=r"metadata of day\.parquet cannot be read"):
        reader.file(path, columns=GEOMETRY)


def test_what_is_no_point_has_no_position(reader):
    shapes = [
        shapely.Point(72.8, 21.2),
        None,
        shapely.Point(),
        shapely.LineString([(72.8, 21.2), (72.9, 21.2)]),
    ]
    result = reader.file(write_points(reader, shapes, "EPSG:4326"), columns=GEOMETRY)
    assert result.report.rejected == {"missing_position": 3}
    broken = write(reader, geometry=[b"\x01\x02"])
    assert reader.file(broken, columns=GEOMETRY).report.rejected == {"missing_position": 1}


def test_a_truncated_and_a_false_parquet_are_refused(reader):
    path = write(reader)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="damaged Parquet"):
        reader.file(path)
    with pytest.raises(DataError, match="not a Parquet file"):
        reader.file(reader.write("plate,when\n", "day.parquet"))


def test_a_name_that_is_not_utf8_is_refused_and_a_value_is_missing(reader):
    content = write(reader, plate=["PLATE"]).read_bytes()
    path = reader.folder / "damaged.parquet"
    path.write_bytes(content.replace(b"plate", b"pl\xe4te"))
    with pytest.raises(DataError, match="damaged Parquet"):
        reader.file(path)
    path.write_bytes(content.replace(b"PLATE", b"PL\xe4TE"))
    assert reader.file(path).report.rejected == {"missing_vehicle": 1}


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
def test_a_damaged_file_ends_in_a_report_or_in_our_errors(reader, data):
    content = bytearray(write(reader).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = reader.folder / "damaged.parquet"
    path.write_bytes(bytes(content))
    with contextlib.suppress(DataError):
        assert reader.file(path).report.rows_in == 1


def test_two_columns_of_one_name_are_refused(reader):
    path = write(reader)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(table.append_column("v", table.column("v")), path)
    with pytest.raises(DataError, match=r"has two columns of one name; got v; expected .*; rename or drop"):
        reader.file(path)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_as_large_as_their_headers_say(tmp_path, version):
    rows = 5000
    table = pa.table({"n": np.arange(rows), "text": ["x" * 90] * rows, "last": np.zeros(rows)})
    pyarrow.parquet.write_table(
        table, tmp_path / "p", compression="zstd", use_dictionary=["text"], data_page_version=version
    )
    with open(tmp_path / "p", "rb") as file:
        (number,) = unpacked_sizes(file, [0])
        dictionary, indices = unpacked_sizes(file, [1])
        assert len(list(unpacked_sizes(file, [0, 1, 2]))) == 4
    assert 8 * rows <= number < 8 * rows + 100
    assert 90 <= dictionary < 100
    assert indices < 100


def pages(reader, **columns):
    """Pages that pack well: as many rows as ``columns`` have."""
    rows = max(map(len, columns.values()))
    same = {"plate": "A1", "when": WHEN, "lat": 21.2, "lng": 72.8, "v": 30.0}
    table = pa.table({name: pa.repeat(pa.scalar(value), rows) for name, value in same.items()} | columns)
    path = reader.folder / "day.parquet"
    pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=True)
    return path


@pytest.mark.slow
def test_pages_that_unpack_to_far_more_than_the_file_are_refused_unread(reader, monkeypatch):
    path = pages(reader, plate=pa.array(["A" * (24 << 20)]))
    assert path.stat().st_size < 1 << 16
    monkeypatch.setattr("pyarrow.parquet.ParquetFile", None)
    with pytest.raises(DataError, match="unpacks to more than records can"):
        reader.file(path)
    monkeypatch.setattr("trafficdp.ingest.formats.parquet._LARGEST_PAGE", 1 << 20)
    with pytest.raises(DataError, match="a page that is too large to unpack"):
        reader.file(path)


def test_rows_and_texts_that_repeat_without_end_are_refused(reader):
    with pytest.raises(DataError, match="unpacks to more than records can"):
        reader.file(pages(reader, v=np.full(600_000, 30.0)))
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2000, np.int32)), ["A" * 50_000])
    with pytest.raises(DataError, match="unpacks to more than records can"):
        reader.file(pages(reader, plate=text))


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.struct([("lat", pa.float64())])])
def test_columns_whose_entries_have_any_size_are_refused_unread(reader, kind):
    with pytest.raises(DataError, match="the latitude column of"):
        reader.file(write(reader, lat=pa.array([None], kind)))
