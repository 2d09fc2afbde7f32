"""XML by declared names, GPX, SUMO's FCD output, and NextBus."""

import pytest

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.formats import xml_files
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source

NOON_US = 1_606_564_800_000_000
GPX = """<?xml version="1.0"?>
<gpx xmlns="http://www.topografix.com/GPX/1/1" version="1.1" creator="x">
<metadata><name>secret</name><time>2020-11-28T00:00:00Z</time></metadata>
<wpt lat="21.3" lon="72.9"><name>depot</name></wpt>
<trk><name>Bus 7</name><trkseg>
<trkpt lat="21.2" lon="72.8"><ele>3</ele><time>2020-11-28T12:00:00Z</time>
<extensions><g:TrackPointExtension xmlns:g="http://g"><g:speed>3.5</g:speed></g:TrackPointExtension></extensions>
</trkpt>
<trkpt lat="21.21" lon="72.8"><time>2020-11-28T12:01:00Z</time></trkpt>
</trkseg><trkseg><trkpt lat="21.22" lon="72.8"><time>2020-11-28T12:02:00Z</time></trkpt></trkseg></trk>
<trk><name>Bus 8</name><trkseg>
<trkpt lat="21.2" lon="72.8"><time>2020-11-28T12:00:00Z</time>
<extensions><TrackPointExtension><speed>4</speed></TrackPointExtension></extensions>
</trkpt></trkseg></trk></gpx>"""
FCD = """<?xml version="1.0" encoding="UTF-8"?>
<!-- generated on a day by Eclipse SUMO -->
<fcd-export xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
    <timestep time="0.00">
        <vehicle id="v0" x="72.8" y="21.2" angle="3" type="bus" speed="13.2" pos="5.1" lane="a_0" slope="0"/>
        <person id="p" x="72.8" y="21.2" angle="0" speed="1" pos="0" edge="a" slope="0"/>
        <vehicle id="v1" x="72.9" y="21.2" speed="3"/>
    </timestep>
    <timestep time="1.50"><vehicle id="v0" x="72.81" y="21.2" speed="14"/></timestep>
</fcd-export>"""
NEXTBUS = """<?xml version="1.0" encoding="utf-8" ?>
<body copyright="All data copyright agency.">
<vehicle id="1234" routeTag="N" lat="21.2" lon="72.8" secsSinceReport="12" predictable="true" speedKmHr="30"/>
<vehicle id="1235" routeTag="N" lat="21.2" lon="72.9" secsSinceReport="0" heading="218" speedKmHr="0"/>
<vehicle id="1236" lat="21.2" lon="72.8"/>
<lastTime time="1606564812000"/></body>"""


@pytest.fixture
def from_suggestion(reader, declared_in):
    """Reads a file by what is suggested of it; ``chosen`` stands for CHOOSE."""

    def read(content, name, chosen=None):
        path = reader.write(content, name)
        text = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*")
        if chosen is None:
            assert "CHOOSE" not in text
        source = declared_in(text.replace("CHOOSE", chosen or ""))
        return reader.file(
            path,
            **{
                each: getattr(source, each)
                for each in (
                    "format",
                    "columns",
                    "records",
                    "time_format",
                    "units",
                    "missing_speed",
                    "sentinels",
                )
            },
        )

    return read


def rows(read):
    return [
        (row["time_us"] - NOON_US, row["latitude"], row["longitude"], row["speed_centi"])
        for row in read.fixes.table.to_pylist()
    ]


def test_gpx_is_read_as_it_is_suggested(from_suggestion):
    read = from_suggestion(GPX, "day.gpx")
    assert read.report.rows_in == 4
    assert len(set(read.fixes.table.column("vehicle").to_pylist())) == 2
    assert rows(read)[0] == (0, 21.2, 72.8, 350)


def test_sumo_is_read_from_the_start_that_is_said(from_suggestion):
    read = from_suggestion(FCD, "fcd.xml", "2020-11-28T13:00:00+01:00")
    assert read.report.rows_in == 3
    assert sorted(rows(read)) == [(0, 21.2, 72.8, 1320), (0, 21.2, 72.9, 300), (1_500_000, 21.2, 72.81, 1400)]


def test_sumo_without_degrees_says_what_to_do(reader):
    path = reader.write(FCD.replace('x="72.8"', 'x="7280.5"'), "fcd.xml")
    with pytest.raises(DataError, match="fcd-output"):
        suggest_source(InputFile(path))


def test_nextbus_counts_back_from_the_time_of_the_document(from_suggestion):
    read = from_suggestion(NEXTBUS, "day.xml")
    assert sorted(rows(read)) == [(0, 21.2, 72.8, 3000), (12_000_000, 21.2, 72.9, 0)]
    assert read.report.rejected == {"unreadable_time": 1}


def test_nextbus_without_its_time_has_no_times(reader):
    content = NEXTBUS.replace("<lastTime", "<other")
    with pytest.raises(DataError, match="not a single time"):
        reader.file(reader.write(content, "day.xml"), format="nextbus", columns={})


NAMES = {"vehicle": "../../name", "time": "time", "latitude": "@lat", "longitude": "@lon"}
DECLARED = {"format": "xml", "columns": NAMES, "missing_speed": "derive", "records": "trkpt"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GPX.replace("<trk>", "<!DOCTYPE x><trk>", 1), "not well-formed"),
        (GPX.replace("<gpx", '<!DOCTYPE gpx [<!ENTITY x SYSTEM "/etc/passwd">]><gpx'), "document type"),
        (GPX[:-9], "not well-formed"),
        ("plate,when\n", "not well-formed"),
        (GPX.replace("trkpt", "rtept"), "no records"),
        (GPX.replace('lon="', 'lng="'), "no record of day.gpx has @lon"),
    ],
)
def test_what_cannot_be_read_says_why(reader, content, message):
    with pytest.raises(DataError, match=message):
        reader.file(reader.write(content, "day.gpx"), **DECLARED)


def test_what_lies_around_records_is_kept_and_all_else_dropped(reader, monkeypatch):
    """A file of many tracks, read in small blocks, with other elements between."""
    monkeypatch.setattr(xml_files, "ROWS", 7)
    monkeypatch.setattr(xml_files, "_CHUNK", 999)
    point = (
        '<trkpt lat="21.2" lon="72.8"><time>2020-11-28T12:{:02}:{:02}Z</time></trkpt><other/><name>no</name>'
    )
    tracks = [
        f"<trk><name>Bus {number}</name><name>no</name><trkseg>"
        + "".join(point.format(minute, number) for minute in range(30))
        + "</trkseg></trk><between/>"
        for number in range(40)
    ]
    read = reader.file(reader.write(f"<gpx>{''.join(tracks)}</gpx>", "day.gpx"), **DECLARED)
    assert read.report.rows_in == 1200
    assert len(set(read.fixes.table.column("vehicle").to_pylist())) == 40


def test_memory_is_bounded_by_what_lies_between_records(reader, monkeypatch):
    monkeypatch.setattr(xml_files, "MOST_BETWEEN", 1 << 20)
    content = f"<gpx>{'<a>x</a>' * 300_000}</gpx>"
    with pytest.raises(DataError, match="without a record"):
        reader.file(reader.write(content, "day.gpx"), **DECLARED)


def test_other_xml_is_suggested_by_its_names(from_suggestion):
    bus = "<bus><plate>A1</plate><where><lat>21.2</lat></where><Latitude>21.2</Latitude>"
    bus += "<Longitude>72.8</Longitude><timestamp>1606564800</timestamp><speed_kmh>36</speed_kmh></bus>"
    read = from_suggestion(f"<feed><made>x</made>{bus}</feed>", "day.xml")
    assert rows(read) == [(0, 21.2, 72.8, 3600)]


def test_xml_without_positions_is_not_recognised(reader):
    path = reader.write("<feed><bus><plate>A1</plate></bus></feed>", "day.xml")
    with pytest.raises(DataError, match="not recognised"):
        suggest_source(InputFile(path))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "records is missing"),
        ('records = "trkpt"\ntime_format = "seconds since 2020-11-28T12:00:00"', "time_format"),
        ('records = "trkpt"\ntime_format = "seconds since noon"', "time_format"),
    ],
)
def test_a_declaration_that_lacks_something_is_refused(declared_in, lines, message):
    source = '[[source]]\nname = "b"\nfiles = ["*"]\nformat = "xml"\nspeed_unit = "m/s"\n'
    columns = (
        'columns = { vehicle = "@id", time = "time", latitude = "@lat", longitude = "@lon", speed = "@v" }\n'
    )
    with pytest.raises(ConfigError, match=message):
        declared_in(f"{source}{columns}{lines}\n")
