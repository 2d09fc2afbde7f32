from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 4), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


@given(tables)
def test_totals_are_those_of_the_table(counts_of, table):
    numbers, counts = np.array(table), counts_of(table)
    np.testing.assert_array_equal(counts.samples_per_bin, numbers.sum(axis=1))
    np.testing.assert_array_equal(counts.users_per_bin, (numbers > 0).sum(axis=1))
    np.testing.assert_array_equal(counts.largest_count_per_bin, numbers.max(axis=1))
    np.testing.assert_array_equal(counts.bin_index, np.nonzero(numbers)[0])
    np.testing.assert_array_equal(counts.per_pair(counts.cell), counts.cell[counts.bin_index])
    np.testing.assert_array_equal(counts.start, np.searchsorted(counts.bin_index, range(counts.bins + 1)))
    np.testing.assert_array_equal(counts.bins_per_user, (numbers > 0).sum(axis=0))
    np.testing.assert_array_equal(counts.sum_per_user(counts.count.astype(float)), numbers.sum(axis=0))


@given(tables, st.integers(0, 2**6 - 1))
def test_selecting_bins_keeps_their_counts_and_the_users_places(counts_of, table, mask):
    numbers, counts = np.array(table), counts_of(table)
    keep = (mask >> np.arange(len(table))) % 2 == 1
    chosen = counts.select(keep)
    assert chosen.users == counts.users
    np.testing.assert_array_equal(chosen.cell, counts.cell[keep])
    again = np.zeros((int(keep.sum()), numbers.shape[1]), dtype=int)
    again[chosen.bin_index, chosen.user_index] = chosen.count
    np.testing.assert_array_equal(again, numbers[keep])


def test_nothing_selected_is_an_empty_city(counts_of):
    empty = counts_of([[1, 2]]).select(np.array([False]))
    assert (empty.bins, empty.pairs, empty.users) == (0, 0, 2)
    assert empty.bins_per_user.tolist() == [0, 0]


def test_sums_of_huge_counts_stay_exact(counts_of):
    huge = 2**52 - 1
    assert counts_of([[huge, huge]]).samples_per_bin.tolist() == [2 * huge]
    with pytest.raises(IndexError):
        counts_of([[1]]).select(np.array([True, False]))


@pytest.mark.parametrize("users", [2**31 - 1, 2**31])
def test_vehicles_are_numbered_in_32_bits_where_these_are_enough(counts_of, users):
    last = replace(counts_of([[1]]), user_index=np.array([users - 1]), users=users)
    assert last.user_index.tolist() == [users - 1]
    assert last.user_index.itemsize == (4 if users < 2**31 else 8)
