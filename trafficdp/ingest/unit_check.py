"""How far vehicles get: their fixes in order of time, derived speeds, and the check of the unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from trafficdp.model import SpeedUnit

# Each vehicle's fixes in order of time: what finds repeats and the fix before.


IntArray = npt.NDArray[np.int64]

SHORTEST_STEP_US = 2 * 1_000_000
"""Fixes closer than 2 s say too little about speed: positions are rounded."""
LONGEST_STEP_US = 120 * 1_000_000
"""Fixes further apart than 120 s say too little: vehicles turn corners."""
_APART_US = LONGEST_STEP_US + 1
"""Fixes further apart than any pair that counts, and those of two vehicles, are as far apart as this."""


@dataclass(frozen=True, repr=False)
class Timeline:
    """Positions 0..n-1 of fixes, sorted by vehicle, then time, then place in the file.

    ``along`` (n,) lays the vehicles' times end to end, in that order: equal (vehicle, time) pairs have equal
    ones, and a difference up to LONGEST_STEP_US is one between times of the same vehicle.
    """

    order: IntArray
    along: IntArray
    time_us: IntArray

    @classmethod
    def of(cls, vehicle: IntArray, time_us: IntArray) -> Timeline:
        """Sort fixes of ``vehicle`` (numbers from 0) at ``time_us``, both of shape (n,)."""
        # numbers of 16 bits are sorted in linear time
        narrow = vehicle.astype(np.min_scalar_type(vehicle.max(initial=0)))
        order = np.argsort(narrow, kind="stable")
        narrow = narrow[order]
        # most vehicles' fixes are in order of time in the file: only the others' are sorted by it
        back = (narrow[1:] == narrow[:-1]) & (np.diff(time_us[order]) < 0)
        if back.any():
            late = np.zeros(int(narrow[-1]) + 1, dtype=np.bool_)
            late[narrow[1:][back]] = True
            place = np.flatnonzero(late[narrow])
            rows = order[place]
            order[place] = rows[np.lexsort((time_us[rows], narrow[place]))]
        along = np.zeros(len(order), dtype=np.int64)
        step = np.where(narrow[1:] == narrow[:-1], np.diff(time_us[order]), _APART_US)
        np.cumsum(np.minimum(step, _APART_US), out=along[1:])
        return cls(order, along, time_us)

    def repeats(self) -> npt.NDArray[np.bool_]:
        """Return for every fix whether the same vehicle and instant came earlier in the file."""
        result = np.zeros(len(self.order), dtype=np.bool_)
        result[self.order[1:]] = self.along[1:] == self.along[:-1]
        return result


# Speeds derived from two fixes of one vehicle, for sources that report none.


FloatArray = npt.NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8
"""Mean radius of the Earth (IUGG), metres."""


def great_circle_m(
    latitude_1: FloatArray, longitude_1: FloatArray, latitude_2: FloatArray, longitude_2: FloatArray
) -> FloatArray:
    """Return the great-circle distance in metres between positions in degrees (haversine formula)."""
    latitude_1, latitude_2 = np.radians(latitude_1), np.radians(latitude_2)
    half_chord = (
        np.sin((latitude_2 - latitude_1) / 2) ** 2
        + np.cos(latitude_1) * np.cos(latitude_2) * np.sin(np.radians(longitude_2 - longitude_1) / 2) ** 2
    )
    return np.asarray(2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(np.clip(half_chord, 0, 1))))


def derived_speed_ms(
    timeline: Timeline, latitude: FloatArray, longitude: FloatArray
) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Return each fix's speed since the vehicle's fix before, in m/s, and the position of that fix.

    Distance along the great circle over time, for the last fix 2 to 120 s before (shape (n,); NaN and -1
    where there is none). Only the vehicle's own rows are used, so under the guarantee a derived speed is
    that vehicle's value. It runs lower than what devices report (roads bend, vehicles stop in between),
    so rows that carry one are flagged.
    """
    order, along = timeline.order, timeline.along
    place = np.searchsorted(along, along - SHORTEST_STEP_US, side="right") - 1
    near = (place >= 0) & (along - along[place] <= LONGEST_STEP_US)
    before = np.empty(len(order), dtype=np.int64)
    before[order] = np.where(near, order[place], -1)
    speed = np.full(len(before), np.nan)
    here = np.flatnonzero(before >= 0)
    there = before[here]
    seconds = (timeline.time_us[here] - timeline.time_us[there]) / 1e6
    metres = great_circle_m(latitude[there], longitude[there], latitude[here], longitude[here])
    speed[here] = metres / seconds
    return speed, before


# The unit linter: does the declared unit of speed agree with how far vehicles get?
#
# For two fixes of one vehicle 2 to 120 s apart, the ratio is
#
#     distance along the great circle / time / mean of the two reported speeds, converted to m/s.
#
# A pair is usable when that mean is above 0: the vehicle said that it moved at one of its ends at least.
# The condition is the same in every unit, so a wrong declaration scales the median by exactly the factor
# between the units, and it takes both ends alike. (Asking the later speed alone to be above 0 gives 0.55
# to 0.75 for the true m/s files of Austin, too near the limit: it picks vehicles that have just set off.)
#
# Measured on ten days of Austin and one morning of Washington, after cleaning:
#
# ================  ========  =============  ============  =============  ============
# file              pairs     median as m/s  verdict       median as mph  verdict
# ================  ========  =============  ============  =============  ============
# 2015-03-07          37,301          0.451  wrong                 1.009  pass
# 2015-03-08          10,207          0.451  wrong                 1.009  pass
# 2015-03-18             135          0.460  wrong                 1.028  pass
# 2015-03-19              32          0.440  wrong                 0.984  pass
# 2016-11-24             124          0.847  pass                  1.894  wrong
# 2016-11-25             216          0.875  pass                  1.957  wrong
# 2016-11-26             156          0.867  pass                  1.939  wrong
# 2016-11-27              42          0.664  pass                  1.486  wrong
# 2017-03-16          28,387          0.889  pass                  1.988  wrong
# 2017-03-21          35,374          0.858  pass                  1.920  wrong
# Washington          16,350          0.785  pass                  1.756  wrong
# ================  ========  =============  ============  =============  ============
#
# What it cannot see: km/h and mph differ by 1.6 only, so one declared as the other may lie inside the
# limits. m/s is told from both.
#
# The linter reads speeds of many vehicles, edits no row and refuses no file: whether the records of all count
# would otherwise hang on the speeds of each, unpaid. What it says is for the curator's eyes and outside the
# privacy guarantee.


LOWEST_RATIO = 0.55
HIGHEST_RATIO = 1.3
ENOUGH_PAIRS = 30
MOST_PAIRS = 1 << 17
"""Usable pairs after which a file is judged by the vehicles that were looked at."""
LARGEST_RATIO = 1e6
"""Larger ratios count as this, so that reports hold finite numbers."""


class LintVerdict(StrEnum):
    """PASS: the unit fits. UNSURE: too few pairs to judge. WRONG: the unit does not fit."""

    PASS = "pass"
    UNSURE = "unsure"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """What the linter found for rows declared in ``unit``; ``median_ratio`` is None without pairs."""

    unit: SpeedUnit
    pairs: int
    median_ratio: float | None
    verdict: LintVerdict

    @property
    def fitting_unit(self) -> SpeedUnit | None:
        """The unit whose ratio would lie in the limits and nearest to 1, or None if there is none."""
        if not self.median_ratio:
            return None
        ratios = {unit: self.median_ratio * float(self.unit.factor_to(unit)) for unit in SpeedUnit}
        fitting = {unit: r for unit, r in ratios.items() if LOWEST_RATIO <= r <= HIGHEST_RATIO}
        return min(fitting, key=lambda unit: abs(np.log(fitting[unit])), default=None)


@dataclass(repr=False)
class UnitCheck:
    """Gathers ratios of vehicles, part of a file after part, and judges the units that were declared.

    Once a unit has MOST_PAIRS usable pairs, no further vehicles are looked at: their numbers follow from
    counts, and a median needs no more.
    """

    _ratios: dict[SpeedUnit, list[FloatArray]] = field(default_factory=dict)

    def add(
        self,
        unit: SpeedUnit,
        vehicle: npt.NDArray[np.int64],
        time_us: npt.NDArray[np.int64],
        latitude: FloatArray,
        longitude: FloatArray,
        speed: FloatArray,
    ) -> None:
        """Take fixes of vehicles that were not met before, speeds in ``unit``; arrays of shape (n,)."""
        held = self._ratios.setdefault(unit, [])
        if sum(map(len, held)) >= MOST_PAIRS:
            return
        derived, before = derived_speed_ms(Timeline.of(vehicle, time_us), latitude, longitude)
        here = np.flatnonzero(before >= 0)
        reported = (speed[here] / 2 + speed[before[here]] / 2) * float(unit.metres_per_second)
        usable = reported > 0
        with np.errstate(over="ignore"):
            held.append(np.minimum(derived[here][usable] / reported[usable], LARGEST_RATIO))

    def findings(self) -> tuple[LintFinding, ...]:
        """Judge every unit that was met, in the order of SpeedUnit.

        WRONG when the median ratio of at least ENOUGH_PAIRS usable pairs lies outside LOWEST_RATIO to
        HIGHEST_RATIO, UNSURE when there are fewer pairs.
        """
        found = []
        for unit in (unit for unit in SpeedUnit if unit in self._ratios):
            ratios = np.concatenate(self._ratios[unit])
            median = float(np.median(ratios)) if len(ratios) else None
            if median is None or len(ratios) < ENOUGH_PAIRS:
                verdict = LintVerdict.UNSURE
            elif LOWEST_RATIO <= median <= HIGHEST_RATIO:
                verdict = LintVerdict.PASS
            else:
                verdict = LintVerdict.WRONG
            found.append(LintFinding(unit, len(ratios), median, verdict))
        return tuple(found)
