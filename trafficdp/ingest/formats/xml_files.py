"""XML as elements, and the conventions that are XML: declared names, NextBus.

Elements are known by their local names, under any namespace or prefix. Nothing outside a file is ever read: a
document type, and with it every entity, is refused before anything of it is looked at.
"""

from __future__ import annotations

import io
import json
import pathlib
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from trafficdp.errors import ConfigError, DataError
from trafficdp.ingest.formats.csv_files import declared_columns, place_columns
from trafficdp.ingest.formats.json_files import check_keys, declared_records, keys_with_values, text_column
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import Records, text_to_numbers, text_to_times
from trafficdp.model import SourceDeclaration

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from lxml import etree
    from xml2arrow import XmlToArrowParser

Path = tuple[str, ...]
Columns = list[pa.Array]
Row = tuple[str | None, ...]

ROWS = 20_000
"""Records that are held at once."""
MOST_BETWEEN = 16 << 20
"""Bytes of XML without a record; they are held as a tree, which takes several times as much."""
_CHUNK = 256 << 10
_HEAD = 4 << 10
_LONGEST_NAME = 256
"""Bytes of a name with its prefix."""
_RECORDS = "records"
_OTHER_ENCODING = re.compile(rb"""\s*<\?xml[^>]*\sencoding\s*=\s*["'](?!utf-?8["'])""", re.IGNORECASE)


def is_xml(file: InputFile) -> bool:
    """Return whether the first bytes of ``file`` are those of XML, in any encoding, and not of JSON."""
    with file.open() as stream:
        start = stream.read(64)
    return start.translate(None, b"\0\xef\xbb\xbf\xff\xfe \t\r\n")[:1] == b"<"


class _Head:
    """Takes what lies before the first element that has one of ``names``; what lxml asks of a target."""

    path: Path = ()
    """The local names from the root to that element, once it began."""

    def __init__(self, file: InputFile, names: Collection[str]) -> None:
        self._file, self._names = file, names
        self._open: list[str] = []

    def doctype(self, *_names: object) -> None:
        """Refuse a document type, and with it every entity, before anything of it is read."""
        raise DataError(
            f"{self._file.name} declares a document type",
            got="<!DOCTYPE",
            expected="XML of records, which has none: entities are never read",
        )

    def start(self, tag: str, _attributes: object) -> None:
        """Note that an element began."""
        self._open.append(tag.rpartition("}")[2])
        if not self.path and (not self._names or self._open[-1] in self._names):
            self.path = tuple(self._open)

    def end(self, _tag: str) -> None:
        """Note that an element ended."""
        self._open.pop()

    def close(self) -> None:
        """Do nothing: called by the parser at the end of the file."""


def path_of_first(file: InputFile, *names: str) -> Path:
    """Return the local names from the root to the first element with one of ``names``.

    Without such an element that of the root, () in an empty document. Raises DataError for XML that is not
    well-formed up to there, or declares a document type.
    """
    from lxml import etree

    head = _Head(file, names)
    parser = etree.XMLParser(
        target=head, resolve_entities=False, no_network=True, load_dtd=False, collect_ids=False
    )
    read = 0
    with file.open() as stream:
        while not head.path and read < MOST_BETWEEN and (chunk := stream.read(_HEAD)):
            with _well_formed(file):
                parser.feed(chunk)
            read += len(chunk)
    return head.path


def iterate_elements(
    file: InputFile, names: Collection[str], expected: str, *, starts: bool = False
) -> Iterator[tuple[str, etree._Element]]:
    """Yield "end" and the element for each element with one of ``names``; with ``starts`` also "start".

    Who takes an element must free what was read of it. Raises DataError for XML that is not well-formed,
    declares a document type, or has over 16 MiB without such an element; ``expected`` is what there should
    have been.
    """
    from lxml import etree

    path_of_first(file)
    parser = etree.XMLPullParser(
        events=("start", "end") if starts else ("end",),
        tag=tuple(f"{{*}}{name}" for name in names),
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_blank_text=True,
        remove_comments=True,
        remove_pis=True,
        # of one xml:id given twice the file is no worse
        collect_ids=False,
    )
    since = 0
    with file.open() as stream:
        while chunk := stream.read(_CHUNK):
            with _well_formed(file):
                parser.feed(chunk)
            since += len(chunk)
            for kind, element in parser.read_events():
                since = 0
                yield kind, element
            if since > MOST_BETWEEN:
                raise DataError(
                    f"{file.name} holds more than {MOST_BETWEEN >> 20} MiB without a record",
                    expected=expected,
                )
            file.tell_progress()
    with _well_formed(file):
        parser.close()


def free_earlier_siblings(node: etree._Element, kept: Collection[str] = ()) -> None:
    """Free the memory of the siblings before ``node``, except the first one of each name in ``kept``."""
    parent, before = node.getparent(), node.getprevious()
    if before is None or parent is None:
        return
    named: dict[str, etree._Element] = {}
    while before is not None:
        sibling, before = before, before.getprevious()
        name = local_name(sibling) if kept else ""
        if name in kept:
            # the one before it, if any, is the first of its name
            sibling, named[name] = named.get(name), sibling
        if sibling is not None:
            parent.remove(sibling)


def local_name(element: etree._Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


@contextmanager
def _well_formed(file: InputFile) -> Iterator[None]:
    """Context manager: raise DataError where the block finds XML that is not well-formed."""
    from lxml import etree

    try:
        yield
    except etree.XMLSyntaxError:
        raise DataError(
            f"{file.name} is not well-formed XML",
            expected="whole documents",
            todo="fetch it again, or leave it out",
        ) from None


# Records as Arrow columns: those within elements of one path are read by Rust, in a sixth of the time.


def record_columns(file: InputFile, within: Path, name: str, paths: Sequence[Path]) -> Iterator[Columns]:
    """Yield blocks of columns of text, a column for each of ``paths`` and a row for each element ``name``.

    ``paths`` lead from the element to its value. Elements that lie within the path of elements ``within``
    come before all others. Raises DataError as ``iterate_elements`` does. xml2arrow reads what it can; lxml
    reads other encodings, records with an element twice, and XML that is not well-formed.
    """
    from xml2arrow import Xml2ArrowError

    read = 0
    try:
        for columns in _columns_of_utf8(file, within, name, paths):
            yield columns
            read += len(columns[0])
            file.tell_progress()
    except (Xml2ArrowError, TypeError, RuntimeError):
        # it says TypeError of text that is not UTF-8, RuntimeError of an error of its own
        for rows in filter(None, _rows(file, name, paths)):
            yield [column[read:] for column in _text_columns(rows)]
            read = max(0, read - len(rows))


def _columns_of_utf8(file: InputFile, within: Path, name: str, paths: Sequence[Path]) -> Iterator[Columns]:
    """Yield the same, read by xml2arrow; raise an error of its own where it reads something else."""
    from xml2arrow import Xml2ArrowError

    found = Counter[str]()
    with file.open() as stream:
        start = stream.read(_HEAD)
        if not within or b"\0" in start or _OTHER_ENCODING.match(start):
            raise Xml2ArrowError("no record, or another encoding than UTF-8")
    with file.open() as stream:
        counted = _Counted(stream, within[-1])
        parser = _parser(within, name, tuple(paths))
        for table, batch in parser.parse_batches(io.BufferedReader(counted, _CHUNK), max_rows_per_batch=ROWS):
            found[table] += len(batch)
            if table == _RECORDS:
                yield batch.columns
    if found["/"] != 1:
        raise Xml2ArrowError("the root does not end, or there are several")
    if counted.begun > found[_parent(within)]:
        yield from map(_text_columns, filter(None, _rows(file, name, paths, outside=within)))


class _Counted(io.RawIOBase):
    """The bytes of ``stream``; at least ``begun`` elements of a name began in what was read of them."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        super().__init__()
        self._stream, self._name, self._before, self.begun = stream, name.encode(), b"", 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        read = self._stream.read(memoryview(buffer).nbytes)
        memoryview(buffer).cast("B")[: len(read)] = read
        text = self._before + read
        at = text.find(self._name, max(0, len(self._before) - len(self._name) + 1))
        while at >= 0:
            prefix = text[text.rfind(b"<", 0, at) + 1 : at]
            self.begun += not prefix or (prefix.endswith(b":") and not prefix.startswith(b"/"))
            at = text.find(self._name, at + 1)
        self._before = text[-_LONGEST_NAME:]
        return len(read)


@lru_cache(8)
def _parser(within: Path, name: str, paths: Sequence[Path]) -> XmlToArrowParser:
    from xml2arrow import XmlToArrowParser

    above = "/" + "/".join(within)
    tables = {
        "/": ("/", {"-": f"/{within[0]}/@-"}),
        _parent(within): (_parent(within), {"-": f"{above}/@-"}),
        _RECORDS: (above, {path: f"{above}/{name}/{path}" for path in map("/".join, paths)}),
    }
    declared = [
        {
            "name": table,
            "xml_path": path,
            "levels": [],
            "fields": [
                {"name": field, "xml_path": at, "data_type": "Utf8", "nullable": True}
                for field, at in fields.items()
            ],
        }
        for table, (path, fields) in tables.items()
    ]
    with tempfile.TemporaryDirectory(prefix="trafficdp-") as folder:
        file = pathlib.Path(folder) / "tables.yaml"
        # JSON is YAML
        file.write_text(json.dumps({"tables": declared}), "utf-8")
        return XmlToArrowParser(file)


def _parent(path: Path) -> str:
    return "/" + "/".join(path[:-1])


# XML with declared names: a record is an element of the name ``records``, a column a path from it, such as
# ``@lat`` (an attribute), ``extensions/speed`` (an element), ``../@time`` (of the element around it).


def read_xml(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks; one within another is a part of it, and no record.

    Raises DataError as ``iterate_elements`` does, with ``refuse_by_rows``, where it has no record, and where
    no record of it has a column; ConfigError where the source names no records.
    """
    if not source.records:
        raise ConfigError(f"source {source.name} does not name its records", expected='records = "ELEMENT"')
    columns = declared_columns(source, ("vehicle", "time", *place_columns(source)))
    paths = [tuple(path.split("/")) for path in columns.values()]
    present, found = set[str](), 0
    for rows in _rows(file, source.records, paths):
        values = dict(zip(columns, zip(*rows, strict=True) if rows else [()] * len(columns), strict=True))
        present |= keys_with_values({columns[ours]: column for ours, column in values.items()})
        found += len(rows)
        yield declared_records(source, values)
    if not found and file.refuse_by_rows:
        raise DataError(f"{file.name} has no records", expected=f"elements {source.records}")
    check_keys(file, columns.values(), present)


def _text_columns(rows: Sequence[Row]) -> Columns:
    return [text_column(column) for column in zip(*rows, strict=True)]


def _rows(file: InputFile, name: str, paths: Sequence[Path], *, outside: Path = ()) -> Iterator[list[Row]]:
    """Yield what lies at ``paths`` of every element ``name`` but those within ``outside``."""
    # what lies beside a record or what is around it
    kept = {path[path.count("..")] for path in paths if path[0] == ".."}
    rows: list[Row] = []
    depth, around = 0, None
    for kind, element in iterate_elements(file, [name], f"elements {name}", starts=True):
        depth += 1 if kind == "start" else -1
        if depth:
            continue
        if not outside or outside != tuple(map(local_name, element.iterancestors()))[::-1]:
            rows.append(tuple(text_at_path(element, path) for path in paths))
        element.clear()
        free_earlier_siblings(element, kept)
        parent = element.getparent()
        if parent is not around:
            around = parent
            for each in element.iterancestors():
                free_earlier_siblings(each, kept)
        if len(rows) >= ROWS:
            yield rows
            rows = []
    yield rows


def text_at_path(element: etree._Element | None, path: Path) -> str | None:
    """Return the text at ``path`` from an XML ``element``, stripped; None where there is nothing."""
    for step in path:
        if element is None:
            return None
        if step == "..":
            element = element.getparent()
        elif step.startswith("@"):
            given: str | None = element.get(step[1:])
            return given
        else:
            element = next(element.iterchildren(f"{{*}}{step}"), None)
    text: str | None = None if element is None else element.text
    return None if text is None else text.strip() or None


# NextBus vehicleLocations (XML): how long ago a vehicle reported, and at the end of the document the time.
#
# Specification: NextBus Public XML Feed, "vehicleLocations": ``vehicle`` with ``id``, ``lat``, ``lon``,
# ``secsSinceReport``, ``speedKmHr``; ``lastTime`` with ``time`` in milliseconds since 1970.


_NEXTBUS = tuple(("@" + name,) for name in ("id", "secsSinceReport", "lat", "lon", "speedKmHr"))


def read_nextbus(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the vehicles of ``file``; a document without ``lastTime`` has no times.

    Raises DataError as ``iterate_elements`` does, and, with ``refuse_by_rows``, where it has neither vehicles
    nor a time.
    """
    moment: float | None = None
    for _, element in iterate_elements(file, ["lastTime"], "NextBus XML with lastTime"):
        # the last of a document counts
        moment = float(text_to_numbers(pa.array([element.get("time")], pa.string()))[0][0])
    found = 0
    for rows in _rows(file, "vehicle", _NEXTBUS):
        columns = zip(*rows, strict=True) if rows else [()] * len(_NEXTBUS)
        vehicle, age, latitude, longitude, speed = map(text_column, columns)
        found += len(rows)
        time = np.rint((np.nan if moment is None else moment) - 1000 * text_to_numbers(age)[0])
        within = np.abs(time) < 2**53
        milliseconds = pa.array(np.where(within, time, 0).astype(np.int64), mask=~within)
        times = text_to_times(milliseconds.cast(pa.string()), "epoch_ms", None)
        yield Records.from_text(vehicle, times, latitude, longitude, speed)
    if not found and moment is None and file.refuse_by_rows:
        raise DataError(f"{file.name} has no vehicles", expected="NextBus XML: body/vehicle and lastTime")
