"""What a release works on: sums of every (vehicle, bin), and every value where its mechanism asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trafficdp.sensitive.contributions import Contributions
from trafficdp.sensitive.samples import Samples


@dataclass(frozen=True, repr=False)
class Values:
    """``contributions`` are at hand; ``read_samples`` reads every value of the same pairs, when called.

    Where nothing about a vehicle is public, ``contributions`` are those of ``Counts.of_anyone``; whatever is
    public, ``recorded`` reads those that there are.
    """

    contributions: Contributions
    read_samples: Callable[[], Samples]
    recorded: Callable[[], Contributions] | None = None

    def __repr__(self) -> str:
        return f"<Values: {self.contributions.counts.bins} bins, redacted>"

    def everything(self) -> Contributions:
        """Return what there is of every vehicle."""
        return self.contributions if self.recorded is None else self.recorded()

    def select(self, keep: npt.NDArray[np.bool_]) -> Values:
        """Return the values of the bins where ``keep`` (shape (G,)) is true."""
        return Values(
            self.contributions.select(keep), lambda: self.read_samples().select(keep), self.recorded
        )

    def silenced(self) -> Values:
        """Return values that are all 0, for the same counts: to rehearse what is not to be seen."""
        known = self.contributions
        nothing = np.zeros_like(known.total)

        def zeros() -> Samples:
            value = np.zeros(int(known.counts.count.sum()), dtype=np.int64)
            return Samples(known.counts, value, known.vehicle, known.bound)

        silent = replace(known, total=nothing, total_of_squares=nothing)
        return Values(silent, zeros)
