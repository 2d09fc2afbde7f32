"""PrivateInterval without its draw: bins of width tau, votes of the arrays, cost of every midpoint.

Paper 003, section III-C (after Levy et al. 2021). [0, M] is cut at multiples of tau, the last part
truncated; midpoints T_1..T_J. Every array votes for the midpoint nearest to its mean. The cost of j is the
larger of the numbers of votes below and above j; a user who changes c_u arrays changes it by at most c_u
(exactly, where both counts are large). Positions are doubled wherever a midpoint would be a half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def levy_width(arrays: IntArray, capacity: IntArray, upper: float, gamma: float) -> FloatArray:
    """Return tau = U sqrt(ln(2 K / gamma) / (2 m_UB)) of every bin, the paper's rule.

    By Hoeffding's inequality all K means of *full* arrays of independent samples lie within tau of their
    expectation with probability at least 1 - gamma; partly filled ones need ``guaranteed_width``.
    """
    return np.asarray(upper * np.sqrt(np.log(2.0 * arrays / gamma) / (2.0 * capacity)), dtype=np.float64)


def guaranteed_width(
    fill: IntArray, array_bin: IntArray, bins: int, upper: float, gamma: float
) -> FloatArray:
    """Return the least tau with sum_i 2 exp(-2 w_i tau^2 / U^2) <= gamma in every bin, by bisection.

    The (tau, gamma) guarantee for arrays of any fill (erratum E4). tau >= U where arrays are so empty
    that nothing narrower is promised.
    """
    low = np.zeros(bins)
    # one sample alone needs U sqrt(ln(2 K/gamma)/2)
    most = np.bincount(array_bin, minlength=bins)
    high = upper * np.sqrt(np.log(2.0 * np.maximum(most, 1) / gamma) / 2.0)
    for _ in range(60):
        middle = (low + high) / 2
        tails = 2 * np.exp(-2.0 * fill * (middle / upper)[array_bin] ** 2)
        enough = np.bincount(array_bin, weights=tails, minlength=bins) <= gamma
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


@dataclass(frozen=True)
class IntervalPartition:
    """[0, M_g] of every bin cut into parts of width ``width`` (whole lattice units, 1 <= tau <= M).

    Parts of all bins stand one after another: those of bin g in ``start[g]:start[g + 1]``.
    """

    top: IntArray
    width: IntArray

    @cached_property
    def parts(self) -> IntArray:
        """J = ceil(M / tau), shape (G,)."""
        return -(-self.top // self.width)

    @cached_property
    def start(self) -> IntArray:
        """First part of every bin, and the end, shape (G + 1,)."""
        return np.concatenate([[0], np.cumsum(self.parts)]).astype(np.int64)

    @cached_property
    def _bin(self) -> IntArray:
        return np.repeat(np.arange(len(self.top)), self.parts)

    @cached_property
    def twice_midpoint(self) -> IntArray:
        """2 T_j of every part."""
        j = np.arange(len(self._bin)) - self.start[:-1][self._bin]
        width, top = self.width[self._bin], self.top[self._bin]
        return np.asarray(j * width + np.minimum((j + 1) * width, top), dtype=np.int64)

    def interval(self, part: IntArray, halves: int) -> tuple[IntArray, IntArray]:
        """Return a = max(0, T_j - h tau), b = min(M, T_j + h tau), rounded inward; h = halves/2, odd.

        ``part`` counts over all bins, any shape.
        """
        width, top = self.width[self._bin[part]], self.top[self._bin[part]]
        middle = self.twice_midpoint[part]
        low = np.maximum(-((halves * width - middle) // 2), 0)
        high = np.minimum((middle + halves * width) // 2, top)
        return low, high

    def votes(self, y: IntArray, y_bin: IntArray) -> IntArray:
        """Return the part (counted over all bins) whose midpoint is nearest to every y, ties downward."""
        last = self.parts[y_bin] - 1
        j = np.clip(-(-y // self.width[y_bin]) - 1, 0, last)
        first = self.start[y_bin]
        # the truncated last part has its midpoint further down
        boundary = self.twice_midpoint[first + np.maximum(last - 1, 0)] + self.twice_midpoint[first + last]
        nearer = (j == last - 1) & (4 * y > boundary)
        return first + np.where(nearer, last, j)

    def costs(self, y: IntArray, y_bin: IntArray) -> IntArray:
        """Return c(j) = max(#votes below j, #votes above j) of every part."""
        voted = np.bincount(self.votes(y, y_bin), minlength=int(self.start[-1])).astype(np.int64)
        running = np.cumsum(voted)
        before = running - voted
        base = before[self.start[:-1]][self._bin]
        total = np.bincount(y_bin, minlength=len(self.top))[self._bin]
        return np.maximum(before - base, total - (running - base))
