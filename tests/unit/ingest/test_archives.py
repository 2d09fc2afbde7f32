"""Zip archives: the files in them are read one by one, and traps are refused by public limits."""

from __future__ import annotations

import gc
import gzip
import io
import random
import zipfile

import pytest
from google.transit.gtfs_realtime_pb2 import FeedMessage

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest import input_file
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import Reading
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source
from trafficdp.model import FILE_NAME, SpeedUnit, UnitPeriod

METRES = (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
HEADER = "plate,when,lat,lng,v\n"
ROW = "{},2020-11-28T12:00:00+05:30,21.2,72.8,30\n"


def archive(reader, members, name="day.zip", packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(reader.folder / name, "w", packing) as opened:
        for member, content in members.items():
            opened.writestr(member, content)
    return reader.folder / name


def day(*plates):
    return HEADER + "".join(map(ROW.format, plates))


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_an_archive_is_the_files_in_it(reader, key, packing):
    members = {"a.csv": day("A1"), "b/": "", "b/c.csv.gz": gzip.compress(day("A2", "A3").encode())}
    members |= {"__MACOSX/a.csv": "\0", ".DS_Store": "\0", "b/.x": "\0"}
    result = reader.file(archive(reader, members, packing=packing))
    assert result.fixes.table["vehicle"].to_pylist() == key.pseudonyms(["A1", "A2", "A3"], "").to_pylist()
    assert (result.report.file, result.report.rows_in) == ("day.zip", 3)


def test_progress_adds_up_to_the_size_of_the_archive(reader, source, area, key):
    path = archive(reader, {f"{n}.csv": day(f"A{n}") for n in range(9)})
    steps = []
    list(Reading(path, source, area, key, progress=steps.append).parts())
    assert sum(steps) == path.stat().st_size
    assert min(steps) > 0


def bomb(count):
    return day("A1") + "\n" * count


@pytest.mark.parametrize(
    "members",
    [{"a.csv": bomb(40 << 20)}, {f"{n}.csv": bomb(1 << 20) for n in range(40)}],
    ids=["one file", "many files"],
)
def test_what_unpacks_to_too_much_is_refused(reader, members):
    path = archive(reader, members)
    with pytest.raises(DataError, match="unpacks to more than records can"):
        reader.file(path)


def test_files_come_together_up_to_their_bytes(reader, monkeypatch):
    monkeypatch.setattr(input_file, "LOT_BYTES", 100)
    members = {f"{n}.csv": "x" * size for n, size in enumerate([60, 60, 200, 10, 20])}
    found = [[each.size for each in lot] for lot in InputFile(archive(reader, members)).file_groups()]
    assert found == [[60, 60], [200], [10, 20]]


def test_too_many_files_are_refused(reader, monkeypatch):
    monkeypatch.setattr(input_file, "MOST_MEMBERS", 2)
    with pytest.raises(DataError, match="too many files; got 3"):
        reader.file(archive(reader, {f"{n}.csv": day("A1") for n in range(3)}))


def encrypted(content):
    """The same archive with the mark of encryption on its file, in both places."""
    changed = bytearray(content)
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        changed[changed.index(magic) + at] |= 1
    return bytes(changed)


def test_damaged_and_foreign_archives_are_refused(reader):
    path = archive(reader, {"a.csv": day("A1")}, packing=zipfile.ZIP_STORED)
    content = path.read_bytes()
    nested = io.BytesIO()
    with zipfile.ZipFile(nested, "w") as inner:
        inner.writestr("a.csv", day("A1"))
    cases = {
        "truncated zip": [content[:-30], content.replace(b"A1,2020", b"A1,2021"), content[:80]],
        "encrypted": [encrypted(content)],
    }
    for says, damaged in cases.items():
        for each in damaged:
            with pytest.raises(DataError, match=says):
                reader.file(reader.write(each, "day.zip"))
    with pytest.raises(DataError, match="archive within an archive"):
        reader.file(archive(reader, {"a.zip": nested.getvalue()}))
    with pytest.raises(DataError, match="holds no file"):
        reader.file(archive(reader, {}))
    with pytest.raises(DataError, match="Parquet files in a zip"):
        reader.file(archive(reader, {"a.parquet": b"PAR1" + bytes(99)}))
    assert reader.file(archive(reader, {}), refuse_by_rows=False).report.rows_in == 0


def test_a_data_package_in_an_archive_reaches_no_file_outside(reader):
    package = '{"resources": [{"name": "vehicle_locations", "path": "day.csv"}]}'
    reader.write("vehicle_id,event_timestamp,latitude,longitude,speed\n", "day.csv")
    path = archive(reader, {"datapackage.json": package})
    with pytest.raises(DataError, match="outside its own folder"):
        reader.file(path, format="tides", columns={})


def test_suggest_looks_at_the_first_file(reader):
    path = archive(reader, {"x/": "", "day.csv": "vehicle_id,ts,lat,lon,speed_mph\n1,1606545000,1.5,2.5,3\n"})
    found = suggest_source(InputFile(path))
    assert (found.format, found.speed_unit, found.time_format) == ("csv", "mph", "epoch_s")


def test_speeds_are_derived_across_the_snapshots_of_an_archive(reader):
    def snapshot(second):
        message = FeedMessage()
        message.header.gtfs_realtime_version, message.header.timestamp = "2.0", 1606545000 + second
        position = message.entity.add(id="1").vehicle
        position.position.latitude, position.position.longitude = 21.2 + second * 9e-5, 72.8
        return message.SerializeToString()

    path = archive(reader, {f"{n:02}.pb": snapshot(n * 20) for n in range(4)})
    result = reader.file(path, format="gtfs_rt", columns={}, missing_speed="derive", units=METRES)
    assert (result.report.rows_kept, result.report.derived) == (3, 3)
    assert all(990 < speed < 1010 for speed in result.fixes.table["speed_centi"].to_pylist())


def moving(*minutes):
    return "".join(f"2020-11-28T12:{minute:02}:00Z;{21 + minute / 100:.4f};72.8000\n" for minute in minutes)


@pytest.mark.parametrize("ending", [".txt", ".csv.gz"])
def test_each_file_of_an_archive_is_one_vehicles(reader, key, declared_in, ending):
    members = {f"cabs/new_{name}{ending}": moving(0, 1, 2) for name in ("ab", "cd")}
    if ending.endswith(".gz"):
        members = {name: gzip.compress(text.encode()) for name, text in members.items()}
        members = {name.replace(".csv", ""): content for name, content in members.items()}
    path = archive(reader, members)
    text = source_table_in_toml(suggest_source(InputFile(path)), "cabs", "*").replace(
        'vehicle = "CHOOSE"', 'vehicle = "file name"'
    )
    assert "CHOOSE" not in text
    source = declared_in(text)
    declared = {each: getattr(source, each) for each in ("columns", "dialect", "missing_speed")}
    result = reader.file(path, **declared)
    names = result.fixes.table["vehicle"].to_pylist()
    assert names == [each for each in key.pseudonyms(["new_ab", "NEW_CD"], "").to_pylist() for _ in range(2)]
    assert result.report.rejected == {"missing_speed": 2}
    reader.write(moving(0, 1), "new_ab.txt")
    with pytest.raises(DataError, match=r"the name of new_ab\.txt would be a vehicle's"):
        reader.file(reader.folder / "new_ab.txt", **declared)


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2\n",
        b"\xff\xfe\x00at",
        b"PK\x03\x04" + bytes(40),
        b"PAR1" + bytes(40),
        b"\x1f\x8b" + bytes(40),
        "",
    ],
    ids=["other columns", "no text", "an archive", "Parquet", "gzip", "empty"],
)
def test_no_message_says_the_name_of_a_file_that_is_a_vehicles(reader, content):
    path = archive(reader, {"W-1234.csv": content})
    columns = {"vehicle": FILE_NAME, "time": "at", "latitude": "lat", "longitude": "lng", "speed": "v"}
    with pytest.raises(DataError) as refused:
        reader.file(path, columns=columns)
    said = [str(refused.value), repr(vars(refused.value)), repr(refused.value.__cause__)]
    assert not any("1234" in each for each in said), said
    assert not is_open(path), "the archive is open as long as the error is kept"


def is_open(path):
    files = [each for each in gc.get_objects() if isinstance(each, io.FileIO) and not each.closed]
    return str(path) in [each.name for each in files]


@pytest.mark.parametrize("name", ["day.csv.gz", "day.zip"])
def test_a_file_that_is_damaged_after_blocks_that_were_read_is_closed(reader, monkeypatch, name):
    monkeypatch.setattr(input_file, "LOT_FILES", 1)
    rng = random.Random(5)
    rows = [f"{rng.random()},2020-11-28T06:00:00Z,21.2,72.8,30" for _ in range(100_000)]
    content = "\n".join(["plate,when,lat,lng,v", *rows]) + "\n"
    path = (
        reader.write(content, name)
        if name.endswith(".gz")
        else archive(reader, {"a.csv": content, "b.csv": content})
    )
    whole = path.read_bytes()
    middle = len(whole) * 9 // 10
    path.write_bytes(whole[:middle] + bytes(9) + whole[middle + 9 :])
    taken = []
    reading = Reading(path, reader.source, reader.area, reader.key, progress=taken.append)
    with pytest.raises(DataError, match=r"damaged|cannot be unpacked") as refused:
        list(reading.parts())
    assert 0 < sum(taken) < len(whole)
    assert refused.value.__traceback__ is not None
    assert not is_open(path)


def test_a_vehicle_that_its_file_names_has_no_operator(declared_in):
    lines = '[[source]]\nname = "a"\nfiles = ["*"]\nformat = "csv"\nspeed_unit = "m/s"\ncolumns = { '
    rest = 'time = "t", latitude = "y", longitude = "x", speed = "v", operator = "o" }\n'
    with pytest.raises(ConfigError, match="no operator where"):
        declared_in(f'{lines}vehicle = "file name", {rest}')


def test_a_workbook_is_called_one(reader):
    members = {"[Content_Types].xml": "<Types/>", "xl/workbook.xml": "<workbook/>"}
    with pytest.raises(DataError, match=r"gps\.csv is an Excel workbook"):
        suggest_source(InputFile(archive(reader, members, "gps.csv")))
