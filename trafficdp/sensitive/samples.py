"""Every clipped value, for mechanisms that need more than sums: grouping into arrays, quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.sensitive.contributions import Contributions


@dataclass(frozen=True, repr=False)
class Samples:
    """Values in steps of ``bound.step``, clipped to [0, U], sorted by bin, then user, then time.

    ``value`` (int64, shape (sum of counts,)) holds the pairs of ``counts`` one after another:
    those of pair p are ``value[start[p]:start[p + 1]]`` with ``start`` of shape (P + 1,). The order
    inside a pair is the order in time: it does not depend on values.
    """

    counts: Counts
    value: npt.NDArray[np.int64]
    vehicle: npt.NDArray[np.int64]
    bound: ContributionBound

    def __repr__(self) -> str:
        return f"<Samples: {self.counts.bins} bins, {self.counts.users} users, redacted>"

    @property
    def start(self) -> npt.NDArray[np.int64]:
        """First position of every pair in ``value``, and the end, shape (P + 1,)."""
        return np.concatenate([[0], np.cumsum(self.counts.count)]).astype(np.int64)

    def contributions(self) -> Contributions:
        """Return the sums and sums of squares of the pairs."""
        return self._contributions

    @cached_property
    def _contributions(self) -> Contributions:
        start = self.start[:-1]
        return Contributions(
            counts=self.counts,
            total=np.add.reduceat(self.value, start) if len(start) else self.value[:0],
            total_of_squares=np.add.reduceat(self.value**2, start) if len(start) else self.value[:0],
            vehicle=self.vehicle,
            bound=self.bound,
        )

    def select(self, keep: npt.NDArray[np.bool_]) -> Samples:
        """Return the samples of the bins where ``keep`` (shape (G,)) is true."""
        pairs = keep[self.counts.bin_index]
        return Samples(
            counts=self.counts.select(keep),
            value=self.value[np.repeat(pairs, self.counts.count)],
            vehicle=self.vehicle,
            bound=self.bound,
        )
