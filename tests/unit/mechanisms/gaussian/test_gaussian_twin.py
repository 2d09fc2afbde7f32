import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin, gaussian_loss
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.conversion import gaussian_to_approx
from trafficdp.privacy.loss import ZCDP
from trafficdp.sensitive.samples import Samples

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
TWIN = GaussianTwin()


@pytest.fixture
def samples_of(contributions_of):
    def build(values, bound):
        city = contributions_of(values, bound)
        flat = [v for of_bin in values for of_user in of_bin for v in of_user]
        return Samples(city.counts, np.array(flat, dtype=np.int64), city.vehicle, bound)

    return build


@pytest.mark.parametrize("statistic", [MEAN, VARIANCE])
@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_the_busiest_vehicle_pays_rho_and_nobody_more(statistic, rho, counts_of, bound_of):
    counts = counts_of([[3, 1, 0], [0, 2, 2], [1, 1, 4]])
    event = TWIN.event(counts, bound_of(65), statistic, rho)
    assert event.loss.rho <= ZCDP.of(rho).rho
    assert float(event.loss.rho) == pytest.approx(rho, rel=1e-9)
    sensitivity = counts.count * 65 / counts.samples_per_bin[counts.bin_index]
    if statistic is MEAN:
        length = counts.total_per_user(sensitivity**2)
        np.testing.assert_allclose(event.loss_per_user / 1e12, rho * length / length.max(), rtol=1e-9)


def test_the_noise_is_the_published_multiple_of_equal_sensitivities(counts_of, bound_of):
    # d bins of sensitivity D at (1, 10^-6): sd 4.225 sqrt(d) D
    rho = _rho_of(1.0, 1e-6)
    for d in (1, 9, 50):
        counts, bound = counts_of([[1] * 1_000] * d), bound_of(1_000)
        error = TWIN.expected_error(counts, bound, MEAN, rho)
        np.testing.assert_allclose(error / np.sqrt(2 / np.pi), 4.225 * np.sqrt(d), rtol=2e-4)


def _rho_of(epsilon, delta):
    low, high = 1e-6, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        inside = gaussian_to_approx(ZCDP.of(middle), delta).epsilon <= epsilon
        low, high = (middle, high) if inside else (low, middle)
    return low


@pytest.mark.parametrize("statistic", [MEAN, VARIANCE])
def test_errors_are_as_promised_and_estimates_stay_in_range(statistic, samples_of, bound_of):
    runs = 4_000
    values = [[[10, 20, 30], [0, 5], [17]]]
    bound = bound_of(30)
    samples = samples_of(values, bound)
    truth = [np.mean, np.var][statistic is VARIANCE]([10, 20, 30, 0, 5, 17])
    noise = SimulatedNoise(1)
    found = np.array([TWIN.estimate(samples, statistic, 20.0, noise)[0] for _ in range(runs)])
    expected = TWIN.expected_error(samples.counts, bound, statistic, 20.0)[0]
    error = np.abs(found - truth)
    assert error.mean() <= expected + 4 * error.std() / np.sqrt(runs)
    assert error.mean() >= expected * 0.8
    assert found.min() >= 0
    assert found.max() <= statistic.largest(30)


def test_infinite_rho_adds_no_noise(samples_of, bound_of):
    samples = samples_of([[[1, 2], [30]], [[7], []]], bound_of(30))
    noise = SimulatedNoise(1)
    np.testing.assert_allclose(TWIN.estimate(samples, MEAN, np.inf, noise), [11, 7])
    np.testing.assert_allclose(TWIN.estimate(samples, VARIANCE, np.inf, noise), [np.var([1, 2, 30]), 0])
    # the variance of one record is 0 at no cost
    assert TWIN.estimate(samples, VARIANCE, 0.1, noise)[1] == 0


def test_losses_are_rounded_up(counts_of, bound_of):
    loss = gaussian_loss(np.array([0.0, 1.0, 1.0, 3.0]), np.array([0.0, 0.0, 3.0, 7.0]))
    assert loss[0] == 0
    assert loss[1] == np.inf
    assert loss[2] >= 1 / 18
    assert loss[3] >= 9 / 98
    assert loss[3] == pytest.approx(9 / 98, rel=1e-14)


@pytest.mark.parametrize("rho", [0.0, -1.0, np.nan])
def test_meaningless_rhos_are_rejected(rho, counts_of, bound_of):
    with pytest.raises(UsageError):
        TWIN.event(counts_of([[1, 1]]), bound_of(9), MEAN, rho)
