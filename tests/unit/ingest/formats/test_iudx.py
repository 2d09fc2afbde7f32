from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import DataError
from trafficdp.model import SourceDeclaration, SpeedUnit, UnitPeriod


@pytest.fixture
def source():
    return SourceDeclaration("itms", "iudx", ("*",), (UnitPeriod(SpeedUnit.KILOMETRES_PER_HOUR),))


@pytest.mark.parametrize("name", ["iudx_flat.json", "iudx_results.json", "iudx_normalised.jsonl"])
def test_the_three_shapes_give_the_same_fixes(reader, data, key, name):
    result = reader.file(data / name)
    assert result.report.rejected == {}
    vehicles = key.pseudonyms(pa.array(["GJ05BX3983", "52TC12"]), "").to_pylist()
    assert result.fixes.table.to_pylist() == [
        {
            "vehicle": vehicles[0],
            "time_us": 1606554729_000000,
            "latitude": 21.192156,
            "longitude": 72.843017,
            "speed_centi": 1200,
            "speed_unit": "kmh",
            "derived": False,
        },
        {
            "vehicle": vehicles[1],
            "time_us": 1606554731_000000,
            "latitude": 21.2,
            "longitude": 72.85,
            "speed_centi": 0,
            "speed_unit": "kmh",
            "derived": False,
        },
    ]


@pytest.mark.parametrize(
    "place",
    [
        {"location": "[72.85, 21.2]"},
        {"location": '{"type": "Point", "coordinates": [72.85, 21.2]}'},
        {"location": {"type": "Point", "coordinates": "72.85, 21.2"}},
        {"location.coordinates": ["72.85", "21.2"]},
        {"location.value.coordinates": [72.85, 21.2, 10]},
        {"location": {"type": "GeoProperty", "value": '{"type":"Point","coordinates":[72.85,21.2]}'}},
    ],
)
def test_locations_are_longitude_first_in_any_spelling(reader, place):
    record = {"license_plate": "A", "observationDateTime": "2020-11-28T14:42:09+05:30", "speed": 3, **place}
    result = reader.file(reader.write(json.dumps(record), "r.json"))
    assert result.fixes.table.column("latitude").to_pylist() == [21.2]
    assert result.fixes.table.column("longitude").to_pylist() == [72.85]


def test_a_file_without_the_keys_names_them(reader):
    with pytest.raises(DataError, match=r"has license_plate or vehicle_id or location\.coordinates"):
        reader.file(reader.write('[{"observationDateTime": "2020-11-28T14:42:09+05:30"}]', "r.json"))


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "@value", "type", "coordinates", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
keys = st.sampled_from(
    [
        "license_plate",
        "vehicle_id",
        "observationDateTime",
        "speed",
        "location",
        "location.coordinates",
        "results",
    ]
)


@pytest.mark.slow
@given(st.lists(st.dictionaries(keys, values), max_size=4), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(80))
def test_any_json_ends_in_a_report_or_in_our_errors(reader, records, lines):
    content = "\n".join(json.dumps(r) for r in records) if lines else json.dumps(records)
    try:
        report = reader.file(reader.write(content, "r.json")).report
    except DataError:
        return
    assert report.rows_in == report.rows_kept + sum(report.rejected.values())
