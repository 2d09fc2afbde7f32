"""The maps of a report: the looks of cells, drawn, with legends and words for those who do not see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import IntArray
from trafficdp.export.files import classes
from trafficdp.export.files.tables import unique_polygons, withheld_because
from trafficdp.export.map import drawing as map_drawing
from trafficdp.export.report.page import Figure, LegendLine
from trafficdp.model import Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release, published_frame

if TYPE_CHECKING:
    import pandas as pd

Marks = Mapping[int, tuple[str, bool]]
"""What is written on which cell, and whether on dark."""
MOST_SLOTS, MOST_SHAPES = 48, 60_000
"""Slots, and cells times slots, up to which every slot gets a map."""
LOOKS = {
    "coloured": classes.PLAIN + classes.HATCHED,
    "hatched": classes.HATCHED,
    "withheld": classes.WITHHELD,
    "noisy": classes.UNINFORMATIVE,
    "empty": classes.ABSENT,
}
"""The letters of cells that are counted as of one look, on a map of numbers."""
CHANGE_LOOKS = {"fell": map_drawing.FELL, "rose": map_drawing.ROSE, "unsure": map_drawing.UNSURE}
"""The same on a map of changes."""
CHANGE_LEGEND = tuple(
    LegendLine(map_drawing.swatch(letter), look)
    for look, letter in (CHANGE_LOOKS | {"absent": classes.ABSENT}).items()
)
"""The legend of a map of changes."""


@dataclass(frozen=True)
class ReportMaps:
    """What is needed to draw maps of one release again and again.

    ``position`` (G,) is the index of each bin's cell among the C different cells; ``slots`` are the
    different slots, in order.
    """

    release: Release
    drawing: map_drawing.Drawing
    paths: Sequence[str]
    outline: str
    centres: map_drawing.Centres
    position: IntArray
    slots: tuple[int, ...]
    table: pd.DataFrame
    surroundings: map_drawing.Surroundings

    @classmethod
    def of(cls, release: Release) -> ReportMaps:
        """Return the maps of ``release``, which has at least one bin."""
        polygons, position = unique_polygons(release)
        hexagons = release.grid.zones is None
        drawing = map_drawing.Drawing.of(polygons, hexagons=hexagons)
        centres = map_drawing.centres_of(drawing, polygons, hexagons=hexagons)
        return cls(
            release,
            drawing,
            drawing.paths(polygons),
            drawing.outline(release.grid.area.geometry),
            centres,
            position,
            tuple(int(slot) for slot in np.unique(release.slot)),
            published_frame(release),
            map_drawing.surroundings_of(
                drawing, release.grid.context, 0.8 * float(np.median(centres.radius))
            ),
        )

    @property
    def shown_slots(self) -> tuple[int, ...]:
        """The slots that get a map each; none where they are too many."""
        few = len(self.slots) <= MOST_SLOTS and len(self.slots) * len(self.paths) <= MOST_SHAPES
        return self.slots if few else ()

    @property
    def has_several_slots(self) -> bool:
        """Whether there is more than one time slot."""
        return len(self.slots) > 1

    def letters(self, statistic: Statistic, slot: int) -> npt.NDArray[np.str_]:
        """Return the class letter of every cell at ``slot``, shape (C,), ABSENT for a cell without a bin."""
        release, unit = self.release, self.release.request.display_unit
        rows = np.flatnonzero(release.slot == slot)
        value, low, high = (each[rows] for each in classes.shown_numbers(self.table, statistic, unit))
        status = self.table[f"{statistic.stem}_status"].to_numpy(dtype=object)[rows]
        breaks = classes.shown_breaks(statistic, release.request.bound, unit)
        letters = np.full(len(self.paths), classes.ABSENT)
        letters[self.position[rows]] = classes.class_letters(value, low, high, status, breaks)
        return letters

    def figure(self, statistic: Statistic, slot: int, marks: Marks, *, small: bool) -> Figure:
        """Return the drawn map of ``statistic`` at ``slot``, with ``marks`` written on cells.

        A ``small`` map has no surroundings.
        """
        return self._drawn(self.letters(statistic, slot), slot, LOOKS, marks, small=small)

    def change_figure(
        self, rows: IntArray, fell: IntArray, rose: IntArray, slot: int, *, small: bool = False
    ) -> Figure:
        """Return the drawn map of changes at ``slot``; bins are positions in the release.

        ``rows`` are all common bins, ``fell`` and ``rose`` those whose interval of the change lies below, or
        above, 0.
        """
        letters = np.full(len(self.paths), classes.ABSENT)
        for letter, bins in ((map_drawing.UNSURE, rows), (map_drawing.FELL, fell), (map_drawing.ROSE, rose)):
            letters[self.position[bins[self.release.slot[bins] == slot]]] = letter
        return self._drawn(letters, slot, CHANGE_LOOKS, {}, small=small)

    def _drawn(
        self,
        letters: npt.NDArray[np.str_],
        slot: int,
        looks: Mapping[str, str],
        marks: Marks,
        *,
        small: bool,
    ) -> Figure:
        picture = map_drawing.map_picture(
            self.drawing,
            self.paths,
            self.centres,
            letters,
            outline=self.outline,
            badges=[(cell, text, dark) for cell, (text, dark) in marks.items()],
            surroundings=None if small else self.surroundings,
        )
        when = self.release.slots[slot].label if self.has_several_slots else ""
        return Figure(picture, when, {look: int(np.isin(letters, [*of]).sum()) for look, of in looks.items()})


def fullest_slot(release: Release, statistic: Statistic) -> int:
    """Return the slot with the most bins of status RELEASED, the earliest of several."""
    slots, position = np.unique(release.slot, return_inverse=True)
    there = release.estimates[statistic].status == BinStatus.RELEASED.value
    return int(slots[np.argmax(np.bincount(position, weights=there, minlength=len(slots)))])


def legend(release: Release, statistic: Statistic, several: bool) -> tuple[LegendLine, ...]:
    """Return the legend for maps of ``statistic``: the speed classes, then the looks of bins without a class.

    ``several``: there is more than one slot, so that cells may be empty.
    """
    unit, bound = release.request.display_unit, release.request.bound
    limits = classes.classes_in_words(classes.shown_breaks(statistic, bound, unit))
    return (
        *(
            LegendLine(map_drawing.swatch(letter), "class", text)
            for letter, text in zip(classes.PLAIN, limits, strict=True)
        ),
        LegendLine(map_drawing.swatch(classes.HATCHED[len(classes.HATCHED) // 2]), "hatched"),
        LegendLine(map_drawing.swatch(classes.WITHHELD), "withheld", withheld_because(release)),
        LegendLine(map_drawing.swatch(classes.UNINFORMATIVE), "noisy"),
        *([LegendLine(map_drawing.swatch(classes.ABSENT), "empty")] if several else []),
    )
