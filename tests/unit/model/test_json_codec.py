from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import pytest

from trafficdp.errors import DataError
from trafficdp.model import Schema, as_json, from_json


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, kw_only=True)
class Inner:
    number: float
    text: Annotated[str, Schema({"pattern": "x"})] | None


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    many: tuple[Inner, ...]
    pair: tuple[float, float]
    named: Mapping[str, int]
    either: Inner | str | bool
    anything: Any
    colour: Colour
    left_out: int | None = None


PLAIN = {
    "inner": {"number": 1, "text": None},
    "many": [{"number": 0.1, "text": "é"}],
    "pair": [1.0, 2],
    "named": {"a": 1},
    "either": True,
    "anything": {"x": [None, 1]},
    "colour": "red",
}


def test_reading_and_writing_keeps_every_value_and_its_type():
    read = from_json(Outer, PLAIN)
    assert json.dumps(as_json(read)) == json.dumps(PLAIN)
    assert read.many == (Inner(number=0.1, text="é"),)
    assert read.colour is Colour.RED


def test_a_field_that_holds_its_default_is_left_out_and_read_as_it():
    assert "left_out" not in as_json(from_json(Outer, PLAIN))
    assert as_json(from_json(Outer, PLAIN | {"left_out": 3}))["left_out"] == 3


@pytest.mark.parametrize("either", [{"number": 1.5, "text": "x"}, "text", False])
def test_a_union_is_read_as_the_first_that_fits(either):
    assert as_json(from_json(Outer, PLAIN | {"either": either}))["either"] == either


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"inner": {"number": "1", "text": None}}, r"\$\.inner\.number"),
        ({"inner": {"number": True, "text": None}}, r"\$\.inner\.number"),
        ({"inner": {"number": 1}}, r"\$\.inner.*missing: text"),
        ({"surprise": 1}, r"unknown: surprise"),
        ({"many": [{"number": 1, "text": 2}]}, r"\$\.many\[0\]\.text"),
        ({"pair": [1.0]}, r"\$\.pair"),
        ({"named": {"a": "b"}}, r"\$\.named\.a"),
        ({"either": 1}, r"\$\.either"),
        ({"colour": "blue"}, r"\$\.colour"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path_without_its_value(changed, path):
    with pytest.raises(DataError, match=path):
        from_json(Outer, PLAIN | changed)


def test_what_a_schema_says_can_be_a_part_of_a_union():
    assert Annotated[str, Schema({"enum": ["a"]})] | None == Annotated[str, Schema({"enum": ["a"]})] | None
