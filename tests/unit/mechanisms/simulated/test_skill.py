"""What a map is promised to say beside one number for the city."""

import numpy as np
import pytest

from trafficdp.mechanisms import simulated_cities as cities_module
from trafficdp.mechanisms.names import BASELINE
from trafficdp.mechanisms.per_statistic_map import PerStatisticMechanism, StatisticMechanism
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide, CalibratedPooling
from trafficdp.mechanisms.protocol import PublicFacts, loss_of
from trafficdp.mechanisms.publish import status_of
from trafficdp.mechanisms.simulated_cities import Skill, simulated_cities_of, skills_of, true_statistic
from trafficdp.model import Statistic
from trafficdp.privacy.loss import PICO, LossKind, PureDP
from trafficdp.simulation.city import VARIATIONS

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


def table(bins=12, users=60):
    rng = np.random.default_rng(4)
    counts = rng.choice([0, 0, 1, 3, 9], (bins, users))
    counts[:, 0] = 2
    return counts.tolist()


@pytest.mark.slow
def test_more_budget_promises_more(counts_of, bound_of):
    counts, bound = counts_of(table()), bound_of(30, step="0.1")
    found = []
    for epsilon in (0.2, 4, 400):
        pico = int(epsilon * PICO)
        calibrated = CalibratedPooling(PublicFacts(counts, bound), (MEAN,), LossKind.PURE, pico)
        found.append(skills_of([calibrated], PureDP(pico), simulated_cities_of(counts, bound))[0][MEAN])
    assert found[0].expected < found[1].expected < found[2].expected
    assert found[2].expected > 0.3
    assert found[2].worse <= found[0].worse
    again = skills_of([calibrated], PureDP(pico), simulated_cities_of(counts, bound))[0][MEAN]
    np.testing.assert_array_equal(again.error, found[2].error)


def test_one_number_is_no_nearer_than_one_number(counts_of, bound_of):
    counts, bound = counts_of(table()), bound_of(30, step="0.1")
    flat = CalibratedCityWide(PublicFacts(counts, bound), (MEAN, VARIANCE), LossKind.PURE, 1000 * PICO)
    (found,) = skills_of([flat], PureDP(1000 * PICO), simulated_cities_of(counts, bound))
    for each in (MEAN, VARIANCE):
        assert found[each].expected == pytest.approx(0, abs=0.02)


def test_maps_are_tried_in_the_same_cities_and_of_many_records_in_fewer(counts_of, bound_of, monkeypatch):
    counts, bound, loss = counts_of(table()), bound_of(30, step="0.1"), PureDP(4 * PICO)
    pooled, flat = (
        CalibratedPooling(PublicFacts(counts, bound), (MEAN,), LossKind.PURE, loss.pico),
        CalibratedCityWide(PublicFacts(counts, bound), (MEAN,), LossKind.PURE, loss.pico),
    )
    cities = list(simulated_cities_of(counts, bound))
    both = skills_of([pooled, flat], loss, cities)
    np.testing.assert_array_equal(both[0][MEAN].flat, both[1][MEAN].flat)
    for tried, draws in ((0, 2), (3, 3)):
        monkeypatch.setattr(cities_module, "TRIED", tried * len(VARIATIONS) * counts.bins)
        assert len(skills_of([pooled], loss, cities)[0][MEAN].error) == draws * len(VARIATIONS)
    monkeypatch.setattr(cities_module, "MOST_DRAWN_IN_ALL", 1)
    monkeypatch.setattr(cities_module, "TRIED", 0)
    assert len(skills_of([pooled], loss, simulated_cities_of(counts, bound))[0][MEAN].error) == 2 * 2


def test_rush_hours_reach_the_simulated_cities(counts_of, bound_of):
    counts, bound, loss = counts_of(table()), bound_of(30, step="0.1"), PureDP(4 * PICO)
    flat = CalibratedCityWide(PublicFacts(counts, bound), (MEAN,), LossKind.PURE, loss.pico)
    hour = np.arange(counts.bins) % 24
    without, at_hours = (
        skills_of([flat], loss, simulated_cities_of(counts, bound, each))[0][MEAN].error
        for each in (None, hour)
    )
    assert (without != at_hours).any()


@pytest.mark.parametrize("statistics", [(MEAN,), (MEAN, VARIANCE)])
def test_one_number_has_its_price_in_rho_too(counts_of, bound_of, statistics):
    counts, bound = counts_of(table()), bound_of(30, step="0.1")
    flat = CalibratedCityWide(PublicFacts(counts, bound), statistics, LossKind.ZCDP, PICO)
    lost = loss_of(flat.steps(), counts.users)
    records = np.bincount(counts.user_index, counts.count, counts.users)
    # the busiest pays all of it, the others by the square of their records
    assert PICO * (1 - 1e-9) < lost.max() <= PICO
    np.testing.assert_allclose(lost / PICO, (records / records.max()) ** 2, rtol=1e-6, atol=1e-9)


def test_a_promise_is_a_sentence():
    flat = np.full(20, 2.0)
    assert Skill(np.full(20, 1.0), flat, flat).in_words() == (
        "expected to be 50 % smaller than that of one city-wide average (in 19 of 20 draws at least 50 %)"
    )
    mixed = np.array([1.0] * 18 + [3.0] * 2)
    assert "(but larger in 10 % of draws)" in Skill(mixed, flat, flat).in_words()
    assert Skill(np.full(20, 2.5), flat, flat).in_words() == (
        "expected to be no smaller than that of one city-wide average"
    )


def test_the_truth_is_that_of_the_records(contributions_of, bound_of):
    data = contributions_of([[[1, 2, 9], [4], []], [[7], [], [3, 3]]], bound_of(30))
    counts, step = data.counts, float(data.bound.step)
    mean, own = true_statistic(data, MEAN), true_statistic(data, Statistic.VEHICLE_MEAN)
    for place in range(counts.bins):
        mine = counts.bin_index == place
        assert mean[place] == pytest.approx(data.total[mine].sum() * step / counts.count[mine].sum())
        assert own[place] == pytest.approx((data.total[mine] * step / counts.count[mine]).mean())


def test_numbers_that_say_something_are_counted(counts_of, bound_of):
    counts, bound = counts_of(table()), bound_of(30, step="0.1")
    # of so much epsilon that some bins have too much noise and some have not
    given = {each: StatisticMechanism(BASELINE, np.geomspace(0.05, 50, counts.bins)) for each in (MEAN,)}
    plain = PerStatisticMechanism(PublicFacts(counts, bound), given)
    status = status_of(plain.expected_errors()[MEAN], MEAN, bound)
    says = int(np.count_nonzero(status == "released"))
    assert 0 < says < counts.bins
    (found,) = skills_of([plain], PureDP.of(1000), simulated_cities_of(counts, bound))
    assert set(found[MEAN].numbers.tolist()) == {says}
    assert found[MEAN].expected_numbers == says


def test_where_one_number_is_right_no_map_is_nearer():
    nothing, some = np.zeros(20), np.append(np.zeros(19), 1.0)
    both = Skill(nothing, nothing, nothing)
    assert (both.expected, both.at_least, both.worse, both.enough) == (0, 0, 0, False)
    map_off, number_off = Skill(some, nothing, nothing), Skill(nothing, some, nothing)
    assert map_off.expected < -1e6
    assert map_off.worse == 0.05
    assert not map_off.enough
    assert number_off.expected == pytest.approx(1)
    assert number_off.enough
