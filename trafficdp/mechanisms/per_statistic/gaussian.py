"""The Gaussian twin of equal-noise Laplace: one standard deviation for all bins, accounted in rho-zCDP.

Exact integer sums with discrete Gaussian noise (Canonne, Kamath, Steinke, "The Discrete Gaussian for
Differential Privacy", 2020).

Theorem (REPLACE_USER_VALUES). User l loses rho_l = sum_g D_{g,l}^2 / (2 sd_g^2), with D_{g,l} its
exact sensitivity; over all choices, the largest sd is least at sd = max_l |D_l|_2 / sqrt(2 rho) for every
bin (rho >= |D_l|^2/(2 sd^2) for every user). For d bins of equal
sensitivity D at (1, 10^-6) the noise's sd is 4.225 sqrt(d) D against Laplace's 1.414 d D: better from d = 9.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.errors import UsageError, positive
from trafficdp.measurement.laws import Gaussian
from trafficdp.measurement.sets import Box, Measure, Step
from trafficdp.mechanisms import means
from trafficdp.mechanisms.known_error import NoiseTerm
from trafficdp.mechanisms.protocol import StatisticRequest, require_statistic
from trafficdp.mechanisms.publish import clamp_to_range, rounding_bias
from trafficdp.model import Counts, Statistic
from trafficdp.noise.source import LARGEST_SCALE, group_scales
from trafficdp.privacy.loss import LossKind, round_up
from trafficdp.sensitive import Samples


@dataclass(frozen=True)
class GaussianTwin:
    """Equal Gaussian noise in every bin, for means or for vehicle means."""

    name = "gaussian_twin"
    citation = "Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy, NeurIPS 2020"
    statistics = (Statistic.MEAN, Statistic.VEHICLE_MEAN)
    kind = LossKind.ZCDP
    enforced = True
    idealised = False

    def steps(self, request: StatisticRequest) -> tuple[Step, ...]:
        """Return the measurement step: sums of all bins with Gaussian noise.

        UsageError where it cannot be drawn.
        """
        counts, bound, statistic = request.counts, request.bound, request.statistic
        require_statistic(self.name, statistic, self.statistics)
        of, unit = means.box_of(statistic, counts, bound), means.unit(statistic, counts, bound)
        return (Step(of, Gaussian(_deviations(of, counts, unit, request.loss))),)

    def expected_error(self, request: StatisticRequest) -> FloatArray:
        """Return each bin's expected absolute error, (G,): noise sd sqrt(2/pi), at most U/2, and rounding."""
        (term,) = self.noise_terms(request)
        max_value = request.range
        return np.asarray(
            np.minimum(np.minimum(term.mean_absolute_noise, max_value / 2) + term.bias, max_value)
        )

    def noise_terms(self, request: StatisticRequest) -> tuple[NoiseTerm, ...]:
        """Return the noise and bias that bound each mean's error before clamping, from counts."""
        counts, bound, statistic = request.counts, request.bound, request.statistic
        require_statistic(self.name, statistic, self.statistics)
        unit = means.unit(statistic, counts, bound)
        sd = _deviations(means.box_of(statistic, counts, bound), counts, unit, request.loss)
        return (NoiseTerm(sd, unit, np.full(counts.bins, rounding_bias(statistic, bound)), gaussian=True),)

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure
    ) -> FloatArray:
        """Return noisy estimates of all bins, shape (G,), in the unit of speed, clamped to 0..U.

        ``samples`` hold the private speeds and ``loss`` is one rho for all bins; ``measure`` draws all noise
        and, in a release, charges for it.
        """
        counts, bound = samples.counts, samples.bound
        (step,) = self.steps(StatisticRequest(counts, bound, statistic, loss))
        noisy = measure.measure(step, means.values_of(statistic, samples.contributions()))
        return clamp_to_range(statistic, noisy * means.unit(statistic, counts, bound), float(bound.upper))


def _deviations(of: Box, counts: Counts, unit: FloatArray, loss: FloatArray) -> FloatArray:
    """Standard deviations in whole steps, shape (G,): the same in the statistic's ``unit`` everywhere."""
    if np.isinf(loss):
        return np.zeros(counts.bins)
    rho = positive(rho=float(loss))
    length = np.sqrt(counts.sum_per_user((of.high * unit[counts.bin_index]) ** 2)).max(initial=0.0)
    # room for rounding up every pair's loss to 10^-12, and for the length, unit and quotient
    room = (int(counts.bins_per_user.max(initial=0)) + 1) * 1e-12
    usable = max(rho * (1 - 2.0**-40) - room, rho / 2)
    sd = round_up(length * (1 + 2.0**-40) / np.sqrt(2 * usable) / unit)
    if not bool(np.all(sd <= LARGEST_SCALE)):
        raise UsageError(
            "noise of this size cannot be drawn exactly", todo="ask for a larger rho or a larger speed_step"
        )
    return group_scales(sd)
