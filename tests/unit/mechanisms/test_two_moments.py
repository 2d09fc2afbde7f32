"""A variance by two means: the losses of both, exact without noise, never further off than it says."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic.plan import PlanMechanism, Scaling
from trafficdp.mechanisms.per_statistic_map import MECHANISMS, mechanism_named
from trafficdp.mechanisms.protocol import StatisticRequest, event_of, sensitivity_of
from trafficdp.mechanisms.two_moments import (
    LARGEST_STEPS,
    MEAN_SHARE,
    KnownTwoMoments,
    TwoMoments,
    split_loss,
    squares_bound,
    squares_of,
)
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import CHARGE_STEP, ZCDP, LossKind
from trafficdp.sensitive import Samples

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
# a mechanism of each kind of loss, and what it is given for the bins of TABLE
EVERY = [
    (mechanism_named("array_averaging_best_fit", LossKind.PURE).means, np.array([0.5, 1.0, 2.0, 0.25])),
    (PlanMechanism(), np.array(0.7)),
    (PlanMechanism(Scaling.PUBLIC), np.array(0.7)),
]
every_means = pytest.mark.parametrize(("means", "loss"), EVERY, ids=lambda each: getattr(each, "name", ""))
TABLE = [[3, 2, 1], [1, 1, 1], [0, 4, 0], [0, 0, 1]]


def samples_of(counts, bound, seed=1):
    random = np.random.default_rng(seed)
    value = random.integers(0, bound.upper_steps + 1, int(counts.count.sum()))
    return Samples(counts, value, np.arange(1, counts.users + 1), bound)


def variances(samples):
    owner = np.repeat(samples.counts.bin_index, samples.counts.count)
    step = float(samples.bound.step)
    return np.array([(samples.value[owner == g] * step).var() for g in range(samples.counts.bins)])


def test_without_noise_it_is_the_variance(counts_of, bound_of):
    samples = samples_of(counts_of(TABLE), bound_of(60, "1/2"))
    found = TwoMoments(Baseline()).estimate(samples, VARIANCE, np.full(4, np.inf), SimulatedNoise(1))
    np.testing.assert_allclose(found, variances(samples), atol=1e-9)


@pytest.mark.parametrize("upper", [3, 255, 256, 257, 6_500, 1_000_000])
def test_squares_are_rounded_to_the_nearest_step(upper, counts_of):
    bound = ContributionBound(Fraction(upper), Fraction(1), SpeedUnit.KILOMETRES_PER_HOUR)
    samples = samples_of(counts_of([[200]]), bound)
    squares = squares_of(samples)
    assert squares.bound.upper_steps == min(upper**2, LARGEST_STEPS)
    assert squares.bound.upper == Fraction(upper**2, 4)
    step = float(squares.bound.step)
    exact = (samples.value - upper / 2) ** 2
    assert np.all(np.abs(squares.value * step - exact) <= step / 2 * (1 + 1e-9))
    assert squares.value.min() >= 0
    assert squares.value.max() <= squares.bound.upper_steps
    if upper <= 256:
        np.testing.assert_allclose(squares.value * step, exact, rtol=1e-12)


@pytest.mark.parametrize("kind", LossKind)
def test_the_split_is_the_least_sum_of_errors(kind):
    power = 1 if kind is LossKind.PURE else 0.5
    grid = np.linspace(0.01, 0.99, 9_801)
    errors = 1 / grid**power + 0.25 / (1 - grid) ** power
    assert grid[errors.argmin()] == pytest.approx(float(MEAN_SHARE[kind]), abs=5e-4)


def test_both_parts_together_are_never_more_than_rho_to_the_last_digit():
    random, share = np.random.default_rng(5), MEAN_SHARE[LossKind.ZCDP]
    rhos = [2e-12, 3e-12, 1e-6, 0.1, 1.0, 12345.678901234567, 123456.78901234567, 1e6]
    rhos += list(np.exp(random.uniform(np.log(1e-11), np.log(1e6), 2_000)))
    for rho in rhos:
        total = ZCDP.of(rho).pico
        first, second = (ZCDP.of(float(part)).pico for part in split_loss(LossKind.ZCDP, np.array(rho)))
        assert first + second <= total
        # all of it, but for the digits that floats have not
        assert first + second >= total - Fraction(total) * Fraction(2) ** -51 - 2
        assert abs(first - total * share) <= total * 1e-15 + 2
    assert split_loss(LossKind.ZCDP, np.array(np.inf)) == (np.inf, np.inf)
    with pytest.raises(UsageError, match="rho"):
        TwoMoments(PlanMechanism()).estimate(None, VARIANCE, np.array(0.0), SimulatedNoise(1))


@every_means
def test_a_vehicle_pays_for_both_means(means, loss, counts_of, bound_of):
    counts, bound = counts_of(TABLE), bound_of(60)
    first, second = split_loss(means.kind, loss)
    parts = [
        event_of(means, StatisticRequest(counts, bound, MEAN, first)).loss_per_user,
        event_of(means, StatisticRequest(counts, squares_bound(bound), MEAN, second)).loss_per_user,
    ]
    event = event_of(TwoMoments(means), StatisticRequest(counts, bound, VARIANCE, loss))
    # each part was rounded up to a whole step of charges; in rho nothing is
    rounded = 2 * CHARGE_STEP if means.kind is LossKind.PURE else 0
    assert bool(np.all(event.loss_per_user <= parts[0] + parts[1]))
    assert bool(np.all(event.loss_per_user >= parts[0] + parts[1] - rounded))
    assert np.all(first + second <= loss)
    assert (event.mechanism, event.statistics) == (means.name, (VARIANCE,))


@every_means
def test_each_run_gets_its_own_moment_and_its_own_part(means, loss, counts_of, bound_of):
    """The runs are those that are charged: which samples, which loss."""
    seen = []

    class Watched(type(means)):
        def estimate(self, samples, statistic, loss, measure):
            seen.append((samples, statistic, loss))
            return super().estimate(samples, statistic, loss, measure)

    samples = samples_of(counts_of(TABLE), bound_of(60))
    TwoMoments(Watched()).estimate(samples, VARIANCE, loss, SimulatedNoise(1))
    (first, *of_mean), (second, *of_squares) = seen
    assert first is samples
    assert of_mean[0] is of_squares[0] is MEAN
    np.testing.assert_array_equal([of_mean[1], of_squares[1]], split_loss(means.kind, loss))
    assert second.bound == squares_bound(samples.bound)
    np.testing.assert_array_equal(second.value, squares_of(samples).value)
    assert second.counts is samples.counts


@pytest.mark.slow
def test_no_change_of_one_vehicle_moves_it_by_more_than_its_sensitivity(counts_of, bound_of):
    bound, counts = bound_of(3), counts_of([[2, 1]])
    mechanism = TwoMoments(Baseline())
    stated = sensitivity_of(mechanism, StatisticRequest(counts, bound, VARIANCE, np.ones(1)))

    def clipped(values):
        samples = Samples(counts, np.array(values), np.arange(1, 3), bound)
        return mechanism.estimate(samples, VARIANCE, np.array([np.inf]), SimulatedNoise(1))[0]

    moves = [
        abs(clipped([*own, other]) - clipped([*new, other]))
        for own, new in product(product(range(4), repeat=2), repeat=2)
        for other in range(4)
    ]
    moves += [
        abs(clipped([*others, own]) - clipped([*others, new]))
        for others in product(range(4), repeat=2)
        for own, new in product(range(4), repeat=2)
    ]
    assert 0 < max(moves) <= stated[0] * (1 + 1e-12)


@every_means
def test_means_are_those_of_the_mechanism_itself(means, loss, counts_of, bound_of):
    samples, both = samples_of(counts_of(TABLE), bound_of(60)), TwoMoments(means)
    np.testing.assert_array_equal(
        means.estimate(samples, MEAN, loss, SimulatedNoise(4)),
        both.estimate(samples, MEAN, loss, SimulatedNoise(4)),
    )
    given = StatisticRequest(samples.counts, samples.bound, MEAN, loss)
    np.testing.assert_array_equal(
        event_of(means, given).loss_per_user,
        event_of(both, given).loss_per_user,
    )
    np.testing.assert_array_equal(means.expected_error(given), both.expected_error(given))
    assert both.statistics == (MEAN, VARIANCE)
    assert (both.name, both.citation, both.kind) == (means.name, means.citation, means.kind)
    assert (both.enforced, both.idealised) == (means.enforced, means.idealised)


@pytest.mark.parametrize("name", ["array_averaging_best_fit", "gaussian_twin"])
def test_terms_of_the_means_become_terms_of_the_variance(name, counts_of, bound_of):
    (both,) = [each for each in MECHANISMS if each.name == name]
    assert isinstance(both, KnownTwoMoments)
    counts, loss = counts_of(TABLE), np.ones(() if both.kind is LossKind.ZCDP else 4)
    assert len(both.noise_terms(StatisticRequest(counts, bound_of(60), MEAN, loss))) == 1
    one, two = both.noise_terms(StatisticRequest(counts, bound_of(60), VARIANCE, loss))
    first, second = split_loss(both.kind, loss)
    (mean,) = both.means.noise_terms(StatisticRequest(counts, bound_of(60), MEAN, first))
    (squares,) = both.means.noise_terms(StatisticRequest(counts, squares_bound(bound_of(60)), MEAN, second))
    np.testing.assert_allclose(one.mean_absolute_noise, 60 * mean.mean_absolute_noise)
    np.testing.assert_allclose(two.mean_absolute_noise, squares.mean_absolute_noise)


@pytest.mark.parametrize(
    "means", [PlanMechanism(), PlanMechanism(Scaling.PUBLIC)], ids=lambda each: each.name
)
def test_variances_come_close_where_vehicles_are_many(means, counts_of, bound_of):
    random, bound = np.random.default_rng(3), bound_of(60)
    counts = counts_of(np.full((4, 500), 2))
    value = np.rint(np.clip(random.normal(30, np.array([[3], [6], [9], [12]]), (4, 1_000)), 0, 60))
    samples = Samples(counts, value.astype(np.int64).ravel(), np.arange(500), bound)
    found = TwoMoments(means).estimate(samples, VARIANCE, np.array(20.0), SimulatedNoise(1))
    np.testing.assert_allclose(found, value.var(axis=1), atol=0.03 * VARIANCE.largest(60))
