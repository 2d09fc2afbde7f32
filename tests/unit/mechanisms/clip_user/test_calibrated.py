"""Vehicles left out of bins: what they pay, what is said instead of them, and that intervals still hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from searching import examples
from small_city import plan_request

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.mechanisms.clip_user import (
    CalibratedSuppression,
    SuppressionAccounting,
    SuppressionRule,
    imputation,
    kept_counts,
)
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.planner.allocate import allocate
from trafficdp.privacy.loss import CHARGE_STEP, LossKind, PureDP
from trafficdp.sensitive import SensitiveInputs

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.0}
tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 5, 20]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=7,
    )
)
chosen = st.sampled_from([(MEAN,), (VEHICLE_MEAN,), (MEAN, VARIANCE), OF_MAPS])


def request_for(bound, epsilon, statistics):
    tolerance = {s: TOLERANCE[s] for s in statistics}
    return plan_request(bound, PureDP.of(epsilon), tolerance, accounting="clip_user")


def values_of(contributions):
    def nothing():
        raise AssertionError("single values are not needed")

    return SensitiveInputs(contributions, nothing)


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(tables, chosen, st.sampled_from(["0.3", "2", "40"]))
def test_the_charge_is_kept_covers_the_loss_and_is_found_again_from_what_is_published(
    contributions_of, bound_of, table, statistics, epsilon
):
    bound = bound_of(60, "1/10")
    city = contributions_of([[[3] * m for m in row] for row in table], bound)
    allocation = allocate(city.counts, request_for(bound, epsilon, statistics))
    assert allocation.chosen_accounting.name == "clip_user"
    charged = allocation.event.loss_per_user
    assert charged.max() <= PureDP.of(epsilon).pico
    measure = PrivacyMeter(SecureNoise(), charged, LossKind.PURE)
    facts = json.loads(json.dumps(allocation.calibrated.to_facts()))
    there = PublicFacts(city.counts, bound)
    assert CalibratedSuppression.from_facts(facts, there).to_facts() == allocation.calibrated.to_facts()
    estimates = allocation.calibrated.run(values_of(city), measure, interval_level=0.9)
    np.testing.assert_array_equal(-(-measure.spent // CHARGE_STEP) * CHARGE_STEP, charged)
    columns = {statistic: dict(each.noise) for statistic, each in estimates.items()}
    public = json.loads(json.dumps(allocation.calibrated.manifest_facts()))
    again = CalibratedSuppression.from_published(public, columns, there)
    np.testing.assert_array_equal(again.event().loss_per_user, charged)
    foreseen = allocation.calibrated.expected_errors()
    widths = allocation.calibrated.half_widths(0.9)
    for statistic, each in estimates.items():
        np.testing.assert_array_equal(each.expected_error, foreseen[statistic])
        assert np.all((each.low <= each.value) & (each.value <= each.high))
        if statistic is not VARIANCE:
            # a variance is kept below mean (U - mean), its interval is not
            assert np.all(each.high - each.value <= widths[statistic] * (1 + 1e-9) + 1e-9)
        assert np.all(each.expected_error <= statistic.largest(60.0))


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(tables, st.sampled_from([0.3, 2.0, 40.0]))
def test_leaving_out_is_never_worse_than_equal_noise_by_its_own_measure(counts_of, bound_of, table, epsilon):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    allocation = allocate(counts, request_for(bound, str(epsilon), (MEAN,)))
    equal, own = (
        accounting for accounting in allocation.accountings if accounting.name in ("equal", "clip_user")
    )
    worst = own.worst_relative_scale(epsilon, {MEAN: 1.0})
    assert worst <= equal.worst_relative_scale(epsilon, {MEAN: 1.0}) * (1 + 1e-9)
    # and the other way round: that error costs no more than epsilon
    assert own.epsilon_at(worst, {MEAN: 1.0}) <= epsilon * (1 + 1e-9)
    more = own.worst_relative_scale(epsilon * 1.5, {MEAN: 1.0})
    assert more <= worst


def test_a_heavy_vehicle_is_left_out_where_that_helps(counts_of, bound_of):
    # one vehicle with ten records in each of six bins, and in each forty others that drive nowhere else
    table = [[10] + [int(vehicle // 40 == place) for vehicle in range(240)] for place in range(6)]
    counts, bound = counts_of(table), bound_of(60, "1/10")
    accounting = SuppressionAccounting(counts, bound, {MEAN: 1.0})
    calibrated = accounting.calibrate(PureDP.of("0.5"))
    left_out = calibrated.suppressing.left_out
    assert len(left_out)
    assert set(counts.user_index[left_out].tolist()) == {0}
    plain = allocate(counts, replace(request_for(bound, "0.5", (MEAN,)), accounting="equal"))
    assert accounting.worst_relative_scale(0.5, {MEAN: 1.0}) < plain.chosen_accounting.worst_relative_scale(
        0.5, {MEAN: 1.0}
    )


def calibrated_without(left_out, counts, bound, scale):
    kept = np.ones(counts.pairs, dtype=bool)
    kept[left_out] = False
    rest = kept_counts(counts, kept)
    scales = np.full(rest.bins, scale)
    noise = LaplaceNoise(rest, bound, OF_MAPS, scales, np.ones(rest.bins), scales)
    suppressing = SuppressionRule(1.0, np.array(left_out))
    return CalibratedSuppression(PublicFacts(counts, bound), CalibratedLaplace.of(noise), suppressing)


def test_what_is_left_out_does_not_enter_and_counts_as_the_middle(contributions_of, bound_of):
    bound = bound_of(60, "1/10")
    values = [[[100, 200], [600, 600, 600], [50]]]
    city, other = (contributions_of(each, bound) for each in (values, [[[100, 200], [0, 17, 300], [50]]]))
    calibrated = calibrated_without([1], city.counts, bound, 0.01)
    found, again = (
        calibrated.run(values_of(each), SimulatedNoise(1), interval_level=0.9) for each in (city, other)
    )
    for statistic in OF_MAPS:
        np.testing.assert_allclose(found[statistic].value, again[statistic].value, atol=0.5)
    assert found[MEAN].value[0] == pytest.approx((10 + 20 + 5 + 3 * 30) / 6, abs=0.3)
    assert found[VEHICLE_MEAN].value[0] == pytest.approx((15 + 30 + 5) / 3, abs=0.3)
    assert found[VARIANCE].value[0] == pytest.approx(np.var([10, 20, 5]), abs=0.3)
    # the vehicle that is left out pays nothing
    losses = calibrated.event().loss_per_user
    assert losses[1] == 0
    assert np.all(losses[[0, 2]] > 0)


def statistic_of(statistic, parts):
    if statistic is VEHICLE_MEAN:
        return float(np.mean([np.mean(part) for part in parts]))
    joined = np.concatenate(parts)
    return float(joined.mean() if statistic is MEAN else joined.var())


@pytest.mark.parametrize("statistic", OF_MAPS)
def test_the_bias_is_the_worst_that_what_is_left_out_can_do(counts_of, bound_of, statistic):
    bound = bound_of(2)
    for table, out in (([[2, 1, 1]], [0]), ([[1, 2]], [0]), ([[1, 1, 1]], [1, 2])):
        counts = counts_of(table)
        kept = np.ones(counts.pairs, dtype=bool)
        kept[out] = False
        rest = kept_counts(counts, kept)
        by = imputation(statistic, counts, rest, bound)
        numbers = counts.count.tolist()
        ends = np.cumsum([0, *numbers])
        worst = 0.0
        for speeds in product((0.0, 1.0, 2.0), repeat=sum(numbers)):
            parts = [speeds[a:b] for a, b in pairwise(ends)]
            truth = statistic_of(statistic, parts)
            some = [part for part, stays in zip(parts, kept, strict=True) if stays]
            told = statistic_of(statistic, some) * by.share[0] + by.offset[0]
            worst = max(worst, abs(truth - told))
        assert by.bias[0] == pytest.approx(worst, abs=1e-12)


def test_intervals_hold_at_the_worst_bias(contributions_of, bound_of):
    bound, runs, level = bound_of(60, "1/10"), 20_000, 0.9
    one = contributions_of([[[300, 301], [599, 598, 600], [305]]], bound)
    counts = replace(
        one.counts,
        cell=np.arange(runs, dtype=np.uint64),
        slot=np.zeros(runs, dtype=np.int64),
        users_per_bin=np.full(runs, 3),
        user_index=np.tile([0, 1, 2], runs),
        count=np.tile(one.counts.count, runs),
    )
    city = replace(
        one,
        counts=counts,
        total=np.tile(one.total, runs),
        total_of_squares=np.tile(one.total_of_squares, runs),
    )
    calibrated = calibrated_without(np.arange(1, 3 * runs, 3), counts, bound, 4.0)
    found = calibrated.run(values_of(city), SimulatedNoise(5), interval_level=level)
    speeds = [np.array([30.0, 30.1]), np.array([59.9, 59.8, 60.0]), np.array([30.5])]
    truth = {
        MEAN: np.concatenate(speeds).mean(),
        VARIANCE: np.concatenate(speeds).var(),
        VEHICLE_MEAN: np.mean([each.mean() for each in speeds]),
    }
    for statistic, each in found.items():
        missed = int(((each.low > truth[statistic]) | (each.high < truth[statistic])).sum())
        assert stats.binom.sf(missed - 1, runs, 1 - level) > 1e-9, statistic
        error = np.abs(each.value - truth[statistic])
        assert error.mean() - 6 * error.std() / np.sqrt(runs) <= each.expected_error[0]


def test_pairs_that_do_not_fit_the_counts_are_refused(counts_of, bound_of):
    counts, bound = counts_of([[1, 2], [3, 1]]), bound_of(60)
    calibrated = calibrated_without([0], counts, bound, 5.0)
    for wrong in ([7], [-1], [0, 1]):
        with pytest.raises(UsageError, match="not pairs of these bins"):
            replace(calibrated, suppressing=SuppressionRule(1.0, np.array(wrong))).event()
    with pytest.raises(UsageError, match="unknown rule"):
        CalibratedSuppression.from_published({"rule": 1, "epsilon_per_bin": 1.0}, {}, calibrated.public)
