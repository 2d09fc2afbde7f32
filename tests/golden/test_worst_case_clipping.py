"""Golden vectors of the worst-case optimal clipping, through the functions and through the mechanism."""

import numpy as np
import pytest

from trafficdp.bounding.worst_case import (
    exact_worst_error,
    largest_bias,
    least_error_threshold,
    worst_case_threshold,
)
from trafficdp.mechanisms.per_statistic.clipping import WorstCaseClipping
from trafficdp.mechanisms.protocol import StatisticRequest

SMALL = [5, 4, 3, 2, 1]
GEOMETRIC = [2 ** (6 - i) for i in range(7) for _ in range(2**i)]
EXTREME = [10] + [1] * 100
# counts, U, eps, T, beta, b, E, exact error
GOLDEN = [
    (SMALL, 1, 1.0, 4, 1 / 30, 4 / 15, 0.3, 0.268666),
    (SMALL, 1, 0.5, 2, 0.2, 0.266667, 0.466667, 0.325964),
    (GEOMETRIC, 65, 1.0, 2080, 2.321429, 4.642857, 6.964286, 5.137464),
    (GEOMETRIC, 65, 0.1, 260, None, None, 20.022321, 14.719561),
    (EXTREME, 65, 1.0, 65, 2.659091, 0.590909, 3.25, None),
]
BETTER = [
    (SMALL, 1, 1.0, 2.6278, 0.217264),
    (GEOMETRIC, 65, 1.0, 1821.87, 5.043623),
    (GEOMETRIC, 65, 0.1, None, 14.220397),
]


def one_bin(counts):
    m = np.array(counts, dtype=np.int64)
    return m, np.zeros(len(m), dtype=np.int64), 1


def test_the_collections_are_the_papers():
    assert (len(GEOMETRIC), sum(GEOMETRIC)) == (127, 448)
    assert (len(EXTREME), sum(EXTREME)) == (101, 110)


@pytest.mark.parametrize(
    ("counts", "upper", "epsilon", "threshold", "bias", "scale", "bound", "exact"), GOLDEN
)
def test_thresholds_biases_and_errors_are_the_golden_ones(
    counts, upper, epsilon, threshold, bias, scale, bound, exact
):
    m, g, bins = one_bin(counts)
    t = worst_case_threshold(m, g, bins, np.array([epsilon])).astype(float)
    beta = largest_bias(m, g, bins, t, upper)
    b = upper * t / m.sum() / epsilon
    assert upper * t[0] == threshold
    assert (beta + b)[0] == pytest.approx(bound, abs=5.1e-7)
    if bias is not None:
        assert (beta[0], b[0]) == pytest.approx((bias, scale), abs=5.1e-7)
    if exact is not None:
        assert exact_worst_error(beta, b)[0] == pytest.approx(exact, abs=5.1e-7)


@pytest.mark.parametrize(("counts", "upper", "epsilon", "threshold", "error"), BETTER)
def test_the_better_thresholds_are_the_golden_ones(counts, upper, epsilon, threshold, error):
    m, g, bins = one_bin(counts)
    t = least_error_threshold(m, g, bins, np.array([epsilon]))
    if threshold is not None:
        # the error is flat there: the golden thresholds were found by its value, ours by its slope
        assert upper * t[0] == pytest.approx(threshold, rel=1e-4)
    found = exact_worst_error(largest_bias(m, g, bins, t, upper), upper * t / m.sum() / epsilon)
    assert found[0] == pytest.approx(error, abs=5.1e-7)


def test_too_little_epsilon_for_any_threshold_releases_the_middle():
    # eps = 0.39: k = 6 > 5
    m, g, bins = one_bin(SMALL)
    t = worst_case_threshold(m, g, bins, np.array([0.39])).astype(float)
    assert t[0] == 0
    assert largest_bias(m, g, bins, t, 1.0)[0] == 0.5


@pytest.mark.parametrize(
    ("epsilon", "expected"),
    [
        (1.0, {5: (0.1, 0.9), 4: (0, 1), 3: (0, 1), 2: (0, 1), 1: (0, 1)}),
        (0.5, {5: (0.3, 0.7), 4: (0.25, 0.75), 3: (1 / 6, 5 / 6), 2: (0, 1), 1: (0, 1)}),
    ],
)
def test_the_mechanism_clips_to_the_golden_intervals(epsilon, expected, counts_of, bound_of):
    counts, bound = counts_of([SMALL]), bound_of(1, "1/600")
    for m, cut, width in zip(
        SMALL, *WorstCaseClipping().clipping(counts, bound, np.array([epsilon])), strict=True
    ):
        low = cut / 600 / m
        assert (low, low + width / 600 / m) == pytest.approx(expected[m], abs=1e-12)


def test_the_extreme_users_interval_is_the_golden_one(counts_of, bound_of):
    counts, bound = counts_of([EXTREME]), bound_of(65, "1/2")
    cut, width = WorstCaseClipping().clipping(counts, bound, np.array([1.0]))
    assert cut[0] / 2 / 10 == 29.25
    assert (cut[0] + width[0]) / 2 / 10 == 35.75
    # U = T = 65, m = 10 in whole steps: 293..357
    cut, width = WorstCaseClipping().clipping(counts, bound_of(65), np.array([1.0]))
    assert (cut[0], cut[0] + width[0]) == (293, 357)


def test_the_mechanism_expects_the_golden_error(counts_of, bound_of):
    # U = 1 in units so large, and steps so fine, that rounding moves nothing here
    counts, bound, unit = counts_of([SMALL]), bound_of(1_000_000, "5/3"), 1_000_000
    b, beta = 4 / 15, 1 / 30
    saturated = 0.268666 - b * np.exp(-1 / (2 * b))
    request = StatisticRequest(counts, bound, *_mean(1.0))
    found = WorstCaseClipping().expected_error(request)[0] / unit
    assert found == pytest.approx(saturated, abs=2e-6)
    assert found < beta + b
    better = WorstCaseClipping(least_exact_error=True).expected_error(request)[0] / unit
    assert better < found


def _mean(epsilon):
    from trafficdp.model import Statistic

    return Statistic.MEAN, np.array([epsilon])
