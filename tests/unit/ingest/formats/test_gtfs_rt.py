from __future__ import annotations

import pyarrow as pa
import pytest
from google.transit.gtfs_realtime_pb2 import FeedMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trafficdp.errors import DataError
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import Reading
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod

SECOND = 1606545000


@pytest.fixture
def source():
    return SourceDeclaration("rt", "gtfs_rt", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))


def feed(version="2.0"):
    message = FeedMessage()
    message.header.gtfs_realtime_version = version
    message.header.timestamp = SECOND
    return message


def add(message, entity="e1", *, plate=None, vehicle=None, speed=None, at=(21.2, 72.8), timestamp=None):
    position = message.entity.add(id=entity).vehicle
    position.SetInParent()
    if plate is not None:
        position.vehicle.license_plate = plate
    if vehicle is not None:
        position.vehicle.id = vehicle
    if timestamp is not None:
        position.timestamp = timestamp
    if at is not None:
        position.position.latitude, position.position.longitude = at
        if speed is not None:
            position.position.speed = speed


def read(reader, message):
    return reader.file(reader.write(message.SerializeToString(), "vehicles.pb"))


def test_an_unset_speed_is_missing_and_a_stated_zero_is_zero(reader):
    message = feed()
    add(message, "e1", speed=0.0)
    add(message, "e2")
    result = read(reader, message)
    assert result.fixes.table.column("speed_centi").to_pylist() == [0]
    assert result.report.rejected == {"missing_speed": 1}


def test_the_vehicle_is_plate_then_id_then_entity(reader, key):
    message = feed()
    add(message, "e1", plate="ka-01", vehicle="7", speed=1)
    add(message, "e2", plate=" ", vehicle="7", speed=1)
    add(message, "e3", speed=1)
    expected = key.pseudonyms(pa.array(["KA01", "7", "e3"]), "").to_pylist()
    assert read(reader, message).fixes.table.column("vehicle").to_pylist() == expected


def test_the_time_is_the_vehicles_else_the_headers(reader):
    message = feed()
    add(message, "e1", speed=1, timestamp=SECOND - 7)
    add(message, "e2", speed=1)
    times = read(reader, message).fixes.table.column("time_us").to_pylist()
    assert times == [(SECOND - 7) * 1_000_000, SECOND * 1_000_000]


def test_no_position_and_unreadable_speeds_are_rejected(reader):
    message = feed()
    add(message, "e1", at=None)
    add(message, "e2", speed=float("nan"))
    add(message, "e3", at=(float("nan"), 72.8), speed=1)
    assert read(reader, message).report.rejected == {"missing_position": 2, "unreadable_speed": 1}


def test_a_fix_repeated_in_a_snapshot_counts_once(reader):
    message = feed()
    for _ in range(3):
        add(message, "e1", vehicle="7", speed=3, timestamp=SECOND)
    assert read(reader, message).report.rejected == {"duplicate_in_file": 2}


def test_a_snapshot_at_night_has_no_rows_and_is_accepted(reader):
    result = read(reader, feed())
    assert (result.report.rows_in, len(result.fixes)) == (0, 0)


def test_trip_updates_are_refused(reader):
    message = feed()
    message.entity.add(id="t").trip_update.trip.trip_id = "1"
    with pytest.raises(DataError, match="holds no vehicle positions"):
        read(reader, message)


@pytest.mark.parametrize(
    "content", [b"<html>busy</html>", b"{}", b"\x0a\x00", b"\xff" * 50, b"\x0a\x03\x0a\x01\xe4"]
)
def test_what_is_no_feed_is_refused(reader, content):
    with pytest.raises(DataError, match="not a GTFS-Realtime feed"):
        reader.file(reader.write(content, "vehicles.pb"))


def test_an_identifier_that_is_not_utf8_is_missing(reader):
    message = feed()
    add(message, "e1", vehicle="MARK", speed=1)
    add(message, "e2", vehicle="OTHER", speed=1)
    content = message.SerializeToString().replace(b"MARK", b"M\xe4RK")
    result = reader.file(reader.write(content, "vehicles.pb"))
    assert (len(result.fixes), result.report.rejected) == (1, {"missing_vehicle": 1})


def test_a_truncated_feed_is_refused(reader):
    message = feed()
    add(message, "e1", speed=1)
    with pytest.raises(DataError, match="not a GTFS-Realtime feed"):
        reader.file(reader.write(message.SerializeToString()[:-3], "vehicles.pb"))


@given(st.binary(max_size=200), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_end_in_a_report_or_in_our_errors(reader, content, with_header):
    data = (feed().SerializeToString() if with_header else b"") + content
    try:
        report = reader.file(reader.write(data, "vehicles.pb")).report
    except DataError:
        return
    assert report.rows_in == report.rows_kept + sum(report.rejected.values())


def test_a_snapshot_larger_than_any_fleet_is_refused_unparsed(reader):
    content = feed().SerializeToString() + b"\x12\x00" * (4 << 20)
    with pytest.raises(DataError, match="too large to be read in one piece; expected 8 MiB"):
        reader.file(reader.write(content, "day.pb"))


def of_operators(reader, message, field, separator=""):
    declared = {"format": "gtfs_rt", "columns": {"operator": field}, "operator_separator": separator}
    return reader.file(
        reader.write(message.SerializeToString(), "vehicles.pb"), refuse_by_rows=False, **declared
    )


def test_the_operator_that_is_declared_belongs_to_the_identifier(reader, key):
    message = feed()
    for number, route in enumerate(["FBRI:1", "TFLO:1", "FBRI:2", "no operator", ""]):
        add(message, f"e{number}", vehicle="7", speed=1, timestamp=SECOND + number)
        if route:
            message.entity[number].vehicle.trip.route_id = route
    result = of_operators(reader, message, "vehicle.trip.route_id", ":")
    expected = key.pseudonyms(["FBRI/7", "TFLO/7", "FBRI/7"], "").to_pylist()
    assert result.fixes.table.column("vehicle").to_pylist() == expected
    assert result.report.rejected == {"missing_operator": 2}
    whole = of_operators(reader, message, "id").fixes.table.column("vehicle").to_pylist()
    assert whole == key.pseudonyms([f"e{number}/7" for number in range(5)], "").to_pylist()


def noted(reader, message):
    source = SourceDeclaration("rt", "gtfs_rt", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))
    reading = Reading(
        reader.write(message.SerializeToString(), "vehicles.pb"),
        source,
        reader.area,
        reader.key,
        refuse_by_rows=False,
    )
    list(reading.parts())
    return reading.extents.noted


def test_one_identifier_in_two_places_is_noted(reader):
    message = feed()
    add(message, "e1", vehicle="7", at=(21.2, 72.8), timestamp=SECOND)
    add(message, "e2", vehicle="7", at=(21.25, 72.8), timestamp=SECOND + 5)
    add(message, "e3", vehicle="8", at=(21.2, 72.8), timestamp=SECOND)
    add(message, "e4", vehicle="8", at=(21.201, 72.8), timestamp=SECOND + 5)
    add(message, "e5", vehicle="9", at=(21.2, 72.8), timestamp=SECOND)
    add(message, "e6", vehicle="9", at=(21.25, 72.8), timestamp=SECOND + 60)
    assert noted(reader, message) == {"two_places": 1}


def test_times_of_the_header_and_odd_speeds_are_noted(reader):
    message = feed()
    for number, speed in enumerate([0, 1e-5, 65535, -1, 9]):
        add(message, f"e{number}", vehicle=f"{number}", speed=speed, timestamp=SECOND if number else None)
    expected = {"speed": 5, "speed_zero": 1, "speed_tiny": 1, "speed_65535": 1, "speed_minus_1": 1}
    assert noted(reader, message) == expected | {"header_time": 1}


def suggested(reader, message):
    return source_table_in_toml(
        suggest_source(InputFile(reader.write(message.SerializeToString(), "vehicles.pb"))), "a", "*.pb"
    )


def test_suggest_derives_speeds_where_most_are_missing(reader):
    message = feed()
    add(message, "e1", speed=3)
    assert "missing_speed" not in suggested(reader, message)
    add(message, "e2")
    add(message, "e3")
    text = suggested(reader, message)
    assert 'missing_speed = "derive"' in text
    assert "time_format" not in text
    assert "CHOOSE" not in text
    unnamed = reader.write(message.SerializeToString(), "gtfsrt.bin")
    assert suggest_source(InputFile(unnamed)).format == "gtfs_rt"
    message = feed()
    for number in range(20):
        add(message, f"e{number}", vehicle=f"{number}", speed=0)
    assert "sentinels = [0]" in suggested(reader, message)
    assert 'missing_speed = "derive"' in suggested(reader, message)
    add(message, "moving", speed=1)
    assert "sentinels" not in suggested(reader, message)
    with pytest.raises(DataError, match="not a GTFS-Realtime feed"):
        suggest_source(InputFile(reader.write("busy", "vehicles.pb")))
