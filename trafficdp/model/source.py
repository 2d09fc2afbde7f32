"""What the city declares about a source of records. Nothing here is inferred from the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction

from trafficdp.model.speed_unit import SpeedUnit

FORMATS = ("csv", "parquet", "gtfs_rt", "gtfs_rt_csv", "tides", "mds", "iudx")
"""csv and parquet read gz and GeoParquet too; gtfs_rt is protobuf, gtfs_rt_csv its flattened archive."""


@dataclass(frozen=True, slots=True)
class UnitPeriod:
    """Speeds of records whose UTC date lies in ``first``..``last`` (None: open) are in ``unit``."""

    unit: SpeedUnit
    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written: the usual form, unless it is declared otherwise.

    ``delimiter`` separates fields, ``quote`` surrounds those that hold one. ``decimal`` is the decimal point
    of numbers, ``thousands`` what groups their digits ("" for nothing). ``encoding`` is a name that Python
    knows; a byte-order mark is read whatever it says.
    """

    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"


@dataclass(frozen=True, slots=True)
class SourceDeclaration:
    """One source of records and how to read it.

    ``files`` are glob patterns over file names (``2015-*.csv.gz``); the first source with a matching
    pattern reads a file. ``columns`` maps our names (``vehicle``, ``time``, ``latitude``,
    ``longitude``, ``speed``, or ``geometry`` for a WKB point) to the source's. ``time_format`` is
    "iso8601", "epoch_s", "epoch_ms" or a strptime pattern; ``time_zone`` is needed when the times carry
    no offset. ``sentinels`` are values, in the source's unit, that mean "missing"; ``missing_speed`` is
    "reject" or "derive" (from the vehicle's neighbouring records, flagged). ``namespace`` keeps apart equal
    vehicle identifiers of different operators. A file of which a smaller share of rows than ``min_kept`` (0
    to 1) is kept is refused, where the relation allows that. ``dialect`` is how CSV files are written.
    """

    name: str
    format: str
    files: tuple[str, ...]
    units: tuple[UnitPeriod, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    time_format: str = "iso8601"
    time_zone: str | None = None
    sentinels: tuple[Decimal, ...] = ()
    missing_speed: str = "reject"
    namespace: str = ""
    min_kept: Fraction = Fraction(0)
    dialect: Dialect = Dialect()

    def names_of(self, ours: str, *usual: str) -> tuple[str, ...]:
        """Return the columns that may hold ``ours``: the one that is declared, else the ``usual`` ones."""
        return (self.columns[ours],) if ours in self.columns else usual
