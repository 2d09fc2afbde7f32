"""The city report: one page for an engineer and a councillor, as HTML that asks no network, or as PDF."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trafficdp._durable import replace_file, require_folder_of
from trafficdp.errors import DataError, UsageError, one_of
from trafficdp.export.files import classes, disclosure, language
from trafficdp.export.report import findings as report_findings
from trafficdp.export.report import page as report_page
from trafficdp.export.report.certainty import SimultaneousIntervals, decimals, is_calibrated
from trafficdp.export.report.change import common_rows
from trafficdp.export.report.maps import CHANGE_LEGEND, Marks, ReportMaps, fullest_slot, legend
from trafficdp.privacy.disclosure import BinNumbers
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release

if TYPE_CHECKING:
    from types import ModuleType


# The part of a report on time slots: a small map of every slot, and diagrams of a few areas over them.


MOST_PANELS = 6


def cells_with_diagram(
    release: Release, findings: report_findings.StatisticFindings, atlas: ReportMaps
) -> tuple[int, ...]:
    """Return the positions of the cells that get a diagram: those with most compared slots.

    Of equal ones those with least noise. Both are public before any number is drawn. A cell needs two
    compared slots.
    """
    if findings.certain is None:
        return ()
    rows = findings.certain.rows
    cells = len(atlas.paths)
    slots = np.bincount(atlas.position[rows], minlength=cells)
    scale = release.estimates[findings.statistic].noise_scale[rows]
    noise = np.bincount(atlas.position[rows], weights=scale, minlength=cells) / np.maximum(slots, 1)
    order = np.lexsort((noise, -slots))
    return tuple(int(cell) for cell in order[:MOST_PANELS] if slots[cell] >= 2)


def slots_section(
    release: Release,
    findings: report_findings.StatisticFindings,
    atlas: ReportMaps,
    drawn: Sequence[tuple[int, str]],
) -> report_page.SlotsSection | None:
    """Return the report's section on time slots, or None where no slot has a number to show.

    ``drawn`` are the positions of the cells with a diagram, each with its mark on the map.
    """
    if not np.any(release.estimates[findings.statistic].status == BinStatus.RELEASED.value):
        return None
    maps = tuple(atlas.figure(findings.statistic, slot, {}, small=True) for slot in atlas.shown_slots)
    if findings.certain is None or not drawn:
        return report_page.SlotsSection(maps, (), 0.0)
    shown = np.isin(atlas.position[findings.certain.rows], [cell for cell, _ in drawn])
    top = report_page.axis_end(float(findings.certain.high[shown].max()))
    return report_page.SlotsSection(
        maps,
        tuple(_over_time(release, findings.certain, atlas, cell, mark, top) for cell, mark in drawn),
        top,
    )


def axis_label(label: str) -> str:
    """Return a slot's ``label`` short enough for an axis: no brackets, an hour by its start."""
    return re.sub(r"(\d\d:\d\d)-\d\d:\d\d", r"\1", re.sub(r"\s*\(.*\)$", "", label))


def _over_time(
    release: Release, certain: SimultaneousIntervals, atlas: ReportMaps, cell: int, mark: str, top: float
) -> report_page.PlaceOverTime:
    numbers = np.full((3, len(atlas.slots)), np.nan)
    mine = np.flatnonzero(atlas.position[certain.rows] == cell)
    slots = np.searchsorted(np.array(atlas.slots), release.slot[certain.rows[mine]])
    numbers[:, slots] = certain.value[mine], certain.low[mine], certain.high[mine]
    labels = [release.slots[slot].label for slot in atlas.slots]
    found, apart = report_findings.furthest_apart(numbers[1], numbers[2]), None
    if found is not None:
        lowest, highest, gap = found
        digit = 10 ** decimals(release.request.display_unit)
        apart = report_page.TimeDifference(
            labels[lowest], labels[highest], float(np.floor(gap * digit + 1e-6) / digit)
        )
    value, low, high = numbers
    drawn = report_page.panel([axis_label(each) for each in labels], (value, low, high), top)
    return report_page.PlaceOverTime(mark, str(release.place[certain.rows[mine[0]]]), apart, drawn)


# From a release, and perhaps an earlier one, to everything that its report shows.


@dataclass(frozen=True)
class Contents:
    """A release with all that is known of it; makes the parts of the page."""

    release: Release
    earlier: Release | None
    found: report_findings.Findings
    atlas: ReportMaps
    lists: report_findings.ListBuilder

    @classmethod
    def of(cls, release: Release, earlier: Release | None) -> Contents:
        """Return the contents of a report. Raises UsageError for releases that cannot be compared.

        Raises DataError for a release without bins.
        """
        if not release.bins:
            raise DataError("the release has no bins, so there is nothing to report")
        found, atlas = report_findings.findings(release, earlier), ReportMaps.of(release)
        return cls(release, earlier, found, atlas, report_findings.ListBuilder(atlas))

    def page(self) -> report_page.Page:
        """Return the whole page."""
        release, atlas, unit = self.release, self.atlas, self.release.request.display_unit
        first, *rest = self.found.statistics
        cells = cells_with_diagram(release, first, atlas) if atlas.has_several_slots else ()
        marks = self.lists.map_marks(first, cells)
        drawn = [(cell, marks[cell][0]) for cell in cells]
        return report_page.Page(
            release=release,
            created=disclosure.on_city_clocks(release.created_at, release.grid.period.time_zone),
            several=atlas.has_several_slots,
            digits=decimals(unit),
            bound=float(release.request.bound.upper * release.request.bound.unit.factor_to(unit)),
            level_read=classes.shown_level(release, first.statistic),
            calibrated=is_calibrated(release, first.statistic),
            main=self._section(first, marks),
            timetable=self.lists.against_timetable(),
            times=slots_section(release, first, atlas, drawn) if atlas.has_several_slots else None,
            others=tuple(self._section(each, self.lists.map_marks(each, ())) for each in rest),
            change=self._change(),
            change_legend=CHANGE_LEGEND,
        )

    def _section(self, each: report_findings.StatisticFindings, marks: Marks) -> report_page.Section:
        release, statistic = self.release, each.statistic
        # what is not compared has a map where it is the first, and nothing else to show otherwise
        shown = each.certain is not None or each is self.found.statistics[0]
        slot = fullest_slot(release, statistic)
        return report_page.Section(
            statistic=statistic,
            bins=BinNumbers.of(release.estimates[statistic].status),
            average=each.average,
            order=each.order,
            figure=self.atlas.figure(statistic, slot, marks, small=False) if shown else None,
            legend=legend(release, statistic, self.atlas.has_several_slots),
            all=self.lists.full_list(each),
            lists=self.lists.extreme_lists(each),
            city=each.city,
        )

    def _change(self) -> report_page.Change | None:
        earlier, changes = self.earlier, self.found.changes
        if earlier is None:
            return None
        statistic = self.found.statistics[0].statistic
        if changes is None:
            return report_page.Change(
                earlier, statistic, len(common_rows(self.release, earlier, statistic)[0])
            )
        rows, (fell, rose) = changes.rows, report_findings.changed_rows(changes.low, changes.high)
        told = report_page.Change(earlier, statistic, len(rows), True, len(fell), len(rose), changes.average)
        if not told.fell and not told.rose:
            return told
        slot = fullest_slot(self.release, statistic)
        return replace(
            told,
            figure=self.atlas.change_figure(rows, rows[fell], rows[rose], slot),
            lists=(self.lists.change_list(changes, fell, True), self.lists.change_list(changes, rose, False)),
        )


# The city report: one page for an engineer and a councillor, as HTML that asks no network, or as PDF.


FORMATS = ("html", "pdf")
"""What a report can be written as: the ending of its file name."""


def write_report(release: Release, path: Path, *, earlier: Release | None = None) -> None:
    """Write the report of ``release`` to ``path``, as HTML or PDF by its ending.

    With ``earlier`` it says what changed since. Raises UsageError for another ending, for two releases that
    cannot be compared, and where PDF is asked for and WeasyPrint or its libraries are missing; DataError for
    a release without bins or disclosure; and what ``replace_file`` raises.
    """
    kind = one_of(FORMATS, format=path.suffix.lower().removeprefix("."))
    require_folder_of(path)
    render = {"html": report_html, "pdf": report_pdf}[kind]
    replace_file(path, render(release, earlier))


def report_html(release: Release, earlier: Release | None = None) -> bytes:
    """Return the report as UTF-8 HTML; the same releases give the same bytes. Raises as ``write_report``."""
    return _page(release, earlier, paper=False).encode()


def report_pdf(release: Release, earlier: Release | None = None) -> bytes:
    """Return the report as a tagged PDF (PDF/UA-1) on A4. Raises as ``write_report``.

    The same releases give the same bytes on the same machine (fonts are those of the machine).
    """
    weasyprint = pdf_writer()
    html = weasyprint.HTML(
        string=_page(release, earlier, paper=True),
        base_url="about:blank",
        # nothing is fetched: a page that asks for a file is a bug
        url_fetcher=weasyprint.urls.URLFetcher(allowed_protocols=()),
    )
    identifier = f"{release.id} {release.ledger.head_hash}".encode()
    document: bytes = html.write_pdf(pdf_variant="pdf/ua-1", pdf_identifier=identifier)
    return document


def pdf_writer() -> ModuleType:
    """Return WeasyPrint; raise UsageError that says what to install when it cannot be loaded."""
    try:
        import weasyprint
        import weasyprint.urls
    except ImportError as error:
        raise UsageError(
            "PDF reports need WeasyPrint, which is not installed",
            todo="run pip install 'trafficdp[report]', or write .html and print it from a browser",
        ) from error
    except OSError as error:
        raise UsageError(
            "PDF reports need Pango, a library of the system that is missing",
            todo="install it (Debian, Ubuntu: apt-get install libpango-1.0-0 libpangoft2-1.0-0 "
            "libharfbuzz-subset0), or write .html and print it from a browser",
        ) from error
    module: ModuleType = weasyprint
    return module


def _page(release: Release, earlier: Release | None, *, paper: bool) -> str:
    contents = Contents.of(release, earlier)
    return language.fill_template(
        "report.html",
        language.Language.of(release.disclosure.catalogue.language),
        page=contents.page(),
        paper=paper,
        panel={
            "width": report_page.WIDTH,
            "height": report_page.HEIGHT,
            "left": report_page.LEFT,
            "right": report_page.RIGHT,
        },
    )
