"""A private quantile of the vehicles' own numbers: one whole number a vehicle and coordinate.

The set: x_e in 0..high_c. Candidates are all whole numbers t in 0..high_c, and t is drawn with probability
proportional to exp(-cost(t) / scale_c) (the exponential mechanism; Smith 2011 for quantiles), where

    cost(t) = max(0, #{x < t} - rank_c, above_c - #{x <= t}),

by how many vehicles t misses: a q-quantile of n vehicles is what costs nothing at rank = floor(q n) and
above = ceil(q n), and there always is one, also where many vehicles have the same number.

**Theorem.** One vehicle has one number in a coordinate, so #{x < t} and #{x <= t} move by at most 1 for every
t, and the largest of the three with them. The draw costs each of the coordinate's vehicles 2/scale in epsilon
(McSherry and Talwar 2007), and, as a mechanism of bounded range 2/scale, (2/scale)^2/8 in rho (Cesar and
Rogers 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.errors import UsageError
from trafficdp.measurement.support import FloatArray, IntArray, Support, Values, as_integers
from trafficdp.noise.protocol import NoiseSource
from trafficdp.privacy.loss import LossKind, loss_upper_bound, round_up


@dataclass(frozen=True)
class Ranks:
    """``high``, ``rank``, ``above`` and ``scale`` (C,) are public; scale 0 takes the first of least cost."""

    support: Support
    high: IntArray
    rank: IntArray
    above: IntArray
    scale: FloatArray
    kind: LossKind

    def __post_init__(self) -> None:
        if int(self.high.min(initial=0)) < 0 or not bool(np.all(self.scale >= 0)):
            raise UsageError("a choice is out of range", expected="lattices and scales of at least 0")

    def loss(self) -> IntArray:
        """Return what every vehicle loses, in whole 10^-12, shape (users,)."""
        return choice_loss(self.support, np.ones(len(self.scale)), self.scale, self.kind)

    def draw(self, source: NoiseSource, values: Values) -> IntArray:
        """Return one number a coordinate, shape (C,), for ``values`` (E,), brought into the set first."""
        begin, cost, weight, start = self.cells(values)
        cell = source.choose(cost, weight, start, self.scale)[0]
        return np.asarray(begin[cell] + source.uniform_below(weight[cell]))

    def cells(self, values: Values) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return the candidates in cells of one cost: their first number, cost, and how many they are.

        Those of coordinate c are ``start[c]:start[c + 1]``, in order; the last of the four is ``start``.
        """
        at, many = self.support.coordinate, np.arange(self.support.coordinates)
        inside = np.clip(as_integers(values, len(at)), 0, self.high[at])
        # the cost changes only at a number that a vehicle has, and behind it; of equal ends the last counts
        owner = np.concatenate([many, at, at])
        begin = np.concatenate([np.zeros_like(many), inside, inside + 1])
        order = np.lexsort((begin, owner))
        owner, begin = owner[order], begin[order]
        start = np.searchsorted(owner, np.arange(len(many) + 1))
        earlier = ((start[:-1] - many) // 2)[owner]
        upto = np.cumsum((order >= len(many)) & (order < len(many) + len(at))) - earlier
        below = np.cumsum(order >= len(many) + len(at)) - earlier
        weight = np.diff(begin, append=0)
        weight[start[1:] - 1] = self.high + 1 - begin[start[1:] - 1]
        cost = np.maximum(np.maximum(below - self.rank[owner], self.above[owner] - upto), 0)
        return begin, cost, weight, start


def choice_loss(support: Support, change: FloatArray, scale: FloatArray, kind: LossKind) -> IntArray:
    """Return what an exponential mechanism costs every vehicle, whole 10^-12, shape (users,).

    One vehicle changes every score of a coordinate by at most ``change`` (C,); P is proportional to
    exp(-score/``scale``). In pure epsilon 2 change/scale, in rho an eighth of its square.
    """
    loss = loss_upper_bound(2.0 * change, scale)
    if kind is LossKind.ZCDP:
        loss = np.where(loss > 0, round_up(round_up(loss * loss) / 8), 0.0)
    return support.losses(loss[support.coordinate])
