"""Zip archives: the files in them are read one by one, and traps are refused by public limits."""

from __future__ import annotations

import gzip
import io
import zipfile

import pytest
from google.transit.gtfs_realtime_pb2 import FeedMessage

from trafficdp.errors import DataError
from trafficdp.ingest import input_file
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import Reading
from trafficdp.ingest.suggest import suggest
from trafficdp.model import SpeedUnit, UnitPeriod

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
    assert reader.file(archive(reader, {}), judged=False).report.rows_in == 0


def test_a_data_package_in_an_archive_reaches_no_file_outside(reader):
    package = '{"resources": [{"name": "vehicle_locations", "path": "day.csv"}]}'
    reader.write("vehicle_id,event_timestamp,latitude,longitude,speed\n", "day.csv")
    path = archive(reader, {"datapackage.json": package})
    with pytest.raises(DataError, match="outside its own folder"):
        reader.file(path, format="tides", columns={})


def test_suggest_looks_at_the_first_file(reader):
    path = archive(reader, {"x/": "", "day.csv": "vehicle_id,ts,lat,lon,speed_mph\n1,1606545000,1.5,2.5,3\n"})
    found = suggest(InputFile(path))
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
