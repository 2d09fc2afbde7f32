"""Tables as they are met: without names, with runs of spaces, with a position in one column."""

import pyarrow as pa
import pytest

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source
from trafficdp.model import Dialect

NUMBERED = {"vehicle": "1", "time": "2", "latitude": "3", "longitude": "4", "speed": "5"}
ROW = "A1,2020-11-28T12:00:00Z,21.2,72.8,30"


def facts(read):
    return [list(row.values())[1:] for row in read.fixes.table.to_pylist()]


def test_columns_without_names_are_numbered(reader):
    named = reader.rows(ROW, ROW.replace("A1", "B2"))
    numbered = reader.csv(
        f"{ROW}\n{ROW.replace('A1', 'B2')}\n", dialect=Dialect(header=False), columns=NUMBERED
    )
    assert numbered.fixes.table.equals(named.fixes.table)
    assert numbered.report.rows_in == 2


def test_how_many_columns_there_are_each_line_tells_for_itself(reader):
    lines = [
        f"{ROW},more,and more",
        ROW.replace("00Z", "03Z"),
        "A1,2020-11-28T12:00:01Z,21.2",
        f'{ROW.replace("00Z", "02Z")},"x,y"',
    ]
    read = reader.csv("\n".join(lines) + "\n", dialect=Dialect(header=False), columns=NUMBERED)
    assert (read.report.rows_in, read.report.rejected) == (4, {"malformed_row": 1})
    columns = {**NUMBERED, "speed": "1", "vehicle": "5"}
    read = reader.csv(f"{ROW}\n", dialect=Dialect(header=False), columns=columns)
    assert read.report.rejected == {"unreadable_speed": 1}


def test_spaces_are_one_delimiter_however_many(reader):
    content = "plate  when   lat lng    v\n  A1 2020-11-28T12:00:00Z 21.2    72.8 30  \n"
    for text in (content, content.replace("\n", "\r\n")):
        read = reader.csv(text, dialect=Dialect(delimiter=" "))
        assert facts(read) == facts(reader.rows(ROW))
    numbered = reader.csv(
        content.partition("\n")[2], dialect=Dialect(delimiter=" ", header=False), columns=NUMBERED
    )
    assert facts(numbered) == facts(reader.rows(ROW))


@pytest.mark.parametrize(
    "text",
    [
        "72.8,21.2",
        "72.8 21.2",
        "POINT(72.8 21.2)",
        "point ( 72.8 21.2 )",
        "[72.8, 21.2]",
        "(72.8;21.2)",
        "{72.8,21.2}",
    ],
)
def test_one_column_holds_both_numbers_of_a_position(reader, text):
    columns = {"vehicle": "plate", "time": "when", "speed": "v"}
    content = f'plate,when,place,v\nA1,2020-11-28T12:00:00Z,"{text}",30\n'
    read = reader.csv(content, columns={**columns, "longitude_latitude": "place"})
    assert facts(read) == facts(reader.rows(ROW))
    turned = reader.csv(content, columns={**columns, "latitude_longitude": "place"})
    assert turned.report.rejected == {"outside_area": 1}
    line = f'{{"plate": "A1", "when": "2020-11-28T12:00:00Z", "at": {{"place": "{text}"}}, "v": 30}}\n'
    path = reader.write(line, "day.jsonl")
    read = reader.file(path, format="json", columns={**columns, "longitude_latitude": "at.place"})
    assert facts(read) == facts(reader.rows(ROW))


@pytest.mark.parametrize(
    "text", ["72.8", "72.8,21.2,3", "POLYGON((72.8 21.2))", "", "72.8,", "x,y", "72.8,21.2)x"]
)
def test_what_is_no_pair_is_no_position(reader, text):
    columns = {"vehicle": "plate", "time": "when", "speed": "v", "longitude_latitude": "place"}
    read = reader.csv(f'plate,when,place,v\nA1,2020-11-28T12:00:00Z,"{text}",30\n', columns=columns)
    assert read.report.rejected == {"missing_position": 1}


def test_zstd_is_unpacked_whatever_the_name_says(reader):
    expected = facts(reader.rows(ROW))
    plain = ("plate,when,lat,lng,v\n" + f"{ROW}\n").encode()
    for name in ("day.csv.zst", "day.csv"):
        path = reader.folder / name
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
            stream.write(plain)
        assert facts(reader.file(path)) == expected
        packed = path.read_bytes()
        path.write_bytes(packed * 2)
        assert reader.file(path).report.rows_in == 3
        for cut in (5, len(packed) // 2, len(packed) - 1):
            path.write_bytes(packed[:cut])
            with pytest.raises(DataError, match="damaged or truncated zstd file"):
                reader.file(path)
    (reader.folder / "day.csv.zst").write_bytes(plain)
    with pytest.raises(DataError, match="not a zstd file"):
        reader.file(reader.folder / "day.csv.zst")
    with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
        stream.write(plain + f"{ROW}\n".encode() * 1_000_000)
    with pytest.raises(DataError, match="unpacks to more than records can"):
        reader.file(path)


REAL = {
    "366,2008-02-02 15:36:08,116.51172,39.92123": ('longitude = "3" }', 2),
    "37.75134 -122.39488 0 1213084687": ('latitude = "1", longitude = "2" }\nheader', 1),
    "1001,26,778,elmdv,42.922295,-78.861984,1596128083,2044,": ('latitude = "5", longitude = "6"', 1),
    # Warsaw, or the sea off Yemen
    "1001;2020-11-28T12:00:00Z;52.199538;21.118153": (
        'longitude = "4" }  # or latitude and longitude the',
        1,
    ),
    "4711;2019-05-01 10:00:00+02;52,37312;9,73312;33": (
        'longitude = "4" }  # or latitude and longitude the',
        1,
    ),
    "5001,20200101000001,127.0012,37.5512,35": ('time_format = "%Y%m%d%H%M%S"\ntime_zone = "CHOOSE"', 2),
    "156;2014-02-01 00:00:00.739166+01;POINT(41.8836 12.4877)": (
        'longitude_latitude = "3" }  # or latitude',
        1,
    ),
    "7\t1606545000123456\t21.2\t72.8\t30": ('time_format = "epoch_us"', 3),
}


@pytest.mark.parametrize("line", REAL)
def test_a_file_without_names_needs_only_the_meaning_of_its_columns(tmp_path, line):
    (tmp_path / "day.txt").write_text(f"{line}\n" * 3)
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "day.txt")), "buses", "*.txt")
    known, choices = REAL[line]
    assert known in text
    assert "header = false" in text
    assert text.count('"CHOOSE"') == choices
    assert not [field for field in line.split(",") if len(field) > 3 and field in text]


def test_a_zero_that_is_left_out_hides_no_degrees(tmp_path):
    lines = "7 37.75134 -122.39 0.12\n" + "7 37.75134 -122.39488 0.1234\n7 37.7 -122.39488 0.12\n" * 2
    (tmp_path / "day.txt").write_text(lines)
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "day.txt")), "buses", "*.txt")
    assert 'latitude = "2", longitude = "3"' in text


def test_a_receiver_without_a_position_hides_no_degrees(tmp_path):
    rows = ["1001,26,42.922295,-78.861984", "1002,26,99.000000,999.000000", "1003,26,42.922302,-78.861901"]
    (tmp_path / "day.txt").write_text("".join(f"{row},1596128083\n" for row in rows))
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "day.txt")), "buses", "*.txt")
    assert 'latitude = "3", longitude = "4" }\n' in text


def test_whole_journeys_are_told_from_positions(tmp_path):
    row = '"7","1372636858","[[-8.618643,41.141412],[-8.618499,41.141376]]"\n'
    (tmp_path / "day.csv").write_text('"TAXI_ID","TIMESTAMP","POLYLINE"\n' + row * 2)
    with pytest.raises(DataError, match="whole journeys") as raised:
        suggest_source(InputFile(tmp_path / "day.csv"))
    assert "41.14" not in str(raised.value)


def test_what_is_suggested_loads_and_reads(tmp_path, declared_in):
    rows = "7;2020-11-28 12:00:00+00;POINT(72.8 21.2)\n7;2020-11-28 12:01:00+00;POINT(72.801 21.2)\n"
    (tmp_path / "day.txt").write_text(rows)
    text = source_table_in_toml(suggest_source(InputFile(tmp_path / "day.txt")), "buses", "*.txt").replace(
        "CHOOSE", "1"
    )
    source = declared_in(text)
    assert dict(source.columns) == {"vehicle": "1", "time": "2", "longitude_latitude": "3"}
    assert source.dialect == Dialect(delimiter=";", header=False)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('format = "csv"\nheader = false\ncolumns = { vehicle = "plate", time = "2", latitude = "3", '
         'longitude = "4", speed = "5" }', "the place of a column"),
        ('format = "csv"\ncolumns = { vehicle = "1", time = "2", latitude = "3", longitude_latitude = "4", '
         'speed = "5" }', "longitude_latitude or latitude_longitude"),
        ('format = "parquet"\ncolumns = { vehicle = "1", time = "2", longitude_latitude = "4", speed = "5" }',
         "csv, json, xml only"),
        ('format = "csv"\nheader = false\nencoding = "utf-16"\ncolumns = { vehicle = "1", time = "2", '
         'latitude = "3", longitude = "4", speed = "5" }', "no first record may tell"),
    ],
)  # fmt: skip
def test_declarations_that_mean_nothing_are_refused(declared_in, lines, message):
    source = f'[[source]]\nname = "buses"\nfiles = ["*"]\nspeed_unit = "km/h"\n{lines}\n'
    with pytest.raises(ConfigError, match=message):
        declared_in(source)
