"""From finest bins to the bins of a mosaic, by cell index (aperture 7, logical containment) and slot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import CellArray, parents_of
from trafficdp.binning.slots import slot_facts, slots_of
from trafficdp.errors import UsageError
from trafficdp.model.grid import Grid, among, resolution_of
from trafficdp.model.slot import OFFSET, SlotKind, kinds_of
from trafficdp.privacy.release import SlotFacts

IntArray = npt.NDArray[np.int64]


def bins_in_mosaic(grid: Grid, cell: CellArray, slot: IntArray) -> tuple[CellArray, IntArray]:
    """Return (cell, slot) of the bin of the grid's mosaic that holds each finest bin, shape (n,) each.

    That is the published bin it lies in; else the bin of the highest level that holds no published one. So
    every finest bin is in one bin, and no two bins overlap (for the proof see ``planner.adaptive``). Depends
    on the mosaic and the bin alone, not on what other bins there are. Without a mosaic bins stay.

    Raises UsageError unless all cells are of the finest resolution.
    """
    mosaic = grid.mosaic
    if mosaic is None:
        return cell, slot
    if len(cell) and not bool(np.all(resolution_of(cell) == grid.resolution)):
        raise UsageError("cells are not of the finest resolution", expected=grid.resolution)
    published, its_slot = mosaic.cell, mosaic.slot
    its_resolution, its_kind = resolution_of(published), kinds_of(its_slot, grid.slot_kind)
    its_level = np.full(len(published), -1, dtype=np.int64)
    levels = mosaic.levels(grid.slot_kind)
    for number, (resolution, kind) in enumerate(levels):
        its_level[(its_resolution == resolution) & (its_kind == kind)] = number
    result, result_slot = cell.copy(), slot.copy()
    covered = np.zeros(len(cell), dtype=np.bool_)
    for own_level in (True, False):
        # first the bins that are published, then, for what they leave, ever larger ones that hold none
        for number, (resolution, kind) in enumerate(levels):
            ancestor, longer = parents_of(cell, resolution), lengthened(grid, slot, kind)
            some = its_level == number if own_level else its_level <= number
            found = among(
                ancestor,
                longer,
                parents_of(published[some], resolution),
                lengthened(grid, its_slot[some], kind),
            )
            chosen = found if own_level else ~covered & ~found
            result[chosen], result_slot[chosen] = ancestor[chosen], longer[chosen]
            if own_level:
                covered |= found
    return result, result_slot


def lengthened(grid: Grid, slot: IntArray, kind: SlotKind) -> IntArray:
    """Return the slot of ``kind`` that holds each ``slot`` of the grid, its own or a longer one, shape (n,).

    ``kind`` is the grid's own or one in model.LONGER of it, not shorter than any of ``slot``.
    """
    if kind is grid.slot_kind:
        return slot
    if kind is SlotKind.WHOLE_PERIOD:
        return np.full(len(slot), OFFSET[kind], dtype=np.int64)
    result = slot.copy()
    own = slot >= 0
    if kind is SlotKind.DAY:
        longer = slots_of(slot[own] * 1_000_000, kind, grid.period.time_zone)
    else:
        part_of_hour = np.zeros(24, dtype=np.int64)
        for index, part in enumerate(grid.day_parts):
            part_of_hour[list(part.hours)] = index
        longer = part_of_hour[slot[own] % 24]
    result[own] = longer + OFFSET[kind]
    return result


def slot_facts_of(grid: Grid, slots: IntArray) -> dict[int, SlotFacts]:
    """Return ``slot_facts`` of every number in ``slots``, longer slots included."""
    facts: dict[int, SlotFacts] = {}
    kinds = kinds_of(slots, grid.slot_kind)
    for kind in dict.fromkeys(kinds.tolist()):
        mine = slots[kinds == kind]
        offset = np.where(mine < 0, OFFSET.get(kind, 0), 0)
        known = slot_facts(mine - offset, kind, grid.period, grid.day_parts)
        facts |= {int(number): known[int(number - by)] for number, by in zip(mine, offset, strict=True)}
    return facts
