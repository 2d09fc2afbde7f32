"""The maps of a report: the looks of cells, drawn, with legends and words for those who do not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.export.files.classes import (
    ABSENT,
    HATCHED,
    PLAIN,
    UNINFORMATIVE,
    WITHHELD,
    classes_in_words,
    letters_of,
)
from trafficdp.export.files.columns import withheld_because
from trafficdp.export.files.frame import unique_polygons
from trafficdp.export.files.shown import shown_breaks, shown_hatch_limit, shown_numbers
from trafficdp.export.map.drawing import Drawing
from trafficdp.export.map.picture import FELL, ROSE, UNSURE, Picture, draw, swatch
from trafficdp.export.map.places import Centres, centres_of
from trafficdp.export.report import sentences
from trafficdp.export.report.certainty import IntArray
from trafficdp.export.report.page import Figure, LegendLine
from trafficdp.export.report.phrases import WORDS
from trafficdp.model import Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release, published_frame

if TYPE_CHECKING:
    import pandas as pd

Marks = Mapping[int, tuple[str, bool]]
"""What is written on which cell, and whether on dark."""


@dataclass(frozen=True)
class Atlas:
    """The cells of a release, ready to be drawn again and again.

    ``position`` says for every bin which cell it is in; ``slots`` are the different slots, in order.
    """

    release: Release
    drawing: Drawing
    paths: Sequence[str]
    outline: str
    centres: Centres
    position: IntArray
    slots: tuple[int, ...]
    table: pd.DataFrame

    @classmethod
    def of(cls, release: Release) -> Atlas:
        """Return the atlas of ``release``, which has at least one bin."""
        polygons, position = unique_polygons(release)
        hexagons = release.grid.zones is None
        drawing = Drawing.of(polygons, hexagons=hexagons)
        return cls(
            release,
            drawing,
            drawing.paths(polygons),
            drawing.outline(release.grid.area.geometry),
            centres_of(drawing, polygons, hexagons=hexagons),
            position,
            tuple(int(slot) for slot in np.unique(release.slot)),
            published_frame(release),
        )

    def place(self, row: int) -> str:
        """Return where the cell of bin ``row`` lies."""
        return str(self.release.place[row])

    def letters(self, statistic: Statistic, slot: int) -> npt.NDArray[np.str_]:
        """Return the look of every cell at ``slot``, shape (C,): classes of the published numbers."""
        release, unit = self.release, self.release.display_unit
        rows = np.flatnonzero(release.slot == slot)
        value, low, high = (each[rows] for each in shown_numbers(self.table, statistic, unit))
        status = self.table[f"{statistic.stem}_status"].to_numpy(dtype=object)[rows]
        breaks = shown_breaks(statistic, release.bound, unit)
        limit = shown_hatch_limit(statistic, release.bound, unit)
        letters = np.full(len(self.paths), ABSENT)
        letters[self.position[rows]] = letters_of(value, low, high, status, breaks, limit)
        return letters

    def figure(self, statistic: Statistic, slot: int, caption: str, marks: Marks, *, small: bool) -> Figure:
        """Return the map of ``statistic`` at ``slot``."""
        words, letters = WORDS[statistic], self.letters(statistic, slot)
        title = sentences.map_title(words, self.release.disclosure.coverage.place, self.release.grid.noun)
        several = len(self.slots) > 1
        title = f"{title}, {self.release.slots[slot].label}" if several else title
        return Figure(self._drawn(letters, marks, small=small), title, described(letters), caption)

    def change_figure(
        self, rows: IntArray, fell: IntArray, rose: IntArray, caption: str, slot: int
    ) -> Figure:
        """Return the map of changes at ``slot``: bins ``fell`` and ``rose`` among the common ``rows``."""
        letters = np.full(len(self.paths), ABSENT)
        for letter, bins in ((UNSURE, rows), (FELL, fell), (ROSE, rose)):
            letters[self.position[bins[self.release.slot[bins] == slot]]] = letter
        here = int((self.release.slot[rows] == slot).sum())
        down, up = (int((letters == letter).sum()) for letter in (FELL, ROSE))
        words = sentences.change_map_in_words(down, up, here - down - up, WORDS[self.first])
        return Figure(self._drawn(letters, {}, small=False), caption, words, caption)

    @property
    def first(self) -> Statistic:
        """The statistic that the report is about first."""
        return next(statistic for statistic in Statistic if statistic in self.release.estimates)

    def _drawn(self, letters: npt.NDArray[np.str_], marks: Marks, *, small: bool) -> Picture:
        return draw(
            self.drawing,
            self.paths,
            self.centres,
            letters,
            outline=self.outline,
            badges=[(cell, text, dark) for cell, (text, dark) in marks.items()],
            bar=not small,
        )


def slot_shown(release: Release, statistic: Statistic) -> int:
    """Return the slot with most numbers, the earliest of several: counts alone decide."""
    slots, position = np.unique(release.slot, return_inverse=True)
    there = release.estimates[statistic].status == BinStatus.RELEASED.value
    return int(slots[np.argmax(np.bincount(position, weights=there, minlength=len(slots)))])


def described(letters: npt.NDArray[np.str_]) -> str:
    """Return in words what a map with these looks shows."""
    hatched = int(np.isin(letters, list(HATCHED)).sum())
    coloured = hatched + int(np.isin(letters, list(PLAIN)).sum())
    withheld, noisy, empty = (int((letters == each).sum()) for each in (WITHHELD, UNINFORMATIVE, ABSENT))
    return sentences.map_in_words(coloured, hatched, withheld, noisy, empty)


def legend(release: Release, statistic: Statistic, level: str, several: bool) -> tuple[LegendLine, ...]:
    """Return the legend of the maps of ``statistic``: fixed classes, then what has no class."""
    unit, bound = release.display_unit, release.bound
    texts = classes_in_words(shown_breaks(statistic, bound, unit))
    limit = format(shown_hatch_limit(statistic, bound, unit), "g")
    lines = [LegendLine(swatch(letter), text) for letter, text in zip(PLAIN, texts, strict=True)]
    hatched = sentences.legend_hatched(level, limit, unit.label)
    lines.append(LegendLine(swatch(HATCHED[len(HATCHED) // 2]), hatched))
    lines.append(LegendLine(swatch(WITHHELD), withheld_because(release)))
    lines.append(LegendLine(swatch(UNINFORMATIVE), sentences.legend_noisy()))
    if several:
        lines.append(LegendLine(swatch(ABSENT), sentences.legend_empty()))
    return tuple(lines)


def change_legend(statistic: Statistic) -> tuple[LegendLine, ...]:
    """Return the legend of a map of changes."""
    texts = sentences.legend_change(WORDS[statistic])
    return tuple(
        LegendLine(swatch(letter), text)
        for letter, text in zip((FELL, ROSE, UNSURE, ABSENT), texts, strict=True)
    )
