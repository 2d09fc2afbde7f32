"""Quantile: array means projected to an interval between two private quantiles, with Laplace noise.

Paper 003 (Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets),
section III-D, over Algorithm 2 of Smith, Privacy-Preserving Statistical Estimation with Optimal
Convergence Rates (2011).

Theorem (REPLACE_USER_VALUES). Each end costs every visitor eps/4: a user changes the number of array means
at or below any position by at most c_u, so |i - q n| by at most c_u, and P proportional to
length exp(-eps_q |i - q n| / (2 c_u)) loses at most eps_q. Given the interval the noise costs eps/2 (as in
``levy``; the width may be anything, so every user with kept samples is charged all of it).

Departures: the factor 1/2 (erratum E6); 2/eps rounded up on both sides (E7), clamped when the two ranks
cross; on a lattice of M + 1 positions, where a cell of Smith's holds as many candidates as it is long:
same probabilities of cells, exact sampling, length 0 never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.count_cap import CountCap
from trafficdp.mechanisms.arrays.array_means import ArrayLattice, ArrayMeans, Grouping, array_lattice
from trafficdp.mechanisms.laplace.integer_laplace import (
    charge,
    checked_epsilon,
    choice_loss,
    choice_scale,
    laplace_scale,
    least_scale,
)
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import loss_upper_bound

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
TENTHS = 10


class QuantileRule(StrEnum):
    """Which quantiles bound the projection.

    FIXED: 1/10 and 9/10. OPTIMIZED: ceil(2/eps)/K and 1 - ceil(2/eps)/K, where one more array cut off
    would cost as much as the noise gains: the slope of (1/K)[sum (A-b)^+ + sum (a-A)^+ + (2/eps)(b-a)]
    vanishes at the ceil(2/eps)-th largest and smallest.
    """

    FIXED = "fixed"
    OPTIMIZED = "optimized"

    def tenths(self, arrays: IntArray, epsilon: FloatArray) -> tuple[IntArray, IntArray]:
        """Return 10 q_a n and 10 q_b n of every bin, n = ``arrays``: the target ranks, in tenths."""
        if self is QuantileRule.FIXED:
            return arrays, 9 * arrays
        distinct, which = np.unique(epsilon, return_inverse=True)
        ranks = np.array([_cut_off(value) for value in distinct.tolist()], dtype=np.int64)[which]
        low, high = np.minimum(ranks, arrays), np.maximum(arrays - ranks, 0)
        crossed = low >= high
        half = TENTHS // 2 * arrays
        return np.where(crossed, half, TENTHS * low), np.where(crossed, half, TENTHS * high)


def _cut_off(epsilon: float) -> int:
    """ceil(2/eps), exact for the decimal that eps is written as, at most 2^53."""
    if epsilon == float("inf"):
        return 0
    return min(ceil(2 / Fraction(str(epsilon))), 2**53)


def smith_cells(
    values: FloatArray, upper: float, quantile: float, epsilon: float, influence: int
) -> FloatArray:
    """Return the probabilities of Smith's cells [Y_i, Y_{i+1}], i = 0..n, for one list of values in [0, U].

    The continuous mechanism on n values: Y_0 = 0, Y_{n+1} = U,
    P(i) proportional to (Y_{i+1} - Y_i) exp(-eps |i - q n| / (2 c_u)); the output is uniform in the cell.
    """
    ends = np.concatenate([[0.0], np.sort(values), [upper]])
    length = np.diff(ends)
    rank = np.arange(len(length))
    exponent = -epsilon / (2 * influence) * np.abs(rank - quantile * len(values))
    least = exponent[length > 0].max()
    mass = np.where(length > 0, length * np.exp(np.minimum(exponent - least, 0.0)), 0.0)
    return np.asarray(mass / mass.sum(), dtype=np.float64)


@dataclass(frozen=True)
class Quantile:
    """``rule`` chooses the two quantiles; a quarter of epsilon goes to each, half to the noise."""

    rule: QuantileRule = QuantileRule.FIXED
    grouping: Grouping = Grouping.BEST_FIT
    cap: CountCap = CountCap.ARGMAX

    statistics = (Statistic.MEAN,)
    idealised = False
    citation = (
        "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "
        "Quantile; Smith, Privacy-Preserving Statistical Estimation with Optimal Convergence Rates"
    )

    @property
    def name(self) -> str:
        """``fixed_quantile_best_fit`` and so on."""
        return f"{self.rule.value}_quantile_{self.grouping.value}"

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism. The stated sensitivity is that of the widest interval, [0, U]."""
        lattice = self._lattice(counts, bound, statistic, epsilon)
        largest = lattice.sensitivity.largest(lattice.top[None])[0]
        # refuses here what could not be drawn later
        laplace_scale(largest, epsilon / 2)
        influence = lattice.arrays.influence
        ends = 2 * choice_loss(influence, choice_scale(influence, epsilon / 4))
        # which scales are rounded up together depends on all intervals that are drawn
        noise = loss_upper_bound(np.ones(counts.bins), least_scale(np.ones(counts.bins), epsilon / 2))
        loss = np.where(lattice.arrays.touched_per_pair > 0, (ends + noise)[counts.bin_index], 0.0)
        return promise(self.name, statistic, counts, bound, largest / lattice.unit, charge(counts, loss))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism. U: nothing less is proved for all values.

        If all values are U, every position below U has the same rank, both ends are uniform and the
        error is about U/3 however large epsilon is; a bound below U is not proved. Values that are spread
        are treated far better: simulate.
        """
        self._lattice(counts, bound, statistic, epsilon)
        return np.full(counts.bins, float(bound.upper))

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        one: FloatArray = self.estimates(samples, statistic, epsilon, noise, 1)[0]
        return one

    def estimates(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource, runs: int
    ) -> FloatArray:
        """Return ``runs`` independent estimates, shape (runs, G), for experiments."""
        lattice = self._lattice(samples.counts, samples.bound, statistic, epsilon)
        means = ArrayMeans.of(samples, lattice)
        at_low, at_high = self.rule.tenths(lattice.arrays.per_bin, epsilon)
        ends = [private_position(means, target, epsilon / 4, noise, runs) for target in (at_low, at_high)]
        # a position v stands for [v, v + 1): the interval covers both, so it is never empty
        low, high = np.minimum(*ends), np.maximum(*ends) + 1
        total = means.projected_sum(low, high)
        share = np.broadcast_to(epsilon / 2, low.shape)
        scale = laplace_scale(lattice.sensitivity.largest(high - low), share)
        drawn = noise.discrete_laplace(scale.ravel()).reshape(scale.shape)
        upper = float(samples.bound.upper)
        result: FloatArray = np.clip((total.astype(np.float64) + drawn) / lattice.unit, 0.0, upper)
        return result

    def _lattice(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> ArrayLattice:
        require_statistic(self.name, statistic, self.statistics)
        checked_epsilon(epsilon, counts)
        return array_lattice(counts, bound, self.grouping, self.cap)


def private_position(
    means: ArrayMeans, target: IntArray, epsilon: FloatArray, noise: NoiseSource, runs: int
) -> IntArray:
    """Return private quantiles of the array means on their lattice, 0..M-1, shape (runs, G).

    ``target`` is 10 q n (shape (G,)). Position v has rank i(v) = #{y <= v}; those of rank i are
    Y_i <= v < Y_{i+1}, as many as Smith's cell is long. P(v) proportional to
    exp(-epsilon |i(v) - q n| / (2 c_u)) is epsilon-DP: i(v) moves by at most c_u.
    """
    arrays = means.lattice.arrays
    bins = arrays.counts.bins
    cell_bin = np.repeat(np.arange(bins), arrays.per_bin + 1)
    start = arrays.start + np.arange(bins + 1)
    rank = np.arange(len(cell_bin)) - start[:-1][cell_bin]
    bound_above = np.empty(len(cell_bin), dtype=np.int64)
    is_last = np.zeros(len(cell_bin), dtype=bool)
    is_last[start[1:] - 1] = True
    bound_above[is_last] = means.lattice.top
    bound_above[~is_last] = means.y
    begin = np.where(rank == 0, 0, np.roll(bound_above, 1))
    cost = np.abs(TENTHS * rank - target[cell_bin])
    scale = TENTHS * choice_scale(arrays.influence, epsilon)
    drawn = noise.choose(cost, bound_above - begin, start, scale, runs=runs)
    return begin[drawn] + noise.uniform_below((bound_above - begin)[drawn])
