from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples
from small_city import plan_request

from trafficdp.mechanisms.names import AUTO
from trafficdp.mechanisms.per_statistic_map import mechanisms_of
from trafficdp.mechanisms.simulated_cities import Skill
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import UtilityVerdict, assess_utility
from trafficdp.privacy.estimate import RefusalRule
from trafficdp.privacy.loss import ZCDP, LossKind, PureDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCES = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.0}
SKILL, INTERVAL, RANK = RefusalRule


@pytest.fixture
def request_for(bound_of):
    def build(epsilon=1, statistics=(MEAN,), mechanism=None, **changes):
        wanted = {
            "loss": PureDP.of(epsilon),
            "bound": bound_of(60, "1/10"),
            "tolerance": {s: TOLERANCES[s] for s in statistics},
            "simulate": True,
        }
        named = {} if mechanism is None else {"mechanism": dict.fromkeys(statistics, mechanism)}
        return plan_request(**{**wanted, **named, **changes})

    return build


def refused(counts, request):
    return assess_utility(allocate(counts, request)).refused


@pytest.mark.parametrize(
    ("statistics", "main"),
    [
        ((MEAN, VARIANCE, VEHICLE_MEAN), MEAN),
        ((VARIANCE, VEHICLE_MEAN), VEHICLE_MEAN),
        ((VARIANCE,), VARIANCE),
    ],
)
def test_half_widths_are_about_means_first(request_for, statistics, main):
    assert request_for(statistics=statistics).main is main


def test_a_map_is_refused_by_skill_and_one_number_for_the_city_never(town, request_for):
    little = assess_utility(allocate(town, request_for("0.01", mechanism="partial_pooling")))
    much = assess_utility(allocate(town, request_for(400, mechanism="partial_pooling")))
    flat = assess_utility(allocate(town, request_for("0.01", mechanism="flat")))
    assert {each.rule for each in (little, much, flat)} == {SKILL}
    assert (little.refused, much.refused, flat.refused) == (True, False, False)
    # the limit is 90 % of the error of the city-wide average
    assert little.value > little.threshold or little.worse > 0.1
    assert much.value <= much.threshold
    got, expected = little.in_words("m/s", 1.0)
    assert "one city-wide average" in got + expected


@pytest.mark.slow
@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize(
    "name",
    # wrap around is best fit with samples in arrays of another order
    [
        pytest.param(each.name, marks=pytest.mark.prove if each.name.endswith("wrap_around") else ())
        for each in mechanisms_of(LossKind.PURE)
        if not each.idealised
    ],
)
def test_every_named_mechanism_is_judged_by_skill(town, request_for, name):
    statistics = (MEAN,)
    little, much = (
        assess_utility(allocate(town, request_for(each, statistics, name))) for each in ("0.001", "20000")
    )
    assert {little.rule, much.rule} == {SKILL}
    assert little.refused
    assert much.value < little.value


@pytest.mark.slow
@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize("name", [each.name for each in mechanisms_of(LossKind.ZCDP) if not each.idealised])
def test_every_mechanism_that_counts_in_rho_is(town, request_for, name):
    asked = request_for(statistics=(MEAN,), mechanism=name)
    little, much = (
        assess_utility(allocate(town, replace(asked, loss=ZCDP.of(each)))) for each in ("0.0001", "9000")
    )
    assert {little.rule, much.rule} == {SKILL}
    assert (little.refused, much.refused) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("accounting", ["basic", "exact", "equal", "blocks", "clip_user"])
def test_a_named_accounting_is_judged_by_skill(town, request_for, accounting):
    little, much = (
        assess_utility(allocate(town, request_for(each, accounting=accounting))) for each in ("0.01", "4000")
    )
    assert {little.rule, much.rule} == {SKILL}
    assert (little.refused, much.refused) == (True, False)


def test_the_statistic_that_says_least_decides(town, request_for):
    allocation = allocate(town, request_for(20, OF_MAPS, "baseline"))
    good, better = (
        Skill(np.array([error] * 20), np.full(20, 10.0), np.full(20, 7.0)) for error in (5.0, 1.0)
    )
    for worst in OF_MAPS:
        told = assess_utility(replace(allocation, tried=dict.fromkeys(OF_MAPS, better) | {worst: good}))
        assert (told.statistic, told.value, told.refused) == (worst, 5.0, False)
    # one that is too often worse says less than one that gains less
    often = Skill(np.array([0.0] * 17 + [11.0] * 3), np.full(20, 10.0), np.full(20, 7.0))
    told = assess_utility(replace(allocation, tried={MEAN: good, VARIANCE: often, VEHICLE_MEAN: better}))
    assert (told.statistic, told.worse, told.refused) == (VARIANCE, 0.15, True)
    assert told.in_words("x", 1.0) == (
        "15 % of draws in which the map is less accurate than one city-wide average",
        "at most 10 %",
    )


def test_one_bin_and_an_answer_are_refused_when_an_interval_can_be_the_whole_range(
    counts_of, town, request_for
):
    for counts, request in (
        (counts_of([[3] * 30]), request_for(1, mechanism="baseline")),
        (town, request_for(1, mechanism="baseline", answer=True)),
    ):
        told = []
        for epsilon in ("0.05", "1", "50"):
            allocation = allocate(counts, replace(request, loss=PureDP.of(epsilon)))
            half = allocation.calibrated.half_widths(0.95)[MEAN]
            verdict = assess_utility(allocation)
            assert (verdict.rule, verdict.threshold) == (INTERVAL, 60)
            assert verdict.value == min(60.0, 2 * float(np.median(half)))
            assert verdict.refused is (float(np.median(half)) >= 30)
            told.append(verdict.refused)
        assert told[0] is True
        assert told[-1] is False


def test_the_median_bin_decides_of_an_answer(counts_of, request_for):
    # two of three bins are good, then one of three
    good, bad = [1] * 40, [1] + [0] * 39
    for table, verdict in (([good, good, bad], False), ([good, bad, bad], True)):
        assert refused(counts_of(table), request_for(5, accounting="exact", answer=True)) is verdict


def test_bins_whose_variance_can_only_be_0_do_not_make_an_answer_informative(counts_of, request_for):
    single = [[1, 0, 0]] * 5
    request = request_for("0.5", (VARIANCE,), answer=True)
    assert refused(counts_of([[2, 2, 2]]), request)
    assert refused(counts_of([[2, 2, 2], *single]), request)
    assert assess_utility(allocate(counts_of(single), request)).value == 0


def test_an_interval_is_told_in_the_unit_that_is_shown():
    told = UtilityVerdict(INTERVAL, MEAN, 20.0, 20.0)
    assert told.in_words("km/h", 3.6) == (
        "an interval of the mean that spans the whole possible range",
        "less than the 72 km/h of that range, in the median hexagon",
    )
    assert not replace(told, value=19.9).refused
    assert not replace(told, yardstick=True).refused


tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 1, 1, 2, 3, 9]), min_size=users, max_size=users).filter(any),
        min_size=2,
        max_size=6,
    )
)


EPSILONS = st.sampled_from(["0.5", "8", "100"])


@pytest.mark.slow
@settings(max_examples=examples(8))
@given(table=tables, epsilon=EPSILONS)
def test_auto_releases_whatever_partial_pooling_would(counts_of, bound_of, table, epsilon):
    check_auto(counts_of(table), bound_of, epsilon)


@pytest.mark.prove(cheap="test_auto_releases_whatever_partial_pooling_would")
@settings(max_examples=75)
@given(table=tables, epsilon=EPSILONS)
def test_auto_releases_whatever_partial_pooling_would_in_more_cities(counts_of, bound_of, table, epsilon):
    check_auto(counts_of(table), bound_of, epsilon)


def check_auto(counts, bound_of, epsilon):
    asked = plan_request(bound_of(60, "1/10"), PureDP.of(epsilon), {MEAN: 1.0}, simulate=True)
    if not refused(counts, replace(asked, mechanism={MEAN: "partial_pooling"})):
        assert not refused(counts, replace(asked, mechanism={MEAN: AUTO}))
