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
2^40/(2 s^2) in rho, for s >= LEAST_SD: with less, rho would not become (epsilon, delta) as it does there
(``privacy.conversion.gaussian_to_approx``). *Proof.* z follows from the vehicle's own entries alone, so no
other vehicle's changes (Canonne, Kamath, Steinke 2020, Proposition 5, for the shift of a discrete Gaussian).
QED. So every possible vehicle loses the same, and the price is one number, whoever is there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.errors import UsageError
from trafficdp.measurement.laws import Gaussian, Laplace, Law
from trafficdp.measurement.support import FloatArray, IntArray, Support, Values
from trafficdp.model import number_pairs
from trafficdp.privacy.conversion import LEAST_SD
from trafficdp.privacy.loss import loss_upper_bound, to_pico
from trafficdp.sensitive.values import Entries

GRAINS = 1 << 20
"""Of the bound: sums are counted in grains of bound / GRAINS."""
LARGEST_ENTRIES = 1 << 20
"""Of a vehicle in a hidden ball, in order of coordinate: squares add up to 2^60. Others count as 0."""
LARGEST_USERS = 1 << 40
"""More vehicles than this are no city: sums of a hidden ball stay below 2^60."""


@dataclass(frozen=True)
class Ball:
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
        fits = fits and bool(np.all((self.low >= -GRAINS) & (self.low <= 0)))
        fits = fits and bool(np.all((self.high <= GRAINS) & (self.high >= 0)))
        if not (fits and 0 < self.bound < np.inf):
            raise UsageError("a ball is out of range", expected="a bound above 0, intervals around 0")
        self.support.require_room(self.high - self.low)

    def sums(self, values: Values) -> IntArray:
        """Return the sums (C,) in grains of ``values`` (E,), each vehicle's vector in the ball."""
        return self.support.sums(self.inside(values))

    def inside(self, values: Values) -> IntArray:
        """Return the whole numbers (E,) that ``values`` become."""
        user, users = self.support.user, self.support.users
        real, flat = np.zeros(len(user)), np.ravel(values)[: len(user)]
        real[: len(flat)] = flat
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
class HiddenBall:
    """A ball over ``coordinates`` of which nothing is public: not who has entries, nor where, nor how many.

    ``norm`` is 1 or 2, ``bound`` C. Raises UsageError when these are out of range.
    """

    coordinates: int
    norm: int
    bound: float

    def __post_init__(self) -> None:
        if not (self.norm in (1, 2) and self.coordinates >= 1 and 0 < self.bound < np.inf):
            raise UsageError("a ball is out of range", expected="a bound above 0, coordinates, norm 1 or 2")

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
        users, user = np.unique(values.user[there], return_inverse=True)
        many = max(len(users), 1)
        user, place, entry = number_pairs(user, values.coordinate[there], many, self.coordinates)
        with np.errstate(over="ignore", invalid="ignore"):
            real = np.bincount(entry, _finite(values.value[there]), len(user)).astype(np.float64)
        kept = np.arange(len(user)) - np.searchsorted(user, user) < LARGEST_ENTRIES
        user, place, real = user[kept], place[kept], real[kept]
        whole = _scaled(real, user, many, self.norm, self.bound)
        return users[user], place, _shrunk(whole, user, many, self.norm)

    def largest(self) -> IntArray:
        """Return what no sum exceeds, shape (C,)."""
        return np.full(self.coordinates, LARGEST_USERS * GRAINS, dtype=np.int64)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what any possible vehicle loses, shape (1,); raises UsageError for a law without theorem."""
        return _price(np.array([GRAINS**self.norm]), self.norm, law, LEAST_SD)


def _finite(real: FloatArray) -> FloatArray:
    return np.where(np.isfinite(real), real, 0.0)


def _scaled(real: FloatArray, user: IntArray, users: int, norm: int, bound: float) -> IntArray:
    """``real`` (E,), each vehicle's vector clipped to ``bound``, in grains, cut off toward zero."""
    real = _finite(real)
    # the longest entry first, so that no square leaves the floats
    largest = np.zeros(users)
    np.maximum.at(largest, user, np.abs(real))
    share = real / np.where(largest > 0, largest, 1.0)[user]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        length = largest * np.bincount(user, np.abs(share) ** norm, users) ** (1 / norm)
        scaled = real * np.minimum(1.0, bound / np.where(length > 0, length, 1.0))[user] / (bound / GRAINS)
    return np.trunc(np.clip(_finite(scaled), -GRAINS, GRAINS)).astype(np.int64)


def _shrunk(whole: IntArray, user: IntArray, users: int, norm: int) -> IntArray:
    """``whole`` (E,), entries of at most GRAINS, brought toward 0 until no vehicle's vector is too long."""
    while True:
        size = np.zeros(users, dtype=np.int64)
        np.add.at(size, user, np.abs(whole) ** norm)
        long = (size > GRAINS**norm)[user]
        if not bool(long.any()):
            return whole
        whole = whole - np.where(long, np.sign(whole), 0)


def _price(far: IntArray, norm: int, law: Law, least_sd: float = 0.0) -> IntArray:
    """What moves of length ``far``, to the power of the norm, cost by the least noise, whole 10^-12."""
    move = far.astype(np.float64)
    if norm == 1 and isinstance(law, Laplace):
        return to_pico(loss_upper_bound(move, np.asarray(law.scale.min(initial=np.inf))))
    if norm == 2 and isinstance(law, Gaussian) and (least := law.sd.min(initial=np.inf)) >= least_sd:
        return to_pico(loss_upper_bound(loss_upper_bound(move, least), 2 * least))
    raise UsageError(
        "no theorem prices a ball under this noise",
        got=f"l{norm}, {type(law).__name__}",
        expected=f"l1 with Laplace noise, or l2 with Gaussian noise of at least {least_sd:g} grains",
    )
