"""CSV: lines, declared columns, and the conventions that are CSV."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.input_file import InputFile, Named
from trafficdp.ingest.times import Records, text_to_times
from trafficdp.ingest.vehicle_key import with_operator
from trafficdp.model import PAIRS, UTF16, Dialect, SourceDeclaration

# Lines of a text file. A line stands for itself: whatever bytes it holds, other lines are read alike.
#
# A line ends with a line feed, in every encoding that may be declared (``model.is_line_encoding``). What is
# no text in the declared encoding, or longer than LONGEST_LINE, is left out and counted.


LONGEST_LINE = 1 << 20
"""Bytes of a line, without the line feed; of UTF-16 they are counted in UTF-8."""
_BLOCK_BYTES = 2 << 20
_HEADER_BYTES = 64 << 10
"""What is read of a file to see its first line; more where that is longer."""
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""Text in UTF-8 as a pattern over bytes: The Unicode Standard, table 3-7."""


class Lines(NamedTuple):
    """Whole lines in UTF-8, each with its line feed, and the number of lines that were left out."""

    text: bytes
    left_out: int


def read_lines(file: InputFile, encoding: str = "utf-8") -> Iterator[Lines]:
    """Yield all lines of ``file`` as UTF-8 in blocks; lines that are no text in ``encoding`` are left out.

    A byte-order mark, which is left out too, overrules ``encoding``.
    """
    with file.open() as stream:
        name, chunks = _text(stream.read(_BLOCK_BYTES), stream, encoding, marks=not file.form_by_name)
        rest, skipping = b"", False
        for chunk in chunks:
            if skipping:
                _, ended, chunk = chunk.partition(b"\n")
                if not ended:
                    continue
            whole, feed, rest = (rest + chunk).rpartition(b"\n")
            text, too_long, start = whole + feed, 0, 0
            while len(text) - start > LONGEST_LINE:
                start = text.rfind(b"\n", start, start + LONGEST_LINE + 1) + 1
                if start == 0:
                    lines = _lines(text)
                    text, too_long = _kept(lines, pc.less_equal(pc.binary_length(lines), LONGEST_LINE + 1))
                    break
            skipping = len(rest) > LONGEST_LINE
            yield _of_text(text, name, too_long + skipping)
            file.tell_progress()
            rest = b"" if skipping else rest
        if rest:
            yield _of_text(rest + b"\n", name, 0)
            file.tell_progress()


def _of_text(block: bytes, name: str, left_out: int) -> Lines:
    """Return the lines of ``block`` that are text in ``name``, and how many are not or were ``left_out``."""
    text = _utf8(block, name)
    try:
        _ = text.isascii() or text.decode()
    except UnicodeDecodeError:
        text, broken = matching_lines(text, UTF8)
        left_out += broken
    return Lines(text, left_out)


def matching_lines(block: bytes, pattern: str) -> tuple[bytes, int]:
    """Return the lines of ``block`` that match the regular expression, and how many do not.

    ``pattern`` is matched with the whole line, byte by byte.
    """
    lines = _lines(block)
    return _kept(lines, pc.match_substring_regex(lines, pattern))


def _lines(block: bytes) -> pa.Array:
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    return pa.Array.from_buffers(pa.binary(), len(ends), buffers)


def _kept(lines: pa.Array, fits: pa.Array) -> tuple[bytes, int]:
    kept = lines.filter(fits)
    size = pc.sum(pc.binary_length(kept)).as_py() or 0
    return kept.buffers()[2].slice(0, size).to_pybytes() if size else b"", len(lines) - len(kept)


def _text(
    start: bytes, stream: BinaryIO, encoding: str, *, marks: bool = True
) -> tuple[str, Iterator[bytes]]:
    """Return how a file is written and its chunks, ``start`` and the rest, in which line feeds are bytes."""
    mark = next((mark for mark in _MARKS if marks and start.startswith(mark)), b"")
    name = codecs.lookup(_MARKS.get(mark, encoding)).name
    rest = iter(partial(stream.read, _BLOCK_BYTES), b"")
    if name in UTF16:
        return "utf-8", _from_utf16(chain([start], rest), name)
    return name, chain([start.removeprefix(codecs.BOM_UTF8)], rest)


def _from_utf16(chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield ``chunks`` in UTF-8; halves of characters become bytes that are no UTF-8."""
    decoder = codecs.getincrementaldecoder(name)("surrogatepass")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
    if decoder.getstate()[0]:
        yield b"\xff"


def _utf8(block: bytes, name: str) -> bytes:
    """Return whole lines in UTF-8; what is no text becomes bytes that are no UTF-8."""
    if name in ("utf-8", "utf-8-sig") or block.isascii():
        return block
    return block.decode(name, "surrogateescape").encode("utf-8", "surrogatepass")


# CSV with a declared mapping of columns: ``.csv`` and ``.csv.gz``, read by name, never by position.


def read_csv(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks; columns are named by ``columns`` of ``source``.

    Raises DataError when the file has no rows, is not text in the declared encoding, or lacks a declared
    column, ConfigError when the source does not declare the columns.
    """
    columns = declared_columns(source, ("vehicle", "time", *place_columns(source)))
    for block, malformed in read_columns(file, list(columns.values()), dialect=source.dialect):
        texts = {ours: block[name] for ours, name in columns.items()}
        yield records_as_declared(source, texts, malformed)


def records_as_declared(
    source: SourceDeclaration, texts: Mapping[str, pa.Array], malformed: int = 0
) -> Records:
    """Return records from columns of text, by our names, that are written as ``source`` declares.

    ``malformed`` is the number of other rows that are no records.
    """
    texts = {
        ours: plain_numbers(text, source.dialect) if ours in ("latitude", "longitude", "speed") else text
        for ours, text in texts.items()
    }
    for pair in PAIRS.keys() & texts.keys():
        texts |= split_pair(pair, texts[pair])
    records = Records.from_text(
        texts["vehicle"],
        text_to_times(texts["time"], source.time_format, source.time_zone),
        texts["latitude"],
        texts["longitude"],
        texts.get("speed"),
        malformed=malformed,
    )
    if "operator" not in texts:
        return records
    return with_operator(records, texts["operator"], source.operator_separator)


def place_columns(source: SourceDeclaration) -> tuple[str, ...]:
    """Return the names of the position's columns: one of PAIRS if declared, else latitude and longitude."""
    pair = next((name for name in PAIRS if name in source.columns), None)
    return ("latitude", "longitude") if pair is None else (pair,)


_PAIR = (
    r"^\s*(?i:point)?\s*[\[({]?\s*(?P<first>[^\s,;()\[\]{}]+)(?:\s*[,;]\s*|\s+)"
    r"(?P<second>[^\s,;()\[\]{}]+)\s*[\])}]?\s*$"
)
"""Two numbers as text, with or without brackets around them: "12.5,41.9", "POINT(12.5 41.9)"."""


def split_pair(pair: str, text: pa.Array) -> dict[str, pa.Array]:
    """Split texts such as "12.5,41.9" into the columns ``latitude`` and ``longitude``, as text.

    ``pair`` is a key of PAIRS and gives the order of the two; null where a text does not hold two numbers.
    """
    parts = pc.extract_regex(text, _PAIR)
    return {
        ours: pc.struct_field(parts, part)
        for ours, part in zip(PAIRS[pair], ("first", "second"), strict=True)
    }


def declared_columns(source: SourceDeclaration, required: Sequence[str]) -> dict[str, str]:
    """Return the source's column name for each of our names: those ``required``, speed and operator.

    The speed is required too unless ``source`` derives it. Raises ConfigError naming the first required
    column that the source does not declare.
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
    return {name: source.columns[name] for name in (*required, "speed", "operator") if name in source.columns}


def plain_numbers(text: pa.Array, dialect: Dialect) -> pa.Array:
    """Return numbers as text in the form "1234.5": without thousands, with a point as decimal mark.

    ``text`` is a column in the form of ``dialect``. Where its decimal mark is no point, a point becomes "?",
    which makes the number unreadable.
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
) -> Iterator[tuple[Mapping[str, pa.Array], int]]:
    """Yield (columns as text by name, number of lines that are no rows) for each block of a CSV file.

    ``required`` and ``optional`` are names in the header; optional ones that it lacks are left out. A row is
    one line, so quotes span no lines. No row is: a line with more or fewer fields than the header, with a
    field that begins with a quote and does not end with one, or with a carriage return before its end, and
    what ``read_lines`` leaves out.
    """
    if dialect.header:
        found = header(file, [*required, *optional], dialect)
    else:
        found = [str(number) for number in range(1, max(map(int, required)) + 1)]
    wanted = list(dict.fromkeys([*required, *(name for name in optional if name in found)]))
    check_columns(file, required, found, optional)
    # over bytes, a delimiter and a field that ends where Arrow ends it
    delimiter, quote = (f"\\x{ord(mark):02x}" for mark in (dialect.delimiter, dialect.quote or "\n"))
    field = rf"[^{delimiter}\r\n]*"
    if dialect.quote:
        plain = rf"[^{delimiter}{quote}\r\n]{field}"
        field = rf"(?:{plain}|{quote}(?:[^{quote}\r\n]|{quote}{quote})*{quote})?"
    well_formed = rf"\A{field}(?:{delimiter}{field})*\r*\n\z"
    in_header, rows, malformed = dialect.header, 0, 0
    for text, no_rows in read_lines(file, dialect.encoding):
        if in_header and text:
            text, in_header = text.partition(b"\n")[2], False
        if dialect.delimiter == " ":
            text = re.sub(rb"(?m)^ +| +(?=\r*$)", b"", re.sub(rb" {2,}", b" ", text))
        # a line without quotes and carriage returns is one that fits
        returns = text.count(b"\r") if b"\r" in text else 0
        if (dialect.quote and dialect.quote.encode() in text) or (returns and returns != text.count(b"\r\n")):
            text, odd = matching_lines(text, well_formed)
            no_rows += odd
        if not dialect.header:
            # a line with fewer fields stays as it is: how many there are, no line may tell of another
            first = field + (delimiter + field) * (len(found) - 1)
            text = re.sub(rf"(?m)^({first}){delimiter}[^\n]*$".encode(), rb"\1", text)
        table, odd = _parsed(text, found, wanted, dialect)
        rows, malformed = rows + table.num_rows, malformed + no_rows + odd
        yield {name: table.column(name).combine_chunks() for name in wanted}, no_rows + odd
    if rows == 0 and file.refuse_by_rows:
        raise DataError(
            f"{file.name} has no rows that fit its header" if malformed else f"{file.name} has no rows",
            got=f"{malformed} that cannot be read"
            if malformed
            else "a header only"
            if dialect.header
            else None,
            expected=f"lines of {len(found)} fields, closed quotes, text in {dialect.encoding.upper()}"
            if malformed
            else None,
        )


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


def header(file: InputFile, declared: Sequence[str], dialect: Dialect) -> list[str]:
    """Return the column names in the first line of a CSV file.

    A name that differs from one in ``declared`` only by capitals or spaces is returned as declared, unless
    two columns would be. Raises DataError for a file that is empty or does not begin with names.
    """
    found = b""
    with file.open() as stream:
        encoding, chunks = _text(stream.read(_HEADER_BYTES), stream, dialect.encoding)
        for chunk in chunks:
            found += chunk
            if b"\n" in found or len(found) > LONGEST_LINE:
                break
    if not found:
        raise DataError(f"{file.name} is empty", got="0 bytes after unpacking")
    first = found.partition(b"\n")[0]
    try:
        line = "" if len(first) > LONGEST_LINE else _utf8(first, encoding).decode().rstrip("\r")
    except UnicodeDecodeError:
        raise file.encoding_error(dialect.encoding) from None
    if dialect.delimiter == " ":
        line = re.sub(" +", " ", line.strip(" "))
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
    plain = [name.strip().casefold() for name in names]
    meant = {name.strip().casefold(): name for name in declared if name not in names}
    return [
        meant[key] if key in meant and plain.count(key) == 1 else name
        for name, key in zip(names, plain, strict=True)
    ]


def check_columns(
    file: Named, required: Sequence[str], found: Sequence[str], optional: Sequence[str] = ()
) -> None:
    """Raise DataError unless ``found`` has all of ``required``, and none of the names twice."""
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
    """Return the names for a message; a first line that may hold values instead is not repeated."""
    if may_hold_values(found):
        return "a first line that holds values, not names"
    if _separated(found):
        return "one column only"
    shown = [name[:40] for name in found if name.isprintable() and name][:40]
    return "the columns " + ", ".join(shown)


def may_hold_values(names: Sequence[str]) -> bool:
    """Return whether a first line may be a record and not names: one of ``names`` looks like a value.

    Such as a plate, a number or JSON. A unit in brackets at the end is part of a name.
    """
    bare = [re.sub(r"\s*\[[a-zA-Z/°%]+\]\s*$", "", name) for name in names]
    pattern = r"^\s*[-+.]?\d|(\d\D*){3}|^\s*[A-Z]+[- ][A-Z]*[- ]?\d|[]\"<>{}[]"
    return any(re.search(pattern, name) for name in bare)


def _separated(found: Sequence[str]) -> str | None:
    """Return what to declare where the header is one name that holds another separator."""
    other = re.search(r"[;\t|,]", found[0]) if len(found) == 1 else None
    if other is None:
        return None
    return f"write delimiter = {json.dumps(other.group())} into the source's declaration"


def read_coalesced(
    file: InputFile, source: SourceDeclaration, usual: Mapping[str, Sequence[str]], time_format: str
) -> Iterator[Records]:
    """Yield the private records of the CSV ``file`` in blocks; blank values and NaN are missing.

    ``usual`` maps our names, such as "speed", to those that a file may have unless ``columns`` of ``source``
    say otherwise: in each row the first that is not blank counts. The header must have one for each of our
    names; for the speed only where ``missing_speed`` of ``source`` is not "derive". ``time_format`` says how
    times are written. Raises as ``read_columns``.
    """
    columns = {ours: source.names_of(ours, *names) for ours, names in usual.items()}
    needed = [names for ours, names in columns.items() if ours != "speed" or source.missing_speed != "derive"]
    every = [name for names in columns.values() for name in names]
    found = header(file, every, source.dialect)
    for names in needed:
        if not set(names) & set(found):
            check_columns(file, names[:1], found)
    operator = source.columns.get("operator")
    required = [names[0] for names in needed if len(names) == 1]
    if operator is not None:
        required.append(operator)
    for block, malformed in read_columns(file, required, every, source.dialect):
        texts = {ours: _coalesced(block, names) for ours, names in columns.items()}
        time = texts.pop("time")
        times = text_to_times(time, time_format, source.time_zone)
        records = Records.from_text(times=times, **texts, nan_is_missing=True, malformed=malformed)
        if operator is not None:
            records = with_operator(records, block[operator], source.operator_separator)
        own = _coalesced(block, columns["time"][:1])
        yield replace(records, header_times=own.null_count - time.null_count)


def _coalesced(block: Mapping[str, pa.Array], names: Sequence[str]) -> pa.Array:
    """Return for every row the first of the named columns that is there and not blank, else null."""
    result = pa.nulls(len(next(iter(block.values()))), pa.string())
    for name in names:
        if name in block:
            text = block[name]
            blank = pa.compute.equal(pa.compute.utf8_trim_whitespace(text), "")
            result = pa.compute.coalesce(
                result, pa.compute.if_else(blank, pa.scalar(None, pa.string()), text)
            )
    return result


# GTFS-Realtime VehiclePositions flattened to CSV, as agencies archive them.
#
# Columns bear the dotted paths of the message: ``vehicle.position.latitude``, ``vehicle.timestamp`` (POSIX
# seconds), ``vehicle.position.speed`` (m/s), ``vehicle.vehicle.license_plate`` and ``.id``, ``id`` of the
# entity. Archives differ in the columns they leave out, and some have an unnamed first one.


GTFS_RT_COLUMNS = {
    "vehicle": ("vehicle.vehicle.license_plate", "vehicle.vehicle.id", "id"),
    "time": ("vehicle.timestamp", "header.timestamp"),
    "latitude": ("vehicle.position.latitude",),
    "longitude": ("vehicle.position.longitude",),
    "speed": ("vehicle.position.speed",),
}


def read_gtfs_rt_csv(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks. ``columns`` of ``source`` may replace any of the names.

    Times are POSIX seconds unless the source declares another format than the default.
    Raises DataError when columns are missing or the file has no rows.
    """
    time_format = "epoch_s" if source.time_format == "iso8601" else source.time_format
    return read_coalesced(file, source, GTFS_RT_COLUMNS, time_format)


# TIDES 1.0 ``vehicle_locations``: a CSV, or a Frictionless ``datapackage.json`` that names it.
#
# Specification: tides-transit.org, ``vehicle_locations``: ``vehicle_id``, ``event_timestamp``, ``latitude``,
# ``longitude``, ``speed`` (m/s, may be missing). Missing values are written ``NA``, ``NaN`` or empty.


TIDES_COLUMNS = {
    "vehicle": ("vehicle_id",),
    "time": ("event_timestamp",),
    **{name: (name,) for name in ("latitude", "longitude", "speed")},
}
TABLE = "vehicle_locations"


def read_tides(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of a ``vehicle_locations`` CSV in blocks, or of all that a data package names.

    Raises DataError when columns are missing, the file has no rows, or the package is not one, names no
    vehicle_locations, or names files outside its own folder.
    """
    for table in package_files(file) if file.path.suffix.lower() == ".json" else [file]:
        yield from read_coalesced(table, source, TIDES_COLUMNS, source.time_format)


def package_files(file: InputFile) -> list[InputFile]:
    """Return the vehicle_locations files that the Frictionless package ``file`` names, in its order."""
    try:
        package = json.loads(file.content().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise file.encoding_error() from None
    except (ValueError, RecursionError):
        raise DataError(f"{file.name} is not JSON", expected="a Frictionless data package") from None
    resources = package.get("resources") if isinstance(package, dict) else None
    if not isinstance(resources, list):
        raise DataError(f"{file.name} is not a data package", expected='a list "resources"')
    paths: list[Any] = []
    for resource in resources:
        if isinstance(resource, dict) and _is_vehicle_locations(resource):
            path = resource.get("path")
            paths.extend(path if isinstance(path, list) else [path])
    if not paths:
        raise DataError(f"{file.name} names no {TABLE}", expected="a resource of that name or schema")
    return [InputFile(_inside(file, path), refuse_by_rows=file.refuse_by_rows) for path in paths]


def _is_vehicle_locations(resource: dict[str, Any]) -> bool:
    stem = PurePosixPath(str(resource.get("path", ""))).name.split(".")[0]
    schema = str(resource.get("schema", "")).rsplit("/", 1)[-1]
    return TABLE in (resource.get("name"), stem) or schema.startswith(TABLE)


def _inside(file: InputFile, path: object) -> Path:
    folder = file.path.parent.resolve()
    if not file.in_archive and isinstance(path, str) and "\x00" not in path and "://" not in path:
        target = (folder / path).resolve()
        if target.is_relative_to(folder):
            return target
    raise DataError(
        f"{file.name} names a file outside its own folder", expected="paths inside the folder of the package"
    )
