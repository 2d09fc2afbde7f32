"""Half widths that were planned are those released; the least epsilon really is the least.

The finest map that fits: what is looked at, what is chosen, what is nearest.
"""

from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples
from small_city import plan_request

from trafficdp.errors import UsageError
from trafficdp.mechanisms.names import AUTO
from trafficdp.model import Grid, Period, SlotKind, Statistic, StudyArea
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import WidthGoal, precision
from trafficdp.planner.request import MapOption
from trafficdp.planner.suggest import best_fitting_map, least_loss, nearest, try_maps
from trafficdp.privacy.loss import LossKind, PureDP, rounded_up

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
        request = plan_request(bound_of(60, "0.1"), PureDP.of(epsilon), tolerance, min_vehicles)
        seen = []
        return try_maps(grid, request, width, WidthGoal.MEDIAN, city, seen.append), seen

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
    assert best_fitting_map([few, many, cut, option(90, 1.0, fits=False)]) is many
    assert best_fitting_map([cut, option(60, 0.3)]) is cut
    assert best_fitting_map([option(90, 1.0, fits=False)]) is None
    assert best_fitting_map([]) is None


def test_the_nearest_takes_the_least_loss():
    near, far = option(3, 1.0, False, 5), option(9, 1.0, False, 8)
    assert nearest([far, near, option(3, 1.0, False)]) is near
    assert nearest([option(3, 1.0, False)]) is None


@pytest.mark.slow
def test_more_epsilon_never_makes_the_finest_map_coarser(looked):
    before = 0
    for epsilon in (1, 2, 4, 8, 16):
        chosen = best_fitting_map(looked(4.0, epsilon)[0])
        bins = 0 if chosen is None else chosen.bins
        assert bins >= before
        before = bins


PURE = LossKind.PURE


@pytest.fixture
def counts(counts_of):
    random = np.random.default_rng(4)
    return counts_of(random.poisson(3, (12, 30)) * (random.random((12, 30)) < 0.5))


@pytest.fixture
def asked(counts, bound_of):
    """``asked(epsilon, accounting)``: the allocation of a map of means and variances."""

    def asked(epsilon, accounting="best", level=0.95):
        tolerance = {Statistic.MEAN: 1.0, Statistic.VARIANCE: 60.0}
        request = plan_request(
            bound_of(60, "0.1"), PureDP.of(epsilon), tolerance, 3, level, accounting=accounting
        )
        return allocate(counts, request)

    return asked


@pytest.mark.parametrize("accounting", ["basic", "exact", "equal", "blocks"])
@pytest.mark.parametrize("goal", list(WidthGoal))
def test_the_least_loss_is_within_and_a_percent_less_is_not(asked, accounting, goal):
    found = least_loss(lambda epsilon: asked(epsilon.exact, accounting), PURE, 4.0, goal)
    assert precision(asked(found.exact, accounting)).at(goal) <= 4.0
    assert precision(asked(found.exact * 99 / 100, accounting)).at(goal) > 4.0


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [{}, {Statistic.MEAN: AUTO}], ids=["proved", "auto"])
def test_what_was_planned_before_does_not_matter(counts_of, bound_of, mechanism):
    counts = counts_of(np.random.default_rng(2).poisson(3, (5, 30)))
    found = set()
    for planned in ("0.01", "1", "6", "100"):
        loss, tolerance = PureDP.of(planned), {Statistic.MEAN: 1.0}
        request = plan_request(bound_of(60), loss, tolerance, 3, mechanism=mechanism)

        def at(loss, request=request):
            return allocate(counts, replace(request, loss=loss))

        found.add(least_loss(at, PURE, 4.0, WidthGoal.MEDIAN))
    (least,) = found
    assert precision(at(least)).median <= 4.0


@pytest.mark.parametrize("epsilon", np.geomspace(0.3, 12, 20))
def test_accountings_that_tie_are_told_apart_alike_at_every_loss(counts_of, bound_of, epsilon):
    # every vehicle is in one bin: the worst noise is the same by "exact" and "equal"
    table = [[3] * 4 + [0] * 20, [0] * 4 + [5] * 6 + [0] * 14, [0] * 10 + [2] * 14]
    request = plan_request(bound_of(20), PureDP.of(f"{epsilon:.6f}"), {Statistic.MEAN: 1.0}, 3)
    made = allocate(counts_of(table), request)
    assert made.chosen_accounting.name == "exact"
    widths = made.calibrated.half_widths(0.95)[Statistic.MEAN]
    assert widths.max() > 1.2 * np.median(widths)


def wide(of):
    """``allocate_at`` of a map of one bin as wide as ``of(epsilon)``, and the losses it was asked."""
    asked = []

    def at(loss):
        asked.append(loss)
        return SimpleNamespace(
            half_widths=lambda: {Statistic.MEAN: np.array([of(loss.number)])},
            request=SimpleNamespace(main=Statistic.MEAN),
        )

    return at, asked


@pytest.mark.parametrize("rounding", [0, 0.01, 0.3])
@pytest.mark.parametrize("least", [2.5e-6, 0.0312, 1, 690, 999_000])
def test_the_least_loss_takes_few_allocations(least, rounding):
    at, asked = wide(lambda epsilon: (0.5 - rounding) * least / epsilon * (1 - 1e-9) + rounding)
    assert least_loss(at, PURE, 0.5, WidthGoal.MEDIAN) == PureDP.of(f"{least:.7f}")
    assert len(asked) <= 6


@pytest.mark.parametrize("better", [1.7, 0.3, 0.0004])
def test_a_narrower_mechanism_at_half_the_loss_is_found(better):
    # from this loss on, up to 3, intervals are narrow; above they are wide again, and narrow from 5
    at, _ = wide(lambda epsilon: 0.4 if better <= epsilon <= 3 else 2.5 / epsilon)
    found = least_loss(at, PURE, 0.5, WidthGoal.MEDIAN)
    assert found == PureDP.of(f"{better}")


def test_where_widths_rise_half_and_the_next_smaller_are_wider():
    at, _ = wide(lambda epsilon: 0.4 if 1.8 <= epsilon <= 2 else 2.5 / epsilon)
    found = least_loss(at, PURE, 0.5, WidthGoal.MEDIAN)
    for less in (0.5, 0.99):
        assert precision(at(PureDP.of(f"{found.number * less:.6f}"))).median > 0.5


def test_no_epsilon_makes_up_for_the_rounding_of_speeds(asked):
    # a speed is rounded to hundredths of its unit, at most m/s (0.018 km/h), and to a step of 0.1 km/h (0.05)
    assert least_loss(lambda e: asked(e.exact), PURE, 0.065, WidthGoal.MEDIAN) is None
    assert least_loss(lambda e: asked(e.exact), PURE, 0.08, WidthGoal.MEDIAN) is not None


def test_a_half_width_must_be_positive(asked):
    for width in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="half_width"):
            least_loss(lambda e: asked(e.exact), PURE, width, WidthGoal.MEDIAN)


def test_a_higher_level_and_less_epsilon_make_intervals_wider(asked):
    assert precision(asked(4, level=0.99)).median > precision(asked(4)).median
    assert precision(asked(2)).worst > precision(asked(4)).worst


@given(st.floats(1e-6, 1e6))
@settings(max_examples=examples(200))
def test_rounding_up_gives_three_digits_and_never_less(epsilon):
    text = rounded_up(epsilon)
    assert epsilon * (1 - 1e-9) <= float(text) <= epsilon * 1.011
    assert len(text.replace(".", "").strip("0")) <= 3
    assert "e" not in text
