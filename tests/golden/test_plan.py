"""Golden vectors of PLAN: noise allocation and the masked vectors of all bins."""

import numpy as np
import pytest

from trafficdp.measurement.laws import GRAINS
from trafficdp.mechanisms.per_statistic.plan import PlanMechanism, Scaling, scaling
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import Samples

SENSITIVITIES = np.array([4.0, 1.0, 0.5, 2.0])
COUNTS = [[3, 1, 0, 2], [1, 1, 1, 1], [0, 2, 2, 0]]  # bins x vehicles
TOTALS = [[30, 20, 0, 60], [10, 25, 30, 25], [0, 50, 70, 0]]


def moment(v, p):
    """(sum D^2/v^2)^(p/2) sum v^p: the p-th moment of noise v at a fixed loss, up to a constant."""
    return (SENSITIVITIES**2 / v**2).sum() ** (p / 2) * (v**p).sum()


@pytest.mark.parametrize(("p", "golden"), [(1, 13.742015), (2, 56.25), (3, 243.723140)])
def test_noise_is_allocated_optimally_for_every_norm(p, golden):
    # noise of coordinate j is proportional to 1/s_j
    best = 1 / scaling(SENSITIVITIES, p)
    assert moment(best, p) == pytest.approx(golden, abs=1e-6)
    q = 2 * p / (p + 2)
    assert moment(best, p) == pytest.approx((SENSITIVITIES**q).sum() ** (p / q))
    random = np.random.default_rng(0)
    for _ in range(500):
        assert moment(best * np.exp(random.normal(0, 0.3, 4)), p) >= moment(best, p)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_exponent_of_standard_deviations_is_two_and_not_one(p):
    # E19: Sigma^(-1/(p+2)) is a power of variances
    literal = moment(SENSITIVITIES ** (1 / (p + 2)), p) / moment(1 / scaling(SENSITIVITIES, p), p)
    assert 1.07 < literal < 1.13


class Known(SimulatedNoise):
    """Centres and the clipping length as given, no noise; keeps the last step."""

    def __init__(self, *shares):
        self.shares = list(shares)

    def select(self, ranks, values):
        self.ranked = values
        return np.rint(np.array(self.shares.pop(0)) * ranks.high).astype(np.int64)

    def measure(self, step, values):
        self.step, self.values = step, values
        return step.of.sums(values)


@pytest.fixture
def city(counts_of, bound_of):
    """Records of a vehicle in a bin that add up to its TOTALS, speeds from 0 to 70."""
    counts = counts_of(COUNTS)
    totals = np.array(TOTALS)[counts.bin_index, counts.user_index]
    each = np.repeat(totals // counts.count, counts.count)
    each[counts.count.cumsum() - 1] += totals % counts.count
    return Samples(counts, each, np.arange(4), bound_of(70))


def test_vectors_and_lengths_are_the_golden_ones_and_average_to_the_means(city):
    centre = np.array([18.0, 22.0, 30.0])
    known = Known(centre / 70, 1.0)
    found = PlanMechanism(Scaling.NONE).estimate(city, Statistic.MEAN, np.array(0.5), known)
    z = np.zeros((4, 3))
    z[city.counts.user_index, city.counts.bin_index] = known.values
    golden = [[-16, -12, 0], [4 / 3, 3, -10], [0, 8, 10], [16, 3, 0]]
    np.testing.assert_allclose(z, golden, atol=1e-12)
    np.testing.assert_allclose(z.mean(axis=0) + centre, [18 + 1 / 3, 22.5, 30])
    np.testing.assert_allclose(found, [18 + 1 / 3, 22.5, 30], atol=1e-3)
    # B_l: every entry from 0 to U, of vehicle 0: 4/6 * 3 * 70 and 4/4 * 70
    longest = np.array([np.hypot(140, 70), np.hypot(np.hypot(140 / 3, 70), 140), np.hypot(70, 140), 0])
    longest[3] = np.hypot(280 / 3, 70)
    share = np.linalg.norm(golden, axis=1) / longest.max()
    np.testing.assert_allclose(known.ranked / 2.0**50, share, rtol=1e-9)
    # two vectors of a vehicle are at most B_l apart, and the noise is that of the furthest
    grain = known.step.of.bound / GRAINS
    apart = city.counts.sum_per_user((grain * (known.step.of.high - known.step.of.low)) ** 2.0)
    np.testing.assert_allclose(np.sqrt(apart), longest, rtol=1e-5)
    sd = longest.max() / np.sqrt(2 * 0.5 * 9 / 16)
    np.testing.assert_allclose(known.step.law.sd * grain, sd, rtol=1e-5)


def test_noise_goes_by_the_weights_and_by_twice_the_clipping_length(city):
    # U/sqrt(12) in all bins: of_vector is that times sqrt(L sum m^2)/N
    known = Known(np.array([18.0, 22.0, 30.0]) / 70, 0.01)
    PlanMechanism(Scaling.PUBLIC).estimate(city, Statistic.MEAN, np.array(0.5), known)
    of_vector = 70 / np.sqrt(12) * np.sqrt(4 * np.array([14, 4, 8])) / np.array([6, 4, 4])
    weight = scaling(of_vector + of_vector.mean(), 2)
    z = np.array([-16, 4 / 3, 16, -12, 3, 8, 3, -10, 10])
    np.testing.assert_allclose(known.values, weight[city.counts.bin_index] * z, rtol=1e-9)
    clip = known.step.of.bound
    sd = 2 * clip / np.sqrt(2 * 0.5 * 9 / 16)
    np.testing.assert_allclose(known.step.law.sd * known.step.of.bound / GRAINS, sd, rtol=1e-9)
