"""One noisy sum a bin: what it costs, what weights mean, and that a dearest sum is the dearest."""

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.means import FINER, Weighting, most_expensive_scale, weighting
from trafficdp.model import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.sensitive import Samples


def city(counts_of, seed):
    random = np.random.default_rng(seed)
    return counts_of(random.geometric(0.05, (40, 60)) * random.integers(0, 2, (40, 60)))


@pytest.mark.parametrize("seed", range(5))
def test_no_interval_costs_more_than_the_dearest_sum(seed, counts_of, bound_of):
    """Whatever is drawn, to the last 10^-12: so that nothing metered is above what was charged."""
    counts, bound, random = city(counts_of, seed), bound_of(60, "1/100"), np.random.default_rng(seed)
    epsilon, bias = np.exp(random.uniform(-8, 4, counts.bins)), np.zeros(counts.bins)
    weighted = Weighting(counts, bound, counts.count)
    dearest = weighted.sum_query(epsilon, bias, worst_case=True).step.loss()
    for _ in range(20):
        low, high = np.sort(random.integers(0, bound.upper_steps + 1, (2, counts.bins)), axis=0)
        assert np.all(weighted.sum_query(epsilon, bias, low, high).step.loss() <= dearest)
    assert np.all(dearest <= counts.sum_per_user(epsilon[counts.bin_index]) * 1e12 + counts.bins_per_user)


def test_weights_are_those_of_the_statistic(counts_of, bound_of):
    counts, bound = counts_of([[3, 1], [2, 2]]), bound_of(30)
    samples = Samples(counts, np.array([30, 30, 0, 6, 1, 2, 30, 27]), np.arange(2), bound)
    totals, nothing = samples.contributions().total, np.full(2, np.inf)
    for statistic, expected in (
        (Statistic.MEAN, [66 / 4, 60 / 4]),
        (Statistic.VEHICLE_MEAN, [(20 + 6) / 2, (1.5 + 28.5) / 2]),
    ):
        weighted = weighting(counts, bound, statistic)
        found = weighted.sum_query(nothing, np.zeros(2)).means(
            weighted.values(totals), SimulatedNoise(1), bound
        )
        np.testing.assert_allclose(found, expected, atol=1 / FINER)
        np.testing.assert_array_equal(weighted.bias(weighted.weight) > 0, statistic is not Statistic.MEAN)


def test_clipped_sums_begin_where_the_interval_does(counts_of, bound_of):
    counts, bound = counts_of([[2, 1]]), bound_of(30)
    weighted = Weighting(counts, bound, counts.count)
    clipped = weighted.sum_query(np.array([np.inf]), np.zeros(1), np.array([10]), np.array([20]))
    # 5 a record is 10, 18 stays, and so do values far out
    for total, expected in (([10, 18], (20 + 18) / 3), ([10**15, -(10**15)], (40 + 10) / 3)):
        above = np.array(total) - weighted.used * 10
        assert clipped.means(above, SimulatedNoise(1), bound)[0] == pytest.approx(expected)


def test_noise_that_cannot_be_drawn_is_refused():
    with pytest.raises(UsageError, match="drawn exactly"):
        most_expensive_scale(np.array([10**6]), np.array([1e-12]))
