"""Pooled count cap: the statistic of every user's first m_UB samples, with Laplace noise.

New here, beside paper 003's arrays: the same cap m_UB, no arrays. With r_l = min(m_l, m_UB) kept samples,
mean of all kept ones, sensitivity U m_UB / sum r, between those of BestFit (U/Kbar) and WrapAround (U/K);
weights are equal, so the worst-case bias is that of dropping D = N - sum r samples alone.

Theorem (REPLACE_USER_VALUES). What is dropped depends on counts only, so the release is the baseline's on the
capped counts: user l loses U r_l / (sum r b), and correspondingly for the variance. The distance to the
statistic of all samples is at most U D/N, or U^2 j (N - j)/N^2 with j = min(D, floor(N/2)), both attained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.bounding.count_cap import (
    CountCap,
    dropped_mean_bias,
    dropped_variance_bias,
    kept_counts,
)
from trafficdp.measurement.measure import Measure, Priced
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.baseline import Baseline, calibrated_for, estimate_of
from trafficdp.mechanisms.promise import promise, require_statistic
from trafficdp.mechanisms.worst_case_error import clamped_laplace_error
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss_kind import LossKind

if TYPE_CHECKING:
    from trafficdp.sensitive.contributions import Contributions
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pooled:
    """``cap`` chooses m_UB, the most samples of one user that a bin takes."""

    cap: CountCap = CountCap.ARGMAX

    name = "pooled"
    citation = "here; the cap by Rameshwar et al. (003), the bias of dropping samples by arXiv 2405.06261"
    statistics = (Statistic.MEAN, Statistic.VARIANCE)
    idealised = False
    kind = LossKind.PURE
    enforced = True

    def steps(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> tuple[Priced, ...]:
        """See Mechanism: those of the baseline on the kept samples."""
        return Baseline().steps(self._kept(counts, statistic), bound, statistic, loss)

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> PrivacyEvent:
        """See Mechanism."""
        event = Baseline().event(self._kept(counts, statistic), bound, statistic, loss)
        return promise(self.name, statistic, counts, bound, event.sensitivity[statistic], event.loss_per_user)

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> FloatArray:
        """See Mechanism: the bias of dropping and the noise on the kept, at the worst truth."""
        reach = statistic.largest(bound.upper)
        if statistic is Statistic.MEAN:
            (term,) = self.noise_terms(counts, bound, statistic, loss)
            return clamped_laplace_error(term.scale * term.step, term.bias, reach)
        kept = Baseline().expected_error(self._kept(counts, statistic), bound, statistic, loss)
        return np.minimum(kept + self._bias(counts, bound, statistic), reach)

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms."""
        first, *more = Baseline().noise_terms(self._kept(counts, statistic), bound, statistic, loss)
        return (replace(first, bias=first.bias + self._bias(counts, bound, statistic)), *more)

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure
    ) -> FloatArray:
        """See Mechanism."""
        kept = self._kept(samples.counts, statistic)
        calibrated = calibrated_for(statistic, kept, samples.bound, loss)
        return estimate_of(calibrated, _first_samples(samples, kept), measure)

    def _bias(self, counts: Counts, bound: ContributionBound, statistic: Statistic) -> FloatArray:
        samples = counts.samples_per_bin
        of_dropping = dropped_mean_bias if statistic is Statistic.MEAN else dropped_variance_bias
        dropped = samples - self._kept(counts, statistic).samples_per_bin
        return of_dropping(dropped, samples, float(bound.upper))

    def _kept(self, counts: Counts, statistic: Statistic) -> Counts:
        require_statistic(self.name, statistic, self.statistics)
        return kept_counts(counts, self.cap.of(counts))


def _first_samples(samples: Samples, kept: Counts) -> Contributions:
    """Return sums and sums of squares of every pair's first ``kept.count`` samples."""
    begin = samples.start[:-1]
    end = begin + kept.count

    def sums(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        running = np.concatenate([[0], np.cumsum(values)])
        return np.asarray(running[end] - running[begin], dtype=np.int64)

    return replace(
        samples.contributions(),
        counts=kept,
        total=sums(samples.value),
        total_of_squares=sums(samples.value**2),
    )
