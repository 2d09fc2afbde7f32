"""Intervals that hold all at once, so that bins can be compared with one another.

**Theorem (Bonferroni).** Let bin i of K compared bins have an interval that misses its truth with
probability at most e_i, and let the e_i add up to at most a. Then with probability at least 1 - a every
interval holds its truth; on that event *every* statement that follows from the intervals is true, however
many are made and however they were chosen by looking at the numbers: bin i is slower than bin j if
high_i < low_j. Which bins are compared is decided by their status, hence by public counts alone. No
independence is used. The truth is the sample statistic of the clipped speeds in the data.

From the release's interval at level 1 - a0 to error e < a0: both ends move outward by h(e) - h(a0), h the
law's half width. That is sound where an end was clamped to [0, R] too, since the truth lies there; and
where a variance was cut to mean (U - mean), since the published interval takes the cut downward only.

**Average.** For independent noises the average of n truths lies within ``sum_half_width`` (plus the average
bias) of the average of the n unclamped estimates r_i. Of those only bounds are known: r_i = v_i inside the
range, r_i <= 0 where v_i = 0, r_i >= v_i where v_i is at its upper limit. An end of the average's interval
that would need an unknown r_i falls back on the average of the simultaneous intervals. Block noise, whose
items are independent only given their block, has a bound of its own there.

**Calibrated intervals** follow from no law, and from no theorem. Where counts are public they are compared as
they are: of all pairs of bins whose intervals are disjoint at most 5 % may stand the wrong way round, in each
variation of simulated cities (``simulation.city.VARIATIONS``), which a test measures. Nothing is told of
their average, nor of changes.

A variance is shown as standard deviation: the root of an interval's ends holds the root of what it holds, and
keeps the order. Its average is the root of the average variance.

All ends are rounded outward to the decimals that are shown before anything is compared, so that a claim can
be checked by eye.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.export.files.shown import error_digits
from trafficdp.export.report.noise_law import average_half_width, law_of
from trafficdp.mechanisms.publish import largest_variance
from trafficdp.model import NeighbouringRelation, SpeedUnit, Statistic
from trafficdp.privacy.estimate import BinStatus, IntervalKind
from trafficdp.privacy.release import Release

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Certain:
    """Numbers of the bins ``rows`` (positions in the release) with simultaneous intervals, as shown."""

    rows: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class Interval:
    """One number with its interval, low <= value <= high."""

    value: float
    low: float
    high: float

    @property
    def digits(self) -> int:
        """How many decimals of ``value`` the interval carries."""
        return error_digits(self.low, self.high)


def compared_rows(release: Release, statistic: Statistic) -> IntArray:
    """Return the bins that are compared: those with a number that is neither constant nor uninformative."""
    return np.flatnonzero(release.estimates[statistic].status == BinStatus.RELEASED.value)


def is_calibrated(release: Release, statistic: Statistic) -> bool:
    """Return whether intervals are compared for what they are in trials, without a theorem."""
    relation = release.disclosure.unit.neighbouring_relation
    public = relation == NeighbouringRelation.REPLACE_USER_VALUES
    return public and release.interval_kind(statistic) is IntervalKind.CALIBRATED


def simultaneous(release: Release, statistic: Statistic, error: float) -> Certain | None:
    """Return the intervals of all compared bins, each missing its truth with at most ``error``.

    None when the release does not say how its noise is distributed. ``error`` must not exceed that of the
    release's own intervals; else those are returned. Calibrated intervals are returned as they are.
    """
    law, rows = law_of(release, statistic), compared_rows(release, statistic)
    if law is None and not is_calibrated(release, statistic):
        return None
    estimate, factor = release.estimates[statistic], release.factor(statistic)
    value, low, high = (each[rows] * factor for each in (estimate.value, estimate.low, estimate.high))
    wider = np.zeros(len(rows))
    if law is not None:
        law, own = law.at(rows), 1 - release.interval_level
        wider = np.maximum(law.half_width(min(error, own)) - law.half_width(own), 0.0)
    largest = statistic.largest(release.bound.upper) * factor
    digits = decimals(release.display_unit)
    return Certain(
        rows,
        as_shown(value, statistic),
        outward_down(as_shown(low - wider, statistic), digits),
        outward_up(as_shown(np.minimum(high + wider, largest), statistic), digits),
    )


def average(release: Release, statistic: Statistic, certain: Certain, error: float) -> Interval | None:
    """Return the average over the compared bins, each counting once, as shown; it misses with ``error``.

    ... beyond the error of ``certain``, on whose intervals it may fall back. None without bins or law.
    """
    law = law_of(release, statistic)
    if law is None or not len(certain.rows):
        return None
    law = law.at(certain.rows)
    lowest, highest = unclamped(release, statistic, certain.rows)
    half = average_half_width([law], error)
    digits, power = decimals(release.display_unit), statistic.power
    low = np.maximum(lowest.mean() - half, (certain.low**power).mean())
    high = np.minimum(highest.mean() + half, (certain.high**power).mean())
    return Interval(
        float(as_shown(np.asarray((certain.value**power).mean()), statistic)),
        float(outward_down(as_shown(low, statistic), digits)),
        float(outward_up(as_shown(high, statistic), digits)),
    )


def unclamped(release: Release, statistic: Statistic, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return bounds of the estimates before they were clamped, display unit; infinite where unknown."""
    estimate, factor = release.estimates[statistic], release.factor(statistic)
    value, upper = estimate.value[rows], float(release.bound.upper)
    limit = np.full(len(rows), statistic.largest(upper))
    mean = release.estimates.get(Statistic.MEAN)
    if statistic is Statistic.VARIANCE and mean is not None:
        limit = np.minimum(limit, largest_variance(mean.value[rows], upper))
    at_limit = value >= limit * (1 - 1e-9)
    return (
        np.where(value <= 0, -np.inf, value * factor),
        np.where(at_limit, np.inf, value * factor),
    )


def as_shown(numbers: FloatArray, statistic: Statistic) -> FloatArray:
    """Return ``numbers`` of ``statistic`` as a report shows them: a variance as standard deviation."""
    return np.asarray(np.maximum(numbers, 0.0) ** (1 / statistic.power))


def decimals(unit: SpeedUnit) -> int:
    """Return how many decimals the ends of a report's intervals have: two in m/s, else one."""
    return 2 if unit is SpeedUnit.METRES_PER_SECOND else 1


def outward_down(ends: FloatArray, digits: int) -> FloatArray:
    """Return lower ends rounded down; never minus zero."""
    return np.asarray(np.floor(ends * 10.0**digits) / 10.0**digits + 0.0)


def outward_up(ends: FloatArray, digits: int) -> FloatArray:
    """Return upper ends rounded up."""
    return np.asarray(np.ceil(ends * 10.0**digits) / 10.0**digits + 0.0)
