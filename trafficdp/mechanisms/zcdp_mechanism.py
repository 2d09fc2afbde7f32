"""What a zCDP mechanism is: the questions of ``Mechanism``, with one total rho for the whole release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import NoiseSource
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]


class ZCDPMechanism(Protocol):
    """One mechanism over all G bins whose noise is Gaussian; see ``Mechanism`` for the fields."""

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

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> PrivacyEvent:
        """Return what it promises when the whole release is given ``rho``: no vehicle loses more."""

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, rho: float
    ) -> FloatArray:
        """Return a bound, from counts alone, on the worst E|estimate - statistic| over values, shape (G,)."""

    def estimate(self, samples: Samples, statistic: Statistic, rho: float, noise: NoiseSource) -> FloatArray:
        """Return the estimates of all bins, shape (G,), clamped to the statistic's range."""
