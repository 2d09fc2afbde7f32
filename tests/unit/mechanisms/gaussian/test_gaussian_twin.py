import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.per_statistic.gaussian import GaussianTwin
from trafficdp.mechanisms.protocol import StatisticRequest, event_of
from trafficdp.mechanisms.two_moments import KnownTwoMoments
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.conversion import gaussian_to_approx
from trafficdp.privacy.loss import ZCDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TWIN, BOTH = GaussianTwin(), KnownTwoMoments(GaussianTwin())


@pytest.mark.parametrize("statistic", [MEAN, VEHICLE_MEAN])
@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_the_busiest_vehicle_pays_rho_and_nobody_more(statistic, rho, counts_of, bound_of):
    counts = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]])
    event = event_of(TWIN, StatisticRequest(counts, bound_of(65), statistic, np.array(rho)))
    assert event.loss.exact <= ZCDP.of(rho).exact
    assert float(event.loss.exact) == pytest.approx(rho, rel=1e-9)
    sensitivity = counts.count * 65 / counts.samples_per_bin[counts.bin_index]
    if statistic is VEHICLE_MEAN:
        sensitivity = 65 / counts.users_per_bin[counts.bin_index]
    length = counts.sum_per_user(sensitivity**2)
    np.testing.assert_allclose(event.loss_per_user / 1e12, rho * length / length.max(), rtol=1e-9)


@pytest.mark.slow
def test_the_noise_is_the_published_multiple_of_equal_sensitivities(counts_of, bound_of):
    # d bins of sensitivity D at (1, 10^-6): sd 4.225 sqrt(d) D
    rho = _rho_of(1.0, 1e-6)
    for d in (1, 9, 50):
        counts, bound = counts_of([[1] * 1_000] * d), bound_of(1_000)
        (term,) = TWIN.noise_terms(StatisticRequest(counts, bound, MEAN, np.array(rho)))
        np.testing.assert_allclose(
            term.mean_absolute_noise / np.sqrt(2 / np.pi), 4.225 * np.sqrt(d), rtol=2e-4
        )


def _rho_of(epsilon, delta):
    low, high = 1e-6, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = gaussian_to_approx(ZCDP.of(middle), delta).epsilon <= epsilon
        low, high = (middle, high) if inside else (low, middle)
    return low


@pytest.mark.slow
def test_errors_are_as_promised_and_estimates_stay_in_range(samples_of, bound_of):
    runs, truth, rho = 4_000, np.mean([10, 20, 30, 0, 5, 17]), np.array(20.0)
    samples = samples_of([[[10, 20, 30], [0, 5], [17]]], bound_of(30))
    noise = SimulatedNoise(1)
    found = np.array([TWIN.estimate(samples, MEAN, rho, noise)[0] for _ in range(runs)])
    (term,) = TWIN.noise_terms(StatisticRequest(samples.counts, bound_of(30), MEAN, rho))
    error = np.abs(found - truth)
    assert error.mean() <= term.mean_absolute_noise[0] + 4 * error.std() / np.sqrt(runs)
    assert error.mean() >= term.mean_absolute_noise[0] * 0.8
    stated = TWIN.expected_error(StatisticRequest(samples.counts, bound_of(30), MEAN, rho))
    np.testing.assert_allclose(stated, term.mean_absolute_noise + term.bias)
    assert found.min() >= 0
    assert found.max() <= 30


def test_infinite_rho_adds_no_noise(samples_of, bound_of):
    samples = samples_of([[[1, 2], [30]], [[7], []]], bound_of(30))
    noise, endless = SimulatedNoise(1), np.array(np.inf)
    np.testing.assert_allclose(TWIN.estimate(samples, MEAN, endless, noise), [11, 7])
    # vehicle means are rounded to the step: 1.5 to 2
    np.testing.assert_allclose(TWIN.estimate(samples, VEHICLE_MEAN, endless, noise), [16, 7])
    np.testing.assert_allclose(BOTH.estimate(samples, VARIANCE, endless, noise), [np.var([1, 2, 30]), 0])
    # the variance of one record is 0 at no cost
    assert BOTH.estimate(samples, VARIANCE, np.array(0.1), noise)[1] == 0


@pytest.mark.parametrize("rho", [0.0, -1.0, np.nan, 1e-40])
def test_meaningless_rhos_are_rejected(rho, counts_of, bound_of):
    with pytest.raises(UsageError):
        event_of(TWIN, StatisticRequest(counts_of([[1, 1]]), bound_of(9), MEAN, np.array(rho)))
