"""The city report: one page for an engineer and a councillor, as HTML that asks no network, or as PDF."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
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
    # short enough for an axis: no brackets, an hour by its start
    plain = [re.sub(r"\s*\(.*\)$", "", each) for each in labels]
    ticks = [re.sub(r"(\d\d:\d\d)-\d\d:\d\d", r"\1", each) for each in plain]
    drawn = report_page.panel(ticks, (value, low, high), top)
    return report_page.PlaceOverTime(mark, str(release.place[certain.rows[mine[0]]]), apart, drawn)


# From a release, and perhaps an earlier one, to everything that its report shows.


def _section(
    lists: report_findings.ListBuilder, each: report_findings.StatisticFindings, marks: Marks, *, drawn: bool
) -> report_page.Section:
    """Return the part of the page on one statistic; its map, with ``marks``, only if ``drawn``."""
    release, atlas, statistic = lists.release, lists.atlas, each.statistic
    slot = fullest_slot(release, statistic)
    return report_page.Section(
        statistic=statistic,
        bins=BinNumbers.of(release.estimates[statistic].status),
        average=each.average,
        order=each.order,
        figure=atlas.figure(statistic, slot, marks, small=False) if drawn else None,
        legend=legend(release, statistic, atlas.has_several_slots),
        all=lists.full_list(each),
        lists=lists.extreme_lists(each),
        city=each.city,
    )


def _change(
    lists: report_findings.ListBuilder, found: report_findings.Findings, earlier: Release
) -> report_page.Change:
    release, statistic, changes = lists.release, found.statistics[0].statistic, found.changes
    if changes is None:
        return report_page.Change(earlier, statistic, len(common_rows(release, earlier, statistic)[0]))
    rows, (fell, rose) = changes.rows, report_findings.changed_rows(changes.low, changes.high)
    told = report_page.Change(earlier, statistic, len(rows), True, len(fell), len(rose), changes.average)
    if not told.fell and not told.rose:
        return told
    slot = fullest_slot(release, statistic)
    return replace(
        told,
        figure=lists.atlas.change_figure(rows, rows[fell], rows[rose], slot),
        lists=(lists.change_list(changes, fell, True), lists.change_list(changes, rose, False)),
    )


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
    if not release.bins:
        raise DataError("the release has no bins, so there is nothing to report")
    found, atlas = report_findings.findings(release, earlier), ReportMaps.of(release)
    lists = report_findings.ListBuilder(atlas)
    unit, bound = release.request.display_unit, release.request.bound
    first, *rest = found.statistics
    several = atlas.has_several_slots
    cells = cells_with_diagram(release, first, atlas) if several else ()
    marks = lists.map_marks(first, cells)
    with_diagram = [(cell, marks[cell][0]) for cell in cells]
    # numbers are in the display unit, with ``digits`` decimals; ``level_read`` decides on hatching
    page = {
        "release": release,
        "created": disclosure.on_city_clocks(release.created_at, release.grid.period.time_zone),
        "several": several,
        "digits": decimals(unit),
        "bound": float(bound.upper * bound.unit.factor_to(unit)),
        "level_read": classes.shown_level(release, first.statistic),
        "calibrated": is_calibrated(release, first.statistic),
        # what is not compared has a map where it is the first, and nothing else to show otherwise
        "main": _section(lists, first, marks, drawn=True),
        "timetable": lists.against_timetable(),
        "times": slots_section(release, first, atlas, with_diagram) if several else None,
        "others": [
            _section(lists, each, lists.map_marks(each, ()), drawn=each.certain is not None) for each in rest
        ],
        "change": None if earlier is None else _change(lists, found, earlier),
        "change_legend": CHANGE_LEGEND,
    }
    return language.fill_template(
        "report.html",
        language.Language.of(release.disclosure.catalogue.language),
        page=page,
        paper=paper,
        panel={
            "width": report_page.WIDTH,
            "height": report_page.HEIGHT,
            "left": report_page.LEFT,
            "right": report_page.RIGHT,
        },
    )
