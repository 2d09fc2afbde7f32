"""From a release, and perhaps an earlier one, to everything that its report shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trafficdp.errors import DataError
from trafficdp.export import sentences
from trafficdp.export.certainty import Certain, decimals
from trafficdp.export.change import Changes, common_rows
from trafficdp.export.classes import hatch_limit
from trafficdp.export.columns import unit_label
from trafficdp.export.disclosure import disclosed
from trafficdp.export.findings import (
    LONGEST_LIST,
    Findings,
    Standing,
    StatisticFindings,
    changed_rows,
    findings,
)
from trafficdp.export.phrases import AREAS, AREAS_AND_TIMES, WORDS, Things, signed, signed_span, span
from trafficdp.export.report_facts import facts_of, promise_of
from trafficdp.export.report_maps import Atlas, Marks, change_legend, legend
from trafficdp.export.report_page import Page, Section, Table
from trafficdp.export.report_times import drawn_cells, times_of
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.release import BinStatus, Release

LONGEST_NAMES = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12")


@dataclass(frozen=True)
class Contents:
    """A release with all that is known of it; makes the parts of the page."""

    release: Release
    earlier: Release | None
    found: Findings
    atlas: Atlas

    @classmethod
    def of(cls, release: Release, earlier: Release | None) -> Contents:
        """Return the contents of a report. Raises UsageError for releases that cannot be compared.

        Raises DataError for a release without bins.
        """
        if not release.bins:
            raise DataError("the release has no bins, so there is nothing to report")
        return cls(release, earlier, findings(release, earlier), Atlas.of(release))

    def page(self) -> Page:
        """Return the whole page."""
        release, atlas = self.release, self.atlas
        first, *rest = self.found.statistics
        period, software = release.grid.period, _mapping(release, "identity", "software")
        cells = drawn_cells(release, first, atlas) if self.several else ()
        marks = self._marks(first, cells)
        times = times_of(release, first, atlas, [(cell, marks[cell][0]) for cell in cells])
        change = self._change()
        messages = [*self._messages(first), *(change.sentences[:2] if change else ())]
        forced = bool(disclosed(release, "honesty", "forced"))
        words, unit = WORDS[first.statistic], self.unit(first.statistic)
        limit = format(hatch_limit(first.statistic, release.bound, release.display_unit), "g")
        bound = float(release.bound.upper * release.bound.unit.factor_to(release.display_unit))
        return Page(
            title=sentences.title(str(disclosed(release, "coverage", "place"))),
            subtitle=sentences.subtitle(
                period.first, period.last, str(disclosed(release, "identity", "publisher")), release.id
            ),
            generator=f"{software['name']} {software['version']}",
            warnings=(sentences.FORCED,) if forced else (),
            messages=tuple(messages),
            main=self._section(sentences.HEADINGS["map"], first, marks),
            times=times if self.several else None,
            others=tuple(self._other(each) for each in rest),
            change=change,
            reading=sentences.reading(
                self.level, words, limit, unit, f"{bound:.3g} {release.display_unit.label}"
            ),
            promise=promise_of(release),
            facts=facts_of(release),
            full_account=sentences.FULL_ACCOUNT,
        )

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

    def unit(self, statistic: Statistic) -> str:
        """The unit of ``statistic`` as people write it."""
        return unit_label(statistic, self.release.display_unit)

    def slot_shown(self, statistic: Statistic) -> int:
        """The slot with most numbers to compare, the earliest of several: counts alone decide."""
        status = self.release.estimates[statistic].status
        compared = self.release.slot[status == BinStatus.RELEASED.value]
        numbers = [int((compared == slot).sum()) for slot in self.atlas.slots]
        return self.atlas.slots[int(np.argmax(numbers))]

    def _messages(self, each: StatisticFindings) -> list[str]:
        release, words = self.release, WORDS[each.statistic]
        status = release.estimates[each.statistic].status
        counts = {one: int((status == one.value).sum()) for one in BinStatus}
        messages = [
            sentences.coverage(
                words,
                self.things,
                release.bins,
                counts[BinStatus.RELEASED],
                counts[BinStatus.WITHHELD],
                counts[BinStatus.UNINFORMATIVE],
                counts[BinStatus.CONSTANT],
                release.min_vehicles,
            )
        ]
        if each.certain is None or each.order is None:
            silent = not counts[BinStatus.RELEASED]
            return [*messages, sentences.nothing_informative(words) if silent else sentences.NO_NOISE_LAW]
        number, digits = len(each.certain.rows), decimals(each.statistic, release.display_unit)
        if each.average is not None:
            unit = self.unit(each.statistic)
            messages.append(sentences.average_is(words, self.things, number, each.average, unit, digits))
        return [*messages, sentences.order_in_words(words, self.things, each.order)]

    def _marks(self, each: StatisticFindings, cells: tuple[int, ...]) -> Marks:
        """Names on the map: lists of the slot that is shown, then the areas of diagrams."""
        marks: dict[int, tuple[str, bool]] = {
            cell: (f"P{number}", False) for number, cell in enumerate(cells, 1)
        }
        shown = self.slot_shown(each.statistic)
        for row, name in zip(self._few(each), LONGEST_NAMES, strict=False):
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

    def _section(self, heading: str, each: StatisticFindings, marks: Marks) -> Section:
        statistic, words, unit = each.statistic, WORDS[each.statistic], self.unit(each.statistic)
        slot = self.slot_shown(statistic)
        when = self.release.slots[slot].label if self.several else None
        caption = sentences.map_caption(words, unit, when)
        if marks and not self._few(each):
            diagrams = any(text.startswith("P") for text, _ in marks.values())
            caption = f"{caption} {sentences.marks_in_words(words, diagrams)}"
        return Section(
            heading=heading,
            sentences=(sentences.what_it_is(statistic.description, unit),),
            figure=self.atlas.figure(statistic, slot, caption, marks, small=False),
            legend=legend(self.release, statistic, self.level, self.several),
            tables=self._tables(each),
        )

    def _other(self, each: StatisticFindings) -> Section:
        """A statistic after the first: what is said in short about the first stands under its heading."""
        section = self._section(sentences.section_heading(WORDS[each.statistic]), each, self._marks(each, ()))
        said = (*section.sentences, *self._messages(each))
        if each.certain is None:
            return Section(section.heading, said, None, (), ())
        return Section(section.heading, said, section.figure, section.legend, section.tables)

    def _tables(self, each: StatisticFindings) -> tuple[Table, ...]:
        order, certain = each.order, each.certain
        if order is None or certain is None:
            return ()
        if order.silent:
            few = self._few(each)
            return (self._all_of(each, certain, few),) if few else ()
        words, unit = WORDS[each.statistic], self.unit(each.statistic)
        digits = decimals(each.statistic, self.release.display_unit)
        tables = []
        for (standings, names, lowest), told in zip(self._lists(each), (order.low, order.high), strict=True):
            rows = []
            for standing, name in zip(standings, names, strict=False):
                at = standing.position
                rows.append(
                    (
                        name,
                        *self._where(int(certain.rows[at])),
                        f"{certain.value[at]:,.{digits}f}",
                        span(float(certain.low[at]), float(certain.high[at]), digits),
                        sentences.others(standing.others, order.compared),
                    )
                )
            columns = (
                *self._where_columns(),
                sentences.value_and_unit(words, unit),
                sentences.COLUMNS["interval"],
                sentences.told_from(words, lowest),
            )
            caption = sentences.list_caption(words, self.things, lowest, len(rows), len(told))
            instead = sentences.none_told(words, self.things, lowest)
            tables.append(Table(caption, columns, tuple(rows), instead))
        return tuple(tables)

    def _few(self, each: StatisticFindings) -> list[int]:
        """The compared bins from north to south, where they are few and none can be told from another."""
        if each.certain is None or each.order is None or not each.order.silent or self.several:
            return []
        rows = each.certain.rows
        if len(rows) > len(LONGEST_NAMES):
            return []
        found: list[int] = rows[np.argsort(self.atlas.centres.y[self.atlas.position[rows]])].tolist()
        return found

    def _all_of(self, each: StatisticFindings, certain: Certain, rows: list[int]) -> Table:
        """The list of all numbers, where they are few."""
        digits = decimals(each.statistic, self.release.display_unit)
        at = {int(row): place for place, row in enumerate(certain.rows.tolist())}
        lines = tuple(
            (
                name,
                *self._where(row),
                f"{certain.value[at[row]]:,.{digits}f}",
                span(float(certain.low[at[row]]), float(certain.high[at[row]]), digits),
            )
            for row, name in zip(rows, LONGEST_NAMES, strict=False)
        )
        value = sentences.value_and_unit(WORDS[each.statistic], self.unit(each.statistic))
        columns = (*self._where_columns(), value, sentences.COLUMNS["interval"])
        return Table(sentences.all_caption(self.things, len(lines)), columns, lines, "")

    def _where(self, row: int) -> tuple[str, ...]:
        place, cell = self.atlas.place(row), format(int(self.release.cell[row]), "x")
        if not self.several:
            return place, cell
        return place, self.release.slots[int(self.release.slot[row])].label, cell

    def _where_columns(self) -> tuple[str, ...]:
        names = ("mark", "where", "when", "cell") if self.several else ("mark", "where", "cell")
        return tuple(sentences.COLUMNS[name] for name in names)

    def _change(self) -> Section | None:
        earlier, changes = self.earlier, self.found.changes
        if earlier is None:
            return None
        statistic = self.found.statistics[0].statistic
        period = earlier.grid.period
        name = sentences.earlier_release(earlier.id, period.first, period.last)
        heading = sentences.HEADINGS["change"]
        if changes is None:
            common = len(common_rows(self.release, earlier, statistic)[0])
            why = sentences.NO_NOISE_LAW if common else sentences.nothing_in_common(name)
            return Section(heading, (why,), None, (), ())
        words, unit = WORDS[statistic], self.unit(statistic)
        digits = decimals(statistic, self.release.display_unit)
        fell, rose = changed_rows(changes.low, changes.high)
        number = len(changes.rows)
        said = (
            sentences.change_counts(self.things, words, name, number, len(fell), len(rose)),
            sentences.change_of_average(self.things, words, number, changes.average, unit, digits),
            sentences.CHANGE_OF_RECORDS,
        )
        slot = self.slot_shown(statistic)
        when = self.release.slots[slot].label if self.several else None
        caption = sentences.change_map_caption(words, name, when)
        figure = (
            self.atlas.change_figure(changes.rows, changes.rows[fell], changes.rows[rose], caption, slot)
            if len(fell) or len(rose)
            else None
        )
        tables = tuple(
            self._changed(changes, rows.tolist(), statistic, down)
            for rows, down in ((fell, True), (rose, False))
        )
        return Section(heading, said, figure, change_legend(statistic), tables if figure else ())

    def _changed(self, changes: Changes, rows: list[int], statistic: Statistic, fell: bool) -> Table:
        words, unit = WORDS[statistic], self.unit(statistic)
        digits = decimals(statistic, self.release.display_unit)
        lines = tuple(
            (
                *self._where(int(changes.rows[row])),
                signed(float(changes.value[row]), digits),
                signed_span(float(changes.low[row]), float(changes.high[row]), digits),
            )
            for row in rows[:LONGEST_LIST]
        )
        columns = (*self._where_columns()[1:], sentences.change_by(unit), sentences.COLUMNS["interval"])
        caption = sentences.change_caption(words, fell, len(lines), len(rows))
        return Table(caption, columns, lines, sentences.none_changed(words, self.things, fell))


def _mapping(release: Release, group: str, field: str) -> Mapping[str, Any]:
    found = disclosed(release, group, field)
    return found if isinstance(found, Mapping) else {}
