"""Pooled count cap: the mean of every user's first m_UB samples, with Laplace noise.

New here, beside paper 003's arrays: the same cap m_UB, no arrays. With r_l = min(m_l, m_UB) kept samples,
mean of all kept ones, sensitivity U m_UB / sum r, between those of BestFit (U/Kbar) and WrapAround (U/K);
weights are equal, so the worst-case bias is that of dropping D = N - sum r samples alone.

Theorem (REPLACE_USER_VALUES). What is dropped depends on counts only, so the release is the baseline's on the
capped counts: user l moves the sum of the kept samples by at most r_l K steps, and pays r_l K over the scale.
The distance to the mean of all samples is at most U D/N, which is attained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.arrays import CountCap, dropped_mean_bias, kept_counts
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.means import Means, NoisySum, noisy_sum, speeds, unit
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Counts, Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive import Samples

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pooled(Means):
    """``cap`` chooses m_UB, the most samples of one user that a bin takes."""

    cap: CountCap = CountCap.ARGMAX

    name = "pooled"
    citation = "here; the cap by Rameshwar et al. (003), the bias of dropping samples by arXiv 2405.06261"

    def sum_of(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> NoisySum:
        """Return the noisy sum of the kept samples."""
        self._require(statistic, epsilon, counts)
        kept = kept_counts(counts, self.cap.of(counts))
        samples = counts.samples_per_bin
        bias = dropped_mean_bias(samples - kept.samples_per_bin, samples, float(bound.upper))
        one = unit(statistic, kept, bound)
        return noisy_sum(speeds(kept, bound), epsilon, one, bias + rounding_bias(statistic, bound))

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return the estimates of all bins, clamped to their range."""
        counts, bound = samples.counts, samples.bound
        kept = kept_counts(counts, self.cap.of(counts))
        running = np.concatenate([[0], np.cumsum(samples.value)])
        begin = samples.start[:-1]
        first = running[begin + kept.count] - running[begin]
        return self.sum_of(counts, bound, statistic, epsilon).means(first, measure, bound)
