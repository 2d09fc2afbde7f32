"""The rows of an analyst's query as CSV, Parquet, JSON and GeoJSON.

JSON knows fewer values than SQL: numbers that are not finite become null, whole numbers beyond 2^53 (H3
cells) text, decimals numbers, times ISO 8601, blobs hexadecimal digits.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trafficdp._durable import replace_file
from trafficdp.arrays import CellArray
from trafficdp.binning.cells import bounding_box, cell_text, cells_from_text, shapes_of
from trafficdp.errors import DataError, UsageError, one_of
from trafficdp.export.files.tables import dump, geometry_members, rounded_shapes
from trafficdp.model import Zones

CELL_COLUMNS = ("hex_id", "h3", "cell")
"""Columns that GeoJSON takes its hexagons from, the first of them that is there."""
_EXACT_IN_JSON = 1 << 53
GEOJSON = "geojson"


def result_bytes(table: pa.Table, format: str, zones: Zones | None = None) -> bytes:
    """Return the rows of ``table`` as one of FORMATS.

    ``zones`` are those of the configured map, which GeoJSON draws where numbers of them are given.

    Raises UsageError for an unknown format and for GeoJSON without a column of cells, DataError for
    values that the format cannot hold.
    """
    if one_of(FORMATS, format=format) == GEOJSON:
        return _geojson(table, zones)
    return _RENDER[format](table)


def write_result(table: pa.Table, format: str, path: Path, zones: Zones | None = None) -> int:
    """Write the rows of ``table`` to ``path``, whole or not at all, and return the bytes written.

    Raises what ``result_bytes`` and ``replace_file`` raise.
    """
    content = result_bytes(table, format, zones)
    replace_file(path, content)
    return len(content)


def json_rows(table: pa.Table) -> list[dict[str, object]]:
    """Return every row as a mapping from column names to JSON values."""
    columns = [json_values(table, name) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def json_values(table: pa.Table, name: str) -> list[object]:
    """Return the column ``name`` as JSON values; null, NaN and infinities are None.

    If one whole number is beyond 2^53, all whole numbers of the column become text. Raises DataError for
    values beyond what Python can hold.
    """
    column = table.column(name)
    try:
        values: list[object] = [_json_value(value) for value in column.to_pylist()]
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        raise DataError(
            f"values of column {name} cannot be written",
            got=f"type {column.type}",
            todo=f"write CAST({name} AS VARCHAR) in the query",
        ) from None
    if any(isinstance(value, int) and abs(value) > _EXACT_IN_JSON for value in values):
        # a column is all numbers or all text
        return [str(value) if isinstance(value, int) else value for value in values]
    return values


def _json_value(value: object) -> object:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            return None
        whole = isinstance(value, Decimal) and value == value.to_integral_value()
        return int(value) if whole else float(value)
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(key): _json_value(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_json_value(part) for part in value]
    return str(value)


def cell_texts(table: pa.Table, name: str) -> list[str]:
    """Return a column as text with every digit of its numbers, as tables and CSV show it; null is empty."""
    if pa.types.is_floating(table.column(name).type):
        return ["" if value is None else f"{value!r}" for value in table.column(name).to_pylist()]
    return [_text(value) for value in json_values(table, name)]


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def _csv(table: pa.Table) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(table.column_names)
    writer.writerows(zip(*(cell_texts(table, name) for name in table.column_names), strict=True))
    return stream.getvalue().encode("utf-8", "replace")


def _parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    try:
        pq.write_table(table, stream, compression="zstd")
    except pa.ArrowException:
        raise DataError(
            "Parquet cannot hold this result", todo="CAST the unusual columns AS VARCHAR in the query"
        ) from None
    return stream.getvalue()


def _json(table: pa.Table) -> bytes:
    return ("[" + ",\n".join(dump(row) for row in json_rows(table)) + "]\n").encode("utf-8", "replace")


def _geojson(table: pa.Table, zones: Zones | None) -> bytes:
    """Return one feature a row (RFC 7946): the hexagon or zone of its cell, all columns as properties.

    ``hex_id`` is among them, as text. A row without a cell has no geometry. ``id`` is the cell, or
    "cell/slot"; rows that these do not tell apart have none.
    """
    name = next((name for name in CELL_COLUMNS if name in table.column_names), None)
    if name is None:
        raise UsageError(
            "GeoJSON needs a column of cells",
            got="columns " + ", ".join(table.column_names),
            expected="one called " + " or ".join(CELL_COLUMNS),
            todo="select hex_id too, or write CSV",
        )
    values = table.column(name).to_pylist()
    given = [value for value in values if value is not None]
    # no H3 index is so small a number
    numbers = zones is not None and all(
        str(value).isdecimal() and int(value) <= len(zones.names) for value in given
    )
    cells = np.array([int(value) for value in given], np.uint64) if numbers else _cells(given)
    spelled = [str(cell) for cell in cells.tolist()] if numbers else cell_text(cells)
    unique, place = np.unique(cells, return_inverse=True)
    shapes = rounded_shapes(np.asarray(shapes_of(unique, zones if numbers else None), dtype=object))
    geometries = [geometry_members(shape) for shape in shapes]
    drawn = iter(zip(spelled, place.tolist(), strict=True))
    texts: list[str | None] = []
    members: list[str] = []
    for there in (value is not None for value in values):
        text, index = next(drawn) if there else (None, -1)
        texts.append(text)
        members.append(geometries[index] if there else '"geometry":null')
    identifiers = _identifiers(texts, table)
    features = []
    for identifier, member, text, row in zip(identifiers, members, texts, json_rows(table), strict=True):
        row.pop("hex_id", None)
        properties = dump({"hex_id": text, **row})
        features.append(f'{{"type":"Feature",{identifier}{member},"properties":{properties}}}')
    box = [f'"bbox":{dump(bounding_box(shapes))}'] if len(shapes) else []
    head = ",".join(['"type":"FeatureCollection"', *box])
    body = ",\n".join(features)
    return f'{{{head},"features":[\n{body}\n]}}\n'.encode("utf-8", "replace")


def _cells(values: list[Any]) -> CellArray:
    """Return the cells that are spelled, or given as numbers."""
    return cells_from_text([value if isinstance(value, str) else _hexadecimal(value) for value in values])


def _hexadecimal(value: object) -> str:
    # what is no whole number spells no cell, and is refused as such
    return format(int(value), "x") if isinstance(value, (int, Decimal)) and value >= 0 else ""


def _identifiers(texts: list[str | None], table: pa.Table) -> list[str]:
    """Return the ``id`` member of every feature, empty where there is none."""
    names = [text or "" for text in texts]
    if len(set(names)) < len(names) and "slot" in table.column_names:
        slots = json_values(table, "slot")
        names = [f"{text}/{slot}" if text else "" for text, slot in zip(texts, slots, strict=True)]
    there = [name for name in names if name]
    if len(set(there)) < len(there):
        return [""] * len(names)
    return [f'"id":{dump(name)},' if name else "" for name in names]


_RENDER: Mapping[str, Callable[[pa.Table], bytes]] = {
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
}
FORMATS = (*_RENDER, GEOJSON)
"""What a result can be written as."""
