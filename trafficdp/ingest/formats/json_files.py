"""JSON: records one a line or in one document, and the conventions that are JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trafficdp.errors import DataError
from trafficdp.ingest.formats import csv_files
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import Records, text_to_times
from trafficdp.model import PAIRS, SourceDeclaration

# A JSON file as records: one a line, or one document that holds them all.


_MOST_VALUES = 8_000_000
"""Lists, objects and what they hold: up to about 150 bytes each in memory, however short their text."""
LINES = (".jsonl", ".ndjson")
_IN_LINES = "write one record a line, into a file whose name ends in .jsonl"
_SURROGATE = re.compile("[\ud800-\udfff]")


def json_records(file: InputFile, wrappers: Sequence[str]) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Yield (records, number of values that are no records) for each block of a JSON file.

    A file whose name ends in LINES holds one record a line, and every line is read by itself. Any other is
    one JSON document: an array, an object that holds an array under one of ``wrappers`` (perhaps inside
    "data"), or a single record. Numbers come as text, as written. What is no JSON object is no record.

    Raises DataError for a file that is no such document and, with ``refuse_by_rows``, has no record.
    """
    records = rejected = 0
    for block, left_out in _blocks(file, wrappers):
        fit = [record for record in block if isinstance(record, dict)]
        none = len(block) - len(fit) + left_out
        records, rejected = records + len(fit), rejected + none
        yield fit, none
    if not records and file.refuse_by_rows:
        raise DataError(
            f"{file.name} has no records", got=f"{rejected} that cannot be read", expected="JSON objects"
        )


def is_json_lines(file: InputFile) -> bool:
    """Return whether ``file`` holds one JSON record on each line, judged by the ending of its name."""
    return file.unpacked_name.endswith(LINES)


def _blocks(file: InputFile, wrappers: Sequence[str] | None = None) -> Iterator[tuple[list[Any], int]]:
    """Yield (JSON values, lines left out): of lines in blocks; of a document itself, or what it wraps."""
    return _lines(file) if is_json_lines(file) else _document(file, wrappers)


def _lines(file: InputFile) -> Iterator[tuple[list[Any], int]]:
    for text, left_out in csv_files.read_lines(file):
        lines = [line for line in text.split(b"\n") if line.strip()]
        yield [_record(line) for line in lines], left_out


def first_documents(file: InputFile) -> list[Any]:
    """Return the JSON values of the first lines, or the one value of the whole file, as a list.

    A line that is no JSON gives None.
    """
    return next((documents for documents, _ in _blocks(file)), [])


def _record(line: bytes) -> object:
    """Return what a line holds, None where that is no JSON."""
    try:
        return _load(line.decode())
    except (ValueError, RecursionError):
        return None


def _document(file: InputFile, wrappers: Sequence[str] | None) -> Iterator[tuple[list[Any], int]]:
    # what is no text becomes halves of characters, which no text holds
    text = file.content().decode("utf-8-sig", "surrogateescape")
    values = sum(text.count(sign) for sign in "[{,")
    if values > _MOST_VALUES:
        raise DataError(
            f"{file.name} holds more values than are read in one piece",
            got=values,
            expected=f"{_MOST_VALUES} at most",
            todo=_IN_LINES,
        )
    try:
        document = _load(text)
        records = [document] if wrappers is None else _unwrap(document, wrappers)
    except ValueError:
        raise DataError(f"{file.name} is not JSON", expected="one document", todo=_IN_LINES) from None
    except RecursionError:
        raise DataError(f"{file.name} is nested too deeply to be records", todo=_IN_LINES) from None
    yield records, 0


def _load(text: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)


def _unwrap(document: object, wrappers: Sequence[str]) -> list[Any]:
    if isinstance(document, list):
        return document
    if isinstance(document, dict):
        for key in ("data", *wrappers):
            inner = document.get(key)
            if isinstance(inner, list):
                return inner
            if isinstance(inner, dict) and key == "data":
                return _unwrap(inner, wrappers)
    return [document]


def text_column(values: Sequence[object]) -> pa.Array:
    """Return JSON texts and numbers as a text column, shape (n,), for times and speeds.

    ``values`` are from ``json_records``. true, false, lists and objects become "?", which is unreadable.
    """
    return _to_text([value if isinstance(value, str) or value is None else "?" for value in values])


def identifier_column(values: Sequence[object]) -> pa.Array:
    """Return JSON texts and numbers as a text column of identifiers, shape (n,); all else is null."""
    return _to_text([value if isinstance(value, str) else None for value in values])


def _to_text(values: list[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # JSON can spell halves of characters: such a text is no text
        whole = [v if v is None or v.isascii() or not _SURROGATE.search(v) else None for v in values]
        return pa.array(whole, pa.string())


def keys_with_values(columns: Mapping[str, Iterable[object]]) -> set[str]:
    """Return the keys of ``columns`` of which any record has a value."""
    return {name for name, values in columns.items() if any(value is not None for value in values)}


def check_keys(file: InputFile, names: Iterable[str], found: set[str]) -> None:
    """Raise DataError for ``names`` that are not ``found``, where ``file`` has ``refuse_by_rows``."""
    missing = [name for name in dict.fromkeys(names) if name not in found]
    if missing and file.refuse_by_rows:
        raise DataError(
            f"no record of {file.name} has " + " or ".join(missing),
            todo="declare the format the file is in, or set columns to its names",
        )


# JSON with declared keys: each column is a path into a record, such as ``VP.veh`` or ``location.0``.
#
# A step of a path is a key of an object, or a place in a list, counted from 0; a key that holds the points of
# the path itself goes before. A record may be an object or a list.


def read_json(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks: those of the list at ``records``, or (.jsonl) of lines.

    In lines the path leads to a record, or a list of them, within each line. Raises DataError for what is no
    JSON, where nothing lies at ``records``, and, with ``refuse_by_rows``, where no record has a column.
    """
    columns = csv_files.declared_columns(source, ("vehicle", "time", *csv_files.place_columns(source)))
    present, found = set[str](), 0
    for documents, malformed in _blocks(file):
        inner = [each if not source.records else value_at_path(each, source.records) for each in documents]
        if not is_json_lines(file) and file.refuse_by_rows and inner == [None]:
            raise DataError(
                f"{file.name} has nothing at the path {source.records}",
                expected="the list of records",
                todo=f"correct records in source {source.name}",
            )
        listed = [
            record
            for each in inner
            for record in (
                each if isinstance(each, list) and (source.records or not is_json_lines(file)) else [each]
            )
        ]
        rows = [record for record in listed if isinstance(record, dict | list)]
        values = {ours: [value_at_path(row, path) for row in rows] for ours, path in columns.items()}
        present |= keys_with_values({columns[ours]: column for ours, column in values.items()})
        found += len(rows)
        yield declared_records(source, values, malformed + len(listed) - len(rows))
    if not found and file.refuse_by_rows:
        raise DataError(f"{file.name} has no records", expected="JSON objects or lists")
    check_keys(file, columns.values(), present)


def declared_records(
    source: SourceDeclaration, values: Mapping[str, Sequence[object]], malformed: int = 0
) -> Records:
    """Return records from ``values``: for each of our column names, the JSON values of all records.

    ``malformed`` is the number of other rows that are no records.
    """
    texts = {
        ours: identifier_column(column) if ours in ("vehicle", "operator") else text_column(column)
        for ours, column in values.items()
    }
    for pair in PAIRS.keys() & texts.keys():
        texts[pair] = csv_files.plain_numbers(texts[pair], source.dialect)
    return csv_files.records_as_declared(source, texts, malformed)


def value_at_path(value: object, path: str) -> object:
    """Return what a JSON ``value`` holds at ``path``, as "location.0.lat"; None where there is nothing.

    The parts between dots are keys, or positions in a list from 0. A key that equals the whole path goes
    first.
    """
    if isinstance(value, dict) and path in value:
        return value[path]
    for step in path.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step[:9]) < len(value):
            value = value[int(step[:9])]
        else:
            return None
    return value


# IUDX ITMS records (JSON), in the three shapes in which they are met.
#
# Flat: ``"speed": 12, "location": {"type": "Point", "coordinates": [72.8, 21.2]}``. Dotted keys:
# ``"location.coordinates": "[72.8, 21.2]"``. NGSI-LD normalised: ``"speed": {"type": "Property", "value":
# 12}``, times as ``{"@type": "date-time", "@value": ...}``. The vehicle is ``license_plate``, else
# ``vehicle_id``; the time ``observationDateTime`` with its offset. The unit of ``speed`` is stated nowhere,
# so the source must declare it.
#
# A file is an array, ``{"results": [...]}`` as the resource server answers, or (.jsonl) one record a line.


_DEPTH = 4


def read_iudx(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file``; ``columns`` of ``source`` may rename vehicle, time and speed.

    Raises DataError when a document is not JSON, or, with ``refuse_by_rows``, no record has a vehicle,
    time or place.
    """
    vehicle_keys = source.names_of("vehicle", "license_plate", "vehicle_id")
    time_keys = source.names_of("time", "observationDateTime")
    speed_keys = source.names_of("speed", "speed")
    names = (" or ".join(vehicle_keys), time_keys[0], "location.coordinates")
    present = set[str]()
    for observations, malformed in json_records(file, ("results",)):
        vehicles = [_property(record, vehicle_keys) for record in observations]
        times = [_property(record, time_keys) for record in observations]
        places = [_coordinates(record) for record in observations]
        longitudes = [longitude for longitude, _ in places]
        present |= keys_with_values(dict(zip(names, (vehicles, times, longitudes), strict=True)))
        yield Records.from_text(
            identifier_column(vehicles),
            text_to_times(text_column(times), source.time_format, source.time_zone),
            latitude=text_column([latitude for _, latitude in places]),
            longitude=text_column(longitudes),
            speed=text_column([_property(record, speed_keys) for record in observations]),
            malformed=malformed,
        )
    check_keys(file, names, present)


def property_value(item: object) -> object:
    """Return what an NGSI-LD property holds: the inside of ``value`` and ``@value``."""
    for _ in range(_DEPTH):
        if not isinstance(item, dict):
            break
        if "value" in item:
            item = item["value"]
        elif "@value" in item:
            item = item["@value"]
        else:
            break
    return item


def _property(record: dict[str, Any], keys: tuple[str, ...]) -> object:
    """Return the first of the properties that is there and not blank, in whichever shape."""
    for key in keys:
        for spelling in (key, f"{key}.value"):
            value = property_value(record.get(spelling))
            if value is not None and value != "":
                return value
    return None


def _coordinates(record: dict[str, Any]) -> tuple[object, object]:
    """Return (longitude, latitude) of a record, None where it has no point."""
    place = property_value(record.get("location"))
    if isinstance(place, str):
        place = _parsed(place)
    if isinstance(place, dict):
        place = place.get("coordinates")
    if place is None:
        for key in ("location.coordinates", "location.value.coordinates"):
            place = property_value(record.get(key)) if place is None else place
    if isinstance(place, str):
        place = _parsed(place)
    if isinstance(place, list) and len(place) >= 2:
        return place[0], place[1]
    return None, None


def _parsed(text: str) -> object:
    try:
        return _load(text)
    except (ValueError, RecursionError):
        return [part.strip() for part in text.strip("[]() ").split(",")]


# MDS 2.0 telemetry (JSON): ``device_id``, ``timestamp`` in integer milliseconds, ``location``.
#
# Specification: Open Mobility Foundation, mobility-data-specification, data-types, "Telemetry" and "GPS
# Data": ``location.lat``, ``location.lng`` in degrees, ``location.speed`` in m/s, if available.


def read_mds(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the telemetry of ``file``: an array, ``{"telemetry": [...]}``, or (.jsonl) one record a line.

    ``columns`` of ``source`` may name another key than ``device_id`` for the vehicle. Raises DataError when a
    document is not JSON or, with ``refuse_by_rows``, no record has the keys of telemetry.
    """
    vehicle_key = source.columns.get("vehicle", "device_id")
    names, present = (vehicle_key, "timestamp", "location.lat", "location.lng"), set[str]()
    for telemetry, malformed in json_records(file, ("telemetry",)):
        locations = [r["location"] if isinstance(r.get("location"), dict) else {} for r in telemetry]
        present |= {key for key in (vehicle_key, "timestamp") if any(key in record for record in telemetry)}
        present |= {f"location.{key}" for key in ("lat", "lng") if any(key in place for place in locations)}
        yield Records.from_text(
            identifier_column([record.get(vehicle_key) for record in telemetry]),
            text_to_times(text_column([record.get("timestamp") for record in telemetry]), "epoch_ms", None),
            latitude=text_column([place.get("lat") for place in locations]),
            longitude=text_column([place.get("lng") for place in locations]),
            speed=text_column([place.get("speed") for place in locations]),
            malformed=malformed,
        )
    check_keys(file, names, present)
