"""The part of a report on time slots: a small map of every slot, and diagrams of a few areas over them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from trafficdp.export.report import sentences
from trafficdp.export.report.certainty import Certain, decimals
from trafficdp.export.report.findings import StatisticFindings, extreme_times
from trafficdp.export.report.maps import Atlas
from trafficdp.export.report.page import Times
from trafficdp.export.report.panel import Panel, nice_top, panel
from trafficdp.export.report.phrases import WORDS
from trafficdp.model import Statistic
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
    words, unit = WORDS[each.statistic], release.display_unit.label
    something = bool(np.any(release.estimates[each.statistic].status == BinStatus.RELEASED.value))
    drawable = len(atlas.slots) <= MOST_SLOTS and len(atlas.slots) * len(atlas.paths) <= MOST_SHAPES
    maps = (
        [
            atlas.figure(each.statistic, slot, release.slots[slot].label, {}, small=True)
            for slot in atlas.slots
        ]
        if drawable and something
        else []
    )
    said = [] if drawable or not something else [sentences.TOO_MANY_TIMES]
    panels: list[Panel] = []
    if each.certain is not None and drawn:
        shown = np.isin(atlas.position[each.certain.rows], [cell for cell, _ in drawn])
        top = nice_top(float(each.certain.high[shown].max()))
        said.append(sentences.times_intro(words, len(drawn), unit, f"{top:g}"))
        panels = [
            _panel(release, each.statistic, each.certain, atlas, cell, mark, top) for cell, mark in drawn
        ]
    if not maps and not said:
        return None
    return Times(
        sentences.HEADINGS["times" if release.grid.slot_kind.recurs else "days"],
        tuple(said),
        tuple(maps),
        tuple(panels),
        tuple(sentences.panel_title(words, each.name) for each in panels),
    )


def short_label(label: str) -> str:
    """Return a slot's label short enough for an axis: no brackets, an hour by its start."""
    return re.sub(r"(\d\d:\d\d)-\d\d:\d\d", r"\1", re.sub(r"\s*\(.*\)$", "", label))


def _panel(
    release: Release, statistic: Statistic, certain: Certain, atlas: Atlas, cell: int, mark: str, top: float
) -> Panel:
    numbers = np.full((3, len(atlas.slots)), np.nan)
    mine = np.flatnonzero(atlas.position[certain.rows] == cell)
    place = np.searchsorted(np.array(atlas.slots), release.slot[certain.rows[mine]])
    numbers[:, place] = certain.value[mine], certain.low[mine], certain.high[mine]
    labels = [release.slots[slot].label for slot in atlas.slots]
    found = extreme_times(numbers[1], numbers[2])
    words, unit = WORDS[statistic], release.display_unit.label
    sentence = sentences.times_not_told()
    if found is not None:
        lowest, highest, gap = found
        digits = decimals(release.display_unit)
        gap = np.floor(gap * 10**digits + 1e-6) / 10**digits
        sentence = sentences.times_told(words, labels[lowest], labels[highest], gap, unit, digits)
    name = sentences.panel_name(mark, atlas.place(int(certain.rows[mine[0]])))
    value, low, high = numbers
    return panel(name, sentence, [short_label(each) for each in labels], (value, low, high), top)
