"""Records as every reader yields them: text to numbers and times; a vehicle's records in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import ConfigError
from trafficdp.model import start_of_seconds, zone_of

if TYPE_CHECKING:
    import pandas as pd


# Text to numbers, column-wise, keeping apart what is missing from what cannot be read.


MISSING_NUMBERS = ("", "NA", "N/A", "NULL", "NONE")
"""Texts (in any case) that say that there is no number."""

_NUMBER = r"^(?:[0-9]+\.?[0-9]*|\.[0-9]+|-[0-9]+\.?[0-9]*|-\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"


def text_to_numbers(text: pa.Array, *, nan_is_missing: bool = False) -> tuple[FloatArray, BoolArray]:
    """Return the numbers of a column of text, and which of them are unreadable (both of shape (n,)).

    A number is NaN where the text is missing (null or MISSING_NUMBERS, and "NaN" when
    ``nan_is_missing``) and where it is unreadable: no plain decimal number, "NaN", or infinite. What a text
    says depends on no other text.
    """
    trimmed = pc.utf8_trim_whitespace(text)
    given = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)
    data = given.buffers()[2]
    letters = data is not None and bool((np.frombuffer(data, np.uint8) >= ord("A")).any())
    try:
        # of what is written without letters, Arrow reads what _NUMBER matches
        numbers = None if letters else pc.cast(given, pa.float64())
    except pa.ArrowInvalid:
        numbers = None
    if numbers is None:
        plain = pc.if_else(pc.starts_with(given, "+"), pc.utf8_slice_codeunits(given, 1), given)
        upper = pc.utf8_upper(given)
        missing = ("NAN", *MISSING_NUMBERS) if nan_is_missing else MISSING_NUMBERS
        given = pc.if_else(pc.is_in(upper, value_set=pa.array(missing)), pa.scalar(None, pa.string()), given)
        readable = pc.match_substring_regex(plain, _NUMBER)
        numbers = pc.cast(pc.if_else(readable, plain, pa.scalar(None, pa.string())), pa.float64())
    return _finite(given, numbers, nan_is_missing=nan_is_missing)


def numeric_to_numbers(column: pa.Array) -> tuple[FloatArray, BoolArray]:
    """Return (numbers, unreadable) of a numeric column, both of shape (n,), as ``text_to_numbers`` does.

    Null counts as missing (NaN); NaN and infinite values as unreadable.
    """
    numbers = pc.cast(column, pa.float64(), safe=False)
    return _finite(column, numbers, nan_is_missing=False)


def _finite(given: pa.Array, numbers: pa.Array, *, nan_is_missing: bool) -> tuple[FloatArray, BoolArray]:
    values = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False).copy()
    present = pc.is_valid(given).to_numpy(zero_copy_only=False)
    unreadable = present & ~np.isfinite(values)
    if nan_is_missing:
        stated_nan = pc.fill_null(pc.is_nan(numbers), False).to_numpy(zero_copy_only=False)
        unreadable &= ~stated_nan
    values[~np.isfinite(values)] = np.nan
    return values, unreadable.astype(np.bool_)


# Times in declared formats to microseconds since 1970 UTC, column-wise.


class Times(NamedTuple):
    """A column of times, arrays of shape (n,).

    ``time_us``: microseconds since 1970 UTC, 0 where not ``readable``. ``repeated_hour``: the time is one
    that a change of the local clock shows twice, and ``time_us`` is the first; a vehicle's other records may
    tell. Not readable, and known why: ``skipped_hour``, a change left the time out; ``far``, a year before
    1678 or after 2261.
    """

    time_us: IntArray
    readable: BoolArray
    repeated_hour: BoolArray
    skipped_hour: BoolArray
    far: BoolArray


EARLIEST_EPOCH_US = 315_964_800 * 1_000_000
"""1980-01-06, when GPS time starts. An earlier number of an epoch format is a clock that was never set,
or seconds that were declared as milliseconds."""
LATEST_US = 9_214_646_400 * 1_000_000
"""End of the year 2261. A later one is milliseconds that were declared as seconds."""
EARLIEST_US = -9_214_560_000 * 1_000_000
"""Beginning of the year 1678. Nanoseconds reach a little further to both sides: pandas counts all times of a
column in them as soon as one is written so, and no time may be read differently because of another."""
_NO_TEXTS = ["now", "today"]
"""What pandas reads as the present, whatever the pattern."""
_DAY_US = 86_400 * 1_000_000
_EPOCH_UNITS = {"epoch_s": 1_000_000.0, "epoch_ms": 1_000.0, "epoch_us": 1.0}
_DATE = r"[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4})"
_CLOCK = r"[0-9]{2}:?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]{1,9})?)?"
_FAR_YEAR = "^(?:0|1[0-5]|16[0-6]|167[0-7]|226[2-9]|22[7-9]|2[3-9]|[3-9])"
_NAIVE = rf"^{_DATE}[T ]{_CLOCK}$"
_WITH_OFFSET = rf"^{_DATE}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$"


def text_to_times(text: pa.Array, time_format: str, time_zone: str | None) -> Times:
    """Return the times of a column of text, plain or in a dictionary.

    ``time_format``: "iso8601" (date and time of day; offsets may differ from row to row), "epoch_s",
    "epoch_ms", "epoch_us" (fractions allowed, not before 1980), "seconds since INSTANT" (an instant with its
    offset), or a strptime pattern. Times without an
    offset are on the clock of ``time_zone`` (an IANA name) and unreadable if that is None; of an hour that a
    clock change repeats this is the first, and one that it skips is unreadable. So is an instant outside the
    years 1678 to 2261, and a local time on their first or last day. What a text says depends on no
    other text.

    Every distinct text is read once. Raises ConfigError for a pattern that strptime does not know or an
    unknown time zone.
    """
    encoded = text if pa.types.is_dictionary(text.type) else text.dictionary_encode()
    distinct = pc.cast(encoded.dictionary, pa.string())
    if start_of_seconds(time_format) is not None or time_format in _EPOCH_UNITS:
        times = _epoch(text_to_numbers(distinct)[0], time_format)
    elif time_format != "iso8601":
        times = _pattern(pc.utf8_trim_whitespace(distinct), time_format, time_zone)
    else:
        times, upper = _none_readable(len(distinct)), pc.ascii_upper(pc.utf8_trim_whitespace(distinct))
        with_zone = with_offset = _mask(pc.match_substring_regex(upper, _WITH_OFFSET))
        _fill(times, with_offset, _parse(upper.filter(pa.array(with_offset)), "ISO8601"))
        if time_zone is not None and not with_offset.all():
            naive = _mask(pc.match_substring_regex(upper, _NAIVE))
            clock = _parse(upper.filter(pa.array(naive)), "ISO8601").tz_localize(None)
            _localise(times, naive, clock, time_zone)
            with_zone = with_offset | naive
        if not times.readable.all():
            times.far[:] = with_zone & ~times.readable & _mask(pc.match_substring_regex(upper, _FAR_YEAR))
    place = pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1).to_numpy(zero_copy_only=False)
    # what is missing is not readable: it has the last place
    return Times(*(np.append(column, column.dtype.type(0))[place] for column in times))


def numeric_to_times(column: pa.Array, time_format: str) -> Times:
    """Return the times of a column of numbers in an epoch format, as ``text_to_times`` does for text.

    All are unreadable where ``time_format`` is no epoch format.
    """
    if time_format not in _EPOCH_UNITS and start_of_seconds(time_format) is None:
        return _none_readable(len(column))
    return _epoch(numeric_to_numbers(column)[0], time_format)


def timestamps_to_times(column: pa.Array, time_zone: str | None) -> Times:
    """Return the times of a column of Arrow timestamps, shape (n,).

    Timestamps without a zone are on the clock of ``time_zone``, and unreadable if that is None.
    """
    import pandas as pd

    micro = pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False)
    present = _mask(pc.is_valid(micro))
    ticks = pc.fill_null(pc.cast(micro, pa.int64()), 0).to_numpy(zero_copy_only=False)
    times = _none_readable(len(column))
    in_range = present & (ticks >= EARLIEST_US) & (ticks < LATEST_US)
    clock = pd.DatetimeIndex(ticks[in_range].astype("datetime64[us]"))
    if column.type.tz is not None:
        _fill(times, in_range, clock.tz_localize("UTC"))
    elif time_zone is not None:
        _localise(times, in_range, clock, time_zone)
    if column.type.tz is not None or time_zone is not None:
        times.far[:] = present & ~in_range
    return times


def second_showing(first_us: IntArray, time_zone: str) -> IntArray:
    """Return the second of the two instants at which a clock shows the same time, shape (n,).

    ``first_us`` are the first instants, in an hour that a clock change repeats; both in microseconds since
    1970 UTC.
    """
    import pandas as pd

    shown = (
        pd.DatetimeIndex(first_us.astype("datetime64[us]")).tz_localize("UTC").tz_convert(zone_of(time_zone))
    )
    clock, standard = shown.tz_localize(None), np.zeros(len(first_us), dtype=np.bool_)
    again = clock.tz_localize(zone_of(time_zone), ambiguous=standard)
    return _micro(again.tz_convert("UTC").tz_localize(None))


def _none_readable(count: int) -> Times:
    return Times(np.zeros(count, dtype=np.int64), *(np.zeros(count, dtype=np.bool_) for _ in range(4)))


def _mask(column: pa.Array) -> BoolArray:
    mask: BoolArray = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask


def _epoch(numbers: FloatArray, time_format: str) -> Times:
    start = start_of_seconds(time_format)
    clipped = np.clip(numbers, -1e16, 1e16)
    if start is None:
        micro, earliest = np.rint(clipped * _EPOCH_UNITS[time_format]), EARLIEST_EPOCH_US
    else:
        micro, earliest = np.rint(clipped * 1e6) + start.timestamp() * 1e6, EARLIEST_US
    readable = (micro >= earliest) & (micro < LATEST_US)
    none = _none_readable(len(numbers))
    return none._replace(time_us=np.where(readable, micro, 0).astype(np.int64), readable=readable)


def _pattern(text: pa.Array, pattern: str, time_zone: str | None) -> Times:
    text = pc.if_else(pc.is_in(pc.utf8_lower(text), pa.array(_NO_TEXTS)), pa.scalar(None, pa.string()), text)
    given = _mask(pc.is_valid(text))
    times, stated = _none_readable(len(text)), text.filter(pa.array(given))
    if "%z" in pattern or "%Z" in pattern:
        _fill(times, given, _parse(stated, pattern))
    elif time_zone is not None:
        _localise(times, given, _parse(stated, pattern).tz_localize(None), time_zone)
    return times


def _parse(text: pa.Array, pattern: str) -> pd.DatetimeIndex:
    import pandas as pd

    values = text.to_numpy(zero_copy_only=False)
    if len(values) == 0:
        return pd.DatetimeIndex([], tz="UTC")
    try:
        return pd.DatetimeIndex(pd.to_datetime(values, format=pattern, utc=True, errors="coerce"))
    except ValueError as error:
        raise ConfigError(
            "time_format is not a pattern of strptime",
            got=repr(pattern),
            expected='"iso8601", "epoch_s", "epoch_ms", "epoch_us" or a pattern such as "%d/%m/%Y %H:%M:%S"',
        ) from error


def _localise(times: Times, where: BoolArray, clock: pd.DatetimeIndex, time_zone: str) -> None:
    """Fill the rows ``where`` with the instants at which ``clock`` was shown in ``time_zone``."""
    import pandas as pd

    shown = _micro(clock)
    inside = (shown >= EARLIEST_US + _DAY_US) & (shown < LATEST_US - _DAY_US)  # NaT lies below
    clock, rows = pd.DatetimeIndex(clock.where(inside)), np.flatnonzero(where)
    zone, first = zone_of(time_zone), np.ones(len(clock), dtype=np.bool_)
    instants = clock.tz_localize(zone, ambiguous=first, nonexistent="NaT")
    second = clock.tz_localize(zone, ambiguous=~first, nonexistent="NaT")
    times.repeated_hour[rows] = np.asarray((instants != second) & instants.notna(), dtype=np.bool_)
    times.skipped_hour[rows] = np.asarray(clock.notna()) & np.asarray(instants.isna())
    _fill(times, where, instants)


def _fill(times: Times, where: BoolArray, parsed: pd.DatetimeIndex) -> None:
    micro = _micro(parsed.tz_convert("UTC").tz_localize(None))
    found = np.asarray(parsed.notna(), dtype=np.bool_) & (micro >= EARLIEST_US) & (micro < LATEST_US)
    rows = np.flatnonzero(where)[found]
    times.time_us[rows] = micro[found]
    times.readable[rows] = True


def _micro(clock: pd.DatetimeIndex) -> IntArray:
    micro: IntArray = clock.to_numpy().astype("datetime64[us]").astype(np.int64)
    return micro


# The one internal shape that every reader yields.


@dataclass(frozen=True, repr=False)
class Records:
    """Records as a foreign file states them, nothing rejected yet; arrays of shape (n,), in file order.

    ``vehicle``: dictionary of raw identifiers (text, null = missing). ``latitude``, ``longitude``: degrees,
    NaN = missing or not a number. ``speed``: in the source's unit, NaN = missing or unreadable; which of the
    two says ``speed_unreadable``. ``malformed``: rows beside these n that could not be cut into fields.
    ``no_operator``: rows whose vehicle is missing since they name no operator, without which its number says
    nothing. ``file``: the number of the file that each row is of. ``header_times``: how many rows state no
    time, so that their header's counts.
    """

    vehicle: pa.DictionaryArray
    times: Times
    latitude: FloatArray
    longitude: FloatArray
    speed: FloatArray
    speed_unreadable: BoolArray
    no_operator: BoolArray
    file: npt.NDArray[np.int32]
    malformed: int = 0
    header_times: int = 0

    def __len__(self) -> int:
        return len(self.speed)

    def __repr__(self) -> str:
        return f"<Records: {len(self)} rows, redacted>"

    @classmethod
    def from_text(
        cls,
        vehicle: pa.Array,
        times: Times,
        latitude: pa.Array,
        longitude: pa.Array,
        speed: pa.Array | None = None,
        *,
        nan_is_missing: bool = False,
        malformed: int = 0,
    ) -> Records:
        """Build records from columns of text (pa.string, shape (n,) each) and their ``times``.

        ``speed`` None: the source has no speeds. ``nan_is_missing``: whether "NaN" is the source's way of
        writing a missing speed (else it is unreadable).
        """
        rows = len(vehicle)
        if speed is None:
            speed = pa.nulls(rows, pa.string())
        speeds, unreadable = text_to_numbers(speed, nan_is_missing=nan_is_missing)
        return cls(
            vehicle=pc.dictionary_encode(vehicle),
            times=times,
            latitude=text_to_numbers(latitude)[0],
            longitude=text_to_numbers(longitude)[0],
            speed=speeds,
            speed_unreadable=unreadable,
            no_operator=np.zeros(rows, dtype=np.bool_),
            file=np.zeros(rows, dtype=np.int32),
            malformed=malformed,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Records]) -> Records:
        """Return the rows of all ``parts``, in order; no part gives no rows."""
        if not parts:
            none = pa.array([], pa.string())
            return cls.from_text(none, _none_readable(0), none, none)
        if len(parts) == 1:
            return parts[0]
        kind = pa.dictionary(pa.int32(), pa.string())
        vehicles = pa.chunked_array([part.vehicle for part in parts], type=kind)
        vehicle = vehicles.unify_dictionaries().combine_chunks()
        columns = ("latitude", "longitude", "speed", "speed_unreadable", "no_operator", "file")
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in columns
        }
        return cls(
            vehicle=vehicle.chunk(0) if isinstance(vehicle, pa.ChunkedArray) else vehicle,
            times=Times(*map(np.concatenate, zip(*(part.times for part in parts), strict=True))),
            malformed=sum(part.malformed for part in parts),
            header_times=sum(part.header_times for part in parts),
            **joined,
        )


# Each vehicle's fixes in order of time: what finds repeats and the fix before.


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


# Speeds derived from two fixes of one vehicle, for sources that report none.


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
) -> tuple[FloatArray, IntArray]:
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
