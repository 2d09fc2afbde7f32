"""The Gaussian twin of equal-noise Laplace: one standard deviation for all bins, accounted in rho-zCDP.

Exact integer sums (or N Q - S^2) with discrete Gaussian noise (Canonne, Kamath, Steinke, "The Discrete
Gaussian for Differential Privacy", 2020).

Theorem (REPLACE_USER_VALUES). User l loses rho_l = sum_g D_{g,l}^2 / (2 sd_g^2), with D_{g,l} its
exact sensitivity; over all choices, the largest sd is least at sd = max_l |D_l|_2 / sqrt(2 rho) for every
bin (rho >= |D_l|^2/(2 sd^2) for every user). For d bins of equal
sensitivity D at (1, 10^-6) the noise's sd is 4.225 sqrt(d) D against Laplace's 1.414 d D: better from d = 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp._validate import positive
from trafficdp.errors import UsageError
from trafficdp.mechanisms.laplace.integer_change import integer_change, integer_unit
from trafficdp.mechanisms.laplace.lattice import exact_integer
from trafficdp.mechanisms.promise import require_statistic
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.mechanisms.zcdp_promise import zcdp_promise
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.gaussian import LARGEST_SD, gaussian_absolute_error, gaussian_half_width
from trafficdp.noise.secure import group_scales
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.loss import round_up, sum_per_user, to_pico
from trafficdp.privacy.zcdp_event import ZCDPEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GaussianTwin:
    """Equal Gaussian noise in every bin, for means or for variances."""

    name = "gaussian_twin"
    citation = "Canonne, Kamath, Steinke: The Discrete Gaussian for Differential Privacy, NeurIPS 2020"
    statistics = (Statistic.MEAN, Statistic.VARIANCE)
    idealised = False

    def event(self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float) -> ZCDPEvent:
        """See ZCDPMechanism: every vehicle's exact sum of D^2/(2 sd^2), rounded up."""
        change, sd = self._plan(counts, bound, statistic, rho)
        loss = gaussian_loss(change, sd[counts.bin_index])
        per_user = sum_per_user(to_pico(loss), counts.user_index, counts.users)
        return zcdp_promise(self.name, statistic, counts, bound, per_user)

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """See ZCDPMechanism: sd sqrt(2/pi), at most half the range."""
        _, sd = self._plan(counts, bound, statistic, rho)
        error = gaussian_absolute_error(sd) * integer_unit(statistic, counts, bound)
        return np.asarray(np.minimum(error, statistic.largest(bound.upper) / 2), dtype=np.float64)

    def estimate(self, samples: Samples, statistic: Statistic, rho: float, noise: NoiseSource) -> FloatArray:
        """See ZCDPMechanism. An infinite ``rho`` adds no noise."""
        counts, bound = samples.counts, samples.bound
        _, sd = self._plan(counts, bound, statistic, rho)
        exact = exact_integer(statistic, samples.contributions())
        noisy = (exact + noise.discrete_gaussian(sd)).astype(np.float64)
        value: FloatArray = noisy * integer_unit(statistic, counts, bound)
        return np.clip(value, 0.0, statistic.largest(bound.upper))

    def half_width(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float, level: float
    ) -> FloatArray:
        """Return h with P(|estimate - statistic| > h) <= 1 - level, rounding of speeds included, shape (G,).

        The estimate is the exact statistic of the rounded speeds plus a step times discrete Gaussian noise
        (``noise.gaussian.gaussian_half_width``); clamping moves it away from no statistic of its range.
        """
        _, sd = self._plan(counts, bound, statistic, rho)
        tail = gaussian_half_width(sd, level) * integer_unit(statistic, counts, bound)
        return np.where(sd > 0, tail + rounding_bias(statistic, bound), 0.0)

    def standard_deviation(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """Return sd of the noise in whole steps of the integer, 0 where nothing varies, shape (G,)."""
        return self._plan(counts, bound, statistic, rho)[1]

    def noise_size(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """Return sd sqrt(2/pi), at least the expected absolute noise before clamping, shape (G,)."""
        _, sd = self._plan(counts, bound, statistic, rho)
        return gaussian_absolute_error(sd) * integer_unit(statistic, counts, bound)

    def _plan(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> tuple[FloatArray, FloatArray]:
        """Changes of the integers (P,) and their standard deviations (G,), 0 where nothing varies."""
        require_statistic(self.name, statistic, self.statistics)
        unit = integer_unit(statistic, counts, bound)
        # above 2^53 a whole number may have been rounded down
        change = integer_change(statistic, counts, bound) * (1 + 2.0**-50)
        if rho == np.inf:
            return change, np.zeros(counts.bins)
        positive(rho=rho)
        own = change * unit[counts.bin_index]
        length = np.sqrt(counts.total_per_user(own**2)).max(initial=0.0)
        # room for rounding up every pair's loss to 10^-12, and for the length, unit and quotient
        room = (int(counts.bins_per_user.max(initial=0)) + 1) * 1e-12
        usable = max(rho * (1 - 2.0**-40) - room, rho / 2)
        sd = round_up(length * (1 + 2.0**-40) / np.sqrt(2 * usable) / unit)
        varies = np.zeros(counts.bins, dtype=bool)
        varies[counts.bin_index[change > 0]] = True
        if bool(np.any(varies & ~(sd <= LARGEST_SD))):
            raise UsageError(
                "noise of this size cannot be drawn exactly",
                todo="ask for a larger rho or a larger speed_step",
            )
        return change, group_scales(np.where(varies, sd, 0.0))


def gaussian_loss(change: FloatArray, sd: FloatArray) -> FloatArray:
    """Return upper bounds of change^2 / (2 sd^2); 0 where nothing changes, infinite without noise."""
    noisy = sd > 0
    with np.errstate(over="ignore"):
        ratio = round_up(change / np.where(noisy, sd, 1.0))
        loss = round_up(ratio * ratio / 2)
    return np.where(change == 0, 0.0, np.where(noisy, loss, np.inf))
