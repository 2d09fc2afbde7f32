"""The one cleaning stage: records to fixes, and what became of the rows of a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.errors import DataError
from trafficdp.ingest.times import Records, second_showing
from trafficdp.ingest.unit_check import LintFinding, Timeline, UnitCheck, derived_speed_ms
from trafficdp.ingest.vehicle_key import VehicleKey, normalise
from trafficdp.model import PAIRS, Period, SourceDeclaration, SpeedUnit, StudyArea, from_json, zone_of
from trafficdp.sensitive import Fixes, fixes_schema

# What became of the rows of a file.
#
# For the curator's eyes only. Reports, and refusals such as the unit linter's, depend on the records of
# many vehicles and are not noised: they lie **outside the privacy guarantee** and must not be published.


MALFORMED_ROW = "malformed_row"
MISSING_VEHICLE = "missing_vehicle"
MISSING_OPERATOR = "missing_operator"
SKIPPED_LOCAL_TIME = "skipped_local_time"
UNREADABLE_TIME = "unreadable_time"
AMBIGUOUS_LOCAL_TIME = "ambiguous_local_time"
MISSING_POSITION = "missing_position"
POSITION_OFF_GLOBE = "position_off_globe"
ZERO_POSITION = "zero_position"
OUTSIDE_AREA = "outside_area"
OUTSIDE_PERIOD = "outside_period"
NO_UNIT_DECLARED = "no_unit_declared"
MISSING_SPEED = "missing_speed"
UNREADABLE_SPEED = "unreadable_speed"
SENTINEL_SPEED = "sentinel_speed"
DUPLICATE_IN_FILE = "duplicate_in_file"

_POSITION = ("geometry", "latitude", "longitude", *PAIRS)

RULES: Mapping[str, str] = {
    MALFORMED_ROW: "the row has other fields than the header, an open quote, or is no text as declared",
    MISSING_VEHICLE: "the vehicle identifier is empty, a fraction, or says that it is missing",
    MISSING_OPERATOR: "no operator is named, and a vehicle's number is its own within its operator only",
    SKIPPED_LOCAL_TIME: "the local clock never showed the time: it was put forward",
    UNREADABLE_TIME: "the time is missing, or not in the declared format",
    AMBIGUOUS_LOCAL_TIME: "a local hour comes twice, and the vehicle's records do not tell which: send UTC",
    MISSING_POSITION: "latitude or longitude is missing or not a number",
    POSITION_OFF_GLOBE: "latitude is beyond 90 or longitude beyond 180 degrees",
    ZERO_POSITION: "latitude and longitude are both 0: the device had no position",
    OUTSIDE_AREA: "the position lies outside the declared study area",
    OUTSIDE_PERIOD: "the day lies outside the period that [city] declares",
    NO_UNIT_DECLARED: "the source declares no speed unit for the date",
    MISSING_SPEED: "there is no speed in the row, and none was worked out from positions",
    UNREADABLE_SPEED: "the speed is not a finite number",
    SENTINEL_SPEED: "the speed is a declared sentinel, so it is missing",
    DUPLICATE_IN_FILE: "the same vehicle at the same instant came earlier in the file",
}
"""Why a row may be rejected, in the order in which the rules are applied: a row counts under the first."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    MISSING_VEHICLE: ("vehicle",),
    MISSING_OPERATOR: ("vehicle",),
    SKIPPED_LOCAL_TIME: ("time",),
    UNREADABLE_TIME: ("time",),
    AMBIGUOUS_LOCAL_TIME: ("time",),
    MISSING_POSITION: _POSITION,
    POSITION_OFF_GLOBE: _POSITION,
    ZERO_POSITION: _POSITION,
    OUTSIDE_AREA: _POSITION,
    OUTSIDE_PERIOD: ("time",),
    NO_UNIT_DECLARED: ("time",),
    MISSING_SPEED: ("speed",),
    UNREADABLE_SPEED: ("speed",),
    SENTINEL_SPEED: ("speed",),
    DUPLICATE_IN_FILE: ("vehicle", "time"),
}
"""Which columns a rule looks at, by our names; a malformed row is one of all."""


HEADER_TIME = "header_time"
TWO_PLACES = "two_places"
REPEATED_HOUR = "repeated_hour"
SPEED = "speed"
SPEED_ZERO = "speed_zero"
SPEED_TINY = "speed_tiny"
SPEED_65535 = "speed_65535"
SPEED_MINUS_1 = "speed_minus_1"

NOTED: Mapping[str, str] = {
    REPEATED_HOUR: "a local hour comes twice, and the vehicle's records tell which is meant",
    HEADER_TIME: "the record states no time, so that of the file's header counts",
    TWO_PLACES: "the vehicle was over 1 km away at most 10 s before: one identifier may be several vehicles",
    SPEED: "a speed is reported",
    SPEED_ZERO: "the reported speed is 0",
    SPEED_TINY: "the reported speed is not 0, and under a thousandth of the declared unit",
    SPEED_65535: "the reported speed is 65535, with which some devices say that they know none",
    SPEED_MINUS_1: "the reported speed is -1, with which some devices say that they know none",
}
"""What is counted of the rows of a file beside those that are rejected. For the curator's eyes: shown when a
file is read, and never written down."""

LITTLE = Fraction(1, 2)
"""A file of which a smaller share of rows is kept may be declared wrongly."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How far rows reach: degrees, and microseconds since 1970 UTC. An end is that of one record."""

    west: float
    south: float
    east: float
    north: float
    first_us: int
    last_us: int

    @classmethod
    def of(
        cls,
        latitude: npt.NDArray[np.float64],
        longitude: npt.NDArray[np.float64],
        time_us: npt.NDArray[np.int64],
    ) -> Extent | None:
        """Return the extent of rows, None where there is none."""
        if not len(time_us):
            return None
        west, east = float(longitude.min()), float(longitude.max())
        south, north = float(latitude.min()), float(latitude.max())
        return cls(west, south, east, north, int(time_us.min()), int(time_us.max()))

    def from_to(self, time_zone: str) -> dict[str, str]:
        """Return how far it reaches, to about a kilometre: an end is the place of one record."""
        instants = (self.first_us, self.last_us)
        first, last = (datetime.fromtimestamp(at // 1_000_000, ZoneInfo(time_zone)).date() for at in instants)
        return {
            "longitude": span(f"{self.west:.2f}", f"{self.east:.2f}"),
            "latitude": span(f"{self.south:.2f}", f"{self.north:.2f}"),
            "days": span(first, last),
        }


def span(first: object, last: object) -> str:
    """Return from where to where in words."""
    return f"{first}" if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True)
class Extents:
    """How far a file reaches. For the curator's eyes: shown when it is read, and never written down.

    ``readable`` is of all rows with a place and a time, ``kept`` of those that were kept; ``days`` are the
    local days of these. ``exchanged``: rows outside the study area that would lie in it, were their latitude
    their longitude. ``noted``: how many rows each of NOTED is true of.
    """

    readable: Extent | None = None
    kept: Extent | None = None
    days: frozenset[date] = frozenset()
    exchanged: int = 0
    noted: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: Extents) -> Extents:
        """Return how far both reach together."""
        return Extents(
            _both(self.readable, other.readable),
            _both(self.kept, other.kept),
            self.days | other.days,
            self.exchanged + other.exchanged,
            dict(Counter(self.noted) + Counter(other.noted)),
        )


def _both(one: Extent | None, other: Extent | None) -> Extent | None:
    if one is None or other is None:
        return one or other
    return Extent(
        min(one.west, other.west),
        min(one.south, other.south),
        max(one.east, other.east),
        max(one.north, other.north),
        min(one.first_us, other.first_us),
        max(one.last_us, other.last_us),
    )


@dataclass(frozen=True)
class FileReport:
    """The count of rows of one file; rows_in = rows_kept + the sum of ``rejected``, always.

    ``file`` is the name without its folder, ``derived`` how many kept rows have a speed derived from two
    fixes, ``lint`` what the unit linter found for each unit.
    Outside the privacy guarantee (see the module): never publish it.

    Raises ValueError when the counts do not add up or a rule is unknown (our bug, not the data's).
    """

    file: str
    source: str
    rows_in: int
    rows_kept: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    derived: int = 0
    lint: tuple[LintFinding, ...] = ()

    def __post_init__(self) -> None:
        unknown = set(self.rejected) - set(RULES)
        if unknown:
            raise ValueError(f"unknown rules: {sorted(unknown)}")
        if self.rows_in != self.rows_kept + sum(self.rejected.values()):
            raise ValueError("rows in are not rows kept and rows rejected")

    @property
    def share_kept(self) -> Fraction:
        """The share of rows that are kept or repeat one that is, of those in the period; of none, 1."""
        of = self.rows_in - self.rejected.get(OUTSIDE_PERIOD, 0)
        return Fraction(self._rows_understood, of) if of else Fraction(1)

    @property
    def _rows_understood(self) -> int:
        return self.rows_kept + self.rejected.get(DUPLICATE_IN_FILE, 0)

    @property
    def kept_little(self) -> bool:
        """Whether so few rows were kept, of all days, that the file or the period may be declared wrongly."""
        return self._rows_understood < LITTLE * self.rows_in

    @property
    def commonest_reason(self) -> str | None:
        """The rule that rejected most rows, but for repeats; None where none did."""
        rules = [rule for rule in RULES if self.rejected.get(rule) and rule != DUPLICATE_IN_FILE]
        return max(rules, key=self.rejected.__getitem__, default=None)

    def to_json(self) -> str:
        """Return the report as JSON with sorted keys (the same report always gives the same text)."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FileReport:
        """Return the report that ``to_json`` wrote; raise DataError when ``text`` is not one."""
        try:
            return from_json(cls, json.loads(text))
        except (ValueError, DataError) as error:
            raise DataError("not an ingest report", expected="JSON written by to_json") from error


# The one cleaning stage: foreign records to fixes, by the same rules for every convention.
#
# Every rule uses the row itself, rows of the same vehicle, or declared constants; never another vehicle.
# Apart from missing, unreadable and sentinel speeds no rule looks at a speed: **a record is never dropped
# for its value**. Speeds are not clipped here; a large or negative one is kept as it is.


IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

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
    *,
    whole_vehicles: bool = True,
) -> Cleaned:
    """Apply the rules (report.RULES, in that order) to ``records`` and return what is left.

    ``speed_centi`` = round-half-even(100 * speed) in the source's unit, saturated at +-SATURATION. The
    order of rows is kept. Reported speeds that are kept are shown to ``check``. Of a file in parts, all
    records of a vehicle must be in one, unless ``whole_vehicles`` says that they are not: then no time of a
    repeated hour is kept, for a vehicle's other records decide which is meant.
    """
    names, vehicle = _vehicles(records)
    sieve = _Sieve(np.ones(len(records), dtype=np.bool_))
    if records.malformed:
        sieve.rejected[MALFORMED_ROW] = records.malformed
    no_operator = records.names_no_operator
    sieve.reject(MISSING_VEHICLE, (vehicle < 0) & ~no_operator)
    sieve.reject(MISSING_OPERATOR, no_operator)
    sieve.reject(SKIPPED_LOCAL_TIME, records.times.skipped_hour)
    sieve.reject(OUTSIDE_PERIOD, records.times.far)
    sieve.reject(UNREADABLE_TIME, ~records.times.readable)
    records, decided = _decide_repeated_hours(sieve, records, source, vehicle, whole_vehicles=whole_vehicles)
    readable, exchanged = _reject_positions(sieve, records, area)
    if period is not None:
        first, after = (
            int(instant.timestamp()) * 1_000_000 for instant in (period.start_utc, period.end_utc)
        )
        inside = (records.times.time_us >= first) & (records.times.time_us < after)
        sieve.reject(OUTSIDE_PERIOD, ~inside)
    unit = _units(records.times.time_us, source)
    sieve.reject(NO_UNIT_DECLARED, unit < 0)
    rows = np.flatnonzero(sieve.kept)
    timeline = Timeline.of(vehicle[rows], records.times.time_us[rows])
    noted = Counter(
        {
            REPEATED_HOUR: decided,
            HEADER_TIME: records.header_times,
            TWO_PLACES: _two_places(records, rows, timeline),
        }
    )
    speed, derived = _speeds(sieve, records, source, unit, rows, timeline)
    kept = np.flatnonzero(sieve.kept)
    if len(kept) != len(rows):
        rows, timeline = kept, Timeline.of(vehicle[kept], records.times.time_us[kept])
    repeated = np.zeros(len(records), dtype=np.bool_)
    repeated[rows] = timeline.repeats()
    sieve.reject(DUPLICATE_IN_FILE, repeated)

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
    fixes = Fixes(pa.Table.from_arrays(columns, schema=fixes_schema()))
    days = _days(time_us, period.time_zone) if period is not None else frozenset[date]()
    noted.update(_odd_speeds(speed[~derived]))
    reach = Extent.of(latitude, longitude, time_us)
    extents = Extents(readable, reach, days, exchanged, dict(+noted))
    return Cleaned(fixes, sieve.rejected, int(derived.sum()), rows, extents)


def _two_places(records: Records, rows: IntArray, timeline: Timeline) -> int:
    """Return how many ``rows`` are over 1 km from where their vehicle was at most 10 s before."""
    order = rows[timeline.order]
    close = np.flatnonzero(np.diff(timeline.along) <= _AT_ONCE_US)
    before, after = order[close], order[close + 1]
    latitude, longitude = records.latitude, records.longitude
    north = latitude[after] - latitude[before]
    east = (longitude[after] - longitude[before]) * np.cos(np.radians(latitude[before]))
    return int(np.count_nonzero(north**2 + east**2 > _ONE_PLACE_DEGREES**2))


def _odd_speeds(speed: FloatArray) -> dict[str, int]:
    """Return how many of the reported speeds are what devices send that know none, or in a wrong unit."""
    of = {
        SPEED: np.ones(len(speed), dtype=np.bool_),
        SPEED_ZERO: speed == 0,
        SPEED_TINY: (speed != 0) & (np.abs(speed) < _TINY),
        SPEED_65535: speed == 65535,
        SPEED_MINUS_1: speed == -1,
    }
    return {name: int(np.count_nonzero(true)) for name, true in of.items()}


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


def _decide_repeated_hours(
    sieve: _Sieve, records: Records, source: SourceDeclaration, vehicle: IntArray, *, whole_vehicles: bool
) -> tuple[Records, int]:
    """Return the records with the instants that times of a repeated hour mean, and how many are told apart.

    The order of a vehicle's own rows decides where the hour's rows follow one another and their clock goes
    back exactly once, by at least half of what is repeated: what comes after is the second showing. The rows
    of all others are rejected.
    """
    times = records.times
    kept = np.flatnonzero(sieve.kept)
    rows = kept[times.repeated_hour[kept]]
    if not len(rows) or not whole_vehicles or source.time_zone is None:
        sieve.reject(AMBIGUOUS_LOCAL_TIME, times.repeated_hour)
        return records, 0
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
    sieve.reject(AMBIGUOUS_LOCAL_TIME, unsure)
    return replace(records, times=times._replace(time_us=time_us)), int(np.count_nonzero(sure))


def _reject_positions(sieve: _Sieve, records: Records, area: StudyArea) -> tuple[Extent | None, int]:
    """Return how far the rows with a place and a time reach, and how many lie in the area when exchanged."""
    latitude, longitude = records.latitude, records.longitude
    sieve.reject(MISSING_POSITION, np.isnan(latitude) | np.isnan(longitude))
    sieve.reject(POSITION_OFF_GLOBE, (np.abs(latitude) > 90) | (np.abs(longitude) > 180))
    sieve.reject(ZERO_POSITION, (latitude == 0) & (longitude == 0))
    rows = np.flatnonzero(sieve.kept)
    readable = Extent.of(latitude[rows], longitude[rows], records.times.time_us[rows])
    outside = ~area.contains(latitude, longitude)
    sieve.reject(OUTSIDE_AREA, outside)
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
    sieve.reject(MISSING_SPEED, missing & ~derived)
    sieve.reject(UNREADABLE_SPEED, records.speed_unreadable)
    sieve.reject(SENTINEL_SPEED, sentinel & ~derived)
    return speed, derived


def _reported(unit: IntArray, derived: BoolArray) -> Iterator[tuple[int, IntArray]]:
    """Yield every unit that occurs, with the positions of its rows whose speed was reported."""
    for code in range(len(_UNITS)):
        rows = np.flatnonzero((unit == code) & ~derived)
        if len(rows):
            yield code, rows
