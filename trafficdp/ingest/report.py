"""What became of the rows of a file.

For the curator's eyes only. Reports, and refusals such as the unit linter's, depend on the records of
many vehicles and are not noised: they lie **outside the privacy guarantee** and must not be published.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction

from trafficdp.errors import DataError
from trafficdp.ingest.linter import LintFinding
from trafficdp.model import from_json

MALFORMED_ROW = "malformed_row"
MISSING_VEHICLE = "missing_vehicle"
UNREADABLE_TIME = "unreadable_time"
MISSING_POSITION = "missing_position"
POSITION_OFF_GLOBE = "position_off_globe"
ZERO_POSITION = "zero_position"
OUTSIDE_AREA = "outside_area"
NO_UNIT_DECLARED = "no_unit_declared"
MISSING_SPEED = "missing_speed"
UNREADABLE_SPEED = "unreadable_speed"
SENTINEL_SPEED = "sentinel_speed"
AMBIGUOUS_LOCAL_TIME = "ambiguous_local_time"
DUPLICATE_IN_FILE = "duplicate_in_file"

_POSITION = ("geometry", "latitude", "longitude")

RULES: Mapping[str, str] = {
    MALFORMED_ROW: "the row has other fields than the header, an open quote, or is no text as declared",
    MISSING_VEHICLE: "the vehicle identifier is empty, a fraction, or says that it is missing",
    UNREADABLE_TIME: "the time is missing, not in the declared format, or never was on a local clock",
    MISSING_POSITION: "latitude or longitude is missing or not a number",
    POSITION_OFF_GLOBE: "latitude is beyond 90 or longitude beyond 180 degrees",
    ZERO_POSITION: "latitude and longitude are both 0: the device had no position",
    OUTSIDE_AREA: "the position lies outside the declared study area",
    NO_UNIT_DECLARED: "the source declares no speed unit for the date",
    MISSING_SPEED: "there is no speed in the row, and none was worked out from positions",
    UNREADABLE_SPEED: "the speed is not a finite number",
    SENTINEL_SPEED: "the speed is a declared sentinel, so it is missing",
    AMBIGUOUS_LOCAL_TIME: "a second record at one time of a local hour that comes twice: send UTC or offsets",
    DUPLICATE_IN_FILE: "the same vehicle at the same instant came earlier in the file",
}
"""Why a row may be rejected, in the order in which the rules are applied: a row counts under the first."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    MISSING_VEHICLE: ("vehicle",),
    UNREADABLE_TIME: ("time",),
    MISSING_POSITION: _POSITION,
    POSITION_OFF_GLOBE: _POSITION,
    ZERO_POSITION: _POSITION,
    OUTSIDE_AREA: _POSITION,
    NO_UNIT_DECLARED: ("time",),
    MISSING_SPEED: ("speed",),
    UNREADABLE_SPEED: ("speed",),
    SENTINEL_SPEED: ("speed",),
    AMBIGUOUS_LOCAL_TIME: ("time",),
    DUPLICATE_IN_FILE: ("vehicle", "time"),
}
"""Which columns a rule looks at, by our names; a malformed row is one of all."""


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
        """The share of rows that are kept or repeat one that is; 1 for a file without rows."""
        said = self.rows_kept + self.rejected.get(DUPLICATE_IN_FILE, 0)
        return Fraction(said, self.rows_in) if self.rows_in else Fraction(1)

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
