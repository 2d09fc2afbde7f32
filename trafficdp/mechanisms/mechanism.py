"""What every mechanism of the registry is: public answers without values, and one call that sees them.

The planner, the documents and the audits ask for the first; only the curator makes the call. So what is
promised can never drift from what is done. What it promises, its event, follows from its steps alone
(``calibrated.event_of``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.measure import Measure, Priced
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.privacy.loss import LossKind

if TYPE_CHECKING:
    from trafficdp.sensitive.values import Samples

FloatArray = npt.NDArray[np.float64]
RANGE = {LossKind.PURE: (np.nextafter(0.0, 1.0), 1e9), LossKind.ZCDP: (1e-6, 1e6)}
"""What a statistic may be given, an epsilon a bin or a rho: beyond, noise could not be drawn in 64 bits."""


class Mechanism(Protocol):
    """One published mechanism over all G bins at once, with its settings as fields.

    ``loss`` is what it may cost, in its ``kind``: an epsilon a bin, shape (G,), or one rho for all bins
    together, shape (). It may be infinite: then no noise is added, and nothing is priced.
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
    def kind(self) -> LossKind:
        """What its loss is counted in."""

    @property
    def enforced(self) -> bool:
        """Whether ``measurement`` brings every vehicle's part into its set: no step is a claim."""

    @property
    def idealised(self) -> bool:
        """Whether its noise lacks an exact sampler.

        Then it runs in simulations, and in a release only by an explicit switch that the manifest records.
        """

    def steps(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray, /
    ) -> tuple[Priced, ...]:
        """Return what it measures. No vehicle loses more than ``loss`` in all by them.

        Where later steps follow from earlier noisy numbers: the dearest that can come.
        """

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray, /
    ) -> FloatArray:
        """Return a bound, from counts alone, on the worst case over values of E|estimate - statistic|.

        Shape (G,), in the statistic's unit, rounding of speeds included; at most the statistic's range. Above
        half of it a constant in the middle would do better: mechanisms that clip, drop or group promise
        little against all values.
        """

    def estimate(
        self, samples: Samples, statistic: Statistic, loss: FloatArray, measure: Measure, /
    ) -> FloatArray:
        """Return the estimates of all bins, shape (G,), in the statistic's unit, clamped to its range."""


@runtime_checkable
class KnownSensitivity(Protocol):
    """A mechanism of which more is known than that its numbers stay in their range."""

    def sensitivity(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray, /
    ) -> FloatArray:
        """Return how far one vehicle's values move each number at most, shape (G,), in its unit."""
