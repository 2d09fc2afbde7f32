"""Exact losses against charges: fractions, added up a vehicle and compared without rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import AllocationError

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
ObjectArray = npt.NDArray[np.object_]
PICO = 10**12
FRACTION_BITS = 30
"""Losses are added as whole 2^-30 of a unit of charges, rounded down; what that leaves open is exact."""


@dataclass(frozen=True)
class Losses:
    """Entry t: vehicle ``user[t]`` loses ``numerator[t]`` / ``denominator[t]``; Python integers, (T,)."""

    user: IntArray
    numerator: ObjectArray
    denominator: ObjectArray

    def times(self, factor: Fraction) -> Losses:
        """Return every loss multiplied by ``factor``."""
        return Losses(self.user, self.numerator * factor.numerator, self.denominator * factor.denominator)


def by_noise(user: IntArray, change: ObjectArray, scale: FloatArray) -> Losses:
    """Return change / scale of every entry, the scale as the exact fraction that its float is.

    What changes nothing costs nothing. Raises AllocationError where something changes without noise.
    """
    varies = np.flatnonzero(change > 0)
    user, change, scale = user[varies], change[varies], scale[varies]
    if not bool(np.all(np.isfinite(scale) & (scale > 0))):
        raise unsound("a number that can vary would have no noise")
    above, below = as_ratio(scale)
    return Losses(user, change * below, above)


def as_ratio(number: FloatArray) -> tuple[ObjectArray, ObjectArray]:
    """Return finite floats as exact numerators and denominators."""
    distinct, which = np.unique(number, return_inverse=True)
    ratios = [value.as_integer_ratio() for value in distinct.tolist()]
    above = np.array([top for top, _ in ratios] + [0], dtype=object)[:-1]
    below = np.array([bottom for _, bottom in ratios] + [0], dtype=object)[:-1]
    return above[which], below[which]


def require_covered(losses: Callable[[], Iterable[Losses]], charged: IntArray) -> None:
    """Raise AllocationError if a vehicle's losses add up to more than ``charged`` (10^-12, (users,)).

    ``losses`` gives them part by part, and once more for the vehicles that only exact fractions can decide.
    """
    whole, rest, terms = (np.zeros(len(charged), dtype=np.int64) for _ in range(3))
    for each in losses():
        scaled = (each.numerator * (PICO << FRACTION_BITS)) // each.denominator
        if len(scaled) and max(scaled) >> FRACTION_BITS >= 1 << 60:
            raise unsound("a loss that is too large to account for")
        np.add.at(whole, each.user, (scaled >> FRACTION_BITS).astype(np.int64))
        np.add.at(rest, each.user, (scaled & ((1 << FRACTION_BITS) - 1)).astype(np.int64))
        np.add.at(terms, each.user, 1)
        # at most 2^31 terms would carry over; a carry a round keeps both far from 64 bits
        whole += rest >> FRACTION_BITS
        rest &= (1 << FRACTION_BITS) - 1
    # every term was rounded down by less than one 2^-30
    most = whole + ((rest + terms) >> FRACTION_BITS) + 1
    refuse_undercharged(int(np.count_nonzero(whole > charged)))
    open_ones = (whole <= charged) & (most > charged)
    if bool(open_ones.any()):
        exact = _summed(losses(), open_ones)
        refuse_undercharged(sum(loss * PICO > int(charged[user]) for user, loss in exact.items()))


def _summed(losses: Iterable[Losses], chosen: npt.NDArray[np.bool_]) -> dict[int, Fraction]:
    """Return the exact sum of the losses of every chosen vehicle.

    Losses over the same denominator are added as integers first: most have few denominators.
    """
    found: dict[int, Fraction] = {}
    for each in losses:
        mine = np.flatnonzero(chosen[each.user])
        distinct = sorted(set(each.denominator[mine].tolist()))
        which = np.searchsorted(np.array([*distinct, 0], dtype=object)[:-1], each.denominator[mine])
        key, group = np.unique(each.user[mine] * max(1, len(distinct)) + which, return_inverse=True)
        total = np.zeros(len(key), dtype=object)
        np.add.at(total, group, each.numerator[mine])
        for one, numerator in zip(key.tolist(), total.tolist(), strict=True):
            user, below = divmod(one, len(distinct))
            found[user] = found.get(user, Fraction(0)) + Fraction(numerator, distinct[below])
    return found


def refuse_undercharged(vehicles: int) -> None:
    """Raise AllocationError when there are ``vehicles`` that lose more than they are charged."""
    if vehicles:
        raise unsound(f"{vehicles} vehicles would lose more than they are charged")


def unsound(found: str) -> AllocationError:
    """Return the error of an allocation that does not hold."""
    return AllocationError(
        "the allocation does not hold",
        got=found,
        expected="a charge that covers every vehicle's exact loss",
        todo="nothing was charged; report this: it is an error of trafficdp or of an altered plan",
    )


def best_whole(
    count: ObjectArray, samples: ObjectArray, linear: ObjectArray, bend: ObjectArray
) -> ObjectArray:
    """Return the k in 0..m with the largest k linear + k (N - k) bend, both at least 0."""
    safe = np.where(bend > 0, bend, 1)
    # the k-th step is linear + (N - 2 k + 1) bend: above 0 while 2 k bend < linear + (N + 1) bend
    last = (linear + (samples + 1) * safe - 1) // (2 * safe)
    return np.where(bend > 0, np.minimum(last, count), count)
