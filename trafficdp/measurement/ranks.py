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

    def draw(self, source: NoiseSource, values: npt.NDArray[Any]) -> IntArray:
        """Return one number a coordinate, shape (C,), for ``values`` (E,), brought into the set first."""
        support, at = self.support, self.support.coordinate
        inside = np.clip(as_integers(values, len(support.user)), 0, self.high[at])
        number = inside[np.lexsort((inside, at))]
        many = np.bincount(at, minlength=support.coordinates)
        first = np.concatenate([[0], np.cumsum(many)])[:-1]
        place = np.arange(len(at)) - first[at]
        # a cell is one number that vehicles have, or all candidates between two; they take turns
        start = np.concatenate([[0], np.cumsum(2 * many + 1)]).astype(np.int64)
        between, own, last = start[at] + 2 * place, start[at] + 2 * place + 1, start[1:] - 1
        before = np.where(place == 0, -1, np.roll(number, 1))
        # a number that several have is a cell once, at the first of them
        new = (place == 0) | (number != before)
        group = np.cumsum(new) - 1
        greatest = np.full(support.coordinates, -1, dtype=np.int64)
        np.maximum.at(greatest, at, number)
        begin, weight, below, upto = (np.zeros(int(start[-1]), dtype=np.int64) for _ in range(4))
        begin[between], begin[own], begin[last] = before + 1, number, greatest + 1
        weight[between], weight[own], weight[last] = (
            np.maximum(number - before - 1, 0),
            new,
            self.high - greatest,
        )
        below[between], below[own], below[last] = place, place, many
        upto[between], upto[own], upto[last] = place, place + np.bincount(group)[group], many
        owner = np.repeat(np.arange(support.coordinates), 2 * many + 1)
        cost = np.maximum(np.maximum(below - self.rank[owner], self.above[owner] - upto), 0)
        cell = source.choose(cost, weight, start, self.scale)[0]
        return np.asarray(begin[cell] + source.uniform_below(weight[cell]))


def choice_loss(support: Support, change: FloatArray, scale: FloatArray, kind: LossKind) -> IntArray:
    """Return what an exponential mechanism costs every vehicle, whole 10^-12, shape (users,).

    One vehicle changes every score of a coordinate by at most ``change`` (C,); P is proportional to
    exp(-score/``scale``). In pure epsilon 2 change/scale, in rho an eighth of its square.
    """
    loss = loss_upper_bound(2.0 * change, scale)
    if kind is LossKind.ZCDP:
        loss = np.where(loss > 0, round_up(round_up(loss * loss) / 8), 0.0)
    return sum_per_user(to_pico(loss)[support.coordinate], support.user, support.users)
