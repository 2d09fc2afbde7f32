"""The part of a report on time slots: a small map of every slot, and diagrams of a few areas over them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trafficdp.export.report.certainty import Certain, decimals
from trafficdp.export.report.findings import StatisticFindings, extreme_times
from trafficdp.export.report.maps import Atlas
from trafficdp.export.report.page import Apart, PlaceOverTime, Times
from trafficdp.export.report.panel import nice_top, panel
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release

MOST_PANELS = 6
MOST_SLOTS = 48
MOST_SHAPES = 60_000
"""Cells times slots up to which every slot gets a small map."""


def drawn_cells(release: Release, each: StatisticFindings, atlas: Atlas) -> tuple[int, ...]:
    """Return the cells that get a diagram: those with most compared slots, then with least noise.

    Both are public before any number is drawn. A cell needs two compared slots.
    """
    if each.certain is None:
        return ()
    rows = each.certain.rows
    cells = len(atlas.paths)
    slots = np.bincount(atlas.position[rows], minlength=cells)
    scale = release.estimates[each.statistic].noise_scale[rows]
    noise = np.bincount(atlas.position[rows], weights=scale, minlength=cells) / np.maximum(slots, 1)
    order = np.lexsort((noise, -slots))
    return tuple(int(cell) for cell in order[:MOST_PANELS] if slots[cell] >= 2)


def times_of(
    release: Release, each: StatisticFindings, atlas: Atlas, drawn: Sequence[tuple[int, str]]
) -> Times | None:
    """Return the part on time slots; ``drawn`` are ``drawn_cells`` with their marks on the map.

    None where no slot has a number to show.
    """
    if not np.any(release.estimates[each.statistic].status == BinStatus.RELEASED.value):
        return None
    drawable = len(atlas.slots) <= MOST_SLOTS and len(atlas.slots) * len(atlas.paths) <= MOST_SHAPES
    slots = atlas.slots if drawable else ()
    maps = tuple(atlas.figure(each.statistic, slot, {}, small=True) for slot in slots)
    if each.certain is None or not drawn:
        return Times(maps, (), 0.0)
    shown = np.isin(atlas.position[each.certain.rows], [cell for cell, _ in drawn])
    top = nice_top(float(each.certain.high[shown].max()))
    return Times(
        maps, tuple(_over_time(release, each.certain, atlas, cell, mark, top) for cell, mark in drawn), top
    )


def short_label(label: str) -> str:
    """Return a slot's label short enough for an axis: no brackets, an hour by its start."""
    return re.sub(r"(\d\d:\d\d)-\d\d:\d\d", r"\1", re.sub(r"\s*\(.*\)$", "", label))


def _over_time(
    release: Release, certain: Certain, atlas: Atlas, cell: int, mark: str, top: float
) -> PlaceOverTime:
    numbers = np.full((3, len(atlas.slots)), np.nan)
    mine = np.flatnonzero(atlas.position[certain.rows] == cell)
    slots = np.searchsorted(np.array(atlas.slots), release.slot[certain.rows[mine]])
    numbers[:, slots] = certain.value[mine], certain.low[mine], certain.high[mine]
    labels = [release.slots[slot].label for slot in atlas.slots]
    found, apart = extreme_times(numbers[1], numbers[2]), None
    if found is not None:
        lowest, highest, gap = found
        digit = 10 ** decimals(release.display_unit)
        apart = Apart(labels[lowest], labels[highest], float(np.floor(gap * digit + 1e-6) / digit))
    value, low, high = numbers
    drawn = panel([short_label(each) for each in labels], (value, low, high), top)
    return PlaceOverTime(mark, str(release.place[certain.rows[mine[0]]]), apart, drawn)
