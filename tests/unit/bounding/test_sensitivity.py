"""The formulas equal the largest change over all values on a lattice, for every small bin."""

from collections import defaultdict
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from trafficdp.bounding.arrays import dropped_variance_bias
from trafficdp.bounding.worst_case import mean_sensitivity, vehicle_mean_sensitivity

SMALL_BINS = [(upper, m, n) for upper in (1, 2, 3) for n in range(1, 8) for m in range(1, n + 1)]


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
    assert exact(dropped_variance_bias(*counts(m, n), float(upper))[0]) == Fraction(most, n * n)


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
