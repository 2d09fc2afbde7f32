"""What became of the rows of a file: rules of cleaning, how far rows reach, whether units fit, the report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from enum import StrEnum
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np

from trafficdp.errors import DataError
from trafficdp.model import PAIRS, SpeedUnit, from_json

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
    **dict.fromkeys((MISSING_VEHICLE, MISSING_OPERATOR), ("vehicle",)),
    **dict.fromkeys((SKIPPED_LOCAL_TIME, UNREADABLE_TIME, AMBIGUOUS_LOCAL_TIME), ("time",)),
    **dict.fromkeys((OUTSIDE_PERIOD, NO_UNIT_DECLARED), ("time",)),
    **dict.fromkeys((MISSING_POSITION, POSITION_OFF_GLOBE, ZERO_POSITION, OUTSIDE_AREA), _POSITION),
    **dict.fromkeys((MISSING_SPEED, UNREADABLE_SPEED, SENTINEL_SPEED), ("speed",)),
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
    """The bounding box (degrees) and first and last time (microseconds since 1970 UTC) of a set of rows.

    Each limit is the exact value of one record, hence private.
    """

    west: float
    south: float
    east: float
    north: float
    first_us: int
    last_us: int


def extent_in_words(extent: Extent | None, time_zone: str) -> dict[str, str]:
    """Return "longitude", "latitude" and "days" of an extent as texts such as "72.75 to 72.93".

    Degrees have two decimals, about 1 km; days are those of ``time_zone``; "none" where there is no extent.
    Each limit is one record's value, hence private.
    """
    if extent is None:
        return dict.fromkeys(("longitude", "latitude", "days"), "none")
    instants = (extent.first_us, extent.last_us)
    first, last = (datetime.fromtimestamp(at // 1_000_000, ZoneInfo(time_zone)).date() for at in instants)
    return {
        "longitude": range_in_words(f"{extent.west:.2f}", f"{extent.east:.2f}"),
        "latitude": range_in_words(f"{extent.south:.2f}", f"{extent.north:.2f}"),
        "days": range_in_words(first, last),
    }


def range_in_words(first: object, last: object) -> str:
    """Return "first to last" as text, or just "first" where both are equal."""
    return f"{first}" if first == last else f"{first} to {last}"


@dataclass(frozen=True, slots=True)
class Extents:
    """Extents and counts of one file's rows, shown to the person who ingests the file and never stored.

    ``readable``: the extent of all rows with a place and a time; ``kept``: of the kept rows; ``days``: the
    local days of the kept rows. ``exchanged``: the number of rows outside the study area that would lie
    inside if latitude and longitude were exchanged. ``noted``: the number of rows for each remark of NOTED.
    """

    readable: Extent | None = None
    kept: Extent | None = None
    days: frozenset[date] = frozenset()
    exchanged: int = 0
    noted: Mapping[str, int] = field(default_factory=dict)

    def __or__(self, other: Extents) -> Extents:
        """Return the extents and counts of both sets of rows together."""
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


# What the unit linter found (``clean.UnitCheck``).


LOWEST_RATIO = 0.55
HIGHEST_RATIO = 1.3
"""A unit fits where the median ratio of speeds by distance and as reported lies between the two."""
ENOUGH_PAIRS = 30
"""Fewer pairs of fixes say too little."""


class LintVerdict(StrEnum):
    """PASS: the unit fits. UNSURE: too few pairs to judge. WRONG: the unit does not fit."""

    PASS = "pass"
    UNSURE = "unsure"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class LintFinding:
    """The verdict of the unit check on rows declared in ``unit``.

    ``median_ratio`` is the median of derived over reported speed; None without pairs of fixes.
    """

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


# The report on a file.


@dataclass(frozen=True)
class FileReport:
    """The count of rows of one file; rows_in = rows_kept + the sum of ``rejected``, always.

    ``file`` is the name without its folder, ``derived`` how many kept rows have a speed derived from two
    fixes, ``lint`` what the unit linter found for each unit of all ``files`` that were read together.
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
    files: int = 1

    def __post_init__(self) -> None:
        unknown = set(self.rejected) - set(RULES)
        if unknown:
            raise ValueError(f"unknown rules: {sorted(unknown)}")
        if self.rows_in != self.rows_kept + sum(self.rejected.values()):
            raise ValueError("rows in are not rows kept and rows rejected")

    @classmethod
    def together(cls, reports: Sequence[FileReport]) -> FileReport:
        """Return one report with the summed counts of the ``reports`` on all files of one source.

        Private, never to be published. There is at least one report; a single report is returned unchanged.
        ``lint`` is the first report's.
        """
        if len(reports) == 1:
            return reports[0]
        rejected = Counter[str]()
        for each in reports:
            rejected.update(each.rejected)
        return cls(
            file=f"{len(reports):,} files of source {reports[0].source}",
            source=reports[0].source,
            rows_in=sum(each.rows_in for each in reports),
            rows_kept=sum(each.rows_kept for each in reports),
            rejected=dict(rejected),
            derived=sum(each.derived for each in reports),
            lint=reports[0].lint,
            files=len(reports),
        )

    @property
    def commonest_reason(self) -> str | None:
        """Name of the rule that rejected most rows, not counting repeats; None where none did. Private."""
        rules = [rule for rule in RULES if self.rejected.get(rule) and rule != DUPLICATE_IN_FILE]
        return max(rules, key=self.rejected.__getitem__, default=None)

    def to_json(self) -> str:
        """Return the report as JSON with sorted keys (the same report always gives the same text).

        As private as the report: counts of records without noise, for the curator, never to be published.
        """
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FileReport:
        """Return the report that ``to_json`` wrote; raise DataError when ``text`` is not one. Private."""
        try:
            return from_json(cls, json.loads(text))
        except (ValueError, DataError) as error:
            raise DataError("not an ingest report", expected="JSON written by to_json") from error


def with_few_rows_kept(reports: Iterable[FileReport]) -> list[FileReport]:
    """Return those of ``reports`` whose file kept less than LITTLE of its rows (repeats count as kept).

    Files of a source that were read together are added up first. Outside the privacy guarantee.
    """
    alone, together = list[FileReport](), dict[str, list[FileReport]]()
    for each in reports:
        (alone if each.files == 1 else together.setdefault(each.source, [])).append(each)
    alone += [FileReport.together(files) for files in together.values()]
    return [
        each
        for each in alone
        if each.rows_kept + each.rejected.get(DUPLICATE_IN_FILE, 0) < LITTLE * each.rows_in
    ]
