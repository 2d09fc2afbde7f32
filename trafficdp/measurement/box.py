"""Vectors in a box: every entry is a whole number from 0 to a public most.

**Theorem.** With x_e, x'_e in 0..h_e, two vectors of one vehicle differ by at most h_e in entry e, in all
entries at once, and by exactly that for x = 0, x' = h. So noise that charges for a move of h charges for the
worst, and for no more. Sums that are multiplied by 2^k move by 2^k times as much; sums that are floored to
multiples of 2^k move by at most ceil(h/2^k) multiples: floor((r + h)/c) - floor(r/c) <= ceil(h/c), with
equality for some r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Block, Law
from trafficdp.measurement.support import IntArray, Support, as_integers, shifted_move


@dataclass(frozen=True)
class Box:
    """``high`` (E,) is the most of every entry. Raises UsageError for one below 0, or sums beyond 64 bits."""

    support: Support
    high: IntArray

    def __post_init__(self) -> None:
        if self.high.shape != self.support.user.shape or int(self.high.min(initial=0)) < 0:
            raise UsageError("a box has no such sides", expected="a whole number of at least 0 an entry")
        self.support.require_room(self.high)

    @property
    def size(self) -> int:
        """How many sums there are, C."""
        return self.support.coordinates

    def sums(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the sums (C,) of ``values`` (E,), each brought into the box first."""
        return self.support.sums(np.clip(as_integers(values, len(self.high)), 0, self.high))

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""
        return self.support.sums(self.high)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses, shape (users,), when sums are multiplied by 2^``shift`` (C,)."""
        return law.loss(self.support, shifted_move(self.high, shift[self.support.coordinate]))

    def units(self, law: Block, shift: IntArray) -> IntArray:
        """Return what every vehicle pays in units of 1/s, shape (users,): ``loss`` before s is known."""
        move = shifted_move(self.high, shift[self.support.coordinate])
        return law.largest(self.support, law.units(self.support, move))
