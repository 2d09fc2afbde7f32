from __future__ import annotations

import gzip
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.read import read_file

HEADER = "plate,when,lat,lng,v"
ROW = "A1,2020-11-28T12:00:00+05:30,21.2,72.8,30"


def facts(result):
    table = result.fixes.table
    return [table.column(name).to_pylist() for name in ("time_us", "latitude", "longitude", "speed_centi")]


def test_columns_are_read_by_name_never_by_position(reader):
    straight = reader.csv(f"{HEADER}\n{ROW}\n")
    turned = reader.csv('v,route,lng,lat,when,plate\n30,"a,b;""c",72.8,21.2,2020-11-28T12:00:00+05:30,A1\n')
    assert facts(straight) == facts(turned) == [[1606545000000000], [21.2], [72.8], [3000]]
    assert straight.fixes.table.column("vehicle") == turned.fixes.table.column("vehicle")


@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz", "unnamed"])
@pytest.mark.parametrize("mark", ["", "﻿"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_packing_byte_order_mark_and_line_ends_change_nothing(reader, name, mark, ending):
    result = reader.csv(mark + ending.join([HEADER, ROW, ""]), name)
    assert facts(result) == [[1606545000000000], [21.2], [72.8], [3000]]


def test_identifiers_that_look_like_numbers_stay_text(reader, key):
    import pyarrow as pa

    result = reader.rows(*(ROW.replace("A1", plate) for plate in ("007", "7", "2010")))
    expected = key.pseudonyms(pa.array(["007", "7", "2010"]), "").to_pylist()
    assert result.fixes.table.column("vehicle").to_pylist() == expected


def test_a_missing_column_is_named_with_the_ones_that_are_there(reader):
    with pytest.raises(DataError, match=r"lacks the column v; got the columns plate, when, lat, lng, speed"):
        reader.csv("plate,when,lat,lng,speed\nA1,x,1,2,3\n")


@pytest.mark.parametrize(
    "line", [ROW, "KA01AB1234,north,slow", '[{"plate": "KA-A1", "when": "noon"}]', "<plate>KA-A1</plate>"]
)
def test_a_first_line_that_holds_values_is_refused_without_repeating_them(reader, line):
    with pytest.raises(DataError, match="first line that holds values") as caught:
        reader.csv(f"{line}\n{line}\n")
    assert not re.search(r"21\.2|72\.8|A1|KA|north|noon", str(caught.value))


def test_another_separator_is_told_with_what_to_declare(reader):
    with pytest.raises(DataError, match='write delimiter = ";"'):
        reader.csv(HEADER.replace(",", ";") + "\n" + ROW.replace(",", ";"))


def test_a_repeated_column_that_is_needed_is_refused(reader):
    with pytest.raises(DataError, match="two columns of one name; got v"):
        reader.csv(f"{HEADER},v\n{ROW},31\n")


def test_a_repeated_column_that_is_not_needed_is_no_matter(reader):
    assert len(reader.csv(f"{HEADER},x,x\n{ROW},1,2\n").fixes) == 1


def test_an_undeclared_column_is_a_config_error(reader):
    with pytest.raises(ConfigError, match="which column is the latitude"):
        reader.csv(f"{HEADER}\n{ROW}\n", columns={"vehicle": "plate", "time": "when"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"plate,when,lat,lng,v\n", "has no rows"),
        (b"plate,when,lat,lng,v", "has no rows"),
        (b"plate,when,lat,lng,v\nA,B\nC\n", "no rows that fit its header; got 2 that cannot be read"),
        (b"\n\n", "does not begin with column names"),
        (
            "plate,when,lat,lng,v\nÄ,x,1,2,3\n".encode("latin-1"),
            "1 that cannot be read; expected lines of 5 fields, .*, text in UTF-8",
        ),
        ("plate,when,lat,lng,v,Ä\nA,x,1,2,3,4\n".encode("latin-1"), "not text in UTF-8"),
        (b"plate,when,lat,lng,v\rA1,2020-11-28T12:00:00Z,21.2,72.8,3\r", "carriage returns only"),
        ("plate,when,lat,lng,vÄ\n".encode("utf-16"), "lacks the column v"),
        (bytes(range(1, 256)) * 40, "lacks the columns|not text in UTF-8"),
        (b"\x00" * 5000, "does not begin with column names"),
        (b"PK\x03\x04rest", "truncated zip archive"),
        (b"\x28\xb5\x2f\xfdrest", "damaged or truncated zstd file"),
        (b"SQLite format 3\x00", "a GeoPackage"),
        (b"PAR1rest", "is a Parquet file"),
        (b"plate,when,lat,lng,v\nA1,never,21.2,72.8,30\n", "not a single time"),
    ],
)
def test_bad_files_are_one_clear_data_error(reader, content, message):
    with pytest.raises(DataError, match=message) as caught:
        reader.csv(content)
    assert caught.value.exit_code == 4
    assert "\n" not in str(caught.value)


def test_a_declared_operator_belongs_to_the_identifier(reader, key):
    columns = {**reader.source.columns, "operator": "agency"}
    rows = [f"{ROW.strip()},{agency}" for agency in ("X:1", "Y:1", "X:2", "none", "")]
    content = "\n".join([f"{HEADER.strip()},agency", *rows]) + "\n"
    result = reader.csv(content, columns=columns, operator_separator=":")
    plate = ROW.split(",")[0]
    expected = key.pseudonyms([f"X/{plate}", f"Y/{plate}"], "").to_pylist()
    assert result.fixes.table["vehicle"].to_pylist() == expected
    assert result.report.rejected == {"missing_operator": 2, "duplicate_in_file": 1}


def test_unparsable_times_name_the_declared_format(reader):
    with pytest.raises(DataError, match="format epoch_ms"):
        reader.csv(f"{HEADER}\n{ROW}\n", time_format="epoch_ms")
    with pytest.raises(DataError, match="set time_zone"):
        reader.csv(f"{HEADER}\n" + ROW.replace("+05:30", ""))


@pytest.mark.parametrize("keep", [1, 11, 60, -9, -1])
def test_a_truncated_gzip_is_refused(reader, tmp_path, keep):
    packed = gzip.compress(("\n".join([HEADER, *[ROW] * 1000])).encode())
    (tmp_path / "day.csv.gz").write_bytes(packed[:keep])
    with pytest.raises(DataError, match=r"gzip file"):
        reader.file(tmp_path / "day.csv.gz")


@pytest.mark.slow
def test_a_large_truncated_gzip_is_refused_in_the_middle(reader, tmp_path):
    rows = [
        f"A1,2020-11-28T12:{i // 60 % 60:02}:{i % 60:02}Z,21.{i % 997},72.8,{i % 71}" for i in range(300_000)
    ]
    packed = gzip.compress("\n".join([HEADER, *rows]).encode(), compresslevel=1)
    (tmp_path / "day.csv.gz").write_bytes(packed[: len(packed) * 3 // 4])
    with pytest.raises(DataError, match="truncated gzip"):
        reader.file(tmp_path / "day.csv.gz")


def test_an_empty_gzip_and_a_wrong_name_are_refused(reader, tmp_path):
    with pytest.raises(DataError, match="empty"):
        reader.csv("", "day.csv.gz")
    (tmp_path / "day.csv.gz").write_bytes(f"{HEADER}\n{ROW}\n".encode())
    with pytest.raises(DataError, match="not a gzip file"):
        reader.file(tmp_path / "day.csv.gz")


def test_a_missing_file_and_a_folder_are_refused(reader, tmp_path):
    with pytest.raises(DataError, match="there is no file"):
        reader.file(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="got a folder"):
        reader.file(tmp_path)


def test_blocks_are_joined_in_file_order(reader, monkeypatch):
    monkeypatch.setattr("trafficdp.ingest.formats.csv_files._BLOCK_BYTES", 400)
    rows = [f"B{i % 3},2020-11-28T{i // 60:02}:{i % 60:02}:00Z,21.2,72.8,{i}" for i in range(200)]
    rows.insert(150, "short")
    result = reader.rows(*rows)
    assert facts(result)[3] == [i * 100 for i in range(200) if i != 255]
    assert result.report.rejected == {"malformed_row": 1}


def test_progress_adds_up_to_the_size_of_the_file(reader, area, key, source):
    told: list[int] = []
    path = reader.write(f"{HEADER}\n{ROW}\n" * 5, "day.csv.gz")
    path = reader.write("\n".join([HEADER, *[ROW] * 5]), "day.csv.gz")
    read_file(path, source, area, key, progress=told.append)
    assert sum(told) == path.stat().st_size
    assert min(told) > 0


@given(st.binary(max_size=400), st.sampled_from([b"", b"plate,when,lat,lng,v\n"]), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
def test_random_bytes_end_in_a_report_or_in_our_errors(reader, content, start, packed):
    data = start + content
    path = reader.write(gzip.compress(data) if packed else data)
    try:
        report = reader.file(path).report
    except DataError:
        return
    assert report.rows_in == report.rows_kept + sum(report.rejected.values())


def test_the_reader_refuses_nothing_it_need_not(reader, source, area, key):
    """A speed column full of words rejects every row, but is no error: the report says it."""
    path = reader.write(f"{HEADER}\n" + ROW.replace("30", "word", 1).replace("word", "30", 1) + "x\n")
    result = read_file(path, replace(source, name="other"), area, key)
    assert result.report.rejected == {"unreadable_speed": 1}
    assert result.report.source == "other"


@pytest.mark.slow
def test_a_gzip_of_far_more_than_records_is_refused_after_its_first_bytes(reader):
    empty = b",,,,\n" * (5 << 20)
    path = reader.write(HEADER.encode() + b"\n" + empty, "day.csv.gz")
    assert path.stat().st_size < 1 << 16
    with pytest.raises(DataError, match=r"unpacks to more than records can; got .*; expected .*; fetch it"):
        reader.file(path)


def test_rows_that_repeat_pass_however_well_they_pack(reader):
    rows = "\n".join([HEADER, *[ROW] * 20_000, ""])
    path = reader.write(rows, "day.csv.gz")
    assert len(rows) > 200 * path.stat().st_size
    assert reader.file(path).report.rows_in == 20_000


def test_a_quotation_mark_that_is_not_closed_costs_its_line_only(reader):
    result = reader.csv(f'{HEADER}\n{ROW}\n"{"x" * (6 << 20)}\n"{ROW}\n{ROW.replace("A1", "B1")}\n')
    assert facts(result)[3] == [3000, 3000]
    assert result.report.rejected == {"malformed_row": 2}
