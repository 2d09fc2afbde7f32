"""A private quantile of the vehicles' own numbers: one whole number a vehicle and coordinate.

The set: x_e in 0..high_c. Candidates are all whole numbers t in 0..high_c, and t is drawn with probability
proportional to exp(-|#{x < t} - rank_c| / scale_c) (the exponential mechanism; Smith 2011 for quantiles).

**Theorem.** One vehicle has one number in a coordinate, so #{x < t} moves by at most 1 for every t, and the
score with it. The draw costs each of the coordinate's vehicles 2/scale in epsilon (McSherry and Talwar 2007),
and, as a mechanism of bounded range 2/scale, (2/scale)^2/8 in rho (Cesar and Rogers 2021). Numbers that are
equal leave no candidate between them: its weight is exactly 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.support import FloatArray, IntArray, Support, as_integers
from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import loss_upper_bound, round_up, sum_per_user, to_pico
from trafficdp.privacy.loss_kind import LossKind


@dataclass(frozen=True)
class Ranks:
    """``high``, ``rank`` and ``scale`` (C,) are public; scale 0 takes the first candidate of best score."""

    support: Support
    high: IntArray
    rank: IntArray
    scale: FloatArray
    kind: LossKind

    def __post_init__(self) -> None:
        if int(self.high.min(initial=0)) < 0 or not bool(np.all(self.scale >= 0)):
            raise UsageError("a choice is out of range", expected="lattices and scales of at least 0")

    def loss(self) -> IntArray:
        """Return what every vehicle loses, in whole 10^-12, shape (users,)."""
        return choice_loss(self.support, np.ones(len(self.scale)), self.scale, self.kind)

    def draw(self, source: NoiseSource, values: npt.NDArray[Any]) -> IntArray:
        """Return one number a coordinate, shape (C,), for ``values`` (E,), brought into the set first."""
        support, high = self.support, self.high
        inside = np.clip(as_integers(values, len(support.user)), 0, high[support.coordinate])
        ordered = inside[np.lexsort((inside, support.coordinate))]
        many = np.bincount(support.coordinate, minlength=support.coordinates)
        # cell i of a coordinate: the candidates above its i-th number, up to the next one
        first = np.concatenate([[0], np.cumsum(many + 1)]).astype(np.int64)
        owner = np.repeat(np.arange(support.coordinates), many + 1)
        below = np.arange(len(owner)) - first[:-1][owner]
        ends = np.full(len(owner), -1, dtype=np.int64)
        is_number = below < many[owner]
        ends[is_number] = ordered
        ends[~is_number] = high[owner[~is_number]]
        begins = np.where(below == 0, -1, np.roll(ends, 1))
        cost = np.abs(below - self.rank[owner])
        cell = source.choose(cost, ends - begins, first, self.scale)[0]
        return np.asarray(begins[cell] + 1 + source.uniform_below((ends - begins)[cell]))


def choice_loss(support: Support, change: FloatArray, scale: FloatArray, kind: LossKind) -> IntArray:
    """Return what an exponential mechanism costs every vehicle, whole 10^-12, shape (users,).

    One vehicle changes every score of a coordinate by at most ``change`` (C,); P is proportional to
    exp(-score/``scale``). In pure epsilon 2 change/scale, in rho an eighth of its square.
    """
    loss = loss_upper_bound(2.0 * change, scale)
    if kind is LossKind.ZCDP:
        loss = np.where(loss > 0, round_up(round_up(loss * loss) / 8), 0.0)
    return sum_per_user(to_pico(loss)[support.coordinate], support.user, support.users)
