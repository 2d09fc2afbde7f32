"""A privacy event in zCDP: what a Gaussian mechanism promises, stated without values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.privacy_unit import Assumption, NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import LARGEST_LOSS
from trafficdp.privacy.zcdp import ZCDP


@dataclass(frozen=True)
class ZCDPEvent:
    """One joint release by one zCDP mechanism; a ``PrivacyEvent`` is its counterpart in pure epsilon.

    ``loss_per_user`` (10^-12 rho, shape (users,)) is each vehicle's own guarantee; ``loss`` is the largest.
    Only ``compose_zcdp`` adds it up, and only ``privacy.conversion`` turns the sum into epsilon and delta.
    ``idealised`` marks noise without an exact sampler.
    """

    mechanism: str
    statistics: tuple[Statistic, ...]
    relation: NeighbouringRelation
    unit: str
    bins: int
    bound: ContributionBound
    assumptions: tuple[Assumption, ...]
    loss_per_user: npt.NDArray[np.int64]
    idealised: bool = False

    @property
    def loss(self) -> ZCDP:
        """The guarantee for every vehicle: the largest personal loss."""
        return ZCDP(int(self.loss_per_user.max(initial=0)))


def compose_zcdp(events: Sequence[ZCDPEvent], users: int) -> npt.NDArray[np.int64]:
    """Return each user's total over ``events`` in 10^-12 rho, shape (users,): Renyi divergences add up.

    Raises UsageError for an event of another kind, relation or number of users, an idealised one, a
    negative loss, or a total above LARGEST_LOSS.
    """
    total = np.zeros(users, dtype=np.int64)
    for event in events:
        if not isinstance(event, ZCDPEvent):
            raise UsageError(
                "events of different kinds do not compose",
                got=type(event).__name__,
                expected=ZCDPEvent.__name__,
                todo="convert the totals with privacy.conversion",
            )
        if event.idealised or event.relation is not NeighbouringRelation.REPLACE_USER_VALUES:
            raise UsageError(
                "an event cannot be accounted for",
                got=f"mechanism={event.mechanism!r}, {event.relation.value}, idealised={event.idealised}",
                expected=f"an exact mechanism under {NeighbouringRelation.REPLACE_USER_VALUES.value}",
            )
        loss = event.loss_per_user
        if loss.shape != (users,) or loss.dtype != np.int64 or int(loss.min(initial=0)) < 0:
            raise UsageError(
                "an event's losses do not fit",
                got=f"shape {loss.shape}, {loss.dtype}",
                expected=f"shape {(users,)}, int64, none negative",
            )
        if int(loss.max(initial=0)) <= LARGEST_LOSS:
            # neither summand exceeds 10^18, so that the sum cannot wrap around
            total = total + loss
            if int(total.max(initial=0)) <= LARGEST_LOSS:
                continue
        raise UsageError("privacy loss is too large to account for", expected="rho of at most one million")
    return total
