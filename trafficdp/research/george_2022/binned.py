"""The square root factor in little memory: old elements share coefficients, O(log n) numbers a stream.

Row t of the Toeplitz square root factor gives element s the coefficient f_(t - s), which hardly differs among
old neighbours. Here the past is cut into intervals that only ever merge; all elements of an interval get the
coefficient of its oldest one, the smallest. So K stays lower triangular, with entries in
0 .. floor(2^BITS f_(t - s)), and the price is that of the Toeplitz factor or less (``factor``). Two
neighbouring intervals merge once the smallest coefficient in both is at least ``share`` of the largest;
their number grows like log n / log(1/share^2). (Binning after Andersson and Pagh 2024, who bin the
noise's side of the factorisation.)

Encoder y_t = sum over intervals of coefficient x (sum of x inside) + z_t, in whole numbers. Decoder, with
the same intervals: w_t = (y_t - sum of coefficient x (sum of w inside)) / K_tt, and the running sum is the
sum of all w. Both need the interval sums only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError, in_range, integer_between
from trafficdp.noise.protocol import NoiseSource
from trafficdp.research.george_2022.factor import contiguous_squared_norm, toeplitz_coefficients

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BinnedFactor:
    """The module's factor: ``length`` n, ``share`` between 0 and 1 (larger: less error, more intervals)."""

    length: int
    share: float = 0.9

    def __post_init__(self) -> None:
        integer_between(1, 2**26, length=self.length)
        in_range(0, 1, share=self.share)

    @cached_property
    def coefficients(self) -> IntArray:
        """floor(2^BITS f_r)."""
        return toeplitz_coefficients(self.length)

    def merged(self, start: IntArray, end: int) -> IntArray:
        """Return the positions in ``start`` of intervals that stay apart from the one before, after ``end``.

        ``start`` (I,) are first elements, ascending; the last interval ends with ``end``. Of two merges that
        share an interval the older is made.
        """
        after = np.append(start[1:], end + 1)
        oldest = np.minimum(end + 1 - start, self.length - 1)
        youngest = end + 2 - after
        can = self.coefficients[oldest[:-1]] >= self.share * self.coefficients[youngest[1:]]
        place = np.arange(len(can))
        broken = np.maximum.accumulate(np.where(can, -1, place))
        chosen = can & ((place - broken) % 2 == 1)
        return np.flatnonzero(np.concatenate([[True], ~chosen]))

    def squared_norm(self, elements: int) -> int:
        """Return the squared norm of the Toeplitz factor's worst columns: at least that of this factor's."""
        return contiguous_squared_norm(self.coefficients, min(elements, self.length))

    def path(self, at: IntArray, sd: float, source: NoiseSource, runs: int = 1) -> FloatArray:
        """Return the noise of the sums of the first ``at`` (K,) elements, (runs, K): z alone, decoded."""
        last = int(np.max(at, initial=0))
        if last > self.length:
            raise UsageError("a stream is full", got=f"{last} elements", expected=f"at most {self.length}")
        counter = BinnedCounter(self, runs)
        total = np.zeros((runs, last + 1))
        zero = np.zeros(runs, dtype=np.int64)
        draws = source.discrete_gaussian(np.full(last * runs, sd)).reshape(last, runs)
        for t in range(last):
            total[:, t + 1] = counter.append(zero, draws[t])
        return total[:, at]


class BinnedCounter:
    """Running sums of ``streams`` streams that get their elements at the same times.

    State: ``start`` (I,) first elements of the intervals, ``exact`` (I, S) sums of elements, whole;
    ``decoded`` (I, S) sums of what was decoded; ``count`` elements so far.
    """

    def __init__(self, factor: BinnedFactor, streams: int) -> None:
        self.factor = factor
        self.count = 0
        self.start = np.zeros(0, dtype=np.int64)
        self.exact = np.zeros((0, streams), dtype=np.int64)
        self.decoded = np.zeros((0, streams))

    def append(self, value: IntArray, noise: IntArray) -> FloatArray:
        """Take the next element of every stream with its discrete Gaussian noise; return noisy running sums.

        Both (S,). Raises UsageError when the stream is full.
        """
        t = self.count
        if t >= self.factor.length:
            raise UsageError("a stream is full", expected=f"at most {self.factor.length} elements")
        own = int(self.factor.coefficients[0])
        past = self.factor.coefficients[t - self.start]
        noisy = past @ self.exact + own * value + noise
        decoded = (noisy - past @ self.decoded) / own
        self.count = t + 1
        start = np.append(self.start, t)
        kept = self.factor.merged(start, t)
        self.start = start[kept]
        self.exact = np.add.reduceat(np.vstack([self.exact, value]), kept, axis=0)
        self.decoded = np.add.reduceat(np.vstack([self.decoded, decoded]), kept, axis=0)
        return np.asarray(self.decoded.sum(axis=0))
