"""What every mechanism is: three answers without values, and one call that sees them.

The planner, the documents and the audits ask the first three; only the curator makes the call. So what
is promised can never drift from what is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.event import PrivacyEvent

if TYPE_CHECKING:
    from trafficdp.sensitive.samples import Samples

FloatArray = npt.NDArray[np.float64]


class Mechanism(Protocol):
    """One published mechanism over all G bins at once, with its settings as fields.

    ``name`` is its key in the registry, ``citation`` the paper, ``statistics`` what it can estimate.
    ``idealised`` is true when its noise has no exact or proved-safe sampler: such a mechanism runs in
    simulations, and in a release only behind an explicit switch that the manifest records.
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

    def event(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> PrivacyEvent:
        """Return what it promises when every bin g is given ``epsilon[g]`` (shape (G,)).

        ``loss_per_user`` is every user's exact loss over its bins where a sharper bound than
        "epsilon[g] for every visitor" is proved, else that.
        """

    def expected_error(
        self, counts: Counts, bound: ContributionBound, statistic: Statistic, epsilon: FloatArray
    ) -> FloatArray:
        """Return a bound, from counts alone, on the worst case over values of E|estimate - statistic|.

        Shape (G,), in the statistic's unit; at most the statistic's range. Above half of it a constant in the
        middle would do better: mechanisms that clip, drop or group promise little against all values.
        """

    def estimate(
        self,
        samples: Samples,
        statistic: Statistic,
        epsilon: FloatArray,
        noise: Any,  # noqa: ANN401  # until all take a Measure
    ) -> FloatArray:
        """Return the estimates of all bins, shape (G,), in the statistic's unit, clamped to its range.

        ``epsilon[g]`` may be infinite: then no noise is added and what remains is the clipped statistic.
        """
