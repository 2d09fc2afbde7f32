"""The finest map that fits: what is looked at, what is chosen, what is nearest."""

from datetime import date

import numpy as np
import pytest

from trafficdp.model import Grid, Period, SlotKind, Statistic, StudyArea
from trafficdp.planner.map_search import MapOption, finest, nearest, search
from trafficdp.planner.precision import Reach
from trafficdp.planner.request import Request
from trafficdp.privacy.loss import PureDP

GRID = Grid(
    7,
    SlotKind.WHOLE_PERIOD,
    StudyArea.from_bbox(16, 48, 17, 49),
    Period(date(2026, 3, 1), date(2026, 3, 2), "Europe/Vienna"),
)


@pytest.fixture
def city(counts_of):
    """``city(grid)``: a chain of places; one step of resolution cuts each of them in two."""

    def city(grid):
        parts = 2 ** min(max(0, grid.resolution - 3), 6)
        random = np.random.default_rng(1)
        fine = random.poisson(1.0, (2**6, 60)) * (random.random((2**6, 60)) < 0.3)
        slots = {SlotKind.WHOLE_PERIOD: 1, SlotKind.DAY_PART: 2, SlotKind.HOUR_OF_DAY: 3}[grid.slot_kind]
        return counts_of(np.repeat(fine.reshape(parts, -1, 60).sum(axis=1), slots, axis=0))

    return city


@pytest.fixture
def looked(city, bound_of):
    """``looked(width, epsilon, grid)``: the options that were found."""

    def looked(width, epsilon=4, grid=GRID, min_vehicles=5):
        tolerance = {Statistic.MEAN: 1.0}
        request = Request(PureDP.of(epsilon), bound_of(60, "0.1"), tolerance, min_vehicles, 0.95)
        seen = []
        return search(grid, request, width, Reach.MEDIAN, city, seen.append), seen

    return looked


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.5, 2.0, 8.0, 40.0])
def test_the_walk_ends_at_the_first_map_that_fits_or_no_longer_does(looked, width):
    options, seen = looked(width)
    fitting = {o.grid.resolution for o in options if o.fits and o.min_vehicles == 5}
    resolutions = [grid.resolution for grid in seen]
    assert resolutions[0] == 7
    if 7 in fitting:
        assert resolutions == list(range(7, max(resolutions) + 1))
        assert set(resolutions[:-1]) <= fitting
    else:
        assert resolutions == list(range(7, min(resolutions) - 1, -1))
        assert not fitting - {resolutions[-1]}


def test_what_is_said_to_fit_fits_and_what_is_not_has_its_price(looked):
    options, _ = looked(4.0)
    assert options
    for option in options:
        assert option.fits == (option.half_width <= 4.0)
        assert (option.loss is None) == option.fits
        if option.loss is not None:
            assert option.loss > PureDP.of(4)


@pytest.mark.slow
def test_longer_slots_are_looked_at_too(looked):
    _, seen = looked(1.0, grid=Grid(7, SlotKind.HOUR_OF_DAY, GRID.area, GRID.period))
    assert {grid.slot_kind for grid in seen} == {
        SlotKind.HOUR_OF_DAY,
        SlotKind.DAY_PART,
        SlotKind.WHOLE_PERIOD,
    }


def option(bins, records, fits=True, epsilon=None):
    needed = None if epsilon is None else PureDP.of(epsilon)
    return MapOption(GRID, 5, bins, records, 1.0, fits, needed)


def test_the_finest_has_most_bins_among_those_with_half_of_the_fixes():
    few, many, cut = option(10, 1.0), option(20, 0.6), option(50, 0.4)
    assert finest([few, many, cut, option(90, 1.0, fits=False)]) is many
    assert finest([cut, option(60, 0.3)]) is cut
    assert finest([option(90, 1.0, fits=False)]) is None
    assert finest([]) is None


def test_the_nearest_takes_the_least_loss():
    near, far = option(3, 1.0, False, 5), option(9, 1.0, False, 8)
    assert nearest([far, near, option(3, 1.0, False)]) is near
    assert nearest([option(3, 1.0, False)]) is None


@pytest.mark.slow
def test_more_epsilon_never_makes_the_finest_map_coarser(looked):
    before = 0
    for epsilon in (1, 2, 4, 8, 16):
        chosen = finest(looked(4.0, epsilon)[0])
        bins = 0 if chosen is None else chosen.bins
        assert bins >= before
        before = bins
