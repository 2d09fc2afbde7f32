"""Events of the mechanisms: the parts of the promise that are the same for all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import (
    COUNTS_PUBLIC,
    DECLARED_BOUNDS,
    ONE_VEHICLE_ONE_IDENTIFIER,
    VALIDITY_PUBLIC,
    VEHICLE_NOT_TRIP,
    NeighbouringRelation,
)
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.event import PrivacyEvent

ASSUMPTIONS = (
    COUNTS_PUBLIC,
    VALIDITY_PUBLIC,
    DECLARED_BOUNDS,
    ONE_VEHICLE_ONE_IDENTIFIER,
    VEHICLE_NOT_TRIP,
)


def promise(
    name: str,
    statistic: Statistic,
    counts: Counts,
    bound: ContributionBound,
    sensitivity: npt.NDArray[np.float64],
    loss_per_user: npt.NDArray[np.int64],
    *,
    idealised: bool = False,
) -> PrivacyEvent:
    """Return the event of one statistic: ``sensitivity`` (G,), ``loss_per_user`` in pico-epsilons."""
    return PrivacyEvent(
        mechanism=name,
        statistics=(statistic,),
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        unit="vehicle",
        bins=counts.bins,
        sensitivity={statistic: sensitivity},
        bound=bound,
        assumptions=ASSUMPTIONS,
        loss_per_user=loss_per_user,
        idealised=idealised,
    )


def require_statistic(name: str, statistic: Statistic, statistics: tuple[Statistic, ...]) -> None:
    """Raise UsageError unless the mechanism ``name`` can estimate ``statistic``."""
    if statistic not in statistics:
        raise UsageError(
            f"{name} cannot estimate this statistic",
            got=statistic.value,
            expected="one of " + ", ".join(each.value for each in statistics),
        )
