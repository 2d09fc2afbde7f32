"""Mean and variance from sums of x and of x (U - x): priced together, intervals that hold, nearly free."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trafficdp.errors import UsageError
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.lattice import Lattice, to_lattice
from trafficdp.mechanisms.mean_variance.accounting import LEAST_RATIO, best_ratio, moments_accounting, spread
from trafficdp.mechanisms.mean_variance.calibrated import CalibratedMoments
from trafficdp.mechanisms.mean_variance.lattice import (
    exact_products,
    moments_loss_per_user,
    to_product_lattice,
)
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import PureDP
from trafficdp.sensitive.values import Values

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
STATISTICS = tuple(Statistic)
TOLERANCE = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.5}
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 6), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


def accounting_for(counts, bound, statistics=STATISTICS, **tolerance):
    wanted = {s: tolerance.get(s.value, TOLERANCE[s]) for s in statistics}
    return moments_accounting(counts, bound, wanted), wanted


def calibrated_for(counts, bound, epsilon, statistics=STATISTICS):
    accounting, _ = accounting_for(counts, bound, statistics)
    return accounting.calibrate(counts, bound, PureDP.of(epsilon))


def estimates_of(calibrated, contributions, noise, level=0.9):
    values = Values(contributions, lambda: None)
    return calibrated.estimates(values, noise, interval_level=level, uninformative_above=0.125)


class Drawn:
    """A source of noise that gives what it was told to, in order."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def discrete_laplace(self, scale):
        return self.draws.pop(0)


def alike(contributions_of, bound, speeds, bins):
    """``bins`` bins, each with the same speeds of one vehicle."""
    one = contributions_of([[list(speeds)]], bound)
    counts = replace(
        one.counts,
        cell=np.arange(1, bins + 1, dtype=np.uint64),
        slot=np.zeros(bins, dtype=np.int64),
        bin_index=np.arange(bins),
        user_index=np.zeros(bins, dtype=np.int64),
        count=np.full(bins, len(speeds)),
    )
    return replace(
        one,
        counts=counts,
        total=np.tile(one.total, bins),
        total_of_squares=np.tile(one.total_of_squares, bins),
    )


@pytest.fixture
def city(contributions_of, bound_of):
    """Three bins, four vehicles; one bin with a single record, whose variance can only be 0."""
    values = [
        [[100, 310, 207], [599, 3], [], [18]],
        [[400], [222, 223], [17, 600, 333], []],
        [[], [], [], [123]],
    ]
    return contributions_of(values, bound_of(60, "1/10"))


@settings(max_examples=60)
@given(tables, st.sampled_from(["0.01", "1", "7.3"]), st.booleans())
def test_facts_and_published_columns_price_the_release_alike(
    counts_of, contributions_of, bound_of, table, epsilon, with_vehicle_mean
):
    bound = bound_of(60, "1/10")
    values = contributions_of([[[1] * m for m in row] for row in table], bound)
    statistics = STATISTICS if with_vehicle_mean else (MEAN, VARIANCE)
    calibrated = calibrated_for(values.counts, bound, epsilon, statistics)
    charged = calibrated.event(values.counts, bound).loss_per_user
    assert charged.max() <= PureDP.of(epsilon).pico
    assert charged.max() >= PureDP.of(epsilon).pico * (1 - 1e-6)
    facts = json.loads(json.dumps(calibrated.to_facts()))
    assert CalibratedMoments.from_facts(facts).to_facts() == calibrated.to_facts()
    columns = {s: dict(e.noise) for s, e in estimates_of(calibrated, values, SimulatedNoise(1)).items()}
    again = CalibratedMoments.from_published(calibrated.published_facts(), columns)
    np.testing.assert_array_equal(again.event(values.counts, bound).loss_per_user, charged)


def test_tampered_columns_cost_more_or_are_refused(city):
    counts, bound = city.counts, city.bound
    calibrated = calibrated_for(counts, bound, 2)
    charged = calibrated.event(counts, bound).loss_per_user

    def priced(statistic, name, change):
        columns = {s: dict(e.noise) for s, e in estimates_of(calibrated, city, SimulatedNoise(1)).items()}
        columns[statistic][name] = change(columns[statistic].pop(name))
        if columns[statistic][name] is None:
            del columns[statistic][name]
        again = CalibratedMoments.from_published({"kind": "moments"}, columns)
        return again.event(counts, bound).loss_per_user

    for statistic, name in (
        (MEAN, "lattice_scale"),
        (VARIANCE, "product_scale"),
        (VEHICLE_MEAN, "lattice_scale"),
    ):
        assert np.any(priced(statistic, name, lambda values: values * 0.9) > charged), name
        with pytest.raises(UsageError):
            priced(statistic, name, lambda values: values * 0)
        with pytest.raises(UsageError, match="without its lattice"):
            priced(statistic, name, lambda values: None)
    for statistic, name in ((MEAN, "lattice_spacing"), (VARIANCE, "product_spacing")):
        with pytest.raises(UsageError, match="spacing"):
            priced(statistic, name, lambda values: values * 0)
    with pytest.raises(UsageError, match="the sum of speeds has a spacing"):
        priced(MEAN, "lattice_spacing", lambda values: values * 2)


def test_what_counts_alone_decide_is_what_is_released(city):
    for epsilon in (0.05, 2, 400):
        calibrated = calibrated_for(city.counts, city.bound, epsilon)
        estimates = estimates_of(calibrated, city, SimulatedNoise(1))
        assert tuple(estimates) == calibrated.statistics == STATISTICS
        foreseen = calibrated.expected_errors(city.counts, city.bound)
        widths = calibrated.half_widths(city.counts, city.bound, 0.9)
        for statistic, estimate in estimates.items():
            np.testing.assert_array_equal(estimate.expected_error, foreseen[statistic])
            statement = calibrated.statement(statistic, city.counts, city.bound)
            np.testing.assert_array_equal(statement.noise_scale, estimate.noise_scale)
            assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
            assert np.all(estimate.high <= statistic.largest(city.bound.upper))
            assert np.all(estimate.high - estimate.value <= 2 * widths[statistic] + 1e-9)
        constant = estimates[VARIANCE]
        assert constant.status[2] == "constant"
        found = (constant.value[2], constant.low[2], constant.high[2], constant.noise_scale[2])
        assert found == (0.0, 0.0, 0.0, 0.0)
        assert widths[VARIANCE][2] == constant.expected_error[2] == 0


def test_without_noise_to_speak_of_the_numbers_are_the_statistics(city):
    calibrated = calibrated_for(city.counts, city.bound, 200_000)
    estimates = estimates_of(calibrated, city, SecureNoise())
    speeds = [[100, 310, 207, 599, 3, 18], [400, 222, 223, 17, 600, 333], [123]]
    np.testing.assert_allclose(estimates[MEAN].value, [np.mean(each) / 10 for each in speeds], atol=0.02)
    np.testing.assert_allclose(estimates[VARIANCE].value, [np.var(each) / 100 for each in speeds], atol=1)
    by_vehicle = [(20.6 + 30.1 + 1.8) / 3, (40.0 + 22.2 + 31.7) / 3, 12.3]
    np.testing.assert_allclose(estimates[VEHICLE_MEAN].value, by_vehicle, atol=0.1)


@pytest.mark.parametrize("spacing", [1, 4])
@pytest.mark.parametrize("level", [0.4, 0.9])
def test_intervals_hold_for_every_data_set_of_a_tiny_city(contributions_of, bound_of, level, spacing):
    """Exhaustive: all speeds 0..4 of three records, all draws that matter, exact probabilities."""
    bound, scale, own = bound_of(4), 1.7, 5.2 / spacing
    reach = np.arange(-24, 25), np.arange(-60 // spacing, 60 // spacing + 1)
    first, second = (each.ravel() for each in np.meshgrid(*reach, indexing="ij"))
    chance = np.exp(-np.abs(first) / scale - np.abs(second) / own)
    chance *= np.tanh(1 / (2 * scale)) * np.tanh(1 / (2 * own))
    bins = len(first)
    ones = np.ones(bins, dtype=np.int64)
    calibrated = CalibratedMoments(
        {MEAN: Lattice(np.full(bins, scale), ones), VARIANCE: Lattice(np.full(bins, own), spacing * ones)}
    )
    worst, largest = 0.0, 0.0
    for speeds in combinations_with_replacement(range(5), 3):
        data = alike(contributions_of, bound, speeds, bins)
        found = estimates_of(calibrated, data, Drawn(first, second), level)[VARIANCE]
        truth = np.var(speeds)
        outside = (found.low > truth + 1e-9) | (found.high < truth - 1e-9)
        worst = max(worst, float(chance[outside].sum()))
        # before the Bhatia-Davis limit: what the expected error is about
        mean = np.clip((sum(speeds) + first) / 3, 0, 4)
        whole = (sum(k * (4 - k) for k in speeds) // spacing + second + (0.5 if spacing > 1 else 0)) * spacing
        error = np.abs(np.clip(mean * (4 - mean) - whole / 3, 0, 4) - truth)
        largest = max(largest, float((chance * error).sum()))
        assert np.all(found.value <= mean * (4 - mean) + 1e-9)
    # what was not looked at counts as missed
    beyond = 1 - float(chance.sum())
    assert worst + beyond <= 1 - level
    assert largest + 4 * beyond <= found.expected_error[0]
    if spacing == 1:
        # the scale that is stated bounds U e1 + e2 itself
        assert float((chance * np.abs(4 * first + second)).sum()) / 3 <= found.noise_scale[0]


@pytest.mark.parametrize(
    "speeds",
    [[0] * 8, [600] * 8, [0] * 4 + [600] * 4, [300] * 8, [0] * 7 + [600], [590] * 8, [5, 100, 301, 480] * 2],
)
@pytest.mark.parametrize("share", [0.04, 0.4])
def test_intervals_hold_against_adversarial_speeds(contributions_of, bound_of, speeds, share):
    bound, runs, level = bound_of(60, "1/10"), 8_000, 0.8
    data = alike(contributions_of, bound, speeds, runs)
    means = Lattice(np.full(runs, share * 600 * 8), np.ones(runs, dtype=np.int64))
    products = to_product_lattice(data.counts, bound, means, LEAST_RATIO)
    found = estimates_of(
        CalibratedMoments({MEAN: means, VARIANCE: products}), data, SimulatedNoise(5), level
    )[VARIANCE]
    truth = np.var(speeds) / 100
    missed = int(((found.low > truth + 1e-9) | (found.high < truth - 1e-9)).sum())
    assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9


def test_much_narrower_intervals_would_be_caught(contributions_of, bound_of):
    """U really is the factor of the mean's noise where the mean is near an end."""
    bound, runs, level = bound_of(60, "1/10"), 8_000, 0.8
    data = alike(contributions_of, bound, [20] * 8, runs)
    means = Lattice(np.full(runs, 0.005 * 600 * 8), np.ones(runs, dtype=np.int64))
    products = to_product_lattice(data.counts, bound, means, LEAST_RATIO)
    calibrated = CalibratedMoments({MEAN: means, VARIANCE: products})
    found = estimates_of(calibrated, data, SimulatedNoise(5), level)[VARIANCE]
    narrow = 0.6 * calibrated.half_widths(data.counts, bound, level)[VARIANCE]
    # one side is seen: a variance of 0 is never underestimated
    missed = int((found.value > narrow).sum())
    assert stats.binom.sf(missed - 1, runs, (1 - level) / 2) < 1e-9


def test_huge_noise_is_drawn_on_a_spacing_and_never_less(counts_of, bound_of, contributions_of):
    bound = bound_of(60, "3/50000")
    data = contributions_of([[[10**5] * 4, [10**6]]], bound)
    means = to_lattice(MEAN, data.counts, bound, np.array([1e7]))
    products = to_product_lattice(data.counts, bound, means, 0.7)
    assert products.spacing[0] > 1
    assert products.scale[0] * products.spacing[0] >= 0.7 * bound.steps * means.scale[0]
    calibrated = CalibratedMoments({MEAN: means, VARIANCE: products})
    statement = calibrated.statement(VARIANCE, data.counts, bound)
    assert statement.worst_case_bias > publish.rounding_bias(VARIANCE, bound)
    found = estimates_of(calibrated, data, SecureNoise())[VARIANCE]
    assert 0 <= found.low[0] <= found.value[0] <= found.high[0] == 900
    with pytest.raises(UsageError, match="cannot be drawn exactly"):
        to_product_lattice(data.counts, bound, Lattice(means.scale * 1e25, means.spacing), 0.7)


def test_products_are_the_sums_they_are_said_to_be(city):
    by_bin = [[100, 310, 207, 599, 3, 18], [400, 222, 223, 17, 600, 333]]
    # a single record needs none
    assert exact_products(city).tolist() == [*(sum(k * (600 - k) for k in each) for each in by_bin), 0]


def test_noise_is_required_for_all_that_can_vary(city):
    counts, bound = city.counts, city.bound
    lattices = dict(calibrated_for(counts, bound, 2).lattices)
    for gone in (MEAN, VARIANCE):
        with pytest.raises(UsageError, match="moments are not complete"):
            moments_loss_per_user(counts, bound, {s: each for s, each in lattices.items() if s is not gone})
    for wrong in (0.0, np.nan, -1.0):
        bare = lattices[VARIANCE].scale.copy()
        bare[1] = wrong
        with pytest.raises(UsageError, match="too large"):
            moments_loss_per_user(
                counts, bound, {**lattices, VARIANCE: Lattice(bare, lattices[VARIANCE].spacing)}
            )


# the accounting


@pytest.mark.parametrize("variance", [5.0, 60.0, 72.0, 80.0, 90.0, 200.0])
def test_the_ratio_makes_the_worst_relative_noise_least(counts_of, bound_of, variance):
    counts, bound = counts_of([[1, 3, 0], [4, 4, 1], [2, 0, 2]]), bound_of(60, "1/100")
    accounting, wanted = accounting_for(counts, bound, (MEAN, VARIANCE), variance=variance)
    found = accounting.worst_relative_scale(1.0, wanted)
    for ratio in np.linspace(0.05, 3, 60):
        cost = (1 + ratio) ** 2 / (4 * ratio) if ratio < 1 else 1.0
        relative = cost * max(1.0, 60 * spread(ratio) / variance)
        equal = laplace_accountings(counts, bound, {MEAN: 1.0})[-1].factor
        assert found <= equal * relative * (1 + 1e-9)


def test_variances_are_free_where_their_tolerance_is_wide_enough(counts_of, bound_of):
    random = np.random.default_rng(3)
    counts = counts_of(random.poisson(1.5, (30, 12)) + np.eye(30, 12, dtype=int))
    bound = bound_of(60, "1/100")
    accounting, _ = accounting_for(counts, bound, (MEAN, VARIANCE), variance=1.5 * 60)
    means = laplace_accountings(counts, bound, {MEAN: 1.0})[-1]
    np.testing.assert_allclose(accounting.scales(2.0)[MEAN], means.scales(2.0)[MEAN], rtol=1e-12)
    assert accounting.ratio == 1
    calibrated = accounting.calibrate(counts, bound, PureDP.of(2))
    alone = means.calibrate(counts, bound, PureDP.of(2))
    np.testing.assert_array_equal(
        calibrated.event(counts, bound).loss_per_user, alone.event(counts, bound).loss_per_user
    )
    np.testing.assert_allclose(calibrated.lattices[MEAN].scale, alone.lattices[MEAN].scale, rtol=1e-9)


def test_at_equal_tolerances_both_cost_thirty_percent_more_than_means_alone(counts_of, bound_of):
    counts, bound = counts_of(np.ones((3, 20), dtype=int)), bound_of(60, "1/100")
    accounting, wanted = accounting_for(counts, bound, (MEAN, VARIANCE))
    alone = laplace_accountings(counts, bound, {MEAN: 1.0})[-1].factor
    assert accounting.worst_relative_scale(1.0, wanted) / alone == pytest.approx(1.30478, rel=1e-5)
    assert best_ratio(60, 1, 60) == LEAST_RATIO
    assert pytest.approx(1, abs=1e-15) == 2 * LEAST_RATIO**2 * (1 + LEAST_RATIO)
    assert laplace_accountings(counts, bound, wanted)[-1].worst_relative_scale(1.0, wanted) / alone > 1.9


@pytest.mark.parametrize("epsilon", ["0.001", "1", "4", "6"])
def test_a_round_request_is_charged_as_that_round_number(counts_of, bound_of, epsilon):
    random = np.random.default_rng(12)
    counts = counts_of(random.poisson(1.5, (60, 25)) + np.eye(60, 25, dtype=int))
    bound = bound_of(60, "1/10")
    calibrated = calibrated_for(counts, bound, epsilon, (MEAN, VARIANCE))
    assert str(calibrated.event(counts, bound).loss) == epsilon
