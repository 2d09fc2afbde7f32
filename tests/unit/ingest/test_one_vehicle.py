"""What becomes of a vehicle's rows follows from them alone, whoever else is in the file."""

import csv
import io
import json
from decimal import Decimal

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.transit.gtfs_realtime_pb2 import FeedMessage

from trafficdp.ingest.formats import csv_files
from trafficdp.ingest.read import READERS

START = np.datetime64("2020-11-28T12:00:00")
WRITTEN = {"MALFORMED": "A1,2020", "NO TIME": ",yesterday,21.2,72.8,30", "NOTHING": ",,,,"}


def rows(vehicle, rng, many):
    """Rows of one vehicle: usual ones, and every way in which a row can be none."""
    seconds = np.sort(rng.integers(0, 7200, many))
    for second in seconds.tolist():
        north, east = 21.2 + rng.uniform(-0.5, 0.5), 72.8 + rng.uniform(-0.5, 0.5)
        speed = rng.choice(["30", "", "255", "fast", "-3", "1e9", "nan"])
        plate = rng.choice([vehicle, vehicle.lower(), f" {vehicle[:1]}-{vehicle[1:]} "])
        time = "someday" if rng.random() < 0.1 else f"{START + np.timedelta64(second, 's')}+05:30"
        yield [plate, time, f"{north:.5f}", f"{east:.5f}", speed]


def of_others(reader, lines, victim, **changes):
    """What is kept of all vehicles but ``victim``, row by row, as text."""
    table = io.StringIO()
    csv.writer(table).writerows([["plate", "when", "lat", "lng", "v"], *lines])
    read = reader.csv(table.getvalue(), **changes).fixes.table.to_pylist()
    own = set(reader.key.pseudonyms(pa.array([victim]), reader.source.namespace).to_pylist())
    return [json.dumps(row, default=repr) for row in read if not own & set(row.values())]


@pytest.mark.parametrize("missing_speed", ["reject", "derive"])
@pytest.mark.parametrize("seed", range(12))
def test_no_vehicle_changes_what_becomes_of_others(reader, seed, missing_speed):
    rng = np.random.default_rng(seed)
    others = [row for vehicle in ("B2", "C3", "D4") for row in rows(vehicle, rng, 25)]
    own = list(rows("A1", rng, int(rng.integers(1, 80))))
    mixed = list(others)
    for row in own:
        mixed.insert(int(rng.integers(0, len(mixed) + 1)), row)
    found = of_others(reader, mixed, "A1", missing_speed=missing_speed)
    assert len(found) > 5
    assert found == of_others(reader, others, "A1", missing_speed=missing_speed)


@pytest.mark.parametrize("row", WRITTEN.values(), ids=list(WRITTEN))
def test_a_row_that_is_none_changes_no_other(reader, row):
    others = list(rows("B2", np.random.default_rng(1), 30))
    assert of_others(reader, [*others, row.split(",")], "A1") == of_others(reader, others, "A1")


def test_an_identifier_that_is_none_is_a_row_and_refuses_no_file(reader):
    """In a column of numbers, too: a fraction names no vehicle, and says nothing of the others."""

    def kept(plates):
        many = len(plates)
        table = pa.table(
            {
                "plate": plates,
                "when": ["2020-11-28T12:00:00+05:30"] * many,
                "lat": [21.2] * many,
                "lng": [72.8] * many,
                "v": [30.0] * many,
            }
        )
        pq.write_table(table, reader.folder / "day.parquet")
        read = reader.file(reader.folder / "day.parquet", format="parquet")
        return read.fixes.table.to_pylist(), read.report.rejected

    without, _ = kept([7.0, 8.0])
    found, rejected = kept([7.0, 8.0, 1.5, float("inf")])
    assert found == without
    assert rejected == {"missing_vehicle": 2}


NUMERALS = ["123", "123.0", "123.00", "123."]
PLACE = {"when": 1606545000, "lat": 21.2, "lng": 72.8, "v": 30.0}


def in_csv(reader, columns):
    """A row for each way to write the number, in a CSV whose columns have these names."""
    names = [names if isinstance(names, str) else names[0] for names in columns.values()]
    values = [str(value) for value in PLACE.values()]
    return reader.write("\n".join([",".join(names), *(",".join([each, *values]) for each in NUMERALS)]))


def in_json(reader, record):
    spelt = [*NUMERALS[:3], '"123"', '"123.0"', '" 123.0 "']
    return reader.write("\n".join(record % each for each in spelt), "day.jsonl")


def in_snapshot(reader):
    message = FeedMessage()
    message.header.gtfs_realtime_version, message.header.timestamp = "2.0", PLACE["when"]
    for number, each in enumerate(NUMERALS):
        position = message.entity.add(id=str(number)).vehicle
        position.vehicle.id, position.position.speed = each, 3.0
        position.position.latitude, position.position.longitude = PLACE["lat"], PLACE["lng"]
    return reader.write(message.SerializeToString(), "day.pb")


def in_parquet(reader, column):
    table = pa.table({"plate": column} | {name: [value] * len(column) for name, value in PLACE.items()})
    pq.write_table(table, reader.folder / "day.parquet")
    return reader.folder / "day.parquet"


def in_geopackage(reader):
    rows = {"plate": NUMERALS} | {name: [PLACE[name]] * len(NUMERALS) for name in ("when", "v")}
    points = gpd.points_from_xy([PLACE["lng"]] * len(NUMERALS), [PLACE["lat"]] * len(NUMERALS))
    gpd.GeoDataFrame(rows, geometry=points, crs=4326).to_file(reader.folder / "day.gpkg")
    return reader.folder / "day.gpkg"


def in_xml(reader, element):
    body = "".join(element % each for each in [*NUMERALS, " 123.0 "])
    return reader.write(f'<body>{body}<lastTime time="1606545000000"/></body>', "day.xml")


MDS = '{"device_id": %s, "timestamp": 1606545000000, "location": {"lat": 21.2, "lng": 72.8, "speed": 3}}'
IUDX = (
    '{"vehicle_id": {"value": %s}, "observationDateTime": 1606545000, "speed": 3, '
    '"location": {"coordinates": [72.8, 21.2]}}'
)
SIRI = (
    '{"RecordedAtTime": 1606545000, "MonitoredVehicleJourney": {"OperatorRef": 1.0, "VehicleRef": %s, '
    '"Velocity": 3, "VehicleLocation": {"Longitude": 72.8, "Latitude": 21.2}}}'
)
ONE_VEHICLE = {
    "json": lambda reader: in_json(
        reader, '{"plate": %s, "when": 1606545000, "lat": 21.2, "lng": 72.8, "v": 3}'
    ),
    "csv": lambda reader: in_csv(reader, reader.source.columns),
    "gtfs_rt_csv": lambda reader: in_csv(reader, csv_files.GTFS_RT_COLUMNS),
    "tides": lambda reader: in_csv(reader, csv_files.TIDES_COLUMNS),
    "mds": lambda reader: in_json(reader, MDS),
    "iudx": lambda reader: in_json(reader, IUDX),
    "siri": lambda reader: in_json(reader, SIRI),
    "xml": lambda reader: in_xml(
        reader, '<row when="1606545000" lat="21.2" lng="72.8" v="3"><plate>%s</plate></row>'
    ),
    "nextbus": lambda reader: in_xml(
        reader, '<vehicle id="%s" secsSinceReport="0" lat="21.2" lon="72.8" speedKmHr="3"/>'
    ),
    "gtfs_rt": in_snapshot,
    "gpkg": in_geopackage,
    "parquet": lambda reader: in_parquet(reader, pa.array([123.0, 123.0, None])),
}
COLUMNS_OF_NUMBERS = [
    pa.array([123]),
    pa.array([123], pa.uint8()),
    pa.array([123.0]),
    pa.array([123.0], pa.float32()),
    pa.array([Decimal("123.00")]),
    pa.array(NUMERALS),
    pa.array(NUMERALS).dictionary_encode(),
    pa.array([123.0, None]).dictionary_encode(),
]


@pytest.mark.parametrize("kind", READERS)
def test_a_number_is_one_vehicle_in_every_reader_however_it_is_written(reader, kind):
    columns = reader.source.columns if kind in ("csv", "parquet", "json", "gpkg") else {}
    if kind == "gpkg":
        columns = {ours: columns[ours] for ours in ("vehicle", "time", "speed")}
    if kind == "xml":
        columns = {
            ours: each if each == "plate" else f"@{each}" for ours, each in reader.source.columns.items()
        }
    declared = {
        "format": kind,
        "columns": columns,
        "time_format": "epoch_s",
        "records": "row" * (kind == "xml"),
    }
    found = reader.file(ONE_VEHICLE[kind](reader), **declared).fixes.table["vehicle"].unique()
    one = "1/123" if kind == "siri" else "123"
    assert found.to_pylist() == reader.key.pseudonyms([one], "").to_pylist()


@pytest.mark.parametrize("column", COLUMNS_OF_NUMBERS, ids=lambda column: str(column.type))
def test_a_number_is_one_vehicle_in_columns_of_every_type(reader, column):
    path = in_parquet(reader, column)
    declared = {"format": "parquet", "time_format": "epoch_s"}
    for given in (path, pq.read_table(path), pd.read_parquet(path)):
        found = reader.file(given, **declared).fixes.table["vehicle"].unique()
        assert found.to_pylist() == reader.key.pseudonyms(["123"], "").to_pylist()


def test_a_pandas_export_with_a_missing_identifier_names_the_same_vehicles(reader):
    whole = pd.DataFrame({"plate": [7, 123, 10**15], **{name: [v] * 3 for name, v in PLACE.items()}})
    with_missing = pd.concat([whole, whole.head(1).assign(plate=np.nan)])
    assert with_missing["plate"].dtype == float
    paths = [reader.folder / name for name in ("whole.csv", "missing.csv")]
    whole.to_csv(paths[0], index=False)
    with_missing.to_csv(paths[1], index=False)
    assert "123.0" in paths[1].read_text()
    one, other = (
        reader.file(path, time_format="epoch_s").fixes.table["vehicle"].to_pylist() for path in paths
    )
    assert one == other == reader.key.pseudonyms(["7", "123", "1000000000000000"], "").to_pylist()
