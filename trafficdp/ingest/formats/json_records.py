"""A JSON file as a list of records: an array, an object that wraps one, or one record a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from trafficdp.errors import DataError
from trafficdp.ingest.input_file import InputFile

_MOST_VALUES = 8_000_000
"""Lists, objects and what they hold: up to about 150 bytes each in memory, however short their text."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def json_records(file: InputFile, wrappers: Sequence[str]) -> list[dict[str, Any]]:
    """Return the records of ``file``; ``wrappers`` are keys under which an object may hold the array.

    Accepts an array, such an object (wrapped again in "data" if need be), a single record, and
    newline-delimited JSON. Numbers come as written (text), so that nothing is lost. Raises DataError
    unless every record is an object and there is at least one.
    """
    text = file.text()
    values = sum(text.count(sign) for sign in "[{,")
    if values > _MOST_VALUES:
        raise DataError(
            f"{file.name} holds more values than are read in one piece",
            got=values,
            expected=f"{_MOST_VALUES} at most",
            todo="split it into several files",
        )
    try:
        document = _load(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            document = [_load(line) for line in lines]
        except (ValueError, RecursionError):
            document = None
        if document is None or len(lines) < 2:
            raise DataError(
                f"{file.name} is not JSON", expected="an array of records, or one record a line"
            ) from None
        document = [record for part in document for record in _unwrap(part, wrappers)]
    except RecursionError:
        raise DataError(f"{file.name} is nested too deeply to be records") from None
    records = _unwrap(document, wrappers)
    if not records and file.judged:
        raise DataError(f"{file.name} has no records", got="an empty list")
    if not all(isinstance(record, dict) for record in records):
        raise DataError(f"{file.name} is not a list of records", expected="JSON objects")
    return records


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
    """Return times or measures as text, as written; true, false, lists, objects as "?", which none reads."""
    return _to_text([value if isinstance(value, str) or value is None else "?" for value in values])


def identifier_column(values: Sequence[object]) -> pa.Array:
    """Return identifiers as text, as written; whatever is neither text nor a number is missing."""
    return _to_text([value if isinstance(value, str) else None for value in values])


def _to_text(values: list[str | None]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # JSON can spell halves of characters: such a text is no text
        whole = [v if v is None or v.isascii() or not _SURROGATE.search(v) else None for v in values]
        return pa.array(whole, pa.string())


def check_keys(file: InputFile, present: Mapping[str, bool]) -> None:
    """Raise DataError naming the keys (of ``present``) that not a single record of a judged file has."""
    missing = [name for name, there in present.items() if not there and file.judged]
    if missing:
        raise DataError(
            f"no record of {file.name} has " + " or ".join(missing),
            todo="declare the format the file is in, or set columns to its names",
        )
