"""CSV with a declared mapping of columns: ``.csv`` and ``.csv.gz``, read by name, never by position."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.csv

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.input_file import InputFile, Utf8Stream
from trafficdp.ingest.records import Records, TextColumns
from trafficdp.model.source import SourceDeclaration

_BLOCK_BYTES = 2 << 20
"""Arrow reads up to 32 blocks ahead, so small blocks keep memory low and the progress bar honest."""
_HEADER_BYTES = 1 << 20


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks; columns are named by ``source.columns``.

    Raises DataError when the file has no rows, is not UTF-8 text, or lacks a declared column, ConfigError
    when the source does not declare the columns.
    """
    columns = declared_columns(source, ("vehicle", "time", "latitude", "longitude"))
    for table, malformed in read_columns(file, list(columns.values())):
        yield Records.from_text(
            TextColumns(
                vehicle=column(table, columns["vehicle"]),
                time=column(table, columns["time"]),
                latitude=column(table, columns["latitude"]),
                longitude=column(table, columns["longitude"]),
                speed=column(table, columns["speed"]) if "speed" in columns else None,
            ),
            time_format=source.time_format,
            time_zone=source.time_zone,
            malformed=malformed,
        )


def declared_columns(source: SourceDeclaration, required: Sequence[str]) -> dict[str, str]:
    """Return our names and the source's for ``required`` and, unless it is derived, ``speed``.

    Raises ConfigError naming the first that the source does not declare.
    """
    if source.missing_speed != "derive":
        required = (*required, "speed")
    for name in required:
        if name not in source.columns:
            raise ConfigError(
                f"source {source.name} does not say which column is the {name}",
                got=", ".join(sorted(source.columns)) or "no columns",
                expected=f"columns.{name}",
            )
    return {name: source.columns[name] for name in (*required, "speed") if name in source.columns}


def read_columns(
    file: InputFile, required: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[pa.Table, int]]:
    """Yield blocks of the named columns as text, with the number of rows that had too many or few fields.

    Optional columns are left out where the header has none of that name.
    """
    found = header(file)
    wanted = list(dict.fromkeys([*required, *(name for name in optional if name in found)]))
    check_columns(file, required, found, optional)
    malformed = 0

    def skip(_row: object) -> str:
        nonlocal malformed
        malformed += 1
        return "skip"

    no_rows = DataError(f"{file.name} has no rows", got="a header only")
    rows = told = 0
    with file.open() as stream:
        try:
            with pyarrow.csv.open_csv(
                Utf8Stream(stream),
                read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
                parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string())
                ),
            ) as reader:
                for batch in reader:
                    yield pa.table(batch), malformed - told
                    rows, told = rows + batch.num_rows, malformed
                    file.tell_progress()
        except UnicodeDecodeError:
            raise file.not_utf8() from None
        except pa.ArrowException as error:
            if "Empty CSV file" in str(error):
                raise no_rows from None
            # Arrow's own text may quote a row
            long = "straddling object" in str(error)
            raise DataError(
                f"{file.name} cannot be read as CSV",
                got=f"a row longer than {_BLOCK_BYTES >> 20} MiB" if long else None,
                expected="rows of comma-separated fields",
                todo="look for a quotation mark that is not closed" if long else None,
            ) from None
    if rows == 0 and malformed:
        raise DataError(
            f"{file.name} has no rows that fit its header",
            got=f"{malformed} rows with another number of fields",
        )
    if rows == 0:
        raise no_rows
    if malformed > told:
        yield pa.table({name: pa.array([], pa.string()) for name in wanted}), malformed - told


def header(file: InputFile) -> list[str]:
    """Return the column names in the first line, without a byte-order mark."""
    with file.open() as stream:
        line = stream.readline(_HEADER_BYTES)
    if not line:
        raise DataError(f"{file.name} is empty", got="0 bytes after unpacking")
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise file.not_utf8() from None
    try:
        names = next(csv.reader([text.rstrip("\r\n").split("\r")[0]]), [])
    except csv.Error:
        names = []
    if not any(names) or any("\x00" in name for name in names):
        raise DataError(f"{file.name} does not begin with column names", expected="CSV with a header line")
    return names


def check_columns(
    file: InputFile, required: Sequence[str], found: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raise DataError unless all ``required`` were found, and none of them or of ``optional`` twice."""
    missing = [name for name in required if name not in found]
    if missing:
        raise DataError(
            f"{file.name} lacks the column{'s'[: len(missing) > 1]} " + ", ".join(missing),
            got=_names(found),
            todo="set columns in the source's declaration to the names in the file",
        )
    repeated = sorted({name for name in (*required, *optional) if found.count(name) > 1})
    if repeated:
        raise DataError(
            f"{file.name} has two columns of one name",
            got=", ".join(repeated),
            expected="every column that is read once",
            todo="rename or drop one of the two",
        )


def _names(found: Sequence[str]) -> str:
    """Return the names for a message; a first line that holds values instead is not repeated."""
    if any(re.match(r"\s*[-+.]?\d", name) for name in found):
        return "a first line that holds values, not names"
    if len(found) == 1 and re.search(r"[;\t|]", found[0]):
        return "one column only (is the file separated by something else than commas?)"
    shown = [name[:40] for name in found if name.isprintable() and name][:40]
    return "the columns " + ", ".join(shown)


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a block as one array of text."""
    values = table.column(name).combine_chunks()
    return values.chunk(0) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values


def coalesce_columns(table: pa.Table, names: Sequence[str]) -> pa.Array:
    """Return for every row the first of the named columns that is there and not blank, else null."""
    result = pa.nulls(table.num_rows, pa.string())
    for name in names:
        if name in table.column_names:
            text = column(table, name)
            blank = pa.compute.equal(pa.compute.utf8_trim_whitespace(text), "")
            result = pa.compute.coalesce(
                result, pa.compute.if_else(blank, pa.scalar(None, pa.string()), text)
            )
    return result


def renamed(defaults: Mapping[str, str], source: SourceDeclaration) -> dict[str, str]:
    """Return a standard's own column names, replaced where the source declares others."""
    return {**defaults, **source.columns}
