"""All accountings at one error: their order, their golden values, and each recomputed from counts alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.mechanisms.blocks.blocks import best_blocks
from trafficdp.mechanisms.blocks.partition import items_of
from trafficdp.model import Statistic
from trafficdp.research.full_comparison import (
    MEANS,
    Limits,
    full_comparison,
    gaussian_epsilon,
    gaussian_rho,
    suppressed_loss,
)
from trafficdp.research.optimal_suppression import suppress_to_fewest_bins

QUICK = Limits(relaxation_seconds=5.0, milp_seconds=1.0, joint_steps=4, effort=200)
GOLDEN = [
    [2] * 8,
    [5, 5, 1, 1, 1, 1, 1, 1],
    [1, 1, 1, 1, 1, 1, 1, 9],
    [1, 1, 0, 0, 0, 0, 0, 0],
]
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 4), min_size=users, max_size=users).filter(any), min_size=1, max_size=5
    )
)


def test_the_golden_accountings(counts_of, bound_of):
    found = full_comparison(counts_of(GOLDEN), bound_of(65), 1.0, limits=QUICK)
    assert found.error == 36.5625
    assert (found.bins_per_user, found.clip_user_bins, found.best_bins, found.least_bins) == (4, 3, 3, 3)
    assert (found.basic, found.grid_count, found.clip_user, found.suppression) == (4.0, 4.0, 3.0, 3.0)
    assert found.exact == pytest.approx(28 / 9)
    assert found.equal == pytest.approx(16 / 9)
    # an error of U/2 and more is met by a constant
    assert found.joint is None
    twice = full_comparison(counts_of(GOLDEN), bound_of(65), 2.0, limits=QUICK)
    assert twice.error == 18.28125
    assert twice.clip_user_bins == 4
    assert twice.joint is not None


def test_the_exact_loss_after_clip_user_is_the_golden_one(counts_of, bound_of):
    counts = counts_of(GOLDEN)
    kept = suppress_to_fewest_bins(counts, bound_of(65), 1.0).suppression.kept
    golden = ~((counts.bin_index == 0) & (counts.user_index < 2))
    assert suppressed_loss(counts, bound_of(65), 1.0, golden) == pytest.approx(2.2)
    assert suppressed_loss(counts, bound_of(65), 1.0, kept) <= 3


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(tables, st.sampled_from([0.5, 2.0]))
def test_each_accounting_is_no_higher_than_the_one_it_sharpens(counts_of, bound_of, table, epsilon):
    found = full_comparison(counts_of(table), bound_of(65), epsilon, limits=QUICK)
    slack = 1 + 1e-9
    assert found.blocks_bound <= found.blocks * slack <= found.equal * slack**2
    assert found.equal <= found.exact * slack <= found.grid_count * slack**2
    assert found.suppression <= found.clip_user <= found.grid_count <= found.basic
    assert found.suppressed <= found.suppression * slack
    assert found.least_bins is not None
    assert found.least_bins <= found.best_bins
    assert found.joint is None or found.joint <= found.equal * slack


@pytest.mark.slow
@settings(max_examples=examples(6))
@given(tables, st.sampled_from([0.5, 2.0]))
def test_a_user_without_samples_changes_no_accounting(counts_of, bound_of, table, epsilon):
    one = full_comparison(counts_of(table), bound_of(65), epsilon, limits=QUICK)
    other = full_comparison(counts_of([[0, *row] for row in table]), bound_of(65), epsilon, limits=QUICK)
    for name in ("error", "best_bins", "exact", "suppressed", "equal", "blocks", "gaussian"):
        assert getattr(other, name) == pytest.approx(getattr(one, name))


def test_losses_recomputed_pair_by_pair_are_those_of_the_accountings(counts_of, bound_of):
    random = np.random.default_rng(2)
    counts, upper = counts_of(random.poisson(1.5, (9, 14))), 30.0
    blocks = best_blocks(counts, bound_of(30), MEANS, effort=300)
    found = full_comparison(counts, bound_of(30), 2.0, limits=QUICK, blocks=blocks)
    half_width = blocks.half_widths(found.blocks)
    equal, shared, squares = (np.zeros(counts.users) for _ in range(3))
    largest: dict[tuple[int, int], float] = {}
    for pair in range(counts.pairs):
        each, user = int(counts.bin_index[pair]), int(counts.user_index[pair])
        change = upper * counts.count[pair] / counts.samples_per_bin[each]
        equal[user] += change / found.error
        squares[user] += change**2
        key = (int(blocks.block[each]), user)
        largest[key] = max(largest.get(key, 0.0), change / half_width[each])
    for (_, user), paid in largest.items():
        shared[user] += paid
    assert equal.max() == pytest.approx(found.equal)
    assert shared.max() == pytest.approx(found.blocks)
    # every half width gives the error asked for: s (d + 1)/2 = E
    np.testing.assert_allclose(half_width * (blocks.block_size + 1) / 2, found.error)
    rho = gaussian_rho(blocks.items, found.error)
    assert rho == pytest.approx(squares.max() / (2 * (found.error**2 * np.pi / 2)))


def test_the_gaussian_twin_needs_more_epsilon_for_less_error(counts_of, bound_of):
    items = items_of(counts_of([[1] * 6] * 4), bound_of(30), {Statistic.MEAN: 1.0})
    cost = [gaussian_epsilon(items, error, 1e-6) for error in (1.0, 5.0, 20.0)]
    assert cost[0] > cost[1] > cost[2] > 0
