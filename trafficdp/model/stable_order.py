"""Sorting by small whole numbers in linear time: counting, where a sort by comparison takes n log n.

The transpose of a sparse matrix in compressed rows is such a sort; scipy does it in compiled code.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse

IntArray = npt.NDArray[np.int64]
NARROW = int(np.iinfo(np.int32).max)


def stable_order(key: npt.NDArray[np.integer], size: int) -> npt.NDArray[np.integer]:
    """Return the positions (n,) that sort ``key`` (n,), all of it in 0..``size`` - 1; equal ones stay in order.

    What ``numpy.argsort(key, kind="stable")`` gives, in time n + ``size``. Positions are 32 bits wide where
    they fit.
    """
    number = len(key)
    width = np.int32 if max(number, size) < NARROW else np.int64
    one_row = sparse.csr_matrix(
        (np.arange(number, dtype=width), key.astype(width, copy=False), np.array([0, number], dtype=width)),
        shape=(1, size),
    )
    result: npt.NDArray[np.integer] = one_row.tocsc().data
    return result
