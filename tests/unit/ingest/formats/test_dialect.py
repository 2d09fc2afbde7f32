"""CSV as Europe writes it, and a declaration that is suggested from the file itself."""

import json
import re
import shutil

import geopandas
import pandas as pd
import pytest

from trafficdp.cli.main import run
from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.formats import csv_files
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source
from trafficdp.model import Dialect, SourceDeclaration, SpeedUnit, UnitPeriod

COLUMNS = {"vehicle": "Fahrzeug", "time": "Zeit", "latitude": "Breite", "longitude": "Länge", "speed": "km/h"}
GERMAN = (
    "Fahrzeug;Zeit;Breite;Länge;km/h\n"
    "M-Ä 17;31.01.2026 23:59:01;48,137;11,575;1.043,5\n"
    "M-Ö 18;31.01.2026 23:59:02;48,138;11,576;50\n"
    '"M;19";31.01.2026 23:59:03;48,139;11,577;3.5\n'
)
EUROPE = Dialect(delimiter=";", decimal=",", thousands=".", encoding="cp1252")


def declared(dialect, **more):
    return SourceDeclaration(
        "buses",
        "csv",
        ("*",),
        (UnitPeriod(SpeedUnit.KILOMETRES_PER_HOUR),),
        COLUMNS,
        time_format="%d.%m.%Y %H:%M:%S",
        time_zone="Europe/Berlin",
        dialect=dialect,
        **more,
    )


def read_all(path, dialect):
    (records,) = csv_files.read_csv(InputFile(path), declared(dialect))
    return records


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_every_encoding_gives_the_same_records(tmp_path, encoding):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode(encoding))
    dialect = Dialect(delimiter=";", decimal=",", thousands=".", encoding=encoding)
    records = read_all(path, dialect)
    assert records.vehicle.to_pylist() == ["M-Ä 17", "M-Ö 18", "M;19"]
    assert records.latitude.tolist() == [48.137, 48.138, 48.139]
    # grouped digits, no decimals, and a point that groups nothing
    assert records.speed.tolist() == [1043.5, 50.0, 35.0]


def test_a_byte_order_mark_says_more_than_the_declaration(tmp_path):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode("utf-16"))
    assert len(read_all(path, Dialect(delimiter=";", decimal=",", thousands="."))) == 3


def test_a_point_beside_a_decimal_comma_is_no_number(tmp_path):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode())
    speeds = read_all(path, Dialect(delimiter=";", decimal=",")).speed
    assert speeds[1] == 50.0
    assert speeds[0] != speeds[0]
    assert speeds[2] != speeds[2]


def test_errors_say_what_to_type_next(tmp_path):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    with pytest.raises(DataError, match='encoding = "cp1252"'):
        read_all(path, Dialect(delimiter=";"))
    with pytest.raises(DataError, match='write delimiter = ";"'):
        read_all(path, Dialect(encoding="cp1252"))
    path.write_text("Fahrzeug\tZeit\n1\t2\n", encoding="utf-8")
    with pytest.raises(DataError) as error:
        read_all(path, Dialect())
    assert json.dumps("\t") in str(error.value)


def test_a_file_in_cp1252_needs_what_is_suggested_and_two_choices(tmp_path, declared_in):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    text = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*.csv")
    assert 'delimiter = ";"' in text
    assert 'decimal = ","' in text
    assert 'thousands = "."' in text
    assert 'encoding = "cp1252"' in text
    assert 'speed_unit = "km/h"' in text
    assert 'time_format = "%d.%m.%Y %H:%M:%S"' in text
    assert text.count('"CHOOSE"') == 1
    assert "48,137" not in text
    assert "M-" not in text
    chosen = text.replace('"CHOOSE"', '"Europe/Berlin"')
    source = declared_in(chosen)
    assert source.dialect == EUROPE
    assert dict(source.columns) == COLUMNS
    (records,) = csv_files.read_csv(InputFile(path), source)
    assert records.speed.tolist() == [1043.5, 50.0, 35.0]


@pytest.mark.parametrize(
    ("header", "row", "form", "offset"),
    [
        ("vehicle_id,timestamp,lat,lon,speed", "1,2026-01-31T10:00:00Z,1.5,2.5,3", "iso8601", True),
        (
            "License_Plate,observationDateTime,lat,lon,Speed (mph)",
            "1,2026-01-31T10:00:00Z,1.5,2.5,3",
            "iso8601",
            True,
        ),
        (
            "Kennzeichen,Zeitpunkt,Breite,Länge,Geschwindigkeit [mph]",
            "1,31.01.2026 10:00:00,1.5,2.5,3",
            "%d.%m.%Y %H:%M:%S",
            False,
        ),
        ("plate,ts,y,x,velocity", "1,1769853600,1.5,2.5,3", "epoch_s", True),
        ("device,time,latitude,lng,speed_mph", "1,1769853600000,1.5,2.5,3", "epoch_ms", True),
        ("bus,date_time,lat,lon,speed", "1,2026-01-31 10:00:00,1.5,2.5,3", "iso8601", False),
        ("bus,time,lat,lon,speed", "1,03/04/2026 10:00:00,1.5,2.5,3", None, False),
        ("bus,time,lat,lon,speed", "1,2014/8/3 21:18:46,1.5,2.5,3", "%Y/%m/%d %H:%M:%S", False),
    ],
)
def test_names_and_times_are_recognised(tmp_path, header, row, form, offset):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n{row}\n")
    found = suggest_source(InputFile(path))
    assert None not in found.columns.values()
    assert (found.time_format, found.offset) == (form, offset)
    assert found.dialect == Dialect()
    assert found.speed_unit == ("mph" if "mph" in header else None)


def test_what_may_number_rows_is_no_vehicle_and_flattened_gtfs_realtime_needs_no_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,time,lat,lon,speed\n1,2026-01-31T10:00:00Z,1.5,2.5,3\n")
    assert suggest_source(InputFile(path)).columns["vehicle"] is None
    path.write_text("id,vehicle.position.latitude,vehicle.timestamp\n1,1.5,1769853600\n")
    text = source_table_in_toml(suggest_source(InputFile(path)), "a", "*.csv")
    assert 'format = "gtfs_rt_csv"' in text
    assert "CHOOSE" not in text
    assert "columns" not in text


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('delimiter = ";;"', "what separates fields"),
        ('encoding = "klingon"', "an encoding such as"),
        ('encoding = "base64"', "an encoding such as"),
        ('decimal = ","\nthousands = ","', "another mark"),
    ],
)
def test_what_is_no_dialect_is_refused(tmp_path, declared_in, line, wanted):
    text = in_toml_of(tmp_path) + line + "\n"
    with pytest.raises(ConfigError, match=wanted):
        declared_in(text)


def in_toml_of(folder):
    path = folder / "a.csv"
    path.write_text("vehicle_id,timestamp,lat,lon,speed_mph\n1,2026-01-31T10:00:00Z,1.5,2.5,3\n2\n")
    return source_table_in_toml(suggest_source(InputFile(path)), "a", "*.csv")


def test_the_command_prints_lines_that_can_be_pasted(tmp_path, capsys):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    assert run(["suggest", str(path)]) == 0
    expected = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*.csv")
    assert capsys.readouterr().out.rstrip("\n") == expected.rstrip("\n")
    shutil.copy(path, tmp_path / "buses_of_the_next_day.csv")
    assert run(["suggest", *map(str, sorted(tmp_path.glob("*.csv")))]) == 0
    assert capsys.readouterr().out.rstrip("\n") == expected.rstrip("\n")


@pytest.mark.parametrize(
    "odd",
    [
        GERMAN.partition("\n")[0],
        '"M-1;31.01.2026 23:59:01;48,137;11,575;50',
        "x" * 200_000,
        "a\u2028b",
        ";;;;",
    ],
)
def test_one_odd_line_changes_no_suggestion(tmp_path, odd):
    usual, other = tmp_path / "usual.csv", tmp_path / "odd.csv"
    usual.write_text(GERMAN)
    header, *rows = GERMAN.splitlines()
    other.write_text("\n".join([header, odd, *rows, ""]))
    assert suggest_source(InputFile(other)) == suggest_source(InputFile(usual))


REAL_HEADERS = {
    # Rome's and Porto's taxis, Seattle's buses, MIT's shuttle and Chengdu's data have such names
    "tid,t,lat,lng,speed_kmh": ("tid", "t"),
    "uid,timestamp,lat,lon,speed_kmh": ("uid", "timestamp"),
    "VehicleNumber,DateTime,Latitude,Longitude,Speed_kmh": ("VehicleNumber", "DateTime"),
    "Plate,GPS_Time,LAT,LON,SPEED_KMH": ("Plate", "GPS_Time"),
    "vehicle_id,time_received,latitude,longitude,speed_kmh": ("vehicle_id", "time_received"),
    "vehicle_ref,recorded_at,latitude,longitude,speed_kmh": ("vehicle_ref", "recorded_at"),
}


@pytest.mark.parametrize("header", REAL_HEADERS)
def test_usual_names_of_vehicles_and_times_are_guessed(tmp_path, header):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n1,2026-01-31T10:00:00Z,1.5,2.5,3\n")
    text = source_table_in_toml(suggest_source(InputFile(path)), "a", "*.csv")
    assert "CHOOSE" not in text
    assert (
        suggest_source(InputFile(path)).columns["vehicle"],
        suggest_source(InputFile(path)).columns["time"],
    ) == (REAL_HEADERS[header])


@pytest.mark.parametrize(
    "row",
    [
        "M-1234,2026-01-31T10:00:00Z,48.1371,11.5755,50",
        "SECRET;31.01.2026 10:00;48,1371;11,5755;50",
        "366\t2008-02-02 15:36:08\t116.51172\t39.92123",
        "SECRET,10:00:01,a",
        "SECRET,1.5e-3",
        # all of it may be names of columns, as far as anybody can tell
        "SECRET 123,Monday noon,north of the river",
        "M-XY 42,Monday noon,north of the river",
        "SECRET;Monday noon;POINT(72.81234 21.21234)",
    ],
)
def test_a_record_in_the_first_line_is_never_printed(tmp_path, capsys, row):
    path = tmp_path / "a.csv"
    path.write_text(f"{row}\n{row}\n")
    assert run(["suggest", str(path)]) == 0
    said = capsys.readouterr()
    assert "header = false" in said.out
    fields = re.split("[,;\t]", row)
    assert not [field for field in fields if len(field) > 3 and field in said.out + said.err]


def test_units_in_brackets_are_part_of_names(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Bus,Time,lat,lon,Speed [km/h]\n1,2026-01-31T10:00:00Z,1.5,2.5,3\n")
    said = source_table_in_toml(suggest_source(InputFile(path)), "a", "*.csv")
    assert "# the columns of the file: Bus, Time, lat, lon, Speed [km/h]" in said


def test_a_repeated_column_is_refused_by_suggest_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("bus,time,lat,lon,speed,speed\n1,2026-01-31T10:00:00Z,1.5,2.5,3,4\n")
    with pytest.raises(DataError, match="two columns of one name; got speed"):
        suggest_source(InputFile(path))


def test_a_table_without_speeds_derives_them(tmp_path, declared_in):
    path = tmp_path / "a.csv"
    for content in ("bus,time,lat,lon\n1,2026-01-31T10:00:00Z,1.5,2.5\n",):
        path.write_text(content)
        text = source_table_in_toml(suggest_source(InputFile(path)), "a", "*.csv")
        source = declared_in(text)
        assert source.missing_speed == "derive"
        assert "speed" not in source.columns
    rows = ["1,2026-01-31T10:00:00Z,1.5,2.5,", "1,2026-01-31T10:00:00Z,1.5,2.5,NA"] * 2
    path.write_text("\n".join(["bus,time,lat,lon,speed_kmh", *rows, "1,2026-01-31T10:00:00Z,1.5,2.5,3"]))
    assert 'missing_speed = "derive"' in source_table_in_toml(suggest_source(InputFile(path)), "a", "*.csv")


@pytest.mark.parametrize(
    "header", ["FAHRZEUG;ZEIT;BREITE;LÄNGE;TEMPO", " Fahrzeug ; Zeit;Breite ;Länge;\tTempo "]
)
def test_capitals_and_spaces_in_a_header_are_no_matter(tmp_path, header):
    path = tmp_path / "buses.csv"
    _, *rows = GERMAN.splitlines()
    path.write_bytes("\n".join([header, *rows, ""]).encode("cp1252"))
    columns = dict(zip(COLUMNS, ("Fahrzeug", "Zeit", "Breite", "Länge", "Tempo"), strict=True))
    declared = SourceDeclaration(
        "buses", "csv", ("*",), (UnitPeriod(SpeedUnit.KILOMETRES_PER_HOUR),), columns, dialect=EUROPE,
        time_format="%d.%m.%Y %H:%M:%S", time_zone="Europe/Berlin",
    )  # fmt: skip
    (records,) = csv_files.read_csv(InputFile(path), declared)
    assert records.speed.tolist() == [1043.5, 50.0, 35.0]
    path.write_bytes("\n".join([f"{header};tempo", *(f"{row};1" for row in rows), ""]).encode("cp1252"))
    with pytest.raises(DataError, match="lacks the column Tempo"):
        list(csv_files.read_csv(InputFile(path), declared))


def test_geoparquet_and_timestamps_need_no_choice(tmp_path):
    points = geopandas.GeoDataFrame(
        {"bus": ["A"], "time": pd.to_datetime(["2026-01-31T10:00:00Z"]), "speed_kmh": [3.0]},
        geometry=geopandas.points_from_xy([2.5], [1.5]),
        crs=4326,
    )
    points.to_parquet(tmp_path / "a.parquet")
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "a.parquet")), "a", "*.parquet")
    assert "CHOOSE" not in text
    assert 'geometry = "geometry"' in text
    frame = pd.DataFrame({"bus": [1], "ts": [1769853600000], "lat": [1.5], "lon": [2.5], "mph": [3]})
    frame.to_parquet(tmp_path / "a.parquet")
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "a.parquet")), "a", "*.parquet")
    assert "CHOOSE" not in text
    assert 'time_format = "epoch_ms"' in text
    frame.assign(ts=pd.to_datetime(frame["ts"], unit="ms")).to_parquet(tmp_path / "a.parquet")
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "a.parquet")), "a", "*.parquet")
    assert text.count("CHOOSE") == 1
    assert 'time_zone = "CHOOSE"' in text


@pytest.mark.parametrize(
    ("content", "kind", "choices"),
    [
        ('{"data": {"telemetry": [{"device_id": "1", "timestamp": 1, "location": {}}]}}', "mds", 0),
        (
            '[{"license_plate": "1", "observationDateTime": "2026-01-31T10:00:00+05:30", "speed": 1}]',
            "iudx",
            1,
        ),
    ],
)
def test_json_of_a_known_kind_is_recognised(tmp_path, content, kind, choices):
    path = tmp_path / "a.json"
    path.write_text(content)
    text = source_table_in_toml(suggest_source(InputFile(path)), "a", "*.json")
    assert f'format = "{kind}"' in text
    assert text.count("CHOOSE") == choices
