"""Laplace noise before it is on whole numbers: what it costs, how large it is, which is the cheapest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trafficdp.measurement.sets import record_price
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.mechanisms.laplace.noise import LaplaceNoise
from trafficdp.mechanisms.pairs import LEAST_RATIO, best_ratio, relative_price, spread
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.privacy.loss import CHARGE_STEP, PureDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, 40]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=6,
    )
)
sets = st.sets(st.sampled_from(OF_MAPS), min_size=1).map(lambda chosen: sorted(chosen))


def random_sizes(statistics, bins, seed):
    random = np.random.default_rng(seed)
    return {s: 10.0 ** random.uniform(-1, 4 + s.power, bins) for s in statistics}


@pytest.mark.slow
@settings(max_examples=60)
@given(table=tables, statistics=sets, seed=st.integers(0, 2**32 - 1))
def test_the_planned_loss_is_the_one_that_is_charged_and_no_size_is_exceeded(
    counts_of, bound_of, table, statistics, seed
):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    allowed = random_sizes(statistics, counts.bins, seed)
    noise = LaplaceNoise.within(counts, bound, allowed)
    charged = CalibratedLaplace.of(noise).event().loss_per_user / 1e12
    np.testing.assert_allclose(noise.loss(), charged, rtol=1e-9, atol=2 * CHARGE_STEP / 1e12)
    for statistic, size in noise.sizes().items():
        assert np.all(size <= allowed[statistic] * (1 + 1e-12))
    # a vehicle without records pays nothing and changes nothing
    ghost = LaplaceNoise.within(counts_of([[*row, 0] for row in table]), bound, allowed).loss()
    np.testing.assert_array_equal(ghost, [*noise.loss(), 0])


@pytest.mark.parametrize("variance", [5.0, 60.0, 72.0, 80.0, 90.0, 200.0])
@pytest.mark.parametrize("mean", [1.0, np.inf])
def test_no_other_pair_of_noises_is_cheaper(counts_of, bound_of, mean, variance):
    counts, bound = counts_of([[2, 3]]), bound_of(60, "1/100")
    allowed = {s: t for s, t in ((MEAN, mean), (VARIANCE, variance)) if np.isfinite(t)}
    found = LaplaceNoise.within(counts, bound, allowed).loss()[1]
    for ratio in np.linspace(0.05, 3, 119):
        scale = min(mean, variance / (60 * spread(ratio)))
        assert found <= 60 * 3 / 5 / scale * relative_price(bound.steps, ratio) * (1 + 1e-9)


def test_what_cannot_be_said_without_noise_costs_without_end(counts_of, bound_of):
    counts, bound = counts_of([[2, 1], [1, 0]]), bound_of(60)
    for statistic in OF_MAPS:
        nothing = LaplaceNoise.within(counts, bound, {statistic: np.zeros(2)})
        assert np.isinf(nothing.loss()[0])
    # but for the variance of one record
    alone = LaplaceNoise.within(counts, bound, {VARIANCE: np.array([100.0, 0.0])})
    assert np.all(np.isfinite(alone.loss()))
    assert alone.sizes()[VARIANCE][1] == alone.errors()[VARIANCE][1] == alone.mean[1] == 0


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
    noise = LaplaceNoise.within(counts_of([[1]]), bound_of(30), {MEAN: scale})
    stated = noise.errors()[MEAN][0]
    assert error * upper / steps <= stated * (1 + 1e-9)
    if fraction == 0.5:
        assert error * upper / steps == pytest.approx(stated, rel=0.05)


def test_expected_errors_saturate(counts_of, bound_of):
    counts, bound = counts_of([[2]] * 4), bound_of(30)
    sizes = np.array([1e-9, 1.0, 1e3, 1e100])
    errors = LaplaceNoise.within(counts, bound, {MEAN: sizes}).errors()[MEAN]
    assert np.all(np.diff(errors) >= 0)
    assert errors[-1] == pytest.approx(15)
    spread_out = LaplaceNoise.within(counts, bound, {VARIANCE: sizes}).errors()[VARIANCE]
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
