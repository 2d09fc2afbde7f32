"""Errata E15, E16, E17 of paper 001: what its literal text would do, and that we do not."""

import math

import numpy as np
import pytest

from trafficdp.bounding.huber import HuberParameters, balanced_distance, huber_location, smooth_sensitivity
from trafficdp.noise import smooth_gaussian


def test_e15_the_centre_is_the_weighted_mean_not_the_average_of_all_samples():
    value, weight, count = np.array([0.0, 0.5]), np.array([0.5, 0.5]), np.array([1, 9])
    found = huber_location(value, weight, np.ones(2), np.zeros(2, dtype=np.int64), 1)[0]
    of_samples = (count * value).sum() / count.sum()
    # both lie within T of either centre, so that the literal lemma would put mu0 at the sample average
    assert np.all(np.abs(value - of_samples) <= 1)
    assert of_samples == 0.45
    assert found == 0.25 == weight @ value


def test_e15_the_literal_bound_is_below_the_local_sensitivity():
    # the literal Z is measured from the average of samples, which the heavy reporter owns
    users = 8
    value = np.array([4.0] + [0.0] * 7)
    weight, threshold = np.full(users, 1 / users), np.full(users, 6.0)
    count = np.array([7, 1, 1, 1, 1, 1, 1, 1])
    where = np.zeros(users, dtype=np.int64)

    def local(values):
        centre = huber_location(values, weight, threshold, where, 1)[0]
        moved = [
            huber_location(np.where(np.arange(users) == i, end, values), weight, threshold, where, 1)[0]
            for i in range(users)
            for end in (-1e4, 1e4)
        ]
        return max(abs(m - centre) for m in moved)

    literal = np.abs(value - (count * value).sum() / count.sum()).max()
    assert literal < np.abs(value - value.mean()).max()
    assert literal < (1 - 2 / users) * 6
    assert local(value) > (6 + literal) / (users - 1) + 0.2
    shape = HuberParameters(weight, threshold, where, 1, 100.0)
    assert smooth_sensitivity(value, shape, np.array([50.0]))[0] >= local(value) - 1e-9


def literal_distance(value, threshold):
    """Paper 001 (15) as printed: the least k such that k replacements give Z <= (1 - 2 (k + 1)/n) T."""
    users = len(value)
    value = np.sort(value)
    for k in range(users):
        radius = (1 - 2 * (k + 1) / users) * threshold
        limit = np.array([users])
        if radius < 0:
            return users
        if balanced_distance(value, np.array([0]), np.array([radius]), limit)[0] <= k:
            return k
    return users


def test_e16_a_threshold_that_depends_on_k_makes_the_distance_jump():
    # one changed vehicle takes the literal number of outliers from 0 to "none exists"
    users, threshold = 12, 10.0
    clean = np.array([10.0] * 6 + [26.6] * 6)
    changed = clean.copy()
    changed[0] = 60.0
    assert literal_distance(clean, threshold) == 0
    assert literal_distance(changed, threshold) > 1 + literal_distance(clean, threshold)
    for k0 in range(1, 6):
        radius, limit = np.array([(1 - 2 * k0 / users) * threshold]), np.array([users])
        first = np.array([0])
        before = balanced_distance(np.sort(clean), first, radius, limit)[0]
        after = balanced_distance(np.sort(changed), first, radius, limit)[0]
        assert abs(int(after) - int(before)) <= 1


def test_e16_the_literal_smooth_sensitivity_is_not_smooth_and_ours_is():
    users, threshold, upper, beta = 12, 10.0, 65.0, 0.5
    clean = np.array([10.0] * 6 + [26.6] * 6)
    changed = clean.copy()
    changed[0] = 60.0

    def literal(value):
        distance = literal_distance(value, threshold)
        bounds = [
            2 * threshold / (users - k - distance) if k + distance < users / 2 - 1 else upper
            for k in range(users)
        ]
        return max(math.exp(-beta * k) * b for k, b in enumerate(bounds))

    assert literal(changed) > literal(clean) * math.exp(beta) * 1.5
    weight = np.full(2 * users, 1 / users)
    shape = HuberParameters(weight, np.full(2 * users, threshold), np.repeat([0, 1], users), 2, upper)
    ours = smooth_sensitivity(np.concatenate([clean, changed]), shape, np.full(2, beta))
    assert ours.max() <= ours.min() * math.exp(beta) * (1 + 1e-12)


def test_e17_the_quoted_gaussian_pair_is_not_sufficient():
    epsilon, delta = 1.0, 1e-5
    alpha = epsilon / math.sqrt(math.log(1 / delta))
    beta = epsilon / (2 * math.log(1 / delta))
    assert smooth_gaussian.actual_delta(epsilon, alpha, beta) == pytest.approx(1.28e-3, rel=0.02)
    assert smooth_gaussian.actual_delta(epsilon, alpha, 0.0) == pytest.approx(4.3e-5, rel=0.02)
    # the same beta allows far less
    assert smooth_gaussian.largest_alpha(epsilon, delta, beta) < 0.6 * alpha
    ours = smooth_gaussian.default_beta(epsilon, delta)
    assert (
        smooth_gaussian.actual_delta(epsilon, smooth_gaussian.largest_alpha(epsilon, delta, ours), ours)
        <= delta
    )


def test_the_general_pair_is_valid_but_several_times_too_noisy():
    epsilon, delta = 1.0, 1e-6
    alpha = epsilon / (5 * math.sqrt(2 * math.log(2 / delta)))
    beta = epsilon / (4 * (1 + math.log(2 / delta)))
    assert smooth_gaussian.actual_delta(epsilon, alpha, beta) <= delta
    assert smooth_gaussian.largest_alpha(epsilon, delta, beta) > 3 * alpha
