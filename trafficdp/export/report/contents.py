"""From a release, and perhaps an earlier one, to everything that its report shows."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.errors import DataError
from trafficdp.export.files.disclosure import bin_numbers
from trafficdp.export.files.shown import shown_hatch_limit
from trafficdp.export.report import sentences
from trafficdp.export.report.certainty import decimals, is_calibrated
from trafficdp.export.report.change import common_rows
from trafficdp.export.report.fact_sentences import sum_of_releases
from trafficdp.export.report.facts import facts_of
from trafficdp.export.report.findings import (
    Findings,
    StatisticFindings,
    changed_rows,
    findings,
)
from trafficdp.export.report.lists import Lists
from trafficdp.export.report.maps import Atlas, Marks, change_legend, legend, slot_shown
from trafficdp.export.report.page import Page, Section
from trafficdp.export.report.phrases import WORDS
from trafficdp.export.report.times import drawn_cells, times_of
from trafficdp.privacy.release import Release


@dataclass(frozen=True)
class Contents:
    """A release with all that is known of it; makes the parts of the page."""

    release: Release
    earlier: Release | None
    found: Findings
    atlas: Atlas
    lists: Lists

    @classmethod
    def of(cls, release: Release, earlier: Release | None) -> Contents:
        """Return the contents of a report. Raises UsageError for releases that cannot be compared.

        Raises DataError for a release without bins.
        """
        if not release.bins:
            raise DataError("the release has no bins, so there is nothing to report")
        found, atlas = findings(release, earlier), Atlas.of(release)
        return cls(release, earlier, found, atlas, Lists(atlas))

    def page(self) -> Page:
        """Return the whole page."""
        release, atlas = self.release, self.atlas
        first, *rest = self.found.statistics
        disclosed, period = release.disclosure, release.grid.period
        software, guarantee = disclosed.identity.software, disclosed.guarantee
        cells = drawn_cells(release, first, atlas) if self.lists.several else ()
        marks = self.lists.marks(first, cells)
        times = times_of(release, first, atlas, [(cell, marks[cell][0]) for cell in cells])
        change = self._change()
        messages = [*self._messages(first), *(change.sentences[:2] if change else ())]
        words, unit = WORDS[first.statistic], self.lists.unit
        limit = format(shown_hatch_limit(first.statistic, release.bound, release.display_unit), "g")
        bound = float(release.bound.upper * release.bound.unit.factor_to(release.display_unit))
        return Page(
            title=sentences.title(disclosed.coverage.place),
            subtitle=sentences.subtitle(period.first, period.last, disclosed.identity.publisher, release.id),
            generator=f"{software.name} {software.version}",
            warnings=(sentences.FORCED,) if disclosed.honesty.forced else (),
            messages=(*self._selected(), *messages),
            main=self._section(sentences.HEADINGS["map"], first, marks),
            times=times if self.lists.several else None,
            others=tuple(self._other(each) for each in rest),
            change=change,
            reading=sentences.reading(
                self.lists.level,
                words,
                limit,
                unit,
                f"{bound:.3g} {release.display_unit.label}",
                release.grid.noun,
                calibrated=is_calibrated(release, first.statistic),
            ),
            disclosed=disclosed,
            sum_in_words=sum_of_releases(
                guarantee.sum_of_maxima, guarantee.budget_per_vehicle, guarantee.quantity
            ),
            facts=facts_of(release),
            full_account=sentences.FULL_ACCOUNT,
        )

    def _selected(self) -> tuple[str, ...]:
        selection = self.release.grid.selection
        return () if selection.everything else (sentences.only_records(selection.in_words()),)

    def _messages(self, each: StatisticFindings) -> list[str]:
        release, words, things = self.release, WORDS[each.statistic], self.lists.things
        bins = bin_numbers(release.estimates[each.statistic].status)
        messages = [
            sentences.coverage(
                words,
                things,
                bins,
                release.min_vehicles,
                narrow=release.grid.mosaic is not None,
            )
        ]
        if each.certain is None or each.order is None:
            silent = not bins.released
            return [*messages, sentences.nothing_informative(words) if silent else sentences.NO_NOISE_LAW]
        number, digits = len(each.certain.rows), decimals(release.display_unit)
        if each.average is not None:
            unit = self.lists.unit
            messages.append(
                sentences.average_is(words, self.lists.things, number, each.average, unit, digits)
            )
        return [*messages, sentences.order_in_words(words, self.lists.things, each.order)]

    def _section(self, heading: str, each: StatisticFindings, marks: Marks) -> Section:
        statistic, words, unit = each.statistic, WORDS[each.statistic], self.lists.unit
        slot = slot_shown(self.release, statistic)
        when = self.release.slots[slot].label if self.lists.several else None
        caption = sentences.map_caption(words, unit, when)
        if marks and not self.lists.few(each):
            diagrams = any(text.startswith("P") for text, _ in marks.values())
            caption = f"{caption} {sentences.marks_in_words(words, diagrams)}"
        return Section(
            heading=heading,
            sentences=(sentences.what_it_is(statistic, unit),),
            figure=self.atlas.figure(statistic, slot, caption, marks, small=False),
            legend=legend(self.release, statistic, self.lists.level, self.lists.several),
            tables=self.lists.tables(each),
        )

    def _other(self, each: StatisticFindings) -> Section:
        """A statistic after the first: what is said in short about the first stands under its heading."""
        section = self._section(
            sentences.section_heading(WORDS[each.statistic]), each, self.lists.marks(each, ())
        )
        said = (*section.sentences, *self._messages(each))
        if each.certain is None:
            return Section(section.heading, said, None, (), ())
        return Section(section.heading, said, section.figure, section.legend, section.tables)

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
        words, unit = WORDS[statistic], self.lists.unit
        digits = decimals(self.release.display_unit)
        fell, rose = changed_rows(changes.low, changes.high)
        number = len(changes.rows)
        said = (
            sentences.change_counts(self.lists.things, words, name, number, len(fell), len(rose)),
            sentences.change_of_average(self.lists.things, words, number, changes.average, unit, digits),
            sentences.CHANGE_OF_RECORDS,
        )
        slot = slot_shown(self.release, statistic)
        when = self.release.slots[slot].label if self.lists.several else None
        caption = sentences.change_map_caption(words, name, when)
        figure = (
            self.atlas.change_figure(changes.rows, changes.rows[fell], changes.rows[rose], caption, slot)
            if len(fell) or len(rose)
            else None
        )
        tables = tuple(
            self.lists.changed(changes, rows.tolist(), statistic, down)
            for rows, down in ((fell, True), (rose, False))
        )
        return Section(heading, said, figure, change_legend(statistic), tables if figure else ())
