"""Frames that Python holds: pandas, polars, Arrow, a GeoDataFrame of points, a DuckDB relation.

Whatever hands over Arrow data (the Arrow PyCapsule interface, ``__arrow_c_stream__``) is a frame. Only the
columns that are read are taken, into memory whole: no byte of them is written to disk. From there on a frame
is a Parquet file that was read, type by type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from trafficdp.errors import DataError, UsageError
from trafficdp.ingest.formats.csv_files import check_columns, declared_columns
from trafficdp.ingest.formats.parquet import BATCH_ROWS, null_invalid_text, records_of, unless_wgs84
from trafficdp.ingest.times import Records
from trafficdp.model import SourceDeclaration

if TYPE_CHECKING:
    import pyproj

_KNOWN = "a pandas, polars or Arrow frame, a GeoDataFrame of points or a DuckDB relation"


class Frame:
    """A frame as its ``source`` declares it: what ``InputFile`` is for a file.

    A GeoDataFrame's place is its geometry, in any reference system, whatever columns the source declares for
    it. ``size`` is in bytes. Raises UsageError for what is no frame, and for a source that maps no columns;
    DataError when a column is missing, or holds what Arrow has no type for.
    """

    def __init__(
        self,
        frame: Any,  # noqa: ANN401 - of any library
        source: SourceDeclaration,
        progress: Callable[[int], None] | None = None,
        *,
        refuse_by_rows: bool = True,
    ) -> None:
        kind = type(frame)
        self.refuse_by_rows = refuse_by_rows
        self.name = f"{kind.__module__.partition('.')[0].strip('_')}.{kind.__name__}"
        if not is_frame(frame):
            raise UsageError("this can be no source of records", got=self.name, expected=f"a path, {_KNOWN}")
        if source.format not in ("csv", "parquet"):
            raise UsageError(
                f"source {source.name} reads {source.format} files",
                got=f"a {self.name}",
                expected="a source that names columns, of the format csv or parquet",
                todo='name another one with source="..."',
            )
        self.system: pyproj.CRS | None = None
        self._progress, self._told = progress, 0
        self.columns = dict(source.columns)
        if hasattr(frame, "active_geometry_name"):
            frame = self._with_points(frame)
        place = ("geometry",) if "geometry" in self.columns else ("latitude", "longitude")
        columns = SourceDeclaration(
            source.name, "parquet", (), (), self.columns, missing_speed=source.missing_speed
        )
        self.columns = declared_columns(columns, ("vehicle", "time", *place))
        self.table = self._table(frame)
        self.size = self.table.nbytes

    def _with_points(self, frame: Any) -> Any:  # noqa: ANN401 - geopandas carries no types
        """Return the frame as pandas has it, its points as WKB."""
        name = frame.active_geometry_name
        if name is None:
            raise DataError(f"{self.name} has no active geometry", todo="name it: frame.set_geometry(...)")
        if frame.crs is None:
            raise DataError(
                f"{self.name} does not say in which reference system its points are",
                todo='say it: frame.set_crs("EPSG:4326") for longitude and latitude',
            )
        self.system = unless_wgs84(frame.crs)
        self.columns = {
            ours: each for ours, each in self.columns.items() if ours not in ("latitude", "longitude")
        }
        self.columns["geometry"] = name
        return frame.to_wkb()

    def _table(self, frame: Any) -> pa.Table:  # noqa: ANN401 - of any library
        wanted = list(dict.fromkeys(self.columns.values()))
        try:
            if hasattr(frame, "iloc"):
                # pandas would convert every column, and fail at one that nobody reads
                check_columns(self, wanted, [str(name) for name in frame.columns])
                table = pa.Table.from_pandas(frame[wanted], preserve_index=False)
            else:
                reader = pa.RecordBatchReader.from_stream(frame)
                check_columns(self, wanted, reader.schema.names)
                table = pa.Table.from_batches(
                    (batch.select(wanted) for batch in reader),
                    pa.schema([reader.schema.field(name) for name in wanted]),
                )
        except (pa.ArrowException, UnicodeError, OverflowError) as error:
            # Arrow's own text may quote values
            raise DataError(
                f"{self.name} cannot be read",
                got=type(error).__name__,
                expected="every column of one type",
                todo="convert them, such as frame.astype({'plate': 'string'})",
            ) from None
        # one chunk, so that equal frames have equal digests, however they are cut
        return table.replace_schema_metadata(None).combine_chunks()

    def file_groups(self, *, named_by_vehicle: bool = False) -> Iterator[list[Frame]]:
        """Yield one list with this frame: it is no archive. ``named_by_vehicle`` changes nothing."""
        yield [self]

    def sha256(self) -> str:
        """Return the SHA-256 of the columns that are read."""
        sink = _Hashed()
        with pa.ipc.new_stream(pa.PythonFile(sink, "w"), self.table.schema) as stream:
            stream.write_table(self.table, BATCH_ROWS)
        return sink.digest.hexdigest()

    def tell_progress(self, position: int) -> None:
        """Report how far reading got: ``position`` in bytes of the frame."""
        if self._progress is not None and position > self._told:
            self._progress(position - self._told)
            self._told = position


class _Hashed:
    """A file to write into that keeps no more than the digest."""

    closed = False

    def __init__(self) -> None:
        self.digest, self._size = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: there is nothing to wait for."""

    def close(self) -> None:
        self.closed = True


def is_frame(given: object) -> bool:
    """Return whether ``given`` is a data frame: an object that exports Arrow data."""
    return hasattr(given, "__arrow_c_stream__")


def read(frame: Frame, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``frame`` in blocks; see ``parquet.read``."""
    if not frame.table.num_rows and frame.refuse_by_rows:
        raise DataError(f"{frame.name} has no rows")
    rows = 0
    for batch in frame.table.to_batches(BATCH_ROWS):
        yield records_of(frame, source, frame.columns, null_invalid_text(batch), frame.system)
        rows += batch.num_rows
        frame.tell_progress(frame.size * rows // frame.table.num_rows)
