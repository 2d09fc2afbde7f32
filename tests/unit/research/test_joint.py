"""Ranges and scales together: paper 000's optimum in one bin, and never outside error or epsilon."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.model import Statistic
from trafficdp.research.joint_ranges import best_ranges_and_scales

tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 4), min_size=users, max_size=users).filter(any), min_size=1, max_size=4
    )
)


def check(counts, upper, found, error):
    """Recompute error and loss from counts, ranges and scales, pair by pair."""
    lost, loss = np.zeros(counts.bins), np.zeros(counts.users)
    for pair in range(counts.pairs):
        each, samples = counts.bin_index[pair], counts.samples_per_bin[counts.bin_index[pair]]
        largest = upper * counts.count[pair]
        kept = found.share[pair] * largest
        assert 0 <= kept <= largest
        lost[each] += (largest - kept) / (2 * samples)
        loss[counts.user_index[pair]] += kept / (samples * found.scale[each])
    assert np.all(lost + found.scale <= error * (1 + 1e-9))
    assert loss.max() == pytest.approx(found.epsilon, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("numbers", "upper", "error", "epsilon"),
    [
        # optimal clipping of one bin: E = 0.3 at epsilon 1, 0.466667 at epsilon 0.5
        ([5, 4, 3, 2, 1], 1, 0.3, 1.0),
        ([5, 4, 3, 2, 1], 1, 0.4666666666666667, 0.5),
        ([*[1] * 100, 10], 65, 3.25, 1.0),
    ],
)
def test_one_bin_is_the_optimal_clipping(counts_of, bound_of, numbers, upper, error, epsilon):
    counts = counts_of([numbers])
    found = best_ranges_and_scales(counts, bound_of(upper), error, steps=40)
    assert found.epsilon == pytest.approx(epsilon, rel=2e-3)
    assert found.epsilon >= epsilon * (1 - 1e-6)
    check(counts, upper, found, error)


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(tables, st.sampled_from([0.1, 0.3, 0.49]))
def test_ranges_and_scales_keep_to_the_error_and_never_cost_more_than_equal_scales(
    counts_of, bound_of, table, share
):
    counts, error = counts_of(table), 60 * share
    found = best_ranges_and_scales(counts, bound_of(60), error, steps=6, refinements=3)
    check(counts, 60, found, error)
    equal = laplace_accountings(counts, bound_of(60), {Statistic.MEAN: 1.0})[-1].factor / error
    assert found.epsilon <= equal * (1 + 1e-6)


def test_a_larger_error_never_costs_more(counts_of, bound_of):
    counts = counts_of(np.random.default_rng(8).poisson(1.0, (8, 12)) + np.eye(8, 12, dtype=int))
    cost = [best_ranges_and_scales(counts, bound_of(60), error, steps=12).epsilon for error in (4, 8, 16, 29)]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in itertools.pairwise(cost))


def test_an_error_that_a_constant_meets_is_refused(counts_of, bound_of):
    for error in (0.0, 30.0, 40.0):
        with pytest.raises(UsageError, match="error is out of range"):
            best_ranges_and_scales(counts_of([[1, 1]]), bound_of(60), error)
