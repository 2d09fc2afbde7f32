"""What a report may claim, its lists, and the marks by which they are found on the map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.export.files.classes import number_in_words, shown_largest
from trafficdp.export.files.tables import published_statistics
from trafficdp.export.report import certainty
from trafficdp.export.report import page as report_page
from trafficdp.export.report.change import Changes, changes, common_rows, refuse_incomparable
from trafficdp.export.report.maps import Marks, ReportMaps, fullest_slot
from trafficdp.model import Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release

# What a report may claim: order, times of day and changes, from intervals that hold all at once.
#
# A claim is made only where two intervals of ``certainty`` are disjoint, or one of ``change`` leaves out 0.
# The error probability a = 1 - level of the whole page is shared out before any number is looked at: a
# twentieth to every average, the rest evenly over all intervals that are compared, of all statistics and
# changes. So with probability at least the release's interval level *everything* that the page claims is
# true.


LONGEST_LIST = 5
SURE = 0.95
"""A chance from which on a bin is counted as slower, or faster, than the city by a fifth."""
_SHARE_OF_AVERAGE = 0.05


@dataclass(frozen=True)
class StatisticFindings:
    """What a report may claim of one statistic; intervals, order and average are None if nothing is compared.

    ``certain``: simultaneous intervals. ``order``: which bins they prove lower or higher than others.
    ``chances``: what a posterior says of the same bins, None without one.
    """

    statistic: Statistic
    certain: certainty.SimultaneousIntervals | None
    order: report_page.Order | None
    average: certainty.Interval | None
    chances: certainty.CityChances | None = None

    @property
    def city(self) -> report_page.CityComparison | None:
        """How many bins are slower, or faster, than the city by a fifth with a chance of at least SURE.

        None without a posterior.
        """
        of = self.chances
        if of is None:
            return None
        slower, faster = (int(np.count_nonzero(each >= SURE)) for each in (of.slower, of.faster))
        return report_page.CityComparison(of.city, len(of.slower), slower, faster)


@dataclass(frozen=True)
class Findings:
    """All that a report may claim. ``statistics`` are in the order of the published table.

    ``intervals`` is how many intervals share the error probability of the report.
    """

    statistics: tuple[StatisticFindings, ...]
    changes: Changes | None
    intervals: int


def findings(release: Release, earlier: Release | None) -> Findings:
    """Return the claims that ``release`` supports, and the changes since ``earlier`` if it is given.

    All intervals and averages share the release's error probability, so that all claims hold together.
    Changes are those of the first statistic. Raises UsageError when the two cannot be compared.
    """
    if earlier is not None:
        refuse_incomparable(release, earlier)
    statistics = published_statistics(release)
    common = 0 if earlier is None else len(common_rows(release, earlier, statistics[0])[0])
    compared = {each: len(certainty.compared_rows(release, each)) for each in statistics}
    averages = sum(number > 0 for number in compared.values()) + (common > 0)
    intervals = sum(compared.values()) + common
    page = 1 - release.request.interval_level
    of_average = page * _SHARE_OF_AVERAGE
    of_interval = (page - averages * of_average) / max(intervals, 1)
    found = []
    for statistic in statistics:
        certain = certainty.simultaneous_intervals(release, statistic, of_interval)
        if certain is None or not len(certain.rows):
            found.append(StatisticFindings(statistic, None, None, None))
            continue
        found.append(
            StatisticFindings(
                statistic,
                certain,
                proven_order(certain.low, certain.high),
                certainty.mean_with_interval(release, statistic, certain, of_average),
                certainty.city_chances(release, statistic),
            )
        )
    changed = None if earlier is None else changes(release, earlier, statistics[0], of_interval, of_average)
    return Findings(tuple(found), changed, intervals)


def proven_order(low: FloatArray, high: FloatArray) -> report_page.Order:
    """Return which of K bins are proved lower or higher than others, since their intervals do not overlap.

    ``low`` and ``high``, shape (K,), are the ends. A bin is listed as low if more bins lie above it than
    below it, as high if fewer do, else not at all.
    """
    below = len(low) - np.searchsorted(np.sort(low), high, side="right")
    above = np.searchsorted(np.sort(high), low, side="left")
    half = max((len(low) - 1) / 2, 1)
    return report_page.Order(
        compared=len(low),
        low=_standings(below, above, high),
        high=_standings(above, below, -low),
        low_half=int((below >= half).sum()),
        high_half=int((above >= half).sum()),
    )


def furthest_apart(low: FloatArray, high: FloatArray) -> tuple[int, int, float] | None:
    """Return (lowest, highest, gap): the two positions whose intervals [low, high] are furthest apart.

    The truth at ``lowest`` lies below that at ``highest`` by at least ``gap`` > 0. NaN is left out. None
    where all intervals overlap.
    """
    if not len(low) or bool(np.all(np.isnan(low))):
        return None
    lowest, highest = int(np.nanargmin(high)), int(np.nanargmax(low))
    gap = float(low[highest] - high[lowest])
    return (lowest, highest, gap) if gap > 0 else None


def changed_rows(low: FloatArray, high: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the positions of changes whose interval lies below 0, and above 0, those furthest from 0 first.

    ``low`` and ``high``, shape (K,), are the ends of the intervals.
    """
    fell, rose = np.flatnonzero(high < 0), np.flatnonzero(low > 0)
    return fell[np.argsort(high[fell], kind="stable")], rose[np.argsort(-low[rose], kind="stable")]


def _standings(told: IntArray, otherwise: IntArray, end: FloatArray) -> tuple[report_page.RankedBin, ...]:
    listed = np.flatnonzero(told > otherwise)
    order = np.lexsort((end[listed], -told[listed]))
    return tuple(report_page.RankedBin(int(row), int(told[row])) for row in listed[order])


LONGEST_NAMES = ("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12")


@dataclass(frozen=True)
class ListBuilder:
    """Builds the lists of bins that a report shows, from the findings on one release."""

    atlas: ReportMaps

    @property
    def release(self) -> Release:
        """The release that the report is about."""
        return self.atlas.release

    def map_marks(self, findings: StatisticFindings, cells: tuple[int, ...]) -> Marks:
        """Return the text to write on cells of the map, by position of the cell, and whether it is on dark.

        ``cells`` (those with a diagram) are P1, P2, ...; bins of the lists that lie in the slot of the map
        have the names of their lines.
        """
        marks: dict[int, tuple[str, bool]] = {
            cell: (f"P{number}", False) for number, cell in enumerate(cells, 1)
        }
        if findings.certain is None or findings.order is None:
            return marks
        shown = fullest_slot(self.release, findings.statistic)
        named = [(at, name, False) for at, name in zip(self._few(findings), LONGEST_NAMES, strict=False)]
        for positions, names, below in _ends(findings, findings.order):
            named += [(at, name, below) for at, name in zip(positions, names, strict=False)]
        for at, name, dark in named:
            row = int(findings.certain.rows[at])
            if int(self.release.slot[row]) == shown:
                marks[int(self.atlas.position[row])] = (name, dark)
        return marks

    def extreme_lists(self, findings: StatisticFindings) -> tuple[report_page.ListedRows, ...]:
        """Return the two lists of the bins of one statistic that are proved lower, and higher, than others.

        With a posterior: of the slowest and the fastest bins, with their chances. A list without bins is left
        out.
        """
        certain, order, chances = findings.certain, findings.order, findings.chances
        if certain is None or order is None or (chances is None and order.proves_nothing):
            return ()
        lists = []
        for positions, names, below in _ends(findings, order):
            shown = certain if chances is None else chances.likely
            rows = self._rows(findings.statistic, shown, positions, names)
            if chances is None:
                standings = order.low if below else order.high
                rows = [replace(row, others=one.others) for row, one in zip(rows, standings, strict=False)]
                lists.append(report_page.ListedRows(tuple(rows), len(standings), below))
            elif rows:
                chance = chances.slower if below else chances.faster
                rows = [
                    replace(row, chance=float(chance[at])) for row, at in zip(rows, positions, strict=False)
                ]
                lists.append(report_page.ListedRows(tuple(rows), len(chance), below))
        return tuple(lists)

    def full_list(self, findings: StatisticFindings) -> report_page.ListedRows | None:
        """Return one list of all compared bins, north to south, where they are few and have no proved order.

        None otherwise, with several slots, or with a posterior.
        """
        certain, few = findings.certain, self._few(findings)
        if certain is None or not few:
            return None
        rows = self._rows(findings.statistic, certain, few, LONGEST_NAMES)
        return report_page.ListedRows(tuple(rows), len(rows))

    def change_list(self, changes: Changes, positions: IntArray, fell: bool) -> report_page.ListedRows:
        """Return a list of the first LONGEST_LIST of ``positions`` in ``changes``.

        ``fell`` says that these bins became lower; otherwise they became higher.
        """
        rows = [
            report_page.Row("", *self._where(int(changes.rows[at])), "", _interval(changes, at))
            for at in positions[:LONGEST_LIST].tolist()
        ]
        return report_page.ListedRows(tuple(rows), len(positions), fell)

    def against_timetable(self) -> report_page.AgainstTimetable | None:
        """Return how many mean speeds are below, and above, the timetable's with their whole interval.

        With a list of the first of the slower bins, surest first. None where no timetable is known.
        """
        mean = self.release.estimates.get(Statistic.MEAN)
        if mean is None or "of_scheduled" not in mean.posterior:
            return None
        share, low, high = (100 * mean.posterior[f"of_scheduled{end}"] for end in ("", "_low", "_high"))
        compared = (mean.status == BinStatus.RELEASED.value) & ~np.isnan(share)
        slower = np.flatnonzero(compared & (high < 100))
        slower = slower[np.argsort(high[slower], kind="stable")]
        scheduled = mean.posterior["scheduled"] * self.release.request.factor(Statistic.MEAN)
        rows = tuple(
            report_page.Row(
                "",
                *self._where(at),
                f"{scheduled[at]:.0f}",
                certainty.Interval(float(share[at]), float(np.floor(low[at])), float(np.ceil(high[at]))),
            )
            for at in slower[:LONGEST_LIST].tolist()
        )
        return report_page.AgainstTimetable(
            int(compared.sum()), len(slower), int((compared & (low > 100)).sum()), rows
        )

    def _few(self, each: StatisticFindings) -> list[int]:
        """Return the positions of compared bins from north to south; empty where not all are listed."""
        if (
            each.certain is None
            or each.order is None
            or not each.order.proves_nothing
            or self.atlas.has_several_slots
            or each.chances is not None
        ):
            return []
        rows = each.certain.rows
        if len(rows) > len(LONGEST_NAMES):
            return []
        found: list[int] = np.argsort(self.atlas.centres.y[self.atlas.position[rows]]).tolist()
        return found

    def _rows(
        self,
        statistic: Statistic,
        certain: certainty.SimultaneousIntervals,
        positions: Sequence[int],
        names: Sequence[str],
    ) -> list[report_page.Row]:
        """Return the lines of compared bins: their values, with the decimals that intervals support.

        ``names`` are their marks on the map; bins beyond these have no line.
        """
        largest = shown_largest(statistic, self.release.request.bound, self.release.request.display_unit)
        rows = []
        for at, name in zip(positions, names, strict=False):
            found = _interval(certain, at)
            read = number_in_words(found.value, found.low, found.high, largest)
            where = self._where(int(certain.rows[at]))
            ends = (read.low, read.high) if read.low else None
            rows.append(report_page.Row(name, *where, read.value, found if read.low else None, ends=ends))
        return rows

    def _where(self, row: int) -> tuple[str, str, str]:
        """Return the name of the place, the label of the slot and the cell of bin ``row``."""
        release = self.release
        cell = release.grid.spelled(release.cell[row : row + 1])[0]
        return str(release.place[row]), release.slots[int(release.slot[row])].label, cell


def _ends(each: StatisticFindings, order: report_page.Order) -> list[tuple[list[int], str, bool]]:
    """Return for each list the positions of its bins, their names, and whether they are the lower ones.

    With a posterior they are the slowest, by lower end of interval, and the fastest, by upper end: at most
    LONGEST_LIST, and at most half of all.
    """
    if each.chances is None:
        low, high = ([one.position for one in standings] for standings in (order.low, order.high))
    else:
        most = min(LONGEST_LIST, len(each.chances.slower) // 2)
        likely = each.chances.likely
        low, high = (np.argsort(end, kind="stable")[:most].tolist() for end in (likely.low, -likely.high))
    return [(low, "12345", True), (high, "ABCDE", False)]


def _interval(of: certainty.SimultaneousIntervals, at: int) -> certainty.Interval:
    return certainty.Interval(float(of.value[at]), float(of.low[at]), float(of.high[at]))
