"""Per (vehicle, bin) statistics: the only values a mechanism sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts

IntArray = npt.NDArray[np.int64]
ANYONE = 0
"""The account of every possible vehicle, where nothing about any is public; vehicles count from 1."""


@dataclass(frozen=True, repr=False)
class Contributions:
    """Exact integer sums of clipped values, for every pair of ``counts`` (shape (P,) each).

    ``total`` is the sum and ``total_of_squares`` the sum of squares of the user's values in the bin, in
    steps of ``bound.step`` after clipping to [0, U]. ``vehicle`` (shape (users,)) holds the vault's own
    numbers of the vehicles, by user position.
    """

    counts: Counts
    total: IntArray
    total_of_squares: IntArray
    vehicle: IntArray
    bound: ContributionBound

    def __repr__(self) -> str:
        return f"<Contributions: {self.counts.bins} bins, {self.counts.users} users, redacted>"

    @classmethod
    def from_rows(
        cls,
        *,
        cell: npt.NDArray[np.uint64],
        slot: IntArray,
        vehicle: IntArray,
        count: IntArray,
        total: IntArray,
        total_of_squares: IntArray,
        bound: ContributionBound,
    ) -> Contributions:
        """Return the contributions of one row a (bin, vehicle), sorted by cell, slot and vehicle.

        Bins and users are numbered by position: users by rising ``vehicle`` (not negative), over those with a
        row.
        """
        first = np.ones(len(cell), dtype=np.bool_)
        first[1:] = (cell[1:] != cell[:-1]) | (slot[1:] != slot[:-1])
        there = np.zeros(int(vehicle.max(initial=0)) + 1, dtype=np.bool_)
        there[vehicle] = True
        vehicles = np.flatnonzero(there).astype(np.int64)
        counts = Counts(
            cell=cell[first].astype(np.uint64, copy=False),
            slot=slot[first].astype(np.int64, copy=False),
            bin_index=np.cumsum(first, dtype=np.int64) - 1,
            user_index=(np.cumsum(there, dtype=np.int64) - 1)[vehicle],
            count=count.astype(np.int64, copy=False),
            users=len(vehicles),
        )
        squares = total_of_squares.astype(np.int64, copy=False)
        return cls(counts, total.astype(np.int64, copy=False), squares, vehicles, bound)

    @classmethod
    def of_anyone(
        cls, cell: npt.NDArray[np.uint64], slot: IntArray, bound: ContributionBound
    ) -> Contributions:
        """Return what is public where no count is (``Counts.of_anyone``): sums of 0, and account ANYONE."""
        counts = Counts.of_anyone(cell, slot)
        nothing = np.zeros(counts.pairs, dtype=np.int64)
        return cls(counts, nothing, nothing, np.array([ANYONE]), bound)

    def select(self, keep: npt.NDArray[np.bool_]) -> Contributions:
        """Return the contributions to the bins where ``keep`` (shape (G,)) is true."""
        pairs = keep[self.counts.bin_index]
        return Contributions(
            counts=self.counts.select(keep),
            total=self.total[pairs],
            total_of_squares=self.total_of_squares[pairs],
            vehicle=self.vehicle,
            bound=self.bound,
        )

    def merged(self, cell: npt.NDArray[np.uint64], slot: IntArray) -> Contributions:
        """Return the contributions to larger bins, as ``Counts.merged``; sums of sums, so exact.

        A sum of squares that leaves 64 bits wraps; ``measurement.moments`` refuses bins where one
        could.
        """
        merging = self.counts.merged(cell, slot)
        total = np.zeros(merging.counts.pairs, dtype=np.int64)
        squares = np.zeros(merging.counts.pairs, dtype=np.int64)
        np.add.at(total, merging.pair_of, self.total)
        np.add.at(squares, merging.pair_of, self.total_of_squares)
        return Contributions(merging.counts, total, squares, self.vehicle, self.bound)
