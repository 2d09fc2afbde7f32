"""What paper 001 claims of Huber against two stages, measured at epsilon 1 with seeded noise.

Mean squared error against the mean of the bin's clipped samples; tolerances are stated in the tests. Both
methods are told the same public standard deviation of single speeds.
"""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.bounding.huber import (
    HuberParameters,
    huber_location,
    scale_threshold,
    smooth_sensitivity,
    typical_smooth_sensitivity,
)
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic.huber import Huber
from trafficdp.mechanisms.per_statistic.two_stage import TwoStage
from trafficdp.model import ContributionBound, Counts, SpeedUnit, Statistic
from trafficdp.noise import student_t
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.zhao_2024.gaussian_huber import GaussianHuber
from trafficdp.research.zhao_2024.huber_vectors import best_huber_shape, centre_and_sensitivity
from trafficdp.sensitive import Samples

BOUND = ContributionBound(Fraction(65), Fraction(1, 10), SpeedUnit.KILOMETRES_PER_HOUR)
REPEATS = 60
SPEEDS = {
    "uniform": (lambda random, size: random.random(size) * 65, 19.0),
    "gaussian": (lambda random, size: random.normal(25, 8, size), 8.0),
    "lomax": (lambda random, size: 10 * random.pareto(2.5, size), 11.0),
    "log_normal": (lambda random, size: 15 * random.lognormal(0, 0.8, size), 14.0),
}


def city(numbers, speeds):
    numbers = np.asarray(numbers, dtype=np.int64)
    users = len(numbers)
    counts = Counts(
        cell=np.arange(1, REPEATS + 1, dtype=np.uint64),
        slot=np.zeros(REPEATS, dtype=np.int64),
        users_per_bin=np.full(REPEATS, users),
        user_index=np.tile(np.arange(users), REPEATS),
        count=np.tile(numbers, REPEATS),
        users=users,
    )
    drawn = speeds(np.random.default_rng(0), int(numbers.sum()) * REPEATS)
    value = np.clip(np.rint(drawn * 10), 0, BOUND.upper_steps).astype(np.int64)
    return Samples(counts, value, np.arange(users), BOUND)


def squared_error(mechanism, samples):
    contributions, counts = samples.contributions(), samples.counts
    truth = np.bincount(counts.bin_index, weights=contributions.total) / counts.samples_per_bin / 10
    estimate = mechanism.estimate(samples, Statistic.MEAN, np.ones(counts.bins), SimulatedNoise(1))
    return float(np.mean((estimate - truth) ** 2))


def pareto_counts(users):
    raw = 1 + np.random.default_rng(0).pareto(1.5, users)
    return np.maximum(1, np.rint(raw / raw.mean() * 50)).astype(np.int64)


@pytest.mark.parametrize("name", ["uniform", "gaussian"])
def test_equal_vehicles_a_slight_improvement_over_two_stages(name):
    speeds, sigma = SPEEDS[name]
    samples = city(np.full(400, 50), speeds)
    # a factor of 1.8 was measured; "slight" is anything up to 4
    two_stage, huber = (squared_error(each(spread=sigma / 65), samples) for each in (TwoStage, Huber))
    gain = two_stage / huber
    assert 1.2 < gain < 4


@pytest.mark.parametrize("name", ["lomax", "log_normal"])
def test_heavy_tails_cost_huber_no_more_than_two_stages(name):
    # with a public standard deviation the two-stage interval does not grow with the tail, so that the
    # paper's large gain is not there: measured 0.8 (Lomax) and 1.8 (log-normal)
    speeds, sigma = SPEEDS[name]
    samples = city(np.full(400, 50), speeds)
    two_stage, huber = (squared_error(each(spread=sigma / 65), samples) for each in (TwoStage, Huber))
    gain = two_stage / huber
    assert 0.6 < gain < 4


@pytest.mark.parametrize("name", list(SPEEDS))
def test_unequal_vehicles_huber_is_far_better(name):
    speeds, sigma = SPEEDS[name]
    samples = city(pareto_counts(400), speeds)
    huber = squared_error(Huber(spread=sigma / 65), samples)
    # factors of 900 to 3000 were measured
    assert squared_error(TwoStage(spread=sigma / 65), samples) > 100 * huber
    assert squared_error(Baseline(), samples) > 100 * huber


def test_more_samples_a_vehicle_help_huber_and_not_laplace():
    speeds, sigma = SPEEDS["gaussian"]
    few, many = city(np.full(400, 10), speeds), city(np.full(400, 40), speeds)
    # thresholds halve, so that the squared error falls to a quarter
    assert squared_error(Huber(spread=sigma / 65), few) == pytest.approx(
        4 * squared_error(Huber(spread=sigma / 65), many), rel=0.3
    )
    assert squared_error(Baseline(), few) == pytest.approx(squared_error(Baseline(), many), rel=0.05)


def test_the_error_falls_with_the_square_of_the_number_of_vehicles():
    speeds, sigma = SPEEDS["uniform"]
    few, many = (squared_error(Huber(spread=sigma / 65), city(np.full(n, 50), speeds)) for n in (300, 900))
    assert few / many == pytest.approx(9, rel=0.35)


def test_pure_epsilon_noise_moves_the_border_from_a_thousand_vehicles_to_a_hundred():
    def typical_error(mechanism, users, threshold):
        shape = HuberParameters(
            np.full(users, 1 / users), np.full(users, threshold), np.zeros(users, dtype=np.int64), 1, 65.0
        )
        alpha, beta, size = mechanism.calibrated(np.array([1.0]))
        return typical_smooth_sensitivity(shape, beta)[0] * size / alpha[0]

    for threshold in (4.0, 10.0):
        assert typical_error(Huber(), 125, threshold) < 65 / 125
        for multiple in (1.0, 2.0, 3.0, 4.0, 5.0):
            assert typical_error(GaussianHuber(beta_multiple=multiple), 500, threshold) > 2 * 65 / 500
    assert typical_error(GaussianHuber(), 5000, 4.0) < 65 / 5000
    # at T = 10 the Gaussian form never beats Laplace noise
    for multiple in (1.0, 2.0, 4.0):
        assert typical_error(GaussianHuber(beta_multiple=multiple), 100_000, 10.0) > 65 / 100_000


def test_the_public_error_of_a_bin_is_what_its_simulation_gives():
    """Monte Carlo of the feasibility figures: U = 65, T = 10, vehicle means within 4 of their mean."""
    users, bins = 217, 4000
    spread = np.tile(np.array([-40, 40]), users // 2 + 1)[:users]
    numbers = np.ones(users, dtype=np.int64)
    counts = Counts(
        cell=np.arange(1, bins + 1, dtype=np.uint64),
        slot=np.zeros(bins, dtype=np.int64),
        users_per_bin=np.full(bins, users),
        user_index=np.tile(np.arange(users), bins),
        count=np.tile(numbers, bins),
        users=users,
    )
    samples = Samples(counts, np.tile(300 + spread, bins), np.arange(users), BOUND)
    # sigma for which T is 10
    mechanism = Huber(spread=10 / 65 / (2 * np.sqrt(2 * np.log(40 * users))))
    estimate = mechanism.estimate(samples, Statistic.MEAN, np.ones(bins), SimulatedNoise(2))
    error = np.abs(estimate - samples.value[:users].mean() / 10).mean()
    assert error == pytest.approx(0.119, rel=0.06)


def l2_errors(users, dimensions, epsilon):
    """Mean l2 errors: Huber of vectors, the best of four factors of single Hubers, l2 noise for the range.

    25 samples a vehicle of standard deviation 8 a coordinate; vectors are at most 30 long, coordinates within
    30 of 0. l2 noise has density proportional to exp(-|z| n epsilon/60): its mean length is 60 d/(n epsilon).
    """
    random, noise, runs = np.random.default_rng(0), SimulatedNoise(0), 300
    y = random.normal(0, 8 / 5, (users, dimensions))
    shape, _ = best_huber_shape(np.full(users, 25), dimensions, 30.0, 8.0, epsilon)
    degrees = dimensions + 2
    beta = epsilon / (2 * degrees)
    alpha = student_t.largest_alpha(degrees, np.array([beta]), np.array([epsilon]), dimensions)[0]
    centre, smooth = centre_and_sensitivity(y, shape, beta)
    drawn = student_t.draw_vectors(degrees, runs, dimensions, noise.uniform_below)

    def error(estimates):
        return float(np.linalg.norm(np.clip(estimates, -30, 30) - y.mean(axis=0), axis=1).mean())

    where, value = np.repeat(np.arange(dimensions), users), y.T.ravel() + 30
    alphas, betas, _ = Huber().calibrated(np.full(dimensions, epsilon / dimensions))
    single = []
    for factor in (2, 2.5, 3, 4):
        weight, used = np.full(len(value), 1 / users), np.full(len(value), 25)
        threshold = scale_threshold(used, where, dimensions, 60.0, 8.0, factor)
        scale = (
            smooth_sensitivity(value, HuberParameters(weight, threshold, where, dimensions, 60.0), betas)
            / alphas
        )
        middle = huber_location(value, weight, threshold, where, dimensions) - 30
        z = student_t.draw(3, runs * dimensions, noise.uniform_below).reshape(runs, dimensions)
        single.append(error(middle + scale * z))
    return error(centre + smooth / alpha * drawn), min(single), 60 * dimensions / (users * epsilon)


@pytest.mark.parametrize(
    ("dimensions", "epsilon", "of_single", "of_range"),
    # measured: 1.6, 1.25; 2.4, 1.21; 1.8, 2.1; 3.0, 1.8; 3.9, 1.4
    [(2, 1, 1.3, 1.05), (4, 1, 1.9, 1.05), (2, 4, 1.3, 1.6), (4, 4, 2, 1.5), (8, 4, 2.5, 1.15)],
)
def test_vectors_as_a_whole_beat_their_coordinates_one_by_one(dimensions, epsilon, of_single, of_range):
    vector, single, whole = l2_errors(800, dimensions, float(epsilon))
    assert single > of_single * vector
    assert whole > of_range * vector
