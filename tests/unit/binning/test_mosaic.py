"""Finest bins go where the planner's partition puts them, whatever bins there are."""

from __future__ import annotations

from fractions import Fraction

import h3.api.numpy_int as h3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trafficdp.binning.cells import parents_of
from trafficdp.binning.mosaic import cells_in_mosaic
from trafficdp.errors import UsageError
from trafficdp.model.mosaic import Mosaic, resolution_of

TOP = h3.latlng_to_cell(21.2, 72.8, 5)
FINEST = np.sort(np.asarray(h3.cell_to_children(TOP, 8), dtype=np.uint64))


def random_mosaic(seed):
    """Antichains in two slots: take random cells of any level that hold or touch nothing taken before."""
    random = np.random.default_rng(seed)
    bins = []
    for slot in (0, 1):
        free = np.ones(len(FINEST), dtype=bool)
        for _ in range(random.integers(0, 12)):
            own = parents_of(FINEST, int(random.integers(5, 9)))
            cell = own[random.integers(len(FINEST))]
            if free[own == cell].all():
                free[own == cell] = False
                bins.append((int(cell), slot))
    return Mosaic((8, 7, 6, 5), tuple(sorted(bins)), Fraction(5))


@given(seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_it_is_a_partition_that_keeps_the_published_bins(seed):
    mosaic = random_mosaic(seed)
    for slot in (0, 1):
        slots = np.full(len(FINEST), slot, dtype=np.int64)
        held = cells_in_mosaic(mosaic, FINEST, slots)
        published = {cell for cell, of in mosaic.bins if of == slot}
        for cell in np.unique(held):
            inside = parents_of(FINEST, int(resolution_of(cell)))
            # a bin holds all that lies in its cell, so bins are disjoint
            assert np.array_equal(held == cell, inside == cell)
        assert published <= set(held.tolist())
        for cell in set(held.tolist()) - published:
            parent = int(resolution_of(np.uint64(cell))) - 1
            if parent >= 5:
                # as large as can be: its parent holds something published
                family = parents_of(FINEST, parent) == parents_of(np.array([cell], dtype=np.uint64), parent)
                assert set(held[family].tolist()) & published


@given(seed=st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_a_bin_goes_where_it_goes_whatever_other_bins_there_are(seed):
    mosaic = random_mosaic(seed)
    slots = np.arange(len(FINEST), dtype=np.int64) % 2
    some = np.random.default_rng(seed).random(len(FINEST)) < 0.3
    every = cells_in_mosaic(mosaic, FINEST, slots)
    assert np.array_equal(cells_in_mosaic(mosaic, FINEST[some], slots[some]), every[some])


def test_nothing_published_is_one_withheld_cell_of_the_coarsest_resolution():
    held = cells_in_mosaic(
        Mosaic((8, 7, 6, 5), (), Fraction(5)), FINEST, np.zeros(len(FINEST), dtype=np.int64)
    )
    assert set(held.tolist()) == {TOP}


def test_other_cells_than_the_finest_are_refused():
    with pytest.raises(UsageError, match="finest resolution"):
        cells_in_mosaic(
            Mosaic((8, 7), (), Fraction(5)), np.array([TOP], dtype=np.uint64), np.zeros(1, dtype=int)
        )
