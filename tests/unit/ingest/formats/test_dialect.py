"""CSV as Europe writes it, and a declaration that is suggested from the file itself."""

import json
import shutil

import pytest

from trafficdp.cli.main import run
from trafficdp.config.file import load_config
from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.formats import csv_files
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import in_toml, suggest
from trafficdp.model import Dialect, SourceDeclaration, SpeedUnit, UnitPeriod

COLUMNS = {"vehicle": "Fahrzeug", "time": "Zeit", "latitude": "Breite", "longitude": "Länge", "speed": "km/h"}
GERMAN = (
    "Fahrzeug;Zeit;Breite;Länge;km/h\n"
    "M-Ä 17;31.01.2026 23:59:01;48,137;11,575;1.043,5\n"
    "M-Ö 18;31.01.2026 23:59:02;48,138;11,576;50\n"
    '"M;19";31.01.2026 23:59:03;48,139;11,577;3.5\n'
)
CITY = """
[city]
name = "Munich"
publisher = "City of Munich"
time_zone = "Europe/Berlin"
study_area = { bbox = [11.3, 48.0, 11.8, 48.3] }
period = { from = 2026-01-31, to = 2026-01-31 }
[privacy]
relation = "replace_user_values"
[budget]
epsilon_per_vehicle = 8
[map]
resolution = 7
speed_bound = 30
speed_unit = "m/s"
"""
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


def test_a_file_in_cp1252_needs_what_is_suggested_and_two_choices(tmp_path):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    text = in_toml(suggest(InputFile(path)), "buses", "*.csv")
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
    config = tmp_path / "trafficdp.toml"
    config.write_text(CITY + chosen)
    (source,) = load_config(config).sources
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
    ],
)
def test_names_and_times_are_recognised(tmp_path, header, row, form, offset):
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n{row}\n{row}\n")
    found = suggest(InputFile(path))
    assert None not in found.columns.values()
    assert (found.time_format, found.offset) == (form, offset)
    assert found.dialect == Dialect()
    assert found.speed_unit == ("mph" if "mph" in header else None)


def test_what_may_number_rows_is_no_vehicle_and_flattened_gtfs_realtime_needs_no_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,time,lat,lon,speed\n1,2026-01-31T10:00:00Z,1.5,2.5,3\n")
    assert suggest(InputFile(path)).columns["vehicle"] is None
    path.write_text("id,vehicle.position.latitude,vehicle.timestamp\n1,1.5,1769853600\n")
    text = in_toml(suggest(InputFile(path)), "a", "*.csv")
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
def test_what_is_no_dialect_is_refused(tmp_path, line, wanted):
    config = tmp_path / "trafficdp.toml"
    text = in_toml_of(tmp_path) + line + "\n"
    config.write_text(CITY + text)
    with pytest.raises(ConfigError, match=wanted):
        load_config(config)


def in_toml_of(folder):
    path = folder / "a.csv"
    path.write_text("vehicle_id,timestamp,lat,lon,speed_mph\n1,2026-01-31T10:00:00Z,1.5,2.5,3\n2\n")
    return in_toml(suggest(InputFile(path)), "a", "*.csv")


def test_the_command_prints_lines_that_can_be_pasted(tmp_path, capsys):
    path = tmp_path / "buses.csv"
    path.write_bytes(GERMAN.encode("cp1252"))
    assert run(["suggest", str(path)]) == 0
    expected = in_toml(suggest(InputFile(path)), "buses", "*.csv")
    assert capsys.readouterr().out.rstrip("\n") == expected.rstrip("\n")
    shutil.copy(path, tmp_path / "buses_of_the_next_day.csv")
    assert run(["suggest", *map(str, sorted(tmp_path.glob("*.csv")))]) == 0
    assert capsys.readouterr().out.rstrip("\n") == expected.rstrip("\n")


@pytest.mark.parametrize(
    "odd", ['"M-1;31.01.2026 23:59:01;48,137;11,575;50', "x" * 200_000, "a\u2028b", ";;;;"]
)
def test_one_odd_line_changes_no_suggestion(tmp_path, odd):
    usual, other = tmp_path / "usual.csv", tmp_path / "odd.csv"
    usual.write_text(GERMAN)
    header, *rows = GERMAN.splitlines()
    other.write_text("\n".join([header, odd, *rows, ""]))
    assert suggest(InputFile(other)) == suggest(InputFile(usual))
