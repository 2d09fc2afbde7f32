"""Errata of paper 004 and of its code: what fails when taken literally."""

from itertools import product

import numpy as np
import pytest

from trafficdp.mechanisms.per_statistic.plan import chi_square_factor
from trafficdp.noise.choice import probabilities
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.aumuller_2023.plan import plan_mean

ORDERS = np.array([1.001, 1.01, 1.1, 1.5, 2.0, 3.0, 6.0])


def quantile_law(values, rank, scale, high, copies=1):
    """The exact law on 0..high of a quantile of ``values``, each stored ``copies`` times."""
    stored = np.sort(np.repeat(values, copies))
    edges = np.concatenate([[-1], stored, [high]])
    weight = np.diff(edges).astype(np.int64)
    cost = np.abs(np.arange(len(weight)) - rank * copies)
    start = np.array([0, len(weight)])
    p = probabilities(cost, weight, start, np.array([scale]))
    return np.repeat(p / np.maximum(weight, 1), weight)


def concentrated_loss(scale, copies=1, n=4, high=200):
    """The largest Renyi divergence over its order, over data at a few places and their neighbours."""
    places = (0, 1, 99, 100, 101, 199, 200)
    worst = 0.0
    for rest in product(places, repeat=n - 1):
        if list(rest) != sorted(rest):
            continue
        laws = [quantile_law([*rest, x], n // 2, scale, high, copies) for x in places]
        for p, q in product(laws, repeat=2):
            moments = [np.log((p**a * q ** (1 - a)).sum()) / (a - 1) / a for a in ORDERS]
            worst = max(worst, *moments)
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.01, 0.1, 0.5])
def test_dividing_by_the_larger_share_spends_up_to_four_times_rho(rho):
    """E22: the code's sensitivity max(q, 1 - q) = 1/2 for medians is that of adding or removing a value."""
    epsilon = np.sqrt(8 * rho)
    ours, theirs = concentrated_loss(2 / epsilon), concentrated_loss(2 * 0.5 / epsilon)
    assert ours <= rho * (1 + 1e-9)
    assert ours > 0.8 * rho
    assert theirs > 2.9 * rho
    assert theirs <= 4 * rho * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.01, 0.1])
def test_storing_every_value_three_times_needs_a_ninth_of_rho(rho):
    """E23: the code divides rho by 3 for three copies; ranks change by 3, and zCDP grows with the square."""
    literal = concentrated_loss(2 / np.sqrt(8 * rho / 3), copies=3)
    right = concentrated_loss(2 / np.sqrt(8 * rho / 9), copies=3)
    assert literal > 2 * rho
    assert right <= rho * (1 + 1e-9)


@pytest.mark.parametrize(
    ("group", "exact", "high"),
    [(1, 0.454936, 0.034), (2, 0.693147, 0.013), (4, 0.839173, 0.0039), (16, 0.958656, 0.00026)],
)
def test_the_median_of_chi_square_is_exact(group, exact, high):
    """E20: the approximation (1 - 2/(9k))^3 is high by these shares."""
    assert chi_square_factor(group) == pytest.approx(exact, abs=5e-7)
    approximation = (1 - 2 / (9 * group)) ** 3
    assert approximation / chi_square_factor(group) - 1 == pytest.approx(high, rel=0.1)


def test_lengths_after_centring_reach_twice_the_reach():
    """E27: a range of M sqrt(d) would clip vectors of length 2 M sqrt(d) to half."""
    reach, d = 10.0, 4
    x = np.where(np.arange(1_000)[:, None] < 600, reach, -reach) * np.ones(d)
    found = plan_mean(x, reach, 1e4, SimulatedNoise(1), scaled=False)
    np.testing.assert_allclose(found, 0.2 * reach, rtol=0.05)
    literal = reach - 0.4 * reach  # the 400 far vectors at half their length
    assert np.all(np.abs(found - literal) > 0.3 * reach)
