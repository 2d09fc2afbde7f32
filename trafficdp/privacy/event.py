"""A privacy event: what a mechanism promises, stated without values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.privacy_unit import Assumption, NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.loss import PureDP


@dataclass(frozen=True)
class PrivacyEvent:
    """One joint release by one mechanism.

    ``loss_per_user`` (pico-epsilons, shape (users,)) is each vehicle's own guarantee; ``loss`` is the
    largest of them. ``sensitivity`` gives, a statistic, the sensitivity of every bin (shape (G,), the
    largest over its users, in the statistic's unit). ``idealised`` marks noise without an exact sampler.
    """

    mechanism: str
    statistics: tuple[Statistic, ...]
    relation: NeighbouringRelation
    unit: str
    bins: int
    sensitivity: dict[Statistic, npt.NDArray[np.float64]]
    bound: ContributionBound
    assumptions: tuple[Assumption, ...]
    loss_per_user: npt.NDArray[np.int64]
    idealised: bool = False

    @property
    def loss(self) -> PureDP:
        """The guarantee for every vehicle: the largest personal loss."""
        return PureDP(int(self.loss_per_user.max(initial=0)))
