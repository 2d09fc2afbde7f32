from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.ingest.times import numeric_to_numbers, text_to_numbers


def read_one(text, **options):
    # the second column holds a word, so that both ways through the function are taken
    value, unreadable = text_to_numbers(pa.array([text], pa.string()), **options)
    slow, slow_unreadable = text_to_numbers(pa.array([text, "word"], pa.string()), **options)
    assert bool(unreadable[0]) == bool(slow_unreadable[0])
    assert slow_unreadable[1]
    np.testing.assert_equal(value[0], slow[0])
    return float(value[0]), bool(unreadable[0])


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12.0),
        (" -0.5 ", -0.5),
        ("+3.25", 3.25),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("-.5e-1", -0.05),
    ],
)
def test_plain_numbers_are_read(text, number):
    assert read_one(text) == (number, False)


@pytest.mark.parametrize("text", [None, "", "   ", "NA", "n/a", "null", "None"])
def test_missing_numbers_are_missing_not_unreadable(text):
    value, unreadable = read_one(text)
    assert math.isnan(value)
    assert not unreadable


@pytest.mark.parametrize(
    "text", ["fast", "nan", "inf", "-Infinity", "1e999", "12,5", "0x1A", "1_000", "--1", "٣", "1 2"]
)
def test_what_is_no_finite_decimal_number_is_unreadable(text):
    value, unreadable = read_one(text)
    assert math.isnan(value)
    assert unreadable


def test_nan_is_missing_where_the_source_writes_it_so():
    assert not read_one("NaN", nan_is_missing=True)[1]
    assert read_one("inf", nan_is_missing=True)[1]


def test_columns_of_numbers_tell_null_from_nan():
    values, unreadable = numeric_to_numbers(pa.array([1, None, math.nan, math.inf], pa.float32()))
    assert values[0] == 1
    assert np.isnan(values[1:]).all()
    assert unreadable.tolist() == [False, False, True, True]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_their_text(number):
    assert read_one(repr(number)) == (number, False)


@given(st.lists(st.text(max_size=8) | st.none()))
def test_any_text_is_a_number_missing_or_unreadable(texts):
    values, unreadable = text_to_numbers(pa.array(texts, pa.string()))
    assert values.shape == unreadable.shape == (len(texts),)
    assert np.isnan(values[unreadable]).all()
    assert np.isfinite(values[~np.isnan(values)]).all()
