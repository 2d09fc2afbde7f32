"""JSON with declared keys: paths into objects and lists, in documents and in lines."""

from __future__ import annotations

import json

import pytest

from trafficdp.errors import DataError
from trafficdp.ingest.formats.json_files import value_at_path
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source
from trafficdp.model import SpeedUnit, UnitPeriod

NOON, NOON_US = 1606545000, 1_606_545_000_000_000
HFP = {
    "VP": {
        "desi": "550",
        "oper": 22,
        "veh": 817,
        "tst": "2020-11-28T06:30:00.123Z",
        "tsi": NOON,
        "spd": 10.5,
        "lat": 21.2,
        "long": 72.8,
        "drst": None,
    }
}
HFP_COLUMNS = {
    "vehicle": "VP.veh",
    "operator": "VP.oper",
    "time": "VP.tsi",
    "latitude": "VP.lat",
    "longitude": "VP.long",
    "speed": "VP.spd",
}
METRES = (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)


def read(reader, document, name, columns, **changes):
    path = reader.write(document if isinstance(document, str) else json.dumps(document), name)
    declared = {"format": "json", "columns": columns, "units": METRES, "time_format": "epoch_s"}
    return reader.file(path, **(declared | changes))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", 1),
        ("b.c", 2),
        ("b.d.1", 4),
        ("e.f", 5),
        ("b", {"c": 2, "d": [3, 4]}),
        ("b.d.2", None),
        ("b.d.-1", None),
        ("b.d.x", None),
        ("b.d.99999999999999999999", None),
        ("a.b", None),
        ("", None),
    ],
)
def test_a_path_leads_through_objects_and_lists(path, value):
    assert value_at_path({"a": 1, "b": {"c": 2, "d": [3, 4]}, "e.f": 5, "e": {"f": 6}}, path) == value


def test_positions_of_helsinki_are_read_as_they_are_archived(reader, key):
    other = {"VP": HFP["VP"] | {"oper": 18}}
    lines = "\n".join(map(json.dumps, [HFP, other, {"DUE": HFP["VP"]}, {"VP": HFP["VP"] | {"oper": None}}]))
    result = read(reader, lines, "hfp.jsonl", HFP_COLUMNS)
    assert result.fixes.table["vehicle"].to_pylist() == key.pseudonyms(["22/817", "18/817"], "").to_pylist()
    assert result.fixes.table["speed_centi"].to_pylist() == [1050, 1050]
    assert result.fixes.table["time_us"].to_pylist() == [NOON_US] * 2
    assert result.report.rejected == {"missing_vehicle": 1, "missing_operator": 1}


RECORD = {"id": "7", "at": NOON, "place": [72.8, 21.2], "v": "3.5"}
PATHS = {"vehicle": "id", "time": "at", "latitude": "place.1", "longitude": "place.0", "speed": "v"}
ROW = ["7", NOON, 21.2, 72.8, 3.5]
PLACES = dict(zip(("vehicle", "time", "latitude", "longitude", "speed"), "01234", strict=True))


@pytest.mark.parametrize(
    ("document", "name", "columns", "records"),
    [
        ([RECORD], "a.json", PATHS, ""),
        (RECORD, "a.json", PATHS, ""),
        ({"result": {"buses": [RECORD]}}, "a.json", PATHS, "result.buses"),
        ({"COLUMNS": ["x"], "DATA": [ROW]}, "a.json", PLACES, "DATA"),
        ([ROW], "a.json", PLACES, ""),
        (json.dumps(RECORD) + "\n", "a.jsonl", PATHS, ""),
        (json.dumps(ROW) + "\n", "a.ndjson.gz", PLACES, ""),
        (json.dumps({"buses": [RECORD]}) + "\n", "a.jsonl", PATHS, "buses"),
    ],
)
def test_records_lie_in_documents_lists_and_lines(reader, key, document, name, columns, records):
    result = read(reader, document, name, columns, records=records)
    assert result.fixes.table["vehicle"].to_pylist() == key.pseudonyms(["7"], "").to_pylist()
    assert (result.report.rows_in, result.fixes.table["speed_centi"].to_pylist()) == (1, [350])


@pytest.mark.parametrize(
    ("document", "records", "says"),
    [
        ({"result": [RECORD]}, "data", "nothing at the path data"),
        ([], "", "has no records"),
        ([1, 2], "", "has no records"),
        ([{"id": "7"}], "", "no record of a.json has at or place.1"),
        ("busy", "", "is not JSON"),
    ],
)
def test_what_holds_no_records_is_refused(reader, document, records, says):
    with pytest.raises(DataError, match=says):
        read(reader, document, "a.json", PATHS, records=records)


def test_what_is_no_record_is_counted(reader):
    assert read(reader, [RECORD, 3, None, "x"], "a.json", PATHS).report.rejected == {"malformed_row": 3}


def suggested(reader, document, name):
    path = reader.write(document if isinstance(document, str) else json.dumps(document), name)
    return source_table_in_toml(suggest_source(InputFile(path)), "buses", "*.json")


def test_suggest_recognises_positions_of_helsinki(reader):
    text = suggested(reader, json.dumps(HFP) + "\n", "hfp.jsonl")
    assert "CHOOSE" not in text
    assert 'operator = "VP.oper"' in text
    assert 'time = "VP.tst"' in text
    assert 'speed_unit = "m/s"' in text
    assert "817" not in text


def test_suggest_finds_rows_beside_the_list_of_their_names(reader, declared_in):
    names = ["DATAHORA", "ORDEM", "LATITUDE", "LONGITUDE", "VELOCIDADE"]
    rows = [
        ["11-28-2020 12:00:00", "A48079", 21.2, 72.8, 30],
        ["11-28-2020 12:00:10", "A48080", 21.2, 72.8, 3],
    ]
    text = suggested(reader, {"COLUMNS": names, "DATA": rows}, "a.json")
    assert (
        'columns = { vehicle = "CHOOSE", time = "0", latitude = "2", longitude = "3", speed = "4" }' in text
    )
    assert 'time_format = "%m-%d-%Y %H:%M:%S"' in text
    assert "A48" not in text
    text = text.replace('vehicle = "CHOOSE"', 'vehicle = "1"').replace('unit = "CHOOSE"', 'unit = "km/h"')
    source = declared_in(text.replace("CHOOSE", "America/Sao_Paulo"))
    keys = ("format", "columns", "records", "time_format", "time_zone", "units")
    found = reader.file(reader.folder / "a.json", **{each: getattr(source, each) for each in keys})
    assert found.report.rows_kept == 2
    with pytest.raises(DataError, match="LATITUDE"):
        suggested(reader, {"COLUMNS": ["LATITUDE", *names[1:]], "DATA": rows}, "a.json")


def test_suggest_finds_the_records_of_warsaw(reader):
    """As api.um.warszawa.pl answers: local times, no speeds."""
    bus = {"Lines": "213", "Lon": 21.1, "VehicleNumber": "1000", "Time": "2020-11-28 12:00:00", "Lat": 52.2}
    text = suggested(reader, {"result": [bus, bus]}, "a.json")
    assert 'records = "result"' in text
    assert 'vehicle = "VehicleNumber"' in text
    assert 'missing_speed = "derive"' in text
    assert text.count("CHOOSE") == 1
    assert 'time_zone = "CHOOSE"' in text


@pytest.mark.parametrize("name", ["day.geojson", "feed"])
def test_points_of_geojson_are_suggested_as_they_are_read(reader, declared_in, name):
    """Whatever the file is called: it begins as JSON."""
    names = {"vehicle_id": "A1", "timestamp": NOON, "speed_kmh": 36}
    point = {"type": "Point", "coordinates": [72.8, 21.2]}
    feature = {"type": "Feature", "properties": names, "geometry": point}
    path = reader.write(json.dumps({"type": "FeatureCollection", "features": [feature]}), name)
    text = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*")
    assert "CHOOSE" not in text
    source = declared_in(text)
    keys = ("format", "columns", "records", "time_format", "units")
    read = reader.file(path, **{each: getattr(source, each) for each in keys})
    (row,) = read.fixes.table.to_pylist()
    assert (row["latitude"], row["longitude"], row["speed_centi"]) == (21.2, 72.8, 3600)


def test_numbers_of_rio_have_commas(reader, declared_in):
    rio = [
        {
            "ordem": "A1",
            "linha": "100",
            "latitude": f"21,{20000 + n}",
            "longitude": "72,80000",
            "velocidade": v,
        }
        | {"datahora": f"{NOON + n}000"}
        for n, v in enumerate(("7,5", "30", "12.5"))
    ]
    path = reader.write(json.dumps(rio), "day.json")
    text = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*")
    assert 'time = "datahora", latitude = "latitude", longitude = "longitude", speed = "velocidade"' in text
    assert 'decimal = ","' in text
    # what "ordem" is, only a person knows, and the unit
    assert text.count("CHOOSE") == 2
    text = text.replace('vehicle = "CHOOSE"', 'vehicle = "ordem"').replace("CHOOSE", "m/s")
    source = declared_in(text)
    table = reader.file(
        path,
        **{each: getattr(source, each) for each in ("format", "columns", "time_format", "dialect", "units")},
    )
    assert table.report.rejected == {"unreadable_speed": 1}
    assert table.fixes.table.column("latitude").to_pylist() == pytest.approx([21.2, 21.20001])


def test_suggest_knows_gtfs_realtime_in_json(reader):
    place = {
        "position": {"latitude": 50.9, "longitude": 16.4},
        "timestamp": str(NOON),
        "vehicle": {"id": "9205"},
    }
    moving = place | {"position": place["position"] | {"speed": 32.7}}
    entities = [{"id": "1", "vehicle": place}, {"id": "2", "vehicle": moving}]
    text = suggested(reader, {"header": {"timestamp": "1"}, "entity": entities}, "a.json")
    assert "CHOOSE" not in text
    assert 'vehicle = "vehicle.vehicle.id"' in text
    assert 'speed_unit = "m/s"' in text
    assert "missing_speed" not in text


@pytest.mark.parametrize(
    "document",
    [
        {"SECRET": {"x": 1, "y": 2}},
        {"SECRET": [{"lat": 1}], "B": [{"lat": 1}]},
        {"1234": {"lat": 1, "lon": 2}},
        [[1, 2]],
        [],
        7,
    ],
)
def test_suggest_prints_no_key_that_may_be_an_identifier(reader, document):
    with pytest.raises(DataError, match="records are not recognised") as refused:
        suggested(reader, document, "a.json")
    assert "1234" not in str(refused.value)
    assert "SECRET" not in str(refused.value)
