"""Exchanges: as good as exhaustive search where all counts are one, and valid whatever they start from."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.mechanisms.clip_user import ceiling, clip_user
from trafficdp.research.optimal_suppression import Program, exchange, stays_within, suppress_to_fewest_bins

shapes = st.tuples(st.integers(2, 5), st.integers(2, 4))


def largest_left(counts, kept):
    return int(np.bincount(counts.user_index[kept], minlength=counts.users).max(initial=0))


@settings(max_examples=examples(50))
@given(
    shapes.flatmap(
        lambda s: st.lists(
            st.lists(st.integers(0, 1), min_size=s[0], max_size=s[0]).filter(any),
            min_size=s[1],
            max_size=s[1],
        )
    ),
    st.data(),
)
def test_exchanges_are_optimal_when_all_counts_are_one(counts_of, table, data):
    counts = counts_of(table)
    room = np.array(data.draw(st.lists(st.integers(0, 2), min_size=counts.bins, max_size=counts.bins)))
    cap = np.ones(counts.bins, dtype=np.int64)
    best = min(
        largest_left(counts, np.array(kept))
        for kept in itertools.product([True, False], repeat=counts.pairs)
        if np.all(np.bincount(counts.bin_index, ~np.array(kept), counts.bins) <= room)
    )
    found = exchange(counts, cap, room, np.ones(counts.pairs, dtype=bool), 0)
    assert np.all(np.bincount(counts.bin_index, ~found, counts.bins) <= room)
    assert largest_left(counts, found) == best


@settings(max_examples=examples(80))
@given(shapes, st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_exchanges_keep_caps_and_rooms_and_never_lose_ground(counts_of, shape, seed, target):
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 6, (shape[1] + 4, shape[0] + 4))
    numbers[:, 0] = 1
    counts = counts_of(numbers)
    cap = random.integers(2, 6, counts.bins)
    kept = counts.count <= cap[counts.bin_index]
    forced = np.bincount(counts.bin_index, np.where(kept, 0, counts.count), counts.bins)
    room = forced.astype(np.int64) + random.integers(0, 9, counts.bins)
    found = exchange(counts, cap, room, kept, target)
    dropped = np.bincount(counts.bin_index, np.where(found, 0, counts.count), counts.bins)
    assert np.all(dropped <= room)
    assert np.all(counts.count[found] <= cap[counts.bin_index[found]])
    assert largest_left(counts, found) <= max(target, largest_left(counts, kept))
    np.testing.assert_array_equal(found, exchange(counts, cap, room, kept, target))


def city(counts_of):
    random = np.random.default_rng(3)
    near = np.exp(-np.abs(np.arange(50)[:, None] - random.integers(0, 50, 60)[None, :]) / 6)
    return counts_of(random.poisson(2.5 * near))


def test_rounding_the_relaxation_beats_clip_user_in_a_city(counts_of, bound_of, monkeypatch):
    counts, bound = city(counts_of), bound_of(65)
    limit = ceiling(counts, bound, 0.2)
    certified = suppress_to_fewest_bins(counts, bound, 0.2, seconds=5)
    greedy = clip_user(counts, bound, 0.2)
    assert stays_within(counts, limit, certified.suppression.kept)
    assert certified.lower_bound <= certified.suppression.bins_per_user < greedy.bins_per_user
    # without a relaxation, exchanges alone still never do worse than Clip-User
    monkeypatch.setattr(Program, "relax", lambda *_: None)
    alone = suppress_to_fewest_bins(counts, bound, 0.2, seconds=5)
    assert stays_within(counts, limit, alone.suppression.kept)
    assert certified.suppression.bins_per_user <= alone.suppression.bins_per_user <= greedy.bins_per_user
    assert largest_left(counts, alone.suppression.kept) == alone.suppression.bins_per_user
