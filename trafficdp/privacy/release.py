"""What leaves the curator: noisy numbers with everything that must be said about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.model.bound import ContributionBound
from trafficdp.model.grid import Grid
from trafficdp.model.speed_unit import SpeedUnit
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.disclosure import Disclosure

FloatArray = npt.NDArray[np.float64]


class BinStatus(StrEnum):
    """What became of a bin, or of one statistic of it.

    RELEASED: a noisy number with its interval.
    CONSTANT: the statistic can only be one number (the variance of one record is 0), at no cost.
    WITHHELD: no number, because fewer vehicles than ``min_vehicles`` were seen.
    UNINFORMATIVE: a number whose expected error is more than ``refuse_above`` of the range.
    """

    RELEASED = "released"
    CONSTANT = "constant"
    WITHHELD = "withheld"
    UNINFORMATIVE = "uninformative"


class IntervalKind(StrEnum):
    """What an interval is.

    GUARANTEED: a theorem says how often it holds the statistic of its bin, whatever the speeds are.
    CALIBRATED: tried on days that chose nothing of it, it held at least 95 % of bins on average. No theorem.
    """

    GUARANTEED = "guaranteed"
    CALIBRATED = "calibrated"


@dataclass(frozen=True)
class Estimate:
    """One statistic over all bins of a release; arrays of shape (G,), in ``bound.unit`` to its power.

    NaN where the bin is withheld. ``value`` lies in [0, U] (variance: [0, mean*(U - mean)]); ``low`` and
    ``high`` hold the sample statistic with at least the release's interval level. ``noise_scale`` is
    the expected absolute noise before clamping (Laplace noise: its scale), also NaN where the mechanism has
    none that is public. ``noise`` holds, by their names in NOISE_COLUMNS, the columns that say exactly how
    the noise was drawn (its scale, a mechanism's epsilon): with them anyone who has the
    counts can compute every vehicle's loss. ``expected_error`` is the worst case over
    the truth of the mean absolute error of the noisy number clamped to its range, rounding of
    speeds included; keeping a variance below mean*(U - mean) helps where the mean is good, and can add at
    most U times the expected error of the mean. ``status`` holds BinStatus values.
    """

    statistic: Statistic
    value: FloatArray
    low: FloatArray
    high: FloatArray
    noise_scale: FloatArray
    expected_error: FloatArray
    status: npt.NDArray[np.object_]
    noise: Mapping[str, npt.NDArray[Any]]


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

    @property
    def bins(self) -> int:
        """Number of bins, withheld ones included."""
        return len(self.cell)

    def factor(self, statistic: Statistic) -> float:
        """Return what turns ``statistic`` from the unit of the bound into that which is shown."""
        return statistic.factor(self.bound.unit, self.display_unit)

    def interval_kind(self, statistic: Statistic) -> IntervalKind:
        """Return what the intervals of ``statistic`` are."""
        names = {statistic.column(unit) for unit in SpeedUnit}
        stated = next(each for each in self.disclosure.mechanisms if each.statistic in names)
        return IntervalKind(stated.interval_kind)
