"""Times in declared formats to microseconds since 1970 UTC, column-wise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.errors import ConfigError
from trafficdp.ingest.numbers import numeric_to_numbers, text_to_numbers
from trafficdp.model.period import zone_of

if TYPE_CHECKING:
    import pandas as pd

Times = tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]

EARLIEST_EPOCH_US = 315_964_800 * 1_000_000
"""1980-01-06, when GPS time starts. An earlier number of an epoch format is a clock that was never set,
or seconds that were declared as milliseconds."""
LATEST_US = 253_402_300_800 * 1_000_000
"""End of the year 9999. A later one is milliseconds that were declared as seconds."""
EARLIEST_US = -62_135_596_800 * 1_000_000
_EPOCH_UNITS = {"epoch_s": 1_000_000.0, "epoch_ms": 1_000.0}
_DATE = r"[0-9]{4}(?:-[0-9]{2}-[0-9]{2}|[0-9]{4})"
_CLOCK = r"[0-9]{2}:?[0-9]{2}(?::?[0-9]{2}(?:\.[0-9]{1,9})?)?"
_NAIVE = rf"^{_DATE}[T ]{_CLOCK}$"
_WITH_OFFSET = rf"^{_DATE}[T ]{_CLOCK}(?:Z|[+-][0-9]{{2}}(?::?[0-9]{{2}})?)$"


def text_to_times(text: pa.Array, time_format: str, time_zone: str | None) -> Times:
    """Return (microseconds since 1970 UTC, whether readable) of a column of text, shape (n,) each.

    ``time_format``: "iso8601" (date and time of day; offsets may differ from row to row), "epoch_s",
    "epoch_ms" (fractions allowed, not before 1980), or a strptime pattern. Times without an offset are
    on the clock of ``time_zone`` (an IANA name) and unreadable if that is None; of an hour that a clock
    change repeats the first is meant, and an hour that it skips is unreadable.

    Raises ConfigError for a pattern that strptime does not know or an unknown time zone.
    """
    if time_format in _EPOCH_UNITS:
        return _epoch(text_to_numbers(text)[0], time_format)
    trimmed = pc.utf8_trim_whitespace(text)
    if time_format != "iso8601":
        return _pattern(trimmed, time_format, time_zone)
    upper = pc.ascii_upper(trimmed)
    with_offset = _mask(pc.match_substring_regex(upper, _WITH_OFFSET))
    times = np.zeros(len(upper), dtype=np.int64)
    readable = np.zeros(len(upper), dtype=np.bool_)
    _fill(times, readable, with_offset, _parse(upper.filter(pa.array(with_offset)), "ISO8601"))
    if time_zone is not None and not with_offset.all():
        naive = _mask(pc.match_substring_regex(upper, _NAIVE))
        clock = _parse(upper.filter(pa.array(naive)), "ISO8601").tz_localize(None)
        _fill(times, readable, naive, _localise(clock, time_zone))
    return times, readable


def numeric_to_times(column: pa.Array, time_format: str) -> Times:
    """Return the same for a column of numbers in an epoch format; all unreadable in another format."""
    if time_format not in _EPOCH_UNITS:
        return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
    return _epoch(numeric_to_numbers(column)[0], time_format)


def timestamps_to_times(column: pa.Array, time_zone: str | None) -> Times:
    """Return the same for a column of Arrow timestamps; without a zone they are on ``time_zone``'s clock."""
    import pandas as pd

    micro = pc.cast(column, pa.timestamp("us", tz=column.type.tz), safe=False)
    present = _mask(pc.is_valid(micro))
    ticks = pc.fill_null(pc.cast(micro, pa.int64()), 0).to_numpy(zero_copy_only=False)
    times = np.zeros(len(column), dtype=np.int64)
    readable = np.zeros(len(column), dtype=np.bool_)
    in_range = present & (ticks >= EARLIEST_US) & (ticks < LATEST_US)
    clock = pd.DatetimeIndex(ticks[in_range].astype("datetime64[us]"))
    if column.type.tz is not None:
        _fill(times, readable, in_range, clock.tz_localize("UTC"))
    elif time_zone is not None:
        _fill(times, readable, in_range, _localise(clock, time_zone))
    return times, readable


def _mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask


def _epoch(numbers: npt.NDArray[np.float64], time_format: str) -> Times:
    micro = np.rint(np.clip(numbers, -1e15, 1e15) * _EPOCH_UNITS[time_format])
    readable = (micro >= EARLIEST_EPOCH_US) & (micro < LATEST_US)
    return np.where(readable, micro, 0).astype(np.int64), readable


def _pattern(text: pa.Array, pattern: str, time_zone: str | None) -> Times:
    given = _mask(pc.is_valid(text))
    times = np.zeros(len(text), dtype=np.int64)
    readable = np.zeros(len(text), dtype=np.bool_)
    has_offset = "%z" in pattern or "%Z" in pattern
    if has_offset or time_zone is not None:
        parsed = _parse(text.filter(pa.array(given)), pattern)
        if not has_offset and time_zone is not None:
            parsed = _localise(parsed.tz_localize(None), time_zone)
        _fill(times, readable, given, parsed)
    return times, readable


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
            expected='"iso8601", "epoch_s", "epoch_ms" or a pattern such as "%d/%m/%Y %H:%M:%S"',
        ) from error


def _localise(clock: pd.DatetimeIndex, time_zone: str) -> pd.DatetimeIndex:
    first = np.ones(len(clock), dtype=np.bool_)
    return clock.tz_localize(zone_of(time_zone), ambiguous=first, nonexistent="NaT").tz_convert("UTC")


def _fill(
    times: npt.NDArray[np.int64],
    readable: npt.NDArray[np.bool_],
    where: npt.NDArray[np.bool_],
    parsed: pd.DatetimeIndex,
) -> None:
    found = ~np.asarray(parsed.isna(), dtype=np.bool_)
    rows = np.flatnonzero(where)[found]
    micro = parsed.tz_convert("UTC").tz_localize(None).to_numpy().astype("datetime64[us]").astype(np.int64)
    times[rows] = micro[found]
    readable[rows] = True
