"""Settings guessed from a file, or taken from an IUDX configuration."""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow.parquet

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.formats import gtfs_rt, siri
from trafficdp.ingest.formats.csv_files import Lines, check_columns, read_lines
from trafficdp.ingest.formats.json_files import first_documents, in_lines, value_at
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import MISSING_NUMBERS
from trafficdp.model import Dialect, SlotKind, SourceDeclaration, SpeedUnit, UnitPeriod

# What a file seems to be, from its name, its header and how its first rows are written.
#
# For the curator's eyes: names of columns are repeated, values are not. Where only a person can know (the
# unit of speeds, the zone of clocks), the answer is None and the declaration says CHOOSE.


ROWS = 100
_START = 1 << 20
_DEPTH = 4
_ENOUGH = 20
"""Vehicles whose speeds may say something together."""
_GTFS_RT_JSON = {
    "vehicle": "vehicle.vehicle.id",
    "time": "vehicle.timestamp",
    "latitude": "vehicle.position.latitude",
    "longitude": "vehicle.position.longitude",
    "speed": "vehicle.position.speed",
}
"""GTFS-Realtime as protobuf's own JSON has it."""
_HFP = {"oper", "veh", "tst", "lat", "long", "spd"}
"""Keys of the high-frequency positioning (HFP) of Finnish cities; its specification says m/s."""
NAMES = {
    "vehicle": r"(vehicle|veh|plate|fleet|medallion|licen[cs]e|kennzeichen|fahrzeug|bus|truck|taxi|device|"
    r"unit|car|matricula|placa|immatriculation)([ _.-]?(id|no|nr|number|label|plate|ref))?|uid|tid|vid|imei",
    "time": r"(time[ _]?stamp|date[ _]?time|time|zeit|zeitstempel|zeitpunkt|uhrzeit|datum|fecha|hora|heure|"
    r"date|horodatage|observation|observed|recorded|gps)([ _.-]?(at|date[ _]?time|time|utc|stamp))?|"
    r"ts|t|tst|tsi",
    "latitude": r"lat(itude)?|breite(ngrad)?|latitud|y",
    "longitude": r"lon(gitude)?|long|lng|l[aä]nge(ngrad)?|longitud|x",
    "speed": r"(gps[ _.-]?)?(speed|spd|velocity|geschwindigkeit|velocidad|vitesse|tempo|km[ _/]?h|mph|v)"
    r"([ _.-]?(kmh|km[ _/]?h|mph|m[ _/]?s|ms))?",
}
"""What columns are called: the whole name, in any case, but for a unit in brackets at its end.

A column ``id`` may number rows, each of which would then be protected as a vehicle: a person must choose.
"""
_UNIT_AT_END = re.compile(r"\s*[\[(].*[\])]\s*$")
UNITS = {"km/h": r"km[ _/]?h|kph", "mph": r"mph", "m/s": r"m[ _/]s|ms$|mps"}
_VALUE = re.compile(
    r"[-+]?[\d.,' ]*\d([eE][-+]?\d+)?|\d{4}-\d\d-\d\d.*|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}.*|\d{1,2}:\d\d.*"
)
"""A number, a date or a time: no name of a column."""
ENCODINGS = ("utf-8", "cp1252")


@dataclass(frozen=True)
class Suggestion:
    """A declaration as far as a file tells it; None where a person must choose."""

    format: str
    dialect: Dialect
    columns: dict[str, str | None]
    header: tuple[str, ...]
    time_format: str | None
    offset: bool
    speed_unit: str | None
    missing_speed: str = "reject"
    records: str = ""
    sentinels: tuple[int, ...] = ()


def suggest(file: InputFile) -> Suggestion:
    """Return what ``file``, or the first of a zip archive, seems to be.

    Raises DataError for one that is neither a table nor of a form that is known.
    """
    for member in file.members():
        return _of_file(member)
    raise DataError(f"{file.name} holds no file")


def _of_file(file: InputFile) -> Suggestion:
    name = file.name.lower().removesuffix(".gz")
    if name.endswith(".pb") or _is_gtfs_rt(file):
        return _of_gtfs_rt(file)
    if file.is_parquet or name.endswith(".parquet"):
        return _of_parquet(file)
    in_json = name.endswith((".json", ".jsonl", ".ndjson"))
    if in_json or siri.is_xml(file):
        with file.open() as stream:
            start = stream.read(_START)
        text = start.decode("utf-16" if b"\0" in start[:4] else "utf-8", "replace")
        if re.search(r"\bVehicle(Activity|MonitoringDelivery)\b", text):
            return _of_siri(text)
        if in_json and re.search(r'"observationDateTime"\s*:', text):
            times = re.findall(r'"observationDateTime"\s*:[^"]*"([^"]+)"', text)
            form, offset = _time_format(times[:ROWS])
            return Suggestion("iudx", Dialect(), {}, (), form, offset, None)
        if in_json and re.search(r'"telemetry"\s*:|"device_id"\s*:.*"location"\s*:', text, re.DOTALL):
            return Suggestion("mds", Dialect(), {}, (), None, True, "m/s")
        if in_json:
            return _of_json(file)
        raise _xml_of_another_kind(file, text)
    return _of_csv(file)


def _is_gtfs_rt(file: InputFile) -> bool:
    """Return whether a file begins with the header of a FeedMessage, whatever its name is."""
    with file.open() as stream:
        return re.match(rb"\n.\n\x03[12]\.", stream.read(8), re.DOTALL) is not None


def _of_gtfs_rt(file: InputFile) -> Suggestion:
    declared = SourceDeclaration("", "gtfs_rt", (), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))
    (records,) = gtfs_rt.read(file, declared)
    stated = np.count_nonzero(np.isfinite(records.speed))
    nothing = stated >= _ENOUGH and not np.nan_to_num(records.speed).any()
    missing_speed = "derive" if nothing or 2 * stated < len(records) else "reject"
    sentinels = (0,) if nothing else ()
    return Suggestion("gtfs_rt", Dialect(), {}, (), None, True, "m/s", missing_speed, sentinels=sentinels)


def _of_parquet(file: InputFile) -> Suggestion:
    """Look at the schema, and at the times of the first rows; points of GeoParquet are the place."""
    try:
        with pyarrow.parquet.ParquetFile(file.path) as parquet:
            schema = parquet.schema_arrow
            found = _of_columns(file, "parquet", Dialect(), schema.names, [])
            columns, time = found.columns, found.columns["time"]
            facts = json.loads((schema.metadata or {}).get(b"geo", b"{}"))
            geometry = facts.get("primary_column") if isinstance(facts, dict) else None
            if geometry in schema.names:
                others = (ours for ours in columns if ours not in ("latitude", "longitude"))
                columns = {ours: columns[ours] for ours in others} | {"geometry": geometry}
            form, offset = found.time_format, found.offset
            if time is not None and pyarrow.types.is_timestamp(schema.field(time).type):
                form, offset = "iso8601", schema.field(time).type.tz is not None
            elif time is not None:
                start = next(parquet.iter_batches(ROWS, columns=[time]), None)
                times = [] if start is None else start.column(0).to_pylist()
                form, offset = _time_format([str(each) for each in times if each is not None])
    except (pyarrow.ArrowException, OSError, ValueError):
        raise DataError(f"{file.name} cannot be read as Parquet") from None
    return replace(found, columns=columns, time_format=form, offset=offset)


def _of_siri(text: str) -> Suggestion:
    times = re.findall(r'\bRecordedAtTime"?\s*[:>]\s*(?:{\s*"value"\s*:\s*)?"?([^",<>{}]+)', text)
    form, offset = _time_format([each.strip() for each in times[:ROWS]]) if times else ("iso8601", True)
    stated = re.search(r'\bVelocity"?\s*[:>]\s*"?\d', text)
    missing_speed = "reject" if stated else "derive"
    return Suggestion("siri", Dialect(), {}, (), form, offset, "m/s", missing_speed)


def _of_json(file: InputFile) -> Suggestion:
    """Look at the first records; of keys only those are repeated that are what columns are called."""
    blocks = first_documents(file)
    records, listed = ("", blocks) if in_lines(file) else _records_in(blocks[0] if blocks else None)
    rows = [row for row in listed[:ROWS] if isinstance(row, dict)]
    leaves = list(dict.fromkeys(path for row in rows for path in _leaves(row)))
    if _GTFS_RT_JSON["latitude"] in leaves:
        speeds = sum(value_at(row, _GTFS_RT_JSON["speed"]) is not None for row in rows)
        derived = "derive" if 2 * speeds < len(rows) else "reject"
        return Suggestion(
            "json", Dialect(), dict(_GTFS_RT_JSON), (), "epoch_s", True, "m/s", derived, records=records
        )
    paths = {path.rpartition(".")[2]: path for path in reversed(leaves)}
    named = list(reversed(paths))
    values = [[_plain(value_at(row, paths[name])) for name in named] for row in rows]
    found = _of_columns(file, "json", Dialect(), named, values)
    columns = {ours: None if name is None else paths[name] for ours, name in found.columns.items()}
    if not any(columns.values()) or any(re.search(r"(^|\.)\d", path) for path in columns.values() if path):
        raise DataError(
            f"{file.name} holds JSON whose records are not recognised",
            expected="a list of objects, or one object a line (.jsonl)",
            todo='declare it by hand: format = "json", with paths as columns',
        )
    if {*named} >= _HFP:
        return replace(found, columns=columns | {"operator": paths["oper"]}, speed_unit="m/s")
    return replace(found, columns=columns, records=records, header=())


def _records_in(document: object) -> tuple[str, list[object]]:
    """Return the path to the one list of objects that is least deep in a document, and the list.

    Where there are several, or none, it is empty: keys may then be identifiers.
    """
    level = [("", document)]
    for _ in range(_DEPTH):
        lists = [(path, value) for path, value in level if isinstance(value, list) and value]
        objects = [(path, value) for path, value in lists if isinstance(value[0], dict)]
        if objects:
            return objects[0] if len(objects) == 1 else ("", [])
        level = [
            (f"{path}.{key}".lstrip("."), inner)
            for path, value in level
            if isinstance(value, dict)
            for key, inner in value.items()
        ]
    return "", []


def _leaves(value: object, path: str = "", depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".lstrip("."), depth + 1)
    elif not isinstance(value, dict | list):
        yield path


def _plain(value: object) -> str:
    return value if isinstance(value, str) else ""


def _xml_of_another_kind(file: InputFile, text: str) -> DataError:
    root = re.search(r"<([A-Za-z_][\w.:-]{0,39})", text)
    return DataError(
        f"{file.name} is XML of a kind that is not read",
        got=f"<{root.group(1)}>" if root else None,
        expected="SIRI vehicle monitoring",
        todo="convert it to CSV",
    )


def _of_csv(file: InputFile) -> Suggestion:
    encoding, lines = _decoded(file)
    if not lines:
        raise DataError(f"{file.name} is empty", got="no first line")
    delimiter = max(",;\t|", key=lines[0].count)
    found = [fields for line in lines if (fields := _fields(line.rstrip("\r"), delimiter))]
    if not found:
        raise DataError(f"{file.name} is not CSV", got="no line with fields", expected="a header line")
    names, *rows = found
    if any(_VALUE.fullmatch(name.strip()) for name in names):
        raise DataError(
            f"{file.name} begins with a record, not with the names of its columns",
            expected="CSV with a header line",
            todo="write the names of the columns into a first line of their own",
        )
    if "vehicle.position.latitude" in names:
        return Suggestion("gtfs_rt_csv", Dialect(encoding=encoding), {}, (), "epoch_s", True, "m/s")
    numbers = [field for row in rows for field in row if re.fullmatch(r"[-+]?[\d.,' ]*\d", field)]
    comma = delimiter != "," and any(re.fullmatch(r"[-+]?[\d. ']*,\d+", each) for each in numbers)
    grouped = comma and any(re.fullmatch(r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?", each) for each in numbers)
    dialect = Dialect(
        delimiter=delimiter,
        decimal="," if comma else ".",
        thousands="." if grouped else "",
        encoding=encoding,
    )
    return _of_columns(file, "csv", dialect, names, rows)


def _fields(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line; none of one that is empty, or holds a longer field than Python reads."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _decoded(file: InputFile) -> tuple[str, list[str]]:
    """The encoding and the first lines of a file; the last of ENCODINGS fits whatever the others do not."""
    for encoding in ENCODINGS:
        start = next(read_lines(file, encoding), Lines(b"", 0))
        if not start.left_out:
            return encoding, start.text.decode().split("\n")[: ROWS + 1]
    raise file.not_text(ENCODINGS[-1])


def _of_columns(
    file: InputFile, kind: str, dialect: Dialect, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> Suggestion:
    columns: dict[str, str | None] = {}
    for ours, pattern in NAMES.items():
        bare = ((name, _UNIT_AT_END.sub("", name).strip()) for name in header)
        fits = (name for name, said in bare if re.fullmatch(pattern, said, re.IGNORECASE))
        columns[ours] = next((name for name in fits if name not in columns.values()), None)
    check_columns(file, [name for name in columns.values() if name is not None], header)
    speed, time = columns["speed"], columns["time"]
    unit = next(
        (unit for unit, pattern in UNITS.items() if speed and re.search(pattern, speed, re.IGNORECASE)), None
    )
    times, speeds = ([] if name is None else _column(rows, header.index(name)) for name in (time, speed))
    form, offset = (
        _time_format([each for each in times if each]) if kind in ("csv", "json") else ("iso8601", True)
    )
    stated = sum(each.strip().upper() not in MISSING_NUMBERS for each in speeds)
    missing_speed = "derive" if speed is None or 2 * stated < len(speeds) else "reject"
    return Suggestion(kind, dialect, columns, tuple(header), form, offset, unit, missing_speed)


def _column(rows: Sequence[Sequence[str]], at: int) -> list[str]:
    return [row[at] for row in rows if len(row) > at]


def _time_format(times: Sequence[str]) -> tuple[str | None, bool]:
    """How instants are written, and whether they bear an offset."""
    for form, pattern in (("epoch_s", r"\d{9,10}(\.\d+)?"), ("epoch_ms", r"\d{12,13}")):
        if times and all(re.fullmatch(pattern, each) for each in times):
            return form, True
    if times and all(re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", each) for each in times):
        return "iso8601", all(re.search(r"(Z|[+-]\d\d:?\d\d)$", each) for each in times)
    found = itertools.product(("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y"), (" %H:%M:%S", " %H:%M"))
    fits = [day + clock for day, clock in found if times and all(_fits(each, day + clock) for each in times)]
    # 03/04/2026 may be April or March
    return (fits[0] if len(fits) == 1 else None), False


def _fits(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)  # only whether it fits
    except ValueError:
        return False
    return True


def in_toml(found: Suggestion, name: str, pattern: str) -> str:
    """Return a commented ``[[source]]`` table; CHOOSE stands where a person must decide."""
    dialect, usual = found.dialect, Dialect()
    without_speed = "speed" in found.columns and found.columns["speed"] is None
    named = {ours: theirs for ours, theirs in found.columns.items() if theirs is not None or ours != "speed"}
    columns = ", ".join(f"{ours} = {_text(theirs or 'CHOOSE')}" for ours, theirs in named.items())
    lines = [
        "[[source]]",
        f"name = {_text(name)}",
        f"format = {_text(found.format)}",
        f"files = [{_text(pattern)}]",
        *(f"# the columns of the file: {', '.join(found.header)}" for _ in found.header[:1]),
        *(f"columns = {{ {columns} }}" for _ in [0] * bool(named)),
        *(f"records = {_text(found.records)}" for _ in [0] * bool(found.records)),
        *(
            f"{key} = {_text(getattr(dialect, key))}"
            for key in ("delimiter", "decimal", "thousands", "encoding")
            if getattr(dialect, key) != getattr(usual, key)
        ),
    ]
    if found.format not in ("gtfs_rt", "mds"):
        lines.append(
            f"time_format = {_text(found.time_format or 'CHOOSE')}"
            + ("" if found.time_format else '  # such as "%d/%m/%Y %H:%M:%S"')
        )
    if not found.offset:
        lines.append('time_zone = "CHOOSE"  # of the clock that wrote the times, such as "Europe/Berlin"')
    if found.missing_speed != "reject":
        none = (
            "no column looks like a speed; if one is, name it" if without_speed else "most records state none"
        )
        lines.append(f"missing_speed = {_text(found.missing_speed)}  # from positions: {none}")
    if found.sentinels:
        lines.append(f"sentinels = {list(found.sentinels)}  # every speed is 0: none is known")
    if without_speed:
        lines.append('speed_unit = "m/s"')
    elif found.format in ("csv", "parquet", "json", "iudx"):
        unit = found.speed_unit or "CHOOSE"
        lines.append(f"speed_unit = {_text(unit)}  # m/s, km/h or mph: only who made the file knows")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{escaped}"'


# The configuration of the IUDX differential privacy pipeline, as our settings.
#
# Several of its keys look like ours and mean something else. None is taken over in silence: every key that
# changed meaning, or has no counterpart, comes back as a message to show to whoever imports it.


_SPEED_QUERIES = {"mean": ["mean"]}


@dataclass(frozen=True)
class IudxSettings:
    """``settings``: our names and plain values, only what can be taken over. ``messages``: one sentence
    for every key whose meaning changed or that was left out."""

    settings: dict[str, object]
    messages: list[str]


def import_iudx_config(config: Mapping[str, object]) -> IudxSettings:
    """Translate a configuration of the IUDX pipeline (its JSON file, as a dict).

    Keys may stand at the top or one level down (``spatial_generalize``, ``temporal_generalize``,
    ``differential_privacy``). Settings returned: ``resolution``, ``slot_kind``, ``speed_bound``,
    ``statistics`` and ``columns`` (vehicle, time, position, speed). The privacy budget, the speed unit
    and the neighbouring relation are never taken over: they must be chosen.

    Raises ConfigError when a value is not of its key's type.
    """
    keys = _flat(config)
    settings: dict[str, object] = {}
    messages: list[str] = []
    _space(keys, settings)
    _time(keys, settings, messages)
    _bounds(keys, settings, messages)
    _privacy(keys, settings, messages)
    _columns(keys, settings)
    messages.append(
        "The speed unit, the study area, the period and the neighbouring relation are not in an IUDX "
        "configuration: choose them."
    )
    return IudxSettings(settings, messages)


def _flat(config: Mapping[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= {str(inner): item for inner, item in value.items()}
        else:
            flat[str(key)] = value
    return flat


def _number(keys: Mapping[str, object], name: str) -> float | None:
    value = keys.get(name)
    if value is None:
        return None
    # an integer may be beyond every float
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < sys.float_info.max:
        raise ConfigError(f"{name} of the IUDX configuration is not a number", got=repr(value))
    return value


def _space(keys: Mapping[str, object], settings: dict[str, object]) -> None:
    resolution = _number(keys, "h3_resolution")
    if resolution is not None:
        if resolution not in range(16):
            raise ConfigError(
                "h3_resolution of the IUDX configuration is out of range", got=resolution, expected="0 to 15"
            )
        settings["resolution"] = int(resolution)


def _time(keys: Mapping[str, object], settings: dict[str, object], messages: list[str]) -> None:
    minutes = _number(keys, "timeslot_resolution")
    settings["slot_kind"] = SlotKind.HOUR_OF_DAY.value
    if minutes is not None and minutes != 60:
        messages.append(
            f"timeslot_resolution = {minutes:g} minutes has no counterpart: slots are clock hours or longer; "
            "slot_kind is set to hour_of_day."
        )
    start, end = _number(keys, "start_time"), _number(keys, "end_time")
    if start is not None or end is not None:
        first, last = 0 if start is None else start, 23 if end is None else end
        messages.append(
            f"start_time and end_time are inclusive hours there: {first:g} to {last:g} means until "
            f"{last:g}:59. Here every hour of the day has a slot of its own; to leave hours out, declare "
            "day parts, or drop the slots after the release."
        )


def _bounds(keys: Mapping[str, object], settings: dict[str, object], messages: list[str]) -> None:
    low, high = _number(keys, "global_min_value"), _number(keys, "global_max_value")
    if high is not None:
        settings["speed_bound"] = high
        messages.append(
            "global_max_value becomes speed_bound: speeds above it are clipped to it, never dropped. It must "
            "be a round number known beforehand, not the largest speed in the data."
        )
    if low:
        messages.append(
            f"global_min_value = {low:g} is left out: the lower bound is always 0 here, so noise is "
            "calibrated to the whole of [0, speed_bound]."
        )


def _privacy(keys: Mapping[str, object], settings: dict[str, object], messages: list[str]) -> None:
    epsilon = _number(keys, "dp_epsilon")
    if epsilon is not None:
        messages.append(
            f"dp_epsilon = {epsilon:g} is left out: there it holds for each cell alone and is not composed, "
            "so a vehicle seen in 50 cells loses up to 50 times as much. Here epsilon is the whole loss of a "
            "vehicle in a release, and the budget that of all releases: choose both."
        )
    if "dp_epsilon_step" in keys:
        messages.append("dp_epsilon_step is left out: plan shows which epsilon would buy which error.")
    for name in ("filter_event_occurences", "filter_event_occurrences"):
        least = _number(keys, name)
        if least is not None:
            messages.append(
                f"{name} = {least:g} is left out: there it is an exact filter on vehicles a day, decided by "
                "the data without noise. Here min_vehicles withholds bins by a count that is declared public."
            )
    query = keys.get("dp_query")
    if query in _SPEED_QUERIES:
        settings["statistics"] = _SPEED_QUERIES[str(query)]
        messages.append(
            "dp_query = mean: the noise there is scaled to the vehicle with most records by a count that is "
            "treated as public without saying so. Here the relation and its assumptions are chosen and "
            "printed on every release."
        )
    elif query is not None:
        messages.append(f"dp_query = {query} is left out: means and variances of speed are released here.")


def _columns(keys: Mapping[str, object], settings: dict[str, object]) -> None:
    names = {
        "vehicle": "filter_attribute",
        "time": "temporal_attribute",
        "position": "spatial_attribute",
        "speed": "dp_output_attribute",
    }
    columns = {ours: keys[theirs] for ours, theirs in names.items() if isinstance(keys.get(theirs), str)}
    if columns:
        settings["columns"] = columns
