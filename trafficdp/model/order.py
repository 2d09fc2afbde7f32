"""Sorting by small whole numbers in linear time: counting, where a sort by comparison takes n log n.

The transpose of a sparse matrix in compressed rows is such a sort; scipy does it in compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Whole = npt.NDArray[np.int64] | npt.NDArray[np.int32]
FEW = 4_000
"""So few keys are sorted by comparison before scipy has begun to count."""
LONGEST = int(np.iinfo(np.int32).max)
"""Keys whose positions 32 bits can say."""


def stable_order(key: Whole, size: int) -> Whole:
    """Return the positions (n,) that sort ``key`` (n,), all of it in 0..``size`` - 1; equal ones in order.

    What ``numpy.argsort(key, kind="stable")`` gives, in time n + ``size``.
    Raises IndexError for a key out of range.
    """
    number = len(key)
    if number and not 0 <= int(key.min()) <= int(key.max()) < size:
        raise IndexError(f"a key is not in 0..{size - 1}")
    if not FEW < number <= LONGEST:
        return np.argsort(key, kind="stable")
    # it takes longer to import than some commands to run
    from scipy import sparse

    positions = np.arange(number, dtype=np.int32)
    one_row = sparse.csr_matrix((positions, key, np.array([0, number])), shape=(1, size))
    result: npt.NDArray[np.int32] = one_row.tocsc().data
    return result


def number_pairs(
    first: Whole, second: Whole, firsts: int, seconds: int
) -> tuple[IntArray, IntArray, IntArray]:
    """Return the different pairs (``first``, ``second``), in order, and which of them each entry is.

    Keys, shape (n,), are in 0..``firsts`` - 1 and 0..``seconds`` - 1. The first and the second of every
    different pair come back, and the number of every entry's pair, shape (n,). Raises as ``stable_order``.
    """
    order = stable_order(second, seconds)
    order = order[stable_order(first[order], firsts)]
    one, two = first[order], second[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (one[1:] != one[:-1]) | (two[1:] != two[:-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return one[new].astype(np.int64), two[new].astype(np.int64), number


def largest_two(
    values: npt.NDArray[Any], group: IntArray, groups: int
) -> tuple[npt.NDArray[Any], IntArray, npt.NDArray[Any]]:
    """Return the largest of every group, where it is, and the second largest (0 in a group of one)."""
    if not groups:
        return values[:0], group[:0], values[:0]
    order = stable_order(group, groups)
    many = np.bincount(group, minlength=groups)
    start = np.cumsum(many) - many
    by_group = values[order]
    top = np.maximum.reduceat(by_group, start)
    places = np.flatnonzero(by_group == np.repeat(top, many))
    # the first of equals
    places = places[np.searchsorted(places, start)]
    at = order[places].astype(np.int64)
    by_group[places] = by_group.min()
    return top, at, np.where(many > 1, np.maximum.reduceat(by_group, start), 0)
