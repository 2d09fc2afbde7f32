"""Which of its group every entry is: 0, 1, 2, ... in the order in which the entries stand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


def rank_in_sorted(group: IntArray) -> IntArray:
    """Return how many earlier entries of the same group each entry has, of a sorted ``group`` (n,)."""
    place = np.arange(len(group))
    first = np.append(True, group[1:] != group[:-1])[: len(group)]
    return place - np.maximum.accumulate(np.where(first, place, 0))


def rank_within(group: IntArray) -> IntArray:
    """Return how many earlier entries of the same group each entry has, in any order, shape (n,)."""
    order = np.argsort(group, kind="stable")
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = rank_in_sorted(group[order])
    return rank
