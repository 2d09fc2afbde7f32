"""Worst-case optimal clipping of users' sums (OPT), for means.

Paper 000: Rameshwar, Tandon, "Bounding User Contributions for User-Level Differentially Private Mean
Estimation", arXiv 2502.04749. The interval, its optimality, the errors and what the paper's text gets wrong
are in ``bounding.worst_case``. We depart from the paper in this: sums are integers, intervals are rounded
inward to whole steps and the noise is discrete Laplace; the charge is each vehicle's own,
width_l / scale instead of T / scale; T may minimise the exact error instead of the paper's bound.

Theorem (REPLACE_USER_VALUES). The clipped sum of user l lies in an interval of width w_l, its sensitivity
(public: it depends on counts only): less its lower end it is in 0..w_l, so that it costs w_l/B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.worst_case import clip_cut, least_error_threshold, worst_case_threshold
from trafficdp.measurement.sets import Box, Measure
from trafficdp.mechanisms.means import Means, NoisySum, largest_move, noisy_sum
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.sums import support_of, unit
from trafficdp.model import ContributionBound, Counts, Statistic

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WorstCaseClipping(Means):
    """OPT of paper 000. ``least_exact_error`` chooses T by the exact error; False is the paper's T."""

    least_exact_error: bool = False

    citation = (
        "Rameshwar, Tandon: Bounding User Contributions for User-Level Differentially Private Mean "
        "Estimation, arXiv 2502.04749, Theorem III.1"
    )

    @property
    def name(self) -> str:
        """Key in the registry."""
        return "worst_case_clipping_exact" if self.least_exact_error else "worst_case_clipping"

    def sum_of(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> NoisySum:
        """Return the noisy sum; where the paper's T is 0 (fewer than ceil(2/eps) vehicles), it is U/2.

        A vehicle pays width/scale: less than epsilon if its interval is narrower.
        """
        self._require(statistic, epsilon, counts)
        support, one = support_of(counts), unit(statistic, counts, bound)
        cut, width = self.clipping(counts, bound, epsilon)
        of, start = Box(support, width), support.sums(cut).astype(np.float64)
        # nothing kept: the middle, as near to speeds that were never rounded
        nothing = largest_move(of) == 0
        bias = np.where(nothing, float(bound.upper) / 2, start * one + rounding_bias(statistic, bound))
        start = np.where(nothing, bound.steps * counts.samples_per_bin / 2, start)
        return noisy_sum(of, epsilon, one, bias, start)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return the estimates of all bins, clamped to their range."""
        counts, bound = samples.counts, samples.bound
        clipped = self.sum_of(counts, bound, statistic, epsilon)
        cut, _ = self.clipping(counts, bound, epsilon)
        return clipped.means(samples.contributions().total - cut, measure, bound)

    def clipping(
        self, counts: Counts, bound: ContributionBound, epsilon: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Return where every vehicle's total begins to be clipped and how wide its interval is, in steps.

        A bin with T = 0 keeps nothing: its total is cut in the middle, and its interval is 0 wide.
        """
        return _clipping(self, counts, bound, epsilon.tobytes())

    def threshold(self, counts: Counts, bound: ContributionBound, epsilon: FloatArray) -> IntArray:
        """Return T of every bin in steps, shape (G,)."""
        count, index, bins = counts.count, counts.bin_index, counts.bins
        if not self.least_exact_error:
            return bound.steps * worst_case_threshold(count, index, bins, epsilon)
        finite = np.isfinite(epsilon)
        best = least_error_threshold(count, index, bins, np.where(finite, epsilon, 1.0))
        largest = bound.steps * counts.largest_count_per_bin
        steps = np.clip(np.rint(best * bound.steps), 1, largest).astype(np.int64)
        return np.where(finite, steps, largest)


@lru_cache(maxsize=2)
def _clipping(
    mechanism: WorstCaseClipping, counts: Counts, bound: ContributionBound, epsilon: bytes
) -> tuple[IntArray, IntArray]:
    # the last ones are kept: a mechanism that is tried asks for the same in every run
    threshold = mechanism.threshold(counts, bound, np.frombuffer(epsilon))
    cut = clip_cut(counts.count, counts.bin_index, threshold, bound.steps)
    return cut, np.maximum(bound.steps * counts.count - 2 * cut, 0)
