"""Vectors in a box: every entry is a whole number from 0 to a public most.

**Theorem.** With x_e, x'_e in 0..h_e, two vectors of one vehicle differ by at most h_e in entry e, in all
entries at once, and by exactly that for x = 0, x' = h. So noise that charges for a move of h charges for the
worst, and for no more. Sums that are multiplied by 2^k move by 2^k times as much; sums that are floored to
multiples of 2^k move by at most ceil(h/2^k) multiples: floor((r + h)/c) - floor(r/c) <= ceil(h/c), with
equality for some r.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Law
from trafficdp.measurement.support import IntArray, Support, Values, as_integers, shifted_move


@dataclass(frozen=True)
class Box:
    """``high`` (E,) is the most of every entry. Raises UsageError for one below 0, or sums beyond 64 bits."""

    support: Support
    high: IntArray

    def __post_init__(self) -> None:
        if self.high.shape != self.support.user.shape or int(self.high.min(initial=0)) < 0:
            raise UsageError("a box has no such sides", expected="a whole number of at least 0 an entry")
        self.support.require_room(self.high)

    def sums(self, values: Values) -> IntArray:
        """Return the sums (C,) of ``values`` (E,), each brought into the box first."""
        return self.support.sums(np.clip(as_integers(values, len(self.high)), 0, self.high))

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""
        return self.support.sums(self.high)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses, shape (users,), when sums are multiplied by 2^``shift`` (C,)."""
        return law.loss(self.support, self.moves(shift))

    def moves(self, shift: IntArray) -> IntArray:
        """Return how far every entry moves its sum then, shape (E,)."""
        return shifted_move(self.high, shift[self.support.coordinate])
