"""How many vehicles or days a map would need: exact for means, measured for days."""

from datetime import date

import numpy as np
import pytest

from trafficdp.mechanisms.laplace.accountings import laplace_accountings
from trafficdp.model import Counts, Grid, Period, SlotKind, Statistic, StudyArea
from trafficdp.planner.suggest import data_needed, days_needed
from trafficdp.privacy.loss import PureDP


def grid_of(days):
    period = Period(date(2026, 3, 1), date(2026, 3, days), "Europe/Vienna")
    return Grid(7, SlotKind.WHOLE_PERIOD, StudyArea.from_bbox(16, 48, 17, 49), period)


def copies(counts, times):
    """Every vehicle joined by ``times - 1`` others that drive like it."""
    order = np.argsort(np.tile(counts.bin_index, times), kind="stable")
    user = np.concatenate([counts.user_index + counts.users * k for k in range(times)])
    return Counts(
        counts.cell,
        counts.slot,
        counts.users_per_bin * times,
        user[order],
        np.tile(counts.count, times)[order],
        counts.users * times,
    )


@pytest.mark.parametrize("times", [2, 3, 10])
def test_f_times_as_many_vehicles_need_an_fth_of_the_epsilon_for_means(counts_of, bound_of, times):
    table = np.random.default_rng(3).poisson(2, (6, 9))
    one, many = counts_of(table), copies(counts_of(table), times)
    for few, more in zip(
        laplace_accountings(one, bound_of(60), {Statistic.MEAN: 1.0}),
        laplace_accountings(many, bound_of(60), {Statistic.MEAN: 1.0}),
        strict=True,
    ):
        tolerance = {Statistic.MEAN: 1.0}
        assert few.epsilon_at(2.0, tolerance) == pytest.approx(times * more.epsilon_at(2.0, tolerance))


def test_more_days_of_the_same_vehicles_need_the_same_epsilon(counts_of, bound_of):
    table = np.random.default_rng(3).poisson(2, (6, 9))
    tolerance = {Statistic.MEAN: 1.0}
    once, thrice = (
        laplace_accountings(counts_of(table * days), bound_of(60), tolerance)[3] for days in (1, 3)
    )
    assert once.epsilon_at(2.0, tolerance) == pytest.approx(thrice.epsilon_at(2.0, tolerance))


def epsilons(*values):
    return tuple(PureDP.of(value) for value in values)


def test_days_go_on_as_they_went():
    half, all_, allowed = epsilons(8, 4, 2)
    # twice the days were half the epsilon: twice again is a quarter
    assert days_needed(2, half, 4, all_, allowed) == 8
    assert days_needed(5, half, 10, all_, PureDP.of(1)) == 40
    # as the square root: four times the days for half the epsilon
    assert days_needed(1, PureDP.of(2 * 2**0.5), 2, PureDP.of(2), PureDP.of(1)) == 8


def test_days_that_do_not_help_or_not_within_reach_are_not_foretold():
    assert days_needed(2, PureDP.of(4), 4, PureDP.of(4), PureDP.of(2)) is None
    assert days_needed(2, PureDP.of(3), 4, PureDP.of(4), PureDP.of(2)) is None
    assert days_needed(2, PureDP.of("4.2"), 4, PureDP.of(4), PureDP.of("0.5")) is None


def test_the_first_half_of_the_days_is_what_is_measured():
    asked = []

    def needed_on(grid):
        asked.append((grid.period.first, grid.period.last))
        return PureDP.of(8)

    found = data_needed(grid_of(5), PureDP.of(4), PureDP.of(2), needed_on)
    assert asked == [(date(2026, 3, 1), date(2026, 3, 3))]
    assert (found.days_there, found.half_days, found.vehicles) == (5, 3, 2.0)
    assert found.days > 5


def test_a_period_of_one_day_foretells_nothing_of_days():
    def never(grid):
        raise AssertionError(grid)

    found = data_needed(grid_of(1), PureDP.of(4), PureDP.of(2), never)
    assert (found.half_days, found.days, found.vehicles) == (None, None, 2.0)


def test_a_first_half_without_a_map_foretells_nothing():
    found = data_needed(grid_of(4), PureDP.of(4), PureDP.of(2), lambda grid: None)
    assert (found.half_days, found.half_needed, found.days) == (None, None, None)
