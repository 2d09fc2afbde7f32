"""Array means as whole numbers, and their projected mean with its sensitivity, all bins at once.

The mean of array i is stored as y_i = round(m_UB A_i / w_i), A_i its sum in steps of q, w_i its fill: a
number from 0 to M = m_UB U/q in units of q/m_UB, exact for full arrays. Rounding half up moves a mean by
at most half a unit, and whatever change d one user causes in m_UB A_i/w_i, y_i changes by at most ceil(d):
with r_{l,i} samples in array i, by ceil(m_UB (U/q) r_{l,i}/w_i). So sums of projected y_i are integers of
known integer sensitivity, and their noise is exact discrete Laplace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import Arrays, CountCap, best_fit, total_variation_bias, wrap_around
from trafficdp.errors import UsageError
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Counts, Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
KEPT_PAIRS = 100_000
"""Lattices of so few (bin, user) pairs are kept for the next estimate on the same counts."""


class Grouping(StrEnum):
    """How capped samples are put into arrays."""

    WRAP_AROUND = "wrap_around"
    BEST_FIT = "best_fit"

    def arrays(self, counts: Counts, cap: CountCap) -> Arrays:
        """Return the arrays of all bins for m_UB by ``cap``."""
        group = wrap_around if self is Grouping.WRAP_AROUND else best_fit
        return group(counts, cap.of(counts))


@dataclass(frozen=True)
class ArrayLattice:
    """The public side: arrays, the bound, and everything that follows from counts.

    Raises UsageError when a sum of array means could leave 64 bits.
    """

    arrays: Arrays
    bound: ContributionBound

    def __post_init__(self) -> None:
        most = int((self.arrays.capacity.astype(object) ** 2).max()) if len(self.arrays.capacity) else 0
        stacked = len(self.arrays.capacity) * int(self.arrays.capacity.max(initial=0))
        samples = int(self.arrays.counts.samples_per_bin.max(initial=0))
        if 4 * self.bound.steps * max(most, stacked, samples) > np.iinfo(np.int64).max:
            raise UsageError(
                "sums of array means could leave 64 bits",
                got=f"{samples} records in a bin at {self.bound.steps} steps up to the speed bound",
                todo="choose a larger speed_step",
            )

    @property
    def top(self) -> IntArray:
        """M = m_UB U/q: the largest array mean, in lattice units, shape (G,)."""
        return self.arrays.capacity * self.bound.steps

    @property
    def unit(self) -> FloatArray:
        """One lattice unit of ``sum_i y_i`` in the mean's unit: q / (K m_UB), shape (G,)."""
        return np.asarray(float(self.bound.step) / (self.arrays.per_bin * self.arrays.capacity))

    @cached_property
    def _changes(self) -> tuple[IntArray, IntArray]:
        """The most that a pair changes its one or two arrays, the larger first (0: none), shape (P,) each."""
        arrays = self.arrays
        top = self.top[arrays.array_bin[arrays.piece_array]]
        change = -(-top * arrays.piece_count // arrays.fill[arrays.piece_array])
        first, both = (np.zeros(arrays.counts.pairs, dtype=np.int64) for _ in range(2))
        np.maximum.at(first, arrays.piece_pair, change)
        np.add.at(both, arrays.piece_pair, change)
        return first, both - first

    def moves(self, width: IntArray) -> IntArray:
        """Return sum_i min(``width``_g, change_{l,i}) of every pair, (P,): what it moves the sum by at most.

        ``width`` (G,) is that of the interval to which array means are projected.
        """
        across = width[self.arrays.counts.bin_index]
        first, second = self._changes
        return np.minimum(first, across) + np.minimum(second, across)

    @property
    def bias(self) -> FloatArray:
        """Worst distance of the mean of array means from the mean of the speeds, shape (G,).

        The total-variation bias, half a lattice unit for rounding array means that are not full, and
        the rounding of the speeds.
        """
        arrays, step = self.arrays, float(self.bound.step)
        partial = np.zeros(arrays.counts.bins, dtype=bool)
        partial[arrays.array_bin[arrays.fill < arrays.capacity[arrays.array_bin]]] = True
        rounding = np.where(partial, step / (2 * arrays.capacity), 0.0)
        rounding = rounding + rounding_bias(Statistic.MEAN, self.bound)
        return total_variation_bias(arrays, float(self.bound.upper)) + rounding


def array_lattice(
    counts: Counts, bound: ContributionBound, grouping: Grouping, cap: CountCap
) -> ArrayLattice:
    """Return the lattice of ``grouping`` and ``cap``; of few pairs, the very one made before.

    Raises as ArrayLattice.
    """
    make = _kept_lattice if counts.pairs <= KEPT_PAIRS else _new_lattice
    return make(counts, bound, grouping, cap)


def _new_lattice(counts: Counts, bound: ContributionBound, grouping: Grouping, cap: CountCap) -> ArrayLattice:
    return ArrayLattice(grouping.arrays(counts, cap), bound)


# two moments, on all bins and on those that are tried
_kept_lattice = lru_cache(maxsize=4)(_new_lattice)


@dataclass(frozen=True, repr=False)
class ArrayMeans:
    """The sensitive side: the array means y_i (shape (A,)), sorted within each bin."""

    lattice: ArrayLattice
    y: IntArray

    @classmethod
    def of(cls, samples: Samples, lattice: ArrayLattice) -> ArrayMeans:
        """Return the array means of the samples."""
        arrays = lattice.arrays
        running = np.concatenate([[0], np.cumsum(samples.value)])
        begin = samples.start[arrays.piece_pair] + arrays.piece_offset
        piece = running[begin + arrays.piece_count] - running[begin]
        total = np.zeros(len(arrays.fill), dtype=np.int64)
        np.add.at(total, arrays.piece_array, piece)
        capacity = arrays.capacity[arrays.array_bin]
        y = (2 * total * capacity + arrays.fill) // (2 * arrays.fill)
        return cls(lattice, y[np.lexsort((y, arrays.array_bin))])

    def __repr__(self) -> str:
        return f"<ArrayMeans: {len(self.y)} arrays, redacted>"

    def projected_sum(self, low: IntArray, high: IntArray) -> IntArray:
        """Return sum_i P_[a,b](y_i), (G,); ``low`` <= ``high`` (G,) are a and b in lattice units."""
        arrays = self.lattice.arrays
        total = np.zeros(arrays.counts.bins, dtype=np.int64)
        np.add.at(total, arrays.array_bin, np.clip(self.y, low[arrays.array_bin], high[arrays.array_bin]))
        return total
