"""Finest bins go where the planner's partition puts them, whatever bins there are."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import h3.api.numpy_int as h3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.binning.cells import parents_of
from trafficdp.binning.places import bins_in_mosaic, longer_slots_of, slot_facts_of, slots_of
from trafficdp.errors import UsageError
from trafficdp.model import (
    LONGER,
    Grid,
    Mosaic,
    Period,
    SlotKind,
    StudyArea,
    levels_of,
    resolution_of,
    slot_kinds_of,
)

HOUR, PART, WHOLE = SlotKind.HOUR_OF_DAY, SlotKind.DAY_PART, SlotKind.WHOLE_PERIOD
TOP = h3.latlng_to_cell(21.2, 72.8, 6)
FINEST = np.sort(np.asarray(h3.cell_to_children(TOP, 8), dtype=np.uint64))
CELL, SLOT = np.repeat(FINEST, 24), np.tile(np.arange(24), len(FINEST))


def grid_of(mosaic, kind=HOUR):
    period = Period(date(2026, 3, 1), date(2026, 4, 30), "Europe/Berlin")
    area = StudyArea.from_bbox(72.0, 20.0, 74.0, 22.0)
    return Grid(8, kind, area, period, mosaic=mosaic)


def at_level(grid, level, cell=CELL, slot=SLOT):
    resolution, kind = level
    return list(
        zip(parents_of(cell, resolution).tolist(), longer_slots_of(grid, slot, kind).tolist(), strict=True)
    )


def random_grid(seed):
    """Bins of random levels, none within another."""
    random = np.random.default_rng(seed)
    longer = ((), (WHOLE,), (PART, WHOLE))[seed % 3]
    cells_first = bool(seed % 2)
    bare = grid_of(Mosaic((8, 7, 6), (), Fraction(5), longer, cells_first))
    levels = levels_of((8, 7, 6), (HOUR, *longer), cells_first)
    free, bins = np.ones(len(CELL), dtype=bool), []
    for _ in range(random.integers(0, 15)):
        own = at_level(bare, levels[random.integers(len(levels))])
        chosen = own[random.integers(len(own))]
        inside = np.array([each == chosen for each in own])
        if free[inside].all():
            free[inside] = False
            bins.append(chosen)
    return grid_of(Mosaic((8, 7, 6), tuple(sorted(bins)), Fraction(5), longer, cells_first)), levels


@pytest.mark.slow
@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(30))
def test_it_is_a_partition_that_keeps_the_published_bins(seed):
    grid, levels = random_grid(seed)
    held = list(zip(*(part.tolist() for part in bins_in_mosaic(grid, CELL, SLOT)), strict=True))
    above = [at_level(grid, level) for level in levels]
    published = set(grid.mosaic.bins)
    assert published <= set(held)
    number = {level: place for place, level in enumerate(levels)}
    cells, slots = (np.array(part) for part in zip(*held, strict=True))
    kinds = slot_kinds_of(slots, HOUR)
    places = [number[own] for own in zip(resolution_of(cells.astype(np.uint64)).tolist(), kinds, strict=True)]
    inside = {}
    for place, level in enumerate(above):
        for finest, own in enumerate(level):
            inside.setdefault((place, own), set()).add(finest)
    got = {}
    for finest, (bin_, place) in enumerate(zip(held, places, strict=True)):
        got.setdefault((place, bin_), set()).add(finest)
    # a bin holds all finest bins that lie in it on its level: so no two overlap
    assert all(members == inside[key] for key, members in got.items())
    for (place, bin_), members in got.items():
        if bin_ not in published and place + 1 < len(levels):
            # as large as can be: the next larger one holds something published
            larger = inside[place + 1, above[place + 1][min(members)]]
            assert any(held[finest] in published for finest in larger)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=examples(15))
def test_a_bin_goes_where_it_goes_whatever_other_bins_there_are(seed):
    grid, _ = random_grid(seed)
    some = np.random.default_rng(seed).random(len(CELL)) < 0.3
    cell, slot = bins_in_mosaic(grid, CELL, SLOT)
    alone = bins_in_mosaic(grid, CELL[some], SLOT[some])
    assert np.array_equal(alone[0], cell[some])
    assert np.array_equal(alone[1], slot[some])


def test_nothing_published_is_one_withheld_bin_of_the_highest_level():
    grid = grid_of(Mosaic((8, 7, 6), (), Fraction(5), (WHOLE,)))
    cell, slot = bins_in_mosaic(grid, CELL, SLOT)
    assert (set(cell.tolist()), set(slot.tolist())) == ({TOP}, {-1})


def test_without_a_mosaic_bins_stay():
    assert bins_in_mosaic(grid_of(None), CELL, SLOT)[0] is CELL


def test_other_cells_than_the_finest_are_refused():
    grid = grid_of(Mosaic((8, 7), (), Fraction(5)))
    with pytest.raises(UsageError, match="finest resolution"):
        bins_in_mosaic(grid, np.array([TOP], dtype=np.uint64), np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("kind", list(SlotKind))
def test_longer_slots_are_those_of_every_instant_in_the_slot(kind):
    """Around a change of clocks, by slots_of on the instants themselves."""
    instants = np.arange(1_774_600_000, 1_774_950_000, 600, dtype=np.int64) * 1_000_000
    own = slots_of(instants, kind, "Europe/Berlin")
    for longer in LONGER[kind]:
        grid = grid_of(Mosaic((8, 7), (), Fraction(5), (longer,)), kind)
        direct = slots_of(instants, longer, "Europe/Berlin")
        found = longer_slots_of(grid, own, longer)
        assert len(set(zip(direct.tolist(), found.tolist(), strict=True))) == len(set(direct.tolist()))
        assert len(set(found.tolist())) == len(set(direct.tolist()))
        assert set(slot_kinds_of(found, kind)) == {longer}
        facts = slot_facts_of(grid, np.concatenate([own, found]))
        assert facts.keys() == {*own.tolist(), *found.tolist()}


def test_longer_slots_are_named():
    grid = grid_of(Mosaic((8, 7), (), Fraction(5), (PART, WHOLE)))
    facts = slot_facts_of(grid, np.array([8, *longer_slots_of(grid, np.array([8]), PART), -1]))
    labels = [each.label for each in facts.values()]
    assert labels == ["08:00-09:00", "morning peak (06:00-10:00)", "2026-03-01 to 2026-04-30"]


def test_slots_that_do_not_add_up_to_longer_ones_are_refused():
    with pytest.raises(UsageError, match="do not add up"):
        grid_of(Mosaic((8, 7), (), Fraction(5), (SlotKind.DAY,)))
    with pytest.raises(UsageError, match="do not add up"):
        grid_of(Mosaic((8, 7), (), Fraction(5), (WHOLE, PART)))
