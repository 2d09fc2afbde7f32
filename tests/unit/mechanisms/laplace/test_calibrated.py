"""Laplace noise as it is drawn: it costs what is charged, and its numbers and intervals hold.

Laplace noise before it is on whole numbers: what it costs, how large it is, which is the cheapest.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.sets import record_price
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import (
    Baseline,
    CalibratedLaplace,
    LaplaceNoise,
    largest_sensitivity,
)
from trafficdp.mechanisms.protocol import PublicFacts, StatisticRequest, event_of
from trafficdp.mechanisms.two_moments import LEAST_RATIO, best_ratio, relative_price, spread
from trafficdp.model import OF_MAPS, NeighbouringRelation, Statistic
from trafficdp.noise.source import LARGEST_SCALE, SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import CHARGE_STEP, LossKind, PureDP
from trafficdp.sensitive import SensitiveInputs

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
small_tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=6,
    )
)
subsets = st.sets(st.sampled_from(OF_MAPS), min_size=1).map(lambda chosen: sorted(chosen))


def random_sizes(statistics, bins, seed):
    random = np.random.default_rng(seed)
    return {s: 10.0 ** random.uniform(-1, 4 + s.power, bins) for s in statistics}


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(table=small_tables, statistics=subsets, seed=st.integers(0, 2**32 - 1))
def test_the_planned_loss_is_the_one_that_is_charged_and_no_size_is_exceeded(
    counts_of, bound_of, table, statistics, seed
):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    allowed = random_sizes(statistics, counts.bins, seed)
    noise = LaplaceNoise.cheapest_within(counts, bound, allowed)
    charged = CalibratedLaplace.of(noise).event().loss_per_user / 1e12
    np.testing.assert_allclose(noise.loss(), charged, rtol=1e-9, atol=2 * CHARGE_STEP / 1e12)
    for statistic, size in noise.expected_noise().items():
        assert np.all(size <= allowed[statistic] * (1 + 1e-12))
    # a vehicle without records pays nothing and changes nothing
    ghost = LaplaceNoise.cheapest_within(counts_of([[*row, 0] for row in table]), bound, allowed).loss()
    np.testing.assert_array_equal(ghost, [*noise.loss(), 0])


@pytest.mark.parametrize("variance", [5.0, 60.0, 72.0, 80.0, 90.0, 200.0])
@pytest.mark.parametrize("mean", [1.0, np.inf])
def test_no_other_pair_of_noises_is_cheaper(counts_of, bound_of, mean, variance):
    counts, bound = counts_of([[2, 3]]), bound_of(60, "1/100")
    allowed = {s: t for s, t in ((MEAN, mean), (VARIANCE, variance)) if np.isfinite(t)}
    found = LaplaceNoise.cheapest_within(counts, bound, allowed).loss()[1]
    for ratio in np.linspace(0.05, 3, 119):
        scale = min(mean, variance / (60 * spread(ratio)))
        assert found <= 60 * 3 / 5 / scale * relative_price(bound.upper_steps, ratio) * (1 + 1e-9)


def test_what_cannot_be_said_without_noise_costs_without_end(counts_of, bound_of):
    counts, bound = counts_of([[2, 1], [1, 0]]), bound_of(60)
    for statistic in OF_MAPS:
        nothing = LaplaceNoise.cheapest_within(counts, bound, {statistic: np.zeros(2)})
        assert np.isinf(nothing.loss()[0])
    # but for the variance of one record
    alone = LaplaceNoise.cheapest_within(counts, bound, {VARIANCE: np.array([100.0, 0.0])})
    assert np.all(np.isfinite(alone.loss()))
    assert alone.expected_noise()[VARIANCE][1] == alone.errors()[VARIANCE][1] == alone.mean[1] == 0


@pytest.mark.parametrize("fraction", [0.0, 0.13, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("scale", [0.05, 1.0, 7.0, 60.0, 1e4])
def test_the_expected_error_is_a_bound_at_every_truth_and_attained_in_the_middle(
    counts_of, bound_of, scale, fraction
):
    upper, steps = 30.0, 3_000
    truth = round(fraction * steps)
    b = scale * steps / upper
    z = np.arange(-steps, steps + 1)
    law = stats.dlaplace(1 / b)
    inside = np.clip(truth + z, 0, steps)
    error = np.sum(law.pmf(z) * np.abs(inside - truth))
    error += law.cdf(-steps - 1) * truth + law.sf(steps) * (steps - truth)
    noise = LaplaceNoise.cheapest_within(counts_of([[1]]), bound_of(30), {MEAN: scale})
    stated = noise.errors()[MEAN][0]
    assert error * upper / steps <= stated * (1 + 1e-9)
    if fraction == 0.5:
        assert error * upper / steps == pytest.approx(stated, rel=0.05)


def test_expected_errors_saturate(counts_of, bound_of):
    counts, bound = counts_of([[2]] * 4), bound_of(30)
    sizes = np.array([1e-9, 1.0, 1e3, 1e100])
    errors = LaplaceNoise.cheapest_within(counts, bound, {MEAN: sizes}).errors()[MEAN]
    assert np.all(np.diff(errors) >= 0)
    assert errors[-1] == pytest.approx(15)
    spread_out = LaplaceNoise.cheapest_within(counts, bound, {VARIANCE: sizes}).errors()[VARIANCE]
    assert spread_out[-1] == pytest.approx(225)


# the ratio and the accountings
def test_the_price_of_a_pair_is_that_of_the_measurement():
    for ratio in (1.0, 1.5, 100.0):
        assert relative_price(6_000, ratio) == 1
    assert relative_price(6_000, 0.99) > 1
    for ratio in (0.1, 0.5652, 0.9):
        assert relative_price(10**6, ratio) == pytest.approx((1 + ratio) ** 2 / (4 * ratio), rel=1e-9)
        priced = record_price(60, np.array(8.0), np.array(ratio * 60 * 8.0)) * 8 / 60
        assert relative_price(60, ratio) == pytest.approx(float(priced), rel=1e-14)
    # with one step there is only the whole move
    assert relative_price(1, 0.01) == 1


def test_variances_are_free_where_their_tolerance_is_wide_enough(counts_of, bound_of):
    random = np.random.default_rng(3)
    counts = counts_of(random.poisson(1.5, (30, 12)) + np.eye(30, 12, dtype=int))
    bound = bound_of(60, "1/100")
    both, means = (
        laplace_accountings(counts, bound, tolerance)[-1]
        for tolerance in ({MEAN: 1.0, VARIANCE: 1.5 * 60}, {MEAN: 1.0})
    )
    np.testing.assert_allclose(both.scales(2.0)[MEAN], means.scales(2.0)[MEAN], rtol=1e-12)
    calibrated, alone = (each.calibrate(PureDP.of(2)) for each in (both, means))
    np.testing.assert_array_equal(calibrated.event().loss_per_user, alone.event().loss_per_user)
    np.testing.assert_allclose(calibrated.scale[MEAN], alone.scale[MEAN], rtol=1e-9)


def test_at_equal_tolerances_both_cost_thirty_percent_more_than_means_alone(counts_of, bound_of):
    counts, bound = counts_of(np.ones((3, 20), dtype=int)), bound_of(60, "1/100")
    wanted = {MEAN: 1.0, VARIANCE: 60.0}
    both, alone = (laplace_accountings(counts, bound, each)[-1] for each in (wanted, {MEAN: 1.0}))
    assert both.worst_relative_scale(1.0, wanted) / alone.factor == pytest.approx(1.30478, rel=1e-5)
    assert best_ratio(60, 1, 60) == LEAST_RATIO
    assert pytest.approx(1, abs=1e-15) == 2 * LEAST_RATIO**2 * (1 + LEAST_RATIO)


EVERY = OF_MAPS
TOLERANCE = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.5}
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 6), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)
sets = st.sets(st.sampled_from(OF_MAPS), min_size=1).map(lambda some: tuple(s for s in OF_MAPS if s in some))


def calibrated_for(counts, bound, epsilon, statistics=EVERY):
    equal = laplace_accountings(counts, bound, {s: TOLERANCE[s] for s in statistics})[-1]
    return equal.calibrate(PureDP.of(epsilon))


def calibrated_at(counts, bound, mean, ratio=LEAST_RATIO, statistics=(MEAN, VARIANCE), vehicle_mean=1.0):
    ones = np.ones(counts.bins)
    noise = LaplaceNoise(counts, bound, statistics, ones * mean, ones * ratio, ones * vehicle_mean)
    return CalibratedLaplace.of(noise)


def estimates_of(calibrated, contributions, measure, level=0.9):
    values = SensitiveInputs(contributions, lambda: None)
    return calibrated.run(values, measure, interval_level=level)


class Drawn:
    """Noise that is what it was told to be, in order."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def measure(self, step, values):
        return step.draw(self, values)

    def laplace(self, sums, scale):
        return sums + self.draws.pop(0)


def alike(contributions_of, bound, speeds, bins):
    """``bins`` bins, each with the same speeds of one vehicle."""
    one = contributions_of([[list(speeds)]], bound)
    counts = replace(
        one.counts,
        cell=np.arange(1, bins + 1, dtype=np.uint64),
        slot=np.zeros(bins, dtype=np.int64),
        users_per_bin=np.ones(bins, dtype=np.int64),
        user_index=np.zeros(bins, dtype=np.int64),
        count=np.full(bins, len(speeds)),
    )
    return replace(
        one,
        counts=counts,
        total=np.tile(one.total, bins),
        total_of_squares=np.tile(one.total_of_squares, bins),
    )


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(table=tables, epsilon=st.sampled_from(["0.01", "1", "7.3"]), statistics=sets)
def test_what_is_metered_is_what_is_charged_and_the_published_columns_say_it_too(
    contributions_of, bound_of, table, epsilon, statistics
):
    bound = bound_of(60, "1/10")
    values = contributions_of([[[1] * m for m in row] for row in table], bound)
    calibrated = calibrated_for(values.counts, bound, epsilon, statistics)
    charged = calibrated.event().loss_per_user
    assert charged.max() <= PureDP.of(epsilon).pico
    if statistics != (VARIANCE,) or values.counts.samples_per_bin.max() > 1:
        assert charged.max() >= PureDP.of(epsilon).pico * (1 - 1e-6)
    measure = PrivacyMeter(SecureNoise(), charged, LossKind.PURE)
    found = estimates_of(calibrated, values, measure)
    assert tuple(found) == statistics
    np.testing.assert_array_equal(-(-measure.spent // CHARGE_STEP) * CHARGE_STEP, charged)
    facts = json.loads(json.dumps(calibrated.to_facts()))
    assert CalibratedLaplace.from_facts(facts, calibrated.public).to_facts() == calibrated.to_facts()
    columns = {s: dict(e.noise) for s, e in found.items()}
    again = CalibratedLaplace.from_published(calibrated.manifest_facts(), columns, calibrated.public)
    assert again.to_facts() == calibrated.to_facts()


def test_tampered_columns_cost_more_or_are_refused(city):
    counts, bound = city.counts, city.bound

    def priced(statistics, statistic, name, change):
        calibrated = calibrated_for(counts, bound, 2, statistics)
        columns = {s: dict(e.noise) for s, e in estimates_of(calibrated, city, SimulatedNoise(1)).items()}
        columns[statistic][name] = change(columns[statistic].pop(name))
        if columns[statistic][name] is None:
            del columns[statistic][name]
        again = CalibratedLaplace.from_published({}, columns, calibrated.public)
        return again.event().loss_per_user, calibrated.event().loss_per_user

    for statistics, statistic, name in (
        (EVERY, MEAN, "lattice_scale"),
        (EVERY, VARIANCE, "product_scale"),
        (EVERY, VEHICLE_MEAN, "lattice_scale"),
        ((VARIANCE,), VARIANCE, "lattice_scale"),
        ((VARIANCE,), VARIANCE, "product_scale"),
    ):
        again, charged = priced(statistics, statistic, name, lambda values: values * 0.9)
        assert np.any(again > charged), name
        for wrong in (0.0, -1.0, np.nan):
            with pytest.raises(UsageError):
                priced(statistics, statistic, name, lambda values, wrong=wrong: values * wrong)
        with pytest.raises(UsageError, match="without its noise"):
            priced(statistics, statistic, name, lambda values: None)
    with pytest.raises(UsageError, match="without its noise"):
        priced((VARIANCE,), VARIANCE, "product_shift", lambda values: None)
    again, charged = priced((VARIANCE,), VARIANCE, "product_shift", lambda values: values + 1)
    assert np.any(again > charged)
    with pytest.raises(UsageError, match="do not fit"):
        priced((VARIANCE,), VARIANCE, "product_shift", lambda values: values + 100)


def test_the_event_states_the_whole_promise(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2]]), bound_of(60)
    event = calibrated_for(counts, bound, 1, (MEAN, VARIANCE)).event()
    assert event.mechanism == "baseline"
    assert event.relation is NeighbouringRelation.REPLACE_USER_VALUES
    assert event.statistics == (MEAN, VARIANCE)
    assert event.bins == 2
    assert not event.idealised
    assert {assumption.code for assumption in event.assumptions} >= {"counts_public", "validity_public"}
    assert event.loss.pico == event.loss_per_user.max() > 0
    np.testing.assert_allclose(event.sensitivity[MEAN], [45, 30])
    np.testing.assert_allclose(event.sensitivity[VARIANCE], [3600 * 4 / 16, 3600 * 4 / 16])
    assert largest_sensitivity(VEHICLE_MEAN, counts, bound).tolist() == [30, 30]


@pytest.mark.parametrize("statistics", [EVERY, (VARIANCE,), (VARIANCE, VEHICLE_MEAN)])
def test_without_noise_to_speak_of_the_numbers_are_the_statistics(city, statistics):
    calibrated = calibrated_for(city.counts, city.bound, 200_000, statistics)
    measure = PrivacyMeter(SecureNoise(), np.full(4, 10**18), LossKind.PURE)
    speeds = [[100, 310, 207, 599, 3, 18], [400, 222, 223, 17, 600, 333], [123]]
    truth = {
        MEAN: [np.mean(each) / 10 for each in speeds],
        VARIANCE: [np.var(each) / 100 for each in speeds],
        VEHICLE_MEAN: [(20.6 + 30.1 + 1.8) / 3, (40.0 + 22.2 + 31.7) / 3, 12.3],
    }
    for statistic, estimate in estimates_of(calibrated, city, measure).items():
        np.testing.assert_allclose(estimate.value, truth[statistic], atol=1 if statistic is VARIANCE else 0.1)


@pytest.mark.parametrize("away", [-(10**9), -50, 0, 50, 10**9])
def test_numbers_and_intervals_stay_in_their_range(away, contributions_of, bound_of):
    bound = bound_of(30)
    city = contributions_of([[[10, 20], [30]], [[0, 0], [0]], [[0, 30], [30]]], bound)
    calibrated = calibrated_at(city.counts, bound, 2.0, statistics=EVERY)
    found = estimates_of(calibrated, city, Drawn(away, away))
    for statistic, estimate in found.items():
        reach = statistic.largest(30.0)
        assert np.all((estimate.low >= 0) & (estimate.high <= reach))
        assert np.all((estimate.low <= estimate.value) & (estimate.value <= estimate.high))
    mean = found[MEAN].value
    assert np.all(found[VARIANCE].value <= mean * (30 - mean))


def test_the_published_error_includes_rounding_to_the_step(contributions_of, bound_of):
    city = contributions_of([[[1, 2], [3]]], bound_of(30, 10))
    calibrated = calibrated_at(city.counts, city.bound, 1e-3, statistics=EVERY, vehicle_mean=1e-3)
    errors = calibrated.expected_errors()
    assert errors[MEAN][0] >= 5
    assert errors[VEHICLE_MEAN][0] >= 10
    assert errors[VARIANCE][0] >= 30 * 10 / 2 + 25


@pytest.mark.parametrize("shift", [0, -2])
@pytest.mark.parametrize("level", [0.4, 0.9])
def test_intervals_hold_for_every_data_set_of_a_tiny_city(contributions_of, bound_of, level, shift):
    """Exhaustive: all speeds 0..4 of three records, all draws that matter, exact probabilities."""
    spacing = 2**-shift
    bound, scale, own = bound_of(4), 1.7, 5.2 / spacing
    reach = np.arange(-24, 25), np.arange(-60 // spacing, 60 // spacing + 1)
    first, second = (each.ravel() for each in np.meshgrid(*reach, indexing="ij"))
    chance = np.exp(-np.abs(first) / scale - np.abs(second) / own)
    chance *= np.tanh(1 / (2 * scale)) * np.tanh(1 / (2 * own))
    bins = len(first)
    scales = {MEAN: np.full(bins, scale), VARIANCE: np.full(bins, own)}
    worst, largest = 0.0, 0.0
    for speeds in combinations_with_replacement(range(5), 3):
        data = alike(contributions_of, bound, speeds, bins)
        public = PublicFacts(data.counts, bound)
        calibrated = CalibratedLaplace(public, (MEAN, VARIANCE), scales, np.full(bins, shift))
        found = estimates_of(calibrated, data, Drawn(np.concatenate([first, second])), level)[VARIANCE]
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
    calibrated = calibrated_at(data.counts, bound, share * 60)
    found = estimates_of(calibrated, data, SimulatedNoise(5), level)[VARIANCE]
    truth = np.var(speeds) / 100
    missed = int(((found.low > truth + 1e-9) | (found.high < truth - 1e-9)).sum())
    assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9


def test_much_narrower_intervals_would_be_caught(contributions_of, bound_of):
    """U really is the factor of the mean's noise where the mean is near an end."""
    bound, runs, level = bound_of(60, "1/10"), 8_000, 0.8
    data = alike(contributions_of, bound, [20] * 8, runs)
    calibrated = calibrated_at(data.counts, bound, 0.005 * 60)
    found = estimates_of(calibrated, data, SimulatedNoise(5), level)[VARIANCE]
    narrow = 0.6 * calibrated.half_widths(level)[VARIANCE]
    # one side is seen: a variance of 0 is never underestimated
    missed = int((found.value > narrow).sum())
    assert stats.binom.sf(missed - 1, runs, (1 - level) / 2) < 1e-9


# on whole numbers
@pytest.mark.parametrize("step", [1, "1/10", "3/10", "1/7", "1/1000"])
def test_scales_are_never_rounded_down(step, counts_of, bound_of):
    random = np.random.default_rng(1)
    counts, bound = counts_of(random.integers(0, 50, (40, 7)) + 1), bound_of(60, step)
    wanted = [10.0 ** random.uniform(-6, 3, counts.bins) for _ in range(2)]
    ratio = random.uniform(0.2, 2, counts.bins)
    drawn = CalibratedLaplace.of(LaplaceNoise(counts, bound, EVERY, wanted[0], ratio, wanted[1]))
    for statistic, scale in ((MEAN, wanted[0]), (VEHICLE_MEAN, wanted[1])):
        own = drawn.law(statistic).scale
        assert np.all((own >= scale * (1 - 1e-15)) & (own <= scale * (1 + 1e-14)))
    steps = np.ldexp(drawn.scale[VARIANCE], -drawn.shift)
    assert np.all(steps >= drawn.scale[MEAN] * bound.upper_steps * ratio * (1 - 1e-15))


@pytest.mark.parametrize("statistic", OF_MAPS)
@pytest.mark.parametrize("nothing", [0.0, -1.0, np.nan, 5e-324])
def test_a_statistic_that_can_vary_is_never_free(city, statistic, nothing):
    calibrated = calibrated_for(city.counts, city.bound, 2, (statistic,))
    for each in calibrated.scale:
        scale = calibrated.scale[each].copy()
        scale[1] = nothing
        bare = replace(calibrated, scale={**calibrated.scale, each: scale})
        with pytest.raises(UsageError, match="too large to account for"):
            bare.event()


@pytest.mark.parametrize("statistic", OF_MAPS)
@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_scales_that_are_no_numbers_are_refused(city, statistic, wrong):
    scale = np.array([1.0, wrong, 1.0])
    noise = LaplaceNoise(city.counts, city.bound, (statistic,), scale, np.ones(3), scale)
    with pytest.raises(UsageError, match="noise scale"):
        CalibratedLaplace.of(noise)


@pytest.mark.parametrize(("statistic", "scale"), [(MEAN, 1e15), (VEHICLE_MEAN, 1e16)])
def test_noise_that_could_not_be_drawn_is_refused_before_anything_is_charged(city, statistic, scale):
    with pytest.raises(UsageError, match=r"cannot be drawn exactly.*larger epsilon"):
        calibrated_at(city.counts, city.bound, scale, statistics=(statistic,), vehicle_mean=scale)


def test_huge_noise_of_products_is_drawn_on_a_coarser_lattice_and_never_less(bound_of, contributions_of):
    bound = bound_of(60, "3/50000")
    data = contributions_of([[[10**5] * 4, [10**6]]], bound)
    calibrated = calibrated_at(data.counts, bound, 1e7, 0.7)
    (shift,), (scale,) = calibrated.shift, calibrated.scale[VARIANCE]
    assert shift < 0
    assert scale <= LARGEST_SCALE
    assert scale * 2.0**-shift >= 0.7 * bound.upper_steps * calibrated.scale[MEAN][0]
    statement = calibrated.statement(VARIANCE)
    assert statement.worst_case_bias > publish.rounding_bias(VARIANCE, bound)
    found = estimates_of(calibrated, data, SimulatedNoise(1))[VARIANCE]
    assert 0 <= found.low[0] <= found.value[0] <= found.high[0] == 900


def test_sums_of_squares_that_could_leave_64_bits_are_refused(counts_of, bound_of):
    fine, huge = bound_of(1_000_000), counts_of([[9_000_000, 300_000]])
    with pytest.raises(UsageError, match="64 bits"):
        calibrated_at(huge, fine, 1.0).event()
    calibrated_at(huge, fine, 1.0, statistics=(MEAN,)).event()


def test_more_distinct_scales_than_can_be_drawn_fast_are_rounded_up_together(counts_of, bound_of):
    random = np.random.default_rng(2)
    counts, bound = counts_of(random.integers(1, 9, (6_000, 1))), bound_of(60)
    scale = random.uniform(1, 100, 6_000)
    drawn = calibrated_at(counts, bound, scale, statistics=(MEAN,)).scale[MEAN]
    wanted = scale * counts.samples_per_bin
    assert len(np.unique(drawn)) <= 8_000
    assert np.all((drawn >= wanted) & (drawn <= wanted * 1.002))


@pytest.mark.parametrize("statistic", OF_MAPS)
def test_the_baseline_costs_a_bins_largest_vehicle_its_epsilon(counts_of, bound_of, statistic):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2], [1, 0, 4]]), bound_of(60, "1/10")
    epsilon = np.array([0.5, 2.0, 7.0])
    for place in range(3):
        here = counts.select(np.arange(3) == place)
        event = event_of(Baseline(), StatisticRequest(here, bound, statistic, epsilon[place : place + 1]))
        assert event.loss.pico == pytest.approx(epsilon[place] * 1e12, rel=1e-9)
