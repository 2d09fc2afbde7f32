"""A variance by two means: the same losses as both, exact without noise, never further off than it says."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from trafficdp.mechanisms.arrays.projected import ArrayAveraging
from trafficdp.mechanisms.laplace.baseline import Baseline
from trafficdp.mechanisms.two_moments import (
    LARGEST_STEPS,
    KnownTwoMoments,
    TwoMoments,
    shares,
    squares_bound,
    squares_of,
)
from trafficdp.model.bound import ContributionBound
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive.samples import Samples

TABLE = [[3, 2, 1], [1, 1, 1], [0, 4, 0], [0, 0, 1]]


def samples_of(counts, bound, seed=1):
    random = np.random.default_rng(seed)
    value = random.integers(0, bound.steps + 1, int(counts.count.sum()))
    return Samples(counts, value, np.arange(1, counts.users + 1), bound)


def variances(samples):
    owner = np.repeat(samples.counts.bin_index, samples.counts.count)
    step = float(samples.bound.step)
    return np.array([(samples.value[owner == g] * step).var() for g in range(samples.counts.bins)])


def test_without_noise_it_is_the_variance(counts_of, bound_of):
    samples = samples_of(counts_of(TABLE), bound_of(60, "1/2"))
    found = TwoMoments(Baseline()).estimate(
        samples, Statistic.VARIANCE, np.full(4, np.inf), SimulatedNoise(1)
    )
    np.testing.assert_allclose(found, variances(samples), atol=1e-9)


@pytest.mark.parametrize("upper", [3, 255, 256, 257, 6_500, 1_000_000])
def test_squares_are_rounded_to_the_nearest_step(upper, counts_of):
    bound = ContributionBound(Fraction(upper), Fraction(1), SpeedUnit.KILOMETRES_PER_HOUR)
    samples = samples_of(counts_of([[200]]), bound)
    squares = squares_of(samples)
    assert squares.bound.steps == min(upper**2, LARGEST_STEPS)
    assert squares.bound.upper == Fraction(upper**2, 4)
    step = float(squares.bound.step)
    exact = (samples.value - upper / 2) ** 2
    assert np.all(np.abs(squares.value * step - exact) <= step / 2 * (1 + 1e-9))
    assert squares.value.min() >= 0
    assert squares.value.max() <= squares.bound.steps
    if upper <= 256:
        np.testing.assert_allclose(squares.value * step, exact, rtol=1e-12)


def test_a_vehicle_pays_for_both_means(counts_of, bound_of):
    counts, bound = counts_of(TABLE), bound_of(60)
    epsilon = np.array([0.5, 1.0, 2.0, 0.25])
    means = ArrayAveraging()
    first, second = shares(epsilon)
    parts = [
        means.event(counts, bound, Statistic.MEAN, first).loss_per_user,
        means.event(counts, squares_bound(bound), Statistic.MEAN, second).loss_per_user,
    ]
    event = KnownTwoMoments(means).event(counts, bound, Statistic.VARIANCE, epsilon)
    np.testing.assert_array_equal(event.loss_per_user, parts[0] + parts[1])
    assert np.all(first + second <= epsilon)


def test_no_change_of_one_vehicle_moves_it_by_more_than_its_sensitivity(counts_of, bound_of):
    bound, counts = bound_of(3), counts_of([[2, 1]])
    mechanism = TwoMoments(Baseline())
    stated = mechanism.event(counts, bound, Statistic.VARIANCE, np.ones(1)).sensitivity[Statistic.VARIANCE]

    def clipped(values):
        samples = Samples(counts, np.array(values), np.arange(1, 3), bound)
        return mechanism.estimate(samples, Statistic.VARIANCE, np.array([np.inf]), SimulatedNoise(1))[0]

    moves = [
        abs(clipped([*own, other]) - clipped([*new, other]))
        for own, new in product(product(range(4), repeat=2), repeat=2)
        for other in range(4)
    ]
    moves += [
        abs(clipped([*others, own]) - clipped([*others, new]))
        for others in product(range(4), repeat=2)
        for own, new in product(range(4), repeat=2)
    ]
    assert 0 < max(moves) <= stated[0] * (1 + 1e-12)


def test_means_are_those_of_the_mechanism_itself(counts_of, bound_of):
    samples, share = samples_of(counts_of(TABLE), bound_of(60)), np.ones(4)
    plain, both = ArrayAveraging(), KnownTwoMoments(ArrayAveraging())
    given = (samples.counts, samples.bound, Statistic.MEAN, share)
    np.testing.assert_array_equal(
        plain.estimate(samples, Statistic.MEAN, share, SimulatedNoise(4)),
        both.estimate(samples, Statistic.MEAN, share, SimulatedNoise(4)),
    )
    np.testing.assert_array_equal(plain.expected_error(*given), both.expected_error(*given))
    assert both.statistics == (Statistic.MEAN, Statistic.VARIANCE)
    assert (both.name, both.citation) == (plain.name, plain.citation)
    assert len(both.noise_terms(*given)) == 1
    assert len(both.noise_terms(samples.counts, samples.bound, Statistic.VARIANCE, share)) == 2
