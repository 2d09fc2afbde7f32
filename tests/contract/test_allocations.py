"""What every allocation keeps: never above the request, nearly all of it used, more never means worse."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples
from small_city import plan_request

from trafficdp.errors import UsageError
from trafficdp.mechanisms.blocks.calibrated import blocks_can_release
from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace, LaplaceNoise
from trafficdp.mechanisms.names import ACCOUNTINGS, BY_NAME
from trafficdp.mechanisms.registry import all_accountings
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.planner.allocate import BLOCK_GAIN_TOLERANCE, allocate
from trafficdp.planner.allocation import floor_of_equal_scales
from trafficdp.pricing import check_steps
from trafficdp.privacy.loss import CHARGE_STEP, PureDP

BOTH = (Statistic.MEAN, Statistic.VARIANCE)
TOLERANCES = {Statistic.MEAN: 1.0, Statistic.VARIANCE: 60.0, Statistic.VEHICLE_MEAN: 1.0}
tables = st.integers(1, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 0, 1, 2, 3, 7, 40]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=8,
    )
)
sets = st.sets(st.sampled_from(OF_MAPS), min_size=1).map(lambda chosen: sorted(chosen))
# few digits, and all twelve
epsilons = st.one_of(
    st.floats(-6, 3).map(lambda power: f"{10.0**power:.3e}"),
    st.floats(-6, 3).map(lambda power: f"{10.0**power:.12f}"),
)
accountings = st.sampled_from([*BY_NAME, "best"])


def asked_of(accounting, statistics):
    """The statistics that ``accounting`` may be asked to release: mean and variance, or means alone."""
    if accounting == "blocks" and not blocks_can_release(statistics):
        return sorted(BOTH)
    return statistics


def request_for(bound, epsilon, statistics, accounting="best"):
    tolerance = {s: TOLERANCES[s] for s in statistics}
    return plan_request(bound, PureDP.of(epsilon), tolerance, accounting=accounting)


def noise_of(allocation, statistic):
    return allocation.calibrated.statement(statistic).noise_scale


def can_vary(table, statistics):
    return any(s is not Statistic.VARIANCE for s in statistics) or any(sum(row) > 1 for row in table)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(table=tables, epsilon=epsilons, statistics=sets, accounting=accountings)
def test_the_charge_never_exceeds_the_request(counts_of, bound_of, table, epsilon, statistics, accounting):
    request = request_for(bound_of(60, "1/10"), epsilon, asked_of(accounting, statistics), accounting)
    allocation = allocate(counts_of(table), request)
    assert allocation.loss <= request.loss
    np.testing.assert_array_equal(
        allocation.event.loss_per_user,
        allocation.calibrated.event().loss_per_user,
    )
    check_steps(allocation.calibrated.steps(), allocation.event.loss_per_user)


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(
    table=tables,
    epsilon=epsilons,
    statistics=sets,
    accounting=st.sampled_from(["exact", "equal", "blocks", "clip_user", "best"]),
)
def test_sharp_accountings_use_nearly_all_of_the_request(
    counts_of, bound_of, table, epsilon, statistics, accounting
):
    statistics = asked_of(accounting, statistics)
    if not can_vary(table, statistics):
        return
    request = request_for(bound_of(60, "1/10"), epsilon, statistics, accounting)
    allocation = allocate(counts_of(table), request)
    # a charge is a whole number of 10^-9, so that requests of 10^-6 may lose a thousandth
    least = Fraction(999, 1000) * request.loss.exact - Fraction(2, 10**9)
    assert least <= allocation.loss.exact


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", ["0.001", "0.1", "1", "4", "6", "100"])
def test_a_round_request_is_charged_as_that_round_number(counts_of, bound_of, epsilon):
    random = np.random.default_rng(12)
    counts = counts_of(random.poisson(1.5, (60, 25)) + np.eye(60, 25, dtype=int))
    request = request_for(bound_of(60, "1/10"), epsilon, [Statistic.MEAN, Statistic.VARIANCE])
    assert str(allocate(counts, request).loss) == epsilon


@pytest.mark.parametrize("epsilon", ["0.919763480995", "2.808487163994", "0.49151938699", "1.000000000999"])
def test_a_request_between_two_charges_is_charged_as_the_lower(counts_of, bound_of, epsilon):
    counts = counts_of([[1, 1, 3, 3, 9], [0, 2, 2, 9, 9]])
    request = request_for(bound_of(60, "1/10"), epsilon, [Statistic.MEAN, Statistic.VARIANCE])
    expected = request.loss.pico // CHARGE_STEP * CHARGE_STEP
    assert allocate(counts, request).loss.pico == expected


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(table=tables, epsilon=epsilons, statistics=sets)
def test_each_accounting_is_no_worse_than_the_one_before_and_the_best_is_chosen(
    counts_of, bound_of, table, epsilon, statistics
):
    request = request_for(bound_of(60), epsilon, statistics)
    allocation = allocate(counts_of(table), request)
    worst = {
        accounting.name: accounting.worst_relative_scale(float(request.loss.exact), request.tolerance)
        for accounting in allocation.accountings
    }
    assert worst["equal"] <= worst["exact"] * (1 + 1e-12)
    assert worst["exact"] <= worst["grid_count"] * (1 + 1e-12)
    assert worst["grid_count"] <= worst["basic"]
    if Statistic.VARIANCE not in statistics:
        assert worst["blocks"] <= worst["equal"] * (1 + 1e-12)
    assert worst[allocation.chosen_accounting.name] <= min(worst.values()) * (1 + BLOCK_GAIN_TOLERANCE)
    # and Laplace noise unless there is something to gain
    name = allocation.chosen_accounting.name
    assert name != "blocks" or worst[name] * (1 + BLOCK_GAIN_TOLERANCE) < worst["equal"]
    assert blocks_can_release(statistics) == ("blocks" in worst)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(table=tables, statistics=sets, epsilon=epsilons)
def test_no_accounting_claims_less_than_its_scales_cost(counts_of, bound_of, table, statistics, epsilon):
    counts, bound = counts_of(table), bound_of(60, "1/10")
    claimed = float(PureDP.of(epsilon).exact)
    for accounting in laplace_accountings(counts, bound, {s: TOLERANCES[s] for s in statistics}):
        event = CalibratedLaplace.of(accounting.noise(claimed)).event()
        charged = event.loss.pico / 1e12
        assert charged <= claimed * (1 + 1e-9) + 3e-9, accounting.name
        if accounting.name in ("exact", "equal") and can_vary(table, statistics):
            assert charged >= claimed * (1 - 1e-9)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(table=tables, statistics=sets, accounting=st.sampled_from([*ACCOUNTINGS, "best"]))
def test_more_epsilon_never_means_more_error(counts_of, bound_of, table, statistics, accounting):
    statistics = asked_of(accounting, statistics)
    counts, bound = counts_of(table), bound_of(60, "1/10")
    errors = [
        allocate(counts, request_for(bound, epsilon, statistics, accounting)).errors()
        for epsilon in ("0.01", "0.5", "0.500001", "1", "30")
    ]
    for less, more in pairwise(errors):
        for statistic in statistics:
            assert np.all(more[statistic] <= less[statistic])


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(table=tables, statistics=sets, epsilon=epsilons)
def test_a_larger_speed_bound_never_means_less_noise(counts_of, bound_of, table, statistics, epsilon):
    counts = counts_of(table)
    for accounting in ACCOUNTINGS:
        # half widths of blocks are rounded
        slack = 2e-2 if "blocks" in accounting else 1e-6
        wanted = asked_of(accounting, statistics)
        small, large = (
            allocate(counts, request_for(bound_of(upper), epsilon, wanted, accounting)) for upper in (30, 60)
        )
        for s in wanted:
            scales = [noise_of(allocation, s) for allocation in (small, large)]
            assert np.all(scales[1] >= scales[0] * (1 - slack)), (accounting, s)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(table=tables, statistics=sets, accounting=st.sampled_from(BY_NAME))
def test_the_worst_error_falls_with_epsilon_and_grows_with_the_speed_bound(
    counts_of, bound_of, table, statistics, accounting
):
    """Every accounting by its own measure, Clip-User's bias included, whose single bins may go either way."""
    counts, statistics = counts_of(table), asked_of(accounting, statistics)

    def worst(upper, epsilon):
        request = request_for(bound_of(upper, "1/10"), epsilon, statistics, accounting)
        every = all_accountings(counts, request.bound, request.tolerance, accounting=accounting)
        (own,) = (each for each in every if each.name == accounting)
        return own.worst_relative_scale(float(request.loss.exact), request.tolerance)

    assert worst(60, "2") <= worst(60, "1") * (1 + 1e-9)
    assert worst(30, "1") <= worst(60, "1") * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(table=tables, epsilon=epsilons, statistics=sets, seed=st.integers(0, 2**32 - 1))
def test_names_of_vehicles_and_bins_do_not_change_an_allocation(
    counts_of, bound_of, table, epsilon, statistics, seed
):
    random = np.random.default_rng(seed)
    rows, columns = random.permutation(len(table)), random.permutation(len(table[0]))
    other = np.array(table)[np.ix_(rows, columns)]
    request = request_for(bound_of(60, "1/10"), epsilon, statistics)
    here, there = allocate(counts_of(table), request), allocate(counts_of(other), request)
    losses = [sorted(a.event.loss_per_user.tolist()) for a in (here, there)]
    # floats are added in another order: the last of 10^-9 may differ
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9, atol=2_000)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(table=tables, epsilon=epsilons, statistics=sets)
def test_a_vehicle_without_records_does_not_change_an_allocation(
    counts_of, bound_of, table, epsilon, statistics
):
    request = request_for(bound_of(60, "1/10"), epsilon, statistics)
    here = allocate(counts_of(table), request)
    there = allocate(counts_of([[*row, 0] for row in table]), request)
    assert there.event.loss_per_user[-1] == 0
    np.testing.assert_array_equal(there.event.loss_per_user[:-1], here.event.loss_per_user)
    for s in statistics:
        np.testing.assert_array_equal(noise_of(here, s), noise_of(there, s))


@settings(max_examples=examples(60))
@given(table=tables, epsilon=st.sampled_from([0.1, 1.0, 7.0]))
def test_no_equal_scales_go_below_the_public_floor(counts_of, bound_of, table, epsilon):
    counts, bound = counts_of(table), bound_of(60)
    equal = laplace_accountings(counts, bound, {Statistic.MEAN: 1.0})[-1]
    floor = floor_of_equal_scales(counts, bound, epsilon)
    assert equal.scales(epsilon)[Statistic.MEAN].min() >= floor * (1 - 1e-12)
    # and the mean over vehicles of the loss at the floor is exactly the epsilon
    at_floor = LaplaceNoise.cheapest_within(counts, bound, {Statistic.MEAN: floor}).loss()
    assert at_floor[counts.bins_per_user > 0].mean() == pytest.approx(epsilon, rel=1e-12)


def test_bins_with_too_few_vehicles_are_left_out(counts_of, bound_of):
    request = request_for(bound_of(60), 1, [Statistic.MEAN])
    strict = replace(request, min_vehicles=2)
    allocation = allocate(counts_of([[1, 0], [1, 1], [0, 9]]), strict)
    assert allocation.keep.tolist() == [False, True, False]
    assert allocation.counts.bins == 1
    with pytest.raises(UsageError, match="no bin can be released"):
        allocate(counts_of([[1, 0], [0, 9]]), strict)


def test_requests_below_the_least_charge_are_refused(counts_of, bound_of):
    for epsilon in ("1e-12", "5e-10"):
        with pytest.raises(UsageError, match="larger epsilon"):
            allocate(counts_of([[2, 1]]), request_for(bound_of(60), epsilon, [Statistic.MEAN]))


@pytest.mark.slow
def test_a_request_above_2_to_53_picos_is_not_exceeded_by_a_rounding(counts_of, bound_of):
    random = np.random.default_rng(3)
    for seed in range(30):
        counts = counts_of(random.integers(0, 3, (9, 4)) + np.eye(9, 4, dtype=int))
        epsilon = Fraction(500_000) - Fraction(seed * 7, 10**9)
        request = request_for(bound_of(60), epsilon, [Statistic.MEAN])
        assert allocate(counts, request).loss.pico <= request.loss.pico


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_tolerances_that_are_not_positive_are_refused(counts_of, bound_of, wrong):
    request = request_for(bound_of(60), 1, [Statistic.MEAN])
    with pytest.raises(UsageError, match="tolerance of the mean"):
        allocate(counts_of([[2, 1]]), replace(request, tolerance={Statistic.MEAN: wrong}))
    with pytest.raises(UsageError, match="no statistic"):
        allocate(counts_of([[2, 1]]), replace(request, tolerance={}))


def test_statistics_that_blocks_do_not_release_are_refused(counts_of, bound_of):
    for statistics in ([Statistic.VARIANCE], OF_MAPS):
        with pytest.raises(UsageError, match="blocks releases means and vehicle means, or mean and variance"):
            allocate(counts_of([[2, 1]]), request_for(bound_of(60), 1, statistics, "blocks"))


def test_blocks_release_means_or_mean_and_variance(counts_of, bound_of):
    for statistics in ([Statistic.VARIANCE], [Statistic.VARIANCE, Statistic.VEHICLE_MEAN], [*OF_MAPS]):
        with pytest.raises(UsageError, match="blocks releases means and vehicle means, or mean and variance"):
            allocate(counts_of([[2, 1]]), request_for(bound_of(60), 1, statistics, "blocks"))


def test_an_unknown_accounting_is_refused(counts_of, bound_of):
    with pytest.raises(UsageError, match=r"unknown accounting.*'sharpest'.*best, basic"):
        allocate(counts_of([[2, 1]]), request_for(bound_of(60), 1, [Statistic.MEAN], "sharpest"))
