"""Columns of numbers inside a page: compressed, as text. What a browser unpacks by itself.

Of every column first come the lowest bytes of all numbers, then the next ones (likes compress well beside
likes); all columns, one after another, are compressed (zlib, which browsers call "deflate") and written in
base64. The list of parts says what there is, in which order.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

TYPES: dict[str, np.dtype[Any]] = {
    "u1": np.dtype("<u1"),
    "u4": np.dtype("<u4"),
    "i4": np.dtype("<i4"),
    "f8": np.dtype("<f8"),
}
"""What JavaScript has typed arrays for."""
NOTHING = -(2**31)
"""Stands for a number that was not released, in a column of whole numbers; in one of floats it is NaN."""


@dataclass(frozen=True, slots=True)
class Part:
    """One column: its name, its type (a key of TYPES) and how many numbers it has."""

    name: str
    type: str
    length: int


def pack(columns: Mapping[str, tuple[str, npt.ArrayLike]]) -> tuple[tuple[Part, ...], str]:
    """Return the parts and the text of ``columns`` (name to type and numbers), in their order.

    Equal columns give equal text. Raises OverflowError when a number does not fit its type.
    """
    parts, pieces = [], []
    for name, (kind, numbers) in columns.items():
        given = np.asarray(numbers)
        with np.errstate(invalid="ignore"):
            column: npt.NDArray[Any] = given.astype(TYPES[kind])
        if not np.array_equal(column, given, equal_nan=kind == "f8"):
            raise OverflowError(f"column {name} does not fit {kind}")
        parts.append(Part(name, kind, len(column)))
        pieces.append(column.view(np.uint8).reshape(len(column), column.itemsize).T.tobytes())
    return tuple(parts), base64.b64encode(zlib.compress(b"".join(pieces), 9)).decode("ascii")


def lines_of_text(texts: Iterable[str]) -> tuple[str, npt.NDArray[np.uint8]]:
    """Return the type and the bytes of ``texts``, one a line, in UTF-8."""
    return "u1", np.frombuffer("\n".join(texts).encode(), dtype=np.uint8)


def thousandths(column: npt.NDArray[np.float64]) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the type and the numbers of a published column (3 decimals), in whole thousandths.

    NOTHING where it is NaN. A column with numbers beyond 31 bits stays as it is, with type "f8".
    """
    missing = np.isnan(column)
    whole = np.round(np.where(missing, 0.0, column) * 1000)
    if bool(np.any(np.abs(whole) >= -NOTHING)):
        return "f8", column
    return "i4", np.where(missing, NOTHING, whole)
