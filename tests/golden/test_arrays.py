"""Golden vectors of grouping, its sensitivities and biases, the interval's votes and Smith's cells."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.bounding.arrays import (
    CountCap,
    IntervalPartition,
    argmax_cap,
    array_mean_sensitivity,
    best_fit,
    concentration_width,
    dropped_mean_bias,
    kept_counts,
    median_cap,
    total_variation_bias,
    wrap_around,
)
from trafficdp.bounding.worst_case import mean_sensitivity
from trafficdp.noise.choice import probabilities

SEVEN = [7, 5, 4, 3, 2, 2, 1]
TEN = [10] + [1] * 9
FOUR = [4, 4, 3, 1]


def spelt(arrays):
    found = [""] * len(arrays.fill)
    order = np.lexsort((arrays.piece_pair, arrays.piece_array))
    for i in order:
        letter = "ABCDEFGHIJ"[arrays.counts.user_index[arrays.piece_pair[i]]]
        found[arrays.piece_array[i]] += letter * int(arrays.piece_count[i])
    return found


@pytest.mark.parametrize(
    ("numbers", "rule", "group", "upper", "expected", "sensitivity", "bias"),
    [
        (SEVEN, "median", wrap_around, 65, "AAA BBB CCC DDD EEF", 13, Fraction(195, 8)),
        (SEVEN, "median", best_fit, 65, "AAA BBB CCC DDD EEG FF", Fraction(65, 6), Fraction(455, 24)),
        (SEVEN, "argmax", wrap_around, 65, "AAAA BBBB CCCC DDDE EFFG", 13, Fraction(65, 6)),
        (SEVEN, "argmax", best_fit, 65, "AAAA BBBB CCCC DDDG EEFF", 13, Fraction(65, 6)),
        (TEN, "median", wrap_around, 65, "A B C D E F G H I J", Fraction(13, 2), Fraction(585, 19)),
        (TEN, "argmax", best_fit, 65, "A B C D E F G H I J", Fraction(13, 2), Fraction(585, 19)),
        (FOUR, "argmax", wrap_around, 10, "AAAA BBBB CCCD", Fraction(10, 3), 0),
        (FOUR, "argmax", best_fit, 10, "AAAA BBBB CCCD", Fraction(10, 3), 0),
    ],
)
def test_arrays_are_the_golden_ones(numbers, rule, group, upper, expected, sensitivity, bias, counts_of):
    counts = counts_of([numbers])
    arrays = group(counts, CountCap(rule).of(counts))
    assert spelt(arrays) == expected.split()
    whole = np.zeros(1), np.full(1, float(upper))
    found = array_mean_sensitivity(arrays, float(upper), *whole).max()
    assert found == pytest.approx(float(sensitivity), rel=1e-14)
    assert total_variation_bias(arrays, float(upper))[0] == pytest.approx(float(bias), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize(("numbers", "median", "argmax"), [(SEVEN, 3, 4), (TEN, 1, 1), (FOUR, 4, 4)])
def test_caps_are_the_golden_ones(numbers, median, argmax, counts_of):
    counts = counts_of([numbers])
    assert median_cap(counts).tolist() == [median]
    assert argmax_cap(counts).tolist() == [argmax]


@pytest.mark.parametrize(
    ("numbers", "pooled", "baseline"),
    [(SEVEN, Fraction(195, 17), Fraction(455, 24)), (TEN, Fraction(13, 2), Fraction(650, 19))],
)
def test_pooled_and_baseline_sensitivities_are_the_golden_ones(numbers, pooled, baseline, counts_of):
    counts = counts_of([numbers])
    kept = kept_counts(counts, median_cap(counts))
    for each, expected in ((kept, pooled), (counts, baseline)):
        found = mean_sensitivity(each.largest_count_per_bin, each.samples_per_bin, 65.0)[0]
        assert found == pytest.approx(float(expected), rel=1e-14)


def test_the_pooled_bias_of_ten_vehicles_is_the_golden_one(counts_of):
    counts = counts_of([TEN])
    dropped = counts.samples_per_bin - kept_counts(counts, median_cap(counts)).samples_per_bin
    found = dropped_mean_bias(dropped, counts.samples_per_bin, 65.0)[0]
    assert found == pytest.approx(585 / 19, rel=1e-14)


@pytest.mark.parametrize(("low", "high", "expected"), [(0.0, 1.0, 1 / 3), (0.5, 0.75, 1 / 6)])
def test_projected_wrap_around_has_the_golden_sensitivity(low, high, expected, counts_of):
    counts = counts_of([[3, 2, 2, 2]])
    arrays = wrap_around(counts, np.array([3]))
    found = array_mean_sensitivity(arrays, 1.0, np.array([low]), np.array([high])).max()
    assert found == pytest.approx(expected, rel=1e-14)


def test_the_interval_is_the_golden_one():
    # lengths in halves, so that U = 65 and tau = 10 are whole
    partition = IntervalPartition(np.array([130]), np.array([20]))
    y, of_bin = 2 * np.array([20, 22, 21, 35, 19]), np.zeros(5, dtype=np.int64)
    assert (partition.twice_midpoint / 4).tolist() == [5, 15, 25, 35, 45, 55, 62.5]
    assert partition.votes(y, of_bin).tolist() == [1, 2, 2, 3, 1]
    costs = partition.costs(y, of_bin)
    assert costs.tolist() == [5, 3, 2, 4, 5, 5, 5]
    law = probabilities(costs, np.ones_like(costs), partition.start, np.array([4.0]))
    golden = [0.110500, 0.182184, 0.233929, 0.141885, 0.110500, 0.110500, 0.110500]
    np.testing.assert_allclose(law, golden, atol=5e-7)
    low, high = partition.interval(np.array([2, 6]), 3)
    assert (low / 2).tolist() == [10, 47.5]
    assert (high / 2).tolist() == [40, 65]


@pytest.mark.parametrize(
    ("arrays", "capacity", "upper", "gamma", "expected"),
    [(5, 4, 65.0, 0.2, 45.453681), (164, 100, 65.0, 0.2, 12.505071)],
)
def test_the_width_of_parts_is_the_golden_one(arrays, capacity, upper, gamma, expected):
    found = concentration_width(np.array([arrays]), np.array([capacity]), upper, gamma)[0]
    assert found == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(
    ("quantile", "expected"),
    [(0.9, [0.067056, 0.165834, 0, 0.601046, 0.166065]), (0.5, [0.137542, 0.340152, 0, 0.453536, 0.068771])],
)
def test_smiths_cells_are_the_golden_ones(quantile, expected):
    # values 2, 5, 5, 9 in [0, 10] at epsilon 1: lengths of cells, and ten times how far their ranks are off
    cost = np.abs(10 * np.arange(5) - round(40 * quantile))
    found = probabilities(cost, np.array([2, 3, 0, 4, 1]), np.array([0, 5]), np.array([20.0]))
    np.testing.assert_allclose(found, expected, atol=5e-7)
    assert found[2] == 0
