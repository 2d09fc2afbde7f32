"""SIRI Vehicle Monitoring, as XML under any prefix and as JSON."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from trafficdp.errors import DataError
from trafficdp.ingest.formats import siri, xml_files
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.suggest import source_table_in_toml, suggest_source
from trafficdp.ingest.vehicle_key import VehicleParts
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod

NAMESPACE = "http://www.siri.org.uk/siri"
SOURCE = SourceDeclaration("siri", "siri", ("*",), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))
NOON = "2020-11-28T12:00:00+00:00"
NOON_US = 1_606_564_800_000_000
PLACE = "<VehicleLocation><Longitude>72.8</Longitude><Latitude>21.2</Latitude></VehicleLocation>"
USUAL = {
    "time": f"<RecordedAtTime>{NOON}</RecordedAtTime>",
    "operator": "<OperatorRef>TFLO</OperatorRef>",
    "vehicle": "<VehicleRef>LJ1</VehicleRef>",
    "place": PLACE,
    "speed": "<Velocity>8</Velocity>",
    "located": "",
    "more": "",
}


def activity(**parts):
    said = USUAL | parts
    return (
        f"<VehicleActivity>{said['time']}<ItemIdentifier>X</ItemIdentifier><MonitoredVehicleJourney>"
        f"<LineRef>42</LineRef>{said['operator']}{said['located']}{said['place']}{said['speed']}"
        f"{said['vehicle']}{said['more']}</MonitoredVehicleJourney></VehicleActivity>"
    )


def document(*activities, root=f'<Siri xmlns="{NAMESPACE}" version="2.0">', end="</Siri>"):
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{root}<ServiceDelivery><ResponseTimestamp>{NOON}'
        "</ResponseTimestamp><VehicleMonitoringDelivery>"
        + "".join(activities)
        + f"</VehicleMonitoringDelivery></ServiceDelivery>{end}"
    )


def prefixed(text, prefix):
    """The same document with a prefix before every element."""
    text = text.replace("xmlns=", f"xmlns:{prefix}=").replace("</", f"</{prefix}:")
    return "".join(
        f"<{prefix}:{part}" if at and part[0] not in "/?" else ("<" * bool(at)) + part
        for at, part in enumerate(text.split("<"))
    )


def as_json(text):
    """An activity as SIRI Lite writes it."""
    from lxml import etree

    def value(element):
        if not len(element):
            return element.text
        return {etree.QName(child).localname: value(child) for child in element}

    root = value(etree.fromstring(text.encode()))
    delivery = root["ServiceDelivery"]["VehicleMonitoringDelivery"]
    root["ServiceDelivery"]["VehicleMonitoringDelivery"] = [
        {"VehicleActivity": [delivery["VehicleActivity"]]}
    ]
    return json.dumps({"Siri": root})


def read(reader, content, name="siri.xml", *, refuse_by_rows=True, **changes):
    path = reader.write(content, name)
    return replace(reader, source=replace(SOURCE, **changes)).file(path, refuse_by_rows=refuse_by_rows)


def rows(result):
    return [
        (row["vehicle"], row["time_us"], row["latitude"], row["longitude"], row["speed_centi"])
        for row in result.fixes.table.to_pylist()
    ]


@pytest.fixture
def usual(key):
    return [(key.pseudonyms(["TFLO/LJ1"], "").to_pylist()[0], NOON_US, 21.2, 72.8, 800)]


SOAP = (
    '<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><GetVehicleMonitoringResponse>'
)
SHAPES = {
    "default namespace": document(activity()),
    "no namespace": document(activity(), root="<Siri>"),
    "version 1.3": document(activity(), root=f'<Siri xmlns="{NAMESPACE}" version="1.3">'),
    "version 2.1": document(activity(), root=f'<Siri xmlns="{NAMESPACE}" version="2.1">'),
    "a prefix": prefixed(document(activity()), "siri"),
    "SOAP": document(activity(), root=SOAP, end="</GetVehicleMonitoringResponse></s:Body></s:Envelope>"),
    "UTF-16": document(activity()).replace("UTF-8", "UTF-16").encode("utf-16"),
    "comments and CDATA": document(
        activity(vehicle="<!-- x --><VehicleRef><!-- y --><![CDATA[LJ]]>1</VehicleRef><?x y?>")
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_elements_are_known_by_their_local_names(reader, usual, shape):
    assert rows(read(reader, SHAPES[shape])) == usual


@pytest.mark.parametrize("name", ["siri.json", "siri.json.gz", "siri.jsonl"])
def test_json_says_the_same(reader, usual, name):
    assert rows(read(reader, as_json(document(activity())), name)) == usual


def test_json_may_wrap_values_and_hold_one_activity_a_line(reader, usual):
    whole = json.loads(as_json(document(activity())))["Siri"]
    (one,) = whole["ServiceDelivery"]["VehicleMonitoringDelivery"][0]["VehicleActivity"]
    one["MonitoredVehicleJourney"]["VehicleRef"] = [{"value": "LJ1"}]
    whole["ServiceDelivery"]["VehicleMonitoringDelivery"] = {"VehicleActivity": one}
    assert rows(read(reader, json.dumps(whole), "a.json")) == usual
    assert rows(read(reader, json.dumps(one), "a.jsonl")) == usual


def test_the_time_is_that_of_the_location_and_else_of_the_record(reader):
    located = "<LocationRecordedAtTime>2020-11-28T11:59:50Z</LocationRecordedAtTime>"
    blank = "<LocationRecordedAtTime> </LocationRecordedAtTime>"
    result = read(reader, document(activity(located=located), activity(located=blank)))
    assert [row[1] for row in rows(result)] == [NOON_US - 10_000_000, NOON_US]


def test_a_time_without_offset_is_on_the_declared_clock(reader):
    local = document(activity(time="<RecordedAtTime>2020-11-28T17:30:00</RecordedAtTime>"))
    assert rows(read(reader, local, time_zone="Asia/Kolkata"))[0][1] == NOON_US
    assert read(reader, local, refuse_by_rows=False).report.rejected == {"unreadable_time": 1}


def test_a_number_is_one_vehicle_of_its_operator_only(reader, key):
    content = document(
        activity(),
        activity(operator="<OperatorRef>FBRI</OperatorRef>"),
        activity(operator=""),
        activity(operator="<OperatorRef> </OperatorRef>"),
        activity(vehicle=""),
        activity(vehicle="<VehicleRef>NULL</VehicleRef>"),
        activity(vehicle="", operator=""),
    )
    result = read(reader, content)
    assert (
        result.fixes.table["vehicle"].to_pylist() == key.pseudonyms(["TFLO/LJ1", "FBRI/LJ1"], "").to_pylist()
    )
    assert result.report.rejected == {"missing_operator": 2, "missing_vehicle": 3}


def test_rows_without_operator_are_counted_alike_in_parts(reader, tmp_path, monkeypatch):
    monkeypatch.setattr("trafficdp.ingest.vehicle_key.ROWS_AT_ONCE", 2)
    content = document(*[activity(), activity(operator="")] * 4)
    blocks = siri.read(InputFile(reader.write(content, "siri.xml")), SOURCE)
    with VehicleParts(tmp_path) as held:
        for block in blocks:
            held.append(block)
        parts = list(held.read())
    assert len(parts) > 1
    assert sum(int(part.no_operator.sum()) for part in parts) == 4


def test_the_driver_is_never_read(reader, monkeypatch):
    """Wherever a producer puts the name of a person, no record holds it."""
    driver = "<DriverRef>JANE DOE</DriverRef>"
    seen = []
    usual_records = siri._records
    monkeypatch.setattr(siri, "_records", lambda rows, *rest: seen.append(rows) or usual_records(rows, *rest))
    content = document(
        activity(
            vehicle=driver + USUAL["vehicle"] + driver,
            place=f"<VehicleLocation>{driver}<Longitude>72.8</Longitude><Latitude>21.2</Latitude></VehicleLocation>",
            more=f"<DriverName>JANE DOE</DriverName><Extensions>{driver}</Extensions>",
        ),
        activity(vehicle=driver),
    )
    for text, name in ((content, "a.xml"), (as_json(document(activity(more=driver))), "a.json")):
        result = read(reader, text, name)
        assert result.report.rows_kept == 1
        assert "JANE" not in repr(seen) + repr(result.fixes.table.to_pylist()) + result.report.to_json()
    assert len(seen) == 2


def at(x, y, system):
    return f'<VehicleLocation srsName="{system}"><Coordinates>{x} {y}</Coordinates></VehicleLocation>'


def test_projected_coordinates_become_degrees(reader):
    """The cathedral of Paris in Lambert 93, as the institute that defines it publishes both."""
    source = replace(SOURCE)
    for system in ("EPSG:2154", "urn:ogc:def:crs:EPSG::2154", "epsg:2154"):
        (records,) = siri.read(
            InputFile(reader.write(document(activity(place=at(652469.02, 6862035.26, system))), "a.xml")),
            source,
        )
        assert records.longitude[0] == pytest.approx(2.3522, abs=1e-4)
        assert records.latitude[0] == pytest.approx(48.8566, abs=1e-4)


@pytest.mark.parametrize(
    "system", ["EPSG:28992", "urn:ogc:def:crs:EPSG::28992", "urn:x-ogc:def:crs:EPSG:6.9:28992"]
)
def test_systems_are_read_by_all_digits_of_their_number(reader, system):
    """The tower of Amersfoort, from which the Dutch grid is measured; 8992 is another system, or none."""
    content = document(activity(place=at(155000, 463000, system)))
    (records,) = siri.read(InputFile(reader.write(content, "a.xml")), SOURCE)
    assert records.longitude[0] == pytest.approx(5.3872, abs=1e-3)
    assert records.latitude[0] == pytest.approx(52.1552, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("652469.02 6862035.26", "EPSG:99999"),
        ("652469.02 6862035.26", "+proj=pipeline +step +proj=hgridshift +grids=/etc/passwd"),
        ("652469.02 6862035.26", ""),
        ("2.35 48.85", "EPSG:4326"),
        ("inf nan", "EPSG:2154"),
        ("652469.02", "EPSG:2154"),
        ("east north", "EPSG:2154"),
    ],
)
def test_a_place_that_nobody_can_say_is_missing_and_spoils_no_other(reader, usual, text, system):
    odd = f'<VehicleLocation srsName="{system}"><Coordinates>{text}</Coordinates></VehicleLocation>'
    result = read(reader, document(activity(place=odd), activity()))
    assert rows(result) == usual
    assert result.report.rejected == {"missing_position": 1}


def test_an_id_that_two_activities_bear_spoils_neither(reader, usual):
    twice = activity().replace("<VehicleActivity>", '<VehicleActivity xml:id="7">')
    assert rows(read(reader, document(twice, twice.replace("LJ1", "LJ2"))))[:1] == usual


def test_speed_is_derived_where_none_is_stated(reader):
    def located(second, north):
        return activity(
            speed="",
            time=f"<RecordedAtTime>2020-11-28T12:00:{second:02}Z</RecordedAtTime>",
            place=PLACE.replace("21.2", str(north)),
        )

    content = document(located(0, 21.2), located(30, 21.2027))
    assert read(reader, content, refuse_by_rows=False).report.rejected == {"missing_speed": 2}
    result = read(reader, content, missing_speed="derive")
    assert (result.report.rows_kept, result.report.derived) == (1, 1)
    assert result.fixes.table["speed_centi"].to_pylist() == [pytest.approx(1000, abs=10)]


BOMB = (
    '<?xml version="1.0"?><!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {b} "{"&" + a + ";"}{"&" + a + ";"}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)
TYPED = {
    "entities of entities": BOMB + document(activity(vehicle="<VehicleRef>&i;</VehicleRef>"))[38:],
    "an external entity": '<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    + document(activity())[38:],
    "an external subset": '<!DOCTYPE r SYSTEM "http://localhost/a.dtd">' + document(activity())[38:],
    "in UTF-16": ('<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE r []>' + document()[38:]).encode(
        "utf-16"
    ),
}


@pytest.mark.parametrize("kind", TYPED)
def test_a_document_type_is_refused_before_anything_of_it_is_read(reader, kind):
    with pytest.raises(DataError, match="declares a document type"):
        read(reader, TYPED[kind], refuse_by_rows=False)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (document(activity())[:-9], "not well-formed"),
        (document(activity(vehicle="<VehicleRef>&x;</VehicleRef>")), "not well-formed"),
        (document(activity(vehicle="<VehicleRef>\x01</VehicleRef>")), "not well-formed"),
        ("<a>" * 300 + "</a>" * 300, "no vehicle monitoring delivery"),
        ("<html></html>", "no vehicle monitoring delivery"),
        ("<Siri><StopMonitoringDelivery/></Siri>", "no vehicle monitoring delivery"),
        ('{"a": 1}', "no vehicle monitoring delivery"),
        ("[]", "has no records"),
        ("busy", "not JSON"),
    ],
)
def test_what_is_no_delivery_is_refused(reader, content, says):
    with pytest.raises(DataError, match=says):
        read(reader, content)


def test_a_delivery_at_night_has_no_rows_and_is_accepted(reader):
    assert read(reader, document()).report.rows_in == 0
    assert read(reader, "<Siri/>", refuse_by_rows=False).report.rows_in == 0
    empty = '{"Siri": {"ServiceDelivery": {"VehicleMonitoringDelivery": [{"VehicleActivity": []}]}}}'
    assert read(reader, empty, "a.json").report.rows_in == 0


def test_activities_are_read_in_blocks_and_none_is_lost(reader, monkeypatch):
    monkeypatch.setattr(xml_files, "ROWS", 7)
    content = document(*(activity(vehicle=f"<VehicleRef>{n}</VehicleRef>") for n in range(100)))
    blocks = list(siri.read(InputFile(reader.write(content, "a.xml")), SOURCE))
    assert len(blocks) > 5
    names = pa.concat_arrays([block.vehicle.dictionary_decode() for block in blocks]).to_pylist()
    assert names == [f"TFLO/{n}" for n in range(100)]


def test_memory_does_not_grow_with_a_file(reader, monkeypatch):
    monkeypatch.setattr(xml_files, "ROWS", 500)

    def peak(count):
        file = InputFile(reader.write(document(*[activity()] * count), "a.xml"))
        tracemalloc.start()
        try:
            assert sum(map(len, siri.read(file, SOURCE))) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)
    assert peak(12_000) < 1.5 * peak(3_000)


def many(reader, *odd, cut=None):
    """What is read of 200 activities, in blocks of 7, of which those ``odd`` replace the one at place 100."""
    plain = [activity(vehicle=f"<VehicleRef>{n}</VehicleRef>") for n in range(200)]
    content = document(*plain[:100], *odd, *plain[101:]).encode("utf-8", "surrogateescape")[:cut]
    blocks = siri.read(InputFile(reader.write(content, "a.xml")), SOURCE)
    return [name for block in blocks for name in block.vehicle.dictionary_decode().to_pylist()]


@pytest.mark.parametrize(
    "vehicle",
    [
        "<VehicleRef>100</VehicleRef><VehicleRef>Z</VehicleRef>",
        "<VehicleRef>100<b>Z</b></VehicleRef><VehicleRef/>",
        "<x:VehicleRef xmlns:x='y'>1<![CDATA[0]]>&#48;</x:VehicleRef>",
    ],
)
def test_what_one_activity_has_twice_or_oddly_loses_no_other(reader, monkeypatch, vehicle):
    monkeypatch.setattr(xml_files, "ROWS", 7)
    assert many(reader, activity(vehicle=vehicle)) == [f"TFLO/{n}" for n in range(200)]


@pytest.mark.parametrize(
    ("odd", "cut"),
    [("", -1), ("", -20), ("", -2000), ("</LineRef>", None), ("&x;", None), ("\udcff", None)],
)
def test_what_goes_wrong_late_in_a_document_is_met(reader, monkeypatch, odd, cut):
    monkeypatch.setattr(xml_files, "ROWS", 7)
    odd = activity(vehicle=f"<VehicleRef>{odd}</VehicleRef>")
    with pytest.raises(DataError, match="not well-formed"):
        many(reader, odd, cut=cut)


@pytest.mark.parametrize("prefix", ["", "s"])
def test_deliveries_at_other_places_are_read_too(reader, monkeypatch, prefix):
    monkeypatch.setattr(xml_files, "ROWS", 7)
    monkeypatch.setattr(xml_files, "_CHUNK", 32)
    plain = [activity(vehicle=f"<VehicleRef>{n}</VehicleRef>") for n in range(40)]
    deliveries = (
        "<VehicleMonitoringDelivery>" + "".join(plain[own::4]) + "</VehicleMonitoringDelivery>"
        for own in range(4)
    )
    body = "<Siri><A>{}</A><A>{}</A><!--<A>--><A><B>{}</B></A>{}<A><VehicleMonitoringDelivery/></A></Siri>"
    content = body.format(*deliveries)
    content = prefixed(content, prefix).replace("<s:!--", "<!--") if prefix else content
    content = content.replace("Siri>", 'Siri xmlns:s="x">', 1)
    blocks = siri.read(InputFile(reader.write(content, "a.xml")), SOURCE)
    names = [name for block in blocks for name in block.vehicle.dictionary_decode().to_pylist()]
    assert names == [f"TFLO/{n}" for own in range(4) for n in range(own, 40, 4)]


HOSTILE = [
    "",
    " ",
    "]]>",
    "\u202e",
    "9" * 400,
    "1e400",
    "NaN",
    "-1",
    "x" * 5000,
    "９",
    "/",
    "TFLO/B2",
    "=1+1",
    "{}",
]
NESTED = (
    "<VehicleActivity/><OperatorRef>Z</OperatorRef><VehicleLocation><Latitude>0</Latitude></VehicleLocation>"
)


def test_no_activity_changes_another(reader):
    others = [activity(vehicle=f"<VehicleRef>B{n}</VehicleRef>") for n in range(4)]
    expected = rows(read(reader, document(*others)))
    assert len(expected) == 4
    names = ("RecordedAtTime", "OperatorRef", "VehicleRef", "Velocity", "Longitude", "Coordinates", "Unknown")
    texts = [each.replace("]]>", "]]&gt;") for each in HOSTILE] + [NESTED]
    for at_row, (name, text) in enumerate((name, text) for name in names for text in texts):
        hostile = activity(vehicle="<VehicleRef>VICTIM</VehicleRef>", more=f"<{name}>{text}</{name}>")
        hostile = hostile.replace(f"<{name}>", f"<{name}>{text}</{name}><{name}>", 1)
        found = rows(
            read(
                reader, document(*others[: at_row % 5], hostile, *others[at_row % 5 :]), refuse_by_rows=False
            )
        )
        assert [row for row in found if row[0] in {each[0] for each in expected}] == expected, (name, text)


def test_speeds_are_whole_metres_a_second_or_missing(reader):
    values = ["0", "12", "", "NaN", "fast"]
    content = document(*(activity(speed=f"<Velocity>{value}</Velocity>") for value in values))
    (records,) = siri.read(InputFile(reader.write(content, "a.xml")), SOURCE)
    assert records.speed[:2].tolist() == [0, 12]
    assert np.isnan(records.speed[2:]).all()
    assert records.speed_unreadable.tolist() == [False] * 4 + [True]


@pytest.mark.parametrize("shape", ["default namespace", "a prefix", "UTF-16"])
def test_suggest_writes_a_source_that_is_ready(tmp_path, shape):
    content = SHAPES[shape]
    path = tmp_path / "deliveries.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    text = source_table_in_toml(suggest_source(InputFile(path)), "buses", "*.xml")
    assert "CHOOSE" not in text
    assert 'format = "siri"' in text
    assert "missing_speed" not in text
    assert "speed_unit" not in text


def test_suggest_derives_speeds_where_none_is_stated_and_asks_for_the_clock_only(tmp_path):
    local = activity(speed="", time="<RecordedAtTime>2020-11-28T17:30:00</RecordedAtTime>")
    for content, name in ((document(local), "a.xml"), (as_json(document(local)), "a.json")):
        (tmp_path / name).write_text(content)
        text = source_table_in_toml(suggest_source(InputFile(tmp_path / name)), "buses", "*.xml")
        assert 'missing_speed = "derive"' in text
        assert text.count("CHOOSE") == 1
        assert 'time_zone = "CHOOSE"' in text
    (tmp_path / "a.json").write_text(as_json(document(activity())))
    assert "CHOOSE" not in source_table_in_toml(
        suggest_source(InputFile(tmp_path / "a.json")), "buses", "*.xml"
    )


@pytest.mark.parametrize("root", ["gpx", "fcd-export", "kml"])
def test_suggest_names_xml_of_another_kind(tmp_path, root):
    (tmp_path / "a.xml").write_text(f'<?xml version="1.0"?>\n<!-- x -->\n<{root} version="1"><a/></{root}>')
    with pytest.raises(DataError, match=f"XML of a kind that is not recognised; got <{root}>"):
        suggest_source(InputFile(tmp_path / "a.xml"))
