"""Blocks as noise that can be drawn: charged as what was asked, metered to the last unit, wide as planned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import Metered
from trafficdp.mechanisms import sums
from trafficdp.mechanisms.blocks.accounting import block_accounting
from trafficdp.mechanisms.blocks.noise import fitted
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.model import Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.privacy.loss import CHARGE_STEP, LossKind, PureDP
from trafficdp.sensitive.values import Values

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
@settings(max_examples=60)
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
    meter = Metered(SecureNoise(), charged, LossKind.PURE)
    found = calibrated.run(Values(values, lambda: None), meter, interval_level=0.9)
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
    unit = np.concatenate([sums.unit(each, counts, bound) for each in statistics])
    drawn = (noise.half_width * noise.scale * 2.0**-noise.shift * unit)[: len(accounting.blocks.block)]
    # units of pairs are planned a little dear: then all of them get a little less noise
    slack = 2 * slack if VARIANCE in statistics else slack
    np.testing.assert_allclose(drawn, accounting.half_widths(float(asked.epsilon)), rtol=slack)


@pytest.mark.slow
@pytest.mark.parametrize("statistics", [(MEAN,), (MEAN, VARIANCE)])
def test_what_is_drawn_errs_as_planned(contributions_of, bound_of, statistics):
    bound, runs = bound_of(65), 1_500
    city = contributions_of([[[30] * m for m in row] for row in ([3, 1, 0], [0, 2, 2], [1, 1, 4])], bound)
    counts = city.counts
    accounting = accounting_for(counts, bound, statistics)
    calibrated = accounting.calibrate(PureDP.of(1))
    (step,) = calibrated.steps()
    values = city.total if statistics == (MEAN,) else sums.values_of(VARIANCE, city)
    exact = step.of.sums(values) * 2.0**step.shift
    unit = np.concatenate([sums.unit(each, counts, bound) for each in statistics]) * 2.0**-step.shift
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
@settings(max_examples=60)
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
    of, block = sums.speeds(counts, bound), np.zeros(2, dtype=np.int64)
    for width in (1e-30, 1e30, np.nan):
        with pytest.raises(UsageError, match="cannot be drawn exactly"):
            fitted(of, block, np.full(2, width), PureDP.of(1))
    with pytest.raises(UsageError, match="no noise fits"):
        fitted(of, block, np.full(2, 9.0), PureDP.of("1e-12"))
