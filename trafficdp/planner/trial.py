"""How mechanisms are tried before one is chosen: on simulated speeds for the real counts, never on real ones.

The planner never reaches values; whoever builds a Request hands in a Trial that makes some up from a public
model (``mechanisms.simulated.trial``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.mechanism import Mechanism
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic


class Tries(Protocol):
    """Simulated cities on given counts, in which any mechanism can be tried."""

    def error(self, mechanism: Mechanism, statistic: Statistic, loss: npt.NDArray[np.float64]) -> float:
        """Return the mean over bins of |estimate - truth| in the simulated city where it is largest.

        ``loss`` as of Mechanism. The same arguments give the same number.
        """


Trial = Callable[[Counts, ContributionBound], Tries]
"""Makes the cities up: a function of public counts and bound alone."""
