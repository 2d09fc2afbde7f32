"""Huber and two-stage as mechanisms: which bins take which noise, what they charge, what they publish."""

import numpy as np
import pytest

from trafficdp.bounding.huber import huber_location
from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.huber import Huber
from trafficdp.mechanisms.per_statistic.two_stage import TwoStage
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.mechanisms.two_moments import KnownTwoMoments
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.research.zhao_2024.gaussian_huber import GaussianHuber, least_vehicles
from trafficdp.sensitive import Samples

MEAN, VARIANCE, BY_VEHICLE = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
SPREAD = 12 / 65
ALL = [Huber(), Huber(spread=SPREAD), TwoStage(), TwoStage(spread=SPREAD)]
PAIRS = [(m, s) for m in ALL for s in m.statistics]


@pytest.fixture(scope="module")
def samples_of(counts_of, bound_of):
    def build(table, speeds, seed=0):
        counts, bound = counts_of(table), bound_of(65, "1/10")
        speed = speeds(np.random.default_rng(seed), counts)
        value = np.clip(np.rint(speed * 10), 0, bound.upper_steps).astype(np.int64)
        return Samples(counts, value, np.arange(counts.users), bound)

    return build


def normal(random, counts):
    return random.normal(25, 10, int(counts.count.sum()))


def truth(samples, statistic):
    c = samples.contributions()
    index, count = c.counts.bin_index, c.counts.samples_per_bin
    mean = np.bincount(index, weights=c.total) / count / 10
    if statistic is MEAN:
        return mean
    if statistic is BY_VEHICLE:
        return np.bincount(index, weights=c.total / c.counts.count) / c.counts.users_per_bin / 10
    return np.bincount(index, weights=c.total_of_squares) / count / 100 - mean**2


def test_bins_take_huber_by_public_numbers_alone(samples_of):
    table = np.zeros((3, 400), dtype=int)
    table[0], table[1, :50], table[2] = 60, 60, 1
    one, other = samples_of(table, normal), samples_of(table, lambda r, o: r.random(o.count.sum()) * 65, 1)
    epsilon = np.ones(3)
    chosen = Huber(spread=SPREAD).plan(StatisticRequest(one.counts, one.bound, MEAN, epsilon)).huber
    # many vehicles; too few vehicles; one sample each, so that T reaches U
    np.testing.assert_array_equal(chosen, [True, False, False])
    np.testing.assert_array_equal(
        Huber(spread=SPREAD).plan(StatisticRequest(other.counts, other.bound, MEAN, epsilon)).huber, chosen
    )


@pytest.mark.slow
def test_huber_is_within_its_typical_error_and_beats_laplace(samples_of):
    samples = samples_of(np.full((300, 400), 60), normal)
    epsilon = np.ones(300)
    mechanism = Huber(spread=SPREAD)
    error = np.abs(mechanism.estimate(samples, MEAN, epsilon, SimulatedNoise(1)) - truth(samples, MEAN))
    clean = mechanism.plan(StatisticRequest(samples.counts, samples.bound, MEAN, epsilon)).typical_error
    assert error.mean() < 1.15 * clean[0] < 0.8 * 65 / 400


def test_few_vehicles_get_laplace_noise_of_the_stated_size(samples_of):
    samples = samples_of(np.full((4000, 10), 3), normal)
    epsilon = np.ones(4000)
    mechanism = Huber()
    assert not mechanism.plan(StatisticRequest(samples.counts, samples.bound, MEAN, epsilon)).huber.any()
    error = mechanism.estimate(samples, MEAN, epsilon, SimulatedNoise(2)) - truth(samples, MEAN)
    assert np.abs(error).mean() == pytest.approx(6.5, rel=0.07)
    expected = mechanism.expected_error(StatisticRequest(samples.counts, samples.bound, MEAN, epsilon))
    assert np.abs(error).mean() <= expected[0] == pytest.approx(6.5, rel=0.02)


@pytest.mark.parametrize(("mechanism", "statistic"), PAIRS)
def test_the_loss_is_at_most_what_was_asked_and_attained_by_the_heaviest(samples_of, mechanism, statistic):
    random = np.random.default_rng(4)
    samples = samples_of(random.integers(0, 9, (30, 50)), normal)
    epsilon = random.uniform(0.1, 2, 30)
    counts = samples.counts
    event = event_of(mechanism, StatisticRequest(counts, samples.bound, statistic, epsilon))
    asked = counts.sum_per_user(epsilon[counts.bin_index])
    loss = event.loss_per_user / 1e12
    assert np.all(loss <= asked + 1e-9)
    assert loss.max() > 0
    assert event.idealised is mechanism.idealised
    one = event_of(
        mechanism, StatisticRequest(counts.select(np.arange(30) == 3), samples.bound, MEAN, epsilon[3:4])
    )
    assert float(one.loss.exact) == pytest.approx(epsilon[3], rel=1e-8)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 16.0])
def test_a_round_epsilon_is_charged_as_that_number(samples_of, epsilon):
    samples = samples_of(np.full((1, 400), 60), normal)
    for mechanism in ALL:
        event = event_of(
            mechanism, StatisticRequest(samples.counts, samples.bound, MEAN, np.array([epsilon]))
        )
        assert float(event.loss.exact) == epsilon


@pytest.mark.parametrize(("mechanism", "statistic"), PAIRS)
def test_infinite_epsilon_adds_no_noise(samples_of, mechanism, statistic):
    samples = samples_of(np.random.default_rng(5).integers(1, 9, (6, 40)), normal)
    endless = np.full(6, np.inf)
    first = mechanism.estimate(samples, statistic, endless, SimulatedNoise(2))
    np.testing.assert_array_equal(first, mechanism.estimate(samples, statistic, endless, SimulatedNoise(1)))
    if isinstance(mechanism, Huber):
        np.testing.assert_allclose(first, truth(samples, statistic), atol=0.05)


@pytest.mark.parametrize(("mechanism", "statistic"), PAIRS)
@pytest.mark.parametrize("speed", [0.0, 65.0, 20.0])
def test_estimates_of_extreme_bins_stay_in_range(samples_of, mechanism, statistic, speed):
    table = np.zeros((4, 300), dtype=int)
    table[0, 0], table[1, 0], table[2, :2], table[3] = 1, 7, 3, 60
    samples = samples_of(table, lambda r, o: np.full(int(o.count.sum()), speed))
    for epsilon in (1e-6, 1.0, 30.0):
        found = mechanism.estimate(samples, statistic, np.full(4, epsilon), SimulatedNoise(6))
        assert np.all((found >= 0) & (found <= statistic.largest(65)))
        expected = mechanism.expected_error(
            StatisticRequest(samples.counts, samples.bound, statistic, np.full(4, epsilon))
        )
        assert np.all((expected >= 0) & (expected <= statistic.largest(65)))


def test_the_variance_of_many_vehicles_is_close(samples_of):
    samples = samples_of(np.full((100, 600), 60), normal)
    epsilon = np.full(100, 2.0)
    mechanism = KnownTwoMoments(Huber(spread=2 * SPREAD))
    error = np.abs(
        mechanism.estimate(samples, VARIANCE, epsilon, SimulatedNoise(9)) - truth(samples, VARIANCE)
    )
    assert error.mean() < 20


def test_estimates_do_not_depend_on_other_bins(samples_of):
    table = np.full((3, 300), 60)
    samples = samples_of(table, normal)
    epsilon = np.array([1.0, 4.0, 9.0])
    mechanism = Huber(spread=SPREAD)
    mean = samples.contributions().total / samples.counts.count / 10
    shape = mechanism.plan(StatisticRequest(samples.counts, samples.bound, MEAN, epsilon)).shape
    together = huber_location(mean, shape.weight, shape.threshold, shape.bin_index, 3)
    zero = np.zeros(300, dtype=np.int64)
    alone = huber_location(mean[300:600], shape.weight[300:600], shape.threshold[300:600], zero, 1)
    assert together[1] == pytest.approx(alone[0], abs=1e-10)


@pytest.mark.slow
def test_the_least_number_of_vehicles_is_about_a_hundred_over_epsilon():
    found = [least_vehicles(65.0, 10.0, epsilon) for epsilon in (0.5, 1.0, 2.0)]
    assert found == sorted(found, reverse=True)
    for epsilon, vehicles in zip((0.5, 1.0, 2.0), found, strict=True):
        assert 75 < vehicles * epsilon < 135
    assert least_vehicles(65.0, 4.0, 1.0, GaussianHuber()) > 3000
    with pytest.raises(UsageError, match="threshold"):
        least_vehicles(65.0, 65.0, 1.0)
    # at this threshold the Gaussian form is worse than Laplace noise for any number of vehicles
    with pytest.raises(UsageError, match="no number of vehicles"):
        least_vehicles(65.0, 10.0, 1.0, GaussianHuber())


@pytest.mark.slow
def test_two_stage_draws_the_interval_that_holds_the_means(samples_of):
    samples = samples_of(np.full((200, 400), 60), normal)
    epsilon = np.ones(200)
    mechanism = TwoStage(spread=SPREAD)
    error = np.abs(mechanism.estimate(samples, MEAN, epsilon, SimulatedNoise(1)) - truth(samples, MEAN))
    (term,) = mechanism.noise_terms(StatisticRequest(samples.counts, samples.bound, MEAN, epsilon))
    width = 2 * mechanism.half_width * mechanism.width(samples.counts, samples.bound)
    clean = width / samples.bound.upper_steps * term.mean_absolute_noise
    assert clean[0] == pytest.approx(2 * 3 * 6.4 / 400, rel=0.01)
    assert error.mean() == pytest.approx(clean[0], rel=0.3)


def test_two_stage_spends_nothing_on_an_interval_as_wide_as_the_range(samples_of):
    samples = samples_of(np.full((2000, 10), 2), normal)
    mechanism, epsilon = TwoStage(), np.ones(2000)
    assert np.all(mechanism.width(samples.counts, samples.bound) == 650)
    error = mechanism.estimate(samples, MEAN, epsilon, SimulatedNoise(1)) - truth(samples, MEAN)
    assert np.abs(error).mean() == pytest.approx(6.5, rel=0.1)


@pytest.mark.parametrize("mechanism", ALL)
def test_an_epsilon_that_is_not_positive_is_refused(samples_of, mechanism):
    samples = samples_of([[2, 2, 2]], normal)
    for wrong in (0.0, -1.0, np.nan):
        with pytest.raises(UsageError, match="epsilon"):
            event_of(mechanism, StatisticRequest(samples.counts, samples.bound, MEAN, np.array([wrong])))


def test_two_stage_refuses_a_variance(samples_of):
    samples = samples_of([[2, 2, 2]], normal)
    with pytest.raises(UsageError, match="variance"):
        event_of(TwoStage(), StatisticRequest(samples.counts, samples.bound, VARIANCE, np.ones(1)))


def test_two_stage_measures_by_the_median_vehicle_of_every_bin(counts_of, bound_of):
    counts, bound = counts_of([[50, 1, 3, 2, 10], [4, 0, 0, 8, 0]]), bound_of(60)
    expected = [30 * np.sqrt(2 * np.log(2 * n / 0.2) / median) for n, median in ((5, 3), (2, 8))]
    assert TwoStage().width(counts, bound).tolist() == np.clip(np.ceil(expected), 1, 60).tolist()
