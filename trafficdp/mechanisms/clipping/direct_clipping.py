"""Variance of samples that are clipped where the worst-case optimal mean clips them, released directly.

The clipping of paper 000 (Rameshwar, Tandon, arXiv 2502.04749) per sample, [a_l, U - a_l] with
a_l = (U m_l - T)/(2 m_l), and the exact sensitivity of the variance under it, which is ours:
``bounding.worst_case.clipped_variance_sensitivity``.

Theorem (REPLACE_USER_VALUES). The integer N Q - S^2 of the clipped samples gets one discrete Laplace draw; a
vehicle changes it by at most N^2 D_l and pays N^2 D_l / scale.

Clipping moves the variance by at most 2 U beta, beta the largest bias of the mean:
|Var(x') - Var(x)| <= mean |x' - x| |x' + x - mean' - mean| <= 2 U beta.
Prefer two moments (``worst_case_clipping``) where the mean is released anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.worst_case import clipped_variance_sensitivity, worst_case_threshold
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.integer_laplace import charge, checked_epsilon, laplace_loss, laplace_scale
from trafficdp.mechanisms.moment import check_sums, second_moment
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.worst_case_error import clamped_laplace_error
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DirectClipping:
    """The population variance of clipped samples, by its exact sensitivity."""

    name = "direct_clipping"
    citation = "here; the intervals by Rameshwar, Tandon, arXiv 2502.04749, Theorem III.1"
    statistics = (Statistic.VARIANCE,)
    idealised = False

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism: exact personal losses."""
        _, change, scale = self._plan(counts, bound, statistic, epsilon)
        loss = laplace_loss(change, scale[counts.bin_index])
        sensitivity = _largest(counts, change) * _unit(counts, bound)
        return promise(self.name, statistic, counts, bound, sensitivity, charge(counts, loss))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism: bias 2 U beta and noise, at the worst truth."""
        (term,) = self.noise_terms(counts, bound, statistic, epsilon)
        return clamped_laplace_error(term.scale * term.step, term.bias, statistic.largest(bound.upper))

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms."""
        low, _, scale = self._plan(counts, bound, statistic, epsilon)
        reach = statistic.largest(bound.upper)
        lost = np.bincount(counts.bin_index, low * counts.count, counts.bins)
        bias = 2 * float(bound.upper) * float(bound.step) * lost / counts.samples_per_bin
        rounded = np.minimum(bias + rounding_bias(statistic, bound), reach)
        return (NoiseTerm(scale, _unit(counts, bound), rounded),)

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        counts, bound = samples.counts, samples.bound
        low, _, scale = self._plan(counts, bound, statistic, epsilon)
        per_sample = np.repeat(low, counts.count)
        value = np.clip(samples.value, per_sample, bound.steps - per_sample)
        owner = np.repeat(counts.bin_index, counts.count)
        total, squares = (np.zeros(counts.bins, dtype=np.int64) for _ in range(2))
        np.add.at(total, owner, value)
        np.add.at(squares, owner, value**2)
        exact = counts.samples_per_bin.astype(object) * squares - total.astype(object) ** 2
        noisy = (exact + noise.discrete_laplace(scale)).astype(np.float64)
        result: FloatArray = np.clip(noisy * _unit(counts, bound), 0.0, statistic.largest(bound.upper))
        return result

    def _plan(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Steps cut from either end of every sample (P,), changes of N Q - S^2 (P,), scales (G,)."""
        require_statistic(self.name, statistic, self.statistics)
        checked_epsilon(epsilon, counts)
        check_sums(second_moment(bound), int(counts.samples_per_bin.max(initial=0)))
        count, bin_index, steps = counts.count, counts.bin_index, bound.steps
        threshold = worst_case_threshold(count, bin_index, counts.bins, epsilon)[bin_index]
        # inward to whole steps, at most to the middle: ceil((steps m - T)/(2 m))
        cut = -(-steps * np.maximum(count - threshold, 0) // (2 * count))
        low = np.minimum(cut, steps // 2)
        high = steps - low
        exact = clipped_variance_sensitivity(
            count, low.astype(np.float64), high.astype(np.float64), bin_index, counts.bins
        )
        # a whole number up to rounding of a few units in the last place
        raw = exact * counts.samples_per_bin[bin_index].astype(np.float64) ** 2
        change = np.ceil(raw * (1 + 2.0**-46) - 2.0**-20).astype(np.int64)
        return low, change, laplace_scale(_largest(counts, change), epsilon)


def _largest(counts: Counts, change: IntArray) -> IntArray:
    largest = np.zeros(counts.bins, dtype=np.int64)
    np.maximum.at(largest, counts.bin_index, change)
    return largest


def _unit(counts: Counts, bound: ContributionBound) -> FloatArray:
    """One step of N Q - S^2 in the variance's unit: q^2/N^2."""
    return float(bound.step) ** 2 / counts.samples_per_bin.astype(np.float64) ** 2
