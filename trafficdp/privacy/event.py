"""A privacy event: what a mechanism promises, stated without values; and how events add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trafficdp.errors import UsageError
from trafficdp.model import Assumption, ContributionBound, NeighbouringRelation, Statistic
from trafficdp.privacy.loss import LOSSES, Loss, LossKind, sum_per_user


@dataclass(frozen=True)
class PrivacyEvent:
    """One joint release by one mechanism.

    ``loss_per_user`` (10^-12 of the ``kind`` of loss, shape (users,)) is each vehicle's own guarantee;
    ``loss`` is the largest of them. ``sensitivity`` may give, a statistic, that of every bin (shape (G,), the
    largest over its users, in the statistic's unit). ``idealised`` marks noise without an exact sampler.
    """

    mechanism: str
    statistics: tuple[Statistic, ...]
    relation: NeighbouringRelation
    unit: str
    bins: int
    bound: ContributionBound
    assumptions: tuple[Assumption, ...]
    loss_per_user: npt.NDArray[np.int64]
    sensitivity: Mapping[Statistic, npt.NDArray[np.float64]] = field(default_factory=dict)
    idealised: bool = False
    kind: LossKind = LossKind.PURE

    @property
    def loss(self) -> Loss:
        """The guarantee for every vehicle: the largest personal loss."""
        return LOSSES[self.kind](int(self.loss_per_user.max(initial=0)))


def compose(events: Sequence[PrivacyEvent], users: int) -> npt.NDArray[np.int64]:
    """Return each user's total over ``events`` in 10^-12 of their kind, shape (users,): losses add up.

    Raises UsageError for events of different kinds, relations or numbers of users, and as ``sum_per_user``.
    """
    promises = {(event.kind, event.relation) for event in events}
    if len(promises) > 1:
        raise UsageError(
            "events of different kinds do not compose",
            got=" and ".join(
                sorted(f"{kind.quantity} under {relation.value}" for kind, relation in promises)
            ),
            todo="convert the totals with privacy.conversion",
        )
    if any(
        event.loss_per_user.shape != (users,) or event.loss_per_user.dtype != np.int64 for event in events
    ):
        raise UsageError("an event's losses do not fit", expected=f"shape {(users,)}, int64")
    losses = np.concatenate([np.zeros(0, dtype=np.int64), *(event.loss_per_user for event in events)])
    return sum_per_user(losses, np.tile(np.arange(users), len(events)), users)
