"""What a selection holds, and how it is said."""

from dataclasses import replace
from datetime import date

import pytest

from trafficdp.errors import UsageError
from trafficdp.model import EVERYTHING, Grid, Period, Place, Selection, SlotKind, StudyArea, hours_in_words
from trafficdp.privacy.release_codec import grid_from_facts, grid_to_facts

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
    assert "selection" not in grid_to_facts(GRID)
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
    again = grid_from_facts(grid_to_facts(grid))
    assert again.selection == selection
    assert again.key == grid.key
    assert grid_from_facts(grid_to_facts(GRID)).selection == EVERYTHING


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
