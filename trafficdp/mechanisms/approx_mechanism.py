"""What a mechanism of (epsilon, delta) is: the questions of ``Mechanism``, with a guarantee for an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.approx_dp import ApproxDP

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]


class ApproxMechanism(Protocol):
    """One mechanism over all G bins that keeps (epsilon, delta) and no pure epsilon.

    See ``Mechanism`` for the fields. No budget counts in (epsilon, delta), so none can be released:
    they are compared and audited.
    """

    @property
    def name(self) -> str:
        """Key in the registry: lower case, underscores."""

    @property
    def citation(self) -> str:
        """Authors, title, number of the paper."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The statistics it can estimate."""

    @property
    def idealised(self) -> bool:
        """Whether its noise lacks an exact sampler."""

    def guarantee(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> ApproxDP:
        """Return the (epsilon, delta) of every vehicle when every bin g is given ``epsilon[g]``."""

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """Return a bound, from counts alone, on the worst E|estimate - statistic| over values, shape (G,)."""

    def estimate(
        self, samples: Samples, statistic: Statistic, epsilon: FloatArray, noise: NoiseSource
    ) -> FloatArray:
        """Return the estimates of all bins, shape (G,), clamped to the statistic's range."""
