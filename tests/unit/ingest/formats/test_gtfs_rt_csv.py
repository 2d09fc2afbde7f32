from __future__ import annotations

import pytest

from trafficdp.errors import DataError
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod

HEADER = (
    ",id,vehicle.trip.route_id,vehicle.position.latitude,vehicle.position.longitude,vehicle.position.speed,"
    "vehicle.timestamp,vehicle.vehicle.id,vehicle.vehicle.label"
)
ROWS = ["0,e1,D96,21.2,72.8,8.839200019836426,1771257515,4582,4582", "1,e2,C53,21.3,72.9,,1771257489,,5461"]


@pytest.fixture
def source():
    return SourceDeclaration("rt", "gtfs_rt_csv", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))


def vehicles(result, key, *ids):
    import pyarrow as pa

    return result.fixes.table.column("vehicle").to_pylist() == key.pseudonyms(pa.array(ids), "").to_pylist()


def test_dotted_columns_are_read_and_an_empty_speed_is_missing(reader, key):
    result = reader.csv("\n".join([HEADER, *ROWS]))
    assert result.fixes.table.column("time_us").to_pylist() == [1771257515_000000]
    assert result.fixes.table.column("speed_centi").to_pylist() == [884]
    assert result.report.rejected == {"missing_speed": 1}
    assert vehicles(result, key, "4582")


def test_the_vehicle_is_plate_then_id_then_entity(reader, key):
    lines = [
        HEADER + ",vehicle.vehicle.license_plate",
        ROWS[0] + ",KA 01",
        ROWS[0] + ",",
        ROWS[1].replace(",,", ",1,", 1) + ",",
    ]
    assert vehicles(reader.csv("\n".join(lines)), key, "KA01", "4582", "e2")


def test_the_headers_timestamp_stands_in_for_the_vehicles(reader):
    lines = [HEADER + ",header.timestamp", ROWS[0].replace("1771257515", "") + ",1771257600"]
    assert reader.csv("\n".join(lines)).fixes.table.column("time_us").to_pylist() == [1771257600_000000]


def test_declared_names_replace_the_standards(reader):
    lines = [HEADER.replace("vehicle.timestamp", "stamp"), ROWS[0]]
    with pytest.raises(DataError, match=r"lacks the column vehicle\.timestamp"):
        reader.csv("\n".join(lines))
    assert len(reader.csv("\n".join(lines), columns={"time": "stamp"}).fixes) == 1


def test_an_archive_without_speeds_is_refused_unless_they_are_derived(reader):
    lines = [HEADER.replace("position.speed", "position.odometer"), *ROWS]
    with pytest.raises(DataError, match=r"lacks the column vehicle\.position\.speed"):
        reader.csv("\n".join(lines))
    assert reader.csv("\n".join(lines), missing_speed="derive").report.rejected == {"missing_speed": 2}
