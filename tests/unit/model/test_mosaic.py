"""A mosaic decides every bin by itself, and says nothing about positions or values."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from trafficdp.errors import UsageError
from trafficdp.model import Grid, Mosaic, SlotKind, among, resolution_of

EIGHT, SEVEN = 0x88754E6499FFFFF, 0x87754E649FFFFFF
"""A cell of resolution 8 and its parent."""


def test_resolutions_are_in_the_index():
    assert resolution_of(np.array([EIGHT, SEVEN], dtype=np.uint64)).tolist() == [8, 7]


def test_it_survives_json():
    mosaic = Mosaic((8, 7), ((SEVEN, 3), (EIGHT, 0)), Fraction(5, 36))
    assert Mosaic.from_facts(**mosaic.to_facts()) == mosaic
    longer = replace(mosaic, longer=(SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD), cells_first=False)
    assert Mosaic.from_facts(**longer.to_facts()) == longer


def test_levels_grow_along_cells_or_along_slots_first():
    hour, whole = SlotKind.HOUR_OF_DAY, SlotKind.WHOLE_PERIOD
    mosaic = Mosaic((8, 7), ((SEVEN, -1), (EIGHT, 5)), Fraction(5), (whole,))
    assert mosaic.levels(hour) == ((8, hour), (7, hour), (7, whole))
    assert replace(mosaic, cells_first=False).levels(hour) == ((8, hour), (8, whole), (7, whole))
    assert mosaic.bins_per_level(hour) == {(8, hour): 1, (7, hour): 0, (7, whole): 1}


def test_bins_are_counted_by_resolution():
    mosaic = Mosaic((8, 7, 6), ((SEVEN, 0), (SEVEN, 1), (EIGHT, 2)), Fraction(5))
    assert mosaic.bins_per_resolution() == {8: 1, 7: 2, 6: 0}


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
    found = among(cell, slot, np.array([1, 2], dtype=np.uint64), np.array([5, 0]))
    assert found.tolist() == [False, True, True]
    assert not among(cell, slot, cell[:0], slot[:0]).any()


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
