"""Block noise as it is released: intervals that hold, errors that are bounds, a price anyone can compute.

Blocks as noise that can be drawn: charged as what was asked, metered to the last unit, wide as planned.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from searching import examples

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.mechanisms import means
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks, block_accounting
from trafficdp.mechanisms.blocks.noise import BlockNoise, calibrated_block_noise
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import Statistic
from trafficdp.noise.block import block_quantile
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import CHARGE_STEP, LossKind, PureDP
from trafficdp.sensitive import SensitiveInputs

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.5}
RELEASED = ((MEAN,), (VEHICLE_MEAN,), (MEAN, VEHICLE_MEAN), (MEAN, VARIANCE))
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.integers(0, 6), min_size=users, max_size=users).filter(any), min_size=1, max_size=6
    )
)


def accounting_for(counts, bound, statistics, variance=60.0):
    wanted = {**TOLERANCE, VARIANCE: variance}
    return block_accounting(counts, bound, {each: wanted[each] for each in statistics})


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    tables, st.sampled_from(RELEASED), st.sampled_from(["0.01", "1", "7.3"]), st.sampled_from([20.0, 200.0])
)
def test_a_round_epsilon_is_charged_as_just_that_and_metered_to_the_last_unit(
    contributions_of, bound_of, table, statistics, epsilon, variance
):
    bound = bound_of(60, "1/10")
    values = contributions_of([[[1] * m for m in row] for row in table], bound)
    counts, asked = values.counts, PureDP.of(epsilon)
    calibrated = accounting_for(counts, bound, statistics, variance).calibrate(asked)
    charged = calibrated.event().loss_per_user
    assert charged.max() == asked.pico
    meter = PrivacyMeter(SecureNoise(), charged, LossKind.PURE)
    found = calibrated.run(SensitiveInputs(values, lambda: None), meter, interval_level=0.9)
    assert tuple(found) == statistics
    # the charge is what was metered, up to its last step
    assert np.all((meter.spent <= charged) & (charged < meter.spent + CHARGE_STEP))


@pytest.mark.slow
@pytest.mark.parametrize("statistics", [(MEAN, VEHICLE_MEAN), (MEAN, VARIANCE)])
@pytest.mark.parametrize(
    ("epsilon", "slack"), [("0.000001", 6e-2), ("0.05", 2e-3), ("4", 2e-3), ("100", 2e-3), ("20000", 2e-3)]
)
def test_half_widths_are_as_planned_however_large_epsilon_is(counts_of, bound_of, statistics, epsilon, slack):
    random = np.random.default_rng(5)
    counts = counts_of(random.poisson(1.5, (40, 25)) + np.eye(40, 25, dtype=int))
    bound, asked = bound_of(60, "1/10"), PureDP.of(epsilon)
    accounting = accounting_for(counts, bound, statistics)
    noise = accounting.calibrate(asked).noise
    unit = np.concatenate([means.unit(each, counts, bound) for each in statistics])
    drawn = (noise.half_width * noise.scale * 2.0**-noise.shift * unit)[: len(accounting.blocks.block)]
    # units of pairs are planned a little dear: then all of them get a little less noise
    slack = 2 * slack if VARIANCE in statistics else slack
    np.testing.assert_allclose(drawn, accounting.half_widths(float(asked.exact)), rtol=slack)


@pytest.mark.slow
@pytest.mark.parametrize("statistics", [(MEAN,), (MEAN, VARIANCE)])
def test_what_is_drawn_errs_as_planned(contributions_of, bound_of, statistics):
    bound, runs = bound_of(65), 1_500
    city = contributions_of([[[30] * m for m in row] for row in ([3, 1, 0], [0, 2, 2], [1, 1, 4])], bound)
    counts = city.counts
    accounting = accounting_for(counts, bound, statistics)
    calibrated = accounting.calibrate(PureDP.of(1))
    (step,) = calibrated.steps()
    values = city.total if statistics == (MEAN,) else means.values_of(VARIANCE, city)
    exact = step.of.sums(values) * 2.0**step.shift
    unit = np.concatenate([means.unit(each, counts, bound) for each in statistics]) * 2.0**-step.shift
    drawn = np.array([SimulatedNoise(seed).measure(step, values) for seed in range(runs)])
    error = np.abs((drawn - exact) * unit).mean(axis=0)[: counts.bins]
    planned = accounting.scales(1.0)[MEAN]
    if statistics == (MEAN,):
        # golden
        np.testing.assert_allclose(planned, 65.0, rtol=1e-12)
    np.testing.assert_allclose(error, planned, rtol=0.15)


def test_bins_of_other_vehicles_cost_with_variances_what_laplace_noise_on_both_sums_does(counts_of, bound_of):
    counts = counts_of(np.kron(np.eye(4, dtype=int), np.ones((1, 5), dtype=int)))
    bound, wanted = bound_of(60, "1/100"), {MEAN: 1.0, VARIANCE: 60.0}
    means = laplace_accountings(counts, bound, {MEAN: 1.0})[-1].worst_relative_scale(1.0, {MEAN: 1.0})
    found = accounting_for(counts, bound, (MEAN, VARIANCE)).worst_relative_scale(1.0, wanted)
    # at t_var = U t_mean 1.3048 times the means alone; the best c of a few, and sizes of sums by a bound
    assert 1.3047 * means <= found <= 1.3048 * means * 1.005


def test_bins_of_the_same_vehicles_gain(counts_of, bound_of):
    counts, bound = counts_of(np.ones((6, 9), dtype=int)), bound_of(60, "1/100")
    accounting = accounting_for(counts, bound, (MEAN, VARIANCE))
    means = laplace_accountings(counts, bound, {MEAN: 1.0})[-1].worst_relative_scale(1.0, {MEAN: 1.0})
    assert accounting.worst_relative_scale(1.0, {MEAN: 1.0, VARIANCE: 60.0}) < 0.8 * 1.3048 * means
    errors = [accounting.errors(epsilon)[VARIANCE][0] for epsilon in (0.1, 1.0, 10.0, 100.0)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == 900


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(tables, st.sampled_from([0.1, 1.0, 4.0]))
def test_more_epsilon_never_errs_more_and_a_larger_range_never_less(counts_of, bound_of, table, epsilon):
    counts = counts_of(table)
    small, large = (accounting_for(counts, bound_of(upper), (MEAN,)) for upper in (60, 120))
    assert large.blocks.factor == pytest.approx(2 * small.blocks.factor)
    one, more = (small.errors(each)[MEAN] for each in (epsilon, 2 * epsilon))
    assert np.all(more <= one)
    assert np.all(one <= large.errors(epsilon)[MEAN] * (1 + 1e-12))
    assert np.all(one <= 30)


def test_noise_that_cannot_be_drawn_exactly_is_refused(counts_of, bound_of):
    counts, bound = counts_of([[3, 1, 0], [0, 2, 2]]), bound_of(65)
    of, block = means.box_of(Statistic.MEAN, counts, bound), np.zeros(2, dtype=np.int64)
    for width in (1e-30, 1e30, np.nan):
        with pytest.raises(UsageError, match="cannot be drawn exactly"):
            calibrated_block_noise(of, block, np.full(2, width), PureDP.of(1))
    with pytest.raises(UsageError, match="no noise fits"):
        calibrated_block_noise(of, block, np.full(2, 9.0), PureDP.of("1e-12"))


MEANS, PAIRS = (MEAN, VEHICLE_MEAN), (MEAN, VARIANCE)


def calibrated_for(counts, bound, epsilon, statistics):
    accounting = block_accounting(counts, bound, {s: TOLERANCE[s] for s in statistics})
    return accounting.calibrate(PureDP.of(epsilon))


def published(estimates):
    return {statistic: dict(estimate.noise) for statistic, estimate in estimates.items()}


def estimates_of(calibrated, contributions, noise, level=0.9):
    values = SensitiveInputs(contributions, lambda: None)
    return calibrated.run(values, noise, interval_level=level)


def unmetered():
    return PrivacyMeter(SecureNoise(), np.full(4, 10**18), LossKind.PURE)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(tables, st.sampled_from(["0.01", "1", "7.3"]), st.sampled_from([(MEAN,), MEANS, PAIRS]))
def test_facts_and_published_columns_price_the_release_alike(
    contributions_of, bound_of, table, epsilon, statistics
):
    bound = bound_of(60, "1/10")
    values = contributions_of([[[1] * m for m in row] for row in table], bound)
    calibrated = calibrated_for(values.counts, bound, epsilon, statistics)
    charged = calibrated.event().loss_per_user
    facts = json.loads(json.dumps(calibrated.to_facts()))
    assert CalibratedBlocks.from_facts(facts, calibrated.public).to_facts() == calibrated.to_facts()
    columns = published(estimates_of(calibrated, values, SimulatedNoise(1)))
    again = CalibratedBlocks.from_published(calibrated.manifest_facts(), columns, calibrated.public)
    assert again.to_facts() == calibrated.to_facts()
    np.testing.assert_array_equal(again.event().loss_per_user, charged)


@pytest.mark.parametrize("statistics", [MEANS, PAIRS])
def test_tampered_columns_cost_more_or_are_refused(city, statistics):
    counts, bound = city.counts, city.bound
    calibrated = calibrated_for(counts, bound, 2, statistics)
    charged = calibrated.event().loss_per_user

    def priced(statistic, name, change):
        columns = published(estimates_of(calibrated, city, SimulatedNoise(1)))
        columns[statistic][name] = change(columns[statistic].pop(name))
        if columns[statistic][name] is None:
            del columns[statistic][name]
        again = CalibratedBlocks.from_published({"kind": "blocks"}, columns, calibrated.public)
        return again.event().loss_per_user

    second = statistics[1]
    own = "product_" if second is VARIANCE else ""
    for statistic, name in ((MEAN, "half_width"), (MEAN, "block_scale"), (second, f"{own}half_width")):
        if name != "block_scale" or second is VARIANCE:
            assert np.any(priced(statistic, name, lambda values: values / 2) > charged), name
        with pytest.raises(UsageError, match="without its block noise"):
            priced(statistic, name, lambda values: None)
    assert np.any(priced(second, f"{own}shift", lambda values: values + 3) > charged)
    for statistic, name in ((MEAN, "block"), (second, f"{own}block")):
        with pytest.raises(
            UsageError, match=r"not those of the bins|in the blocks of their means|has no noise"
        ):
            priced(statistic, name, lambda values: values * 0 - 1)
    with pytest.raises(UsageError, match="several scales"):
        priced(MEAN, "block_scale", lambda values: values * [2, 1, 1])
    with pytest.raises(UsageError, match="out of range"):
        priced(MEAN, "half_width", lambda values: values * 0)
    # of other bins
    short = CalibratedBlocks.from_published(
        {},
        {
            s: {n: v[:2] for n, v in c.items()}
            for s, c in published(estimates_of(calibrated, city, SimulatedNoise(1))).items()
        },
        calibrated.public,
    )
    with pytest.raises(UsageError, match="do not fit"):
        short.event()


def test_without_noise_to_speak_of_the_numbers_are_the_statistics(city):
    speeds = [[100, 310, 207, 599, 3, 18], [400, 222, 223, 17, 600, 333], [123]]
    means = [np.mean(each) / 10 for each in speeds]
    for statistics in (MEANS, PAIRS):
        calibrated = calibrated_for(city.counts, city.bound, 200_000, statistics)
        estimates = estimates_of(calibrated, city, unmetered())
        np.testing.assert_allclose(estimates[MEAN].value, means, atol=0.02)
        if VARIANCE in statistics:
            variances = [np.var(each) / 100 for each in speeds]
            np.testing.assert_allclose(estimates[VARIANCE].value, variances, atol=1)
        else:
            by_vehicle = [(20.6 + 30.1 + 1.8) / 3, (40.0 + 22.2 + 31.7) / 3, 12.3]
            np.testing.assert_allclose(estimates[VEHICLE_MEAN].value, by_vehicle, atol=0.1)


def many(contributions, bins):
    """A bin of ``contributions``, whose only one it is, ``bins`` times, with the same vehicles."""
    one = contributions.counts
    counts = replace(
        one,
        cell=np.arange(1, bins + 1, dtype=np.uint64),
        slot=np.zeros(bins, dtype=np.int64),
        users_per_bin=np.full(bins, one.pairs),
        user_index=np.tile(one.user_index, bins),
        count=np.tile(one.count, bins),
    )
    total, squares = (np.tile(each, bins) for each in (contributions.total, contributions.total_of_squares))
    return replace(contributions, counts=counts, total=total, total_of_squares=squares)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("size", "scale", "shift"), [(1, 1.7, 0), (2, 9.5, 3), (5, 1.2, 0), (12, 40.25, -2)])
def test_intervals_of_blocks_hold_as_often_as_they_say(contributions_of, bound_of, size, scale, shift, level):
    runs = 6_000
    bins = size * runs
    # a speed far from both ends, 100 records of two vehicles
    city = many(contributions_of([[[30_000] * 50, [30_001] * 50]], bound_of(6_000, "1/10")), bins)
    noise = BlockNoise(np.arange(bins) // size, np.full(bins, 700), np.full(bins, shift), scale)
    # of every block one statistic is looked at, so that the trials are independent
    calibrated = CalibratedBlocks(PublicFacts(city.counts, city.bound), (MEAN,), noise)
    estimate = estimates_of(calibrated, city, SimulatedNoise(3), level)[MEAN]
    seen = np.arange(0, bins, size)
    truth = 3_000.05
    rounding = rounding_bias(MEAN, city.bound)
    missed = int(((estimate.low > truth) | (estimate.high < truth))[seen].sum())
    assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9
    if scale > 5:
        # and intervals for two thirds of the noise would be caught
        half = (estimate.high - estimate.low) / 2 * 0.66
        missed = int((np.abs(estimate.value - truth) > half)[seen].sum())
        assert stats.binom.sf(missed - 1, runs, 1 - level) < 1e-9
        # no wider than the lattice and rounding make them
        step = 2.0**-shift / 1_000
        smooth = 700 * scale * block_quantile(np.array([size]), level)[0] * step
        assert estimate.high[0] - estimate.value[0] <= smooth + 701 * step + rounding + 1e-9


@pytest.mark.parametrize("speeds", [[20] * 8, [0] * 4 + [600] * 4, [300] * 8, [5, 100, 301, 480] * 2])
@pytest.mark.parametrize("size", [1, 3])
def test_intervals_of_variances_hold_as_often_as_they_say(contributions_of, bound_of, speeds, size):
    bound, runs, level = bound_of(60, "1/10"), 4_000, 0.8
    bins = size * runs
    data = many(contributions_of([[speeds]], bound), bins)
    block, four = np.arange(bins) // size, np.full(2 * bins, 4)
    noise = BlockNoise(np.concatenate([block, runs + block]), np.repeat([40, 40 * 360], bins), four, 9.5)
    calibrated = CalibratedBlocks(PublicFacts(data.counts, bound), PAIRS, noise)
    found = estimates_of(calibrated, data, SimulatedNoise(7), level)[VARIANCE]
    # of every block one bin is looked at, so that the trials are independent
    seen = np.arange(0, bins, size)
    truth = np.var(speeds) / 100
    missed = int(((found.low > truth + 1e-9) | (found.high < truth - 1e-9))[seen].sum())
    assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9
    if speeds[0] == speeds[-1] == 20:
        # U really is the factor near an end: an interval of 0.6 of the width would be caught, on its one side
        narrow = 0.6 * calibrated.half_widths(level)[VARIANCE]
        missed = int((found.value > narrow)[seen].sum())
        assert stats.binom.sf(missed - 1, runs, (1 - level) / 2) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("size", "epsilon"), [(1, 0.5), (2, 3.0), (6, 0.5)])
def test_expected_errors_of_blocks_are_bounds_and_near(contributions_of, bound_of, size, epsilon):
    runs, bound = 20_000, bound_of(60, "1/10")
    # all speeds in the middle, where noise errs most
    city = contributions_of([[[300] * 2, [300] * 2]] * size, bound)
    calibrated = calibrated_for(city.counts, bound, epsilon, (MEAN,))
    assert set(calibrated.noise.block.tolist()) == {0}
    copies = runs // size
    tiled = {name: np.tile(getattr(calibrated.noise, name), copies) for name in ("half_width", "shift")}
    block = np.arange(size * copies) // size
    noise = BlockNoise(block=block, scale=calibrated.noise.scale, **tiled)
    one = contributions_of([[[300] * 2, [300] * 2]], bound)
    data = many(one, size * copies)
    calibrated = CalibratedBlocks(PublicFacts(data.counts, bound), (MEAN,), noise)
    found = estimates_of(calibrated, data, SimulatedNoise(4))[MEAN]
    error = np.abs(found.value - 30)
    mean, slack = error.mean(), 6 * error.std() / np.sqrt(len(error) / size)
    noise_error = found.expected_error[0] - rounding_bias(MEAN, bound)
    assert mean - slack <= noise_error <= mean + slack


@pytest.mark.slow
def test_relabelled_vehicles_pay_the_same(counts_of, bound_of):
    random = np.random.default_rng(3)
    table = random.poisson(1.2, (12, 9)) + np.eye(12, 9, dtype=int)
    order = random.permutation(9)
    bound = bound_of(60, "1/10")
    for statistics in (MEANS, PAIRS):
        losses = []
        for each in (table, table[:, order]):
            counts = counts_of(each)
            calibrated = calibrated_for(counts, bound, 1, statistics)
            losses.append(calibrated.event().loss_per_user)
        np.testing.assert_array_equal(losses[0][order], losses[1])


def test_products_are_drawn_in_the_blocks_of_their_means(city):
    calibrated = calibrated_for(city.counts, city.bound, 2, PAIRS)
    apart = calibrated.noise.block.copy()
    apart[:3], apart[3:] = [0, 0, 1], [2, 3, -1]
    with pytest.raises(UsageError, match="in the blocks of their means"):
        replace(calibrated, noise=replace(calibrated.noise, block=apart)).event()
