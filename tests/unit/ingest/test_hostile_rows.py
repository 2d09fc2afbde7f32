"""Whatever one vehicle's row holds, no other vehicle's record changes, and no file is refused for it."""

import io
import json
import struct
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from encodings.aliases import aliases

import geopandas as gpd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.transit.gtfs_realtime_pb2 import FeedMessage
from lxml import etree

from trafficdp.errors import DataError
from trafficdp.ingest.formats import csv_files
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import READERS, read_file
from trafficdp.model import Dialect, SourceDeclaration, SpeedUnit, UnitPeriod, is_line_encoding

FIELDS = ("vehicle", "time", "latitude", "longitude", "speed")
OTHERS = [
    (vehicle, 1606545000 + 60 * minute, 21.2, 72.8, speed)
    for minute, (vehicle, speed) in enumerate(
        [("B2", 3.0), ("C3", 4.5), ("007", 5.0), ("B2", 6.0), ("é1", 7.0)]
    )
]
VICTIM = ("A1", 1606545001, 21.2, 72.8, 8.0)
PIECES = [
    *(b'"', b'""', b'"""', b'"x', b'x"', b'"x"y', b"'", b"`", b"\\", b'\\"', b"\\n", b"\\u0000", b"\\ud800"),
    *(b",", b",,,,,,", b";", b"\t", b"|", b"\r", b"\n", b"\r\n", b"\n\r", b"\n\n\n", b'"\n', b'\n"', b'"\r"'),
    *(
        b"\x00",
        b"\x01",
        b"\x0b",
        b"\x0c",
        b"\x1a",
        b"\x1b",
        b"\x1c",
        b"\x1d",
        b"\x1e",
        b"\x7f",
        b"\x00" * 999,
    ),
    *(b"\x80", b"\xff", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98"),
    *(b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"),
    *("\u202e", "\u0301" * 40, "İ", "ß", "１２３", "﷽"),
    *(b"1e400", b"-1e400", b"1e-400", b"9" * 400, b"0x10", b"1_000", b"inf", b"nan", b"NaN", b"-0", b"1,5"),
    *(
        b"now",
        b"today",
        b"NaT",
        b"2020-11-28T12:00:00.123456789Z",
        b"9999-12-31T23:59:59Z",
        b"99999999999999",
    ),
    *(b"true", b"null", b"NULL", b"NA", b"{", b"}", b"[", b"]", b"{}", b"[" * 3000, b'{"a":' * 3000, b"[]]"),
    *(b"=1+1", b"<x>", b"%s%n", b"$(x)", b"'; DROP TABLE fixes; --", b"//", b"/*", b"#", b"--", b" ", b""),
    *(
        b"x" * 5000,
        b'"' * 4999,
        b"," * 5000,
        b"x" * (csv_files.LONGEST_LINE + 9),
        b'"' + b"y" * csv_files.LONGEST_LINE,
    ),
]
PIECES = [piece.encode() if isinstance(piece, str) else piece for piece in PIECES]
PLACES = [
    *[(field, "instead") for field in range(len(FIELDS))],
    *[(0, "before"), (0, "after"), (1, "after"), (4, "after")],
]
FORMS = len(PLACES)
ROWS = [(field, how, piece) for piece in PIECES for field, how in PLACES]
"""Which field it is put into, how, what."""


def victim(field, how, piece):
    """The row of the victim as bytes, one field hostile."""
    row = [str(value).encode() for value in VICTIM]
    row[field] = {"instead": piece, "before": piece + row[field], "after": row[field] + piece}[how]
    return row


def placed(rows, row, at):
    """The rows with that of the victim as the first, in the middle, or as the last."""
    where = (0, 3, len(rows))[at % 3]
    return [*rows[:where], row, *rows[where:]]


def among(rows, hostile, at):
    """The rows with ``hostile`` ones before, between and after them; which stands where turns with ``at``."""
    turned = [*hostile[at % len(hostile) :], *hostile[: at % len(hostile)]]
    gaps = [turned[gap :: len(rows) + 1] for gap in range(len(rows) + 1)]
    return [each for gap, row in zip(gaps, [*rows, None], strict=True) for each in (*gap, row)][:-1]


EACH_ALONE = [pytest.param(False, id="together"), pytest.param(True, id="alone", marks=pytest.mark.prove)]
"""Hostile rows stand together in a file, whatever is put into any field of one; or each in its own."""


def hostile_files(rows, alone, row_of=victim, *, turn=0):
    """Yield (rows with hostile ones among them, what they are): of eight pieces all, or each row alone.

    Of quotes and line ends a ninth alone in either case: which one turns with ``turn``.
    """
    for at, row in enumerate(ROWS):
        if alone or ({*row[2]} <= {*b'"\r\n'} and (at + at // FORMS) % 9 == turn % 9):
            yield placed(rows, row_of(*row), at), row
    if not alone:
        for at, start in enumerate(range(0, len(ROWS), 8 * FORMS)):
            together = ROWS[start : start + 8 * FORMS]
            yield among(rows, [row_of(*row) for row in together], at), together


def text_rows():
    return [[str(value).encode() for value in row] for row in OTHERS]


def as_csv(header):
    def content(rows):
        return b"\n".join([",".join(header).encode(), *map(b",".join, rows)]) + b"\n"

    return content


def as_json(record):
    def content(rows):
        return b"\n".join(record(*row) for row in rows) + b"\n"

    return content


def mds_record(vehicle, time, latitude, longitude, speed):
    place = b'{"lat": %s, "lng": %s, "speed": %s}' % (latitude, longitude, speed)
    return b'{"device_id": "%s", "timestamp": %s000, "location": %s}' % (vehicle, time, place)


def iudx_record(vehicle, time, latitude, longitude, speed):
    place = b'{"type": "Point", "coordinates": [%s, %s]}' % (longitude, latitude)
    return b'{"vehicle_id": "%s", "observationDateTime": "%s", "location": %s, "speed": %s}' % (
        vehicle,
        time,
        place,
        speed,
    )


def siri_record(vehicle, time, latitude, longitude, speed):
    place = b'"OperatorRef": "O", "VehicleLocation": {"Longitude": %s, "Latitude": %s}' % (
        longitude,
        latitude,
    )
    journey = b'{"VehicleRef": "%s", "Velocity": %s, %s}' % (vehicle, speed, place)
    return b'{"RecordedAtTime": "%s", "MonitoredVehicleJourney": %s}' % (time, journey)


def first_names(columns):
    return [names if isinstance(names, str) else names[0] for names in (columns[ours] for ours in FIELDS)]


def json_record(vehicle, time, latitude, longitude, speed):
    place = b'{"latitude": %s, "longitude": [%s]}' % (latitude, longitude)
    return b'{"vehicle": "%s", "time": "%s", "at": %s, "speed": %s}' % (vehicle, time, place, speed)


PATHS = {"vehicle": "vehicle", "time": "time", "speed": "speed"} | {
    "latitude": "at.latitude",
    "longitude": "at.longitude.0",
}
BY_LINES = {
    "json": (as_json(json_record), "day.jsonl"),
    "csv": (as_csv(FIELDS), "day.csv"),
    "gtfs_rt_csv": (as_csv(first_names(csv_files.GTFS_RT_COLUMNS)), "day.csv"),
    "tides": (as_csv(first_names(csv_files.TIDES_COLUMNS)), "day.csv"),
    "mds": (as_json(mds_record), "day.jsonl"),
    "iudx": (as_json(iudx_record), "day.ndjson"),
    "siri": (as_json(siri_record), "day.jsonl"),
}
BY_COLUMNS = ["parquet", "frame"]


def declared(reader, kind):
    return SourceDeclaration(
        "city",
        kind,
        ("*",),
        (UnitPeriod(SpeedUnit.METRES_PER_SECOND),),
        {
            "json": PATHS,
            "xml": XML_COLUMNS,
            "gpkg": {ours: ours for ours in ("vehicle", "time", "speed")},
        }.get(kind, {ours: ours for ours in FIELDS} if kind in ("csv", "parquet") else {}),
        records="record" if kind == "xml" else "",
        time_format="iso8601" if kind == "mds" else "epoch_s",
    )


def of_others(reader, given, source):
    """What is kept of all vehicles but the victim, row by row, as text; nothing may refuse the file."""
    read = read_file(given, source, reader.area, reader.key, refuse_by_rows=False)
    operator = "O/" if source.format == "siri" else ""
    named = sorted({operator + row[0] for row in OTHERS})
    others = set(reader.key.pseudonyms(named, "").to_pylist())
    return [repr(row) for row in read.fixes.table.to_pylist() if row["vehicle"] in others]


@pytest.mark.parametrize("alone", EACH_ALONE)
@pytest.mark.parametrize("kind", BY_LINES)
def test_no_line_changes_another(reader, kind, alone):
    content, name = BY_LINES[kind]
    source = declared(reader, kind)
    expected = of_others(reader, reader.write(content(text_rows()), name), source)
    assert len(expected) == len(OTHERS)
    for rows, hostile in hostile_files(text_rows(), alone, turn=[*BY_LINES].index(kind)):
        assert of_others(reader, reader.write(content(rows), name), source) == expected, hostile


def pair_of(vehicle, time, latitude, longitude, speed):
    return [vehicle, time, b"POINT(%s %s)" % (longitude, latitude), speed]


VARIANTS = {
    "no header": (lambda row: row, Dialect(header=False), ("1", "2", "3", "4", "5")),
    "spaces": (lambda row: row, Dialect(delimiter=" "), FIELDS),
    "tabs without header": (
        lambda row: row,
        Dialect(delimiter="\t", header=False),
        ("1", "2", "3", "4", "5"),
    ),
    "pairs": (lambda row: pair_of(*row), Dialect(), ("vehicle", "time", "longitude_latitude", "speed")),
}


@pytest.mark.parametrize("alone", EACH_ALONE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_line_changes_another_however_a_table_is_written(reader, variant, alone):
    made, dialect, names = VARIANTS[variant]
    ours = ("vehicle", "time", "longitude_latitude", "speed") if variant == "pairs" else FIELDS
    columns = dict(zip(ours, names, strict=True))
    source = replace(declared(reader, "csv"), dialect=dialect, columns=columns)
    mark = dialect.delimiter.encode()
    first = [mark.join(each.encode() for each in names)] if dialect.header else []

    def kept(rows):
        content = b"\n".join([*first, *(mark.join(made(row)) for row in rows)]) + b"\n"
        return of_others(reader, reader.write(content), source)

    expected = kept(text_rows())
    assert len(expected) == len(OTHERS)
    for rows, hostile in hostile_files(text_rows(), alone, turn=4 + [*VARIANTS].index(variant)):
        assert kept(rows) == expected, hostile
    for magic in (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"PAR1", b"BZh", b"SQLite f", b"\xfd7zXZ"):
        if not first:
            assert kept([victim(0, "before", magic), *text_rows()]) == expected, magic


ENCODINGS = ["cp1252", "gb18030", "utf-16", "utf-8-sig", "shift_jis"]


@pytest.mark.parametrize("alone", EACH_ALONE)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_line_changes_another_in_any_encoding(reader, encoding, alone):
    """Text is hostile in the units that an encoding has: a file of UTF-16 has no odd bytes."""
    rows = [[field.replace("é", "a") for field in map(bytes.decode, row)] for row in text_rows()]
    source = replace(declared(reader, "csv"), dialect=replace(reader.source.dialect, encoding=encoding))
    wide = encoding == "utf-16"

    def given(parts):
        header = ",".join(FIELDS) + "\n"
        feed = "\n".encode("utf-16-le") if wide else b"\n"
        return reader.write(header.encode(encoding) + feed.join(parts) + feed)

    def hostile_line(*row):
        line = b",".join(victim(*row))
        # every pair of bytes is a unit of UTF-16, broken surrogates among them
        return line[: len(line) // 2 * 2] if wide else line

    others = [",".join(each).encode(encoding)[2 if wide else 0 :] for each in rows]
    expected = of_others(reader, given(others), source)
    for parts, hostile in hostile_files(others, alone, hostile_line, turn=8 + ENCODINGS.index(encoding)):
        assert of_others(reader, given(parts), source)[:4] == expected[:4], hostile


@pytest.mark.parametrize("alone", EACH_ALONE)
@pytest.mark.parametrize("kind", BY_COLUMNS)
def test_no_row_of_a_table_changes_another(reader, kind, alone):
    """Columns of text, in which every row may hold anything; those of numbers hold numbers only."""
    source = declared(reader, "parquet")

    def given(rows):
        columns = [pa.array([row[at] for row in rows], pa.binary()) for at in range(len(FIELDS))]
        table = pa.table([column.view(pa.string()) for column in columns], names=FIELDS)
        if kind == "frame":
            return table
        # Parquet's own writer does not look whether text is text
        pq.write_table(table, reader.folder / "day.parquet")
        return reader.folder / "day.parquet"

    expected = of_others(reader, given(text_rows()), source)
    assert len(expected) == len(OTHERS)
    for rows, hostile in hostile_files(text_rows(), alone, turn=BY_COLUMNS.index(kind)):
        assert of_others(reader, given(rows), source) == expected, hostile


HOSTILE_NUMBERS = [
    np.nan,
    np.inf,
    -np.inf,
    1e300,
    -1e300,
    5e-324,
    -0.0,
    2.0**63,
    -(2.0**63),
    1.5,
    9e15,
    2**53 + 1.0,
]


@pytest.mark.parametrize("kind", BY_COLUMNS)
@pytest.mark.parametrize("field", FIELDS)
def test_no_number_of_a_table_changes_another(reader, kind, field):
    source = declared(reader, "parquet")
    rows = [(float(number), *row[1:]) for number, row in enumerate(OTHERS, 1)]

    def kept(row, at):
        every = rows if row is None else placed(rows, row, at)
        frame = pd.DataFrame({name: [float(each[n]) for each in every] for n, name in enumerate(FIELDS)})
        if kind == "parquet":
            frame.to_parquet(reader.folder / "day.parquet")
            frame = reader.folder / "day.parquet"
        read = read_file(frame, source, reader.area, reader.key, refuse_by_rows=False)
        others = set(reader.key.pseudonyms([f"{row[0]:.0f}" for row in rows], "").to_pylist())
        return [repr(each) for each in read.fixes.table.to_pylist() if each["vehicle"] in others]

    expected = kept(None, 0)
    assert len(expected) == len(OTHERS)
    for at, number in enumerate(HOSTILE_NUMBERS):
        row = dict(zip(FIELDS, (99.0, *VICTIM[1:]), strict=True)) | {field: number}
        assert kept(tuple(row.values()), at) == expected, number


HOSTILE_OBJECTS = [
    "x",
    b"x",
    "\ud800",
    10**30,
    -1,
    True,
    1.5,
    [],
    {},
    {"a": 1},
    (1, 2),
    Decimal("1e999"),
    object(),
]
HOSTILE_OBJECTS += [
    np.nan,
    None,
    pd.NA,
    pd.NaT,
    pd.Timestamp("2020-11-28"),
    date.max,
    timedelta.max,
    1j,
    slice(1),
]


@pytest.mark.parametrize("field", FIELDS)
def test_no_object_of_a_frame_changes_another(reader, field):
    """A column of a frame has one type: a frame in which one does not is refused, and says so."""
    source = declared(reader, "parquet")
    refused = 0
    for rows in (OTHERS, [tuple(map(str, row)) for row in OTHERS]):
        expected = of_others(reader, pd.DataFrame(rows, columns=FIELDS), source)
        assert len(expected) == len(OTHERS)
        for at, value in enumerate(HOSTILE_OBJECTS):
            row = dict(zip(FIELDS, VICTIM if rows is OTHERS else map(str, VICTIM), strict=True)) | {
                field: value
            }
            frame = pd.DataFrame(placed(rows, tuple(row.values()), at), columns=FIELDS, dtype=object)
            try:
                found = of_others(reader, frame, source)
            except DataError as error:
                found = expected
                refused += "every column of one type" in str(error) or "wrong type" in str(error)
            assert found == expected, value
    assert 10 < refused < 2 * len(HOSTILE_OBJECTS)


def snapshot(rows):
    message = FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    for number, (vehicle, time, latitude, longitude, speed) in enumerate(rows):
        entity = message.entity.add(id=f"e{number}")
        entity.vehicle.vehicle.id, entity.vehicle.timestamp = vehicle, time
        place = entity.vehicle.position
        place.latitude, place.longitude, place.speed = latitude, longitude, speed
    return message


def entity_field(content):
    """One entity of a snapshot that holds these bytes, whatever they are."""
    size, said = len(content), b""
    while size > 127:
        said, size = said + bytes([size & 127 | 128]), size >> 7
    return b"\x12" + said + bytes([size]) + content


def test_no_entity_of_a_snapshot_changes_another(reader):
    source = declared(reader, "gtfs_rt")
    expected = of_others(reader, reader.write(snapshot(OTHERS).SerializeToString(), "day.pb"), source)
    assert len(expected) == len(OTHERS)
    usual = snapshot([VICTIM]).entity[0].SerializeToString()
    marked = {"A1" * 50: snapshot([("A1" * 50, *VICTIM[1:])]).entity[0].SerializeToString()}
    short = [piece for piece in PIECES if len(piece) < 1 << 16]
    entities = [entity_field(piece) for piece in short]
    entities += [entity_field(usual + piece) for piece in short]
    entities += [entity_field(usual[:cut]) for cut in range(len(usual))]
    for name, content in marked.items():
        entities += [entity_field(content.replace(name.encode(), (p * 100)[:100])) for p in PIECES if p]
    for value in HOSTILE_NUMBERS:
        damaged = bytearray(usual)
        place = usual.index(struct.pack("<f", 72.8))
        damaged[place : place + 4] = struct.pack("<f", np.float32(np.clip(value, -3e38, 3e38)))
        entities.append(entity_field(bytes(damaged)))
    # groups within groups: deeper than any parser goes
    entities.append(entity_field(b"\x0b" * 20_000))
    parts = [entity_field(each.SerializeToString()) for each in snapshot(OTHERS).entity]
    header = b"\x0a\x05\x0a\x032.0"
    for at, entity in enumerate(entities):
        given = reader.write(header + b"".join(placed(parts, entity, at)), "day.pb")
        assert of_others(reader, given, source) == expected, entity


@pytest.mark.parametrize("alone", EACH_ALONE)
@pytest.mark.parametrize("kind", ["mds", "iudx", "siri", "json"])
def test_no_value_of_a_json_document_changes_another(reader, kind, alone):
    """Whatever value JSON can spell: it stands for itself."""
    record = {"mds": mds_record, "iudx": iudx_record, "siri": siri_record, "json": json_record}[kind]
    source = declared(reader, kind)

    def given(records):
        document = {"ServiceDelivery": {"VehicleMonitoringDelivery": {"VehicleActivity": records}}}
        return reader.write(json.dumps(document if kind == "siri" else records), "day.json")

    others = [json.loads(record(*row)) for row in text_rows()]
    expected = of_others(reader, given(others), source)
    values = [piece.decode("utf-8", "surrogateescape") for piece in PIECES]
    values += [None, True, 10**400, -1, [], {}, [[[[]]]], {"value": {"value": None}}, [1, 2, 3], {"lat": []}]
    for at, value in enumerate(values):
        usual = json.loads(record(*victim(0, "after", b"")))
        hostile = [value, *({**usual, key: value} for key in usual)]
        for records in (
            [placed(others, each, at) for each in hostile] if alone else [among(others, hostile, at)]
        ):
            assert of_others(reader, given(records), source) == expected, hostile


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.prove)])
@pytest.mark.parametrize("kind", ["mds", "iudx", "json"])
def test_a_document_is_refused_for_its_form_only_and_says_what_to_do(reader, kind, every):
    record = {"mds": mds_record, "iudx": iudx_record, "siri": siri_record, "json": json_record}[kind]
    source = declared(reader, kind)
    refused = 0
    others = [record(*row) for row in text_rows()]
    expected = of_others(reader, reader.write(b"[%s]" % b",".join(others), "day.json"), source)
    for at, row in enumerate(ROWS[::every]):
        content = b"[%s]" % b",".join(placed(others, record(*victim(*row)), at))
        try:
            found = of_others(reader, reader.write(content, "day.json"), source)
        except DataError as error:
            found = expected
            refused += "one record a line" in str(error)
        assert found == expected, row
    assert 50 < every * refused < len(ROWS)


def without_rows(reader, kind):
    """A file or frame of this form in which nobody drove."""
    if kind == "parquet":
        pq.write_table(
            pa.table({name: pa.array([], pa.null()) for name in FIELDS}), reader.folder / "day.parquet"
        )
        return reader.folder / "day.parquet"
    if kind == "gpkg":
        points = gpd.GeoDataFrame({name: [] for name in FIELDS}, geometry=[], crs=4326)
        points.to_file(reader.folder / "day.gpkg", layer="day", geometry_type="Point")
        return reader.folder / "day.gpkg"
    if kind == "gtfs_rt":
        return reader.write(snapshot([]).SerializeToString(), "day.pb")
    if kind in BY_ELEMENTS:
        return reader.write(xml_document(kind, []), "day.xml")
    content, name = BY_LINES[kind]
    return reader.write(content([]).lstrip(b"\n"), name)


@pytest.mark.parametrize("kind", READERS)
def test_no_reader_refuses_a_file_because_nobody_drove(reader, kind):
    given = without_rows(reader, kind)
    read = read_file(given, declared(reader, kind), reader.area, reader.key, refuse_by_rows=False)
    assert (read.report.rows_in, len(read.fixes)) == (0, 0)


@pytest.mark.parametrize("kind", ["mds", "iudx", "json"])
@pytest.mark.parametrize("content", [b"[]", b"[\n]\n"])
def test_no_document_is_refused_because_nobody_drove(reader, kind, content):
    given = reader.write(content, "day.json")
    assert (
        read_file(given, declared(reader, kind), reader.area, reader.key, refuse_by_rows=False).report.rows_in
        == 0
    )


@pytest.mark.parametrize(
    "frame", [pd.DataFrame(columns=[*FIELDS]), pd.DataFrame(columns=[*FIELDS], dtype=float)]
)
def test_no_frame_is_refused_because_nobody_drove(reader, frame):
    source = declared(reader, "parquet")
    assert read_file(frame, source, reader.area, reader.key, refuse_by_rows=False).report.rows_in == 0
    points = gpd.GeoDataFrame(frame, geometry=gpd.GeoSeries([], crs=4326))
    assert read_file(points, source, reader.area, reader.key, refuse_by_rows=False).report.rows_in == 0
    points.to_parquet(reader.folder / "points.parquet")
    source = replace(source, columns={name: name for name in ("vehicle", "time", "speed", "geometry")})
    given = reader.folder / "points.parquet"
    assert read_file(given, source, reader.area, reader.key, refuse_by_rows=False).report.rows_in == 0


def test_marks_that_unicode_calls_line_ends_are_read_within_a_line(reader):
    for mark in ("\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"):
        record = mds_record(*(str(value).encode() for value in OTHERS[0]))
        line = record[:-1] + f', "note": "a{mark}b"}}'.encode()
        if mark > "\x1f":
            read = reader.file(reader.write(line + b"\n", "day.jsonl"), format="mds", columns={})
            assert read.report.rows_kept == 1, mark
        row = f"B2,2020-11-28T12:00:00Z,21.2,72.8,3{mark and ''}"
        table = reader.csv(f"plate,when,lat,lng,v,note\n{row},a{mark}b\n")
        assert table.report.rows_kept == 1, mark


def xml_document(kind, rows):
    """The rows as elements: of "xml" with the vehicle and its time in elements, of NextBus all attributes."""
    root = etree.Element("body")
    for vehicle, time, latitude, longitude, speed in rows:
        if kind == "xml":
            around = etree.SubElement(root, "step")
            record = etree.SubElement(around, "record", at=latitude, lon=longitude, v=speed)
            etree.SubElement(record, "bus").text, etree.SubElement(record, "time").text = vehicle, time
        else:
            given = {"id": vehicle, "secsSinceReport": time, "lat": latitude, "lon": longitude}
            etree.SubElement(root, "vehicle", **given, speedKmHr=speed)
    if kind == "nextbus":
        etree.SubElement(root, "lastTime", time="1606545300000")
    return etree.tostring(root)


XML_COLUMNS = {"vehicle": "bus", "time": "time", "latitude": "@at", "longitude": "@lon", "speed": "@v"}
BY_ELEMENTS = ("xml", "nextbus")


@pytest.mark.parametrize("kind", BY_ELEMENTS)
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.prove)])
def test_no_element_changes_another(reader, kind, every):
    source = declared(reader, kind)

    def kept(rows):
        return of_others(reader, reader.write(xml_document(kind, rows), "day.xml"), source)

    others = [list(map(str, row)) for row in OTHERS]
    if kind == "nextbus":
        others = [[row[0], str(1606545300 - int(row[1])), *row[2:]] for row in others]
    expected = kept(others)
    assert len(expected) == len(OTHERS)
    tried = 0
    for at, row in enumerate(ROWS[::every]):
        try:
            hostile = [each.decode("utf-8") for each in victim(*row)]
            found = kept(placed(others, hostile, at))
        except ValueError:
            # no text that XML can hold
            continue
        tried += 1
        assert found == expected, row
    assert tried > 300 // every


def test_a_record_within_a_record_is_a_part_of_it(reader):
    source = declared(reader, "xml")
    others = xml_document("xml", [list(map(str, row)) for row in OTHERS])
    expected = of_others(reader, reader.write(others, "day.xml"), source)
    inner = b"<record at='1' lon='2' v='3'><bus>B2</bus><time>1606545000</time></record>"
    for hostile in (
        b"<record><bus>A1</bus>%s</record>" % inner,
        b"<record><deep>%s%s</deep><bus>A1</bus></record>" % (inner, inner),
        b"<step time='1'><bus>B2</bus><time>7</time></step>",
        b"<bus>A1</bus><record/>",
    ):
        for content in (
            others.replace(b"<body>", b"<body>" + hostile),
            others.replace(b"</step>", b"</step>" + hostile, 1),
        ):
            assert of_others(reader, reader.write(content, "day.xml"), source) == expected, hostile


def test_every_reader_is_tried_here():
    # rows of gpkg: test_geopackage.py
    assert set(READERS) == {*BY_LINES, *BY_ELEMENTS, "parquet", "gtfs_rt", "gpkg"}


def test_a_quote_swallows_no_row_of_a_large_file(reader, monkeypatch):
    """Not within a block of lines, and not across blocks."""
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", 999)
    rows = [
        f"B{i % 50},2020-11-28T{i // 3600:02}:{i // 60 % 60:02}:{i % 60:02}Z,21.2,72.8,3" for i in range(3000)
    ]
    table = io.StringIO()
    table.write("plate,when,lat,lng,v\n")
    table.write("\n".join([*rows[:100], 'A1,"2020-11-28T12:00:00Z,21.2,72.8,3', *rows[100:]]))
    read = reader.csv(table.getvalue())
    assert (read.report.rows_kept, read.report.rejected) == (3000, {"malformed_row": 1})


DECLARABLE = sorted(name for name in set(aliases.values()) if is_line_encoding(name) and "utf_16" not in name)


def test_encodings_in_which_bytes_tell_of_other_lines_cannot_be_declared():
    assert {"utf_8", "cp1252", "latin_1", "shift_jis", "gb18030", "euc_kr", "big5"} <= set(DECLARABLE)
    stateful = {"utf_7", "hz", "iso2022_jp", "iso2022_kr", "utf_32", "cp037", "punycode", "unicode_escape"}
    assert not {name for name in stateful if is_line_encoding(name)}


@pytest.mark.parametrize("name", DECLARABLE)
def test_no_bytes_reach_beyond_their_line(reader, name):
    rng = np.random.default_rng(1)
    tail = b"\nplate,when\n"
    starts = [rng.integers(32, 256, rng.integers(1, 6)).astype(np.uint8).tobytes() for _ in range(300)]
    path = reader.write(b"x\n" + b"".join(start + tail for start in starts))
    text = b"".join(block.text for block in csv_files.read_lines(InputFile(path), name))
    assert text.endswith(tail)
    assert text.splitlines().count(b"plate,when") == len(starts)
