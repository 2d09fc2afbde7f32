"""Exact user-level sensitivities of the means of one bin, values in [0, U].

Relation REPLACE_USER_VALUES: one vehicle's values change, counts are public. N = records in the bin,
m = records of the vehicle in it. All functions are vectorised over (bin, vehicle) pairs and return floats;
exact up to rounding of a few units in the last place (losses are computed from integers elsewhere).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def mean_sensitivity(count: IntArray, samples: IntArray, upper: float) -> FloatArray:
    """Return U m / N: the most that one vehicle moves the mean of a bin. Exact."""
    return upper * count / samples


def vehicle_mean_sensitivity(users: IntArray, upper: float) -> FloatArray:
    """Return U / L: every vehicle's own mean lies in [0, U] and weighs 1/L of a bin with L vehicles."""
    return upper / users
