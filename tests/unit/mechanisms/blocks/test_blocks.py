"""Blocks: golden partitions, the best of all partitions in small cities, and what may never happen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks import blocks, calibrated
from trafficdp.mechanisms.blocks.blocks import best_blocks, clamped_block_error
from trafficdp.mechanisms.blocks.partition import Items, Partition, items_of, least_load, loads
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.model import Statistic
from trafficdp.noise.block import block_tail
from trafficdp.noise.tail import clamped_laplace_error

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
tables = st.integers(2, 4).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 4), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


def partitions(number):
    """Every way to put 0..number-1 into blocks, as arrays of block numbers."""

    def extend(head, most):
        if len(head) == number:
            yield np.array(head)
            return
        for block in range(most + 1):
            yield from extend([*head, block], max(most, block + 1))

    yield from extend([], 0)


def factor_by_definition(items, block):
    """max_l sum_B ((d + 1)/2) max cost, with loops over a dense table."""
    table = np.zeros((items.size, items.users))
    for item in range(items.size):
        for entry in range(items.start[item], items.start[item + 1]):
            table[item, items.user[entry]] = items.cost[entry]
    total = np.zeros(items.users)
    for each in set(block.tolist()):
        members = np.flatnonzero(block == each)
        total += (len(members) + 1) / 2 * table[members].max(axis=0)
    return total.max()


@pytest.mark.parametrize(
    ("table", "factor", "partition"),
    [
        ([[3, 1, 0], [0, 2, 2], [1, 1, 4]], 65.0, [0, 1, 1]),
        ([[4, 2, 0, 0], [4, 1, 1, 0], [4, 0, 2, 1], [1, 1, 1, 1]], 102.91666666666667, [0, 0, 0, 1]),
        ([[10, 1, 1, 1], [1, 10, 1, 1], [1, 1, 10, 1], [1, 1, 1, 10]], 65.0, [0, 1, 2, 3]),
    ],
)
def test_golden_blocks(counts_of, bound_of, table, factor, partition):
    found = best_blocks(counts_of(table), bound_of(65), {MEAN: 1.0})
    assert found.factor == pytest.approx(factor, rel=1e-12)
    assert found.block.tolist() == partition


def test_equal_bins_of_the_same_users_share_one_block(counts_of, bound_of):
    found = best_blocks(counts_of([[1, 1, 1, 1, 1]] * 4), bound_of(65), {MEAN: 1.0})
    assert found.factor == pytest.approx(32.5)
    assert found.block.tolist() == [0, 0, 0, 0]
    assert found.lower_bound == pytest.approx(32.5)


def test_mean_and_vehicle_mean_of_a_bin_cost_three_halves_together(counts_of, bound_of):
    counts, bound = counts_of([[5, 5]]), bound_of(60)
    # tolerances that make both cost a user the same
    found = best_blocks(counts, bound, {VEHICLE_MEAN: 30.0, MEAN: 30.0})
    assert found.factor == pytest.approx(1.5)
    assert found.items.size == 2


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(tables, st.sampled_from([{MEAN: 1.0}, {VEHICLE_MEAN: 30.0}]))
def test_blocks_are_the_best_of_all_partitions_of_small_cities(counts_of, bound_of, table, tolerance):
    found = best_blocks(counts_of(table), bound_of(65), tolerance, effort=500)
    best = min(factor_by_definition(found.items, block) for block in partitions(found.items.size))
    assert found.lower_bound <= best * (1 + 1e-12)
    assert found.factor == pytest.approx(factor_by_definition(found.items, found.block), rel=1e-12)
    assert found.factor == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(st.lists(st.integers(1, 6), min_size=1, max_size=7))
def test_the_bound_of_one_user_is_its_best_partition(costs):
    values = np.array(costs, dtype=np.float64)
    best = min(
        sum(((block == each).sum() + 1) / 2 * values[block == each].max() for each in set(block.tolist()))
        for block in partitions(len(values))
    )
    assert least_load(values) == pytest.approx(best, rel=1e-12)


@pytest.mark.slow
@settings(max_examples=examples(10))
@given(tables, st.integers(0, 2**32 - 1))
def test_numbering_bins_and_users_otherwise_changes_nothing(counts_of, bound_of, table, seed):
    random = np.random.default_rng(seed)
    counts = np.array(table)
    rows, columns = random.permutation(len(counts)), random.permutation(counts.shape[1])
    tolerance = {MEAN: 1.0, VEHICLE_MEAN: 2.0}
    one = best_blocks(counts_of(counts), bound_of(65), tolerance, effort=500)
    other = best_blocks(counts_of(counts[rows][:, columns]), bound_of(65), tolerance, effort=500)
    assert other.factor == pytest.approx(one.factor, rel=1e-12)
    np.testing.assert_allclose(other.load.max(), one.load.max())
    np.testing.assert_allclose(np.sort(other.half_widths(1)), np.sort(one.half_widths(1)))


@settings(max_examples=examples(60))
@given(tables)
def test_a_user_without_samples_changes_nothing(counts_of, bound_of, table):
    tolerance = {MEAN: 1.0}
    one = best_blocks(counts_of(table), bound_of(65), tolerance, effort=500)
    more = [[*row[:1], 0, *row[1:]] for row in table]
    other = best_blocks(counts_of(more), bound_of(65), tolerance, effort=500)
    assert other.block.tolist() == one.block.tolist()
    assert other.load.tolist() == [*one.load[:1], 0.0, *one.load[1:]]


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(tables)
def test_blocks_never_cost_more_than_equal_scales(counts_of, bound_of, table):
    counts, tolerance = counts_of(table), {MEAN: 1.0}
    equal = laplace_accountings(counts, bound_of(65), tolerance)[-1]
    for effort in (0, 300):
        found = best_blocks(counts, bound_of(65), tolerance, effort=effort)
        assert found.factor <= equal.factor * (1 + 1e-12)


@pytest.mark.slow
def test_a_larger_city_gets_blocks_within_the_certificate(counts_of, bound_of):
    random = np.random.default_rng(5)
    homes = random.integers(0, 40, 120)
    near = np.exp(-np.abs(np.arange(40)[:, None] - homes[None, :]) / 3)
    counts = counts_of(random.poisson(4 * near))
    bound, tolerance = bound_of(65), {MEAN: 1.0, VEHICLE_MEAN: 1.0}
    found = best_blocks(counts, bound, tolerance, effort=4_000)
    # what blocks of one cost
    alone = loads(found.items, np.arange(found.items.size)).max()
    assert found.factor == pytest.approx(factor_by_definition(found.items, found.block), rel=1e-12)
    assert found.lower_bound <= found.factor < 0.9 * alone
    merged = best_blocks(counts, bound, tolerance, effort=0)
    assert found.factor <= merged.factor < 0.95 * alone


def test_a_partition_keeps_its_loads_while_items_move(counts_of, bound_of):
    random = np.random.default_rng(11)
    items = items_of(counts_of(random.poisson(1.2, (30, 20)) + 1), bound_of(65), {MEAN: 1.0})
    partition = Partition(items, np.arange(items.size) // 3)
    for beta in (5.0, 50.0):
        partition.set_reference(beta)
        before = np.exp(beta * (partition.load / partition.load.max() - 1)).sum()
        for item in range(items.size):
            partition.move(item, 4)
            np.testing.assert_allclose(partition.load, loads(items, partition.block), rtol=1e-9, atol=1e-12)
        assert partition.weight.sum() < before
    assert partition.load.max() == pytest.approx(factor_by_definition(items, partition.block))


@pytest.mark.parametrize("size", [1, 2, 5, 20])
@pytest.mark.parametrize("reach", [0.5, 10.0, 1000.0])
def test_the_clamped_error_is_the_integral_of_the_tail(size, reach):
    found = clamped_block_error(np.array([size]), np.array([2.0]), np.array([reach]))[0]
    integral = 2 * quad(lambda h: float(block_tail(size, h)), 0, min(reach / 4, 200), limit=200)[0]
    assert found == pytest.approx(integral, rel=1e-7)
    if size == 1:
        laplace = clamped_laplace_error(np.array([2.0]), np.zeros(1), reach)
        assert found == pytest.approx(laplace[0], rel=1e-12)


def test_nothing_to_release_is_refused(counts_of, bound_of):
    with pytest.raises(UsageError, match="nothing to release"):
        best_blocks(counts_of([[1]]), bound_of(65), {})
    with pytest.raises(UsageError, match="tolerance of the mean is not positive"):
        best_blocks(counts_of([[1]]), bound_of(65), {MEAN: 0.0})
    with pytest.raises(UsageError, match="effort"):
        best_blocks(counts_of([[1]]), bound_of(65), {MEAN: 1.0}, effort=-1)
    with pytest.raises(UsageError, match="blocks are made of means"):
        best_blocks(counts_of([[1]]), bound_of(65), {MEAN: 1.0, VARIANCE: 1.0})


@pytest.fixture
def busy_and_light(counts_of):
    """24 bins: a few vehicles that are everywhere, in the same bins, and many that pass once."""
    random = np.random.default_rng(3)
    busy = np.repeat(random.poisson(3, (6, 5)) + 1, 4, axis=0)
    return counts_of(np.hstack([busy, random.random((24, 60)) < 0.05]).astype(int))


@pytest.mark.slow
@pytest.mark.parametrize("screen", [0.3, 0.99])
def test_light_users_that_are_left_out_of_a_search_are_charged_for_all_the_same(
    monkeypatch, busy_and_light, bound_of, screen
):
    monkeypatch.setattr(blocks, "MANY", 0)
    monkeypatch.setattr(blocks, "SCREEN", screen)
    searched = []
    among = Items.restricted_to_users
    monkeypatch.setattr(
        Items, "restricted_to_users", lambda self, users: searched.append(users) or among(self, users)
    )
    found = best_blocks(busy_and_light, bound_of(65), {MEAN: 1.0}, effort=2_000)
    np.testing.assert_allclose(found.load, loads(found.items, found.block), rtol=1e-12)
    assert found.factor == pytest.approx(factor_by_definition(found.items, found.block), rel=1e-12)
    alone = loads(found.items, np.arange(found.items.size))
    assert np.array_equal(searched[0], alone > screen * alone.max())
    assert 0 < np.count_nonzero(searched[0]) < busy_and_light.users
    # nobody who was left out loses more than those who were not
    assert found.load.argmax() in np.flatnonzero(searched[-1])
    monkeypatch.setattr(blocks, "MANY", 10**9)
    whole = best_blocks(busy_and_light, bound_of(65), {MEAN: 1.0}, effort=2_000)
    assert found.lower_bound == pytest.approx(whole.lower_bound, rel=1e-12)
    assert whole.lower_bound <= found.factor < 0.9 * alone.max()


def test_users_above_those_that_were_searched_are_searched_as_well(monkeypatch, counts_of, bound_of):
    # the first user alone would put all bins into one block, for which each of the others pays
    table = np.hstack([np.full((12, 1), 10), np.eye(12, dtype=int) * 30])
    monkeypatch.setattr(blocks, "MANY", 0)
    monkeypatch.setattr(blocks, "SCREEN", 0.9)
    searched, search = [], blocks._search_among
    monkeypatch.setattr(
        blocks,
        "_search_among",
        lambda items, users, *rest: searched.append(users.sum()) or search(items, users, *rest),
    )
    found = best_blocks(counts_of(table), bound_of(65), {MEAN: 1.0}, effort=0)
    assert searched == [1, 13]
    assert found.factor == pytest.approx(factor_by_definition(found.items, found.block), rel=1e-12)
    assert found.factor <= loads(found.items, np.arange(12)).max() * (1 + 1e-12)


def test_no_blocks_are_made_where_they_cannot_gain(monkeypatch, counts_of, bound_of):
    monkeypatch.setattr(blocks, "MANY", 0)
    monkeypatch.setattr(blocks, "merge_rounds", None)
    found = best_blocks(counts_of(np.eye(12, dtype=int) * 3 + 0), bound_of(65), {MEAN: 1.0})
    assert found.block.tolist() == list(range(12))


def test_blocks_of_maps_that_are_only_looked_at_are_no_better_than_a_releases(
    monkeypatch, busy_and_light, bound_of
):
    monkeypatch.setattr(calibrated, "QUICK", 0)
    monkeypatch.setattr(calibrated, "_remembered", type(calibrated._remembered)())
    bound = bound_of(65)
    looked_at = calibrated.find_blocks(busy_and_light, bound, {MEAN: 1.0}, thorough=False)
    released = calibrated.find_blocks(busy_and_light, bound, {MEAN: 1.0})
    assert released.factor <= looked_at.factor
    # what a release found is taken from then on
    assert calibrated.find_blocks(busy_and_light, bound, {MEAN: 1.0}, thorough=False) is released


@pytest.mark.parametrize("variance", [3.0, 60.0, 2000.0])
def test_products_are_priced_for_all_users_though_light_ones_are_passed_over(
    busy_and_light, bound_of, variance
):
    bound = bound_of(60)
    found = best_blocks(busy_and_light, bound, {MEAN: 1.0}, effort=500)
    everybody = replace(found, load=np.full_like(found.load, found.factor))
    some = calibrated.best_products(found, busy_and_light, bound, variance)
    all_of_them = calibrated.best_products(everybody, busy_and_light, bound, variance)
    assert some.ratio == all_of_them.ratio
    assert some.factor == pytest.approx(all_of_them.factor, rel=1e-12)
