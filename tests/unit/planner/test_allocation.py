"""Mechanisms get their epsilon from counts alone; no vehicle loses more than was asked."""

from dataclasses import replace

import numpy as np
import pytest
from small_city import plan_request

from trafficdp.errors import UsageError
from trafficdp.mechanisms import simulated_cities
from trafficdp.mechanisms.per_statistic_map import PerStatisticMechanism, StatisticMechanism, mechanisms_of
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.publish import status_of
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.mechanisms.simulated_cities import SimulatedCities
from trafficdp.model import Statistic
from trafficdp.planner.allocate import allocate
from trafficdp.planner.choose import SIMULATED_ERROR_TOLERANCE, shares
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.loss import CHARGE_STEP, ZCDP, LossKind, PureDP

pytestmark = pytest.mark.slow

MEAN, VARIANCE, VEHICLE = Statistic.MEAN, Statistic.VARIANCE, Statistic.VEHICLE_MEAN
TOLERANCE = {MEAN: 1.0, VARIANCE: 60.0, VEHICLE: 1.0}


@pytest.fixture(scope="module")
def city(counts_of):
    random = np.random.default_rng(4)
    return counts_of(random.geometric(0.3, (16, 40)) * (random.random((16, 40)) < 0.3))


def request_for(bound, wanted, epsilon="4", statistics=(MEAN, VARIANCE), **changes):
    return plan_request(
        bound,
        PureDP.of(epsilon),
        tolerance={s: TOLERANCE[s] for s in statistics},
        mechanism=wanted,
        simulate=True,
        **changes,
    )


@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize(
    "epsilon", ["17.123456789", *(pytest.param(each, marks=pytest.mark.prove) for each in ("0.3", "4"))]
)
@pytest.mark.parametrize("mechanism", mechanisms_of(LossKind.PURE), ids=lambda mechanism: mechanism.name)
def test_no_vehicle_loses_more_than_was_asked_and_nearly_all_is_used(mechanism, epsilon, city, bound_of):
    statistics = mechanism.statistics
    wanted = dict.fromkeys(statistics, mechanism.name)
    where = city
    if mechanism.idealised:
        # its search for smooth sensitivities is slow
        where = city.select(np.arange(city.bins) < 5)
    request = request_for(bound_of(60, "1/10"), wanted, epsilon, statistics, allow_idealised=True)
    found = allocate(where, request)
    assert found.loss <= request.loss
    if mechanism.name != "baseline":
        assert found.calibrated.kind == "mechanism"
        losses = sum(
            PerStatisticMechanism(found.calibrated.public, {statistic: part}).event().loss_per_user
            for statistic, part in found.calibrated.parts.items()
        )
        np.testing.assert_array_equal(found.event.loss_per_user, losses)
    # clipping that depends on epsilon may leave much of it, where only constants are worth their noise
    clips_by_epsilon = "clipping" in mechanism.name or mechanism.idealised
    assert found.loss.pico >= request.loss.pico * (0.0 if clips_by_epsilon else 0.999)


def test_shares_follow_range_over_tolerance_in_whole_charges(bound_of):
    request = request_for(bound_of(60), {}, "3.000000001", tuple(TOLERANCE))
    found = shares(request)
    assert sum(each.pico for each in found.values()) <= request.loss.pico
    assert all(each.pico % CHARGE_STEP == 0 for each in found.values())
    # 60/1 for each mean, (60^2/4)/60 = 15 for the variance
    assert found[MEAN] == found[VEHICLE]
    assert found[MEAN].pico / found[VARIANCE].pico == pytest.approx(4, rel=1e-6)


@pytest.mark.usefixtures("few_runs")
@pytest.mark.parametrize("loss", [PureDP.of("2"), PureDP.of("60"), ZCDP.of("2")], ids=str)
def test_auto_takes_the_joint_map_that_is_least_off(city, bound_of, loss):
    request = replace(request_for(bound_of(60), {MEAN: "auto"}, "2", (MEAN,)), loss=loss)
    auto = allocate(city, request)
    assert auto.reason.startswith("auto: ")
    assert set(auto.considered) == {"flat", "partial_pooling"}
    error = {name: 1 - own[MEAN].expected for name, own in auto.considered.items()}
    taken = next(name for name, own in auto.considered.items() if own is auto.tried)
    assert auto.calibrated.kind == taken
    # of those that would not be refused, where there are any
    maps = [name for name, own in auto.considered.items() if own[MEAN].enough] or list(error)
    assert error[taken] <= min(error[name] for name in maps) * (1 + SIMULATED_ERROR_TOLERANCE)


def test_of_very_many_records_some_cells_are_tried(city, bound_of, monkeypatch):
    monkeypatch.setattr(simulated_cities, "MOST_RECORDS", int(city.count.sum()) // 4)
    samples = []
    monkeypatch.setattr(
        simulated_cities, "absolute_errors", lambda _, tried, *rest: samples.append(tried) or np.zeros(1)
    )
    (mechanism,) = [m for m in mechanisms_of(LossKind.PURE) if m.name == "akmv"]
    SimulatedCities(city, bound_of(60)).error(mechanism, MEAN, np.full(city.bins, 0.5))
    assert 0 < len(samples[0].value) < city.count.sum()
    assert set(samples[0].counts.cell) < set(city.cell)


@pytest.mark.usefixtures("few_runs")
def test_auto_is_never_idealised_even_where_it_is_allowed(city, bound_of):
    wanted = dict.fromkeys((MEAN, VEHICLE), "auto")
    found = allocate(city, request_for(bound_of(60), wanted, "1", (MEAN, VEHICLE), allow_idealised=True))
    assert not found.event.idealised


def test_simulated_cities_depend_on_counts_and_seed_alone(city, bound_of):
    bound, epsilon = bound_of(60), np.full(city.bins, 0.5)
    first, again = (SimulatedCities(city, bound) for _ in range(2))
    other = SimulatedCities(city, bound, 2)
    (mechanism,) = [m for m in mechanisms_of(LossKind.PURE) if m.name == "akmv"]
    errors = [each.error(mechanism, MEAN, epsilon) for each in (first, again, other)]
    assert errors[0] == errors[1] != errors[2]
    assert errors[0] == pytest.approx(errors[2], rel=0.3)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({VEHICLE: "pooled"}, "cannot estimate the vehicle mean"),
        ({MEAN: "huber"}, "allow-idealised-noise huber"),
        ({MEAN: "guess"}, "unknown mechanism"),
    ],
)
def test_what_cannot_be_released_is_refused_in_words(wanted, message, city, bound_of):
    with pytest.raises(UsageError, match=message):
        allocate(city, request_for(bound_of(60), wanted, statistics=tuple(wanted)))


def calibrated_of(city, bound):
    return PerStatisticMechanism(
        PublicFacts(city, bound),
        {
            MEAN: StatisticMechanism("pooled", np.linspace(0.1, 0.3, city.bins)),
            VARIANCE: StatisticMechanism("worst_case_clipping", np.linspace(0.3, 0.2, city.bins) / 3),
        },
    )


def test_facts_and_publication_lead_back_to_the_calibrated_to_the_last_bit(city, bound_of):
    calibrated = calibrated_of(city, bound_of(60))
    again = calibrated_from_facts(calibrated.to_facts(), calibrated.public)
    columns = {statistic: {"epsilon": part.loss} for statistic, part in calibrated.parts.items()}
    published = calibrated_from_facts(calibrated.manifest_facts(), calibrated.public, columns)
    assert again.to_facts() == calibrated.to_facts() == published.to_facts()
    events = [each.event().loss_per_user for each in (calibrated, again, published)]
    np.testing.assert_array_equal(events[0], events[1])
    np.testing.assert_array_equal(events[0], events[2])


@pytest.mark.parametrize("odd", [0.0, -1.0, np.nan, np.inf, 1e10])
def test_an_epsilon_out_of_range_has_no_event(odd, city, bound_of):
    calibrated = calibrated_of(city, bound_of(60))
    calibrated.parts[MEAN].loss[3] = odd
    with pytest.raises(UsageError, match="epsilon of a statistic is out of range"):
        calibrated.event()


def test_variances_of_one_fix_are_constant_and_others_are_judged_by_their_worst_error(counts_of, bound_of):
    city = counts_of([[1, 0, 0], [3, 2, 1], [50, 50, 50]])
    public = PublicFacts(city, bound_of(60, "1/100"))
    calibrated = PerStatisticMechanism(
        public, {VARIANCE: StatisticMechanism("pooled", np.array([1.0, 0.1, 40.0]))}
    )
    error = calibrated.expected_errors()[VARIANCE]
    status = status_of(error, VARIANCE, bound_of(60, "1/100")).tolist()
    assert status == [BinStatus.CONSTANT.value, BinStatus.UNINFORMATIVE.value, BinStatus.RELEASED.value]
    assert error[0] == 0
    halves = calibrated.half_widths(0.95)[VARIANCE]
    assert halves[0] == 0
    assert halves[1] == 900
