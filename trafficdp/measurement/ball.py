"""Vectors in a ball: all of a vehicle's numbers together are no longer than a bound C, in l1 or l2.

A vehicle's real vector v becomes whole numbers of a grain C / 2^20: v min(1, C/|v|) is cut off toward zero,
every entry is brought into -2^20..2^20, and only then squared or added up; while the vector is longer than
2^20 grains, every entry loses one grain. So the bound holds for integers, whatever floats did before, and
whatever v was: what is not finite is 0.

**Theorem (REPLACE_USER_VALUES, ``Ball``).** Two vectors of one vehicle, z and z', are at most 2 * 2^20 grains
apart in the ball's norm. Where entry e is moreover kept in a public interval low_e..high_e that contains 0,
they differ by at most high_e - low_e there, and so by at most the norm of these. Laplace noise of scale b in
all coordinates costs the l1 distance over b; Gaussian noise of standard deviation s the square of the l2
distance over 2 s^2 (``laws``). *Proof.* Triangle inequality; shrinking and cutting off toward zero leave an
interval that contains zero. QED.

**Theorem (ADD_OR_REMOVE_USER, ``HiddenBall``).** A vehicle that is added or removed, with all its records,
moves the sums by its own vector z, of at most 2^20 grains, wherever its entries are: 2^20/b in epsilon,
2^40/(2 s^2) in rho. *Proof.* z follows from the vehicle's own entries alone, so no other vehicle's changes
(Canonne, Kamath, Steinke 2020, Proposition 5, for the shift of a discrete Gaussian). QED. So every possible
vehicle loses the same, and the price is one number, whoever is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Gaussian, Laplace, Law
from trafficdp.measurement.support import FloatArray, IntArray, Support
from trafficdp.privacy.loss import loss_upper_bound, round_up, to_pico
from trafficdp.sensitive.values import Entries

GRAINS = 1 << 20
"""Grains of the bound."""
LARGEST_ENTRIES = 1 << 20
"""Of a vehicle in a hidden ball, in order of coordinate: squares add up to 2^60. Others count as 0."""
LARGEST_USERS = 1 << 40
"""More vehicles than this are no city: sums of a hidden ball stay below 2^60."""


class _Grains:
    bound: float

    @property
    def grain(self) -> float:
        """The unit of the sums."""
        return self.bound / GRAINS


@dataclass(frozen=True)
class Ball(_Grains):
    """``norm`` is 1 or 2, ``bound`` C; ``low`` <= 0 <= ``high`` (E,) bound entries, in grains.

    ``support`` has the entries, which are public. Raises UsageError when these do not fit together.
    """

    support: Support
    norm: int
    bound: float
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

    def sums(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the sums (C,) in grains of ``values`` (E,), each vehicle's vector in the ball."""
        return self.support.sums(self.inside(values))

    def inside(self, values: npt.NDArray[Any]) -> IntArray:
        """Return the whole numbers (E,) that ``values`` become."""
        user, users = self.support.user, self.support.users
        real = np.zeros(len(user))
        flat = np.ravel(values)[: len(user)].astype(np.float64)
        real[: len(flat)] = np.where(np.isfinite(flat), flat, 0.0)
        whole = np.clip(_scaled(real, user, users, self.norm, self.bound), self.low, self.high)
        return _shrunk(whole, user, users, self.norm)

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""
        return self.support.sums(np.maximum(self.high, -self.low))

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses, shape (users,); raises UsageError for a law without theorem."""
        far = np.zeros(self.support.users, dtype=np.int64)
        np.add.at(far, self.support.user, (self.high - self.low) ** self.norm)
        return _price(np.minimum(far, (2 * GRAINS) ** self.norm), self.norm, law)


@dataclass(frozen=True)
class HiddenBall(_Grains):
    """A ball over ``coordinates`` of which nothing is public: not who has entries, nor where, nor how many.

    ``norm`` is 1 or 2, ``bound`` C. Raises UsageError when these are out of range.
    """

    coordinates: int
    norm: int
    bound: float

    def __post_init__(self) -> None:
        if not (self.norm in (1, 2) and self.coordinates >= 1 and 0 < self.bound < np.inf):
            raise UsageError("a ball is out of range", expected="a bound above 0, coordinates, norm 1 or 2")

    @property
    def size(self) -> int:
        """How many sums there are, C."""
        return self.coordinates

    def sums(self, values: Entries) -> IntArray:
        """Return the sums (C,) in grains of ``values``, each vehicle's vector in the ball."""
        _, place, whole = self.inside(values)
        total = np.zeros(self.coordinates, dtype=np.int64)
        np.add.at(total, place, whole)
        return total

    def inside(self, values: Entries) -> tuple[IntArray, IntArray, IntArray]:
        """Return vehicles, coordinates and whole numbers of the entries that count, by vehicle, then place.

        Each vehicle's follow from its own entries alone.
        """
        there = (values.coordinate >= 0) & (values.coordinate < self.coordinates)
        user, place = values.user[there], values.coordinate[there]
        real = np.where(np.isfinite(values.value[there]), values.value[there], 0.0)
        step = np.diff(user)
        if not bool(np.all((step > 0) | ((step == 0) & (np.diff(place) > 0)))):
            order = np.lexsort((place, user))
            user, place, real = user[order], place[order], real[order]
            first = _changes(user) | _changes(place)
            with np.errstate(over="ignore", invalid="ignore"):
                real = np.bincount(np.cumsum(first) - 1, real)
            user, place, real = user[first], place[first], np.where(np.isfinite(real), real, 0.0)
        start, row = np.flatnonzero(_changes(user)), np.cumsum(_changes(user)) - 1
        kept = np.arange(len(user)) - start[row] < LARGEST_ENTRIES
        user, place, real, row = user[kept], place[kept], real[kept], row[kept]
        whole = _scaled(real, row, len(start), self.norm, self.bound)
        return user, place, _shrunk(whole, row, len(start), self.norm)

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""
        return np.full(self.coordinates, LARGEST_USERS * GRAINS, dtype=np.int64)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what any possible vehicle loses, shape (1,); raises UsageError for a law without theorem."""
        return _price(np.array([GRAINS**self.norm]), self.norm, law)


def _changes(key: IntArray) -> npt.NDArray[np.bool_]:
    """Which entries have another key than the one before them; the first has."""
    return np.append(True, key[1:] != key[:-1])[: len(key)]


def _scaled(real: FloatArray, user: IntArray, users: int, norm: int, bound: float) -> IntArray:
    """``real`` (E,), finite, each vehicle's vector clipped to ``bound``, in grains, cut off toward zero."""
    # the longest entry first, so that no square leaves the floats
    largest = np.zeros(users)
    np.maximum.at(largest, user, np.abs(real))
    share = real / np.where(largest > 0, largest, 1.0)[user]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        length = largest * np.bincount(user, np.abs(share) ** norm, users) ** (1 / norm)
        scaled = real * np.minimum(1.0, bound / np.where(length > 0, length, 1.0))[user] / (bound / GRAINS)
    whole = np.trunc(np.clip(np.where(np.isfinite(scaled), scaled, 0.0), -GRAINS, GRAINS))
    return np.asarray(whole, dtype=np.int64)


def _shrunk(whole: IntArray, user: IntArray, users: int, norm: int) -> IntArray:
    """``whole`` (E,), entries of at most GRAINS, brought toward 0 until no vehicle's vector is too long."""
    while True:
        size = np.zeros(users, dtype=np.int64)
        np.add.at(size, user, np.abs(whole) ** norm)
        long = (size > GRAINS**norm)[user]
        if not bool(long.any()):
            return whole
        whole = whole - np.where(long, np.sign(whole), 0)


def _price(far: IntArray, norm: int, law: Law) -> IntArray:
    """What moves of length ``far``, to the power of the norm, cost, whole 10^-12."""
    many = len(far)
    if norm == 1 and isinstance(law, Laplace):
        return to_pico(loss_upper_bound(far.astype(np.float64), np.full(many, _only(law.scale))))
    if norm == 2 and isinstance(law, Gaussian):
        ratio = loss_upper_bound(far.astype(np.float64), np.full(many, _only(law.sd)))
        return to_pico(np.where(far > 0, round_up(ratio / (2 * _only(law.sd))), 0.0))
    raise UsageError(
        "no theorem prices a ball under this noise",
        got=f"l{norm}, {type(law).__name__}",
        expected="l1 with Laplace noise, or l2 with Gaussian noise",
    )


def _only(scales: npt.NDArray[np.float64]) -> float:
    """The least of ``scales``: what all coordinates are priced by."""
    return float(scales.min(initial=np.inf))
