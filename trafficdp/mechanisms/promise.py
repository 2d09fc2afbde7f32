"""Events of the mechanisms: what their steps cost, and the parts that are the same for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.measurement.measure import ENFORCED, Priced, Step
from trafficdp.measurement.ranks import Ranks
from trafficdp.mechanisms.calibrated import PublicFacts
from trafficdp.mechanisms.mechanism import KnownSensitivity, Mechanism
from trafficdp.model import (
    COUNTS_PUBLIC,
    DECLARED_BOUNDS,
    NOTHING_PUBLIC,
    ONE_VEHICLE_ONE_IDENTIFIER,
    VALIDITY_PUBLIC,
    VEHICLE_NOT_TRIP,
    ContributionBound,
    Counts,
    NeighbouringRelation,
    Statistic,
)
from trafficdp.privacy.event import PrivacyEvent
from trafficdp.privacy.loss import CHARGE_STEP, LossKind, sum_per_user

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ASSUMPTIONS = {
    NeighbouringRelation.REPLACE_USER_VALUES: (
        COUNTS_PUBLIC,
        VALIDITY_PUBLIC,
        DECLARED_BOUNDS,
        ONE_VEHICLE_ONE_IDENTIFIER,
        VEHICLE_NOT_TRIP,
    ),
    NeighbouringRelation.ADD_OR_REMOVE_USER: (
        NOTHING_PUBLIC,
        DECLARED_BOUNDS,
        ONE_VEHICLE_ONE_IDENTIFIER,
        VEHICLE_NOT_TRIP,
    ),
}


def event_of(
    mechanism: Mechanism, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
) -> PrivacyEvent:
    """Return what ``mechanism`` promises at ``loss``: every vehicle's own, from its steps and no value.

    Raises UsageError for a loss or a statistic that the mechanism refuses.
    """
    asked = (counts, bound, statistic, loss)
    promised = event(
        mechanism.name,
        PublicFacts(counts, bound),
        loss_of(mechanism.steps(*asked), counts.users),
        {statistic: sensitivity_of(mechanism, *asked)},
        kind=mechanism.kind,
    )
    return replace(promised, idealised=mechanism.idealised)


def sensitivity_of(
    mechanism: Mechanism, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
) -> FloatArray:
    """Return how far one vehicle moves each number at most, shape (G,): the range where nothing is known."""
    if isinstance(mechanism, KnownSensitivity):
        return mechanism.sensitivity(counts, bound, statistic, loss)
    return np.full(counts.bins, statistic.largest(bound.upper))


def event(
    name: str,
    public: PublicFacts,
    loss_per_user: IntArray,
    sensitivity: Mapping[Statistic, FloatArray] | tuple[Statistic, ...],
    *,
    kind: LossKind = LossKind.PURE,
) -> PrivacyEvent:
    """Return the event of ``name``: every vehicle loses its own ``loss_per_user``, 10^-12 of ``kind``.

    ``sensitivity`` (G,) is a statistic's; statistics alone have none that is known.
    """
    known = dict(sensitivity) if isinstance(sensitivity, Mapping) else {}
    return PrivacyEvent(
        mechanism=name,
        statistics=tuple(sensitivity),
        relation=public.relation,
        unit="vehicle",
        bins=public.counts.bins,
        sensitivity=known,
        bound=public.bound,
        assumptions=ASSUMPTIONS[public.relation],
        loss_per_user=loss_per_user,
        kind=kind,
    )


def unenforced(
    mechanism: Mechanism, counts: Counts, bound: ContributionBound, statistic: Statistic, loss: FloatArray
) -> str | None:
    """Return the theorems of what is only claimed, as the steps name them; None where all is enforced."""
    if mechanism.enforced:
        return None
    steps = mechanism.steps(counts, bound, statistic, loss)
    return "; ".join(dict.fromkeys(each.theorem for each in claims_of(steps)))


def claims_of(steps: Sequence[Priced]) -> list[Any]:
    """Return what of ``steps`` the waist does not enforce: whatever is neither of its sets nor its choice."""
    parts = [step.of if isinstance(step, Step) else step for step in steps]
    return [each for each in parts if not isinstance(each, (*ENFORCED, Ranks))]


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


def require_statistic(name: str, statistic: Statistic, statistics: tuple[Statistic, ...]) -> None:
    """Raise UsageError unless the mechanism ``name`` can estimate ``statistic``."""
    if statistic not in statistics:
        raise UsageError(
            f"{name} cannot estimate this statistic",
            got=statistic.value,
            expected="one of " + ", ".join(each.value for each in statistics),
        )
