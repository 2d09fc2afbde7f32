"""Huber with Gaussian noise: the (epsilon, delta) form of paper 001, exactly calibrated.

Zhao et al., arXiv 2405.13453, whose noise is Gaussian; the constants that are quoted for it are not
sufficient (erratum E17), so alpha is calibrated in ``noise.smooth_gaussian``. It needs about ten
times as many vehicles a bin as the Student-t form, and where T is large against U (10 of 65, say) it is never
better than Laplace noise: for comparison, not for use.

Theorem (REPLACE_USER_VALUES). Let S be beta-smooth and at least the local sensitivity of the robust mean
(``bounding.smooth_sensitivity``). Centre plus S/alpha times N(0, 1) is (epsilon, delta)-DP for every vehicle
of a bin by Huber, alpha the largest for which that is proved (``noise.smooth_gaussian``); a bin by Laplace
costs epsilon alone. Over bins and moments both parts add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.mechanisms.huber.huber import Huber
from trafficdp.mechanisms.laplace.weighted_mean import SPENT
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise import smooth_gaussian
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.approx_dp import ApproxDP
from trafficdp.privacy.event import PrivacyEvent

FloatArray = npt.NDArray[np.float64]
LARGEST_EPSILON = 100.0
"""A larger epsilon gets the noise of this one, which promises more: with a larger beta no alpha fits."""


@dataclass(frozen=True)
class GaussianHuber(Huber):
    """Paper 001 with N(0, 1) noise; ``delta`` is spent on every moment of every bin by Huber.

    Not pure epsilon-DP: ``event`` refuses, ``guarantee`` says what holds. beta is ``beta_multiple`` times
    epsilon / (8 ln(2/delta)): 1 is best with many thousands of vehicles, 3 to 4 with about a thousand.
    """

    delta: float = 1e-6
    beta_multiple: float = 1.0
    name: str = "gaussian_huber"

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """Raise UsageError: a pure event would promise too much."""
        raise UsageError(
            "this mechanism has no pure privacy event",
            got=self.name,
            expected="a mechanism of pure epsilon",
            todo="ask for its guarantee, or take huber",
        )

    def guarantee(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> ApproxDP:
        """Return the (epsilon, delta) that holds for every vehicle over all bins (basic composition)."""
        pure = super().event(counts, bound, statistic, epsilon)
        by_huber = sum(part.huber.astype(np.int64) for part in self.parts(counts, bound, statistic, epsilon))
        visits = counts.total_per_user(np.asarray(by_huber)[counts.bin_index].astype(np.float64))
        most = int(visits.max(initial=0))
        return ApproxDP(pure.loss.pico, min(Fraction(str(self.delta)) * most, Fraction(1)))

    def calibrated(self, epsilon: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """See Huber. Calibrated once for every distinct epsilon."""
        distinct, which = np.unique(epsilon, return_inverse=True)
        pairs = [self._pair(float(one)) for one in distinct]
        table = np.array(pairs, dtype=np.float64).reshape(-1, 2)[which]
        return table[:, 0], table[:, 1], math.sqrt(2 / math.pi)

    def _pair(self, epsilon: float) -> tuple[float, float]:
        if math.isinf(epsilon):
            return math.inf, 0.0
        epsilon = min(epsilon, LARGEST_EPSILON)
        beta = self.beta_multiple * smooth_gaussian.default_beta(epsilon, self.delta)
        return smooth_gaussian.largest_alpha(epsilon * SPENT, self.delta, beta), beta

    def drawn(self, size: int, noise: NoiseSource) -> FloatArray:
        """See Huber."""
        return smooth_gaussian.draw(size, noise.uniform_below)
