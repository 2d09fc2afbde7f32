"""What one user can do to a mean of array means, and how far that mean is from the sample mean.

Estimator f = (1/K) sum_i P_[a,b](Abar_i), Abar_i the mean of the w_i samples in array i.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import Arrays

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def array_mean_sensitivity(arrays: Arrays, upper: float, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return D_l = (1/K) sum_i min(b - a, U r_{l,i} / w_i) of every pair, shape (P,). Exact.

    ``low`` and ``high`` (shape (G,)) are a and b; 0 and U where nothing is projected. The arrays hold
    disjoint samples, so the changes add; in array i the user moves the mean by at most U r/w and the
    projection is 1-Lipschitz with range b - a. Both bounds are attained together: the other samples can
    place the range [c, c + U r/w] of the mean over [a, b], c = clip(a, 0, U - U r/w).
    So WrapAround without projection has max_l D_l = U/K (the paper says 2U/K), BestFit U/Kbar.
    """
    bin_of = arrays.array_bin[arrays.piece_array]
    share = upper * arrays.piece_count / arrays.fill[arrays.piece_array]
    change = np.minimum((high - low)[bin_of], share) / arrays.per_bin[bin_of]
    per_pair = np.bincount(arrays.piece_pair, weights=change, minlength=arrays.counts.pairs)
    return per_pair.astype(np.float64)


def total_variation_bias(arrays: Arrays, upper: float) -> FloatArray:
    """Return the most that f without projection differs from the sample mean, shape (G,). Exact.

    f = sum_s c_s x_s with sum_s c_s = 1, so f - mean = sum_s (c_s - 1/N) x_s is extreme when the samples
    with positive (or negative) weight are U and the others 0: (U/2) sum_s |1/N - c_s|. Here
    c_s = 1/(K w_i) in array i and 0 for dropped samples.
    """
    samples = arrays.counts.samples_per_bin
    spread = np.abs(arrays.fill / samples[arrays.array_bin] - 1 / arrays.per_bin[arrays.array_bin])
    inside = np.bincount(arrays.array_bin, weights=spread, minlength=arrays.counts.bins)
    dropped = (samples - arrays.kept_per_bin) / samples
    return np.asarray(upper / 2 * (inside + dropped), dtype=np.float64)


@dataclass(frozen=True)
class WidthSensitivity:
    """K max_l D_l as a function of the projection's width, in whole units of an array lattice.

    ``first`` >= ``second`` (shape (P,)) are the most that a pair changes its one or two arrays (0: none);
    ``bin_index`` the pairs' bins, ascending; ``bins`` = G.
    """

    first: IntArray
    second: IntArray
    bin_index: IntArray
    bins: int

    def per_pair(self, width: IntArray) -> IntArray:
        """Return sum_i min(width_g, change_{l,i}) of every pair, shape (P,); ``width`` of shape (G,)."""
        across = width[self.bin_index]
        return np.minimum(self.first, across) + np.minimum(self.second, across)

    def largest(self, width: IntArray) -> IntArray:
        """Return the largest of them in every bin; ``width`` and the result of shape (runs, G).

        Users whose first change reaches the width v give v + min(v, second), at best with the largest
        second among them; the others first + second whatever v. With the users of a bin sorted by first,
        both are running maxima.
        """
        offset = np.arange(self.bins) * self._stride
        place = np.searchsorted(self._key, np.minimum(width, self._stride - 1) + offset, side="left")
        start, end = self._start[:-1], self._start[1:]
        over = np.where(place < end, width + np.minimum(width, self._second_from[place]), 0)
        under = np.where(place > start, self._sum_before[np.maximum(place, 1) - 1], 0)
        return np.maximum(over, under)

    @cached_property
    def _stride(self) -> int:
        return int(self.first.max(initial=0)) + 2

    @cached_property
    def _order(self) -> IntArray:
        return np.lexsort((self.first, self.bin_index)).astype(np.int64)

    @cached_property
    def _key(self) -> IntArray:
        return (self.first + self.bin_index * self._stride)[self._order]

    @cached_property
    def _start(self) -> IntArray:
        per_bin = np.bincount(self.bin_index, minlength=self.bins)
        return np.concatenate([[0], np.cumsum(per_bin)]).astype(np.int64)

    @cached_property
    def _second_from(self) -> IntArray:
        """Largest second from here to the end of the bin, with one entry more."""
        stride = int(self.second.max(initial=0)) + 1
        # bins descend when read from the end, so larger offsets for earlier bins keep them apart
        offset = (self.bins - 1 - self.bin_index[self._order]) * stride
        running = np.maximum.accumulate((self.second[self._order] + offset)[::-1])[::-1] - offset
        return np.append(running, 0)

    @cached_property
    def _sum_before(self) -> IntArray:
        """Largest first + second from the start of the bin to here."""
        total = (self.first + self.second)[self._order]
        stride = int(total.max(initial=0)) + 1
        offset = self.bin_index[self._order] * stride
        return np.asarray(np.maximum.accumulate(total + offset) - offset, dtype=np.int64)
