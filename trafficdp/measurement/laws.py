"""The laws of noise: what each costs a vehicle that moves the sums by known whole numbers.

**Laplace.** P(z) proportional to exp(-|z|/b_c), independently. A move D costs sum_c |D_c|/b_c: the ratio of
the probabilities of an outcome is at most that much in the exponent, coordinate by coordinate.

**Gaussian.** P(z) proportional to exp(-z^2/(2 s_c^2)), independently. A move D costs sum_c D_c^2/(2 s_c^2) in
rho (Canonne, Kamath, Steinke, The Discrete Gaussian for Differential Privacy, 2020, Proposition 5).

**Block.** P(z) proportional to exp(-max_c ceil(|z_c|/a_c)/s) over the coordinates of a block, blocks
independently (``noise.block``). A move D costs sum over blocks of max_c ceil(|D_c|/a_c), divided by s:
ceil(|z + D|/a) <= ceil(|z|/a) + ceil(|D|/a).

All three attain their price. Losses are whole 10^-12 of epsilon or rho, rounded up, one a vehicle.

First, who has which coordinate (``EntryIndex``: public where counts are), and sums times powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import UsageError
from trafficdp.model.counts import number_pairs
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy import loss as privacy_loss

Values = npt.NDArray[Any]
LARGEST_SUM = 1 << 61
"""No public bound of a sum is above this: sums and their multiples stay in 64 bits."""
GRAINS = 1 << 20
"""Of the bound of a vector: its sums are counted in grains of bound / GRAINS."""


@dataclass(frozen=True)
class EntryIndex:
    """E entries, in the order of coordinate, then vehicle, no entry twice: ``user`` and ``coordinate`` (E,).

    Raises UsageError when entries are not in order, or out of range of ``users`` and ``coordinates``.
    """

    user: IntArray
    coordinate: IntArray
    users: int
    coordinates: int

    def __post_init__(self) -> None:
        inside = all(
            int(index.min(initial=0)) >= 0 and int(index.max(initial=-1)) < size
            for index, size in ((self.user, self.users), (self.coordinate, self.coordinates))
        )
        at, user = self.coordinate, self.user
        rising = (at[1:] > at[:-1]) | (at[1:] == at[:-1]) & (user[1:] > user[:-1])
        if not inside or len(self.user) != len(self.coordinate) or not bool(rising.all()):
            raise UsageError(
                "entries of a measurement are not in order",
                expected="each vehicle once a coordinate, by coordinate, then vehicle",
            )

    def sums(self, values: IntArray) -> IntArray:
        """Return the exact sum over vehicles of ``values`` in every coordinate, shape (coordinates,).

        ``values`` has one whole number for each entry, that is for each (coordinate, vehicle) pair.
        """
        total = np.zeros(self.coordinates, dtype=np.int64)
        np.add.at(total, self.coordinate, values)
        return total

    def losses(self, entry: FloatArray) -> IntArray:
        """Return every vehicle's privacy loss, the sum over its entries of ``entry``, rounded up, (users,).

        ``entry`` holds the loss of each entry as a float epsilon or rho; the result is in whole 10^-12 of it.
        """
        return privacy_loss.sum_per_user(privacy_loss.to_pico(entry), self.user, self.users)

    def require_64_bits(self, largest: IntArray) -> None:
        """Raise UsageError when the sum of some coordinate could leave 64 bits.

        ``largest`` holds the largest number that each entry can be, from public bounds.
        """
        # a vehicle has one entry a coordinate; half of what is allowed is left for the rounding of sums
        few = self.users * int(largest.max(initial=0)) < LARGEST_SUM // 2
        if not few and np.bincount(self.coordinate, largest).max(initial=0.0) >= LARGEST_SUM:
            raise UsageError("sums could leave 64 bits", todo="choose a larger speed_step")


def as_integers(values: Values, size: int) -> IntArray:
    """Return ``values``, an array of any kind and length, as exactly ``size`` whole numbers, shape (size,).

    Fractions are cut off; what is not finite or missing becomes 0; what is beyond ``size`` is left out. It
    never raises, since an error that depends on private values would tell of them.
    """
    flat = np.ravel(values)[:size]
    if flat.dtype.kind not in "iub":
        flat = np.clip(np.where(np.isfinite(flat), flat, 0.0), -(2.0**62), 2.0**62)
    found = np.zeros(size, dtype=np.int64)
    found[: len(flat)] = flat.astype(np.int64)
    return found


_AT_ONCE = 1 << 21
"""Entries that are sorted in memory together."""


@dataclass(frozen=True)
class Laplace:
    """Independent discrete Laplace noise of ``scale`` (C,); 0 where nothing can move."""

    scale: FloatArray

    kind = privacy_loss.LossKind.PURE

    def loss(self, support: EntryIndex, move: IntArray) -> IntArray:
        """Return every vehicle's privacy loss, whole 10^-12 of epsilon, shape (users,).

        ``move`` (one number an entry of ``support``) is how much the vehicle can change the sum at most. The
        loss is the sum over its entries of move / scale, rounded up.
        """
        return support.losses(
            privacy_loss.loss_upper_bound(move.astype(np.float64), self.scale[support.coordinate])
        )

    def add(self, sums: IntArray, source: NoiseSource) -> IntArray:
        """Return the integer ``sums`` (one a coordinate) plus independent discrete Laplace noise of
        ``self.scale``.
        """
        return source.laplace(sums, self.scale)


@dataclass(frozen=True)
class Gaussian:
    """Independent discrete Gaussian noise of standard deviation ``sd`` (C,); 0 where nothing can move."""

    sd: FloatArray

    kind = privacy_loss.LossKind.ZCDP

    def loss(self, support: EntryIndex, move: IntArray) -> IntArray:
        """Return every vehicle's privacy loss, whole 10^-12 of rho (zCDP), shape (users,).

        ``move`` (one number an entry of ``support``) is how much the vehicle can change the sum at most. The
        loss is the sum over its entries of move^2 / (2 sd^2), rounded up.
        """
        ratio = privacy_loss.loss_upper_bound(move.astype(np.float64), self.sd[support.coordinate])
        return support.losses(np.where(ratio > 0, privacy_loss.round_up(ratio * ratio / 2), 0.0))

    def add(self, sums: IntArray, source: NoiseSource) -> IntArray:
        """Return the integer ``sums`` (one a coordinate) plus independent discrete Gaussian noise of
        ``self.sd``.
        """
        return source.gaussian(sums, self.sd)


@dataclass(frozen=True)
class Block:
    """l-infinity noise of half widths a ``half_width`` (C,), one ``scale`` s for all blocks.

    ``block`` (C,) numbers the blocks 0.. without gaps; -1 where nothing can move, and nothing is drawn.
    Raises UsageError when a half width or the scale is not positive.
    """

    half_width: IntArray
    block: IntArray
    scale: float

    kind = privacy_loss.LossKind.PURE

    def __post_init__(self) -> None:
        drawn = self.block >= 0
        if int(self.half_width[drawn].min(initial=1)) < 1 or not 0 < self.scale < np.inf:
            raise UsageError("block noise is out of range", expected="half widths and a scale above 0")

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return int(self.block.max(initial=-1)) + 1

    def loss(self, support: EntryIndex, move: IntArray) -> IntArray:
        """Return every vehicle's privacy loss, whole 10^-12 of epsilon, shape (users,).

        ``move`` (one number an entry of ``support``) is how much the vehicle can change the sum at most. The
        loss is the sum over blocks of max ceil(move / half width), divided by the noise scale, rounded up.
        """
        return self.loss_of_units(self.largest(support, self.units(support, move)))

    def units(self, support: EntryIndex, move: IntArray) -> IntArray:
        """Return ceil(move / half width of the entry's coordinate) for every entry of ``support``.

        ``move`` holds how much each entry can change its sum. Raises UsageError where a sum that can change
        has no noise.
        """
        at = support.coordinate
        if bool(np.any((self.block[at] < 0) & (move > 0))):
            raise UsageError("a number that can vary has no noise", expected="a block for it")
        return np.asarray(-(-move // np.maximum(self.half_width[at], 1)))

    def largest(self, support: EntryIndex, units: IntArray) -> IntArray:
        """Return, for every vehicle, the largest of ``units`` in each block, added over blocks, (users,).

        ``units`` has one whole number for each entry of ``support``, as returned by the method ``units``.
        """
        total, parts = np.zeros(support.users, dtype=np.int64), len(units) // _AT_ONCE + 1
        for first, last in pairwise(np.linspace(0, support.users, parts + 1).astype(np.int64).tolist()):
            at = np.flatnonzero((units != 0) & (support.user >= first) & (support.user < last))
            _, user, which = number_pairs(
                self.block[support.coordinate[at]], support.user[at], max(self.blocks, 1), support.users
            )
            most = np.zeros(len(user), dtype=np.int64)
            np.maximum.at(most, which, units[at])
            np.add.at(total, user, most)
        return total

    def loss_of_units(self, units: IntArray) -> IntArray:
        """Return ``units`` (users,) divided by the noise scale, as whole 10^-12 of epsilon, rounded up
        exactly.
        """
        scale = Fraction(self.scale) / privacy_loss.PICO
        distinct, which = np.unique(units, return_inverse=True)
        pico = [-(-each * scale.denominator // scale.numerator) for each in distinct.tolist()]
        if max(pico, default=0) > privacy_loss.LARGEST_LOSS:
            raise UsageError(
                "privacy loss is too large to account for", expected="at most one million epsilon"
            )
        return np.array(pico, dtype=np.int64)[which.ravel()]

    def add(self, sums: IntArray, source: NoiseSource) -> IntArray:
        """Return the integer ``sums`` (one a coordinate) plus l-infinity block noise.

        No noise outside all blocks.
        """
        drawn = self.block >= 0
        result = sums.copy()
        if drawn.any():
            scale = np.full(self.blocks, self.scale)
            result[drawn] += source.block(self.half_width[drawn], self.block[drawn], scale)
        return result


Law = Laplace | Gaussian | Block
