"""A frame of any library gives the fixes that the same rows give as a file."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import duckdb
import geopandas
import polars
import pyarrow as pa
import pytest

from trafficdp.errors import ConfigError, DataError, UsageError
from trafficdp.ingest.read import read_file

START = datetime(2020, 11, 28, 6, 30, tzinfo=UTC)
ROWS = 40


@pytest.fixture
def table():
    """Forty rows of three vehicles; one without a plate, one without a speed, a column that nobody reads."""
    plates = [f"A{row % 3}" for row in range(ROWS)]
    return pa.table(
        {
            "note": ["x"] * ROWS,
            "v": pa.array([None if row == 7 else 30 + row / 4 for row in range(ROWS)], pa.float64()),
            "lat": [21.2 + row / 1000 for row in range(ROWS)],
            "lng": [72.8 + row / 1000 for row in range(ROWS)],
            "plate": pa.array([None, *plates[1:]], pa.string()),
            "when": pa.array([START + timedelta(seconds=10 * row) for row in range(ROWS)]),
        }
    )


def odd(table):
    """Return it for pandas, beside a column of objects that Arrow knows no type for."""
    return table.to_pandas().assign(odd=[{1}, "two", *[3] * (ROWS - 2)])


def points(table, crs):
    frame = table.to_pandas()
    place = geopandas.points_from_xy(frame.lng, frame.lat)
    return geopandas.GeoDataFrame(frame.drop(columns=["lat", "lng"]), geometry=place, crs=4326).to_crs(crs)


KINDS = {
    "pandas.DataFrame": odd,
    "polars.DataFrame": polars.from_arrow,
    "pyarrow.Table": lambda table: table,
    "pyarrow.RecordBatchReader": lambda table: pa.RecordBatchReader.from_batches(
        table.schema, table.to_batches(max_chunksize=7)
    ),
    "duckdb.DuckDBPyRelation": lambda table: duckdb.connect().from_arrow(table).order('"when"'),
    "geopandas.GeoDataFrame": lambda table: points(table, 4326),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_of_any_library_is_read_like_a_file(reader, table, kind):
    path = reader.folder / "day.csv"
    table.to_pandas().to_csv(path, index=False)
    expected = reader.file(path)
    told = []
    read = read_file(KINDS[kind](table), reader.source, reader.area, reader.key, progress=told.append)
    assert read.fixes.table.equals(expected.fixes.table)
    assert read.report == replace(expected.report, file=kind)
    assert read.report.rows_kept == ROWS - 2
    assert sum(told) > 0


def test_points_in_any_reference_system_are_the_same_points(reader, table):
    degrees = reader.file(points(table, 4326)).fixes.table
    metres = reader.file(points(table, 32643)).fixes.table
    for name in ("latitude", "longitude"):
        gap = pa.compute.subtract(degrees.column(name), metres.column(name))
        assert max(map(abs, gap.to_pylist())) < 1e-8
    assert degrees.drop(["latitude", "longitude"]).equals(metres.drop(["latitude", "longitude"]))


def test_a_geometry_of_another_name_is_found(reader, table):
    renamed = points(table, 4326).rename_geometry("where")
    assert reader.file(renamed).fixes.table.equals(reader.file(points(table, 4326)).fixes.table)


def test_equal_rows_have_one_digest_however_they_are_cut(reader, table):
    digests = {
        reader.file(frame).digest
        for frame in (table, pa.concat_tables([table[:13], table[13:]]), table.drop(["note"]))
    }
    assert len(digests) == 1
    assert reader.file(table[1:]).digest not in digests


def test_what_cannot_be_read_is_told_without_its_values(reader, table):
    for given, message in (
        (table.drop(["v"]), "pyarrow.Table lacks the column v"),
        (table.drop(["v"]).to_pandas(), "pandas.DataFrame lacks the column v"),
        (table[:0], "pyarrow.Table has no rows"),
        (odd(table).drop(columns="v").rename(columns={"odd": "v"}), "one type"),
        (points(table, 4326).set_crs(None, allow_override=True), "reference system"),
        (table.set_column(1, "v", [[True] * ROWS]), "speed column of pyarrow.Table has the wrong type"),
    ):
        with pytest.raises(DataError, match=message) as raised:
            reader.file(given)
        assert "two" not in str(raised.value)
        assert "A1" not in str(raised.value)


def test_what_is_no_frame_is_refused(reader, table):
    with pytest.raises(UsageError, match="a path, a pandas, polars or Arrow frame"):
        reader.file(7)
    with pytest.raises(UsageError, match="reads tides files"):
        reader.file(table, format="tides", columns={})
    with pytest.raises(ConfigError, match="which column is the time"):
        reader.file(table, columns={"vehicle": "plate"})
