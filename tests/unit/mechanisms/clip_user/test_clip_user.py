"""Clip-User and the optimum: golden vectors, exhaustive search, and what may never happen."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.bounding.arrays import dropped_mean_bias, dropped_variance_bias
from trafficdp.mechanisms.clip_user import bin_error, ceiling, clip_user
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.research.optimal_suppression import droppable_records, stays_within, suppress_to_fewest_bins

BOUND = ContributionBound(Fraction(65), Fraction(1), SpeedUnit.KILOMETRES_PER_HOUR)
GOLDEN = [
    [2] * 8,
    [5, 5, 1, 1, 1, 1, 1, 1],
    [1, 1, 1, 1, 1, 1, 1, 9],
    [1, 1, 0, 0, 0, 0, 0, 0],
]
SMALL = st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=2, max_size=4).filter(
    lambda rows: all(any(row) for row in rows)
)


def counts_of(rows: list[list[int]]) -> Counts:
    counts = np.array(rows, dtype=np.int64)
    bins, users = np.nonzero(counts)
    return Counts(
        cell=np.arange(len(counts), dtype=np.uint64),
        slot=np.zeros(len(counts), dtype=np.int64),
        users_per_bin=np.count_nonzero(counts, axis=1),
        user_index=users.astype(np.int64),
        count=counts[bins, users],
        users=counts.shape[1],
    )


def exhaustive(counts: Counts, epsilon: float) -> int:
    limit = ceiling(counts, BOUND, epsilon)
    best = int(counts.bins_per_user.max())
    for choice in itertools.product([True, False], repeat=counts.pairs):
        kept = np.array(choice)
        left = int(np.bincount(counts.user_index[kept], minlength=counts.users).max(initial=0))
        if left < best and stays_within(counts, limit, kept):
            best = left
    return best


def test_clip_user_gives_the_golden_suppression():
    counts = counts_of(GOLDEN)
    assert ceiling(counts, BOUND, 1.0).error == 36.5625
    found = clip_user(counts, BOUND, 1.0)
    assert found.bins_per_user == 3
    kept = np.zeros((4, 8), dtype=np.int64)
    kept[counts.bin_index, counts.user_index] = counts.count * found.kept
    expected = np.array(GOLDEN)
    expected[0, :2] = 0
    np.testing.assert_array_equal(kept, expected)
    assert clip_user(counts, BOUND, 2.0).bins_per_user == 4


def test_the_golden_optimum_is_three_bins_and_certified():
    certified = suppress_to_fewest_bins(counts_of(GOLDEN), BOUND, 1.0)
    assert certified.suppression.bins_per_user == 3
    assert certified.optimal
    # our room for whole samples makes the relaxation at least as tight as the published 2.653823
    assert 2.653823 - 1e-6 <= certified.relaxation <= 3


@pytest.mark.parametrize(
    ("dropped", "mean", "variance"),
    [(1, 6.5, 380.25), (4, 26, 1014), (5, 32.5, 1056.25), (8, 52, 1056.25)],
)
def test_dropping_bias_is_the_golden_one(dropped, mean, variance):
    one = np.array([dropped]), np.array([10])
    assert dropped_mean_bias(*one, 65.0)[0] == mean
    assert dropped_variance_bias(*one, 65.0)[0] == variance


@pytest.mark.parametrize("statistic", [Statistic.MEAN, Statistic.VARIANCE])
@pytest.mark.parametrize("total", range(2, 7))
def test_dropping_bias_equals_brute_force(statistic, total):
    def value(samples: tuple[int, ...]) -> Fraction:
        mean = Fraction(sum(samples), len(samples))
        if statistic is Statistic.MEAN:
            return mean
        return sum((x - mean) ** 2 for x in samples) / Fraction(len(samples))

    for dropped in range(1, total):
        worst = max(
            abs(value(samples) - value(samples[dropped:]))
            for samples in itertools.product([0, 1, 2], repeat=total)
        )
        bias = dropped_mean_bias if statistic is Statistic.MEAN else dropped_variance_bias
        exact = bias(np.array([dropped]), np.array([total]), 2.0)[0]
        assert exact == pytest.approx(float(worst), abs=1e-12)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(SMALL, st.sampled_from([0.5, 1.0, 2.0]))
def test_the_milp_equals_exhaustive_search(rows, epsilon):
    counts = counts_of(rows)
    certified = suppress_to_fewest_bins(counts, BOUND, epsilon)
    assert certified.optimal
    assert certified.suppression.bins_per_user == exhaustive(counts, epsilon)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(SMALL, st.sampled_from([0.3, 1.0, 4.0]))
def test_no_suppression_breaks_the_ceiling_or_empties_a_bin(rows, epsilon):
    counts = counts_of(rows)
    limit = ceiling(counts, BOUND, epsilon)
    greedy = clip_user(counts, BOUND, epsilon)
    certified = suppress_to_fewest_bins(counts, BOUND, epsilon)
    for found in (greedy, certified.suppression):
        assert stays_within(counts, limit, found.kept)
        left = np.bincount(counts.user_index[found.kept], minlength=counts.users)
        assert left.max() == found.bins_per_user
    assert certified.lower_bound <= certified.suppression.bins_per_user <= greedy.bins_per_user


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.5, 1.0]))
def test_names_of_vehicles_and_bins_decide_nothing(seed, epsilon):
    random = np.random.default_rng(seed)
    # many equal counts, so that ties must be broken
    rows = random.choice([0, 1, 1, 2, 5], size=(8, 12))
    rows[:, 0] = 1
    bins, users = random.permutation(8), random.permutation(12)
    results = []
    for table in (rows, rows[bins][:, users]):
        counts = counts_of(table.tolist())
        greedy = clip_user(counts, BOUND, epsilon)
        certified = suppress_to_fewest_bins(counts, BOUND, epsilon)
        dropped = np.bincount(counts.bin_index, np.where(greedy.kept, 0, counts.count), 8)
        results.append((greedy.bins_per_user, certified.suppression.bins_per_user, dropped))
    (greedy, best, dropped), (renamed_greedy, renamed_best, renamed_dropped) = results
    assert (greedy, best) == (renamed_greedy, renamed_best)
    np.testing.assert_array_equal(dropped[bins], renamed_dropped)


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.5, 1.0, 3.0]))
def test_room_is_the_largest_that_fits(samples, cap, epsilon):
    cap = min(cap, samples)
    counts = counts_of([[cap, 1, 1], [samples, 2, 2]])
    limit = ceiling(counts, BOUND, epsilon)
    found = int(droppable_records(limit, np.array([samples]), np.array([cap]))[0])
    fitting = [
        dropped
        for dropped in range(samples - cap + 1)
        if float(limit.relative_error(np.array([dropped]), np.array([samples]), np.array([cap]))[0])
        <= 1 + 1e-12
    ]
    assert found == max(fitting, default=-1)


def test_errors_of_a_bin_grow_with_what_is_dropped():
    dropped = np.arange(20)
    error = bin_error(dropped, np.full(20, 21), np.full(20, 1), 65.0, 1.0)
    assert np.all(np.diff(error) > 0)
