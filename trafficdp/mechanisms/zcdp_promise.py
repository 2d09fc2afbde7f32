"""Events of the zCDP mechanisms: the parts of the promise that are the same for all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.promise import ASSUMPTIONS
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss_kind import LossKind


def zcdp_promise(
    name: str,
    statistic: Statistic,
    counts: Counts,
    bound: ContributionBound,
    loss_per_user: npt.NDArray[np.int64],
    *,
    idealised: bool = False,
) -> PrivacyEvent:
    """Return the event of a joint release over all bins: ``loss_per_user`` in 10^-12 rho."""
    return PrivacyEvent(
        mechanism=name,
        statistics=(statistic,),
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        unit="vehicle",
        bins=counts.bins,
        bound=bound,
        assumptions=ASSUMPTIONS,
        loss_per_user=loss_per_user,
        idealised=idealised,
        kind=LossKind.ZCDP,
    )
