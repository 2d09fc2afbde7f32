"""GeoPackage: points in any reference system, of the only layer or of the one that is declared."""

import sqlite3
import struct

import geopandas as gpd
import numpy as np
import pytest
import shapely

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.formats import geopackage
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source

COLUMNS = {"vehicle": "plate", "time": "time", "speed": "speed_kmh"}
TIMES = [f"2020-11-28T12:{minute:02}:00+05:30" for minute in range(5)]


def fixes(system=4326, **more):
    columns = {"plate": ["A1", "A1", "B2", "B2", "C 3"], "time": TIMES, "speed_kmh": [30.0, 36, 0, 3.6, None]}
    place = gpd.points_from_xy(np.linspace(72.8, 72.9, 5), np.full(5, 21.2))
    return gpd.GeoDataFrame(columns | more, geometry=place, crs=4326).to_crs(system)


def written(reader, frame, layer="fixes", name="day.gpkg"):
    frame.to_file(reader.folder / name, layer=layer, driver="GPKG", mode="w")
    return reader.folder / name


def rows(read):
    return [list(row.values())[1:] for row in read.fixes.table.to_pylist()]


def declared(**more):
    return {"format": "gpkg", "columns": COLUMNS} | more


def test_points_are_the_places_in_any_reference_system(reader):
    lines = [
        f"{plate},{at},21.2,{72.8 + number / 40},{speed}"
        for number, (plate, at, speed) in enumerate(
            zip(*(fixes()[each] for each in COLUMNS.values()), strict=True)
        )
    ]
    wanted = reader.rows(*lines)
    for system in (4326, 32643, 3857):
        read = reader.file(written(reader, fixes(system)), **declared())
        assert read.report.rejected == {"missing_speed": 1}
        assert read.fixes.table["vehicle"].equals(wanted.fixes.table["vehicle"])
        for ours, theirs in zip(rows(read), rows(wanted), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-7)


def test_in_blocks_it_is_the_same(reader, monkeypatch):
    path = written(reader, fixes())
    whole = reader.file(path, **declared())
    monkeypatch.setattr(geopackage, "ROWS", 2)
    assert reader.file(path, **declared()).fixes.table.equals(whole.fixes.table)


def test_times_that_gdal_writes_bear_their_offset_or_none(reader):
    import pandas as pd

    zoned = pd.to_datetime(TIMES)
    path = written(reader, fixes(time=zoned))
    told = rows(reader.file(path, **declared()))
    assert [row[0] for row in told] == [int(at.timestamp()) * 1_000_000 for at in zoned[:4]]
    naive = written(reader, fixes(time=zoned.tz_localize(None)))
    with pytest.raises(DataError, match="not a single"):
        reader.file(naive, **declared())
    assert rows(reader.file(naive, **declared(time_zone="Asia/Kolkata"))) == told


def test_what_is_suggested_reads(reader, declared_in):
    path = written(reader, fixes())
    text = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*.gpkg")
    assert "CHOOSE" not in text
    assert "records" not in text
    assert "A1" not in text
    source = declared_in(text)
    assert dict(source.columns) == COLUMNS
    fixes().to_file(path, layer="older", driver="GPKG", mode="a")
    areas = gpd.GeoDataFrame({"name": ["a"]}, geometry=[shapely.box(72, 21, 73, 22)], crs=4326)
    areas.to_file(path, layer="zones", driver="GPKG", mode="a")
    assert 'records = "fixes"' in source_table_in_toml(suggest_source(InputFile(path)), "buses", "*.gpkg")
    with pytest.raises(DataError, match="which layer\\?; got fixes, older; expected records"):
        reader.file(path, **declared())
    with pytest.raises(DataError, match="no layer of points called zones"):
        reader.file(path, **declared(records="zones"))
    assert reader.file(path, **declared(records="older")).report.rows_kept == 4


def test_an_operator_is_a_part_of_the_vehicle(reader):
    path = written(reader, fixes(company=["X", "Y", "X", "X", None]))
    read = reader.file(path, **declared(columns=COLUMNS | {"operator": "company"}, missing_speed="derive"))
    told = read.fixes.table["vehicle"].to_pylist()
    assert {*told} <= {*reader.key.pseudonyms(["X/A1", "Y/A1", "X/B2"], "").to_pylist()}
    assert read.report.rejected["missing_operator"] == 1


ODD = [
    "'a'",
    "7",
    "-1.5e300",
    "x'00'",
    "NULL",
    "cast(x'ff' as text)",
    "'" + "9" * 5000 + "'",
    "zeroblob(100000)",
    "''",
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("column", ["plate", "time", "speed_kmh", "geom"])
def test_what_one_row_holds_is_no_matter_for_another(reader, column, odd):
    path = written(reader, fixes())
    usual = rows(reader.file(path, **declared()))
    with sqlite3.connect(path) as database:
        # the triggers call functions that only GDAL has
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute(f"UPDATE fixes SET {column} = {odd} WHERE fid = 5")
    database.close()
    read = reader.file(path, **declared())
    assert (rows(read)[:4], read.report.rows_in) == (usual, 5)


def test_geometries_of_other_kinds_are_no_places(reader):
    point = struct.pack("<BIdd", 1, 1, 72.8, 21.2)
    assert geopackage._wkb(b"GP\0\x01" + bytes(4) + point) == point
    assert geopackage._wkb(b"GP\0\x03" + bytes(4 + 32) + point) == point
    for blob in (b"", b"GP", b"XX\0\x01" + bytes(4) + point, b"GP\0\x21" + bytes(4) + point, "GP", None, 7):
        assert geopackage._wkb(blob) is None


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"x" * 200, b"SQLite f", b"plate,at\n"])
def test_what_is_no_geopackage_is_refused(reader, content):
    path = reader.write(content, "day.gpkg")
    with pytest.raises(DataError, match="GeoPackage"):
        reader.file(path, **declared())


def test_another_database_and_views_are_no_layers(reader):
    path = reader.folder / "other.gpkg"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE fixes (a)")
    database.close()
    for read in (lambda: suggest_source(InputFile(path)), lambda: reader.file(path, **declared())):
        with pytest.raises(DataError, match="damaged GeoPackage, or another SQLite database"):
            read()
    path = written(reader, fixes())
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE fixes RENAME TO hidden")
        database.execute("UPDATE gpkg_geometry_columns SET table_name = 'v'")
        database.execute("CREATE VIEW v AS SELECT * FROM hidden")
    database.close()
    with pytest.raises(DataError, match="no layer of points"):
        reader.file(path, **declared())


def test_points_nowhere_on_earth_are_refused(reader):
    path = written(reader, fixes())
    with sqlite3.connect(path) as database:
        database.execute("UPDATE gpkg_geometry_columns SET srs_id = 0")
    database.close()
    with pytest.raises(DataError, match="reference system the points of fixes are; got NONE:0"):
        reader.file(path, **declared())


def test_another_format_is_not_tried(reader):
    path = written(reader, fixes())
    with pytest.raises(
        DataError, match=r"day\.gpkg is a GeoPackage, or another SQLite database; expected csv"
    ):
        reader.file(path)


def test_a_position_is_no_column_of_it(declared_in):
    lines = '[[source]]\nname = "a"\nfiles = ["*"]\nformat = "gpkg"\nspeed_unit = "m/s"\n'
    with pytest.raises(ConfigError, match="a layer has its points"):
        declared_in(lines + 'columns = { vehicle = "a", time = "b", geometry = "geom", speed = "v" }\n')
