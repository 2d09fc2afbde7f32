"""Two stages: a private quantile, then a mean clipped to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.measurement.sets import Measure, Priced
from trafficdp.mechanisms.means import LaplaceSumQuery, Means, choice_scale, support_of, weighting
from trafficdp.mechanisms.protocol import ClaimedScores, StatisticRequest
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.sensitive import Samples

# Two stages: a private interval, then the mean of vehicle means clipped into it (Winsorised).
#
# Levy et al., "Learning with User-Level Privacy" (2021), as paper 001 (arXiv 2405.13453, appendix G) compares
# with it: (1/N) sum n_i clip(y_i, a, b), whose sensitivity is max n_i (b - a)/N. Exact: the interval by the
# exact exponential mechanism, the sum on the integer path.
#
# Theorem (REPLACE_USER_VALUES). Stage one: parts of width tau over [0, U], cost c(j) = max(#means below part
# j, #means above), which one vehicle changes by at most 1; drawn with P(j) proportional to exp(-(eps/2)
# c(j)/2) it costs eps/2. That is a claim: ``measurement`` has no such choice. Stage two: with (a, b) fixed,
# vehicle i's part of the integer sum, less u_i a, is in 0..u_i (b - a); noise of scale 2 max u (b - a)/eps
# costs it (eps/2) u_i / max u. Where tau reaches U, the interval is [0, U], nothing is spent on it and stage
# two gets all of epsilon.


@dataclass(frozen=True)
class TwoStage(Means):
    """The Winsorised mean estimator, over all bins at once.

    tau = sigma sqrt(2 ln(2n/gamma)/m) with m the median count of a bin and sigma = ``spread`` U, a public
    standard deviation of single samples; the interval is ``half_width`` times tau to each side.
    """

    gamma: float = 0.2
    half_width: float = 1.5
    spread: float = 0.5

    name = "two_stage"
    citation = (
        "Levy et al., Learning with User-Level Privacy, 2021; compared with in Zhao et al., "
        "arXiv 2405.13453 (paper 001)"
    )
    statistics = (Statistic.MEAN, Statistic.VEHICLE_MEAN)
    enforced = False

    def width(self, counts: Counts, bound: ContributionBound) -> IntArray:
        """Return the width of every bin's interval in steps, from 1 to U, shape (G,), from public counts."""
        order = np.lexsort((counts.count, counts.bin_index))
        users = counts.users_per_bin
        first = np.cumsum(users) - users
        median = counts.count[order][first + users // 2]
        sigma = float(bound.upper) * self.spread
        tau = sigma * np.sqrt(2 * np.log(2 * users / self.gamma) / median)
        steps = np.clip(np.ceil(tau / float(bound.step)), 1, bound.upper_steps)
        return np.asarray(steps, dtype=np.int64)

    def steps_before_sum(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the private selection of the interval in which vehicles' means should lie, with its price.

        From public counts: nothing is selected here.
        """
        return (self._choice(request.counts, request.bound, request.loss),)

    def sum_query(self, request: StatisticRequest) -> LaplaceSumQuery:
        """Return the query for the sum of vehicle means clipped to an interval, from public counts.

        Nothing is drawn. Its bias is the whole range in bins where an interval will be drawn: adversarial
        values can lie far outside. Values that agree to within the width err by the share of this noise that
        the interval is of the range.
        """
        counts, bound, statistic = request.counts, request.bound, request.statistic
        self._require(request)
        whole = self.width(counts, bound) >= bound.upper_steps
        weighted = weighting(counts, bound, statistic)
        bias = weighted.bias(weighted.weight) + rounding_bias(statistic, bound)
        bias = np.where(whole, bias, float(bound.upper))
        return weighted.sum_query(self._share(whole, request.loss), bias, worst_case=not whole.all())

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``epsilon`` (G,) is each bin's loss; ``measure`` draws all
        noise and, in a release, charges for it.
        """
        counts, bound = samples.counts, samples.bound
        self._require(StatisticRequest(counts, bound, statistic, epsilon))
        weighted, totals = weighting(counts, bound, statistic), samples.contributions().total
        whole = self.width(counts, bound) >= bound.upper_steps
        low, high = self._interval(totals, counts, bound, epsilon, measure)
        low, high = np.where(whole, 0, low), np.where(whole, bound.upper_steps, high)
        bias = np.zeros(counts.bins)
        clipped = weighted.sum_query(self._share(whole, epsilon), bias, low, high)
        above = weighted.values(totals) - weighted.used * low[counts.bin_index]
        return clipped.means(above, measure, bound)

    def _interval(
        self,
        totals: IntArray,
        counts: Counts,
        bound: ContributionBound,
        epsilon: FloatArray,
        measure: Measure,
    ) -> tuple[IntArray, IntArray]:
        """Draw an interval for every bin; ends are whole steps, the interval never longer than meant."""
        index, bins, width = counts.bin_index, counts.bins, self.width(counts, bound)
        candidates = -(-bound.upper_steps // width)
        start = np.concatenate([[0], np.cumsum(candidates)]).astype(np.int64)
        # candidate j holds means in (j tau, (j + 1) tau], the first one 0 as well
        above = -(-totals // (counts.count * width[index])) - 1
        held = np.bincount(start[index] + np.maximum(above, 0), minlength=int(start[-1]))
        upto = np.cumsum(held)
        owner = np.repeat(np.arange(bins), candidates)
        base = np.append(0, upto)[start[:-1]]
        below = upto - held - base[owner]
        cost = np.maximum(below, counts.users_per_bin[owner] - below - held).astype(np.int64)
        choice = self._choice(counts, bound, epsilon)
        drawn = measure.select_claimed(choice, cost, np.ones_like(cost), start) - start[:-1]
        middle = (drawn * width + np.minimum((drawn + 1) * width, bound.upper_steps)) / 2
        low = np.clip(np.ceil(middle - self.half_width * width), 0, bound.upper_steps).astype(np.int64)
        high = np.clip(np.floor(middle + self.half_width * width), 0, bound.upper_steps).astype(np.int64)
        return low, np.maximum(low, high)

    def _choice(self, counts: Counts, bound: ContributionBound, epsilon: FloatArray) -> ClaimedScores:
        pays = np.flatnonzero((self.width(counts, bound) < bound.upper_steps)[counts.bin_index])
        support, change = support_of(counts, pays), np.ones(counts.bins)
        theorem = "a vehicle changes the numbers of means below and above a part by at most 1"
        return ClaimedScores(support, change, choice_scale(change, epsilon / 2), self.kind, theorem)

    def _share(self, whole: BoolArray, epsilon: FloatArray) -> FloatArray:
        return np.where(whole, epsilon, epsilon / 2)


# Private quantiles on an integer lattice, many at once, by exponential mechanism.
#
# ``values`` holds whole numbers, sorted within each column: those of column j are
# ``values[start[j]:start[j + 1]]`` (start of shape (J + 1,)), all within ``low[j]..high[j]``. Replacing one
# value of a column changes every rank by at most 1, and the target rank is public: sensitivity 1.


def exponential_quantile(
    values: IntArray,
    start: IntArray,
    low: IntArray,
    high: IntArray,
    rank: IntArray,
    scale: FloatArray,
    noise: NoiseSource,
) -> IntArray:
    """Return a whole number drawn from low..high (both included) for every column j, (J,).

    In the unit of the values. P(t) is proportional to exp(-|r(t) - rank|/scale) with r(t) = #{values < t}.
    The private values of column j are ``values[start[j]:start[j + 1]]``, sorted and within its low..high.
    ``start`` is (J + 1,); ``low``, ``high``, ``rank`` (0 to the column's size) and ``scale`` are (J,). All
    these are public.

    Smith's mechanism (2011), which Kaplan et al. (2022) use too, on the lattice. With scale 2/eps it is
    eps-DP and of eps-bounded range, hence eps^2/8-zCDP. (Errata: without the 2 the loss is up to 2 eps; and
    dividing by max(q, 1-q), the sensitivity under adding or removing a value, costs up to four times the
    stated rho under replacement.) Equal values leave no whole number between them, of weight exactly 0: no
    clipping of lengths, which would publish a value that many share.
    """
    sizes = np.diff(start)
    columns = len(sizes)
    owner = np.repeat(np.arange(columns), sizes + 1)
    position = np.arange(len(owner)) - np.repeat(start[:-1] + np.arange(columns), sizes + 1)
    # cell i of a column: the whole numbers above its i-th value, up to the next one
    last, first = position == sizes[owner], position == 0
    source = start[:-1][owner] + position
    if len(values) == 0:
        left, right = low[owner] - 1, high[owner]
    else:
        top = len(values) - 1
        right = np.where(last, high[owner], values[np.minimum(source, top)])
        left = np.where(first, low[owner] - 1, values[np.maximum(source - 1, 0)])
    starts = start + np.arange(columns + 1)
    chosen = noise.choose(np.abs(position - rank[owner]), right - left, starts, scale)[0]
    return np.asarray(left[chosen] + 1 + noise.uniform_below(right[chosen] - left[chosen]))
