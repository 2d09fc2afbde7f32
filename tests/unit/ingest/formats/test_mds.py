from __future__ import annotations

import json

import pytest

from trafficdp.errors import DataError
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod


@pytest.fixture
def source():
    return SourceDeclaration("mds", "mds", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))


def test_telemetry_is_read_with_milliseconds_and_metres_a_second(reader, data):
    result = reader.file(data / "mds_telemetry.json")
    assert result.fixes.table.drop_columns(["vehicle", "speed_unit"]).to_pylist() == [
        {
            "time_us": 1606555329_123000,
            "latitude": 21.192156,
            "longitude": 72.843017,
            "speed_centi": 121,
            "derived": False,
        }
    ]
    assert result.report.rejected == {"missing_speed": 1}


@pytest.mark.parametrize("shape", ["array", "data", "lines"])
def test_wrappers_and_lines_give_the_same(reader, data, shape):
    telemetry = json.loads((data / "mds_telemetry.json").read_text())["telemetry"]
    content = {
        "array": json.dumps(telemetry),
        "data": json.dumps({"data": {"telemetry": telemetry}}),
        "lines": "\n".join(json.dumps(item) for item in telemetry),
    }[shape]
    direct = reader.file(data / "mds_telemetry.json")
    name = "t.jsonl" if shape == "lines" else "t.json"
    assert reader.file(reader.write(content, name)).fixes.table.equals(direct.fixes.table)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("nonsense", "is not JSON"),
        ('{"telemetry": ', "is not JSON"),
        ('{"telemetry": []}', "has no records"),
        ("[1, 2]", "has no records; got 2 that cannot be read"),
        ('[{"device_id": "a"}]', "has timestamp or location.lat or location.lng"),
        ("[" * 100_000, "is not JSON|nested too deeply"),
        ("7" * 10_000, "has no records; got 1 that cannot be read"),
        (b"\xff\xfe{}", "is not JSON"),
        ('[{"device_id": "a", "timestamp": "x", "location": {"lat": 1, "lng": 2}}]', "not a single time"),
    ],
)
def test_bad_telemetry_is_one_clear_data_error(reader, content, message):
    with pytest.raises(DataError, match=message):
        reader.file(reader.write(content, "t.json"))


def test_half_a_character_is_no_identifier(reader):
    record = {
        "device_id": "a",
        "timestamp": 1606555329123,
        "location": {"lat": 21.2, "lng": 72.8, "speed": 1},
    }
    records = [record, {**record, "device_id": "\ud800"}, {**record, "timestamp": "\udfff"}]
    result = reader.file(reader.write(json.dumps(records), "t.json"))
    assert result.report.rejected == {"missing_vehicle": 1, "unreadable_time": 1}


def test_odd_values_reject_their_row_only(reader):
    record = {
        "device_id": "a",
        "timestamp": 1606555329123,
        "location": {"lat": 21.2, "lng": 72.8, "speed": 1},
    }
    odd = [
        {**record, "device_id": {"a": 1}, "timestamp": 1606555329124},
        {**record, "timestamp": True},
        {**record, "location": "here"},
        {**record, "location": {"lat": [21.2], "lng": 72.8}},
        {**record, "timestamp": 1606555329125, "location": {**record["location"], "speed": float("inf")}},
        {**record, "timestamp": 10**400},
    ]
    result = reader.file(reader.write(json.dumps([record, *odd]), "t.json"))
    assert result.report.rejected == {
        "missing_vehicle": 1,
        "unreadable_time": 2,
        "missing_position": 2,
        "unreadable_speed": 1,
    }


@pytest.mark.slow
def test_a_document_of_too_many_values_or_bytes_is_refused_unparsed(reader):
    with pytest.raises(DataError, match="holds more values than are read in one piece; got 8000001"):
        reader.file(reader.write("[" + "0," * 8_000_000 + "0]", "day.json"))
    with pytest.raises(DataError, match="too large to be read in one piece; expected 64 MiB"):
        reader.file(reader.write(b" " * ((64 << 20) + 1), "day.json"))
