"""The second moment beside the first: its price by brute force, and that it is free."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.measurement.nodes import exact_price
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.george_2022.arrivals import Arrivals, best_plan, paper_plan, prior_plan
from trafficdp.research.george_2022.better_means import levelled_moments, moments_loss, second_scale


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 10])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 2.0, 3.3, 7.0, 30.0])
def test_the_joint_price_is_the_worst_of_all_changes(steps, ratio):
    one, two = Fraction(2), Fraction(2.0 * ratio)
    worst = max(
        abs(a - b) / one + abs(a * (steps - a) - b * (steps - b)) / two
        for a, b in product(range(steps + 1), repeat=2)
    )
    assert exact_price(steps, one, two) == worst


def test_the_second_moment_is_free():
    plan = best_plan(500, 32, 30, 1.0, 0.05)
    first = plan.scales()
    for one, two in zip(first, second_scale(30, first), strict=True):
        assert exact_price(30, Fraction(one), Fraction(two)) == 30 / Fraction(one)
        assert exact_price(30, Fraction(one), Fraction(two * 0.8)) > 30 / Fraction(one)
    assert moments_loss(plan) == plan.loss()


def test_means_and_variances_come_near_the_truth():
    source = SimulatedNoise(5)
    users, samples, u = 2000, 8, 20
    value = source.uniform_below(np.full(users * samples, u + 1))
    arrivals = Arrivals(np.tile(np.arange(users), samples), value, users, samples, u)
    plan = best_plan(users, samples, u, 20.0, 0.05)
    at = np.array([0, 5, len(arrivals)])
    mean, variance = levelled_moments(arrivals, plan, source, 50, at)
    assert mean[:, 0].tolist() == [10.0] * 50
    assert variance[:, 0].tolist() == [50.0] * 50
    assert np.abs(mean[:, -1] - value.mean()).mean() < 0.5
    assert np.abs(variance[:, -1] - value.var()).mean() < 5
    assert ((variance >= 0) & (variance <= mean * (u - mean))).all()


@pytest.mark.parametrize(
    "plan", [paper_plan(10, 4, 5, 1.0, 0.1), prior_plan(1000, 4096, 5, 1.0, 0.1)], ids=["medians", "prior"]
)
def test_truncated_elements_are_refused(plan):
    arrivals = Arrivals(np.array([0]), np.array([1]), plan.users, plan.samples, 5)
    with pytest.raises(UsageError, match="truncated"):
        levelled_moments(arrivals, plan, SimulatedNoise(1), 1, np.array([1]))
