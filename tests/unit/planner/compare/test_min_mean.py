"""The least mean scale: golden vector, an independent solver, and the certificate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.items import items_of
from trafficdp.model.statistic import Statistic
from trafficdp.planner.compare.min_mean import min_mean_scales

MEAN, VEHICLE_MEAN = Statistic.MEAN, Statistic.VEHICLE_MEAN
tables = st.integers(2, 4).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 5), min_size=users, max_size=users).filter(any), min_size=1, max_size=5
    )
)


def losses(items, relative):
    return np.bincount(items.user, weights=items.cost / relative[items.of_entry], minlength=items.users)


def test_the_golden_scales(counts_of, bound_of):
    table = [[4, 2, 0, 0], [4, 1, 1, 0], [4, 0, 2, 1], [1, 1, 1, 1]]
    found = min_mean_scales(items_of(counts_of(table), bound_of(65), {MEAN: 1.0}), 1.0, gap=1e-9)
    np.testing.assert_allclose(found.relative, [153.32168, 153.32168, 141.94829, 93.88997], rtol=1e-6)
    assert found.total == pytest.approx(542.48161, rel=1e-7)
    assert found.lower_bound == pytest.approx(found.total, rel=1e-8)


@settings(max_examples=60)
@given(tables, st.sampled_from([0.5, 1.0, 4.0]), st.integers(0, 2**32 - 1))
def test_the_scales_are_feasible_and_the_certificate_holds(counts_of, bound_of, table, epsilon, seed):
    items = items_of(counts_of(table), bound_of(65), {MEAN: 1.0, VEHICLE_MEAN: 2.0})
    weight = np.random.default_rng(seed).uniform(0.2, 3, items.number)
    found = min_mean_scales(items, epsilon, weight, gap=1e-4)
    assert losses(items, found.relative).max() <= epsilon * (1 + 1e-12)
    assert found.total == pytest.approx(float(weight @ found.relative), rel=1e-12)
    assert found.lower_bound * (1 - 1e-12) <= found.total <= found.lower_bound * (1 + 1e-3)
    # equal scales are feasible, so they are never below the bound
    equal = losses(items, np.ones(items.number)).max() / epsilon
    assert found.lower_bound <= equal * weight.sum() * (1 + 1e-12)
    assert found.total <= equal * weight.sum() * (1 + 1e-4)
    richer = min_mean_scales(items, 2 * epsilon, weight, gap=1e-4)
    assert richer.total == pytest.approx(found.total / 2, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_general_solver_agrees(counts_of, bound_of, seed):
    random = np.random.default_rng(seed)
    items = items_of(counts_of(random.poisson(1.5, (5, 7)) + 1), bound_of(10), {MEAN: 1.0})
    found = min_mean_scales(items, 1.0, gap=1e-9)
    start = np.full(items.number, losses(items, np.ones(items.number)).max() * 1.1)
    table = np.zeros((items.users, items.number))
    table[items.user, items.of_entry] = items.cost
    answer = minimize(
        np.sum,
        start,
        method="SLSQP",
        bounds=[(1e-3, None)] * items.number,
        constraints={"type": "ineq", "fun": lambda b: 1.0 - table @ (1 / b)},
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    assert found.total == pytest.approx(float(answer.fun), rel=1e-5)


def test_one_user_has_a_closed_form(counts_of, bound_of):
    items = items_of(counts_of([[3, 1], [1, 0], [1, 1]]), bound_of(60), {MEAN: 1.0})
    cost = np.array([45.0, 60.0, 30.0])
    found = min_mean_scales(items, 2.0, gap=1e-9)
    assert found.total == pytest.approx(np.sqrt(cost).sum() ** 2 / 2)
    np.testing.assert_allclose(found.relative, np.sqrt(cost) * np.sqrt(cost).sum() / 2, rtol=1e-5)


def test_numbering_users_otherwise_and_absent_users_change_nothing(counts_of, bound_of):
    table = np.array([[4, 2, 0, 0], [4, 1, 1, 0], [4, 0, 2, 1], [1, 1, 1, 1]])
    one = min_mean_scales(items_of(counts_of(table), bound_of(65), {MEAN: 1.0}), 1.0)
    wider = np.insert(table[:, [2, 0, 3, 1]], 2, 0, axis=1)
    other = min_mean_scales(items_of(counts_of(wider), bound_of(65), {MEAN: 1.0}), 1.0)
    np.testing.assert_allclose(other.relative, one.relative, rtol=1e-9)


def test_impossible_weights_are_refused(counts_of, bound_of):
    items = items_of(counts_of([[1, 1]]), bound_of(65), {MEAN: 1.0})
    with pytest.raises(UsageError, match="weights"):
        min_mean_scales(items, 1.0, np.array([0.0]))
    with pytest.raises(UsageError, match="epsilon is not positive"):
        min_mean_scales(items, 0.0)
