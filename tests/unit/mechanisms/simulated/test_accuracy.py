"""Errors are measured against the exact statistic; simulated speeds depend on counts and seed alone."""

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic.clipping import WorstCaseClipping
from trafficdp.mechanisms.protocol import StatisticRequest
from trafficdp.mechanisms.simulated_cities import absolute_errors, simulated_samples, true_statistic
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise

TABLE = [[3, 1, 2, 1, 4], [1, 1, 0, 2, 0], [0, 2, 6, 1, 1]]


@pytest.fixture
def samples(counts_of, bound_of):
    return simulated_samples(counts_of(TABLE), bound_of(64), 3)


def test_the_truth_is_that_of_the_samples(samples):
    counts = samples.counts
    owner = np.repeat(counts.bin_index, counts.count)
    person = np.repeat(counts.user_index, counts.count)
    for g in range(counts.bins):
        own = samples.value[owner == g].astype(float)
        assert true_statistic(samples.contributions(), Statistic.MEAN)[g] == pytest.approx(own.mean())
        assert true_statistic(samples.contributions(), Statistic.VARIANCE)[g] == pytest.approx(own.var())
        people = [samples.value[(owner == g) & (person == u)] for u in range(5)]
        each = np.mean([np.floor(one.mean() + 0.5) for one in people if len(one)])
        assert true_statistic(samples.contributions(), Statistic.VEHICLE_MEAN)[g] == pytest.approx(each)


@pytest.mark.parametrize("mechanism", [Baseline(), WorstCaseClipping()])
def test_errors_shrink_with_epsilon_and_vanish_without_noise(mechanism, samples):
    def error(epsilon):
        share = np.full(3, epsilon)
        return absolute_errors(mechanism, samples, Statistic.MEAN, share, SimulatedNoise(1), 30).mean()

    assert error(1.0) > error(10.0) > error(100.0)
    assert error(np.inf) == pytest.approx(0, abs=1e-12)


def test_the_noise_is_averaged_over_the_runs(samples):
    share = np.full(3, 20.0)
    found = absolute_errors(Baseline(), samples, Statistic.MEAN, share, SimulatedNoise(1), 4_000)
    expected = Baseline().expected_error(
        StatisticRequest(samples.counts, samples.bound, Statistic.MEAN, share)
    )
    # at the worst truth, and with the rounding of speeds to a step (0.5), the error is larger
    assert bool(np.all(found < expected))
    assert bool(np.all(found > 0.5 * (expected - 0.5)))


def test_runs_must_be_a_number_of_runs(samples):
    with pytest.raises(UsageError, match="runs"):
        absolute_errors(Baseline(), samples, Statistic.MEAN, np.ones(3), SimulatedNoise(1), 0)


def test_simulated_speeds_depend_on_the_seed_and_keep_the_counts(counts_of, bound_of):
    counts, bound = counts_of(TABLE), bound_of(64)
    first, again, other = (simulated_samples(counts, bound, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.value, again.value)
    assert bool(np.any(first.value != other.value))
    assert first.counts is counts
    assert len(first.value) == counts.count.sum()
    assert 0 <= first.value.min() <= first.value.max() <= bound.upper_steps
    assert len(first.vehicle) == counts.users
