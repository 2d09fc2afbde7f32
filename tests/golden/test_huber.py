"""Golden vectors of the Huber estimator, its smooth sensitivity and its noise."""

import numpy as np
import pytest

from trafficdp.bounding.huber import (
    HuberParameters,
    balanced_distance,
    huber_location,
    huber_point,
    smooth_sensitivity,
    typical_smooth_sensitivity,
)
from trafficdp.noise import smooth_gaussian, student_t

OUTLIERS = np.array([18, 19, 19.5, 20, 20, 20.5, 21, 21, 21.5, 22, 22.5, 23, 24, 17, 55, 60])
CLEAN = np.append(OUTLIERS[:-2], [20, 21])


def equal(users, threshold, upper):
    return HuberParameters(
        np.full(users, 1 / users), np.full(users, threshold), np.zeros(users, dtype=np.int64), 1, upper
    )


@pytest.mark.parametrize(
    ("value", "weight", "threshold", "expected"),
    [
        ([10, 12, 11, 13, 40], [0.2] * 5, 5, 12.75),
        ([0, 10, 10, 10], [0.4, 0.2, 0.2, 0.2], 4, 22 / 3),
        ([0, 1], [0.5, 0.5], 0.1, 0.5),
        (OUTLIERS, [1 / 16] * 16, 10, 22.0714286),
        (CLEAN, [1 / 16] * 16, 10, 20.625),
        ([7], [1.0], 3, 7.0),
    ],
)
def test_the_minimiser_is_the_golden_one(value, weight, threshold, expected):
    value, weight = np.array(value, dtype=float), np.array(weight)
    where = np.zeros(len(value), dtype=np.int64)
    found = huber_location(value, weight, np.full(len(value), float(threshold)), where, 1)
    assert found[0] == pytest.approx(expected, abs=1e-7)


def test_weiszfeld_finds_the_same_in_one_dimension():
    shape = equal(16, 10.0, 65.0)
    point = huber_point(OUTLIERS[:, None], shape.weight, shape.threshold, shape.bin_index, 1)
    assert point[0, 0] == pytest.approx(22.0714286, abs=1e-7)


@pytest.mark.parametrize(("k0", "expected"), [(4, 2), (5, 2), (6, 4)])
def test_two_outliers_are_counted(k0, expected):
    radius = np.array([(1 - 2 * k0 / 16) * 10])
    assert balanced_distance(np.sort(OUTLIERS), np.array([0]), radius, np.array([9]))[0] == expected


def test_local_bounds_at_no_distance_are_golden():
    # with very large beta only k = 0 counts
    steep = np.array([60.0])
    assert smooth_sensitivity(OUTLIERS, equal(16, 10.0, 65.0), steep)[0] == pytest.approx(20 / 14)
    assert smooth_sensitivity(CLEAN, equal(16, 10.0, 65.0), steep)[0] == pytest.approx(0.9083333, abs=1e-7)


def test_smooth_sensitivity_of_sixteen_vehicles_is_golden():
    found = smooth_sensitivity(OUTLIERS, equal(16, 10.0, 65.0), np.array([1 / 6]))
    assert found[0] == pytest.approx(39.42449, abs=5e-6)


@pytest.mark.parametrize(
    ("epsilon", "beta", "expected"),
    [(1, 1 / 6, 0.724962), (0.5, 1 / 12, 0.345513), (2, 1 / 3, 1.615611), (1, 1 / 9, 0.794842)],
)
def test_student_t_alphas_are_golden(epsilon, beta, expected):
    alpha = student_t.largest_alpha(3, np.array([beta]), np.array([float(epsilon)]))[0]
    assert expected <= alpha < expected + 1e-6


def test_student_t_loss_and_mean_are_golden():
    assert student_t.largest_loss(3, np.array([0.4]), np.array([0.1]))[0] == pytest.approx(0.581604, abs=1e-6)
    assert student_t.mean_absolute(3) == pytest.approx(1.10266, abs=1e-5)


@pytest.mark.parametrize(("epsilon", "expected"), [(0.5, 0.10690), (1, 0.20102), (2, 0.37438)])
def test_gaussian_alphas_are_golden(epsilon, expected):
    beta = smooth_gaussian.default_beta(epsilon, 1e-6)
    assert expected <= smooth_gaussian.largest_alpha(epsilon, 1e-6, beta) < expected + 1e-5


@pytest.mark.parametrize(
    ("users", "expected"), [(75, 2.53), (100, 0.666), (125, 0.208), (217, 0.119), (1000, 0.026)]
)
def test_student_t_errors_of_clean_bins_are_golden(users, expected):
    # U = 65, T = 10, Z just below 4 (a good data set must be strictly good), all values of k0
    shape = equal(users, 10.0, 65.0)
    smooth = typical_smooth_sensitivity(shape, np.array([1 / 6]), relative_distance=0.4 - 1e-6, levels=users)[
        0
    ]
    assert smooth * 1.10266 / 0.724962 == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("users", "multiple", "expected"), [(217, 1, 147), (217, 4, 61), (1000, 4, 0.17), (10_000, 1, 0.008)]
)
def test_gaussian_errors_of_clean_bins_are_golden(users, multiple, expected):
    # the golden figures belong to two choices of beta
    beta = multiple * smooth_gaussian.default_beta(1, 1e-6)
    alpha = smooth_gaussian.largest_alpha(1, 1e-6, beta)
    smooth = typical_smooth_sensitivity(equal(users, 10.0, 65.0), np.array([beta]), levels=users)[0]
    assert smooth * np.sqrt(2 / np.pi) / alpha == pytest.approx(expected, rel=0.02)
