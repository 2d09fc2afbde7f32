"""A variance from a zCDP mechanism of means: it releases the mean, and the mean of squared distances.

As ``two_moments`` does for pure epsilon: with M2 the mean of y = (x - U/2)^2 in [0, U^2/4],

    Var = M2 - (mean - U/2)^2,   |Var' - Var| <= |e2| + U |e1|.

Rho is shared in public. The noise of a run is a range over sqrt(rho), and the sum of the two errors,
U^2/sqrt(r) + (U^2/4)/sqrt(1 - r), is least where the mean gets r = 4^(2/3)/(1 + 4^(2/3)) = 0.716 of rho. (One
vector of both moments, clipped and noised once, would be covered by the same proof; PLAN's variances of
Austin's buses were then 0.94 to 1.4 times as far off.)

Theorem (REPLACE_USER_VALUES). Counts, and with them all sensitivities, are the same for both runs, and a
vehicle's rhos by the theorem of the mechanism of means add up (Bun and Steinke 2016, Lemma 2.3), in whole
10^-12: together never more than what is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.moment import variance_from
from trafficdp.mechanisms.two_moments import squares_bound, squares_of
from trafficdp.mechanisms.zcdp_mechanism import ZCDPMechanism
from trafficdp.mechanisms.zcdp_promise import zcdp_promise
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent, compose
from trafficdp.privacy.loss import ZCDP

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]
MEAN_SHARE = Fraction(716, 1000)


@dataclass(frozen=True)
class ZCDPTwoMoments:
    """``means`` with a variance besides. Everything else is its own."""

    means: ZCDPMechanism

    @property
    def name(self) -> str:
        """Key in the registry: that of ``means``."""
        return self.means.name

    @property
    def citation(self) -> str:
        """Of ``means``."""
        return self.means.citation

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """Those of ``means`` and the variance, in the order of Statistic."""
        return tuple(
            each for each in Statistic if each is Statistic.VARIANCE or each in self.means.statistics
        )

    @property
    def idealised(self) -> bool:
        """As ``means``."""
        return self.means.idealised

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> PrivacyEvent:
        """See ZCDPMechanism: for a variance both losses add up, vehicle by vehicle."""
        if statistic is not Statistic.VARIANCE:
            return self.means.event(counts, bound, statistic, rho)
        first, second = zcdp_shares(rho)
        parts = [
            self.means.event(counts, bound, Statistic.MEAN, first),
            self.means.event(counts, squares_bound(bound), Statistic.MEAN, second),
        ]
        loss = compose(parts, counts.users)
        return zcdp_promise(self.name, statistic, counts, bound, loss, idealised=self.idealised)

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """See ZCDPMechanism: |e2| + U |e1| and the rounding of y, at most the range."""
        if statistic is not Statistic.VARIANCE:
            return self.means.expected_error(counts, bound, statistic, rho)
        first, second = zcdp_shares(rho)
        e1 = self.means.expected_error(counts, bound, Statistic.MEAN, first)
        e2 = self.means.expected_error(counts, squares_bound(bound), Statistic.MEAN, second)
        squares = squares_bound(bound)
        # (2 k - K)^2 of K^2 steps are exact
        rounding = float(squares.step / 2) if squares.steps < bound.steps**2 else 0.0
        return np.minimum(e2 + float(bound.upper) * e1 + rounding, statistic.largest(bound.upper))

    def estimate(self, samples: Samples, statistic: Statistic, rho: float, noise: NoiseSource) -> FloatArray:
        """See ZCDPMechanism. The variance of a single record is 0."""
        if statistic is not Statistic.VARIANCE:
            return self.means.estimate(samples, statistic, rho, noise)
        first, second = zcdp_shares(rho)
        mean = self.means.estimate(samples, Statistic.MEAN, first, noise)
        squares = self.means.estimate(squares_of(samples), Statistic.MEAN, second, noise)
        variance = variance_from(mean, squares, float(samples.bound.upper))
        return np.where(samples.counts.samples_per_bin == 1, 0.0, variance)


def zcdp_shares(rho: float) -> tuple[float, float]:
    """Return the rho of the mean and of M2: whole 10^-12, together never more than ``rho``.

    Raises UsageError unless rho is infinite, or a number from 2 * 10^-12 to one million.
    """
    if rho == np.inf:
        return rho, rho
    total = ZCDP.of(rho).pico
    first = total * MEAN_SHARE.numerator // MEAN_SHARE.denominator
    return ZCDP(first).number, ZCDP(total - first).number
