"""What vehicles have where, when not even that is public: a value an entry, and whose and where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Entries:
    """``user``, ``coordinate`` and ``value`` (E,), in any order; those of one user and coordinate add up."""

    user: IntArray
    coordinate: IntArray
    value: FloatArray

    def __repr__(self) -> str:
        return "<Entries: redacted>"


Handed = npt.NDArray[Any] | Entries
"""What a step reads: values in the order of public entries, or entries."""
