"""The formulas equal the largest change over all values on a lattice, for every small bin."""

from collections import defaultdict
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from trafficdp.bounding.sensitivity import (
    joint_cost,
    mean_sensitivity,
    variance_sensitivity,
    vehicle_mean_sensitivity,
    vertex,
)

SMALL_BINS = [(upper, m, n) for upper in (1, 2, 3) for n in range(1, 8) for m in range(1, n + 1)]
# (price of one step of the sum, price of one step of N Q - S^2): either alone, balanced, lopsided
PRICES = [(1, 0), (0, 1), (1, 1), (5, 1), (3, 7), (13, 2), (1, 20), (60, 1), (7, 3)]


def moments(upper, samples):
    """All (S, Q) that ``samples`` values in 0..upper can have."""
    return sorted(
        {(sum(x), sum(v * v for v in x)) for x in combinations_with_replacement(range(upper + 1), samples)}
    )


def statistics(upper, m, n):
    """(S, N Q - S^2) for every choice of the others (rows) and of the vehicle's own values (columns)."""
    own, others = np.array(moments(upper, m)), np.array(moments(upper, n - m))
    total = others[:, None, 0] + own[None, :, 0]
    squares = others[:, None, 1] + own[None, :, 1]
    return total, n * squares - total**2


def brute_force(upper, m, n, linear, quadratic):
    """max over (x, x', others) of linear |dS| + quadratic |d(N Q - S^2)|, in integers."""
    total, spread = statistics(upper, m, n)
    change = linear * np.abs(total[:, :, None] - total[:, None, :])
    change = change + quadratic * np.abs(spread[:, :, None] - spread[:, None, :])
    return int(change.max())


def counts(*values):
    return [np.array([value], dtype=np.int64) for value in values]


def exact(value):
    """The fraction of small denominator that the float stands for."""
    fraction = Fraction(float(value)).limit_denominator(10_000)
    assert float(value) == pytest.approx(float(fraction), rel=1e-15)
    return fraction


@pytest.mark.parametrize(("upper", "m", "n"), SMALL_BINS)
def test_the_mean_moves_by_exactly_the_formula(upper, m, n):
    found = exact(mean_sensitivity(*counts(m, n), float(upper))[0])
    assert found == Fraction(brute_force(upper, m, n, 1, 0), n)


@pytest.mark.parametrize(("upper", "m", "n"), SMALL_BINS)
def test_the_variance_moves_by_exactly_the_formula(upper, m, n):
    most = brute_force(upper, m, n, 0, 1)
    assert upper**2 * int(vertex(*counts(m, n))[0]) == most
    assert exact(variance_sensitivity(*counts(m, n), float(upper))[0]) == Fraction(most, n * n)


@pytest.mark.parametrize(("upper", "m", "n"), SMALL_BINS)
def test_the_joint_cost_is_exactly_the_worst_pair_of_changes(upper, m, n):
    for linear, quadratic in PRICES:
        found = joint_cost(
            *counts(m, n), np.array([1.0 * linear * upper]), np.array([1.0 * quadratic * upper**2])
        )
        assert found[0] == brute_force(upper, m, n, linear, quadratic), (linear, quadratic)


def test_the_joint_cost_of_a_dominating_vehicle_is_below_the_sum_of_both():
    together = joint_cost(*counts(9, 10), np.array([0.65]), np.array([4225 / 100 / 1000]))[0]
    apart = 0.65 * 9 + 4225 / 100 / 1000 * 25
    assert together == pytest.approx(6.23025, rel=1e-14)
    assert apart == pytest.approx(6.90625, rel=1e-14)


def test_the_joint_cost_is_the_largest_over_all_k_for_random_prices():
    random = np.random.default_rng(5)
    n = random.integers(1, 400, 2_000)
    m = random.integers(1, n + 1)
    linear, quadratic = 10.0 ** random.uniform(-9, 3, 2_000), 10.0 ** random.uniform(-9, 3, 2_000)
    k = np.arange(0, 400)[:, None]
    costs = linear * k + quadratic * (k * (n - k)).astype(float)
    largest = np.where(k <= m, costs, 0.0).max(axis=0)
    np.testing.assert_allclose(joint_cost(m, n, linear, quadratic), largest, rtol=1e-14)


def test_the_joint_cost_grows_with_both_prices_and_with_the_count():
    random = np.random.default_rng(6)
    n = random.integers(1, 10**8, 2_000)
    m = random.integers(1, n + 1)
    more = np.minimum(m + random.integers(0, 5, 2_000), n)
    linear, quadratic = random.uniform(0, 2, 2_000), random.uniform(0, 1e-6, 2_000)
    base = joint_cost(m, n, linear, quadratic)
    for larger in (
        joint_cost(more, n, linear, quadratic),
        joint_cost(m, n, linear * 1.5, quadratic),
        joint_cost(m, n, linear, quadratic * 1.5),
    ):
        assert np.all(larger >= base * (1 - 1e-15))


@pytest.mark.parametrize("price", [np.inf, np.nan])
def test_a_price_without_noise_never_looks_affordable(price):
    assert not joint_cost(*counts(2, 4), np.array([price]), np.array([1.0]))[0] < np.inf
    assert not joint_cost(*counts(2, 4), np.array([1.0]), np.array([price]))[0] < np.inf


@pytest.mark.parametrize("upper", [1, 2, 3])
@pytest.mark.parametrize("vehicles", [1, 2, 3, 4])
def test_a_vehicle_mean_moves_by_exactly_one_vehicles_share(upper, vehicles):
    changes = defaultdict(set)
    own = {Fraction(sum(x), m) for m in (1, 2, 3) for x in combinations_with_replacement(range(upper + 1), m)}
    for others in combinations_with_replacement(sorted(own), vehicles - 1):
        means = [(sum(others) + mine) / vehicles for mine in own]
        changes[vehicles].add(max(means) - min(means))
    found = vehicle_mean_sensitivity(np.array([vehicles]), float(upper))[0]
    assert exact(found) == max(changes[vehicles])
