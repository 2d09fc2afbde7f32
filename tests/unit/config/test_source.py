"""The declaration of a source, as the vault keeps it."""

import dataclasses
import json
from decimal import Decimal
from fractions import Fraction

import pytest

from trafficdp.config.file import declaration_json
from trafficdp.errors import ConfigError
from trafficdp.model import SpeedUnit, UnitPeriod


def test_declaration_is_canonical_json_of_what_decides_the_reading(load, minimal, full):
    (source,) = load(full).sources
    text = declaration_json(source)
    assert json.loads(text) == {
        "format": "csv",
        "units": [
            {"unit": "mph", "first": None, "last": "2015-12-31"},
            {"unit": "ms", "first": "2016-01-01", "last": None},
        ],
        "columns": minimal["source"][0]["columns"],
        "time_format": "%d/%m/%Y %H:%M:%S",
        "time_zone": "America/Chicago",
        "sentinels": ["113.9952", "255"],
        "missing_speed": "derive",
        "namespace": "city",
        "operator_separator": "",
        "records": "",
        "dialect": {
            "delimiter": ",",
            "quote": '"',
            "decimal": ".",
            "thousands": "",
            "encoding": "utf-8",
            "header": True,
        },
    }
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


@pytest.mark.parametrize(
    "same",
    [
        {"name": "other"},
        {"files": ("other.csv",)},
        {"min_kept": Fraction(1, 2)},
        {"sentinels": (Decimal("255.00"), Decimal("113.99520"), Decimal("2.55e2"))},
    ],
)
def test_declarations_that_read_alike_are_one_text(load, same, full):
    (source,) = load(full).sources
    assert declaration_json(dataclasses.replace(source, **same)) == declaration_json(source)


def test_the_order_of_columns_does_not_matter(load, full):
    (source,) = load(full).sources
    turned = dataclasses.replace(source, columns=dict(reversed(source.columns.items())))
    assert list(turned.columns) != list(source.columns)
    assert declaration_json(turned) == declaration_json(source)


@pytest.mark.parametrize(
    "other",
    [
        {"format": "parquet"},
        {"units": (UnitPeriod(SpeedUnit.MILES_PER_HOUR),)},
        {"columns": {}},
        {"time_format": "iso8601"},
        {"time_zone": "UTC"},
        {"sentinels": ()},
        {"missing_speed": "reject"},
        {"namespace": ""},
    ],
)
def test_declarations_that_read_differently_differ(load, other, full):
    (source,) = load(full).sources
    assert declaration_json(dataclasses.replace(source, **other)) != declaration_json(source)


def test_every_field_of_a_declaration_is_accounted_for(load, full):
    (source,) = load(full).sources
    fields = {field.name for field in dataclasses.fields(source)}
    assert fields - {"name", "files", "min_kept"} == set(json.loads(declaration_json(source)))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"format": "mds", "columns": {"operator": "provider_id"}}, "operator in csv, parquet, gpkg, json"),
        ({"format": "gtfs_rt", "columns": {"operator": "agency"}}, "vehicle.trip.route_id"),
    ],
)
def test_an_operator_that_no_reader_finds_is_refused(load, changed, source, says):
    with pytest.raises(ConfigError, match=says):
        load(changed("source", [{"name": "feed", "files": ["*"], **source}]))
