"""What every user pays for in every block: the largest of its amounts there, found without comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BlockRows:
    """R (user, block) pairs that occur, by user, then block: ``most`` (R,) is the largest amount in each."""

    user: IntArray
    block: IntArray
    most: npt.NDArray[Any]


def block_rows(rows: sparse.csr_matrix, block: IntArray) -> BlockRows:
    """Return the largest entry of ``rows`` (items, users) for every user and ``block`` (items,).

    Two passes over the entries: items in the order of their blocks, then by user.
    """
    order = np.argsort(block, kind="stable")
    by_user = rows[order].tocsc()
    many = np.diff(by_user.indptr)
    of = block[order][by_user.indices]
    new = np.ones(len(of), dtype=np.bool_)
    new[1:] = of[1:] != of[:-1]
    new[by_user.indptr[:-1][many > 0]] = True
    first = np.flatnonzero(new)
    if not len(first):
        return BlockRows(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), by_user.data)
    # how many firsts each user has
    counted = np.searchsorted(first, by_user.indptr)
    user = np.repeat(np.arange(len(many)), np.diff(counted))
    return BlockRows(user, of[first], np.maximum.reduceat(by_user.data, first))
