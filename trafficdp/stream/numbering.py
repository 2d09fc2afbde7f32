"""Dense numbers for keys, in the order in which they are first met; a number never changes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
UNKNOWN = -1


class Numbering:
    """Keys of 64-bit integers numbered 0, 1, 2, ...: ``keys`` (n,) holds key number i at place i."""

    def __init__(self, keys: IntArray | None = None) -> None:
        self.keys = np.zeros(0, dtype=np.int64) if keys is None else np.asarray(keys, dtype=np.int64).copy()
        self._sort()

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, key: IntArray) -> IntArray:
        """Return the number of every key, shape (n,); UNKNOWN where it has none."""
        if not len(self.keys) or not len(key):
            return np.full(len(key), UNKNOWN, dtype=np.int64)
        place = np.minimum(np.searchsorted(self._sorted, key), len(self._sorted) - 1)
        return np.where(self._sorted[place] == key, self._order[place], UNKNOWN)

    def number(self, key: IntArray) -> IntArray:
        """Return the number of every key, shape (n,); new keys get the next numbers, by first appearance."""
        found = self.find(key)
        missing = np.flatnonzero(found == UNKNOWN)
        if len(missing):
            new, first = np.unique(key[missing], return_index=True)
            self.keys = np.concatenate([self.keys, new[np.argsort(first, kind="stable")]])
            self._sort()
            found[missing] = self.find(key[missing])
        return found

    def _sort(self) -> None:
        self._order = np.argsort(self.keys, kind="stable").astype(np.int64)
        self._sorted = self.keys[self._order]


def pack(high: IntArray, low: IntArray) -> IntArray:
    """Return one key for every pair of numbers, both from 0 to 2^31 - 1."""
    return np.asarray(high << 32 | low, dtype=np.int64)


def unpack(key: IntArray) -> tuple[IntArray, IntArray]:
    """Return the pairs that ``pack`` made keys of."""
    return np.asarray(key >> 32, dtype=np.int64), np.asarray(key & 0xFFFFFFFF, dtype=np.int64)
