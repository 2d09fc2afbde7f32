"""Records in parts that memory holds, every vehicle whole in one of them, its rows in the order of the file.

What cleaning asks of other rows, it asks of rows of the same vehicle. So parts may be cleaned one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.ingest.records import Records
from trafficdp.ingest.times import Times
from trafficdp.ingest.vehicle_key import normalise
from trafficdp.store.store_files import Spill

IntArray = npt.NDArray[np.int64]

ROWS_AT_ONCE = 1 << 20
"""Rows of a file that are held in memory, with all that is read of them."""
_PART_BITS = 5
PARTS = 1 << _PART_BITS
"""Into how many parts a larger file is cut; a part of it is held in memory."""
_READABLE, _REPEATED_HOUR, _SPEED_UNREADABLE = 1, 2, 4
_ROW = np.dtype(
    [
        ("time_us", np.int64),
        ("latitude", np.float64),
        ("longitude", np.float64),
        ("speed", np.float64),
        ("vehicle", np.int32),
        ("flags", np.uint8),
    ],
    align=True,
)


def vehicle_parts(blocks: Iterator[Records], scratch: Path | None) -> Iterator[Records]:
    """Yield the rows of all ``blocks`` in parts, after the last block was read.

    Up to ROWS_AT_ONCE rows are one part, in the order of the file, and so are all without a ``scratch``:
    a folder in which rows may be written meanwhile, in files without a name. Raises OSError where the disk
    is full.
    """
    held: list[Records] = []
    rows = 0
    for block in blocks:
        held.append(block)
        rows += len(block)
        if scratch is not None and rows > ROWS_AT_ONCE:
            break
    else:
        yield Records.concatenate(held)
        return
    with ExitStack() as opened:
        parts = _Parts([opened.enter_context(Spill(scratch, _ROW)) for _ in range(PARTS)])
        while held:
            parts.append(held.pop(0))
        for block in blocks:
            parts.append(block)
        yield from parts.read()


class _Parts:
    """Vehicles are numbered 0, 1, 2, ... as they come; number n is vehicle n // PARTS of part n % PARTS."""

    def __init__(self, spills: list[Spill]) -> None:
        self._spills = spills
        self._number: dict[str, int] = {}
        self._of_spelling: dict[str | None, int] = {None: -1}
        self._malformed = 0

    def append(self, block: Records) -> None:
        self._malformed += block.malformed
        number_of = self._numbers(block.vehicle.dictionary)
        place = pc.fill_null(block.vehicle.indices, -1).to_numpy(zero_copy_only=False)
        number = np.append(number_of, -1)[place]
        part = (number & (PARTS - 1)).astype(np.uint8)
        order = np.argsort(part, kind="stable")
        flags = (
            _READABLE * block.times.readable.view(np.uint8)
            | _REPEATED_HOUR * block.times.repeated_hour.view(np.uint8)
            | _SPEED_UNREADABLE * block.speed_unreadable.view(np.uint8)
        )
        rows = np.empty(len(block), dtype=_ROW)
        rows["time_us"], rows["speed"] = block.times.time_us[order], block.speed[order]
        rows["latitude"], rows["longitude"] = block.latitude[order], block.longitude[order]
        rows["vehicle"], rows["flags"] = (number >> _PART_BITS)[order], flags[order]
        end = np.cumsum(np.bincount(part, minlength=PARTS))
        for spill, mine in zip(self._spills, np.split(rows, end[:-1]), strict=True):
            spill.append(mine)

    def _numbers(self, identifiers: pa.Array) -> IntArray:
        """Return the number of every identifier, however it is spelt, -1 where it is missing."""
        spelt = identifiers.to_pylist()
        new = [each for each in dict.fromkeys(spelt) if each not in self._of_spelling]
        for spelling, name in zip(new, normalise(new).to_pylist(), strict=True):
            number = -1 if name is None else self._number.setdefault(name, len(self._number))
            self._of_spelling[spelling] = number
        return np.array([self._of_spelling[each] for each in spelt], dtype=np.int64)

    def read(self) -> Iterator[Records]:
        names = list(self._number)
        for part, spill in enumerate(self._spills):
            rows = spill.read(0, len(spill))
            vehicle = rows["vehicle"]
            yield Records(
                vehicle=pa.DictionaryArray.from_arrays(
                    pa.array(np.maximum(vehicle, 0), mask=vehicle < 0),
                    pa.array(names[part::PARTS], pa.string()),
                ),
                times=Times(
                    np.ascontiguousarray(rows["time_us"]),
                    (rows["flags"] & _READABLE).astype(np.bool_),
                    (rows["flags"] & _REPEATED_HOUR).astype(np.bool_),
                ),
                latitude=np.ascontiguousarray(rows["latitude"]),
                longitude=np.ascontiguousarray(rows["longitude"]),
                speed=np.ascontiguousarray(rows["speed"]),
                speed_unreadable=(rows["flags"] & _SPEED_UNREADABLE).astype(np.bool_),
                malformed=self._malformed if part == 0 else 0,
            )
