"""The lists of a report, and the marks by which they are found on the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.export.files.shown import read_number, shown_largest
from trafficdp.export.report.certainty import Certain, Interval
from trafficdp.export.report.change import Changes
from trafficdp.export.report.findings import LONGEST_LIST, IntArray, StatisticFindings
from trafficdp.export.report.maps import Atlas, Marks, slot_shown
from trafficdp.export.report.page import Listed, Row, Standing
from trafficdp.model import Statistic
from trafficdp.privacy.release import Release

LONGEST_NAMES = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12")


@dataclass(frozen=True)
class Lists:
    """Makes the lists of a release from what was found in it."""

    atlas: Atlas

    @property
    def release(self) -> Release:
        """The release."""
        return self.atlas.release

    def marks(self, each: StatisticFindings, cells: tuple[int, ...]) -> Marks:
        """Return the names on the map: lists of the slot that is shown, then the areas of diagrams."""
        marks: dict[int, tuple[str, bool]] = {
            cell: (f"P{number}", False) for number, cell in enumerate(cells, 1)
        }
        if each.certain is None or each.order is None:
            return marks
        shown = slot_shown(self.release, each.statistic)
        named = [(at, name, False) for at, name in zip(self._few(each), LONGEST_NAMES, strict=False)]
        for standings, names, below in _told(each):
            named += [(one.position, name, below) for one, name in zip(standings, names, strict=False)]
        for at, name, dark in named:
            row = int(each.certain.rows[at])
            if int(self.release.slot[row]) == shown:
                marks[int(self.atlas.position[row])] = (name, dark)
        return marks

    def told(self, each: StatisticFindings) -> tuple[Listed, ...]:
        """Return the lists of those told to be below and above others; none where no two are told apart."""
        certain = each.certain
        if certain is None or each.order is None or each.order.silent:
            return ()
        return tuple(
            Listed(
                tuple(
                    self._row(each.statistic, certain, one.position, name, one.others)
                    for one, name in zip(standings, names, strict=False)
                ),
                len(standings),
                below,
            )
            for standings, names, below in _told(each)
        )

    def all_of(self, each: StatisticFindings) -> Listed | None:
        """Return all numbers from north to south, where they are few and none can be told apart."""
        certain, few = each.certain, self._few(each)
        if certain is None or not few:
            return None
        rows = [
            self._row(each.statistic, certain, at, name) for at, name in zip(few, LONGEST_NAMES, strict=False)
        ]
        return Listed(tuple(rows), len(rows))

    def changed(self, changes: Changes, positions: IntArray, fell: bool) -> Listed:
        """Return the list of the first of ``positions`` in ``changes``, which fell or rose."""
        rows = [
            Row("", *self._where(int(changes.rows[at])), "", _interval(changes, at))
            for at in positions[:LONGEST_LIST].tolist()
        ]
        return Listed(tuple(rows), len(positions), fell)

    def _few(self, each: StatisticFindings) -> list[int]:
        """Return the positions of the compared bins from north to south, where all of them are listed."""
        if each.certain is None or each.order is None or not each.order.silent or self.atlas.several:
            return []
        rows = each.certain.rows
        if len(rows) > len(LONGEST_NAMES):
            return []
        found: list[int] = np.argsort(self.atlas.centres.y[self.atlas.position[rows]]).tolist()
        return found

    def _row(self, statistic: Statistic, certain: Certain, at: int, name: str, others: int = 0) -> Row:
        """Return a number with no digit that its interval does not carry, and the interval."""
        found = _interval(certain, at)
        largest = shown_largest(statistic, self.release.bound, self.release.display_unit)
        read = read_number(found.value, found.low, found.high, largest)
        where = self._where(int(certain.rows[at]))
        return Row(name, *where, read.value, found if read.low else None, others)

    def _where(self, row: int) -> tuple[str, str, str]:
        """Return place, slot and cell of a bin."""
        release = self.release
        cell = release.grid.spelled(release.cell[row : row + 1])[0]
        return str(release.place[row]), release.slots[int(release.slot[row])].label, cell


def _told(each: StatisticFindings) -> list[tuple[tuple[Standing, ...], str, bool]]:
    if each.order is None:
        return []
    return [(each.order.low, "12345", True), (each.order.high, "ABCDE", False)]


def _interval(of: Certain | Changes, at: int) -> Interval:
    return Interval(float(of.value[at]), float(of.low[at]), float(of.high[at]))
