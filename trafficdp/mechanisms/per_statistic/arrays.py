"""Means of arrays: projected onto a private interval, or pooled."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.bounding import arrays as bounding_arrays
from trafficdp.bounding.worst_case import clipping_rank
from trafficdp.errors import UsageError, in_range
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms import means, publish
from trafficdp.mechanisms.protocol import ClaimedScores, ClaimedSums, StatisticRequest
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.tail import clamped_laplace_error
from trafficdp.sensitive import Samples

# Means of arrays, projected or not.
#
# Array means as whole numbers, and their projected mean with its sensitivity, all bins at once.
#
# The mean of array i is stored as y_i = round(m_UB A_i / w_i), A_i its sum in steps of q, w_i its fill: a
# number from 0 to M = m_UB U/q in units of q/m_UB, exact for full arrays. Rounding half up moves a mean by
# at most half a unit, and whatever change d one user causes in m_UB A_i/w_i, y_i changes by at most ceil(d):
# with r_{l,i} samples in array i, by ceil(m_UB (U/q) r_{l,i}/w_i). So sums of projected y_i are integers of
# known integer sensitivity, and their noise is exact discrete Laplace.
#
# The mean of the means of arrays of capped samples, of all or projected to an interval found privately.
#
# Paper 003 (Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets),
# sections III-B to III-D: Array-Averaging projects nothing; Levy finds an interval of width 2 h tau that most
# array means vote for (after Levy et al., Learning with User-Level Privacy, 2021); Quantile takes the one
# between two private quantiles (Smith, Privacy-Preserving Statistical Estimation with Optimal Convergence
# Rates, 2011).
#
# Theorem (REPLACE_USER_VALUES). c_u is the most arrays that a user of the bin has samples in: public, 1 or 2.
#
# * Interval. The cost of a midpoint (``bounding.interval``), and |i(v) - q n| with i(v) the number of array
#   means at or below v, each changes by at most c_u with one vehicle. So a choice with P proportional to
#   exp(-cost eps'/(2 c_u)) costs each of the bin's vehicles eps': Levy one of eps/2, Quantile two of eps/4.
# * Sum. With the interval fixed, of width v, user l moves the projected sum by at most
#   d_l(v) = sum_i min(v, ceil(M r_{l,i}/w_i)) lattice units (``array_means``), and by exactly that for some
#   values of the others. Noise of scale B = max_l d_l(v)/eps'', the rest of eps, costs it d_l(v)/B. Where
#   v is drawn it is charged the most over the v that can come: few widths (Levy), or all of eps'' (Quantile).
#
# Steps add, adaptively; bins hold disjoint samples. Arrays hold samples of several vehicles, so that nothing
# here is enforced.
#
# Departures. The sensitivity under WrapAround is U/K, not 2U/K (erratum E1): so the two groupings differ by
# K/Kbar only. Levy: exp(-eps c/8), not c/4, where a user can touch two arrays (E3); the vote goes to the
# nearest midpoint, not to the distance (E2); tau is rounded up and a, b inward to the array lattice; where
# tau >= U nothing is selected and all of epsilon goes to the noise; with ``guaranteed`` tau holds its promise
# for partly filled arrays (E4); ``halves`` = 5 (h = 5/2) contains all array means that lie within tau of one
# point, 3 (h = 3/2, the paper's) only that point (E5). Quantile: the factor 1/2 (E6); 2/eps rounded up on
# both sides (E7), clamped when the two ranks cross; on a lattice of M + 1 positions, where a cell of Smith's
# holds as many candidates as it is long: same probabilities of cells, exact sampling, length 0 never drawn.


KEPT_PAIRS = 100_000
"""Lattices of so few (bin, user) pairs are kept for the next estimate on the same counts."""


class Grouping(StrEnum):
    """How capped samples are put into arrays."""

    WRAP_AROUND = "wrap_around"
    BEST_FIT = "best_fit"

    def arrays(self, counts: Counts, cap: bounding_arrays.CountCap) -> bounding_arrays.Arrays:
        """Return each bin's records grouped into arrays of at most ``cap`` records of one vehicle, by
        counts.
        """
        group = bounding_arrays.wrap_around if self is Grouping.WRAP_AROUND else bounding_arrays.best_fit
        return group(counts, cap.of(counts))


@dataclass(frozen=True)
class ArrayLattice:
    """The public side: arrays, the bound, and everything that follows from counts.

    Raises UsageError when a sum of array means could leave 64 bits.
    """

    arrays: bounding_arrays.Arrays
    bound: ContributionBound

    def __post_init__(self) -> None:
        most = int((self.arrays.capacity.astype(object) ** 2).max()) if len(self.arrays.capacity) else 0
        stacked = len(self.arrays.capacity) * int(self.arrays.capacity.max(initial=0))
        samples = int(self.arrays.counts.samples_per_bin.max(initial=0))
        if 4 * self.bound.upper_steps * max(most, stacked, samples) > np.iinfo(np.int64).max:
            raise UsageError(
                "sums of array means could leave 64 bits",
                got=f"{samples} records in a bin at {self.bound.upper_steps} steps up to the speed bound",
                todo="choose a larger speed_step",
            )

    @property
    def top(self) -> IntArray:
        """The largest possible array mean in lattice units, m_UB U/q, shape (G,)."""
        return self.arrays.capacity * self.bound.upper_steps

    @property
    def unit(self) -> FloatArray:
        """The size of one lattice unit of the sum of array means, in the unit of the mean, shape (G,)."""
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
        """Return how much each (bin, vehicle) pair changes its bin's sum of array means at most, shape (P,).

        In lattice units; array means are clamped to an interval of ``width`` (G,).
        """
        across = width[self.arrays.counts.bin_index]
        first, second = self._changes
        return np.minimum(first, across) + np.minimum(second, across)

    @property
    def bias(self) -> FloatArray:
        """Largest distance of the mean of array means from the mean of the speeds, (G,), in the speeds' unit.

        From counts alone: the total-variation bias, half a lattice unit for rounding array means that are not
        full, and the rounding of the speeds.
        """
        arrays, step = self.arrays, float(self.bound.step)
        partial = np.zeros(arrays.counts.bins, dtype=bool)
        partial[arrays.array_bin[arrays.fill < arrays.capacity[arrays.array_bin]]] = True
        rounding = np.where(partial, step / (2 * arrays.capacity), 0.0)
        rounding = rounding + publish.rounding_bias(Statistic.MEAN, self.bound)
        return bounding_arrays.total_variation_bias(arrays, float(self.bound.upper)) + rounding


def array_lattice(
    counts: Counts, bound: ContributionBound, grouping: Grouping, cap: bounding_arrays.CountCap
) -> ArrayLattice:
    """Return the arrays of ``grouping`` and ``cap`` and what follows from counts; cached for few pairs.

    Raises UsageError when a sum of array means could leave 64 bits.
    """
    make = _kept_lattice if counts.pairs <= KEPT_PAIRS else _new_lattice
    return make(counts, bound, grouping, cap)


def _new_lattice(
    counts: Counts, bound: ContributionBound, grouping: Grouping, cap: bounding_arrays.CountCap
) -> ArrayLattice:
    return ArrayLattice(grouping.arrays(counts, cap), bound)


# of both groupings: two moments, on all bins and on those that are tried
_kept_lattice = lru_cache(maxsize=8)(_new_lattice)


@dataclass(frozen=True, repr=False)
class ArrayMeans:
    """The sensitive side: the array means y_i (shape (A,)), sorted within each bin."""

    lattice: ArrayLattice
    y: IntArray

    @classmethod
    def of(cls, samples: Samples, lattice: ArrayLattice) -> ArrayMeans:
        """Return the private means of the arrays of ``samples``, sorted within each bin, in lattice units."""
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
        """Return the exact sum of each bin's array means, each clamped to [low, high], shape (G,). Private.

        In lattice units; ``low`` <= ``high`` (G,) are one interval a bin.
        """
        arrays = self.lattice.arrays
        total = np.zeros(arrays.counts.bins, dtype=np.int64)
        np.add.at(total, arrays.array_bin, np.clip(self.y, low[arrays.array_bin], high[arrays.array_bin]))
        return total


END_PARTS = 4
"""Intervals around the first and last few midpoints may be cut by 0 or M; all others are 2 h tau wide."""
TENTHS = 10
OF_SUM = "a projected sum of array means moves by the sum of min(v, change) over a vehicle's arrays"
OF_CHOICE = "a vehicle changes votes and ranks by at most the number of its arrays"
PAPER = "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "


class Projected(means.Means):
    """Means of arrays clamped to an interval: here to the whole range, so that nothing is projected.

    ``grouping`` makes the arrays, ``cap`` is the most samples of one vehicle that one of them takes.
    """

    grouping: Grouping
    cap: bounding_arrays.CountCap
    enforced = False

    def sum_query(self, request: StatisticRequest) -> means.LaplaceSumQuery:
        """Return the query for each bin's sum of clamped array means, from public counts.

        Nothing is drawn here. Where an interval is drawn later, it is for the widest one.
        """
        lattice = self._lattice(request)
        selects, share = self._selects(lattice), self._share(lattice, request.loss)
        of = ClaimedSums(means.support_of(request.counts), self._dearest(lattice), OF_SUM)
        bias = np.where(selects, float(request.bound.upper), lattice.bias)
        return means.laplace_sum_query(of, share, lattice.unit, bias, worst_case=bool(selects.any()))

    def steps_before_sum(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the private selections of the interval to which array means are clamped, with their prices.

        From public counts: nothing is selected here. Empty where the interval is the whole range, as in
        ``ArrayAveraging``.
        """
        return self._choices(self._lattice(request), request.loss)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``epsilon`` (G,) is each bin's loss; ``measure`` draws all
        noise and, in a release, charges for it.
        """
        lattice = self._lattice(StatisticRequest(samples.counts, samples.bound, statistic, epsilon))
        return self.estimate_of(ArrayMeans.of(samples, lattice), epsilon, measure)

    def estimate_of(self, array_means: ArrayMeans, epsilon: FloatArray, measure: Measure) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``array_means`` are private; ``epsilon`` (G,) and ``measure`` are as for ``estimate``.
        """
        lattice = array_means.lattice
        low, high = self._interval(array_means, epsilon, measure)
        projected = _projected(lattice, high - low, self._share(lattice, epsilon))
        return projected.means(array_means.projected_sum(low, high), measure, lattice.bound)

    def _lattice(self, request: StatisticRequest) -> ArrayLattice:
        self._require(request)
        return array_lattice(request.counts, request.bound, self.grouping, self.cap)

    def _selects(self, lattice: ArrayLattice) -> BoolArray:
        """Where an interval is chosen, shape (G,)."""
        return np.zeros(len(lattice.top), dtype=bool)

    def _dearest(self, lattice: ArrayLattice) -> IntArray:
        """What each pair moves the widest sum by if it pays as much as for any interval, shape (P,)."""
        return lattice.moves(lattice.top)

    def _share(self, lattice: ArrayLattice, epsilon: FloatArray) -> FloatArray:
        """The epsilon of the noise."""
        return np.where(self._selects(lattice), epsilon / 2, epsilon)

    def _choices(self, lattice: ArrayLattice, epsilon: FloatArray) -> tuple[ClaimedScores, ...]:
        return ()

    def _interval(
        self, array_means: ArrayMeans, epsilon: FloatArray, measure: Measure
    ) -> tuple[IntArray, IntArray]:
        """Ends of every bin's interval, shape (G,)."""
        return np.zeros_like(array_means.lattice.top), array_means.lattice.top


@dataclass(frozen=True)
class ArrayAveraging(Projected):
    """The mean of all array means."""

    grouping: Grouping = Grouping.BEST_FIT
    cap: bounding_arrays.CountCap = bounding_arrays.CountCap.ARGMAX

    citation = PAPER + "Array-Averaging"

    @property
    def name(self) -> str:
        """Key in the registry: ``array_averaging_best_fit`` or ``array_averaging_wrap_around``."""
        return f"array_averaging_{self.grouping.value}"


@dataclass(frozen=True)
class Levy(Projected):
    """``gamma`` is the probability allowed to the arrays to stray further than tau (default 0.2).

    Raises UsageError unless 0 < gamma < 1 and halves is 3 or 5.
    """

    grouping: Grouping = Grouping.BEST_FIT
    cap: bounding_arrays.CountCap = bounding_arrays.CountCap.ARGMAX
    gamma: float = 0.2
    halves: int = 3
    guaranteed: bool = False

    citation = PAPER + "Levy; Levy et al., Learning with User-Level Privacy"

    def __post_init__(self) -> None:
        in_range(0, 1, gamma=self.gamma)
        if self.halves not in (3, 5):
            raise UsageError("halves is unknown", got=f"halves={self.halves}", expected="3 or 5")

    @property
    def name(self) -> str:
        """Key in the registry: ``levy_best_fit`` or ``levy_wrap_around``."""
        return f"levy_{self.grouping.value}"

    def expected_error(self, request: StatisticRequest) -> FloatArray:
        """Return the largest expected error: of grouping, projection and noise, at the worst values.

        Projection to [a, b] moves the mean by at most max(a #{A < a}, (U - b) #{A > b})/K, and both
        numbers are at most the cost of the midpoint. The least cost is at most K/2, and the drawn one
        exceeds it by t with probability at most J e^(-t/s), s the scale of the choice: by s (1 + ln J)
        in expectation. So the projection costs at most max(a, U - b) min(1, 1/2 + s (1 + ln J)/K). Values
        that agree are treated far better: simulate.
        """
        lattice = self._lattice(request)
        upper, partition = float(request.bound.upper), self.partition(lattice)
        selects = self._selects(lattice)
        _, first_high = partition.interval(partition.start[:-1], self.halves)
        last_low, _ = partition.interval(partition.start[1:] - 1, self.halves)
        farthest = np.maximum(lattice.top - first_high, last_low) / lattice.top * upper
        scale = means.choice_scale(lattice.arrays.influence, request.loss / 2)
        excess = scale * (1 + np.log(partition.parts)) / lattice.arrays.per_bin
        projection = np.where(selects, farthest * np.minimum(1.0, 0.5 + excess), 0.0)
        widest = np.where(selects, np.minimum(self.halves * partition.width, lattice.top), lattice.top)
        noise = _projected(lattice, widest, self._share(lattice, request.loss)).scale * lattice.unit
        # the error grows by at most 1 a unit of bias, so the expected projection may be added
        return np.minimum(clamped_laplace_error(noise, lattice.bias, upper) + projection, upper)

    def partition(self, lattice: ArrayLattice) -> bounding_arrays.IntervalPartition:
        """Return the partition of each bin's range into parts of width tau, among which an interval is
        drawn.
        """
        arrays, upper = lattice.arrays, float(lattice.bound.upper)
        if self.guaranteed:
            width = bounding_arrays.guaranteed_width(
                arrays.fill, arrays.array_bin, len(lattice.top), upper, self.gamma
            )
        else:
            width = bounding_arrays.concentration_width(arrays.per_bin, arrays.capacity, upper, self.gamma)
        whole = np.ceil(np.minimum(width / upper, 1.0) * lattice.top).astype(np.int64)
        return bounding_arrays.IntervalPartition(lattice.top, np.clip(whole, 1, lattice.top))

    def _selects(self, lattice: ArrayLattice) -> BoolArray:
        return self.partition(lattice).parts > 1

    def _dearest(self, lattice: ArrayLattice) -> IntArray:
        partition, index = self.partition(lattice), lattice.arrays.counts.bin_index
        whole = lattice.moves(lattice.top)
        most = _largest(lattice, whole)
        first, last = partition.start[:-1], partition.start[1:] - 1
        dearest = np.zeros_like(whole)
        for i in range(END_PARTS):
            for part in (np.minimum(first + i, last), np.maximum(last - i, first)):
                low, high = partition.interval(part, self.halves)
                moved = lattice.moves(np.where(partition.parts > 1, high - low, lattice.top))
                # whole steps upward, but for 2^-50 of them: ``most_expensive_scale`` has room for more
                per_step = (most / _largest(lattice, moved))[index]
                dearest = np.maximum(dearest, np.ceil(moved * per_step * (1 - 2.0**-50)).astype(np.int64))
        return dearest

    def _choices(self, lattice: ArrayLattice, epsilon: FloatArray) -> tuple[ClaimedScores, ...]:
        return (array_choice(lattice, self._selects(lattice), epsilon / 2),)

    def _interval(
        self, array_means: ArrayMeans, epsilon: FloatArray, measure: Measure
    ) -> tuple[IntArray, IntArray]:
        lattice, partition = array_means.lattice, self.partition(array_means.lattice)
        cost = partition.costs(array_means.y, lattice.arrays.array_bin)
        (choice,) = self._choices(lattice, epsilon)
        drawn = measure.select_claimed(choice, cost, np.ones_like(cost), partition.start)
        low, high = partition.interval(drawn, self.halves)
        selects = self._selects(lattice)
        return np.where(selects, low, 0), np.where(selects, high, lattice.top)


class QuantileRule(StrEnum):
    """Which quantiles bound the projection.

    FIXED: 1/10 and 9/10. OPTIMIZED: ceil(2/eps)/K and 1 - ceil(2/eps)/K, where one more array cut off
    would cost as much as the noise gains: the slope of (1/K)[sum (A-b)^+ + sum (a-A)^+ + (2/eps)(b-a)]
    vanishes at the ceil(2/eps)-th largest and smallest.
    """

    FIXED = "fixed"
    OPTIMIZED = "optimized"

    def tenths(self, arrays: IntArray, epsilon: FloatArray) -> tuple[IntArray, IntArray]:
        """Return ten times the target ranks of the lower and upper private quantile of every bin, (G,) each.

        ``arrays`` (G,) are the numbers of arrays, and ``epsilon`` (G,) the bin's loss.
        """
        if self is QuantileRule.FIXED:
            return arrays, 9 * arrays
        # an infinite epsilon cuts nothing off
        ranks = np.where(np.isinf(epsilon), 0, clipping_rank(epsilon))
        low, high = np.minimum(ranks, arrays), np.maximum(arrays - ranks, 0)
        crossed = low >= high
        half = TENTHS // 2 * arrays
        return np.where(crossed, half, TENTHS * low), np.where(crossed, half, TENTHS * high)


@dataclass(frozen=True)
class Quantile(Projected):
    """``rule`` chooses the two quantiles; a quarter of epsilon goes to each, half to the noise.

    No error below the range is proved for all values: if all are U, every position below U has the same rank,
    both ends are uniform and the error is about U/3 however large epsilon is. Values that are spread are
    treated far better: simulate.
    """

    rule: QuantileRule = QuantileRule.FIXED
    grouping: Grouping = Grouping.BEST_FIT
    cap: bounding_arrays.CountCap = bounding_arrays.CountCap.ARGMAX

    citation = (
        PAPER + "Quantile; Smith, Privacy-Preserving Statistical Estimation with Optimal Convergence Rates"
    )

    @property
    def name(self) -> str:
        """Key in the registry, such as ``fixed_quantile_best_fit``."""
        return f"{self.rule.value}_quantile_{self.grouping.value}"

    def _selects(self, lattice: ArrayLattice) -> BoolArray:
        return np.ones(len(lattice.top), dtype=bool)

    def _dearest(self, lattice: ArrayLattice) -> IntArray:
        whole = lattice.moves(lattice.top)
        # the width may be anything
        return np.where(whole > 0, _largest(lattice, whole)[lattice.arrays.counts.bin_index], 0)

    def _choices(self, lattice: ArrayLattice, epsilon: FloatArray) -> tuple[ClaimedScores, ...]:
        end = array_choice(lattice, self._selects(lattice), epsilon / 4, TENTHS)
        return (end, end)

    def _interval(
        self, array_means: ArrayMeans, epsilon: FloatArray, measure: Measure
    ) -> tuple[IntArray, IntArray]:
        targets = self.rule.tenths(array_means.lattice.arrays.per_bin, epsilon)
        ends = [
            private_position(array_means, target, choice, measure)
            for target, choice in zip(targets, self._choices(array_means.lattice, epsilon), strict=True)
        ]
        # a position v stands for [v, v + 1): the interval covers both, so it is never empty
        return np.minimum(*ends), np.maximum(*ends) + 1


def private_position(
    array_means: ArrayMeans, target: IntArray, choice: ClaimedScores, measure: Measure
) -> IntArray:
    """Return a privately selected quantile of each bin's array means, in lattice units, shape (G,).

    ``target`` (G,) is ten times the rank aimed at, ``choice`` the exponential mechanism. Position v has rank
    i(v) = #{y <= v}; those of rank i are Y_i <= v < Y_{i+1}, as many as Smith's cell is long.
    """
    arrays = array_means.lattice.arrays
    cell_bin = np.repeat(np.arange(arrays.counts.bins), arrays.per_bin + 1)
    start = arrays.start + np.arange(arrays.counts.bins + 1)
    rank = np.arange(len(cell_bin)) - start[:-1][cell_bin]
    bound_above = np.empty(len(cell_bin), dtype=np.int64)
    is_last = np.zeros(len(cell_bin), dtype=bool)
    is_last[start[1:] - 1] = True
    bound_above[is_last] = array_means.lattice.top
    bound_above[~is_last] = array_means.y
    begin = np.where(rank == 0, 0, np.roll(bound_above, 1))
    cost = np.abs(TENTHS * rank - target[cell_bin])
    drawn = measure.select_claimed(choice, cost, bound_above - begin, start)
    return begin[drawn] + measure.uniform_below((bound_above - begin)[drawn])


def array_choice(
    lattice: ArrayLattice, selects: BoolArray, epsilon: FloatArray, units: int = 1
) -> ClaimedScores:
    """Return an exponential mechanism by scores that one array changes by ``units``, for bins in ``selects``.

    Every vehicle in an array of such a bin loses ``epsilon`` by it; shapes (G,).
    """
    counts, change = lattice.arrays.counts, units * lattice.arrays.influence.astype(np.float64)
    pays = np.flatnonzero((lattice.arrays.touched_per_pair > 0) & selects[counts.bin_index])
    support = means.support_of(counts, pays)
    return ClaimedScores(support, change, means.choice_scale(change, epsilon), means.Means.kind, OF_CHOICE)


def _largest(lattice: ArrayLattice, moves: IntArray) -> IntArray:
    """The largest of ``moves`` (P,) in every bin."""
    largest = np.zeros(len(lattice.top), dtype=np.int64)
    np.maximum.at(largest, lattice.arrays.counts.bin_index, moves)
    return largest


def _projected(lattice: ArrayLattice, width: IntArray, epsilon: FloatArray) -> means.LaplaceSumQuery:
    """The sum of array means that are projected to intervals of ``width`` (G,)."""
    of = ClaimedSums(means.support_of(lattice.arrays.counts), lattice.moves(width), OF_SUM)
    return means.laplace_sum_query(of, epsilon, lattice.unit, lattice.bias)


# Pooled count cap: the mean of every user's first m_UB samples, with Laplace noise.
#
# New here, beside paper 003's arrays: the same cap m_UB, no arrays. With r_l = min(m_l, m_UB) kept samples,
# mean of all kept ones, sensitivity U m_UB / sum r, between those of BestFit (U/Kbar) and WrapAround (U/K);
# weights are equal, so the worst-case bias is that of dropping D = N - sum r samples alone.
#
# Theorem (REPLACE_USER_VALUES). What is dropped depends on counts only, so the release is the baseline's on
# the capped counts: user l moves the sum of the kept samples by at most r_l K steps, and pays r_l K over the
# scale. The distance to the mean of all samples is at most U D/N, which is attained.


@dataclass(frozen=True)
class Pooled(means.Means):
    """``cap`` chooses m_UB, the most samples of one user that a bin takes."""

    cap: bounding_arrays.CountCap = bounding_arrays.CountCap.ARGMAX

    name = "pooled"
    citation = "here; the cap by Rameshwar et al. (003), the bias of dropping samples by arXiv 2405.06261"

    def sum_query(self, request: StatisticRequest) -> means.LaplaceSumQuery:
        """Return the query for each bin's sum of the kept samples, from public counts; nothing is drawn."""
        counts, bound, statistic = request.counts, request.bound, request.statistic
        self._require(request)
        kept = bounding_arrays.kept_counts(counts, self.cap.of(counts))
        samples = counts.samples_per_bin
        bias = bounding_arrays.dropped_mean_bias(samples - kept.samples_per_bin, samples, float(bound.upper))
        bias = bias + publish.rounding_bias(statistic, bound)
        of, one = means.box_of(statistic, kept, bound), means.unit(statistic, kept, bound)
        return means.laplace_sum_query(of, request.loss, one, bias)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``epsilon`` (G,) is each bin's loss; ``measure`` draws all
        noise and, in a release, charges for it.
        """
        counts, bound = samples.counts, samples.bound
        kept = bounding_arrays.kept_counts(counts, self.cap.of(counts))
        running = np.concatenate([[0], np.cumsum(samples.value)])
        begin = samples.start[:-1]
        first = running[begin + kept.count] - running[begin]
        query = self.sum_query(StatisticRequest(counts, bound, statistic, epsilon))
        return query.means(first, measure, bound)
