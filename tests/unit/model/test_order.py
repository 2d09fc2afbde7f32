"""Counting instead of comparing: the same order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.model import counts as module
from trafficdp.model.counts import largest_two, number_pairs, stable_order, unique_by_counting


@given(
    st.lists(st.integers(0, 6), max_size=30), st.sampled_from([np.int32, np.int64]), st.sampled_from([0, 15])
)
def test_the_order_is_that_of_a_stable_sort(keys, width, few):
    key = np.array(keys, dtype=width)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "FEW", few)
        assert stable_order(key, 7).tolist() == np.argsort(key, kind="stable").tolist()


def test_keys_too_many_for_32_bits_are_sorted_all_the_same(monkeypatch):
    monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(module, "LONGEST", 3)
    assert stable_order(np.array([2, 0, 2, 1]), 3).tolist() == [1, 3, 0, 2]


def test_keys_out_of_range_are_no_order():
    for keys in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError, match=r"not in 0\.\.2"):
            stable_order(np.array(keys), 3)


@pytest.mark.parametrize("seconds", [5, 500])
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30))
def test_different_pairs_are_numbered_in_order(seconds, pairs):
    # few possible pairs are counted off, many are sorted
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    first, second, number = number_pairs(table[:, 0], table[:, 1], 4, seconds)
    different = sorted(set(pairs))
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == different
    assert number.tolist() == [different.index(pair) for pair in pairs]


@given(st.lists(st.integers(0, 40), max_size=30), st.sampled_from([np.int32, np.int64]))
def test_distinct_keys_and_positions_are_those_of_numpy(keys, kind):
    distinct, position = unique_by_counting(np.array(keys, dtype=np.int64), kind)
    expected, inverse = np.unique(np.array(keys, dtype=np.int64), return_inverse=True)
    assert (distinct.tolist(), position.tolist()) == (expected.tolist(), inverse.tolist())
    assert position.dtype == kind


def test_the_two_largest_of_groups():
    top, at, second = largest_two(np.array([3, 9, 4, 9, 7]), np.array([0, 1, 0, 1, 2]), 3)
    assert top.tolist() == [4, 9, 7]
    assert second.tolist() == [3, 9, 0]
    assert at[0] == 2
    assert at[1] in (1, 3)
