"""Events of the mechanisms: the parts of the promise that are the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import Priced
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
from trafficdp.privacy.loss import CHARGE_STEP, sum_per_user
from trafficdp.privacy.loss_kind import LossKind

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


def loss_of(steps: Sequence[Priced], users: int) -> npt.NDArray[np.int64]:
    """Return what ``steps`` cost every vehicle together, whole 10^-12, shape (users,).

    Losses of one kind add up. In pure epsilon a vehicle's sum is rounded up to CHARGE_STEP.
    """
    total = np.zeros(users, dtype=np.int64)
    for step in steps:
        total = sum_per_user(np.concatenate([total, step.loss()]), np.tile(np.arange(users), 2), users)
    if any(step.kind is LossKind.ZCDP for step in steps):
        return total
    return -(-total // CHARGE_STEP) * CHARGE_STEP


def event_of(
    name: str,
    statistics: tuple[Statistic, ...],
    counts: Counts,
    bound: ContributionBound,
    steps: Sequence[Priced],
) -> PrivacyEvent:
    """Return what is promised of ``steps``: every vehicle's loss is theirs."""
    return PrivacyEvent(
        mechanism=name,
        statistics=statistics,
        relation=NeighbouringRelation.REPLACE_USER_VALUES,
        unit="vehicle",
        bins=counts.bins,
        sensitivity={},
        bound=bound,
        assumptions=ASSUMPTIONS,
        loss_per_user=loss_of(steps, counts.users),
    )


def require_statistic(name: str, statistic: Statistic, statistics: tuple[Statistic, ...]) -> None:
    """Raise UsageError unless the mechanism ``name`` can estimate ``statistic``."""
    if statistic not in statistics:
        raise UsageError(
            f"{name} cannot estimate this statistic",
            got=statistic.value,
            expected="one of " + ", ".join(each.value for each in statistics),
        )
