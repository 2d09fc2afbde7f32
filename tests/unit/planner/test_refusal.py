from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.mechanisms.names import AUTO
from trafficdp.model.statistic import OF_MAPS, Statistic
from trafficdp.planner.allocation import allocate
from trafficdp.planner.refusal import (
    SkilledMaps,
    judge,
    largest_passing_scale,
    passing_epsilon,
    passing_min_vehicles,
)
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import PureDP

MEAN, VARIANCE, VEHICLE_MEAN = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCES = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE_MEAN: 1.0}
SETS = [(MEAN,), (VARIANCE,), (VEHICLE_MEAN,), (MEAN, VARIANCE), OF_MAPS]

tables = st.integers(2, 5).flatmap(
    lambda users: st.lists(
        st.lists(st.sampled_from([0, 1, 1, 2, 3, 9]), min_size=users, max_size=users).filter(any),
        min_size=1,
        max_size=8,
    )
)


@pytest.fixture
def request_for(bound_of):
    def build(epsilon=1, statistics=(MEAN,), **changes):
        return Request(
            **{
                "loss": PureDP.of(epsilon),
                "bound": bound_of(60, "1/10"),
                "tolerance": {s: TOLERANCES[s] for s in statistics},
                "min_vehicles": 1,
                "refuse_above": 0.125,
                "interval_level": 0.95,
                **changes,
            }
        )

    return build


def refused(counts, request):
    return judge(allocate(counts, request)).refused


@pytest.mark.parametrize(
    ("statistics", "judged"),
    [
        ((MEAN, VARIANCE, VEHICLE_MEAN), MEAN),
        ((VARIANCE, VEHICLE_MEAN), VEHICLE_MEAN),
        ((VARIANCE,), VARIANCE),
    ],
)
def test_the_rule_looks_at_means_first(request_for, statistics, judged):
    assert request_for(statistics=statistics).judged is judged


def test_a_release_passes_with_much_epsilon_and_is_refused_with_little(counts_of, request_for):
    counts = counts_of([[2, 1, 1], [1, 1, 2]])
    assert not refused(counts, request_for(100))
    assert refused(counts, request_for(0.1))
    verdict = judge(allocate(counts, request_for(0.1)))
    assert verdict.threshold == 7.5
    assert 7.5 < verdict.median_error <= 30


def test_the_median_bin_decides(counts_of, request_for):
    # two of three bins are good, then one of three
    good, bad = [1] * 40, [1] + [0] * 39
    for table, verdict in (([good, good, bad], False), ([good, bad, bad], True)):
        assert refused(counts_of(table), request_for(9, accounting="exact")) is verdict


def test_bins_whose_variance_can_only_be_0_do_not_make_a_map_informative(counts_of, request_for):
    single = [[1, 0, 0]] * 5
    request = request_for(0.5, (VARIANCE,))
    assert refused(counts_of([[2, 2, 2]]), request)
    assert refused(counts_of([[2, 2, 2], *single]), request)
    assert judge(allocate(counts_of(single), request)).median_error == 0


@pytest.mark.parametrize("statistics", SETS)
@pytest.mark.parametrize("share", [0.001, 0.05, 0.125, 0.3, 0.45, 0.499])
def test_the_largest_passing_scale_is_the_root(request_for, statistics, share):
    request = request_for(statistics=statistics, refuse_above=share)
    reach = request.judged.largest(60)
    scale = largest_passing_scale(request)
    error = scale * (1 - np.exp(-reach / (2 * scale)))
    assert error == pytest.approx(share * reach, rel=1e-9)
    assert error <= share * reach * (1 + 1e-12)


@pytest.mark.parametrize("share", [0.5, 0.7, 1.0])
def test_a_rule_above_half_the_range_passes_any_noise(request_for, share):
    assert largest_passing_scale(request_for(refuse_above=share)) > 1e8


@settings(max_examples=120)
@given(
    table=tables,
    statistics=st.sampled_from(SETS),
    accounting=st.sampled_from(["best", "basic", "grid_count", "exact", "equal"]),
    share=st.sampled_from([0.01, 0.125, 0.4]),
)
def test_the_passing_epsilon_passes_and_one_percent_less_does_not(
    counts_of, bound_of, table, statistics, accounting, share
):
    if statistics == (VARIANCE,) and all(sum(row) == 1 for row in table):
        return
    request = Request(
        PureDP.of(1), bound_of(60, "1/10"), {s: TOLERANCES[s] for s in statistics}, 1, share, 0.95, accounting
    )
    needed = passing_epsilon(counts_of(table), request)
    assert not refused(counts_of(table), replace(request, loss=PureDP.of(needed)))
    assert refused(counts_of(table), replace(request, loss=PureDP.of(needed * 0.99)))


def test_the_passing_epsilon_is_that_of_the_accounting_that_will_be_executed(counts_of, request_for):
    # one crowded bin and two lonely ones: "exact" has the smaller median, "equal" the smaller maximum
    counts = counts_of([[1] * 30, [1] * 30, [1] + [0] * 29])
    best, exact = request_for(), request_for(accounting="exact")
    assert passing_epsilon(counts, exact) < passing_epsilon(counts, best)
    needed = PureDP.of(passing_epsilon(counts, best))
    assert not refused(counts, replace(best, loss=needed))


def test_no_epsilon_helps_when_no_bin_has_enough_vehicles(counts_of, request_for):
    assert passing_epsilon(counts_of([[1, 0], [0, 2]]), request_for(min_vehicles=2)) is None
    assert passing_min_vehicles(counts_of([[1, 0], [0, 2]]), request_for(min_vehicles=3)) is None


def by_linear_search(counts, request):
    for least in range(request.min_vehicles, int(counts.users_per_bin.max()) + 1):
        attempt = replace(request, min_vehicles=least)
        if (counts.users_per_bin >= least).any() and not refused(counts, attempt):
            return least
    return None


@settings(max_examples=120)
@given(
    table=tables,
    epsilon=st.sampled_from(["0.5", "2", "4", "7", "12", "40"]),
    statistics=st.sampled_from([(MEAN,), (VEHICLE_MEAN,), (MEAN, VARIANCE)]),
    least=st.integers(0, 3),
)
def test_the_passing_min_vehicles_is_the_least_of_all(counts_of, bound_of, table, epsilon, statistics, least):
    request = Request(
        PureDP.of(epsilon),
        bound_of(60, "1/10"),
        {s: TOLERANCES[s] for s in statistics},
        least,
        0.125,
        0.95,
    )
    counts = counts_of(table)
    assert passing_min_vehicles(counts, request) == by_linear_search(counts, request)


@pytest.mark.parametrize("accounting", ["basic", "grid_count", "exact"])
def test_the_passing_min_vehicles_of_any_accounting_passes(counts_of, request_for, accounting):
    random = np.random.default_rng(21)
    found = 0
    for _ in range(40):
        counts = counts_of(random.poisson(0.8, (10, 12)) + np.eye(10, 12, dtype=int))
        request = request_for(12, accounting=accounting)
        least = passing_min_vehicles(counts, request)
        if least is not None:
            found += 1
            assert not refused(counts, replace(request, min_vehicles=least))
    assert found


@pytest.fixture
def town(counts_of):
    """Forty vehicles in twelve bins."""
    rng = np.random.default_rng(7)
    counts = rng.choice([0, 1, 3, 9], (12, 40))
    counts[:, 0] = 2
    return counts_of(counts.tolist())


def skilled(request_for, epsilon, mechanism=AUTO, **changes):
    named = dict.fromkeys(changes.get("statistics", (MEAN,)), mechanism)
    return request_for(epsilon, mechanism=named, simulate=True, **changes)


def test_a_map_is_refused_by_skill_and_one_number_for_the_city_never(town, request_for):
    little = judge(allocate(town, skilled(request_for, "0.01", "partial_pooling")))
    much = judge(allocate(town, skilled(request_for, 400, "partial_pooling")))
    flat = judge(allocate(town, skilled(request_for, "0.01", "flat")))
    assert little.by_skill
    assert much.by_skill
    assert (little.refused, much.refused, flat.refused) == (True, False, False)
    # the limit is nine tenths of what the one number is off
    assert little.median_error > little.threshold or little.worse > 0.1
    assert much.median_error <= much.threshold
    got, expected = little.in_words("m/s", 1.0)
    assert "one number for the whole city" in got + expected


def test_errors_alone_decide_of_one_bin_and_of_an_answer(counts_of, town, request_for):
    one_bin = allocate(counts_of([[3] * 30]), skilled(request_for, 1, "baseline"))
    answer = allocate(town, skilled(request_for, 1, "baseline", answer=True))
    for allocation in (one_bin, answer):
        verdict = judge(allocation)
        assert not verdict.by_skill
        assert verdict.threshold == 7.5


def test_auto_has_a_map_that_passes_wherever_partial_pooling_does(town, request_for):
    passed = []
    for epsilon in ("0.05", "2", "60"):
        request = skilled(request_for, epsilon)
        passed.append(SkilledMaps(town, request, None).passes(request.loss))
        if passed[-1]:
            assert not judge(allocate(town, request)).refused
    assert passed[0] is False
    assert passed[-1] is True


def test_the_loss_that_is_suggested_passes_and_a_third_of_it_does_not(town, request_for):
    maps = SkilledMaps(town, skilled(request_for, "0.5"), None)
    needed = maps.least()
    assert needed is not None
    assert maps.passes(needed)
    if needed > PureDP.of("0.5"):
        assert not maps.passes(PureDP(needed.pico // 3))
    assert SkilledMaps(town, skilled(request_for, "0.0001"), None).least() is None
