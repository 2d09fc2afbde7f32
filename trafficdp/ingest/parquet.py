"""Parquet and GeoParquet with a declared mapping of columns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import shapely

from trafficdp.errors import DataError
from trafficdp.ingest.csv import check_columns, declared_columns
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.numbers import numeric_to_numbers, text_to_numbers
from trafficdp.ingest.records import Records
from trafficdp.ingest.times import Times, numeric_to_times, text_to_times, timestamps_to_times
from trafficdp.ingest.vehicle_key import identifiers_to_text
from trafficdp.model.source import SourceDeclaration

if TYPE_CHECKING:
    import pyproj

FloatArray = npt.NDArray[np.float64]

_BATCH_ROWS = 1 << 18
_LONGITUDE_LATITUDE = "OGC:CRS84"


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks; columns are named by ``source.columns``.

    The position is ``latitude`` and ``longitude``, or ``geometry``: a column of WKB points. GeoParquet
    without a reference system means longitude and latitude (OGC:CRS84); another system is converted.
    Raises DataError when the file is not Parquet, has no rows, or lacks a column, ConfigError when the
    source does not declare them.
    """
    if not file.is_parquet:
        raise DataError(f"{file.name} is not a Parquet file")
    place = ("geometry",) if "geometry" in source.columns else ("latitude", "longitude")
    columns = declared_columns(source, ("vehicle", "time", *place))
    try:
        with pyarrow.parquet.ParquetFile(file.path) as parquet:
            check_columns(file, list(columns.values()), parquet.schema_arrow.names)
            total = parquet.metadata.num_rows
            if total == 0:
                raise DataError(f"{file.name} has no rows")
            system = None
            if "geometry" in columns:
                system = _reference_system(file, parquet.schema_arrow, columns["geometry"])
            rows = 0
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(columns.values()))):
                batch.validate(full=True)
                yield _records(file, source, columns, batch, system)
                rows += batch.num_rows
                file.tell_progress(file.size * rows // total)
            if rows != total:
                raise DataError(f"{file.name} is a damaged Parquet file", todo="fetch it again")
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        # Arrow's own text may quote values
        raise DataError(
            f"{file.name} is a damaged Parquet file", got=type(error).__name__, todo="fetch it again"
        ) from None


def _records(
    file: InputFile,
    source: SourceDeclaration,
    columns: dict[str, str],
    batch: pa.RecordBatch,
    system: pyproj.CRS | None,
) -> Records:
    time_us, time_readable = _times(file, source, batch.column(columns["time"]))
    if "geometry" in columns:
        latitude, longitude = _points(file, batch.column(columns["geometry"]), system)
    else:
        latitude = _numbers(file, "latitude", batch.column(columns["latitude"]))[0]
        longitude = _numbers(file, "longitude", batch.column(columns["longitude"]))[0]
    if "speed" in columns:
        speed, unreadable = _numbers(file, "speed", batch.column(columns["speed"]))
    else:
        speed, unreadable = np.full(len(time_us), np.nan), np.zeros(len(time_us), dtype=np.bool_)
    vehicle = identifiers_to_text(
        batch.column(columns["vehicle"]), where=f"column {columns['vehicle']} of {file.name}"
    )
    return Records(
        vehicle=pc.dictionary_encode(vehicle),
        time_us=time_us,
        time_readable=time_readable,
        latitude=latitude,
        longitude=longitude,
        speed=speed,
        speed_unreadable=unreadable,
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _times(file: InputFile, source: SourceDeclaration, column: pa.Array) -> Times:
    column = _plain(column)
    if pa.types.is_timestamp(column.type):
        return timestamps_to_times(column, source.time_zone)
    if _is_text(column.type):
        return text_to_times(pc.cast(column, pa.string()), source.time_format, source.time_zone)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return numeric_to_times(column, source.time_format)
    raise _wrong_type(file, "time", column, "timestamps, text or numbers")


def _numbers(file: InputFile, name: str, column: pa.Array) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    column = _plain(column)
    kind = column.type
    if _is_text(kind):
        return text_to_numbers(pc.cast(column, pa.string()))
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if numeric or pa.types.is_null(kind):
        return numeric_to_numbers(column)
    raise _wrong_type(file, name, column, "numbers")


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _wrong_type(file: InputFile, name: str, column: pa.Array, expected: str) -> DataError:
    return DataError(
        f"the {name} column of {file.name} has the wrong type", got=str(column.type), expected=expected
    )


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
    except (ValueError, AttributeError, TypeError, pyproj.exceptions.CRSError) as error:
        raise DataError(
            f"the GeoParquet metadata of {file.name} cannot be read",
            todo="write the points in OGC:CRS84 (longitude, latitude)",
        ) from error
    # GeoParquet stores x = longitude first, whatever the authority's order of axes
    same = system.equals(pyproj.CRS(_LONGITUDE_LATITUDE), ignore_axis_order=True) or system.equals(
        pyproj.CRS("EPSG:4326"), ignore_axis_order=True
    )
    return None if same else system


def _points(file: InputFile, column: pa.Array, system: pyproj.CRS | None) -> tuple[FloatArray, FloatArray]:
    """Return (latitude, longitude) of points in WKB, NaN where there is none."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise _wrong_type(file, "geometry", column, "points as WKB")
    shapes = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    is_point = (shapely.get_type_id(shapes) == shapely.GeometryType.POINT) & ~shapely.is_empty(shapes)
    x, y = np.full(len(shapes), np.nan), np.full(len(shapes), np.nan)
    x[is_point], y[is_point] = shapely.get_x(shapes[is_point]), shapely.get_y(shapes[is_point])
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
