"""What is packed into a page comes out again, unpacked by another hand than the one that packed it."""

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.export.map.html_map import NOTHING, TYPES, pack, thousandths_column


def unpacked(parts, text):
    data, start, columns = zlib.decompress(base64.b64decode(text)), 0, {}
    for part in parts:
        kind, length = TYPES[part["type"]], part["length"]
        piece = data[start : start + length * kind.itemsize]
        start += len(piece)
        rows = [bytes(piece[i::length]) for i in range(length)]
        columns[part["name"]] = np.frombuffer(b"".join(rows), kind)
    assert start == len(data)
    return columns


@given(
    st.lists(st.integers(0, 255), max_size=30),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30),
    st.lists(st.floats(width=64), max_size=30),
)
def test_what_is_packed_comes_out_again(small, whole, real):
    columns = {"small": ("u1", small), "whole": ("i4", whole), "real": ("f8", real)}
    found = unpacked(*pack(columns))
    assert found["small"].tolist() == small
    assert found["whole"].tolist() == whole
    np.testing.assert_array_equal(found["real"], np.array(real, dtype=np.float64))


@pytest.mark.parametrize(("kind", "number"), [("u1", 256), ("u4", -1), ("i4", 2**31), ("u4", 0.5)])
def test_a_number_that_does_not_fit_is_refused(kind, number):
    with pytest.raises(OverflowError, match="does not fit"):
        pack({"x": (kind, np.array([number]))})


def test_equal_columns_give_equal_text():
    column = {"x": ("i4", np.arange(1000))}
    assert pack(column) == pack(column)


def test_published_numbers_become_thousandths_and_nothing_stays_nothing():
    kind, numbers = thousandths_column(np.array([1.234, np.nan, 0.0, 2147483.0]))
    assert (kind, numbers.tolist()) == ("i4", [1234, NOTHING, 0, 2147483000])


def test_large_numbers_stay_as_they_are():
    kind, numbers = thousandths_column(np.array([np.nan, 2147483.648]))
    assert kind == "f8"
    np.testing.assert_array_equal(numbers, [np.nan, 2147483.648])
