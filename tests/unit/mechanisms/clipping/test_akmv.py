import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.clipping import AKMV
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise

MEAN = Statistic.MEAN


class Recorder(SimulatedNoise):
    """Keeps what is asked of it."""

    def select(self, ranks, values):
        self.ranks, self.chosen = ranks, super().select(ranks, values)
        return self.chosen

    def measure(self, step, values):
        self.step = step
        return super().measure(step, values)


def test_the_quantile_costs_half_and_aims_at_the_right_rank(samples_of, bound_of):
    # eps = 1: the 2nd largest of 4 sums, i.e. rank 2
    samples = samples_of([[[3, 3], [1], [9], [4]]], bound_of(10))
    noise = Recorder(1)
    AKMV().estimate(samples, MEAN, np.array([1.0]), noise)
    assert noise.ranks.rank.tolist() == [2]
    assert noise.ranks.high.tolist() == [20]
    assert noise.ranks.scale == pytest.approx([4.0], rel=1e-9)


def test_the_noise_is_that_of_the_threshold_it_found(samples_of, bound_of):
    samples = samples_of([[[20]] * 50], bound_of(20))
    noise = Recorder(1)
    AKMV().estimate(samples, MEAN, np.array([0.5]), noise)
    assert noise.step.law.scale == pytest.approx(noise.chosen / 0.25, rel=1e-9)
    assert noise.step.of.high.tolist() == [noise.chosen[0]] * 50


def test_infinite_epsilon_clips_nothing(samples_of, bound_of):
    samples = samples_of([[[1, 2, 30], [5]], [[7], [9, 9]]], bound_of(30))
    found = AKMV().estimate(samples, MEAN, np.full(2, np.inf), SimulatedNoise(1))
    np.testing.assert_allclose(found, [np.mean([1, 2, 30, 5]), np.mean([7, 9, 9])], atol=1e-9)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("value", [0, 30])
def test_extreme_values_and_epsilons_stay_in_range(epsilon, value, samples_of, bound_of):
    samples = samples_of([[[value], []], [[value] * 3, [value]]], bound_of(30))
    found = AKMV().estimate(samples, MEAN, np.full(2, epsilon), SimulatedNoise(1))
    assert np.all((found >= 0) & (found <= 30))
    event = event_of(AKMV(), StatisticRequest(samples.counts, samples.bound, MEAN, np.full(2, epsilon)))
    assert float(event.loss.exact) == pytest.approx(2 * epsilon, rel=1e-3, abs=1e-8)


def test_many_vehicles_give_an_accurate_mean(samples_of, bound_of):
    random = np.random.default_rng(2)
    values = [[[int(v)] for v in random.integers(10, 20, 2_000)]]
    samples = samples_of(values, bound_of(30))
    found = AKMV().estimate(samples, MEAN, np.array([1.0]), SimulatedNoise(1))
    assert found[0] == pytest.approx(np.mean(values), abs=0.3)


def test_noise_that_could_not_be_drawn_is_refused_from_counts(counts_of, bound_of):
    with pytest.raises(UsageError, match="drawn exactly"):
        event_of(AKMV(), StatisticRequest(counts_of([[3, 1]]), bound_of(30), MEAN, np.array([1e-16])))
    with pytest.raises(UsageError, match="cannot estimate"):
        event_of(
            AKMV(), StatisticRequest(counts_of([[3, 1]]), bound_of(30), Statistic.VEHICLE_MEAN, np.ones(1))
        )
