"""What is no sum over vehicles: the mechanism claims how far one vehicle moves it, and names its theorem.

Arrays of records of several vehicles, projections of their means, smooth sensitivities: nothing here can
bring one vehicle's part inside a set. The claim is taken at its word, and everything made from it is marked
as **unenforced** wherever it is shown. What stays enforced: ``measurement.measure`` draws the noise, and
meters the loss, from one and the same claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.measurement.laws import EntryIndex, FloatArray, IntArray, Law, as_integers
from trafficdp.measurement.sets import Measure, choice_loss
from trafficdp.privacy.loss import LossKind


@dataclass(frozen=True)
class ClaimedSums:
    """Sums that one vehicle moves by at most ``move`` (E,), by ``theorem``. A set like ``Box``."""

    support: EntryIndex
    move: IntArray
    theorem: str

    def sums(self, values: npt.NDArray[Any]) -> IntArray:
        """Return ``values`` (C,): they are sums already."""
        return as_integers(values, self.support.coordinates)

    def largest(self) -> IntArray:
        """Return 0: nothing is known of the sums, so that none may be multiplied."""
        return np.zeros(self.support.coordinates, dtype=np.int64)

    def loss(self, law: Law, shift: IntArray) -> IntArray:
        """Return what every vehicle loses if the claim is true, shape (users,)."""
        return law.loss(self.support, self.move)


@dataclass(frozen=True)
class ClaimedScores:
    """A choice by scores of which one vehicle moves each by at most ``change`` (C,), by ``theorem``."""

    support: EntryIndex
    change: FloatArray
    scale: FloatArray
    kind: LossKind
    theorem: str

    def loss(self) -> IntArray:
        """Return what every vehicle loses if the claim is true, in whole 10^-12, shape (users,)."""
        return choice_loss(self.support, self.change, self.scale, self.kind)


@dataclass(frozen=True)
class ClaimedNoise:
    """Noise of floats that costs each entry's vehicle ``loss_per_entry`` (E,), by ``theorem``: idealised.

    ``sampler`` turns a number of draws and a source of uniform numbers (``uniform_below``) into the draws.
    """

    support: EntryIndex
    loss_per_entry: FloatArray
    kind: LossKind
    theorem: str
    sampler: Callable[[int, Callable[[IntArray], IntArray]], FloatArray]

    def loss(self) -> IntArray:
        """Return what every vehicle loses if the claim is true, in whole 10^-12, shape (users,)."""
        return self.support.losses(self.loss_per_entry)

    def draw(self, size: int, measure: Measure) -> FloatArray:
        """Return ``size`` draws, of uniform numbers; paid first."""
        measure.charge_unverified(self)
        return self.sampler(size, measure.uniform_below)
