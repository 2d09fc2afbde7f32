"""Each vehicle's fixes in order of time: what finds repeats and the fix before."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

SHORTEST_STEP_US = 2 * 1_000_000
"""Fixes closer than 2 s say too little about speed: positions are rounded."""
LONGEST_STEP_US = 120 * 1_000_000
"""Fixes further apart than 120 s say too little: vehicles turn corners."""
_APART_US = LONGEST_STEP_US + 1
"""Fixes further apart than any pair that counts, and those of two vehicles, are as far apart as this."""


@dataclass(frozen=True, repr=False)
class Timeline:
    """Positions 0..n-1 of fixes, sorted by vehicle, then time, then place in the file.

    ``along`` (n,) lays the vehicles' times end to end, in that order: equal (vehicle, time) pairs have equal
    ones, and a difference up to LONGEST_STEP_US is one between times of the same vehicle.
    """

    order: IntArray
    along: IntArray
    time_us: IntArray

    @classmethod
    def of(cls, vehicle: IntArray, time_us: IntArray) -> Timeline:
        """Sort fixes of ``vehicle`` (numbers from 0) at ``time_us``, both of shape (n,)."""
        # numbers of 16 bits are sorted in linear time
        narrow = vehicle.astype(np.min_scalar_type(vehicle.max(initial=0)))
        order = np.argsort(narrow, kind="stable")
        narrow = narrow[order]
        # most vehicles' fixes are in order of time in the file: only the others' are sorted by it
        back = (narrow[1:] == narrow[:-1]) & (np.diff(time_us[order]) < 0)
        if back.any():
            late = np.zeros(int(narrow[-1]) + 1, dtype=np.bool_)
            late[narrow[1:][back]] = True
            place = np.flatnonzero(late[narrow])
            rows = order[place]
            order[place] = rows[np.lexsort((time_us[rows], narrow[place]))]
        along = np.zeros(len(order), dtype=np.int64)
        step = np.where(narrow[1:] == narrow[:-1], np.diff(time_us[order]), _APART_US)
        np.cumsum(np.minimum(step, _APART_US), out=along[1:])
        return cls(order, along, time_us)

    def repeats(self) -> npt.NDArray[np.bool_]:
        """Return for every fix whether the same vehicle and instant came earlier in the file."""
        result = np.zeros(len(self.order), dtype=np.bool_)
        result[self.order[1:]] = self.along[1:] == self.along[:-1]
        return result

    def preceding(self) -> IntArray:
        """Return for every fix the position of the same vehicle's last fix 2 to 120 s before, else -1."""
        place = np.searchsorted(self.along, self.along - SHORTEST_STEP_US, side="right") - 1
        near = (place >= 0) & (self.along - self.along[place] <= LONGEST_STEP_US)
        result = np.empty(len(self.order), dtype=np.int64)
        result[self.order] = np.where(near, self.order[place], -1)
        return result
