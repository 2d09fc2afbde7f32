"""What a report may claim: order, times of day and changes, from intervals that hold all at once.

A claim is made only where two intervals of ``certainty`` are disjoint, or one of ``change`` leaves out 0. The
error probability a = 1 - level of the whole page is shared out before any number is looked at: a twentieth
to every average, the rest evenly over all intervals that are compared, of all statistics and changes.
So with probability at least the release's interval level *everything* that the page claims is true.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.export.files.columns import published_statistics
from trafficdp.export.report.certainty import Certain, Interval, average, compared_rows, simultaneous
from trafficdp.export.report.change import Changes, changes, common_rows, refuse_incomparable
from trafficdp.export.report.page import Order, Standing
from trafficdp.model import Statistic
from trafficdp.privacy.release import Release

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
LONGEST_LIST = 5
_SHARE_OF_AVERAGE = 0.05


@dataclass(frozen=True)
class StatisticFindings:
    """One statistic: intervals, order and average; None where nothing is compared."""

    statistic: Statistic
    certain: Certain | None
    order: Order | None
    average: Interval | None


@dataclass(frozen=True)
class Findings:
    """All that a report may claim. ``statistics`` in the order of the published table."""

    statistics: tuple[StatisticFindings, ...]
    changes: Changes | None
    intervals: int


def findings(release: Release, earlier: Release | None) -> Findings:
    """Return what ``release`` allows to claim, and against ``earlier`` if there is one.

    Changes are those of the first statistic. Raises UsageError when the two cannot be compared.
    """
    if earlier is not None:
        refuse_incomparable(release, earlier)
    statistics = published_statistics(release)
    common = 0 if earlier is None else len(common_rows(release, earlier, statistics[0])[0])
    compared = {each: len(compared_rows(release, each)) for each in statistics}
    averages = sum(number > 0 for number in compared.values()) + (common > 0)
    intervals = sum(compared.values()) + common
    page = 1 - release.interval_level
    of_average = page * _SHARE_OF_AVERAGE
    of_interval = (page - averages * of_average) / max(intervals, 1)
    found = []
    for statistic in statistics:
        certain = simultaneous(release, statistic, of_interval)
        if certain is None or not len(certain.rows):
            found.append(StatisticFindings(statistic, None, None, None))
            continue
        found.append(
            StatisticFindings(
                statistic,
                certain,
                order_of(certain.low, certain.high),
                average(release, statistic, certain, of_average),
            )
        )
    changed = None if earlier is None else changes(release, earlier, statistics[0], of_interval, of_average)
    return Findings(tuple(found), changed, intervals)


def order_of(low: FloatArray, high: FloatArray) -> Order:
    """Return the order that disjoint intervals [low, high] (shape (K,)) prove; ends that touch prove none.

    A bin is listed on the side on which it is told apart from more others; with as many on either, nowhere.
    """
    below = len(low) - np.searchsorted(np.sort(low), high, side="right")
    above = np.searchsorted(np.sort(high), low, side="left")
    half = max((len(low) - 1) / 2, 1)
    return Order(
        compared=len(low),
        low=_standings(below, above, high),
        high=_standings(above, below, -low),
        low_half=int((below >= half).sum()),
        high_half=int((above >= half).sum()),
    )


def extreme_times(low: FloatArray, high: FloatArray) -> tuple[int, int, float] | None:
    """Return (lowest, highest, gap): two positions whose intervals are furthest apart; None if none are.

    The truth at ``lowest`` lies below that at ``highest`` by at least ``gap`` > 0. NaN is left out.
    """
    if not len(low) or bool(np.all(np.isnan(low))):
        return None
    lowest, highest = int(np.nanargmin(high)), int(np.nanargmax(low))
    gap = float(low[highest] - high[lowest])
    return (lowest, highest, gap) if gap > 0 else None


def changed_rows(low: FloatArray, high: FloatArray) -> tuple[IntArray, IntArray]:
    """Return the positions that certainly fell and those that certainly rose, the surest first."""
    fell, rose = np.flatnonzero(high < 0), np.flatnonzero(low > 0)
    return fell[np.argsort(high[fell], kind="stable")], rose[np.argsort(-low[rose], kind="stable")]


def _standings(told: IntArray, otherwise: IntArray, end: FloatArray) -> tuple[Standing, ...]:
    listed = np.flatnonzero(told > otherwise)
    order = np.lexsort((end[listed], -told[listed]))
    return tuple(Standing(int(row), int(told[row])) for row in listed[order])
