"""AKMV: clip users' sums at a privately found quantile (Amin, Kulesza, Munoz, Vassilvitskii 2019).

The adaptation of paper 000 (Rameshwar, Tandon, arXiv 2502.04749, section IV) to user-level privacy:
T = PrivQuantile(sums, rank L - ceil(2/eps), eps/2), then (1/N) sum min(S_l, T) + Lap(2 T/(N eps)).
ceil(2/eps) is the right rank for the eps/2 of the noise: the slope of sum (S_l - T)^+ + 2 T/eps in T is
2/eps - #{S_l > T}. Sums are integers, T is drawn exactly on the lattice 0..U m*, and the noise is discrete
Laplace of scale 2T/eps.

Theorem (REPLACE_USER_VALUES). The quantile is eps/2-DP for every visitor of the bin: one vehicle changes the
number of sums below any position by at most 1. Given T, a visitor moves the clipped total by at most
min(T, U m_l) <= T, so that the noise costs at most eps/2. T = 0 releases 0 and adds no noise. T is
never published. A visitor pays eps a bin: its share of the noise is at most eps/2 whatever T is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.worst_case import clipping_rank
from trafficdp.mechanisms.arrays.private_quantile import exponential_quantile
from trafficdp.mechanisms.laplace.integer_laplace import charge, checked_epsilon, laplace_scale
from trafficdp.mechanisms.moment import (
    Moment,
    check_sums,
    first_moment,
    first_totals,
    second_moment,
    second_totals,
    variance_from,
)
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.mechanisms.publish import rounding_bias
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
class AKMV:
    """Clipping at a private quantile of users' sums; a variance by two moments at half of epsilon each."""

    name = "akmv"
    citation = (
        "Amin, Kulesza, Munoz, Vassilvitskii: Bounding User Contributions: A Bias-Variance Trade-off in "
        "Differential Privacy, ICML 2019; as adapted in arXiv 2502.04749"
    )
    statistics = (Statistic.MEAN, Statistic.VARIANCE)
    idealised = False

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism: every visitor of a bin pays its epsilon."""
        require_statistic(self.name, statistic, self.statistics)
        loss = checked_epsilon(epsilon, counts)[counts.bin_index]
        # refused here, from counts, if the widest noise could not be drawn: later it would tell of T
        widest = first_moment(bound) if statistic is Statistic.MEAN else second_moment(bound)
        laplace_scale(widest.steps * counts.largest_count_per_bin, epsilon / 4)
        sensitivity = np.full(counts.bins, statistic.largest(bound.upper))
        return promise(self.name, statistic, counts, bound, sensitivity, charge(counts, loss))

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """See Mechanism. No formula: T may be anywhere, so that values exist for which nothing is learnt.

        Returns the trivial bound, the whole range (U or U^2/4); compare it by simulation.
        """
        require_statistic(self.name, statistic, self.statistics)
        noiseless = np.isinf(checked_epsilon(epsilon, counts))
        return np.where(noiseless, rounding_bias(statistic, bound), statistic.largest(bound.upper))

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """See Mechanism."""
        require_statistic(self.name, statistic, self.statistics)
        counts, bound = samples.counts, samples.bound
        checked_epsilon(epsilon, counts)
        contributions = samples.contributions()
        if statistic is Statistic.MEAN:
            return _mean(counts, first_moment(bound), first_totals(contributions), epsilon, noise)
        half = epsilon / 2
        mean = _mean(counts, first_moment(bound), first_totals(contributions), half, noise)
        second = _mean(counts, second_moment(bound), second_totals(contributions), half, noise)
        return variance_from(mean, second, float(bound.upper))


def _mean(
    counts: Counts, moment: Moment, total: IntArray, epsilon: FloatArray, noise: NoiseSource
) -> FloatArray:
    check_sums(moment, int(counts.samples_per_bin.max(initial=0)))
    users = counts.users_per_bin
    rank = np.maximum(users - clipping_rank(epsilon), 0)
    # an infinite epsilon keeps everything: the rank of the largest sum, and the end of its cell
    rank = np.where(np.isfinite(epsilon), rank, users)
    order = np.lexsort((total, counts.bin_index))
    start = np.concatenate([[0], np.cumsum(users)]).astype(np.int64)
    high = moment.steps * counts.largest_count_per_bin
    with np.errstate(over="ignore"):
        scale = np.minimum(4.0 / epsilon, 2.0**60)
    threshold = exponential_quantile(total[order], start, np.zeros_like(high), high, rank, scale, noise)
    threshold = np.where(np.isfinite(epsilon), threshold, high)
    clipped = np.minimum(total, threshold[counts.bin_index])
    noisy = noise.discrete_laplace(laplace_scale(threshold, epsilon / 2))
    np.add.at(noisy, counts.bin_index, clipped)
    return np.clip(noisy * (moment.unit / counts.samples_per_bin), 0.0, moment.upper)
