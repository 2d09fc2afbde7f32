"""Types of arrays, by what they hold, and where equal rows of them begin."""

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
IndexArray = IntArray | npt.NDArray[np.int32]
"""Of positions."""
BoolArray = npt.NDArray[np.bool_]
CellArray = npt.NDArray[np.uint64]
"""Of H3 indices."""


def run_starts(*columns: npt.NDArray[Any]) -> BoolArray:
    """Return which rows of the ``columns``, shape (n,) each, differ from the row before; the first does."""
    starts = np.ones(len(columns[0]), dtype=np.bool_)
    starts[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return starts
