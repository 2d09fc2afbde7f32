"""The ``[[source]]`` tables of the configuration: what the city declares about its files."""

from __future__ import annotations

import itertools
import re
from datetime import date
from decimal import Decimal
from fractions import Fraction

from trafficdp.config.reading import Table, exact_number
from trafficdp.errors import ConfigError
from trafficdp.model.source import FORMATS, SourceDeclaration, UnitPeriod
from trafficdp.model.speed_unit import SpeedUnit, parse_speed_unit
from trafficdp.privacy.ledger import canonical

UNIT_BY_SPECIFICATION = ("gtfs_rt", "gtfs_rt_csv", "tides", "mds")
"""Formats whose specification says metres a second."""

_KEYS = (
    "name",
    "format",
    "files",
    "speed_unit",
    "columns",
    "time_format",
    "time_zone",
    "sentinels",
    "missing_speed",
    "namespace",
    "min_kept",
)
_COLUMNS = ("vehicle", "time", "latitude", "longitude", "speed", "geometry")
_EXAMPLE = (
    'columns = { vehicle = "...", time = "...", latitude = "...", longitude = "...", speed = "..." }, '
    "the names in your files"
)
_WORDS_FOR_TIME = ("iso8601", "epoch_s", "epoch_ms")
_DIRECTIVES = set("aAbBcdfGHIjmMpSuUVwWxXyYzZ%")


def read_sources(content: object) -> tuple[SourceDeclaration, ...]:
    """Return the declared sources, in the order of the file; raise ConfigError for a wrong one."""
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise ConfigError(
            "source is not a list of tables",
            expected="every source under a line [[source]]",
            todo="write it so",
        )
    sources = tuple(_read_source(item, number) for number, item in enumerate(content, start=1))
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(
            "[[source]] name is given twice",
            got=", ".join(f'"{name}"' for name in twice),
            expected="another name for every source",
            todo="rename one",
        )
    return sources


def declaration_json(source: SourceDeclaration) -> str:
    """Return canonical JSON of everything that decides what the reader makes of a file of ``source``.

    Equal declarations give equal text: columns are sorted, sentinels are sorted plain decimals. The name
    of the source, its file patterns and min_kept are left out, for they change nothing in what is read.
    """
    return canonical(
        {
            "format": source.format,
            "units": [
                {
                    "unit": period.unit.value,
                    "first": None if period.first is None else period.first.isoformat(),
                    "last": None if period.last is None else period.last.isoformat(),
                }
                for period in sorted(source.units, key=_start)
            ],
            "columns": dict(source.columns),
            "time_format": source.time_format,
            "time_zone": source.time_zone,
            "sentinels": [_plain(value) for value in sorted(set(source.sentinels))],
            "missing_speed": source.missing_speed,
            "namespace": source.namespace,
        }
    )


def _plain(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _read_source(content: object, number: int) -> SourceDeclaration:
    table = Table(content, f"[[source]] {number} ", _KEYS)
    name = table.text("name", 'a name for the source, such as "buses"')
    table = Table(content, f'[[source]] "{name}" ', _KEYS)
    format_ = table.choice("format", FORMATS)
    missing_speed = table.choice("missing_speed", ("reject", "derive"), "reject")
    time_zone = table.time_zone("time_zone") if table.has("time_zone") else None
    return SourceDeclaration(
        name=name,
        format=format_,
        files=_files(table),
        units=_units(table, format_),
        columns=_columns(table, format_, missing_speed),
        time_format=_time_format(table, time_zone),
        time_zone=time_zone,
        sentinels=_sentinels(table) if table.has("sentinels") else (),
        missing_speed=missing_speed,
        namespace=table.text("namespace", "text without line breaks", "", empty=True),
        min_kept=_share(table, "min_kept") if table.has("min_kept") else Fraction(0),
    )


def _files(table: Table) -> tuple[str, ...]:
    expected = 'a list of file names or patterns such as ["*.csv.gz"]'
    patterns = table.texts("files", expected)
    if any("/" in pattern for pattern in patterns):
        raise table.wrong(
            "files",
            "patterns of file names, without folders",
            got="a pattern with a slash",
            todo="leave the folder out; it is given to `trafficdp ingest`",
        )
    return patterns


def _units(table: Table, format_: str) -> tuple[UnitPeriod, ...]:
    if not table.has("speed_unit") and format_ in UNIT_BY_SPECIFICATION:
        return (UnitPeriod(SpeedUnit.METRES_PER_SECOND),)
    expected = '"m/s", "km/h", "mph", or a list such as [{ unit = "mph", to = "2015-12-31" }, ...]'
    value = table.take("speed_unit", expected)
    if isinstance(value, str):
        return (UnitPeriod(parse_speed_unit(value, where=table.where("speed_unit"))),)
    items = table.items("speed_unit", expected)
    units = tuple(_unit_period(item, table.where(f"speed_unit[{i}]")) for i, item in enumerate(items, 1))
    ordered = sorted(units, key=_start)
    for before, after in itertools.pairwise(ordered):
        if before.last is None or after.first is None or after.first <= before.last:
            raise table.wrong(
                "speed_unit",
                "one unit for every day",
                got=f"{before.unit.label} {_span(before)} and {after.unit.label} {_span(after)}",
                todo="end the earlier period the day before the later one begins (both days count)",
            )
    return units


def _unit_period(content: object, where: str) -> UnitPeriod:
    table = Table(content, f"{where}.", ("unit", "from", "to"))
    unit = parse_speed_unit(table.text("unit", '"m/s", "km/h" or "mph"'), where=table.where("unit"))
    period = UnitPeriod(
        unit,
        first=table.day("from") if table.has("from") else None,
        last=table.day("to") if table.has("to") else None,
    )
    if period.first is not None and period.last is not None and period.last < period.first:
        raise table.wrong("to", "a day not before the one of from", got=_span(period))
    return period


def _start(period: UnitPeriod) -> date:
    return period.first or date.min


def _span(period: UnitPeriod) -> str:
    first = "the beginning" if period.first is None else period.first.isoformat()
    last = "the end" if period.last is None else period.last.isoformat()
    return f"from {first} to {last}"


def _columns(table: Table, format_: str, missing_speed: str) -> dict[str, str]:
    if not table.has("columns"):
        if format_ in ("csv", "parquet"):
            table.take("columns", _EXAMPLE)
        return {}
    if not isinstance(table.take("columns", _EXAMPLE), dict):
        raise table.wrong("columns", _EXAMPLE)
    inner = table.table("columns", _COLUMNS)
    columns = {key: inner.text(key, "the name of a column") for key in _COLUMNS if inner.has(key)}
    if "geometry" in columns and (format_ != "parquet" or "latitude" in columns or "longitude" in columns):
        raise table.wrong(
            "columns",
            "geometry (parquet only), or latitude and longitude, not both",
            got=f"format {format_} with {', '.join(columns)}",
        )
    if format_ in ("csv", "parquet"):
        place = ("geometry",) if "geometry" in columns else ("latitude", "longitude")
        speed = ("speed",) if missing_speed == "reject" else ()
        for key in ("vehicle", "time", *place, *speed):
            inner.take(key, "the name of a column in your files")
    names = list(columns.values())
    shared = [key for key, name in columns.items() if names.count(name) > 1]
    if shared:
        raise table.wrong("columns", "another column for each", got=f"one column for {', '.join(shared)}")
    return columns


def _time_format(table: Table, time_zone: str | None) -> str:
    expected = '"iso8601", "epoch_s", "epoch_ms" or a strptime pattern such as "%d/%m/%Y %H:%M:%S"'
    time_format = table.text("time_format", expected, "iso8601")
    if time_format in _WORDS_FOR_TIME:
        return time_format
    directives = re.findall(r"%(.?)", time_format)
    if not directives or not set(directives) <= _DIRECTIVES:
        raise table.wrong("time_format", expected)
    if time_zone is None and not {"z", "Z"} & set(directives):
        raise ConfigError(
            f"{table.where('time_zone')} is missing",
            got=f'time_format = "{time_format}", which reads no offset',
            expected='the zone of the clock that wrote the times, such as "America/Chicago"',
            todo="add time_zone = ... there",
        )
    return time_format


def _share(table: Table, key: str) -> Fraction:
    expected = "a share of rows from 0 to 1, such as 0.9"
    share = exact_number(table.take(key, expected))
    if share is None or not 0 <= share <= 1:
        raise table.wrong(key, expected)
    return share


def _sentinels(table: Table) -> tuple[Decimal, ...]:
    expected = "a list of numbers in the source's unit, such as [113.9952]; [] for none"
    value = table.take("sentinels", expected)
    if value == []:
        return ()
    return tuple(_decimal(table, item, expected) for item in table.items("sentinels", expected))


def _decimal(table: Table, item: object, expected: str) -> Decimal:
    number = exact_number(item)
    if number is None:
        raise table.wrong("sentinels", expected)
    # at most 12 decimals and 13 digits before them: the division is exact in 28 digits
    return Decimal(number.numerator) / Decimal(number.denominator)
