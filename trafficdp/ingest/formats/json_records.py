"""A JSON file as records: one a line, or one document that holds them all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from trafficdp.errors import DataError
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.lines import read_lines

_MOST_VALUES = 8_000_000
"""Lists, objects and what they hold: up to about 150 bytes each in memory, however short their text."""
LINES = (".jsonl", ".ndjson")
_IN_LINES = "write one record a line, into a file whose name ends in .jsonl"
_SURROGATE = re.compile("[\ud800-\udfff]")


def json_records(file: InputFile, wrappers: Sequence[str]) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Yield records in blocks, with how many beside them are none.

    A file whose name ends in LINES holds a record a line, and lines stand for themselves. Any other is one
    JSON document, whose form is checked as a whole: an array, an object that holds it under one of
    ``wrappers`` (wrapped again in "data" if need be), or a single record. Numbers come as written (text), so
    that nothing is lost. A record that is no object is none.

    Raises DataError for what is no such document, and where a judged file has no record.
    """
    records = rejected = 0
    for block, left_out in _lines(file) if in_lines(file) else _document(file, wrappers):
        fit = [record for record in block if isinstance(record, dict)]
        none = len(block) - len(fit) + left_out
        records, rejected = records + len(fit), rejected + none
        yield fit, none
    if not records and file.judged:
        raise DataError(
            f"{file.name} has no records", got=f"{rejected} that cannot be read", expected="JSON objects"
        )


def in_lines(file: InputFile) -> bool:
    """Return whether ``file`` is to hold a record a line: its name says it."""
    return file.name.lower().removesuffix(".gz").endswith(LINES)


def _lines(file: InputFile) -> Iterator[tuple[list[Any], int]]:
    for text, left_out in read_lines(file):
        lines = [line for line in text.split(b"\n") if line.strip()]
        yield [_record(line) for line in lines], left_out


def _record(line: bytes) -> object:
    """Return what a line holds, None where that is no JSON."""
    try:
        return _load(line.decode())
    except (ValueError, RecursionError):
        return None


def _document(file: InputFile, wrappers: Sequence[str]) -> Iterator[tuple[list[Any], int]]:
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
        records = _unwrap(_load(text), wrappers)
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


def check_keys(file: InputFile, blocks: Sequence[Mapping[str, bool]]) -> None:
    """Raise DataError naming the keys that no record of a judged file has; ``blocks``: which one each has."""
    missing = [name for name in dict.fromkeys(key for block in blocks for key in block) if file.judged]
    missing = [name for name in missing if not any(block[name] for block in blocks)]
    if missing:
        raise DataError(
            f"no record of {file.name} has " + " or ".join(missing),
            todo="declare the format the file is in, or set columns to its names",
        )
