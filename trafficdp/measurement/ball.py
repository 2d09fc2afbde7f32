"""Vectors in a ball: all of a vehicle's numbers together are no longer than a bound C, in l1 or l2.

A vehicle's real vector v becomes whole numbers of a grain C / 2^20: v min(1, C/|v|) is cut off toward zero,
every entry is brought into -2^20..2^20, and only then squared or added up; while the vector is longer than
2^20 grains, every entry loses one grain. So the bound holds for integers, whatever floats did before, and
whatever v was: what is not finite is 0.

**Theorem.** Two vectors of one vehicle, z and z', are at most 2 * 2^20 grains apart in the ball's norm; z and
the zero vector at most 2^20 (a vehicle that is added or removed). Where entry e is moreover kept in a public
interval low_e..high_e that contains 0, they differ by at most high_e - low_e there, and so by at most the
norm of these. Laplace noise of scale b in all coordinates costs the l1 distance over b; Gaussian noise of
standard deviation s the square of the l2 distance over 2 s^2 (``laws``). *Proof.* Triangle inequality;
shrinking and cutting off toward zero leave an interval that contains zero. QED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Gaussian, Laplace, Law
from trafficdp.measurement.support import IntArray, Support
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.privacy.loss import loss_upper_bound, round_up, to_pico

GRAINS = 1 << 20
"""Grains of the bound."""


@dataclass(frozen=True)
class Ball:
    """``norm`` is 1 or 2, ``bound`` C; ``low`` <= 0 <= ``high`` (E,) bound entries, in grains.

    ``support`` has the entries, public under ``relation`` REPLACE_USER_VALUES. Raises UsageError when these
    do not fit together.
    """

    support: Support
    norm: int
    bound: float
    relation: NeighbouringRelation
    low: IntArray
    high: IntArray

    def __post_init__(self) -> None:
        fits = self.low.shape == self.high.shape == self.support.user.shape and self.norm in (1, 2)
        inside = int(self.low.max(initial=0)) <= 0 <= int(self.high.min(initial=0))
        inside &= int(self.high.max(initial=0)) <= GRAINS and int(self.low.min(initial=0)) >= -GRAINS
        if not (fits and inside and 0 < self.bound < np.inf):
            raise UsageError("a ball is out of range", expected="a bound above 0, intervals around 0")
        self.support.require_room(self.high - self.low)

    @property
    def size(self) -> int:
        """How many sums there are, C."""
        return self.support.coordinates

    @property
    def grain(self) -> float:
        """The unit of the sums."""
        return self.bound / GRAINS

    def sums(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the sums (C,) in grains of ``values`` (E,), each vehicle's vector in the ball."""
        return self.support.sums(self.inside(values))

    def inside(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the whole numbers (E,) that ``values`` become."""
        user, users = self.support.user, self.support.users
        real = np.zeros(len(user))
        flat = np.ravel(values)[: len(user)].astype(np.float64)
        real[: len(flat)] = np.where(np.isfinite(flat), flat, 0.0)
        # the longest entry first, so that no square leaves the floats
        largest = np.zeros(users)
        np.maximum.at(largest, user, np.abs(real))
        share = real / np.where(largest > 0, largest, 1.0)[user]
        length = largest * np.bincount(user, np.abs(share) ** self.norm, users) ** (1 / self.norm)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = real * np.minimum(1.0, self.bound / np.where(length > 0, length, 1.0))[user] / self.grain
        whole = np.trunc(np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -GRAINS, GRAINS))
        found: IntArray = np.clip(whole.astype(np.int64), self.low, self.high)
        while True:
            size = np.zeros(users, dtype=np.int64)
            np.add.at(size, user, np.abs(found) ** self.norm)
            long = (size > GRAINS**self.norm)[user]
            if not bool(long.any()):
                return found
            found = found - np.where(long, np.sign(found), 0)

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""
        return self.support.sums(np.maximum(self.high, -self.low))

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses, shape (users,); raises UsageError for a law without theorem."""
        users, user = self.support.users, self.support.user
        ends = self.high - self.low
        if self.relation is NeighbouringRelation.ADD_OR_REMOVE_USER:
            ends = np.maximum(self.high, -self.low)
        moves = 1 if self.relation is NeighbouringRelation.ADD_OR_REMOVE_USER else 2
        far = np.zeros(users, dtype=np.int64)
        np.add.at(far, user, ends**self.norm)
        far = np.minimum(far, (moves * GRAINS) ** self.norm).astype(np.float64)
        if self.norm == 1 and isinstance(law, Laplace):
            return to_pico(loss_upper_bound(far, np.full(users, _only(law.scale))))
        if self.norm == 2 and isinstance(law, Gaussian):
            ratio = loss_upper_bound(far, np.full(users, _only(law.sd)))
            return to_pico(np.where(far > 0, round_up(ratio / (2 * _only(law.sd))), 0.0))
        raise UsageError(
            "no theorem prices a ball under this noise",
            got=f"l{self.norm}, {type(law).__name__}",
            expected="l1 with Laplace noise, or l2 with Gaussian noise",
        )


def _only(scales: npt.NDArray[np.float64]) -> float:
    """The least of ``scales``: what all coordinates are priced by."""
    return float(scales.min(initial=np.inf))
