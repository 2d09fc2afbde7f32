"""How large the pages of a Parquet column become when they are unpacked, by the pages' own headers.

A footer may say anything; Arrow reserves and unpacks what a page's header says, a page at a time. So those
are read first, without what follows them. Footer and headers are Thrift structs in the compact protocol
(parquet-format, parquet.thrift: FileMetaData, ColumnMetaData, PageHeader). They are read here, and not by
Arrow, because Arrow 26 ends the process where statistics in a footer are damaged.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = (*range(1, 11), 12)
_ROW_GROUPS, _COLUMNS, _METADATA = 4, 1, 3
_CHUNK_VALUES, _CHUNK_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 5, 7, 9, 11
_UNPACKED_BYTES, _PACKED_BYTES, _DATA_PAGE, _DATA_PAGE_V2, _PAGE_VALUES = 2, 3, 5, 8, 1
_DEEPEST = 16
_LARGEST_FOOTER = 16 << 20
_LONGEST_TEXT = 1 << 16


def unpacked_sizes(file: BinaryIO, columns: Collection[int]) -> Iterator[int]:
    """Yield the unpacked size in bytes of every page that reading ``columns``, by number, unpacks.

    Raises ValueError where a footer or a page's header is none, or not of a size that they have.
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
