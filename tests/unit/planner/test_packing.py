"""Packings in forests: certificates hold, choices fit, and small ones are the best there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.mechanisms.blocks.partition import Items
from trafficdp.planner.packing import WHOLE, Forest, best_antichain, dual_bound, greedy_antichain, pack


def random_forest(seed, users=4, levels=3):
    """Up to 12 candidates on three levels; costs between 0 and 1, some users in some candidates."""
    random = np.random.default_rng(seed)
    level = np.sort(random.integers(0, levels, random.integers(3, 13)))
    parent = np.array([random.choice(np.append(np.flatnonzero(level > own), -1)) for own in level])
    costs = [
        (seen, random.uniform(0.05, 0.9, len(seen)))
        for seen in (np.flatnonzero(random.random(users) < 0.6) for _ in level)
    ]
    costs = [(seen, cost) if len(seen) else (np.array([0]), np.array([0.3])) for seen, cost in costs]
    items = Items(
        random.integers(1, 30, len(level)).astype(np.float64),
        np.concatenate([[0], np.cumsum([len(seen) for seen, _ in costs])]).astype(np.int64),
        np.concatenate([seen for seen, _ in costs]).astype(np.int64),
        np.concatenate([cost for _, cost in costs]),
        users,
    )
    return Forest(items, level.astype(np.int64), parent.astype(np.int64))


def above(forest, candidate):
    found = set()
    while forest.parent[candidate] >= 0:
        candidate = int(forest.parent[candidate])
        found.add(candidate)
    return found


def is_antichain(forest, chosen):
    return not any(one in above(forest, other) for one in chosen for other in chosen)


def fits(forest, chosen):
    units = np.maximum(np.ceil(forest.items.rows.toarray() * WHOLE), forest.items.rows.toarray() > 0)
    return bool(np.all(units[list(chosen)].sum(axis=0) <= WHOLE)) and is_antichain(forest, chosen)


def best_of_all(forest):
    """The largest value of any choice, by looking at all of them."""
    every = range(forest.size)
    return max(
        forest.value[list(chosen)].sum()
        for size in range(forest.size + 1)
        for chosen in combinations(every, size)
        if fits(forest, chosen)
    )


@pytest.mark.slow
@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(40))
def test_the_priced_antichain_is_the_best_of_all_antichains(seed):
    forest = random_forest(seed)
    gain = forest.value - forest.items.rows @ np.random.default_rng(seed).uniform(0, 20, forest.items.users)
    total, chosen = best_antichain(forest, gain)
    every = range(forest.size)
    best = max(
        gain[list(some)].sum()
        for size in range(forest.size + 1)
        for some in combinations(every, size)
        if is_antichain(forest, some)
    )
    assert total == pytest.approx(best)
    assert is_antichain(forest, np.flatnonzero(chosen).tolist())
    assert gain[chosen].sum() == pytest.approx(total)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(60))
def test_rounds_choose_what_one_after_the_other_chooses(seed):
    forest = random_forest(seed)
    order = np.random.default_rng(seed).permutation(forest.size)
    chosen = []
    for candidate in order.tolist():
        if fits(forest, [*chosen, candidate]):
            chosen.append(candidate)
    assert np.flatnonzero(greedy_antichain(forest, order)).tolist() == sorted(chosen)


@pytest.mark.parametrize("at_once", [1, 2, 7, 30])
@pytest.mark.parametrize("seed", range(20))
def test_deciding_some_at_a_time_chooses_the_same(seed, at_once):
    forest = random_forest(seed, users=6)
    order = np.random.default_rng(seed).permutation(forest.size)
    np.testing.assert_array_equal(greedy_antichain(forest, order, at_once), greedy_antichain(forest, order))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_no_choice_is_worth_more_than_the_certificate(seed):
    forest = random_forest(seed)
    best = best_of_all(forest)
    by_prices = pack(forest)
    assert fits(forest, np.flatnonzero(by_prices.chosen).tolist())
    assert by_prices.value <= best <= by_prices.bound * (1 + 1e-12)
    for price in (0.0, 3.0, 30.0):
        assert dual_bound(forest, np.full(forest.items.users, price))[0] >= best - 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("forests", [8, pytest.param(80, marks=pytest.mark.prove(minutes=5))])
def test_prices_alone_lose_little_against_the_best_choice(forests):
    found, best = [], []
    for seed in range(100, 100 + forests):
        forest = random_forest(seed)
        found.append(pack(forest).value)
        best.append(best_of_all(forest))
    share = np.array(found) / np.array(best)
    assert share.min() >= 0.75
    assert share.mean() >= 0.99
    assert np.mean(share > 1 - 1e-12) >= 0.8


def test_nothing_to_choose_from_is_an_empty_choice():
    nothing = np.zeros(0)
    whole = nothing.astype(np.int64)
    packing = pack(Forest(Items(nothing, np.zeros(1, dtype=np.int64), whole, nothing, 3), whole, whole))
    assert (packing.value, packing.bound, len(packing.chosen)) == (0.0, 0.0, 0)
