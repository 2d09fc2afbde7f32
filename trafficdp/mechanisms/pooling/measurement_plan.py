"""Noise for an asking: one vector a vehicle in a ball (``measurement.sets``), under either relation.

Another vector of the same vehicle lies up to two bounds away, a vehicle that comes or goes moves the sums by
one. So at the same loss adding or removing a vehicle needs half the noise of replacing its values.
"""

from __future__ import annotations

import numpy as np

from trafficdp.measurement.laws import GRAINS, Gaussian, Laplace
from trafficdp.model import ContributionBound, NeighbouringRelation
from trafficdp.privacy.loss import PICO, LossKind, round_up

BOUNDS_MOVED = {NeighbouringRelation.REPLACE_USER_VALUES: 2, NeighbouringRelation.ADD_OR_REMOVE_USER: 1}


class MeasurementPlan:
    """What the designs share: the kind of their noise, and the norm and range that go with it."""

    kind: LossKind
    bound: ContributionBound

    @property
    def pure(self) -> bool:
        """Whether noise is Laplace, for pure epsilon."""
        return self.kind is LossKind.PURE

    @property
    def norm(self) -> int:
        """Of the vehicles' vectors."""
        return 1 if self.pure else 2

    @property
    def upper(self) -> float:
        """U."""
        return float(self.bound.upper)


def noise_for(
    kind: LossKind, relation: NeighbouringRelation, part: int, coordinates: int
) -> Laplace | Gaussian:
    """Return noise, in grains, at which the largest move of one vehicle costs ``part`` 10^-12 and no more."""
    move, loss = BOUNDS_MOVED[relation] * GRAINS, part / PICO * (1 - 2.0**-40)
    if kind is LossKind.PURE:
        return Laplace(round_up(np.full(coordinates, move / loss)))
    return Gaussian(round_up(np.full(coordinates, move / np.sqrt(2 * loss))))


def noise_sd(kind: LossKind, relation: NeighbouringRelation, part: int, bound: float) -> float:
    """Return the standard deviation of that noise, in the unit of ``bound``."""
    law = noise_for(kind, relation, part, 1)
    grains = np.sqrt(2) * law.scale[0] if isinstance(law, Laplace) else law.sd[0]
    return float(grains * bound / GRAINS)
