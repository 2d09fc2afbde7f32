"""What is suggested passes, and is near the least that does."""

from dataclasses import replace

import pytest
from small_city import plan_request

from trafficdp.mechanisms.names import AUTO, BASELINE
from trafficdp.model import Statistic
from trafficdp.planner import suggest as module
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import assess_utility
from trafficdp.planner.request import Suggestions
from trafficdp.planner.suggest import Maps
from trafficdp.privacy.loss import ZCDP, PureDP

pytestmark = pytest.mark.usefixtures("few_runs")
MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


@pytest.fixture
def request_for(bound_of):
    def build(loss, mechanism, statistics=(MEAN,), **changes):
        named = dict.fromkeys(statistics, mechanism)
        wanted = {each: 1.0 if each is MEAN else 60.0 for each in statistics}
        return plan_request(bound_of(60, "1/10"), loss, wanted, mechanism=named, simulate=True, **changes)

    return build


@pytest.fixture
def maps_of(monkeypatch):
    """Maps of bins without hours."""
    monkeypatch.setattr(module, "hours_of_day", lambda grid, slot: None)
    return lambda counts, request: Maps(counts, None, request)


def refused(counts, request, loss):
    return assess_utility(allocate(counts, replace(request, loss=loss))).refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "answer"), [(AUTO, False), (BASELINE, False), ("akmv", False), (BASELINE, True)]
)
def test_the_loss_that_is_suggested_passes_and_half_of_it_does_not(
    town, request_for, maps_of, mechanism, answer
):
    request = request_for(PureDP.of("0.5"), mechanism, answer=answer)
    maps = maps_of(town, request)
    needed = maps.least_passing_loss()
    assert needed > PureDP.of("0.5")
    assert maps.passes(needed)
    assert not refused(town, request, needed)
    assert not maps.passes(PureDP(needed.pico // 2))
    # three digits are told, and no more are there
    assert PureDP.of(f"{float(needed.exact):.3g}") == needed


@pytest.mark.slow
def test_so_it_is_in_rho(town, request_for, maps_of):
    request = request_for(ZCDP.of("0.01"), "gaussian_twin")
    needed = maps_of(town, request).least_passing_loss()
    assert not refused(town, request, needed)
    assert refused(town, request, ZCDP(needed.pico // 4))


def test_what_is_judged_by_a_theorem_is_known_to_two_per_cent(town, request_for, maps_of):
    request = request_for(PureDP.of("0.5"), BASELINE, (MEAN, VARIANCE), answer=True)
    needed = maps_of(town, request).least_passing_loss()
    assert refused(town, request, PureDP(needed.pico * 98 // 100))


def test_nothing_is_suggested_where_nothing_passes(town, request_for, maps_of):
    assert maps_of(town, request_for(PureDP.of("0.0001"), AUTO)).least_passing_loss() is None
    # an interval that is the whole range at any loss
    assert maps_of(town, request_for(PureDP.of(1), "plan", answer=True)).least_passing_loss() is None


def test_no_more_than_can_be_accounted_for_is_tried(town, request_for, maps_of):
    assert maps_of(town, request_for(PureDP.of(900_000), "plan", answer=True)).least_passing_loss() is None
    asked = maps_of(town, request_for(PureDP.of(900_000), BASELINE)).least_passing_loss()
    assert PureDP.of(900_000) <= asked <= PureDP.of(1_000_000)


@pytest.mark.slow
def test_one_draw_a_city_looks_and_all_draws_confirm(town, request_for, maps_of, monkeypatch):
    maps = maps_of(town, request_for(PureDP.of("0.5"), AUTO))
    asked = []
    judged = Maps._judged
    monkeypatch.setattr(
        Maps, "_judged", lambda own, loss, once: asked.append((loss, once)) or judged(own, loss, once=once)
    )
    found = maps.least_passing_loss()
    # what is suggested was asked, and not by one draw alone
    assert (found, False) in asked
    # one draw looks first, as far as it may pass: all draws are asked from there on
    first = [once for _, once in asked].index(False)
    assert all(once for _, once in asked[:first])
    assert not any(once for _, once in asked[first:])
    assert asked[first][0] in [loss for loss, _ in asked[:first]]


@pytest.mark.parametrize("apart", [0, 1, 7])
def test_the_least_factor_is_found_and_near_ones_by_few_looks(apart):
    step, top = 1.05, 141
    for place in (*range(40), 90, top):
        likely, looks = step ** max(place - apart, 0), []
        found = module._least(
            lambda times, likely=likely, looks=looks: looks.append(times) or times >= likely,
            lambda times, place=place: times >= step**place,
            step=step,
        )
        assert found == step**place
        assert len(looks) <= 2 + 2 * (place + 1).bit_length()
    assert module._least(lambda times: False, lambda times: False, step=step) is None


def test_where_no_setting_passes_one_number_is_offered_in_place_of_a_map():
    assert "flat" in Suggestions(None, None, None, flat=True).in_words()
    assert "flat" not in Suggestions(None, None, None).in_words()
    told = Suggestions(4.0, 6, None, 1200).in_words(PureDP.of(3))
    assert told == (
        "any one of these changes makes it pass: resolution 6, epsilon 4, but only 3 is left, a fleet of "
        "1,200 vehicles (--force releases it as it is)"
    )
