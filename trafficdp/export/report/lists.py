"""The lists of a report, and the marks by which they are found on the map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.export.files.shown import error_digits, read_number, shown_largest
from trafficdp.export.report import sentences
from trafficdp.export.report.certainty import Certain, decimals
from trafficdp.export.report.change import Changes
from trafficdp.export.report.findings import LONGEST_LIST, Standing, StatisticFindings
from trafficdp.export.report.maps import Atlas, Marks, slot_shown
from trafficdp.export.report.page import Table
from trafficdp.export.report.phrases import AREAS, AREAS_AND_TIMES, WORDS, Things, signed, signed_span, span
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

    @property
    def level(self) -> str:
        """The level of the release's intervals, in percent."""
        return format(100 * self.release.interval_level, ".6g")

    @property
    def several(self) -> bool:
        """Whether there is more than one time slot."""
        return len(self.atlas.slots) > 1

    @property
    def things(self) -> Things:
        """What is compared."""
        return AREAS_AND_TIMES if self.several else AREAS

    @property
    def unit(self) -> str:
        """The unit of all that is shown."""
        return self.release.display_unit.label

    def marks(self, each: StatisticFindings, cells: tuple[int, ...]) -> Marks:
        """Return the names on the map: lists of the slot that is shown, then the areas of diagrams."""
        marks: dict[int, tuple[str, bool]] = {
            cell: (f"P{number}", False) for number, cell in enumerate(cells, 1)
        }
        shown = slot_shown(self.release, each.statistic)
        for row, name in zip(self.few(each), LONGEST_NAMES, strict=False):
            marks[int(self.atlas.position[row])] = (name, False)
        for standings, names, dark in self._lists(each):
            for standing, name in zip(standings, names, strict=False):
                row = self._row(each, standing)
                if int(self.release.slot[row]) == shown:
                    marks[int(self.atlas.position[row])] = (name, dark)
        return marks

    def _lists(self, each: StatisticFindings) -> list[tuple[tuple[Standing, ...], str, bool]]:
        if each.order is None:
            return []
        return [
            (each.order.low[:LONGEST_LIST], "12345", True),
            (each.order.high[:LONGEST_LIST], "ABCDE", False),
        ]

    def _row(self, each: StatisticFindings, standing: Standing) -> int:
        return int(each.certain.rows[standing.position]) if each.certain is not None else -1

    def tables(self, each: StatisticFindings) -> tuple[Table, ...]:
        """Return the lists of those told to be below and above others, or of all where they are few."""
        order, certain = each.order, each.certain
        if order is None or certain is None:
            return ()
        if order.silent:
            few = self.few(each)
            return (self._all_of(each, certain, few),) if few else ()
        words, unit = WORDS[each.statistic], self.unit
        digits = decimals(self.release.display_unit)
        tables = []
        for (standings, names, lowest), told in zip(self._lists(each), (order.low, order.high), strict=True):
            rows = []
            for standing, name in zip(standings, names, strict=False):
                at = standing.position
                rows.append(
                    (
                        name,
                        *self._where(int(certain.rows[at])),
                        *self._number(each.statistic, certain, at, digits),
                        sentences.others(standing.others, order.compared),
                        self._cell(int(certain.rows[at])),
                    )
                )
            columns = (
                *self._where_columns(),
                sentences.value_and_unit(words, unit),
                sentences.COLUMNS["interval"],
                sentences.told_from(words, lowest),
                self._cell_heading,
            )
            caption = sentences.list_caption(words, self.things, lowest, len(rows), len(told))
            instead = sentences.none_told(words, self.things, lowest)
            tables.append(Table(caption, columns, tuple(rows), instead))
        return tuple(tables)

    def few(self, each: StatisticFindings) -> list[int]:
        """Return the compared bins from north to south, where they are few and none can be told apart."""
        if each.certain is None or each.order is None or not each.order.silent or self.several:
            return []
        rows = each.certain.rows
        if len(rows) > len(LONGEST_NAMES):
            return []
        found: list[int] = rows[np.argsort(self.atlas.centres.y[self.atlas.position[rows]])].tolist()
        return found

    def _all_of(self, each: StatisticFindings, certain: Certain, rows: list[int]) -> Table:
        digits = decimals(self.release.display_unit)
        at = {int(row): place for place, row in enumerate(certain.rows.tolist())}
        lines = tuple(
            (
                name,
                *self._where(row),
                *self._number(each.statistic, certain, at[row], digits),
                self._cell(row),
            )
            for row, name in zip(rows, LONGEST_NAMES, strict=False)
        )
        value = sentences.value_and_unit(WORDS[each.statistic], self.unit)
        columns = (*self._where_columns(), value, sentences.COLUMNS["interval"], self._cell_heading)
        return Table(sentences.all_caption(self.things, len(lines)), columns, lines, "")

    def _number(self, statistic: Statistic, certain: Certain, at: int, digits: int) -> tuple[str, str]:
        """Return a number with no digit that its interval does not carry, and the interval."""
        value, low, high = (float(each[at]) for each in (certain.value, certain.low, certain.high))
        largest = shown_largest(statistic, self.release.bound, self.release.display_unit)
        read = read_number(value, low, high, largest)
        return read.value, span(low, high, digits) if read.low else ""

    def _where(self, row: int) -> tuple[str, ...]:
        place = self.atlas.place(row)
        return (place, self.release.slots[int(self.release.slot[row])].label) if self.several else (place,)

    @property
    def _cell_heading(self) -> str:
        return sentences.COLUMNS["cell" if self.release.grid.zones is None else "zone"]

    def _cell(self, row: int) -> str:
        return self.release.grid.spelled(self.release.cell[row : row + 1])[0]

    def _where_columns(self) -> tuple[str, ...]:
        names = ("mark", "where", "when") if self.several else ("mark", "where")
        return tuple(sentences.COLUMNS[name] for name in names)

    def changed(self, changes: Changes, rows: list[int], statistic: Statistic, fell: bool) -> Table:
        """Return the list of the first of ``rows`` (positions in ``changes``), which fell or rose."""
        words, unit = WORDS[statistic], self.unit
        digits = decimals(self.release.display_unit)
        lines = tuple(
            (
                *self._where(int(changes.rows[row])),
                signed(
                    float(changes.value[row]), min(digits, error_digits(changes.low[row], changes.high[row]))
                ),
                signed_span(float(changes.low[row]), float(changes.high[row]), digits),
                self._cell(int(changes.rows[row])),
            )
            for row in rows[:LONGEST_LIST]
        )
        ends = (sentences.change_by(unit), sentences.COLUMNS["interval"], self._cell_heading)
        columns = (*self._where_columns()[1:], *ends)
        caption = sentences.change_caption(words, fell, len(lines), len(rows))
        return Table(caption, columns, lines, sentences.none_changed(words, self.things, fell))
