"""CSV with a declared mapping of columns: ``.csv`` and ``.csv.gz``, read by name, never by position."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.csv

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.input_file import InputFile, Named
from trafficdp.ingest.lines import first_line, matching, read_lines
from trafficdp.ingest.records import Records, TextColumns
from trafficdp.model import Dialect, SourceDeclaration


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks; columns are named by ``source.columns``.

    Raises DataError when the file has no rows, is not text in the declared encoding, or lacks a declared
    column, ConfigError when the source does not declare the columns.
    """
    columns = declared_columns(source, ("vehicle", "time", "latitude", "longitude"))
    dialect = source.dialect
    for table, malformed in read_columns(file, list(columns.values()), dialect=dialect):
        yield Records.from_text(
            TextColumns(
                vehicle=column(table, columns["vehicle"]),
                time=column(table, columns["time"]),
                latitude=plain_numbers(column(table, columns["latitude"]), dialect),
                longitude=plain_numbers(column(table, columns["longitude"]), dialect),
                speed=plain_numbers(column(table, columns["speed"]), dialect) if "speed" in columns else None,
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


def plain_numbers(text: pa.Array, dialect: Dialect) -> pa.Array:
    """Return numbers as they are written here: without ``thousands``, with a point.

    A point where the decimal mark is another becomes an unreadable number: nobody can say what it means.
    """
    if dialect.thousands:
        text = pa.compute.replace_substring(text, dialect.thousands, "")
    if dialect.decimal != ".":
        text = pa.compute.replace_substring(text, ".", "?")
        text = pa.compute.replace_substring(text, dialect.decimal, ".")
    return text


def read_columns(
    file: InputFile,
    required: Sequence[str],
    optional: Sequence[str] = (),
    dialect: Dialect = Dialect(),  # noqa: B008  # frozen
) -> Iterator[tuple[pa.Table, int]]:
    """Yield blocks of the named columns as text, with the number of lines beside them that are no rows.

    A row is a line, so quotes span no lines. What is none: a line with more or fewer fields than the header,
    with a field that begins with a quote and does not end with one, with a carriage return before its end,
    and what ``read_lines`` leaves out. Optional columns are left out where the header has none of that name.
    """
    found = header(file, dialect)
    wanted = list(dict.fromkeys([*required, *(name for name in optional if name in found)]))
    check_columns(file, required, found, optional)
    well_formed = _well_formed(dialect)
    in_header, rows, malformed = True, 0, 0
    for text, no_rows in read_lines(file, dialect.encoding):
        if in_header and text:
            text, in_header = text.partition(b"\n")[2], False
        # a line without quotes and carriage returns is one that fits
        returns = text.count(b"\r") if b"\r" in text else 0
        if (dialect.quote and dialect.quote.encode() in text) or (returns and returns != text.count(b"\r\n")):
            text, odd = matching(text, well_formed)
            no_rows += odd
        table, odd = _parsed(text, found, wanted, dialect)
        rows, malformed = rows + table.num_rows, malformed + no_rows + odd
        yield table, no_rows + odd
    if rows == 0 and file.judged:
        raise DataError(
            f"{file.name} has no rows that fit its header" if malformed else f"{file.name} has no rows",
            got=f"{malformed} that cannot be read" if malformed else "a header only",
            expected=f"lines of {len(found)} fields, closed quotes, text in {dialect.encoding.upper()}"
            if malformed
            else None,
        )


def _well_formed(dialect: Dialect) -> str:
    """Return the pattern, over bytes, of a line whose fields end where Arrow ends them."""
    delimiter, quote = (f"\\x{ord(mark):02x}" for mark in (dialect.delimiter, dialect.quote or "\n"))
    plain = rf"[^{delimiter}{quote}\r\n][^{delimiter}\r\n]*"
    quoted = rf"{quote}(?:[^{quote}\r\n]|{quote}{quote})*{quote}"
    field = rf"(?:{plain}|{quoted})?" if dialect.quote else rf"[^{delimiter}\r\n]*"
    return rf"\A{field}(?:{delimiter}{field})*\r*\n\z"


def _parsed(text: bytes, found: list[str], wanted: list[str], dialect: Dialect) -> tuple[pa.Table, int]:
    """Return the rows of well-formed lines, and how many lines have another number of fields."""
    malformed = 0

    def skip(_row: object) -> str:
        nonlocal malformed
        malformed += 1
        return "skip"

    if not text.strip(b"\r\n"):
        return pa.table({name: pa.array([], pa.string()) for name in wanted}), 0
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        read_options=pyarrow.csv.ReadOptions(column_names=found, block_size=len(text)),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter, quote_char=dialect.quote or False, invalid_row_handler=skip
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string())
        ),
    )
    return table, malformed


def header(file: InputFile, dialect: Dialect = Dialect()) -> list[str]:  # noqa: B008  # frozen
    """Return the column names in the first line, without a byte-order mark."""
    line = first_line(file, dialect.encoding)
    if line is None:
        raise DataError(f"{file.name} is empty", got="0 bytes after unpacking")
    if "\r" in line:
        raise DataError(
            f"{file.name} ends its lines with carriage returns only",
            expected="line feeds, with or without a carriage return before",
            todo="convert it, such as with: tr '\\r' '\\n'",
        )
    try:
        names = next(csv.reader([line], delimiter=dialect.delimiter, quotechar=dialect.quote or None), [])
    except csv.Error:
        names = []
    if not any(names) or any("\x00" in name for name in names):
        raise DataError(f"{file.name} does not begin with column names", expected="CSV with a header line")
    return names


def check_columns(
    file: Named, required: Sequence[str], found: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raise DataError unless all ``required`` were found, and none of them or of ``optional`` twice."""
    missing = [name for name in required if name not in found]
    if missing:
        raise DataError(
            f"{file.name} lacks the column{'s'[: len(missing) > 1]} " + ", ".join(missing),
            got=_names(found),
            todo=_separated(found) or "set columns in the source's declaration to the names in the file",
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
    if _separated(found):
        return "one column only"
    shown = [name[:40] for name in found if name.isprintable() and name][:40]
    return "the columns " + ", ".join(shown)


def _separated(found: Sequence[str]) -> str | None:
    """Return what to declare where the header is one name that holds another separator."""
    other = re.search(r"[;\t|,]", found[0]) if len(found) == 1 else None
    if other is None:
        return None
    return f"write delimiter = {json.dumps(other.group())} into the source's declaration"


def column(table: pa.Table, name: str) -> pa.Array:
    """Return a column of a block as one array of text."""
    values = table.column(name).combine_chunks()
    return values.chunk(0) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values


def read_coalesced(
    file: InputFile, source: SourceDeclaration, columns: Mapping[str, Sequence[str]], time_format: str
) -> Iterator[Records]:
    """Yield the records of a CSV in blocks; blank values and NaN are missing.

    ``columns`` maps our names to those that a file may have; of several the first that is not blank counts.
    All but the speed are needed, which is too unless it is derived. Raises as ``read_columns``.
    """
    needed = [names for ours, names in columns.items() if ours != "speed" or source.missing_speed != "derive"]
    found = header(file, source.dialect)
    for names in needed:
        if not set(names) & set(found):
            check_columns(file, names[:1], found)
    required = [names[0] for names in needed if len(names) == 1]
    every = [name for names in columns.values() for name in names]
    for table, malformed in read_columns(file, required, every, source.dialect):
        yield Records.from_text(
            TextColumns(**{ours: _coalesced(table, names) for ours, names in columns.items()}),
            time_format=time_format,
            time_zone=source.time_zone,
            nan_is_missing=True,
            malformed=malformed,
        )


def _coalesced(table: pa.Table, names: Sequence[str]) -> pa.Array:
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
