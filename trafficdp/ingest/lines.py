"""Lines of a text file. A line stands for itself: whatever bytes it holds, other lines are read alike.

A line ends with a line feed, in every encoding that may be declared (``model.is_line_encoding``). What is no
text in the declared encoding, or longer than LONGEST_LINE, is left out and counted.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.ingest.input_file import InputFile
from trafficdp.model import UTF16

LONGEST_LINE = 1 << 20
"""Bytes of a line, without the line feed; of UTF-16 they are counted in UTF-8."""
_BLOCK_BYTES = 2 << 20
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
UTF8 = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
"""Text in UTF-8 as a pattern over bytes: The Unicode Standard, table 3-7."""


class Lines(NamedTuple):
    """Lines in UTF-8, each with its line feed, and how many beside them were left out."""

    text: bytes
    left_out: int


def read_lines(file: InputFile, encoding: str = "utf-8") -> Iterator[Lines]:
    """Yield all lines of ``file`` in blocks.

    A byte-order mark says more than ``encoding``, and is left out.
    """
    with file.open() as stream:
        name, chunks = _text(stream, encoding)
        for block, too_long in _blocks(chunks):
            text, broken = _utf8(block, name), 0
            if not _is_utf8(text):
                text, broken = matching(text, UTF8)
            yield Lines(text, too_long + broken)
            file.tell_progress()


def first_line(file: InputFile, encoding: str = "utf-8") -> str | None:
    """Return the first line, without its end; "" for a longer one than LONGEST_LINE, None in an empty file.

    Raises DataError when it is no text in ``encoding``.
    """
    found = b""
    with file.open() as stream:
        name, chunks = _text(stream, encoding)
        for chunk in chunks:
            found += chunk
            if b"\n" in found or len(found) > LONGEST_LINE:
                break
    line = found.partition(b"\n")[0]
    if len(line) > LONGEST_LINE:
        return ""
    try:
        return _utf8(line, name).decode().rstrip("\r") if found else None
    except UnicodeDecodeError:
        raise file.not_text(encoding) from None


def matching(block: bytes, pattern: str) -> tuple[bytes, int]:
    """Return the lines of ``block`` that match ``pattern`` over their bytes, and how many do not."""
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


def _text(stream: BinaryIO, encoding: str) -> tuple[str, Iterator[bytes]]:
    """Return the file in chunks in which line feeds are bytes, and how they are written."""
    start = stream.read(_BLOCK_BYTES)
    mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
    name = codecs.lookup(_MARKS.get(mark, encoding)).name
    if name in UTF16:
        return "utf-8", _from_utf16(_read(stream, start), name)
    return name, _read(stream, start.removeprefix(codecs.BOM_UTF8))


def _read(stream: BinaryIO, chunk: bytes) -> Iterator[bytes]:
    while chunk:
        yield chunk
        chunk = stream.read(_BLOCK_BYTES)


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


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _blocks(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield whole lines, and how many beside them were longer than LONGEST_LINE."""
    rest, skipping = b"", False
    for chunk in chunks:
        if skipping:
            _, ended, chunk = chunk.partition(b"\n")
            if not ended:
                continue
        whole, feed, rest = (rest + chunk).rpartition(b"\n")
        text, too_long = _without_long_lines(whole + feed)
        skipping = len(rest) > LONGEST_LINE
        yield text, too_long + skipping
        rest = b"" if skipping else rest
    if rest:
        yield rest + b"\n", 0


def _without_long_lines(block: bytes) -> tuple[bytes, int]:
    start = 0
    while len(block) - start > LONGEST_LINE:
        start = block.rfind(b"\n", start, start + LONGEST_LINE + 1) + 1
        if start == 0:
            lines = _lines(block)
            return _kept(lines, pc.less_equal(pc.binary_length(lines), LONGEST_LINE + 1))
    return block, 0
