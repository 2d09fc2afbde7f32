"""From a release, and perhaps an earlier one, to everything that its report shows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trafficdp.errors import DataError
from trafficdp.export.files.disclosure import bin_numbers, on_city_clocks
from trafficdp.export.files.shown import level_read, shown_hatch_limit
from trafficdp.export.report.certainty import decimals, is_calibrated
from trafficdp.export.report.change import common_rows
from trafficdp.export.report.findings import (
    Findings,
    StatisticFindings,
    changed_rows,
    findings,
)
from trafficdp.export.report.lists import Lists
from trafficdp.export.report.maps import CHANGE_LEGEND, Atlas, Marks, legend, slot_shown
from trafficdp.export.report.page import Change, Page, Section
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
        release, atlas, unit = self.release, self.atlas, self.release.display_unit
        first, *rest = self.found.statistics
        cells = drawn_cells(release, first, atlas) if atlas.several else ()
        marks = self.lists.marks(first, cells)
        drawn = [(cell, marks[cell][0]) for cell in cells]
        return Page(
            release=release,
            created=on_city_clocks(release.created_at, release.grid.period.time_zone),
            several=atlas.several,
            digits=decimals(unit),
            bound=float(release.bound.upper * release.bound.unit.factor_to(unit)),
            limit=shown_hatch_limit(first.statistic, release.bound, unit),
            level_read=level_read(release, first.statistic),
            calibrated=is_calibrated(release, first.statistic),
            main=self._section(first, marks),
            times=times_of(release, first, atlas, drawn) if atlas.several else None,
            others=tuple(self._section(each, self.lists.marks(each, ())) for each in rest),
            change=self._change(),
            change_legend=CHANGE_LEGEND,
        )

    def _section(self, each: StatisticFindings, marks: Marks) -> Section:
        release, statistic = self.release, each.statistic
        # what is not compared has a map where it is the first, and nothing else to show otherwise
        shown = each.certain is not None or each is self.found.statistics[0]
        slot = slot_shown(release, statistic)
        return Section(
            statistic=statistic,
            bins=bin_numbers(release.estimates[statistic].status),
            average=each.average,
            order=each.order,
            figure=self.atlas.figure(statistic, slot, marks, small=False) if shown else None,
            legend=legend(release, statistic, self.atlas.several),
            all=self.lists.all_of(each),
            lists=self.lists.told(each),
        )

    def _change(self) -> Change | None:
        earlier, changes = self.earlier, self.found.changes
        if earlier is None:
            return None
        statistic = self.found.statistics[0].statistic
        if changes is None:
            return Change(earlier, statistic, len(common_rows(self.release, earlier, statistic)[0]))
        rows, (fell, rose) = changes.rows, changed_rows(changes.low, changes.high)
        told = Change(earlier, statistic, len(rows), len(fell), len(rose), changes.average)
        if not told.fell and not told.rose:
            return told
        slot = slot_shown(self.release, statistic)
        return replace(
            told,
            figure=self.atlas.change_figure(rows, rows[fell], rows[rose], slot),
            lists=(self.lists.changed(changes, fell, True), self.lists.changed(changes, rose, False)),
        )
