"""Parquet and GeoParquet with a declared mapping of columns."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import shapely

from trafficdp._durable import MACHINE
from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.errors import DataError
from trafficdp.ingest import times as ingest_times
from trafficdp.ingest.formats.csv_files import UTF8, check_columns, declared_columns
from trafficdp.ingest.input_file import InputFile, Named
from trafficdp.ingest.vehicle_key import identifiers_to_text, is_text, with_operator
from trafficdp.model import SourceDeclaration

if TYPE_CHECKING:
    import pyproj


# How large the pages of a Parquet column become when they are unpacked, by the pages' own headers.
#
# A footer may say anything; Arrow reserves and unpacks what a page's header says, a page at a time. So those
# are read first, without what follows them. Footer and headers are Thrift structs in the compact protocol
# (parquet-format, parquet.thrift: FileMetaData, ColumnMetaData, PageHeader). They are read here, and not by
# Arrow, because Arrow 26 ends the process where statistics in a footer are damaged.


_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = (*range(1, 11), 12)
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_CHUNK_VALUES, _CHUNK_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 7, 9, 11
_UNPACKED_BYTES, _PACKED_BYTES, _DATA_PAGE, _DATA_PAGE_V2, _PAGE_VALUES = 2, 3, 5, 8, 1
_DEEPEST = 16
_LARGEST_FOOTER = 16 << 20
_LONGEST_TEXT = 1 << 16


def unpacked_sizes(file: BinaryIO, columns: Collection[int]) -> Iterator[int]:
    """Yield the unpacked size in bytes of every page of the columns with these numbers in a Parquet file.

    Raises ValueError where a footer or a page's header is none, or gives an impossible size.
    """
    file.seek(-8, io.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    if length > _LARGEST_FOOTER:
        raise ValueError("the footer is too large")
    file.seek(-8 - length, io.SEEK_END)
    footer = _struct(io.BytesIO(file.read(length)))
    try:
        for group in footer.get(_ROW_GROUPS, []):
            for index in columns:
                yield from _chunk_sizes(file, group[_COLUMNS][index][_METADATA])
    except (LookupError, TypeError, AttributeError, OverflowError):
        raise ValueError("footer or headers lack what they must have") from None


def _chunk_sizes(file: BinaryIO, chunk: dict[int, int]) -> Iterator[int]:
    start, seen = chunk[_DATA_OFFSET], 0
    if 0 < chunk.get(_DICTIONARY_OFFSET, 0) < start:
        start = chunk[_DICTIONARY_OFFSET]
    file.seek(start)
    while seen < chunk[_CHUNK_VALUES] and file.tell() < start + chunk[_CHUNK_BYTES]:
        page = _struct(file)
        data = page.get(_DATA_PAGE) or page.get(_DATA_PAGE_V2) or {}
        seen += data.get(_PAGE_VALUES, 0)
        unpacked, packed = int(page[_UNPACKED_BYTES]), int(page[_PACKED_BYTES])
        if unpacked < 0 or packed < 0:
            raise ValueError("a page has a negative size")
        yield unpacked
        file.seek(packed, io.SEEK_CUR)


def _struct(file: BinaryIO, depth: int = 0) -> dict[int, Any]:
    """Return the struct that begins here by the numbers of its fields; long texts and fractions as None."""
    if depth > _DEEPEST:
        raise ValueError("a struct is nested too deeply")
    fields: dict[int, Any] = {}
    last = 0
    while head := _byte(file):
        step, kind = head >> 4, head & 15
        last = last + step if step else _signed(file)
        # true and false have no byte of their own here; a struct given twice is one struct
        value = kind == _TRUE if kind in (_TRUE, _FALSE) else _value(file, kind, depth)
        if kind == _STRUCT and isinstance(fields.get(last), dict):
            value = fields[last] | value
        fields[last] = value
    return fields


def _value(file: BinaryIO, kind: int, depth: int) -> Any:  # noqa: ANN401 - whatever Thrift holds
    if kind in (_I16, _I32, _I64):
        return _signed(file)
    if kind == _STRUCT:
        return _struct(file, depth + 1)
    if kind in (_LIST, _SET):
        head = _byte(file)
        count = head >> 4 if head >> 4 < 15 else _unsigned(file)
        if depth > _DEEPEST:
            raise ValueError("a list is nested too deeply")
        return [_value(file, head & 15, depth + 1) for _ in range(count)]
    if kind == _BINARY:
        length = _unsigned(file)
        return file.read(length) if length <= _LONGEST_TEXT else _skip(file, length)
    if kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        return _skip(file, 8 if kind == _DOUBLE else 1)
    raise ValueError("a struct holds what Parquet's never do")


def _skip(file: BinaryIO, length: int) -> None:
    file.seek(length, io.SEEK_CUR)


def _byte(file: BinaryIO) -> int:
    byte = file.read(1)
    if not byte:
        raise ValueError("the bytes end inside a struct")
    return byte[0]


def _unsigned(file: BinaryIO) -> int:
    number = shift = 0
    while shift < 64:
        byte = _byte(file)
        number |= (byte & 127) << shift
        if byte < 128:
            return number
        shift += 7
    raise ValueError("a number is too long")


def _signed(file: BinaryIO) -> int:
    number = _unsigned(file)
    return number >> 1 ^ -(number & 1)


# Parquet and GeoParquet with a declared mapping of columns.


BATCH_ROWS = 1 << 18
_LARGEST_PAGE = 256 << 20
"""A page is unpacked whole. Writers make pages of about 1 MiB."""
_BYTES_A_NUMBER = 8
_LONGITUDE_LATITUDE = "OGC:CRS84"


def read(file: InputFile, source: SourceDeclaration) -> Iterator[ingest_times.Records]:
    """Yield the records of ``file`` in blocks; columns are named by ``columns`` of ``source``.

    The position is ``latitude`` and ``longitude``, or ``geometry``: a column of points, native or WKB.
    GeoParquet without a reference system means longitude and latitude (OGC:CRS84); another is converted.
    Raises DataError when the file is not Parquet, has no rows, or lacks a column, ConfigError when the
    source does not declare them.
    """
    if file.form != "parquet":
        raise DataError(f"{file.name} is not a Parquet file")
    place = ("geometry",) if "geometry" in source.columns else ("latitude", "longitude")
    columns = declared_columns(source, ("vehicle", "time", *place))
    try:
        footer = pyarrow.parquet.read_metadata(file.path)
        schema, total = footer.schema.to_arrow_schema(), footer.num_rows
        wanted = list(dict.fromkeys(columns.values()))
        check_columns(file, wanted, schema.names)
        for name, column in columns.items():
            kind = schema.field(column).type
            # entries of these may be of any size: they are refused before one is unpacked
            nested = pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind)
            if nested and not (name == "geometry" and _is_native_point(kind)):
                raise _wrong_type(file, name, kind, "text, numbers, times or points as WKB")
        if total == 0 and file.refuse_by_rows:
            raise DataError(f"{file.name} has no rows")
        _refuse_large_pages(file, footer.schema, wanted)
        system = _reference_system(file, schema, columns["geometry"]) if "geometry" in columns else None
        # texts stay in dictionaries until it is known how long they are
        flat = [name for name in wanted if not pa.types.is_nested(schema.field(name).type)]
        with pyarrow.parquet.ParquetFile(file.path, metadata=footer, read_dictionary=flat) as parquet:
            rows = unpacked = 0
            for batch in parquet.iter_batches(BATCH_ROWS, columns=wanted):
                batch = null_invalid_text(batch)
                unpacked += sum(_unpacked_bytes(column) for column in batch.columns)
                file.check_unpacked(unpacked)
                yield records_of(file, source, columns, batch, system)
                rows += batch.num_rows
                file.tell_progress(file.size * rows // total)
            if rows != total:
                raise _damaged(file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise file.unreadable_error(error) from error
        # Arrow's own text may quote values
        raise _damaged(file, type(error).__name__) from None


def null_invalid_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` with null for each text that is not valid UTF-8.

    Raises pyarrow.ArrowInvalid where a column is damaged otherwise.
    """
    return pa.RecordBatch.from_arrays([_readable(column) for column in batch.columns], batch.schema.names)


def _readable(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column.indices.validate(full=True)
        column = pa.DictionaryArray.from_arrays(column.indices, _readable(column.dictionary))
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise
        raw = column.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        raw.validate(full=True)
        fits = pc.match_substring_regex(raw, UTF8)
        column = pc.cast(pc.if_else(fits, raw, pa.scalar(None, raw.type)), kind)
    return column


def _refuse_large_pages(file: InputFile, schema: pyarrow.parquet.ParquetSchema, columns: list[str]) -> None:
    unpacked = 0
    paths = [schema.column(number).path for number in range(len(schema))]
    starts = tuple(f"{column}." for column in columns)
    numbers = [number for number, path in enumerate(paths) if path in columns or path.startswith(starts)]
    with open(file.path, "rb") as stream:
        try:
            for size in unpacked_sizes(stream, numbers):
                unpacked += size
                if size > _LARGEST_PAGE:
                    raise DataError(
                        f"{file.name} has a page that is too large to unpack",
                        got=f"{size} bytes",
                        expected=f"{_LARGEST_PAGE} bytes at most",
                        todo="write it with smaller pages or row groups",
                    )
                file.check_unpacked(unpacked)
        except ValueError:
            raise _damaged(file) from None


def _unpacked_bytes(column: pa.Array) -> int:
    """Return how many bytes a column takes with every text written out; numbers count 8."""
    if not pa.types.is_dictionary(column.type):
        return _BYTES_A_NUMBER * len(column)
    texts = pc.binary_length(pc.cast(column.dictionary, pa.large_binary()))
    return int(pc.sum(texts.take(column.indices)).as_py() or 0) + _BYTES_A_NUMBER * len(column)


def _damaged(file: InputFile, got: str | None = None) -> DataError:
    return DataError(f"{file.name} is a damaged Parquet file", got=got, todo="fetch it again")


def records_of(
    file: Named,
    source: SourceDeclaration,
    columns: dict[str, str],
    batch: pa.RecordBatch,
    system: pyproj.CRS | None,
) -> ingest_times.Records:
    """Return the records of ``batch``, whose columns are called as ``columns`` says, by our names.

    ``system`` is the reference system of points, None for degrees. Raises DataError, naming ``file``, for a
    column of a type that cannot be what it is declared to be.
    """
    times = _times(file, source, batch.column(columns["time"]))
    if "geometry" in columns:
        latitude, longitude = points(file, batch.column(columns["geometry"]), system)
    else:
        latitude = _numbers(file, "latitude", batch.column(columns["latitude"]))[0]
        longitude = _numbers(file, "longitude", batch.column(columns["longitude"]))[0]
    if "speed" in columns:
        speed, unreadable = _numbers(file, "speed", batch.column(columns["speed"]))
    else:
        speed, unreadable = np.full(len(batch), np.nan), np.zeros(len(batch), dtype=np.bool_)
    vehicle = identifiers_to_text(
        batch.column(columns["vehicle"]), where=f"column {columns['vehicle']} of {file.name}"
    )
    records = ingest_times.Records(
        vehicle=vehicle if pa.types.is_dictionary(vehicle.type) else pc.dictionary_encode(vehicle),
        times=times,
        latitude=latitude,
        longitude=longitude,
        speed=speed,
        speed_unreadable=unreadable,
        no_operator=np.zeros(len(batch), dtype=np.bool_),
        file=np.zeros(len(batch), dtype=np.int32),
    )
    if "operator" not in columns:
        return records
    operator = identifiers_to_text(
        batch.column(columns["operator"]), where=f"column {columns['operator']} of {file.name}"
    )
    return with_operator(records, operator, source.operator_separator)


def _times(file: Named, source: SourceDeclaration, column: pa.Array) -> ingest_times.Times:
    if pa.types.is_dictionary(column.type) and is_text(column.type.value_type):
        return ingest_times.text_to_times(column, source.time_format, source.time_zone)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        return ingest_times.timestamps_to_times(column, source.time_zone)
    if is_text(column.type):
        return ingest_times.text_to_times(pc.cast(column, pa.string()), source.time_format, source.time_zone)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return ingest_times.numeric_to_times(column, source.time_format)
    if pa.types.is_null(column.type):
        return ingest_times.numeric_to_times(pc.cast(column, pa.int64()), source.time_format)
    raise _wrong_type(file, "time", column.type, "timestamps, text or numbers")


def _numbers(file: Named, name: str, column: pa.Array) -> tuple[FloatArray, BoolArray]:
    if pa.types.is_dictionary(column.type):
        # not written out: one long text may stand in every row
        numbers, unreadable = _numbers(file, name, column.dictionary)
        row = _places(column)
        return np.append(numbers, np.nan)[row], np.append(unreadable, np.False_)[row]
    kind = column.type
    if is_text(kind):
        return ingest_times.text_to_numbers(pc.cast(column, pa.string()))
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if numeric or pa.types.is_null(kind):
        return ingest_times.numeric_to_numbers(column)
    raise _wrong_type(file, name, column.type, "numbers")


def _places(column: pa.DictionaryArray) -> IntArray:
    """Return for every row the place of its value in the dictionary, one behind the last where it is null."""
    places = pc.fill_null(pc.cast(column.indices, pa.int64()), len(column.dictionary))
    row: IntArray = places.to_numpy(zero_copy_only=False)
    return row


def _wrong_type(file: Named, name: str, kind: pa.DataType, expected: str) -> DataError:
    return DataError(f"the {name} column of {file.name} has the wrong type", got=str(kind), expected=expected)


def _reference_system(file: InputFile, schema: pa.Schema, column: str) -> pyproj.CRS | None:
    """Return the reference system of a geometry column, None for longitude and latitude in WGS84."""
    import pyproj

    try:
        geo = json.loads((schema.metadata or {}).get(b"geo", b"{}"))
        facts: dict[str, Any] = geo.get("columns", {}).get(column, {})
        if "crs" not in facts:
            return None
        if facts["crs"] is None:
            raise DataError(
                f"{file.name} says that the reference system of {column} is unknown",
                todo="write it with its reference system, or as columns latitude and longitude",
            )
        system = pyproj.CRS.from_user_input(facts["crs"])
    except (ValueError, AttributeError, TypeError, RecursionError, pyproj.exceptions.CRSError) as error:
        raise DataError(
            f"the GeoParquet metadata of {file.name} cannot be read",
            got="JSON that is nested too deeply" if isinstance(error, RecursionError) else None,
            expected="a JSON object as in GeoParquet 1.1",
            todo="write the points in OGC:CRS84 (longitude, latitude)",
        ) from error
    return unless_wgs84(system)


def unless_wgs84(system: pyproj.CRS) -> pyproj.CRS | None:
    """Return the reference ``system``, or None where its coordinates are longitude and latitude in WGS84."""
    import pyproj

    # x is longitude in every file and frame, whatever the authority's order of axes
    same = system.equals(pyproj.CRS(_LONGITUDE_LATITUDE), ignore_axis_order=True) or system.equals(
        pyproj.CRS("EPSG:4326"), ignore_axis_order=True
    )
    return None if same else system


def points(file: Named, column: pa.Array, system: pyproj.CRS | None) -> tuple[FloatArray, FloatArray]:
    """Return (latitude, longitude) in degrees of a column of points in WKB, NaN where there is none.

    ``system`` is their reference system, None for degrees.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        latitude, longitude = points(file, column.dictionary, system)
        row = _places(column)
        return np.append(latitude, np.nan)[row], np.append(longitude, np.nan)[row]
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan), np.full(len(column), np.nan)
    if _is_native_point(kind):
        # a part says null itself, and where its point is null
        x, y = (ingest_times.numeric_to_numbers(pc.struct_field(column, part))[0] for part in ("x", "y"))
        return _in_degrees(file, x, y, system)
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise _wrong_type(file, "geometry", kind, "points, native or as WKB")
    shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    is_point = (shapely.get_type_id(shapes) == shapely.GeometryType.POINT) & ~shapely.is_empty(shapes)
    x, y = np.full(len(shapes), np.nan), np.full(len(shapes), np.nan)
    x[is_point], y[is_point] = shapely.get_x(shapes[is_point]), shapely.get_y(shapes[is_point])
    return _in_degrees(file, x, y, system)


def _is_native_point(kind: pa.DataType) -> bool:
    """Return whether a column holds points as GeoParquet's encoding "point" has them: two or more numbers."""
    if isinstance(kind, pa.ExtensionType):
        kind = kind.storage_type
    parts = [kind.field(number) for number in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return {"x", "y"} <= {part.name for part in parts} and all(
        pa.types.is_floating(part.type) for part in parts
    )


def _in_degrees(
    file: Named, x: FloatArray, y: FloatArray, system: pyproj.CRS | None
) -> tuple[FloatArray, FloatArray]:
    """Return (latitude, longitude) of coordinates in ``system``, NaN where there are none."""
    if system is not None:
        import pyproj

        try:
            to_degrees = pyproj.Transformer.from_crs(system, _LONGITUDE_LATITUDE, always_xy=True)
            x, y = to_degrees.transform(x, y)
        except pyproj.exceptions.ProjError as error:
            raise DataError(
                f"the points of {file.name} cannot be converted to longitude and latitude",
                got=system.name,
                todo="write them in OGC:CRS84",
            ) from error
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return np.where(np.isfinite(y), y, np.nan), np.where(np.isfinite(x), x, np.nan)
