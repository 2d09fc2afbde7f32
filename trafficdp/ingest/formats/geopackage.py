"""GeoPackage: the points of one layer, and the columns beside them that are declared.

Specification: OGC GeoPackage 1.3. It is read as the SQLite database that it is: a row in it may hold anything
in any column, and must not keep another from being read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from trafficdp.errors import DataError
from trafficdp.ingest.formats.csv_files import check_columns, declared_columns
from trafficdp.ingest.formats.parquet import records_of, unless_wgs84
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import Records
from trafficdp.model import SourceDeclaration

if TYPE_CHECKING:
    import pyproj

ROWS = 1 << 16
"""Rows that are held at once, as Python objects."""
_LONGEST = 1 << 10
"""Characters of a value; a longer one is none."""
_ENVELOPES = (0, 32, 48, 48, 64)
"""Bytes between a geometry's header and its WKB, by the header's flags."""
_EXTENDED = 32
_LAYERS = """
    SELECT g.table_name, g.column_name, g.geometry_type_name, s.organization, s.organization_coordsys_id
    FROM gpkg_geometry_columns AS g
    JOIN sqlite_master AS m ON m.name = g.table_name AND m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%'
    LEFT JOIN gpkg_spatial_ref_sys AS s USING (srs_id)
    WHERE upper(g.geometry_type_name) IN ('POINT', 'GEOMETRY')
    ORDER BY g.table_name
"""


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks: the points of one layer.

    The layer is ``records`` of ``source``, or the only one. Raises DataError for what is no GeoPackage, where
    the layer is not there or must be named, where its points are in no known reference system, and, with
    ``refuse_by_rows``, where it has no row.
    """
    columns = declared_columns(source, ("vehicle", "time"))
    with _open(file) as database:
        name, geometry, system = _layer(file, database, source.records)
        check_columns(file, [*columns.values()], column_names(database, name))
        count = f"SELECT count(*) FROM {_quoted(name)}"  # noqa: S608 - quoted
        (total,) = database.execute(count).fetchone()
        if not total and file.refuse_by_rows:
            raise DataError(f"{file.name} has no rows", got=f"layer {name}")
        cursor = database.execute(_query(name, [*columns.values()], geometry))
        names, done = [*columns, "geometry"], 0
        while rows := cursor.fetchmany(ROWS):
            *values, blobs = zip(*rows, strict=True)
            texts = [pa.array([_text(each) for each in column], pa.string()) for column in values]
            points = pa.array([_wkb(each) for each in blobs], pa.binary())
            batch = pa.RecordBatch.from_arrays([*texts, points], names)
            yield records_of(file, source, {ours: ours for ours in names}, batch, system)
            done += len(rows)
            file.tell_progress(file.size * done // total)


def layers(file: InputFile) -> list[str]:
    """Return the names of the layers that may hold points; raise DataError for what is no GeoPackage."""
    with _open(file) as database:
        return [layer[0] for layer in database.execute(_LAYERS)]


def first_rows(file: InputFile, layer: str, count: int) -> tuple[list[str], list[tuple[str | None, ...]]]:
    """Return (column names, first ``count`` rows as texts) of ``layer``, without its points.

    Raises DataError for a file that is damaged or no GeoPackage.
    """
    with _open(file) as database:
        name, geometry, _ = _layer(file, database, layer)
        names = [each for each in column_names(database, name) if each != geometry]
        rows = database.execute(_query(name, names, geometry)).fetchmany(count)
    return names, [tuple(map(_text, row[:-1])) for row in rows]


def column_names(database: sqlite3.Connection, table: str) -> list[str]:
    """Return the names of a table's columns."""
    return [name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", [table])]


@contextmanager
def _open(file: InputFile) -> Iterator[sqlite3.Connection]:
    """Context manager: open the database read-only; raise DataError for what is none, or is damaged."""
    if file.form != "gpkg" or file.in_archive:
        raise DataError(
            f"{file.name} is not a GeoPackage",
            got="one in an archive" if file.in_archive else None,
            todo="unpack it" if file.in_archive else "declare the format that it has",
        )
    # nothing beside the file is looked at, such as a journal, and nothing is written
    address = f"{file.path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.text_factory = _decoded
            yield database
    except sqlite3.Error:
        raise DataError(
            f"{file.name} is a damaged GeoPackage, or another SQLite database",
            expected="layers of points, as OGC GeoPackage 1.3 has them",
            todo="fetch it again, or write it with GDAL or QGIS",
        ) from None


def _decoded(text: bytes) -> str | None:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _layer(file: InputFile, database: sqlite3.Connection, wanted: str) -> tuple[str, str, pyproj.CRS | None]:
    """Return a layer's name, its column of points, and their reference system unless it is WGS84."""
    import pyproj

    found = database.execute(_LAYERS).fetchall()
    chosen = [layer for layer in found if layer[0] == wanted] if wanted else found
    if len(chosen) != 1:
        raise DataError(
            f"{file.name} has no layer of points called {wanted}" if wanted else f"{file.name}: which layer?",
            got=", ".join(str(layer[0]) for layer in found) or "no layer of points",
            expected='records = "LAYER"',
        )
    name, geometry, _, organization, number = chosen[0]
    try:
        system = pyproj.CRS.from_authority(str(organization), number)
    except pyproj.exceptions.CRSError:
        raise DataError(
            f"{file.name} does not say in which reference system the points of {name} are",
            got=f"{organization}:{number}",
            todo="write it with a reference system of EPSG, such as EPSG:4326",
        ) from None
    return name, geometry, unless_wgs84(system)


def _query(table: str, columns: Sequence[str], geometry: str) -> str:
    short = (f"CASE WHEN length({_quoted(each)}) <= {_LONGEST} THEN {_quoted(each)} END" for each in columns)
    point = f"CASE WHEN length({_quoted(geometry)}) <= {_LONGEST} THEN {_quoted(geometry)} END"
    return f"SELECT {', '.join([*short, point])} FROM {_quoted(table)}"  # noqa: S608 - quoted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: object) -> str | None:
    """Return text and numbers as text, blobs as "?", which nothing reads."""
    if value is None or isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) else "?"


def _wkb(blob: object) -> bytes | None:
    """Return a geometry without GeoPackage's header, None where it is none of the standard."""
    if not isinstance(blob, bytes) or len(blob) < 8 or blob[:2] != b"GP":
        return None
    envelope = blob[3] >> 1 & 7
    if blob[3] & _EXTENDED or envelope >= len(_ENVELOPES):
        return None
    return blob[8 + _ENVELOPES[envelope] :]
