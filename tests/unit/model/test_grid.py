"""What a selection holds, and how it is said.

A mosaic decides every bin by itself, and says nothing about positions or values.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import ConfigError, UsageError
from trafficdp.model import (
    EVERYTHING,
    Grid,
    Mosaic,
    Period,
    Place,
    Selection,
    SlotKind,
    StudyArea,
    are_pairs_of,
    as_json,
    from_json,
    hours_in_words,
    resolution_of,
)


def test_a_period_is_whole_local_days():
    period = Period(date(2024, 3, 30), date(2024, 3, 31), "Europe/London")
    start, end = (datetime.fromtimestamp(second, UTC) for second in period.utc_seconds)
    assert start == datetime(2024, 3, 30, 0, tzinfo=UTC)
    # the clocks went forward on the 31st
    assert end == datetime(2024, 3, 31, 23, tzinfo=UTC)


def test_a_period_that_ends_before_it_starts_is_refused():
    with pytest.raises(ConfigError, match="ends before it starts"):
        Period(date(2024, 1, 2), date(2024, 1, 1), "UTC")


@pytest.mark.parametrize(("first", "last"), [(date.min, date(2024, 1, 1)), (date(2024, 1, 1), date.max)])
def test_a_period_that_no_clock_can_express_is_refused(first, last):
    with pytest.raises(ConfigError, match="years 1900 to 2200"):
        Period(first, last, "Asia/Kolkata")


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "UTC+1"])
def test_unknown_time_zones_are_refused(zone):
    with pytest.raises(ConfigError, match="unknown time zone"):
        Period(date(2024, 1, 1), date(2024, 1, 2), zone)


CITY = StudyArea.from_bbox(16.2, 48.1, 16.6, 48.3)
CENTRE = Place("centre", StudyArea.from_bbox(16.3, 48.15, 16.4, 48.25))
PORT = Place("port", StudyArea.from_bbox(16.45, 48.15, 16.5, 48.2))
GRID = Grid(7, SlotKind.HOUR_OF_DAY, CITY, Period(date(2026, 3, 2), date(2026, 3, 3), "Europe/Vienna"))


@pytest.mark.parametrize("wrong", [{"hours_of_week": ()}, {"cells": ()}, {"places": ((),)}])
def test_a_selection_of_nothing_is_refused(wrong):
    with pytest.raises(UsageError, match="no place or no time"):
        Selection(**wrong)


@pytest.mark.parametrize("hour", [-1, 168])
def test_hours_of_the_week_are_0_to_167(hour):
    with pytest.raises(UsageError, match="hour of the week"):
        Selection(hours_of_week=(hour,))


def test_a_grid_without_selection_has_the_key_it_always_had():
    # the keys of stores that were written before selections: releases there must stay recognisable
    assert GRID.key == "d8593eafae541a317482768fa091edf79e744628fd7162f5e1122d0f00fb9145"
    assert "selection" not in as_json(GRID)
    assert replace(GRID, selection=EVERYTHING).key == GRID.key


def test_the_key_of_a_grid_depends_on_what_is_selected_and_not_on_names():
    def key(**selected):
        return replace(GRID, selection=Selection(**selected)).key

    assert len({GRID.key, key(hours_of_week=(7, 8)), key(places=((CENTRE,),)), key(cells=(5,))}) == 4
    renamed = Place("middle", CENTRE.area)
    assert key(places=((CENTRE,),)) == key(places=((renamed,),))
    assert key(places=((CENTRE, PORT),)) == key(places=((PORT, CENTRE),))
    assert key(places=((CENTRE,), (PORT,))) == key(places=((PORT,), (CENTRE,), (PORT,)))
    assert key(places=((CENTRE, PORT),)) != key(places=((CENTRE,), (PORT,)))


def test_a_selection_survives_json():
    selection = Selection((7, 8, 31), ((CENTRE, PORT), (CENTRE,)), (0x871E15B71FFFFFF, 0x871E15B73FFFFFF))
    grid = replace(GRID, selection=selection)
    again = from_json(Grid, as_json(grid))
    assert again.selection == selection
    assert again.key == grid.key
    assert from_json(Grid, as_json(GRID)).selection == EVERYTHING


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        ([day * 24 + hour for day in range(5) for hour in (7, 8, 9)], "Monday to Friday 07:00-10:00"),
        ([day * 24 + hour for day in (5, 6) for hour in range(24)], "Saturday and Sunday"),
        ([0, 2, 24 * 6 + 23], "Monday 00:00-01:00 and 02:00-03:00, Sunday 23:00-24:00"),
        ([day * 24 + 8 for day in (0, 2, 3, 4)], "Monday and Wednesday to Friday 08:00-09:00"),
    ],
)
def test_hours_are_said_as_people_say_them(hours, words):
    assert hours_in_words(tuple(sorted(hours))) == words


def test_every_restriction_is_named():
    selection = Selection((8,), ((CENTRE, PORT),), (1, 2))
    assert selection.in_words() == "Monday 08:00-09:00; within centre or port; within 2 listed hexagons"
    assert EVERYTHING.in_words() == "all of the area and period"


EIGHT, SEVEN = 0x88754E6499FFFFF, 0x87754E649FFFFFF
"""A cell of resolution 8 and its parent."""


def test_resolutions_are_in_the_index():
    assert resolution_of(np.array([EIGHT, SEVEN], dtype=np.uint64)).tolist() == [8, 7]


def test_it_survives_json():
    mosaic = Mosaic((8, 7), ((SEVEN, 3), (EIGHT, 0)), Fraction(5, 36))
    assert from_json(Mosaic, as_json(mosaic)) == mosaic
    longer = replace(mosaic, longer=(SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD), cells_first=False)
    assert from_json(Mosaic, as_json(longer)) == longer


def test_levels_grow_along_cells_or_along_slots_first():
    hour, whole = SlotKind.HOUR_OF_DAY, SlotKind.WHOLE_PERIOD
    mosaic = Mosaic((8, 7), ((SEVEN, -1), (EIGHT, 5)), Fraction(5), (whole,))
    assert mosaic.levels(hour) == ((8, hour), (7, hour), (7, whole))
    assert replace(mosaic, cells_first=False).levels(hour) == ((8, hour), (8, whole), (7, whole))
    assert mosaic.bins_per_level(hour) == {(8, hour): 1, (7, hour): 0, (7, whole): 1}


@pytest.mark.parametrize("resolutions", [(), (7, 8), (8, 8), (16, 7)])
def test_resolutions_must_fall(resolutions):
    with pytest.raises(UsageError):
        Mosaic(resolutions, (), Fraction(5))


@pytest.mark.parametrize("bins", [((EIGHT, 0), (SEVEN, 0)), ((SEVEN, 0), (SEVEN, 0)), ((1, 0),)])
def test_bins_must_rise_and_be_of_its_resolutions(bins):
    with pytest.raises(UsageError, match="out of order"):
        Mosaic((8, 7), bins, Fraction(5))


def test_pairs_are_found_only_as_pairs():
    cell, slot = np.array([1, 1, 2], dtype=np.uint64), np.array([0, 5, 0])
    found = are_pairs_of(cell, slot, np.array([1, 2], dtype=np.uint64), np.array([5, 0]))
    assert found.tolist() == [False, True, True]
    assert not are_pairs_of(cell, slot, cell[:0], slot[:0]).any()


@pytest.fixture
def grid(small_city, tmp_path):
    city = small_city.City(tmp_path / "city", resolution=8)
    return city.open().config.grid


def test_a_grid_with_a_mosaic_is_another_question(grid: Grid):
    one = replace(grid, mosaic=Mosaic((8, 7), ((SEVEN, 0),), Fraction(5)))
    other = replace(grid, mosaic=Mosaic((8, 7), ((EIGHT, 0),), Fraction(5)))
    assert len({grid.key, one.key, other.key}) == 3
    assert (grid.resolutions, one.resolutions) == ((8,), (8, 7))
    cells, slots = np.array([SEVEN, EIGHT], dtype=np.uint64), np.zeros(2, dtype=np.int64)
    assert grid.may_publish(cells, slots).all()
    assert one.may_publish(cells, slots).tolist() == [True, False]


def test_the_finest_resolution_is_the_grids(grid: Grid):
    with pytest.raises(UsageError, match="finest resolution"):
        replace(grid, mosaic=Mosaic((7, 6), (), Fraction(5)))
