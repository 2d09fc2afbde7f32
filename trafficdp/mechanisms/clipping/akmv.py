"""AKMV: clip users' sums at a privately found quantile (Amin, Kulesza, Munoz, Vassilvitskii 2019).

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
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.worst_case import clipping_rank
from trafficdp.measurement.sets import Box, Measure, Priced, Ranks
from trafficdp.mechanisms.means import Means, NoisySum, noisy_sum
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.scales import choice_scale, laplace_scale
from trafficdp.mechanisms.sums import support_of, unit
from trafficdp.model import ContributionBound, Counts, Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Samples

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AKMV(Means):
    """Clipping at a private quantile of users' sums."""

    name = "akmv"
    citation = (
        "Amin, Kulesza, Munoz, Vassilvitskii: Bounding User Contributions: A Bias-Variance Trade-off in "
        "Differential Privacy, ICML 2019; as adapted in arXiv 2502.04749"
    )

    def choices(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[Priced, ...]:
        """Return the choice of the threshold."""
        return (self._threshold(counts, bound, epsilon),)

    def sum_of(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> NoisySum:
        """Return the noisy sum as if every vehicle could reach T.

        The bias is the range: T may be anywhere, so that values exist for which nothing is learnt. Compare by
        simulation.
        """
        self._require(statistic, epsilon, counts)
        widest = Box(support_of(counts), (bound.steps * counts.largest_count_per_bin)[counts.bin_index])
        noiseless = np.isinf(epsilon)
        bias = np.where(noiseless, rounding_bias(statistic, bound), float(bound.upper))
        one = unit(statistic, counts, bound)
        return noisy_sum(widest, epsilon / 2, one, bias, dearest=True)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return the estimates of all bins, clamped to their range."""
        counts, bound = samples.counts, samples.bound
        widest, total = self.sum_of(counts, bound, statistic, epsilon), samples.contributions().total
        choice = self._threshold(counts, bound, epsilon)
        threshold = np.where(np.isinf(epsilon), choice.high, measure.select(choice, total))
        high = np.minimum(threshold[counts.bin_index], bound.steps * counts.count)
        clipped = replace(
            widest, of=Box(support_of(counts), high), scale=laplace_scale(threshold, epsilon / 2)
        )
        return clipped.means(total, measure, bound)

    def _threshold(self, counts: Counts, bound: ContributionBound, epsilon: FloatArray) -> Ranks:
        rank = np.maximum(counts.users_per_bin - clipping_rank(epsilon), 0)
        with np.errstate(over="ignore"):
            scale = np.minimum(choice_scale(np.ones(counts.bins), epsilon / 2), 2.0**60)
        high = bound.steps * counts.largest_count_per_bin
        return Ranks(support_of(counts), high, rank, rank, scale, self.kind)
