"""Baseline: Laplace noise at the exact user-level sensitivity of every bin.

Paper 003 ("Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets"), Baseline:
mean_g + Lap(b_g), b_g = U m*_g / (N_g eps), value clipped to [0, U]. We depart from the paper in three ways:
the noise is discrete Laplace on whole numbers (no floating-point leakage); the loss is each vehicle's own;
and a variance is measured by sums of x and of x (U - x), at the ratio that is best for a variance alone.

Theorem (REPLACE_USER_VALUES): ``measurement.sets``, steps added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.measure import Measure, Priced
from trafficdp.mechanisms import publish
from trafficdp.mechanisms.calibrated import require_statistic
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.laplace.calibrated import NAME, CalibratedLaplace
from trafficdp.mechanisms.laplace.noise import LaplaceNoise
from trafficdp.mechanisms.scales import HEADROOM, checked_epsilon
from trafficdp.model import OF_MAPS, ContributionBound, Counts, Statistic
from trafficdp.privacy.loss import LossKind

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Contributions, Samples

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Baseline:
    """The Laplace mechanism of every statistic: what a bin's largest vehicle loses is epsilon_g."""

    name = NAME
    citation = (
        "Rameshwar et al., Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets (003), "
        "Baseline; variance by sums of x and of x (U - x), here"
    )
    statistics = OF_MAPS
    idealised = False
    kind = LossKind.PURE
    enforced = True

    def steps(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> tuple[Priced, ...]:
        """See Mechanism."""
        return calibrated_for(statistic, counts, bound, loss).steps()

    def sensitivity(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> FloatArray:
        """See KnownSensitivity."""
        return calibrated_for(statistic, counts, bound, loss).event().sensitivity[statistic]

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> FloatArray:
        """See Mechanism: noise at the worst truth, and the rounding of speeds."""
        return calibrated_for(statistic, counts, bound, loss).expected_errors()[statistic]

    def noise_terms(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
    ) -> tuple[NoiseTerm, ...]:
        """See KnownTerms."""
        calibrated = calibrated_for(statistic, counts, bound, loss)
        first, *more = calibrated.terms(statistic)
        return (replace(first, bias=calibrated.bias(statistic)), *more)

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure
    ) -> FloatArray:
        """See Mechanism."""
        calibrated = calibrated_for(statistic, samples.counts, samples.bound, loss)
        return estimate_of(calibrated, samples.contributions(), measure)


def calibrated_for(
    statistic: Statistic, counts: Counts, bound: ContributionBound, epsilon: FloatArray
) -> CalibratedLaplace:
    """Return the noise that costs every bin's largest vehicle ``epsilon[g]`` (infinite: no noise).

    Raises UsageError for a quantile, and unless every epsilon is above 0 and its noise can be drawn.
    """
    require_statistic(Baseline.name, statistic, Baseline.statistics)
    noise = LaplaceNoise.of_sensitivity(counts, bound, {statistic: 1.0})
    with np.errstate(over="ignore"):
        each = (1 + HEADROOM) / checked_epsilon(epsilon, counts)
    return CalibratedLaplace.of(
        replace(noise, mean=noise.mean * each, vehicle_mean=noise.vehicle_mean * each)
    )


def estimate_of(calibrated: CalibratedLaplace, contributions: Contributions, measure: Measure) -> FloatArray:
    """Measure, and return the one statistic of ``calibrated``, put into its range, shape (G,)."""
    (statistic,) = calibrated.statistics
    upper, drawn = float(contributions.bound.upper), calibrated.numbers(contributions, measure)
    if statistic is not Statistic.VARIANCE:
        return publish.clamped(statistic, drawn[statistic], upper)
    mean = publish.clamped(Statistic.MEAN, drawn[Statistic.MEAN], upper)
    variance = publish.largest_variance(mean, upper) - drawn[statistic]
    varies = contributions.counts.samples_per_bin > 1
    return np.where(varies, publish.clamped(statistic, variance, upper, mean), 0.0)
