"""Which vehicle has which coordinate: public where counts are; and sums in multiples of powers of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.privacy.loss import sum_per_user, to_pico

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Values = npt.NDArray[Any]
LARGEST_SUM = 1 << 61
"""No public bound of a sum is above this: sums and their multiples stay in 64 bits."""


@dataclass(frozen=True)
class Support:
    """E entries, in the order of coordinate, then vehicle, no entry twice: ``user`` and ``coordinate`` (E,).

    Raises UsageError when entries are not in order, or out of range of ``users`` and ``coordinates``.
    """

    user: IntArray
    coordinate: IntArray
    users: int
    coordinates: int

    def __post_init__(self) -> None:
        inside = all(
            int(index.min(initial=0)) >= 0 and int(index.max(initial=-1)) < size
            for index, size in ((self.user, self.users), (self.coordinate, self.coordinates))
        )
        rising = np.diff(self.coordinate) > 0
        rising |= (np.diff(self.coordinate) == 0) & (np.diff(self.user) > 0)
        if not inside or len(self.user) != len(self.coordinate) or not bool(rising.all()):
            raise UsageError(
                "entries of a measurement are not in order",
                expected="each vehicle once a coordinate, by coordinate, then vehicle",
            )

    def sums(self, values: IntArray) -> IntArray:
        """Return the sums of ``values`` (E,) over the vehicles of every coordinate, exactly, shape (C,)."""
        total = np.zeros(self.coordinates, dtype=np.int64)
        np.add.at(total, self.coordinate, values)
        return total

    def losses(self, entry: FloatArray) -> IntArray:
        """Return what every vehicle loses, whole 10^-12, shape (users,), by ``entry`` (E,) or less."""
        return sum_per_user(to_pico(entry), self.user, self.users)

    def require_room(self, largest: IntArray) -> None:
        """Raise UsageError when sums of up to ``largest`` (E,) an entry could leave 64 bits."""
        if float(np.bincount(self.coordinate, largest, self.coordinates).max(initial=0.0)) >= LARGEST_SUM:
            raise UsageError("sums could leave 64 bits", todo="choose a larger speed_step")


def as_integers(values: Values, size: int) -> IntArray:
    """Return ``values`` as ``size`` whole numbers, whatever they are: no error tells of a value.

    What is not finite is 0, fractions are cut off, what is missing is 0 and what is too much is left out.
    """
    flat = np.ravel(values)[:size]
    if flat.dtype.kind not in "iub":
        flat = np.clip(np.where(np.isfinite(flat), flat, 0.0), -(2.0**62), 2.0**62)
    found = np.zeros(size, dtype=np.int64)
    found[: len(flat)] = flat.astype(np.int64)
    return found


def shifted_move(move: IntArray, shift: IntArray) -> IntArray:
    """Return how far ``move`` carries a sum that is multiplied by 2^``shift``, or floored, elementwise.

    Both are those of a step, which made sure that they fit 64 bits.
    """
    # rounded up: right shifts of negative numbers floor
    down = -np.right_shift(-move, np.maximum(-shift, 0))
    return np.where(shift < 0, down, np.left_shift(move, np.maximum(shift, 0))).astype(np.int64)


def shifted_sum(sums: IntArray, shift: IntArray) -> IntArray:
    """Return ``sums`` times 2^``shift``, floored where that is no whole number, elementwise."""
    return np.right_shift(np.left_shift(sums, np.maximum(shift, 0)), np.maximum(-shift, 0))
