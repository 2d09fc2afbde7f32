"""The one cleaning stage: foreign records to fixes, by the same rules for every convention.

Every rule uses the row itself, rows of the same vehicle, or declared constants; never another vehicle.
Apart from missing, unreadable and sentinel speeds no rule looks at a speed: **a record is never dropped
for its value**. Speeds are not clipped here; a large or negative one is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.ingest import report as rules
from trafficdp.ingest.derive import derived_speed_ms
from trafficdp.ingest.linter import UnitCheck
from trafficdp.ingest.records import Records
from trafficdp.ingest.report import Extent, Extents
from trafficdp.ingest.timeline import Timeline
from trafficdp.ingest.times import Times
from trafficdp.ingest.vehicle_key import VehicleKey, normalise
from trafficdp.model import Period, SourceDeclaration, SpeedUnit, StudyArea, zone_of
from trafficdp.sensitive.fixes import FIXES_SCHEMA, Fixes

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

SATURATION = 2**40
"""Speeds beyond this many hundredths are kept at it, so that integer sums cannot overflow."""
SENTINEL_TOLERANCE = 0.005
"""Half a hundredth of the source's unit: sentinels come with rounding errors of unit conversions."""
DAY_US = 86_400 * 1_000_000
_QUARTER_US = 900 * 1_000_000
_UNITS = tuple(SpeedUnit)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, repr=False)
class Cleaned:
    """Fixes that were kept, how many of them have a derived speed, and what every rule rejected.

    ``rows`` (shape (n,)) are the positions of the fixes among the records. ``extents`` are for the curator's
    eyes.
    """

    fixes: Fixes
    rejected: dict[str, int]
    derived: int
    rows: IntArray
    extents: Extents


@dataclass(repr=False)
class _Sieve:
    """Rows that are still in, and the count of those that each rule took out."""

    kept: BoolArray
    rejected: dict[str, int] = field(default_factory=dict)

    def reject(self, rule: str, bad: BoolArray) -> None:
        caught = int(np.count_nonzero(self.kept & bad))
        if caught:
            self.rejected[rule] = self.rejected.get(rule, 0) + caught
        self.kept = self.kept & ~bad


def clean(
    records: Records,
    source: SourceDeclaration,
    area: StudyArea,
    key: VehicleKey,
    check: UnitCheck,
    period: Period | None = None,
) -> Cleaned:
    """Apply the rules (report.RULES, in that order) to ``records`` and return what is left.

    ``speed_centi`` = round-half-even(100 * speed) in the source's unit, saturated at +-SATURATION. The
    order of rows is kept. Reported speeds that are kept are shown to ``check``. Of a file in parts, all
    records of a vehicle must be in one.
    """
    names, vehicle = _vehicles(records)
    sieve = _Sieve(np.ones(len(records), dtype=np.bool_))
    if records.malformed:
        sieve.rejected[rules.MALFORMED_ROW] = records.malformed
    sieve.reject(rules.MISSING_VEHICLE, vehicle < 0)
    sieve.reject(rules.UNREADABLE_TIME, ~records.times.readable)
    readable, exchanged = _reject_positions(sieve, records, area)
    if period is not None:
        first, after = (
            int(instant.timestamp()) * 1_000_000 for instant in (period.start_utc, period.end_utc)
        )
        inside = (records.times.time_us >= first) & (records.times.time_us < after)
        sieve.reject(rules.OUTSIDE_PERIOD, ~inside)
    unit = _units(records.times.time_us, source)
    sieve.reject(rules.NO_UNIT_DECLARED, unit < 0)
    speed, derived = _speeds(sieve, records, source, vehicle, unit)
    _reject_repeats(sieve, vehicle, records.times)

    rows = np.flatnonzero(sieve.kept)
    vehicle, unit, speed, derived = vehicle[rows], unit[rows], speed[rows], derived[rows]
    time_us, latitude, longitude = (
        records.times.time_us[rows],
        records.latitude[rows],
        records.longitude[rows],
    )
    for code, r in _reported(unit, derived):
        check.add(_UNITS[code], vehicle[r], time_us[r], latitude[r], longitude[r], speed[r])
    centi = np.clip(np.rint(np.clip(speed, -SATURATION, SATURATION) * 100), -SATURATION, SATURATION)
    columns = [
        _pseudonyms(names, vehicle, source, key),
        pa.array(time_us),
        pa.array(latitude),
        pa.array(longitude),
        pa.array(centi.astype(np.int64)),
        pa.DictionaryArray.from_arrays(
            pa.array(unit.astype(np.int8)), pa.array([u.value for u in _UNITS], pa.string())
        ),
        pa.array(derived),
    ]
    fixes = Fixes(pa.Table.from_arrays(columns, schema=FIXES_SCHEMA))
    days = _days(time_us, period.time_zone) if period is not None else frozenset[date]()
    extents = Extents(readable, Extent.of(latitude, longitude, time_us), days, exchanged)
    return Cleaned(fixes, sieve.rejected, int(derived.sum()), rows, extents)


def _days(time_us: IntArray, time_zone: str) -> frozenset[date]:
    """Return the local days of instants; clocks differ from UTC by whole quarters of an hour."""
    zone, quarters = zone_of(time_zone), np.unique(time_us // _QUARTER_US) * (_QUARTER_US // 1_000_000)
    return frozenset(datetime.fromtimestamp(second, zone).date() for second in quarters.tolist())


def _pseudonyms(
    names: pa.Array, vehicle: IntArray, source: SourceDeclaration, key: VehicleKey
) -> pa.DictionaryArray:
    """Return the pseudonym of ``names[vehicle]``, shape (n,): a dictionary without what does not occur."""
    occurs = np.bincount(vehicle, minlength=len(names)) > 0
    place = (np.cumsum(occurs) - 1)[vehicle].astype(np.int32)
    pseudonyms = key.pseudonyms(names.filter(pa.array(occurs)), source.namespace)
    return pa.DictionaryArray.from_arrays(pa.array(place), pseudonyms)


def _vehicles(records: Records) -> tuple[pa.Array, IntArray]:
    """Return distinct normalised identifiers and for every row its number, -1 where it is missing."""
    distinct = pc.dictionary_encode(normalise(records.vehicle.dictionary))
    number = pc.fill_null(distinct.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    row = pc.fill_null(records.vehicle.indices, -1).to_numpy(zero_copy_only=False)
    return distinct.dictionary, np.append(number, np.int64(-1))[row]


def _reject_positions(sieve: _Sieve, records: Records, area: StudyArea) -> tuple[Extent | None, int]:
    """Return how far the rows with a place and a time reach, and how many lie in the area when exchanged."""
    latitude, longitude = records.latitude, records.longitude
    sieve.reject(rules.MISSING_POSITION, np.isnan(latitude) | np.isnan(longitude))
    sieve.reject(rules.POSITION_OFF_GLOBE, (np.abs(latitude) > 90) | (np.abs(longitude) > 180))
    sieve.reject(rules.ZERO_POSITION, (latitude == 0) & (longitude == 0))
    rows = np.flatnonzero(sieve.kept)
    readable = Extent.of(latitude[rows], longitude[rows], records.times.time_us[rows])
    outside = ~area.contains(latitude, longitude)
    sieve.reject(rules.OUTSIDE_AREA, outside)
    rows = rows[outside[rows]]
    return readable, int(np.count_nonzero(area.contains(longitude[rows], latitude[rows])))


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
    sieve: _Sieve, records: Records, source: SourceDeclaration, vehicle: IntArray, unit: IntArray
) -> tuple[FloatArray, BoolArray]:
    """Reject rows without a usable speed; return speeds in the source's unit and which are derived."""
    speed = records.speed
    sentinel = np.zeros(len(speed), dtype=np.bool_)
    for value in source.sentinels:
        sentinel |= np.abs(speed - float(value)) <= SENTINEL_TOLERANCE + 1e-9
    missing = np.isnan(speed) & ~records.speed_unreadable
    derived = np.zeros(len(speed), dtype=np.bool_)
    if source.missing_speed == "derive":
        rows = np.flatnonzero(sieve.kept)
        timeline = Timeline.of(vehicle[rows], records.times.time_us[rows])
        candidate, before = derived_speed_ms(timeline, records.latitude[rows], records.longitude[rows])
        unsure = records.times.repeated_hour[rows]  # which of two instants an hour apart nobody knows
        use = (missing | sentinel)[rows] & ~np.isnan(candidate) & ~unsure & ~unsure[before]
        metres_per_second = np.array([float(u.metres_per_second) for u in _UNITS])
        speed = speed.copy()
        speed[rows[use]] = candidate[use] / metres_per_second[unit[rows[use]]]
        derived[rows[use]] = True
    sieve.reject(rules.MISSING_SPEED, missing & ~derived)
    sieve.reject(rules.UNREADABLE_SPEED, records.speed_unreadable)
    sieve.reject(rules.SENTINEL_SPEED, sentinel & ~derived)
    return speed, derived


def _reject_repeats(sieve: _Sieve, vehicle: IntArray, times: Times) -> None:
    rows = np.flatnonzero(sieve.kept)
    repeated = np.zeros(len(times.time_us), dtype=np.bool_)
    repeated[rows] = Timeline.of(vehicle[rows], times.time_us[rows]).repeats()
    sieve.reject(rules.AMBIGUOUS_LOCAL_TIME, repeated & times.repeated_hour)
    sieve.reject(rules.DUPLICATE_IN_FILE, repeated)


def _reported(unit: IntArray, derived: BoolArray) -> Iterator[tuple[int, IntArray]]:
    """Yield every unit that occurs, with the positions of its rows whose speed was reported."""
    for code in range(len(_UNITS)):
        rows = np.flatnonzero((unit == code) & ~derived)
        if len(rows):
            yield code, rows
