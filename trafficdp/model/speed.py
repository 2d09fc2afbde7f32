"""Speeds: units, declarations of sources, the bound they are clipped to, statistics, what is known before.

Units have exact factors. Nothing that a source declares is inferred from the records. One vehicle's values
are clipped to [0, U] on a lattice.
"""

from __future__ import annotations

import codecs
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import cache, partial
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from trafficdp.arrays import CellArray, FloatArray, IntArray
from trafficdp.errors import ConfigError, StoreDamagedError
from trafficdp.model.counts import NeighbouringRelation
from trafficdp.model.json_codec import Coded, Text

if TYPE_CHECKING:
    import pyarrow as pa


class SpeedUnit(StrEnum):
    """A unit of speed. The value is the name used in configuration files and column names."""

    label: str
    """How people write the unit."""
    metres_per_second: Fraction
    """Exactly how many metres a second one such unit is (a mile is 1609.344 m)."""

    METRES_PER_SECOND = "ms"
    KILOMETRES_PER_HOUR = "kmh"
    MILES_PER_HOUR = "mph"

    def __init__(self, value: str) -> None:
        self.label, self.metres_per_second = {
            "ms": ("m/s", Fraction(1)),
            "kmh": ("km/h", Fraction(5, 18)),
            "mph": ("mph", Fraction(44704, 100000)),
        }[value]

    def factor_to(self, other: SpeedUnit) -> Fraction:
        """Return the exact factor that turns a speed in this unit into one in ``other``."""
        return self.metres_per_second / other.metres_per_second


_SPELLINGS = {
    "ms": SpeedUnit.METRES_PER_SECOND,
    "m/s": SpeedUnit.METRES_PER_SECOND,
    "mps": SpeedUnit.METRES_PER_SECOND,
    "kmh": SpeedUnit.KILOMETRES_PER_HOUR,
    "km/h": SpeedUnit.KILOMETRES_PER_HOUR,
    "kph": SpeedUnit.KILOMETRES_PER_HOUR,
    "mph": SpeedUnit.MILES_PER_HOUR,
    "mi/h": SpeedUnit.MILES_PER_HOUR,
}


def parse_speed_unit(text: object, *, where: str) -> SpeedUnit:
    """Return the unit that ``text`` names ("m/s", "km/h", "mph" and usual spellings).

    Raises ConfigError, naming ``where`` it stood, for anything else.
    """
    unit = _SPELLINGS.get(text.strip().lower()) if isinstance(text, str) else None
    if unit is None:
        raise ConfigError(f"unknown speed unit in {where}", got=repr(text), expected='"m/s", "km/h" or "mph"')
    return unit


FORMATS = (
    "csv",
    "parquet",
    "gpkg",
    "json",
    "xml",
    "gtfs_rt",
    "gtfs_rt_csv",
    "tides",
    "mds",
    "iudx",
    "siri",
    "nextbus",
)
"""csv and parquet read gz and GeoParquet too; gtfs_rt is protobuf, gtfs_rt_csv its flattened archive; siri is
XML or JSON."""


_SECONDS_SINCE = "seconds since "


@cache
def start_of_seconds(time_format: str) -> datetime.datetime | None:
    """Return the instant in a time format "seconds since INSTANT", None for any other format."""
    if not time_format.startswith(_SECONDS_SINCE):
        return None
    try:
        start = datetime.datetime.fromisoformat(time_format.removeprefix(_SECONDS_SINCE))
    except ValueError:
        return None
    return None if start.tzinfo is None else start


@dataclass(frozen=True, slots=True)
class UnitPeriod:
    """Speeds of records whose UTC date lies in ``first``..``last`` (None: open) are in ``unit``."""

    unit: SpeedUnit
    first: datetime.date | None = None
    last: datetime.date | None = None


UTF16 = ("utf-16", "utf-16-le", "utf-16-be")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written: the usual form, unless it is declared otherwise.

    Without a ``header`` columns are named by their place, from "1". ``delimiter`` separates fields (of spaces
    any number is one), ``quote`` surrounds those that hold one. ``decimal`` is the decimal point
    of numbers, ``thousands`` what groups their digits ("" for nothing). ``encoding`` is one of which
    ``is_line_encoding`` is true; a byte-order mark is read whatever it says.
    """

    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    header: bool = True


def is_line_encoding(name: str) -> bool:
    """Return whether every line of a text in the encoding ``name`` can be read without the others.

    That is UTF-8, UTF-16, and whatever writes ASCII as ASCII, without shifting between states.
    """
    every = bytes(range(128)) + rb"\u000a\x0a" + b"\x1b$B!!"
    text = every.decode("ascii")
    try:
        utf16 = codecs.lookup(name).name in UTF16
        return utf16 or (text.encode(name).endswith(every) and every.decode(name) == text)
    except (LookupError, ValueError):
        return False


PAIRS = {
    "longitude_latitude": ("longitude", "latitude"),
    "latitude_longitude": ("latitude", "longitude"),
}
"""Columns that hold both numbers of a position as one text, by the order of the two."""

FILE_NAME = "file name"
"""As the column ``vehicle``: every file of a zip archive is of one vehicle, and called as it is."""
OPERATOR_FIELDS = (
    "id",
    "vehicle.trip.route_id",
    "vehicle.trip.trip_id",
    "vehicle.vehicle.id",
    "vehicle.vehicle.label",
)
"""Fields of a GTFS-Realtime entity that may name the operator."""


@dataclass(frozen=True, slots=True)
class SourceDeclaration:
    """One source of records and how to read it.

    ``files`` are glob patterns over file names (``2015-*.csv.gz``); the first source with a matching pattern
    reads a file. ``columns`` maps our names (``vehicle``, ``time``, ``latitude``, ``longitude``, ``speed``,
    ``operator``, ``geometry`` for points, or one of PAIRS) to the source's; ``vehicle`` may be FILE_NAME.
    With an ``operator`` a vehicle is its number within it: the text of that column, up to
    ``operator_separator``. Of JSON, columns are paths
    into a record such as ``location.0.lat``, and ``records`` is the path to the list of them in the document;
    of XML paths such as ``../@time`` from an element that is called as ``records`` says.
    ``time_format`` is "iso8601", "epoch_s", "epoch_ms", "epoch_us", "seconds since INSTANT" or a strptime
    pattern; ``time_zone`` is needed when the times carry no offset. ``sentinels`` are values, in the source's
    unit, that mean "missing"; ``missing_speed`` is "reject" or "derive" (from the vehicle's neighbouring
    records, flagged).
    ``namespace`` keeps apart equal vehicle identifiers of different operators. A file of which a smaller
    share of rows than ``min_kept`` (0 to 1) is kept is refused, where the relation allows that. ``dialect``
    is how CSV files are written.
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
    operator_separator: str = ""
    records: str = ""

    def names_of(self, ours: str, *usual: str) -> tuple[str, ...]:
        """Return the names that our column ``ours`` may have in the source's files.

        The declared one, else all of ``usual``.
        """
        return (self.columns[ours],) if ours in self.columns else usual


@dataclass(frozen=True)
class ContributionBound:
    """Speeds are clipped to [0, ``upper``] and then rounded to multiples of ``step``.

    Both are exact numbers in ``unit``; ``step`` must divide ``upper``, else rounding could carry a
    clipped value past U and the sensitivity would be understated. Clipping is never dropping: a speed
    above U counts as U.

    Raises ConfigError unless 0 < step <= upper and step divides upper.
    """

    upper: Fraction
    step: Fraction
    unit: SpeedUnit
    upper_steps: int = field(init=False, repr=False)
    """U/q, the upper limit of speeds in steps: the largest whole number that a clipped speed can be."""

    def __post_init__(self) -> None:
        if not 0 < self.step <= self.upper:
            raise ConfigError(
                "speed bound and step are out of range",
                got=f"speed_bound={float(self.upper)}, speed_step={float(self.step)}",
                expected="0 < speed_step <= speed_bound",
            )
        if (self.upper / self.step).denominator != 1:
            raise ConfigError(
                "speed bound is not a multiple of the speed step",
                got=f"speed_bound={float(self.upper)}, speed_step={float(self.step)}",
                expected="speed_bound = whole number x speed_step",
                todo="choose another speed_step",
            )
        object.__setattr__(self, "upper_steps", int(self.upper / self.step))
        if self.upper_steps > 1_000_000:
            raise ConfigError(
                "speed step is too fine",
                got=f"{self.upper_steps} steps up to the bound",
                expected="at most 1,000,000",
                todo="choose a larger speed_step",
            )


class Statistic(StrEnum):
    """What is estimated of the clipped speeds of a bin.

    MEAN: mean over records (a vehicle that reports more often weighs more).
    VARIANCE: population variance over records, 1/N * sum (x - mean)^2.
    VEHICLE_MEAN: mean over vehicles of each vehicle's own mean (each vehicle weighs the same).
    VEHICLE_MEDIAN, VEHICLE_P85 and so on: quantiles over vehicles of each vehicle's own mean, which only
    answers to questions have, never maps (``QUANTILES``, ``OF_MAPS``).
    """

    power: int
    """Power of the speed unit the statistic is measured in: 1, or 2 for the variance."""
    stem: str
    """First part of the published column names."""
    words: str
    """How it is called in a sentence: "vehicle mean", "85th percentile over vehicles"."""
    description: str
    """What the published number is, in words."""

    MEAN = "mean"
    VARIANCE = "variance"
    VEHICLE_MEAN = "vehicle_mean"
    VEHICLE_MEDIAN = "vehicle_median"
    VEHICLE_P05 = "vehicle_p05"
    VEHICLE_P10 = "vehicle_p10"
    VEHICLE_P15 = "vehicle_p15"
    VEHICLE_P25 = "vehicle_p25"
    VEHICLE_P75 = "vehicle_p75"
    VEHICLE_P85 = "vehicle_p85"
    VEHICLE_P90 = "vehicle_p90"
    VEHICLE_P95 = "vehicle_p95"

    def __init__(self, value: str) -> None:
        self.power = 2 if value == "variance" else 1
        self.stem = f"speed_{value}"
        each_alike = "of each vehicle's own mean speed (each vehicle weighs the same)"
        self.words = value.replace("_", " ")
        if value == "mean":
            self.description = "mean speed over GPS records (vehicles that report more often weigh more)"
        elif value == "variance":
            self.description = "population variance of speed over GPS records"
        elif value == "vehicle_mean":
            self.description = f"mean over vehicles {each_alike}"
        else:
            quantile = "median" if value == "vehicle_median" else f"{int(value[-2:])}th percentile"
            self.words = f"{quantile} over vehicles"
            self.description = f"{self.words} {each_alike}"

    def unit(self, unit: SpeedUnit) -> str:
        """Return the statistic's unit as text, for speeds in ``unit``: "km/h", or "(km/h)²" of a variance."""
        return f"({unit.label})²" if self.power == 2 else unit.label

    def factor(self, unit: SpeedUnit, other: SpeedUnit) -> float:
        """Return the factor from values in ``unit`` to values in ``other``; squared for a variance."""
        return float(unit.factor_to(other) ** self.power)

    def largest(self, upper: Fraction | float) -> float:
        """Largest value the statistic can take for speeds in [0, upper]: U, or U^2/4 (Popoviciu)."""
        return float(upper * upper / 4) if self is Statistic.VARIANCE else float(upper)

    def column(self, unit: SpeedUnit) -> str:
        """Return the published column name with its unit: ``speed_mean_kmh``, ``speed_variance_kmh2``."""
        return f"{self.stem}_{unit.value}{'2' if self.power == 2 else ''}"


@dataclass(frozen=True, slots=True)
class MapRequest:
    """What is asked of every number of a map: how speeds are clipped, how wide intervals are, what is shown.

    Hexagons with fewer than ``min_vehicles`` get no number. ``publish_counts``: vehicles and records are
    shown beside it.
    """

    bound: ContributionBound
    min_vehicles: int
    interval_level: float
    display_unit: SpeedUnit
    publish_counts: bool = False

    def factor(self, statistic: Statistic) -> float:
        """Return the factor that converts ``statistic`` from the speed bound's unit to ``display_unit``."""
        return statistic.factor(self.bound.unit, self.display_unit)


QUANTILES = {Statistic.VEHICLE_MEDIAN: Fraction(1, 2)} | {
    each: Fraction(int(each[-2:]), 100) for each in Statistic if each.startswith("vehicle_p")
}
"""Which share of the vehicles is slower, of every quantile."""
OF_MAPS = tuple(each for each in Statistic if each not in QUANTILES)
"""What a map may show."""


# Speeds as they were reported to whole steps of a bound: the one clip of batch and stream.
#
# A speed of x hundredths of its source's unit is, in steps of the bound, x * n / d exactly, with
# n / d = (source unit in the bound's unit) / 100 / step. It becomes the integer
#
#     (2 * c + d) // (2 * d),   c = min(max(x, 0) * n, top),   top = d * steps:
#
# first clipped to [0, U], then rounded to the nearest step, halves up, so at most ``steps``. All units
# share the denominator d. 64-bit integers suffice because x is first cut to cap = ceil(top / n): for x >= cap
# both x * n and cap * n are at least top, so c is top either way, and cap * n < top + n.


_UNITS = [unit.value for unit in SpeedUnit]


class Clip:
    """The clip to one bound.

    Raises ConfigError when the step is so fine or so odd a fraction that 64 bits do not hold the arithmetic.
    """

    def __init__(self, bound: ContributionBound) -> None:
        ratios = [unit.factor_to(bound.unit) / 100 / bound.step for unit in SpeedUnit]
        self._denominator = lcm(*(ratio.denominator for ratio in ratios))
        self._top = self._denominator * bound.upper_steps
        numerators = [int(ratio * self._denominator) for ratio in ratios]
        if max(2 * self._top + self._denominator, self._top + max(numerators)) >= 1 << 63:
            raise ConfigError(
                "speed step cannot be computed with exactly in 64 bits",
                got=f"speed_step={bound.step}",
                expected="a step with few digits, such as 0.1",
            )
        self._numerator = np.array(numerators, dtype=np.int64)
        self._cap = np.array([-(-self._top // numerator) for numerator in numerators], dtype=np.int64)

    def steps_of(self, centi: pa.Array | pa.ChunkedArray, unit: pa.Array | pa.ChunkedArray) -> IntArray:
        """Return clipped speeds in whole steps, 0..``bound.upper_steps``, shape (n,).

        ``centi`` holds speeds in hundredths of a unit and ``unit`` the name of each one's unit, as a store
        keeps them, shape (n,) each. Private. Raises StoreDamagedError for a unit that is none of SpeedUnit.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(unit, pa.ChunkedArray):
            unit = pa.concat_arrays([pc.cast(chunk, pa.string()) for chunk in unit.chunks])
        encoded = unit if pa.types.is_dictionary(unit.type) else unit.dictionary_encode()
        known = pc.index_in(pc.cast(encoded.dictionary, pa.string()), value_set=pa.array(_UNITS))
        code = known.take(encoded.indices)
        if code.null_count:
            raise StoreDamagedError(
                "unknown speed unit of a fix",
                expected=", ".join(SpeedUnit),
                todo="restore the newest backup of the store",
            )
        which = code.to_numpy()
        if len(which) and which.min() == which.max():
            # of one unit, as nearly always: one number for all
            which = which[0]
        steps = np.minimum(np.maximum(centi.to_numpy(), 0), self._cap[which])
        steps *= self._numerator[which]
        np.minimum(steps, self._top, out=steps)
        steps *= 2
        steps += self._denominator
        steps //= 2 * self._denominator
        return np.asarray(steps, dtype=np.int64)


# What public sources say of speeds before a record is read: it moves what maps start from, and no charge.


MOST_SOURCES = 4
"""Of speeds that are known before, for one map."""
NEWEST = "newest"


class KnowledgeKind(StrEnum):
    """What a public source of speeds is."""

    noun: str
    """What people are told that it is."""

    RELEASE = "release"
    TIMETABLE = "timetable"
    SPEEDS = "speeds"

    def __init__(self, value: str) -> None:
        self.noun = {"release": "earlier release", "speeds": "typical speeds of"}.get(value, value)

    def share(self, relation: NeighbouringRelation) -> float:
        """Return how far a map's prior moves towards the speeds of such a source, 0 to 1.

        Of a file it is the most. Chosen on days in Austin, 2015-03-07 to 2017-03-21: of a release 0.5 and 0.7
        are nearly as good.
        """
        if self is KnowledgeKind.RELEASE:
            return 0.6
        return 1.0 if relation.hides_presence else 0.6


@dataclass(frozen=True)
class KnowledgeSource:
    """A public source of speeds as the configuration names it: a ``release``, or a file at ``path``.

    NEWEST is the newest release that was made of other records. ``licence`` and ``date`` are those of a file.
    Of typical speeds, ``column`` holds a speed in ``speed_unit`` (None: each says its own), or one of the
    ``classes`` of road, of which each has a speed (None: those of OpenStreetMap).
    """

    kind: KnowledgeKind
    release: str | None = None
    path: Path | None = None
    licence: str | None = None
    date: datetime.date | None = None
    column: str | None = None
    speed_unit: SpeedUnit | None = None
    classes: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What a manifest says of one source: ``name`` is that of an earlier release of the store, or of a file.

    ``sha256`` is that of the release's table of cells, or of the file; ``share`` is how far a map starts from
    the source's speeds (0..1), of a file at most. ``licence`` and ``date`` are those of the file.
    """

    kind: KnowledgeKind
    name: Text
    licence: Text | None = None
    date: Text | None = None
    sha256: Text
    share: float

    @property
    def in_words(self) -> str:
        """The source as a phrase: its kind and name, and a file's date and licence."""
        of_file = ", ".join(filter(None, (self.date, self.licence)))
        return f"the {self.kind.noun} {self.name}" + (f" ({of_file})" if of_file else "")


@dataclass(frozen=True, eq=False)
class PlaceSpeeds:
    """One source: ``speed`` (N,) of hexagons or zones ``cell``, in any unit; 0 or less, or NaN: not known.

    ``slot`` (N,) None: the same in all slots.
    """

    source: Knowledge
    cell: CellArray
    slot: IntArray | None
    speed: FloatArray

    def speeds_of_bins(self, cell: CellArray, slot: IntArray) -> FloatArray:
        """Return the known speed of each bin (``cell``, ``slot``), shape (G,); NaN where none is known."""
        import pandas as pd

        if self.slot is None:
            own, asked = pd.Index(self.cell), pd.Index(cell)
        else:
            own = pd.MultiIndex.from_arrays([self.cell, self.slot])
            asked = pd.MultiIndex.from_arrays([cell, slot])
        place = own.get_indexer(asked)
        found = np.where(place >= 0, self.speed[place], np.nan)
        return np.where(found > 0, found, np.nan)


def _or_null(numbers: FloatArray) -> list[list[float | None]]:
    return [[None if np.isnan(each) else each for each in own.tolist()] for own in numbers]


@dataclass(frozen=True, eq=False)
class KnownSpeeds:
    """What K ``sources`` say of G bins: ``speed`` (K, G), each in a unit of its own, NaN: not known."""

    sources: tuple[Knowledge, ...]
    speed: Annotated[FloatArray, Coded(_or_null, partial(np.array, dtype=np.float64))]

    @classmethod
    def of(cls, sources: Sequence[PlaceSpeeds], cell: CellArray, slot: IntArray) -> KnownSpeeds | None:
        """Return the speeds that ``sources`` know of the bins (``cell``, ``slot``); None without a source.

        ``cell`` and ``slot`` have shape (G,).
        """
        if not sources:
            return None
        return cls(
            tuple(each.source for each in sources),
            np.array([each.speeds_of_bins(cell, slot) for each in sources]),
        )

    @property
    def scheduled(self) -> FloatArray | None:
        """The speeds of the first timetable, m/s, shape (G,); None without one."""
        of_timetables = (
            own
            for source, own in zip(self.sources, self.speed, strict=True)
            if source.kind is KnowledgeKind.TIMETABLE
        )
        return next(of_timetables, None)
