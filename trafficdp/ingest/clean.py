"""The one cleaning stage: records to fixes, what became of the rows of a file, and the check of its unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.ingest import report
from trafficdp.ingest.times import Records, Timeline, derived_speed_ms, second_showing
from trafficdp.ingest.vehicle_key import VehicleKey, normalise_identifiers
from trafficdp.model import Period, SourceDeclaration, SpeedUnit, StudyArea, zone_of
from trafficdp.sensitive import Fixes, fixes_schema

# The rules are the same for every convention. Each uses the row itself, rows of the same vehicle, or declared
# constants; never another vehicle. Apart from missing, unreadable and sentinel speeds none looks at a speed:
# **a record is never dropped for its value**. Speeds are not clipped here; a large or negative one is kept as
# it is.


SATURATION = 2**40
"""Speeds beyond this many hundredths are kept at it, so that integer sums cannot overflow."""
SENTINEL_TOLERANCE = 0.005
"""Half a hundredth of the source's unit: sentinels come with rounding errors of unit conversions."""
DAY_US = 86_400 * 1_000_000
_QUARTER_US = 900 * 1_000_000
_AT_ONCE_US = 10 * 1_000_000
_ONE_PLACE_DEGREES = 0.009
"""About 1 km of latitude."""
_TINY = 0.001
_UNITS = tuple(SpeedUnit)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, repr=False)
class Cleaned:
    """What ``clean`` returns: the kept fixes (times, places and speeds) and the outcome of each file's rows.

    ``rows``, shape (n,), are the positions of the fixes in the records. A row that repeats a row of an
    earlier file counts as kept but gives no fix. All of it is private.
    """

    fixes: Fixes
    rows: IntArray
    files: Sequence[CleanedFile]

    @property
    def rejected(self) -> dict[str, int]:
        """How many rows of all files were rejected, by the name of the rule. Private."""
        return dict(sum((Counter(each.rejected) for each in self.files), Counter[str]()))


@dataclass(repr=False)
class CleanedFile:
    """Counts of the rows of one file: kept, kept with a derived speed, and rejected by each rule. Private."""

    kept: int = 0
    derived: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    extents: report.Extents = field(default_factory=report.Extents)


@dataclass(repr=False)
class _Sieve:
    """Rows that are still in (``kept``, a mask), and how many of every file each rule took out.

    ``file`` (n,) is the number of each row's file, of so many ``files``; it is not read where there is one.
    """

    kept: BoolArray
    file: npt.NDArray[np.int32]
    files: int
    rejected: dict[str, IntArray] = field(default_factory=dict)

    def reject(self, rule: str, bad: BoolArray) -> None:
        caught = self.kept & bad
        if caught.any():
            self.rejected[rule] = self.rejected.get(rule, 0) + self.count(caught)
        self.kept = self.kept & ~bad

    def count(self, rows: BoolArray) -> IntArray:
        """Return how many of ``rows``, a mask of all rows, each file has, shape (files,)."""
        if self.files == 1:
            return np.array([np.count_nonzero(rows)])
        return np.bincount(self.file[rows], minlength=self.files)

    def extents(self, records: Records, rows: IntArray) -> list[report.Extent | None]:
        """Return for each file the extent in place and time of those of its rows that are in ``rows``.

        ``rows`` are positions; None for a file without any.
        """
        found: list[report.Extent | None] = [None] * self.files
        for file, own in self.split(rows):
            if len(own):
                longitude, latitude = records.longitude[own], records.latitude[own]
                time_us = records.times.time_us[own]
                found[file] = report.Extent(
                    west=float(longitude.min()),
                    south=float(latitude.min()),
                    east=float(longitude.max()),
                    north=float(latitude.max()),
                    first_us=int(time_us.min()),
                    last_us=int(time_us.max()),
                )
        return found

    def split(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield (number of a file, positions of its rows) for every file with some of the given ``rows``."""
        if self.files == 1:
            yield 0, rows
            return
        rows = rows[np.argsort(self.file[rows], kind="stable")]
        begins = np.flatnonzero(np.diff(self.file[rows], prepend=-1))
        for own in np.split(rows, begins[1:]) if len(rows) else ():
            yield int(self.file[own[0]]), own


def clean(
    records: Records,
    source: SourceDeclaration,
    area: StudyArea,
    key: VehicleKey,
    check: UnitCheck,
    period: Period | None = None,
    *,
    whole_vehicles: bool = True,
    files: int = 1,
) -> Cleaned:
    """Return the rows of ``records`` that meet all rules (report.RULES, in that order), as ``Cleaned``.

    Speeds become hundredths of the source's unit, rounded half to even and cut at +-SATURATION. The order of
    rows is kept. Reported speeds that are kept are added to ``check``. Rows of several ``files`` are cleaned
    together: a speed may be derived from a position in another one, and all else is as if each were alone.
    All records of a vehicle must be given, unless ``whole_vehicles`` is False: then no time of a repeated
    hour is kept, for a vehicle's other records decide which is meant. Private.
    """
    names, vehicle = _vehicles(records)
    sieve = _Sieve(np.ones(len(records), dtype=np.bool_), records.file, files)
    in_file = vehicle if files == 1 else np.where(vehicle < 0, vehicle, vehicle * files + records.file)
    no_operator = records.no_operator
    sieve.reject(report.MISSING_VEHICLE, (vehicle < 0) & ~no_operator)
    sieve.reject(report.MISSING_OPERATOR, no_operator)
    sieve.reject(report.SKIPPED_LOCAL_TIME, records.times.skipped_hour)
    sieve.reject(report.OUTSIDE_PERIOD, records.times.far)
    sieve.reject(report.UNREADABLE_TIME, ~records.times.readable)
    records, decided = _decide_repeated_hours(sieve, records, source, in_file, whole_vehicles=whole_vehicles)
    readable, exchanged = _reject_positions(sieve, records, area)
    if period is not None:
        first, after = (second * 1_000_000 for second in period.utc_seconds)
        inside = (records.times.time_us >= first) & (records.times.time_us < after)
        sieve.reject(report.OUTSIDE_PERIOD, ~inside)
    unit = _units(records.times.time_us, source)
    sieve.reject(report.NO_UNIT_DECLARED, unit < 0)
    rows = np.flatnonzero(sieve.kept)
    timeline = Timeline.of(vehicle[rows], records.times.time_us[rows])
    noted = {report.REPEATED_HOUR: decided, report.TWO_PLACES: _two_places(records, rows, timeline)}
    speed, derived = _speeds(sieve, records, source, unit, rows, timeline)
    kept = np.flatnonzero(sieve.kept)
    if len(kept) != len(rows):
        rows, timeline = kept, Timeline.of(vehicle[kept], records.times.time_us[kept])
    # all but the first of one vehicle and instant; these are in the order of the files
    order = rows[timeline.order]
    repeated, same_file = np.zeros((2, len(records)), dtype=np.bool_)
    repeated[order[1:]] = np.diff(timeline.along) == 0
    same_file[order[1:]] = np.diff(records.file[order]) == 0
    sieve.reject(report.DUPLICATE_IN_FILE, repeated & same_file)
    reported = sieve.kept & ~derived
    noted |= {
        report.SPEED: reported,
        report.SPEED_ZERO: reported & (speed == 0),
        report.SPEED_TINY: reported & (speed != 0) & (np.abs(speed) < _TINY),
        report.SPEED_65535: reported & (speed == 65535),
        report.SPEED_MINUS_1: reported & (speed == -1),
    }
    outcomes = _outcomes(records, sieve, readable, exchanged, derived, noted, period)

    rows = np.flatnonzero(sieve.kept & ~repeated)
    vehicle, unit, speed, derived = vehicle[rows], unit[rows], speed[rows], derived[rows]
    time_us, latitude, longitude = (
        records.times.time_us[rows],
        records.latitude[rows],
        records.longitude[rows],
    )
    for code in np.unique(unit[~derived]):
        r = np.flatnonzero((unit == code) & ~derived)
        check.add(_UNITS[code], vehicle[r], time_us[r], latitude[r], longitude[r], speed[r])
    centi = np.clip(np.rint(np.clip(speed, -SATURATION, SATURATION) * 100), -SATURATION, SATURATION)
    # the pseudonym of names[vehicle]: a dictionary without what does not occur
    occurs = np.bincount(vehicle, minlength=len(names)) > 0
    place = (np.cumsum(occurs) - 1)[vehicle].astype(np.int32)
    pseudonyms = key.pseudonyms(names.filter(pa.array(occurs)), source.namespace)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(place), pseudonyms),
        pa.array(time_us),
        pa.array(latitude),
        pa.array(longitude),
        pa.array(centi.astype(np.int64)),
        pa.DictionaryArray.from_arrays(
            pa.array(unit.astype(np.int8)), pa.array([u.value for u in _UNITS], pa.string())
        ),
        pa.array(derived),
    ]
    return Cleaned(Fixes(pa.Table.from_arrays(columns, schema=fixes_schema())), rows, outcomes)


def _outcomes(
    records: Records,
    sieve: _Sieve,
    readable: IntArray,
    exchanged: BoolArray,
    derived: BoolArray,
    noted: Mapping[str, BoolArray],
    period: Period | None,
) -> list[CleanedFile]:
    """Return of every file what became of its rows.

    ``readable``: the positions of those with a place and a time; ``exchanged``: those in the area when their
    degrees are exchanged.
    """
    rows = np.flatnonzero(sieve.kept)
    kept, worked_out = sieve.count(sieve.kept), sieve.count(sieve.kept & derived)
    kept_extents, readable_extents = sieve.extents(records, rows), sieve.extents(records, readable)
    swapped, counts = sieve.count(exchanged), {name: sieve.count(true) for name, true in noted.items()}
    days = [frozenset[date]()] * sieve.files
    if period is not None:
        zone = zone_of(period.time_zone)
        for file, own in sieve.split(rows):
            # clocks differ from UTC by whole quarters of an hour
            quarters = np.unique(records.times.time_us[own] // _QUARTER_US) * (_QUARTER_US // 1_000_000)
            days[file] = frozenset(datetime.fromtimestamp(at, zone).date() for at in quarters.tolist())
    return [
        CleanedFile(
            int(kept[file]),
            int(worked_out[file]),
            +Counter({rule: int(rows[file]) for rule, rows in sieve.rejected.items()}),
            report.Extents(
                readable=readable_extents[file],
                kept=kept_extents[file],
                days=days[file],
                exchanged=int(swapped[file]),
                noted=dict(+Counter({name: int(rows[file]) for name, rows in counts.items()})),
            ),
        )
        for file in range(sieve.files)
    ]


def _two_places(records: Records, rows: IntArray, timeline: Timeline) -> BoolArray:
    """Return which records, of those in ``rows``, are over 1 km from where their vehicle was 10 s before."""
    order = rows[timeline.order]
    close = np.flatnonzero(np.diff(timeline.along) <= _AT_ONCE_US)
    before, after = order[close], order[close + 1]
    latitude, longitude = records.latitude, records.longitude
    north = latitude[after] - latitude[before]
    east = (longitude[after] - longitude[before]) * np.cos(np.radians(latitude[before]))
    elsewhere = np.zeros(len(records), dtype=np.bool_)
    elsewhere[after[north**2 + east**2 > _ONE_PLACE_DEGREES**2]] = True
    return elsewhere


def _vehicles(records: Records) -> tuple[pa.Array, IntArray]:
    """Return distinct normalised identifiers and for every row its number, -1 where it is missing."""
    distinct = pc.dictionary_encode(normalise_identifiers(records.vehicle.dictionary))
    number = pc.fill_null(distinct.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    row = pc.fill_null(records.vehicle.indices, -1).to_numpy(zero_copy_only=False)
    return distinct.dictionary, np.append(number, np.int64(-1))[row]


def _decide_repeated_hours(
    sieve: _Sieve, records: Records, source: SourceDeclaration, vehicle: IntArray, *, whole_vehicles: bool
) -> tuple[Records, BoolArray]:
    """Return the records with the instants that times of a repeated hour mean, and which are told apart.

    The order of a vehicle's own rows decides where the hour's rows follow one another and their clock goes
    back exactly once, by at least half of what is repeated: what comes after is the second showing. The rows
    of all others are rejected.
    """
    times = records.times
    kept = np.flatnonzero(sieve.kept)
    rows = kept[times.repeated_hour[kept]]
    if not len(rows) or not whole_vehicles or source.time_zone is None:
        sieve.reject(report.AMBIGUOUS_LOCAL_TIME, times.repeated_hour)
        return records, np.zeros(len(records), dtype=np.bool_)
    kept = kept[np.argsort(vehicle[kept], kind="stable")]
    place = np.flatnonzero(times.repeated_hour[kept])
    rows = kept[place]
    first, second = times.time_us[rows], second_showing(times.time_us[rows], source.time_zone)
    step = np.diff(first)
    begins = np.append(True, (np.diff(vehicle[rows]) != 0) | (np.abs(step) > DAY_US))
    group = np.cumsum(begins) - 1
    back = np.append(False, step < 0) & ~begins
    far_back = back & (np.append(0, -step) * 2 >= second - first)
    torn = np.append(False, np.diff(place) != 1) & ~begins
    count = np.bincount(group, back) + 2 * np.bincount(group, back & ~far_back) + 2 * np.bincount(group, torn)
    sure = (count == 1)[group]
    passed = np.cumsum(back)
    again = passed - passed[begins][group] > 0
    time_us = times.time_us.copy()
    time_us[rows] = np.where(sure & again, second, first)
    unsure = np.zeros(len(records), dtype=np.bool_)
    unsure[rows[~sure]] = True
    sieve.reject(report.AMBIGUOUS_LOCAL_TIME, unsure)
    decided = np.zeros(len(records), dtype=np.bool_)
    decided[rows[sure]] = True
    return replace(records, times=times._replace(time_us=time_us)), decided


def _reject_positions(sieve: _Sieve, records: Records, area: StudyArea) -> tuple[IntArray, BoolArray]:
    """Return the positions of rows with a place and a time, and which lie in the area when exchanged."""
    latitude, longitude = records.latitude, records.longitude
    sieve.reject(report.MISSING_POSITION, np.isnan(latitude) | np.isnan(longitude))
    sieve.reject(report.POSITION_OFF_GLOBE, (np.abs(latitude) > 90) | (np.abs(longitude) > 180))
    sieve.reject(report.ZERO_POSITION, (latitude == 0) & (longitude == 0))
    readable = np.flatnonzero(sieve.kept)
    outside = ~area.contains(latitude, longitude)
    sieve.reject(report.OUTSIDE_AREA, outside)
    rows = readable[outside[readable]]
    exchanged = np.zeros(len(records), dtype=np.bool_)
    exchanged[rows] = area.contains(longitude[rows], latitude[rows])
    return readable, exchanged


def _units(time_us: IntArray, source: SourceDeclaration) -> IntArray:
    """Return for every row the place of its unit in _UNITS by UTC date; the first period that holds it."""
    day = time_us // DAY_US + _EPOCH_ORDINAL
    unit = np.full(len(day), -1, dtype=np.int64)
    for period in source.units:
        inside = unit < 0
        if period.first is not None:
            inside &= day >= period.first.toordinal()
        if period.last is not None:
            inside &= day <= period.last.toordinal()
        unit[inside] = _UNITS.index(period.unit)
    return unit


def _speeds(
    sieve: _Sieve,
    records: Records,
    source: SourceDeclaration,
    unit: IntArray,
    rows: IntArray,
    timeline: Timeline,
) -> tuple[FloatArray, BoolArray]:
    """Reject rows without a usable speed; return speeds in the source's unit and which are derived.

    ``rows``: those that are still in, of which ``timeline`` is.
    """
    speed = records.speed
    sentinel = np.zeros(len(speed), dtype=np.bool_)
    for value in source.sentinels:
        sentinel |= np.abs(speed - float(value)) <= SENTINEL_TOLERANCE + 1e-9
    missing = np.isnan(speed) & ~records.speed_unreadable
    derived = np.zeros(len(speed), dtype=np.bool_)
    if source.missing_speed == "derive":
        candidate, _ = derived_speed_ms(timeline, records.latitude[rows], records.longitude[rows])
        use = (missing | sentinel)[rows] & ~np.isnan(candidate)
        metres_per_second = np.array([float(u.metres_per_second) for u in _UNITS])
        speed = speed.copy()
        speed[rows[use]] = candidate[use] / metres_per_second[unit[rows[use]]]
        derived[rows[use]] = True
    sieve.reject(report.MISSING_SPEED, missing & ~derived)
    sieve.reject(report.UNREADABLE_SPEED, records.speed_unreadable)
    sieve.reject(report.SENTINEL_SPEED, sentinel & ~derived)
    return speed, derived


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


MOST_PAIRS = 1 << 17
"""Usable pairs after which a file is judged by the vehicles that were looked at."""
LARGEST_RATIO = 1e6
"""Larger ratios count as this, so that reports hold finite numbers."""


@dataclass(repr=False)
class UnitCheck:
    """Checks declared speed units: compares reported speeds with speeds derived from positions and times.

    For every declared unit the ratios derived/reported of pairs of fixes are collected. Once a unit has
    MOST_PAIRS ratios, further vehicles are left out.
    """

    _ratios: dict[SpeedUnit, list[FloatArray]] = field(default_factory=dict)

    def add(
        self,
        unit: SpeedUnit,
        vehicle: IntArray,
        time_us: IntArray,
        latitude: FloatArray,
        longitude: FloatArray,
        speed: FloatArray,
    ) -> None:
        """Collect the ratios of fixes of further vehicles, whose reported speeds are in ``unit``.

        Arrays have shape (n,): vehicle numbers, microseconds since 1970 UTC, degrees, and speeds. All fixes
        of a vehicle must come in one call.
        """
        held = self._ratios.setdefault(unit, [])
        if sum(map(len, held)) >= MOST_PAIRS:
            return
        derived, before = derived_speed_ms(Timeline.of(vehicle, time_us), latitude, longitude)
        here = np.flatnonzero(before >= 0)
        reported = (speed[here] / 2 + speed[before[here]] / 2) * float(unit.metres_per_second)
        usable = reported > 0
        with np.errstate(over="ignore"):
            held.append(np.minimum(derived[here][usable] / reported[usable], LARGEST_RATIO))

    def findings(self) -> tuple[report.LintFinding, ...]:
        """Return one verdict for each unit that had fixes, in the order of SpeedUnit.

        UNSURE with fewer than ENOUGH_PAIRS ratios; else PASS when their median lies in
        LOWEST_RATIO..HIGHEST_RATIO, and WRONG when it does not.
        """
        found = []
        for unit in (unit for unit in SpeedUnit if unit in self._ratios):
            ratios = np.concatenate(self._ratios[unit])
            median = float(np.median(ratios)) if len(ratios) else None
            if median is None or len(ratios) < report.ENOUGH_PAIRS:
                verdict = report.LintVerdict.UNSURE
            elif report.LOWEST_RATIO <= median <= report.HIGHEST_RATIO:
                verdict = report.LintVerdict.PASS
            else:
                verdict = report.LintVerdict.WRONG
            found.append(report.LintFinding(unit, len(ratios), median, verdict))
        return tuple(found)
