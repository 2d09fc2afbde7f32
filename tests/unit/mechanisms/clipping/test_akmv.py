import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.clipping.akmv import AKMV
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive.samples import Samples

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


@pytest.fixture
def samples_of(contributions_of):
    def build(values, bound):
        city = contributions_of(values, bound)
        flat = [v for of_bin in values for of_user in of_bin for v in of_user]
        return Samples(city.counts, np.array(flat, dtype=np.int64), city.vehicle, bound)

    return build


class Recorder(SimulatedNoise):
    """Keeps what is asked of it."""

    def choose(self, cost, weight, start, scale, runs=1):
        self.asked = cost, weight, start, scale
        return super().choose(cost, weight, start, scale, runs)

    def discrete_laplace(self, scale):
        self.scale = scale
        return super().discrete_laplace(scale)


def test_the_quantile_costs_half_and_aims_at_the_right_rank(samples_of, bound_of):
    # eps = 1: the 2nd largest of 4 sums, i.e. rank 2
    samples = samples_of([[[3, 3], [1], [9], [4]]], bound_of(10))
    noise = Recorder(1)
    AKMV().estimate(samples, MEAN, np.array([1.0]), noise)
    cost, weight, start, scale = noise.asked
    assert cost.tolist() == [2, 1, 0, 1, 2]
    # whole numbers 0..1, 2..4, 5..6, 7..9, 10..20
    assert weight.tolist() == [2, 3, 2, 3, 11]
    assert start.tolist() == [0, 5]
    assert scale.tolist() == [4.0]


def test_the_noise_is_that_of_the_threshold_it_found(samples_of, bound_of):
    samples = samples_of([[[20]] * 50], bound_of(20))
    noise = Recorder(1)
    AKMV().estimate(samples, MEAN, np.array([0.5]), noise)
    assert 2 <= noise.scale[0] * 0.25 <= 20 * (1 + 1e-12)


@pytest.mark.parametrize("statistic", [MEAN, VARIANCE])
def test_infinite_epsilon_clips_nothing(statistic, samples_of, bound_of):
    samples = samples_of([[[1, 2, 30], [5]], [[7], [9, 9]]], bound_of(30))
    found = AKMV().estimate(samples, statistic, np.full(2, np.inf), SimulatedNoise(1))
    exact = [np.mean, np.var][statistic is VARIANCE]
    np.testing.assert_allclose(found, [exact([1, 2, 30, 5]), exact([7, 9, 9])], atol=1e-9)


@pytest.mark.parametrize("statistic", [MEAN, VARIANCE])
@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("value", [0, 30])
def test_extreme_values_and_epsilons_stay_in_range(statistic, epsilon, value, samples_of, bound_of):
    samples = samples_of([[[value], []], [[value] * 3, [value]]], bound_of(30))
    found = AKMV().estimate(samples, statistic, np.full(2, epsilon), SimulatedNoise(1))
    assert np.all((found >= 0) & (found <= statistic.largest(30)))
    event = AKMV().event(samples.counts, samples.bound, statistic, np.full(2, epsilon))
    assert float(event.loss.epsilon) == pytest.approx(2 * epsilon, rel=1e-3, abs=1e-8)


def test_many_vehicles_give_an_accurate_mean(samples_of, bound_of):
    random = np.random.default_rng(2)
    values = [[[int(v)] for v in random.integers(10, 20, 2_000)]]
    samples = samples_of(values, bound_of(30))
    found = AKMV().estimate(samples, MEAN, np.array([1.0]), SimulatedNoise(1))
    assert found[0] == pytest.approx(np.mean(values), abs=0.3)


def test_noise_that_could_not_be_drawn_is_refused_from_counts(counts_of, bound_of):
    with pytest.raises(UsageError, match="drawn exactly"):
        AKMV().event(counts_of([[3, 1]]), bound_of(30), MEAN, np.array([1e-16]))
    with pytest.raises(UsageError, match="cannot estimate"):
        AKMV().event(counts_of([[3, 1]]), bound_of(30), Statistic.VEHICLE_MEAN, np.ones(1))
