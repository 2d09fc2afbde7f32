"""A privacy event: what a mechanism promises, stated without values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trafficdp.model.privacy_unit import Assumption, NeighbouringRelation
from trafficdp.model.speed import ContributionBound, Statistic
from trafficdp.privacy.loss import LOSSES, Loss, LossKind


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
