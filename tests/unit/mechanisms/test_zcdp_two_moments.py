"""A variance by two zCDP means: the rho of both, to the last digit never more than what is given."""

from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.plan.iome import IOME
from trafficdp.mechanisms.plan.plan import Plan, Scaling
from trafficdp.mechanisms.two_moments import squares_bound, squares_of
from trafficdp.mechanisms.zcdp_two_moments import MEAN_SHARE, ZCDPTwoMoments, zcdp_shares
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import ZCDP
from trafficdp.sensitive.samples import Samples

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
TABLE = [[3, 2, 1], [1, 1, 1], [0, 4, 0], [0, 0, 1]]
MEANS = [Plan(), Plan(Scaling.PUBLIC), IOME()]
every_means = pytest.mark.parametrize("means", MEANS, ids=lambda m: m.name)


def samples_of(counts, bound, seed=1):
    value = np.random.default_rng(seed).integers(0, bound.steps + 1, int(counts.count.sum()))
    return Samples(counts, value, np.arange(1, counts.users + 1), bound)


def test_the_split_is_the_least_sum_of_errors():
    def errors(share):
        return 1 / np.sqrt(share) + 0.25 / np.sqrt(1 - share)

    best = 4 ** (2 / 3) / (1 + 4 ** (2 / 3))
    grid = np.linspace(0.01, 0.99, 9_801)
    assert grid[errors(grid).argmin()] == pytest.approx(best, abs=1e-4)
    assert float(MEAN_SHARE) == pytest.approx(best, abs=5e-4)


def test_both_parts_together_are_never_more_than_rho_to_the_last_digit():
    random = np.random.default_rng(5)
    rhos = [2e-12, 3e-12, 1e-6, 0.1, 1.0, 12345.678901234567, 123456.78901234567, 1e6]
    rhos += list(np.exp(random.uniform(np.log(1e-11), np.log(1e6), 2_000)))
    for rho in rhos:
        total = ZCDP.of(rho).pico
        first, second = (ZCDP.of(part).pico for part in zcdp_shares(rho))
        assert first + second <= total
        # all of it, but for the digits that floats have not
        assert first + second >= total - Fraction(total) * Fraction(2) ** -51 - 2
        assert abs(first - total * MEAN_SHARE) <= total * 1e-15 + 2
    assert zcdp_shares(np.inf) == (np.inf, np.inf)
    with pytest.raises(UsageError, match="rho"):
        ZCDPTwoMoments(Plan()).estimate(None, VARIANCE, 0.0, SimulatedNoise(1))


@every_means
def test_a_vehicle_pays_for_both_means(means, counts_of, bound_of):
    counts, bound = counts_of(TABLE), bound_of(60)
    first, second = zcdp_shares(0.7)
    parts = [
        means.event(counts, bound, MEAN, first).loss_per_user,
        means.event(counts, squares_bound(bound), MEAN, second).loss_per_user,
    ]
    event = ZCDPTwoMoments(means).event(counts, bound, VARIANCE, 0.7)
    np.testing.assert_array_equal(event.loss_per_user, parts[0] + parts[1])
    assert event.loss_per_user.max() == ZCDP.of(0.7).pico
    assert (event.mechanism, event.statistics) == (means.name, (VARIANCE,))


@every_means
def test_each_run_gets_its_own_moment_and_its_own_part(means, counts_of, bound_of):
    """The runs are those that are charged: which samples, which rho."""
    seen = []

    class Watched(type(means)):
        def estimate(self, samples, statistic, rho, noise):
            seen.append((samples, statistic, rho))
            return super().estimate(samples, statistic, rho, noise)

    samples = samples_of(counts_of(TABLE), bound_of(60))
    ZCDPTwoMoments(Watched()).estimate(samples, VARIANCE, 0.7, SimulatedNoise(1))
    (first, *of_mean), (second, *of_squares) = seen
    assert first is samples
    assert (of_mean, of_squares) == ([MEAN, zcdp_shares(0.7)[0]], [MEAN, zcdp_shares(0.7)[1]])
    assert second.bound == squares_bound(samples.bound)
    np.testing.assert_array_equal(second.value, squares_of(samples).value)
    assert second.counts is samples.counts


@every_means
def test_means_are_those_of_the_mechanism_itself(means, counts_of, bound_of):
    samples, both = samples_of(counts_of(TABLE), bound_of(60)), ZCDPTwoMoments(means)
    np.testing.assert_array_equal(
        means.estimate(samples, MEAN, 1.0, SimulatedNoise(4)),
        both.estimate(samples, MEAN, 1.0, SimulatedNoise(4)),
    )
    given = samples.counts, samples.bound, MEAN, 1.0
    np.testing.assert_array_equal(means.event(*given).loss_per_user, both.event(*given).loss_per_user)
    np.testing.assert_array_equal(means.expected_error(*given), both.expected_error(*given))
    assert both.statistics == (MEAN, VARIANCE)
    assert (both.name, both.citation, both.idealised) == (means.name, means.citation, means.idealised)


@every_means
def test_variances_come_close_where_vehicles_are_many(means, counts_of, bound_of):
    random, bound = np.random.default_rng(3), bound_of(60)
    counts = counts_of(np.full((4, 500), 2))
    value = np.rint(np.clip(random.normal(30, np.array([[3], [6], [9], [12]]), (4, 1_000)), 0, 60))
    samples = Samples(counts, value.astype(np.int64).ravel(), np.arange(500), bound)
    found = ZCDPTwoMoments(means).estimate(samples, VARIANCE, 20.0, SimulatedNoise(1))
    np.testing.assert_allclose(found, value.var(axis=1), atol=0.03 * VARIANCE.largest(60))
