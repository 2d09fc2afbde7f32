"""What changed from an earlier release to a later one: the difference with an interval of its own.

Both releases drew their noise independently. Write r and r' for the unclamped estimates of a bin, later and
earlier: r - t = s Z + beta and r' - t' = s' Z' + beta' with |beta| <= bias.

**Theorem.** With h = H(0.9 e) + s d + s' d' + bias + bias', H the half width of two continuous Laplace noises
and d the lattice shifts (``noise.tail``; for block noise h is the sum of the two half widths at 0.45 e),
and g, g' the half widths of the two by themselves at error 0.05 e, the following hold together with
probability at least 1 - e:

    |t - t' - (r - r')| <= h,    |t - r| <= g,    |t' - r'| <= g'.

Where r or r' is known only to lie beyond the end of its range (``certainty.unclamped_bounds``), the first
gives one end only and the other two, with t and t' in [0, R], the other. The interval is the intersection; it
always holds the published difference. H is narrower than the sum of two intervals: for equal scales b at e =
0.001 it is 8.7 b, where two intervals at e/2 take 15.2 b. Over the K common bins each gets e = a/K.

Of variances the change of the standard deviation d = sqrt(t) - sqrt(t') is shown. With t - t' >= l, t in
[a, b] and t' in [a', b']: d >= sqrt(a) - sqrt(b'), d >= l / (sqrt(b) + sqrt(b')) if l > 0, and if not
d >= -sqrt(-l); likewise above. The average is then that of the bins, between the averages of their ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.export.report import certainty
from trafficdp.mechanisms.several_maps import Difference, change_between_maps
from trafficdp.model import SlotKind, Statistic
from trafficdp.privacy.release import Release, outward_down, outward_up

if TYPE_CHECKING:
    import pandas as pd

_SHARE_OF_DIFFERENCE = 0.9


@dataclass(frozen=True)
class Changes(certainty.SimultaneousIntervals):
    """Changes of the bins common to two releases, later minus earlier, with intervals, in the display unit.

    ``rows`` are the positions in the later release. ``average`` is the mean change; None where the intervals
    are calibrated.
    """

    average: certainty.Interval | None


def refuse_incomparable(release: Release, earlier: Release) -> None:
    """Raise UsageError unless both releases measure the same thing and ``earlier`` starts no later.

    The message names what differs. Raises as ``refuse_different`` too.
    """
    if release.id == earlier.id:
        raise UsageError("a release cannot be compared with itself", got=release.id)
    refuse_different(release, earlier)
    if earlier.grid.period.first > release.grid.period.first:
        raise UsageError(
            "the release to compare with is the later one",
            got=f"{earlier.id} from {earlier.grid.period.first} on",
            expected=f"one that starts no later than {release.grid.period.first}",
            todo="exchange the two",
        )


def refuse_different(release: Release, other: Release) -> None:
    """Raise UsageError, naming what differs, unless both releases have the same area, places, slots and unit.

    The time zone, the speed bound and the selection of records must agree too. Slots that do not recur
    (calendar days or hours) are refused.
    """
    if release.grid.slot_kind in (SlotKind.DAY, SlotKind.CALENDAR_HOUR):
        raise UsageError(
            "slots on the calendar do not come back, so there is nothing to compare",
            got=f"slots of kind {release.grid.slot_kind.value}",
            expected="a whole period, or slots that recur",
        )
    facts, others = _facts(release), _facts(other)
    for name, (ours, said) in facts.items():
        theirs, told = others[name]
        if ours != theirs:
            alike = "another " if said == told else ""
            raise UsageError(
                f"the releases differ in their {name}, so their numbers cannot be compared",
                got=f"{said} in {release.id} and {alike}{told} in {other.id}",
                expected="two releases that measure the same thing",
            )


def common_rows(release: Release, earlier: Release, statistic: Statistic) -> tuple[IntArray, IntArray]:
    """Return the positions, in ``release`` and in ``earlier``, (K,) each, of the bins compared in both."""
    if statistic not in release.estimates or statistic not in earlier.estimates:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    ours, theirs = (certainty.compared_rows(each, statistic) for each in (release, earlier))
    place = _keys(earlier, theirs).get_indexer(_keys(release, ours))
    return ours[place >= 0], theirs[place[place >= 0]]


def changes(
    release: Release, earlier: Release, statistic: Statistic, error: float, average_error: float
) -> Changes | None:
    """Return the changes of all common bins, each interval wrong with probability at most ``error``.

    The interval of the average adds at most ``average_error``. Where a release does not say how its noise is
    distributed, the changes are those of ``likely_changes``, or None. None too when no bin is common. Raises
    what ``refuse_incomparable`` raises.
    """
    refuse_incomparable(release, earlier)
    rows, old_rows = common_rows(release, earlier, statistic)
    if not len(rows):
        return None
    law, old_law = certainty.law_of(release, statistic), certainty.law_of(earlier, statistic)
    digits = certainty.decimals(release.request.display_unit)
    if law is None or old_law is None:
        likely = likely_changes(release, earlier, statistic)
        if likely is None:
            return None
        low, high = likely[2].ends[max(likely[2].ends)]
        if release.grid.slot_kind is not SlotKind.WHOLE_PERIOD:
            # of slots what seemed clear was too often wrong (docs/guides/changes.md): nothing is
            low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
        low, high = outward_down(low, digits), outward_up(high, digits)
        return Changes(rows, likely[2].value, low, high, None)
    law, old = law.select_bins(rows), old_law.select_bins(old_rows)
    low, high = certainty.unclamped_bounds(release, statistic, rows)
    old_low, old_high = certainty.unclamped_bounds(earlier, statistic, old_rows)
    single = error * (1 - _SHARE_OF_DIFFERENCE) / 2
    own, others = law.half_width(single), old.half_width(single)
    half = certainty.difference_half_width(law, old, error * _SHARE_OF_DIFFERENCE)
    to_unit = release.request.factor(statistic)
    max_value = statistic.largest(release.request.bound.upper) * to_unit
    ends = np.maximum(low - own, 0.0), np.minimum(high + own, max_value)
    old_ends = np.maximum(old_low - others, 0.0), np.minimum(old_high + others, max_value)
    lowest = np.maximum(low - old_high - half, ends[0] - old_ends[1])
    highest = np.minimum(high - old_low + half, ends[1] - old_ends[0])
    value = _shown(release, statistic, rows) - _shown(earlier, statistic, old_rows)
    if statistic.power == 2:
        both = np.sqrt(ends[1]) + np.sqrt(old_ends[1])
        lowest = np.maximum(_root(lowest, both), np.sqrt(ends[0]) - np.sqrt(old_ends[1]))
        highest = np.minimum(-_root(-highest, both), np.sqrt(ends[1]) - np.sqrt(old_ends[0]))
        average_low, average_high = float(lowest.mean()), float(highest.mean())
    else:
        spread = certainty.average_half_width([law, old], average_error)
        average_low = max(float((low - old_high).mean()) - spread, float(lowest.mean()))
        average_high = min(float((high - old_low).mean()) + spread, float(highest.mean()))
    return Changes(
        rows,
        value,
        outward_down(lowest, digits),
        outward_up(highest, digits),
        certainty.Interval(
            float(value.mean()),
            float(outward_down(np.array(average_low), digits)),
            float(outward_up(np.array(average_high), digits)),
        ),
    )


def likely_changes(
    release: Release, earlier: Release, statistic: Statistic
) -> tuple[IntArray, IntArray, Difference] | None:
    """Return the positions of all common bins in ``release`` and in ``earlier``, and their likely change.

    The change is later minus earlier, in the display unit. None when no bin is common or a release has no 80
    % intervals (``intervals_of_80_percent``). Raises what ``refuse_incomparable`` raises.
    """
    refuse_incomparable(release, earlier)
    rows, old_rows = common_rows(release, earlier, statistic)
    ends = intervals_of_80_percent(release, statistic, rows)
    old_ends = intervals_of_80_percent(earlier, statistic, old_rows)
    if not len(rows) or ends is None or old_ends is None:
        return None
    upper = float(release.request.bound.upper) * release.request.factor(statistic)
    slots = release.grid.slot_kind is not SlotKind.WHOLE_PERIOD
    days = (release.grid.period.first - earlier.grid.period.first).days
    return rows, old_rows, change_between_maps(old_ends, ends, upper, slots=slots, days=days)


def intervals_of_80_percent(
    release: Release, statistic: Statistic, rows: IntArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return (low, high) of the 80 % intervals of the bins ``rows``, shape (K,) each, in the display unit.

    They come from the posterior, else from the published noise; None where neither gives them.
    """
    estimate, factor = release.estimates[statistic], release.request.factor(statistic)
    if estimate.posterior:
        return estimate.posterior["low_80"][rows] * factor, estimate.posterior["high_80"][rows] * factor
    law = None if statistic.power == 2 else certainty.law_of(release, statistic)
    if law is None:
        return None
    value, half = estimate.value[rows] * factor, law.select_bins(rows).half_width(0.2)
    upper = float(release.request.bound.upper) * factor
    return np.maximum(value - half, 0.0), np.minimum(value + half, upper)


def _root(least: FloatArray, both: FloatArray) -> FloatArray:
    """Return the least sqrt(a) - sqrt(b) where a - b >= ``least`` and sqrt(a) + sqrt(b) <= ``both``."""
    return np.where(least > 0, least / np.where(both > 0, both, 1.0), -np.sqrt(np.maximum(-least, 0.0)))


def _facts(release: Release) -> dict[str, tuple[object, object]]:
    """Return by name what must be equal in both releases: the value compared, and its words for a message."""
    grid, bound = release.grid, release.request.bound
    west, south, east, north = grid.area.geometry.bounds
    box = f"the area within [{west:g}, {south:g}, {east:g}, {north:g}]"
    plain = {
        "slots": grid.slot_kind.value,
        "day parts": [part.name for part in grid.day_parts] if grid.slot_kind is SlotKind.DAY_PART else None,
        "longer slots": None if grid.mosaic is None else sorted(grid.mosaic.longer),
        "time zone": grid.period.time_zone,
        "display unit": release.request.display_unit.label,
        "speed bound": f"{float(bound.upper * bound.unit.metres_per_second):.6g} m/s",
    }
    return {
        "study area": (grid.area.hash, box),
        "places": (grid.resolutions if grid.zones is None else grid.zones.key, grid.in_words()),
        "selection of records": (grid.selection.key, grid.selection.in_words()),
        **{name: (each, each) for name, each in plain.items()},
    }


def _keys(release: Release, rows: IntArray) -> pd.MultiIndex:
    import pandas as pd

    return pd.MultiIndex.from_arrays([release.cell[rows], release.slot[rows]])


def _shown(release: Release, statistic: Statistic, rows: IntArray) -> FloatArray:
    value = release.estimates[statistic].value[rows] * release.request.factor(statistic)
    return certainty.variances_as_deviations(value, statistic)
