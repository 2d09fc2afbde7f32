"""Clipping of users' sums: optimal for the worst case, and AKMV.

Worst-case optimal clipping of users' sums (OPT), for means.

Paper 000: Rameshwar, Tandon, "Bounding User Contributions for User-Level Differentially Private Mean
Estimation", arXiv 2502.04749. The interval, its optimality, the errors and what the paper's text gets wrong
are in ``bounding.worst_case``. We depart from the paper in this: sums are integers, intervals are rounded
inward to whole steps and the noise is discrete Laplace; the charge is each vehicle's own,
width_l / scale instead of T / scale; T may minimise the exact error instead of the paper's bound.

Theorem (REPLACE_USER_VALUES). The clipped sum of user l lies in an interval of width w_l, its sensitivity
(public: it depends on counts only): less its lower end it is in 0..w_l, so that it costs w_l/B.

AKMV: clip users' sums at a privately found quantile (Amin, Kulesza, Munoz, Vassilvitskii 2019).

The adaptation of paper 000 (Rameshwar, Tandon, arXiv 2502.04749, section IV) to user-level privacy:
T = PrivQuantile(sums, rank L - ceil(2/eps), eps/2), then (1/N) sum min(S_l, T) + Lap(2 T/(N eps)).
ceil(2/eps) is the right rank for the eps/2 of the noise: the slope of sum (S_l - T)^+ + 2 T/eps in T is
2/eps - #{S_l > T}. Sums are integers, T is drawn exactly on the lattice 0..U m*, and the noise is discrete
Laplace of scale 2T/eps.

Theorem (REPLACE_USER_VALUES). The quantile costs eps/2 (``measurement.sets``). Given T, a visitor moves the
clipped total by at most min(T, U m_l) <= T, so that the noise costs at most eps/2, and exactly that for some
T. T = 0 releases 0 and adds no noise. T is never published. So a visitor is charged eps a bin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.bounding.worst_case import clip_cut, clipping_rank, least_error_threshold, worst_case_threshold
from trafficdp.measurement.sets import Box, Measure, Priced, Ranks
from trafficdp.mechanisms import means
from trafficdp.mechanisms.protocol import StatisticRequest
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.sensitive import Samples


@dataclass(frozen=True)
class WorstCaseClipping(means.Means):
    """OPT of paper 000. ``least_exact_error`` chooses T by the exact error; False is the paper's T."""

    least_exact_error: bool = False

    citation = (
        "Rameshwar, Tandon: Bounding User Contributions for User-Level Differentially Private Mean "
        "Estimation, arXiv 2502.04749, Theorem III.1"
    )

    @property
    def name(self) -> str:
        """The mechanism's name in the registry."""
        return "worst_case_clipping_exact" if self.least_exact_error else "worst_case_clipping"

    def sum_query(self, request: StatisticRequest) -> means.LaplaceSumQuery:
        """Return the query for each bin's sum of clipped totals, from public counts.

        Nothing is drawn. U/2 without noise where nothing is kept. Nothing is kept where a bin has fewer than
        ceil(2/epsilon) vehicles. A vehicle loses less than epsilon if its interval is narrower than the
        widest.
        """
        counts, bound, statistic, epsilon = request.counts, request.bound, request.statistic, request.loss
        self._require(request)
        support, one = means.support_of(counts), means.unit(statistic, counts, bound)
        cut, width = self.clipping(counts, bound, epsilon)
        of, start = Box(support, width), support.sums(cut).astype(np.float64)
        # nothing kept: the middle, as near to speeds that were never rounded
        nothing = means.largest_move(of) == 0
        bias = np.where(nothing, float(bound.upper) / 2, start * one + rounding_bias(statistic, bound))
        start = np.where(nothing, bound.upper_steps * counts.samples_per_bin / 2, start)
        return means.laplace_sum_query(of, epsilon, one, bias, start)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``epsilon`` (G,) is each bin's loss; ``measure`` draws all
        noise and, in a release, charges for it.
        """
        counts, bound = samples.counts, samples.bound
        clipped = self.sum_query(StatisticRequest(counts, bound, statistic, epsilon))
        cut, _ = self.clipping(counts, bound, epsilon)
        return clipped.means(samples.contributions().total - cut, measure, bound)

    def clipping(
        self, counts: Counts, bound: ContributionBound, epsilon: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Return the low end and the width of the interval each pair's total is clipped to, in steps, (P,)
        each.

        In a bin of threshold 0 totals are cut in the middle, and their interval is 0 wide.
        """
        return _clipping(self, counts, bound, epsilon.tobytes())

    def threshold(self, counts: Counts, bound: ContributionBound, epsilon: FloatArray) -> IntArray:
        """Return the clipping threshold of every bin, the width of the widest interval, in steps, (G,)."""
        count, index, bins = counts.count, counts.bin_index, counts.bins
        if not self.least_exact_error:
            return bound.upper_steps * worst_case_threshold(count, index, bins, epsilon)
        finite = np.isfinite(epsilon)
        best = least_error_threshold(count, index, bins, np.where(finite, epsilon, 1.0))
        largest = bound.upper_steps * counts.largest_count_per_bin
        steps = np.clip(np.rint(best * bound.upper_steps), 1, largest).astype(np.int64)
        return np.where(finite, steps, largest)


@lru_cache(maxsize=2)
def _clipping(
    mechanism: WorstCaseClipping, counts: Counts, bound: ContributionBound, epsilon: bytes
) -> tuple[IntArray, IntArray]:
    # the last ones are kept: a mechanism that is tried asks for the same in every run
    threshold = mechanism.threshold(counts, bound, np.frombuffer(epsilon))
    cut = clip_cut(counts.count, counts.bin_index, threshold, bound.upper_steps)
    return cut, np.maximum(bound.upper_steps * counts.count - 2 * cut, 0)


@dataclass(frozen=True)
class AKMV(means.Means):
    """Clipping at a private quantile of users' sums."""

    name = "akmv"
    citation = (
        "Amin, Kulesza, Munoz, Vassilvitskii: Bounding User Contributions: A Bias-Variance Trade-off in "
        "Differential Privacy, ICML 2019; as adapted in arXiv 2502.04749"
    )

    def steps_before_sum(self, request: StatisticRequest) -> tuple[Priced, ...]:
        """Return the private selection of the clipping threshold, with its price, from public counts.

        Nothing is selected here.
        """
        return (self._threshold(request.counts, request.bound, request.loss),)

    def sum_query(self, request: StatisticRequest) -> means.LaplaceSumQuery:
        """Return the sum query at the largest threshold that can be selected, from public counts.

        Nothing is drawn. Its bias is the whole range: the threshold may be anywhere, so that values exist for
        which nothing is learnt. Compare by simulation.
        """
        counts, bound, statistic, epsilon = request.counts, request.bound, request.statistic, request.loss
        self._require(request)
        largest = bound.upper_steps * counts.largest_count_per_bin
        widest = Box(means.support_of(counts), largest[counts.bin_index])
        noiseless = np.isinf(epsilon)
        bias = np.where(noiseless, rounding_bias(statistic, bound), float(bound.upper))
        one = means.unit(statistic, counts, bound)
        return means.laplace_sum_query(widest, epsilon / 2, one, bias, worst_case=True)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy means of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``epsilon`` (G,) is each bin's loss; ``measure`` draws all
        noise and, in a release, charges for it.
        """
        counts, bound = samples.counts, samples.bound
        widest = self.sum_query(StatisticRequest(counts, bound, statistic, epsilon))
        total = samples.contributions().total
        choice = self._threshold(counts, bound, epsilon)
        threshold = np.where(np.isinf(epsilon), choice.high, measure.select(choice, total))
        high = np.minimum(threshold[counts.bin_index], bound.upper_steps * counts.count)
        clipped = replace(
            widest, of=Box(means.support_of(counts), high), scale=means.laplace_scale(threshold, epsilon / 2)
        )
        return clipped.means(total, measure, bound)

    def _threshold(self, counts: Counts, bound: ContributionBound, epsilon: FloatArray) -> Ranks:
        rank = np.maximum(counts.users_per_bin - clipping_rank(epsilon), 0)
        with np.errstate(over="ignore"):
            scale = np.minimum(means.choice_scale(np.ones(counts.bins), epsilon / 2), 2.0**60)
        high = bound.upper_steps * counts.largest_count_per_bin
        return Ranks(means.support_of(counts), high, rank, rank, scale, self.kind)
