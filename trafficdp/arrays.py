"""Types of arrays, by what they hold."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
IndexArray = IntArray | npt.NDArray[np.int32]
"""Of positions."""
BoolArray = npt.NDArray[np.bool_]
CellArray = npt.NDArray[np.uint64]
"""Of H3 indices."""
