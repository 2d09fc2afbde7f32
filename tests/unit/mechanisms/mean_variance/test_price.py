"""What sums of x and of x (U - x) cost together, against every change there is."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from trafficdp.mechanisms.mean_variance.price import record_price, record_price_bound, relative_price

STEPS = 4


def worst_change(steps, records, first, second):
    """The largest |dS|/B + |dW|/C over all pairs of values of one vehicle: the definition."""
    everything = list(product(range(steps + 1), repeat=records))
    sums = [(sum(x), sum(k * (steps - k) for k in x)) for x in everything]
    return max(
        Fraction(abs(s - other)) / Fraction(first) + Fraction(abs(w - other_w)) / Fraction(second)
        for (s, w), (other, other_w) in product(sums, repeat=2)
    )


@pytest.mark.parametrize("records", [1, 2, 3])
@pytest.mark.parametrize("ratio", [0.05, 0.3, 0.5652, 0.9, 1.0, 1.7, 20.0])
def test_a_vehicles_loss_is_the_worst_over_all_pairs_of_its_values(records, ratio):
    first, second = 2.5, ratio * STEPS * 2.5
    assert records * record_price(STEPS, first, second) == worst_change(STEPS, records, first, second)


def test_the_worst_probability_ratio_of_one_vehicle_is_its_loss():
    """By the probabilities themselves, of every outcome near the sums: nothing but the definition of DP."""
    first, second, records = 3.0, 5.5, 2
    outcome = np.arange(-30, 60)

    def log_probability(value, scale):
        return -np.abs(outcome - value) / scale

    everything = list(product(range(STEPS + 1), repeat=records))
    laws = {
        x: (log_probability(sum(x), first), log_probability(sum(k * (STEPS - k) for k in x), second))
        for x in everything
    }
    worst = max((laws[x][0] - laws[y][0]).max() + (laws[x][1] - laws[y][1]).max() for x in laws for y in laws)
    assert worst == pytest.approx(float(records * record_price(STEPS, first, second)), rel=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 7, 600, 6_500, 10**6])
def test_floats_bound_the_price_and_are_near_it(steps):
    random = np.random.default_rng(steps)
    first = np.exp(random.uniform(-3, 20, 200))
    second = first * steps * np.exp(random.uniform(-5, 2, 200))
    bound = record_price_bound(steps, first, second)
    for one, two, found in zip(first.tolist(), second.tolist(), bound.tolist(), strict=True):
        exact = record_price(steps, one, two)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 10**14))


def test_sums_without_noise_cost_without_end_and_no_sum_costs_nothing():
    bound = record_price_bound(10, np.array([2.0, 0.0, 2.0, 2.0]), np.array([np.inf, 3.0, 0.0, 1e300]))
    assert bound.tolist() == [pytest.approx(5.0), np.inf, np.inf, pytest.approx(5.0)]


def test_variances_are_free_from_ratio_one_on():
    for ratio in (1.0, 1.5, 100.0):
        assert relative_price(6_000, ratio) == 1
        assert record_price(6_000, 7.0, ratio * 6_000 * 7.0) == Fraction(6_000, 7)
    assert relative_price(6_000, 0.99) > 1
    for ratio in (0.1, 0.5652, 0.9):
        assert relative_price(10**6, ratio) == pytest.approx((1 + ratio) ** 2 / (4 * ratio), rel=1e-9)
        exact = record_price(60, 8.0, ratio * 60 * 8.0) * 8 / 60
        assert relative_price(60, ratio) == pytest.approx(float(exact), rel=1e-14)
    # with one step there is only the whole move
    assert relative_price(1, 0.01) == 1
