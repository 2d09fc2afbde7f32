"""What leaves the curator: noisy numbers with everything that must be said about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import numpy.typing as npt

from trafficdp.model import ContributionBound, Grid, SpeedUnit, Statistic
from trafficdp.privacy.disclosure import Disclosure
from trafficdp.privacy.estimate import Estimate, IntervalKind

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SlotFacts:
    """What a slot number means: label, and RFC 3339 start and end with offset (None when it recurs)."""

    label: str
    start: str | None
    end: str | None


@dataclass(frozen=True)
class LedgerReference:
    """Where in the ledger a release stands: number of its charge and the chain's hash at it."""

    sequence: int
    head_hash: str


@dataclass(frozen=True)
class Release:
    """A private map. Bins (shape (G,)) are all bins that any vehicle visited, sorted by cell, then slot.

    ``place`` names the hexagon of every bin in words, by public layers alone.
    ``vehicles`` and ``records`` are counts a bin, None unless ``publish_counts`` was chosen.
    ``slots`` explains every slot number that occurs. ``disclosure`` is what was fixed when
    the charge was committed; the manifest adds the files.

    ``painted``: arrays have one row a hexagon, shape (G / slots,), and every one of ``slots`` carries it;
    ``slot`` is the first. ``every_bin`` has a row a bin, whatever this has.
    """

    id: str
    created_at: datetime
    grid: Grid
    bound: ContributionBound
    display_unit: SpeedUnit
    interval_level: float
    min_vehicles: int
    cell: npt.NDArray[np.uint64]
    slot: npt.NDArray[np.int64]
    status: npt.NDArray[np.object_]
    place: npt.NDArray[np.object_]
    vehicles: npt.NDArray[np.int64] | None
    records: npt.NDArray[np.int64] | None
    estimates: Mapping[Statistic, Estimate]
    slots: Mapping[int, SlotFacts]
    ledger: LedgerReference
    disclosure: Disclosure
    painted: bool = False

    @property
    def bins(self) -> int:
        """Number of bins, withheld ones included."""
        return len(self.cell) * self.slots_a_row

    @property
    def slots_a_row(self) -> int:
        """How many bins a row stands for."""
        return len(self.slots) if self.painted else 1

    @cached_property
    def every_bin(self) -> Release:
        """The same with a row a bin, sorted by cell, then slot."""
        if not self.painted:
            return self
        each = self.slots_a_row
        rows = np.repeat(np.arange(len(self.cell)), each)
        return replace(
            self,
            cell=self.cell[rows],
            slot=np.tile(np.array(sorted(self.slots), dtype=np.int64), len(self.cell)),
            status=self.status[rows],
            place=self.place[rows],
            estimates={name: estimate.of(rows) for name, estimate in self.estimates.items()},
            vehicles=None if self.vehicles is None else self.vehicles[rows],
            records=None if self.records is None else self.records[rows],
            painted=False,
        )

    def factor(self, statistic: Statistic) -> float:
        """Return what turns ``statistic`` from the unit of the bound into that which is shown."""
        return statistic.factor(self.bound.unit, self.display_unit)

    def interval_kind(self, statistic: Statistic) -> IntervalKind:
        """Return what the intervals of ``statistic`` are."""
        names = {statistic.column(unit) for unit in SpeedUnit}
        stated = next(each for each in self.disclosure.mechanisms if each.statistic in names)
        return IntervalKind(stated.interval_kind)
