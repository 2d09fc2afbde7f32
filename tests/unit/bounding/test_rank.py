"""Ranks within groups: as counted by hand, in any order."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.bounding.arrays import rank_in_sorted, rank_within


def test_a_rank_counts_the_earlier_ones_of_the_same_group():
    assert rank_within(np.array([3, 1, 3, 3, 1])).tolist() == [0, 0, 1, 2, 1]
    assert rank_within(np.zeros(0, dtype=np.int64)).tolist() == []


@given(st.lists(st.integers(0, 4), max_size=12))
def test_ranks_are_those_of_a_loop(group):
    by_hand = [group[:place].count(each) for place, each in enumerate(group)]
    assert rank_within(np.array(group, dtype=np.int64)).tolist() == by_hand
    by_hand = [sorted(group)[:place].count(each) for place, each in enumerate(sorted(group))]
    assert rank_in_sorted(np.array(sorted(group), dtype=np.int64)).tolist() == by_hand
