import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.clipping import WorstCaseClipping
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.mechanisms.two_moments import KnownTwoMoments
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import Samples

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
OPT = [WorstCaseClipping(), WorstCaseClipping(least_exact_error=True)]
ALL = [(KnownTwoMoments(m), s) for m in OPT for s in (MEAN, VARIANCE)]


class NoNoise(SimulatedNoise):
    def discrete_laplace(self, scale):
        return np.zeros(scale.shape, dtype=np.int64)


@pytest.mark.parametrize("mechanism", OPT)
@pytest.mark.parametrize("counts", [(1, 1), (2, 1), (3, 1, 1), (1, 2, 2)])
@pytest.mark.parametrize("epsilon", [0.7, 1.0, 2.0])
def test_a_vehicle_pays_for_the_width_of_its_interval(mechanism, counts, epsilon, counts_of, bound_of):
    counts, bound, share = counts_of([counts]), bound_of(3), np.array([epsilon])
    cut, width = mechanism.clipping(counts, bound, share)
    kept = width > 0
    assert np.all((2 * cut + width)[kept] == 3 * counts.count[kept])
    (step,) = mechanism.steps(StatisticRequest(counts, bound, MEAN, share))
    event = event_of(mechanism, StatisticRequest(counts, bound, MEAN, share))
    scale = np.where(step.law.scale > 0, step.law.scale, 1.0)
    np.testing.assert_allclose(event.loss_per_user / 1e12, width / scale, atol=1e-8)
    assert float(event.loss.exact) == (epsilon if kept.any() else 0)


@pytest.mark.parametrize(("mechanism", "statistic"), ALL)
def test_infinite_epsilon_clips_nothing(mechanism, statistic, samples_of, bound_of):
    samples = samples_of([[[1, 2, 30], [5]], [[7], [9, 9]]], bound_of(30))
    found = mechanism.estimate(samples, statistic, np.full(2, np.inf), NoNoise(1))
    exact = [np.mean, np.var][statistic is VARIANCE]
    np.testing.assert_allclose(found, [exact([1, 2, 30, 5]), exact([7, 9, 9])], atol=1e-9)


@pytest.mark.parametrize("mechanism", OPT)
def test_a_total_is_clipped_where_it_says(mechanism, samples_of, bound_of):
    bound = bound_of(10)
    samples = samples_of([[[10] * 6, [0], [0], [0]]], bound)
    cut, _ = mechanism.clipping(samples.counts, bound, np.array([1.0]))
    found = mechanism.estimate(samples, MEAN, np.array([1.0]), NoNoise(1))[0]
    assert cut[0] > 0
    assert found == pytest.approx((60 - cut[0]) / 9)


def test_too_few_vehicles_release_the_middle_without_noise(samples_of, bound_of):
    samples = samples_of([[[0], [0]]], bound_of(9))
    mechanism = WorstCaseClipping()
    found = mechanism.estimate(samples, MEAN, np.array([0.5]), SimulatedNoise(1))
    assert found[0] == 4.5
    event = event_of(mechanism, StatisticRequest(samples.counts, samples.bound, MEAN, np.array([0.5])))
    assert event.loss.pico == 0
    assert (
        mechanism.expected_error(StatisticRequest(samples.counts, samples.bound, MEAN, np.array([0.5])))[0]
        == 4.5
    )


@pytest.mark.parametrize(("mechanism", "statistic"), ALL)
@pytest.mark.parametrize("extreme", ["zeros", "tops", "one against all", "halves"])
def test_the_expected_error_bounds_the_error_of_extreme_values(
    mechanism, statistic, extreme, samples_of, bound_of
):
    bound, counts = bound_of(20), [9, 3, 2, 2, 1, 1, 1]
    values = {
        "zeros": [[0] * c for c in counts],
        "tops": [[20] * c for c in counts],
        "one against all": [[20] * counts[0], *([0] * c for c in counts[1:])],
        "halves": [[0, 20] * c for c in counts],
    }[extreme]
    values = [v[:c] for v, c in zip(values, counts, strict=True)]
    runs = 3_000
    samples = samples_of([values] * runs, bound)
    samples = Samples(_separate(samples.counts, len(counts), runs), samples.value, samples.vehicle, bound)
    truth = [np.mean, np.var][statistic is VARIANCE](np.concatenate(values))
    for epsilon in (0.3, 1.0, 4.0):
        each = np.full(runs, epsilon)
        found = mechanism.estimate(samples, statistic, each, SimulatedNoise(3))
        expected = mechanism.expected_error(StatisticRequest(samples.counts, bound, statistic, each))[0]
        error = np.abs(found - truth)
        assert error.mean() <= expected + 4 * error.std() / np.sqrt(runs)
        assert expected <= statistic.largest(20)


def _separate(counts, users, runs):
    """The same bins with vehicles of their own."""
    from dataclasses import replace

    return replace(counts, user_index=counts.user_index + users * counts.bin_index, users=users * runs)


@pytest.mark.parametrize(("mechanism", "statistic"), ALL)
def test_more_epsilon_never_costs_accuracy_much(mechanism, statistic, counts_of, bound_of):
    counts, bound = counts_of([[9, 3, 2, 2, 1, 1, 1]] * 3), bound_of(20)
    error = [
        mechanism.expected_error(StatisticRequest(counts, bound, statistic, np.full(3, e)))[0]
        for e in (0.1, 1.0, 10.0, 1e3)
    ]
    assert error == sorted(error, reverse=True)


@pytest.mark.parametrize(("mechanism", "statistic"), ALL)
def test_the_vehicle_with_most_room_pays_epsilon_a_bin(mechanism, statistic, counts_of, bound_of):
    counts, bound = counts_of([[2] * 8, [2] * 7 + [0]]), bound_of(20)
    event = event_of(mechanism, StatisticRequest(counts, bound, statistic, np.array([1.0, 2.0])))
    assert event.loss.pico <= 3 * 10**12
    assert event.loss.pico >= 2.9 * 10**12
    assert not event.idealised


@pytest.mark.parametrize(("mechanism", "statistic"), ALL)
def test_the_same_seed_gives_the_same_map(mechanism, statistic, samples_of, bound_of):
    samples = samples_of([[[1, 2], [5], [3]], [[7], [9, 9], []]], bound_of(30))
    first, second = (mechanism.estimate(samples, statistic, np.ones(2), SimulatedNoise(4)) for _ in range(2))
    assert first.tolist() == second.tolist()


def test_statistics_it_cannot_estimate_are_refused(counts_of, bound_of):
    for statistic in (Statistic.VEHICLE_MEAN, VARIANCE):
        with pytest.raises(UsageError, match="cannot estimate"):
            event_of(
                WorstCaseClipping(), StatisticRequest(counts_of([[1, 1]]), bound_of(9), statistic, np.ones(1))
            )
