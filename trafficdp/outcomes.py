"""What the calls of a workspace give back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import geopandas
import pandas as pd

from trafficdp.export.frame import to_geodataframe
from trafficdp.ingest.report import FileReport
from trafficdp.planner.allocation import Allocation
from trafficdp.planner.refusal import Verdict
from trafficdp.planner.suggest import Suggestions
from trafficdp.privacy.loss import PureDP
from trafficdp.privacy.published import published_frame
from trafficdp.privacy.release import Release


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """What became of one file: its report, how many fixes were new, and whether it was there before."""

    report: FileReport
    file: str
    added: int
    already_there: bool


@dataclass(frozen=True)
class ReleasedMap:
    """A published release: its numbers, and where its files are."""

    release: Release
    folder: Path

    @property
    def id(self) -> str:
        """Name of the release."""
        return self.release.id

    def to_frame(self) -> pd.DataFrame:
        """Return the published table, one row a bin."""
        return published_frame(self.release)

    def to_geodataframe(self) -> geopandas.GeoDataFrame:
        """Return the published table with the hexagons, in WGS84."""
        return to_geodataframe(self.release)


@dataclass(frozen=True)
class Plan:
    """What a release would cost and give; nothing is spent. ``suggestions`` only when it is refused."""

    allocation: Allocation
    verdict: Verdict
    suggestions: Suggestions | None
    budget_left: PureDP

    @property
    def loss(self) -> PureDP:
        """The epsilon that the release would charge: the largest loss of any vehicle."""
        return self.allocation.loss


@dataclass(frozen=True, slots=True)
class ReleaseSummary:
    """One line about a release."""

    id: str
    status: str
    sequence: int
    epsilon: PureDP
    created_at: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Status:
    """What the store holds, for the curator."""

    store: Path
    fixes: int
    vehicles: int
    derived: int
    files: int
    data_version: str
    releases: int
    unfinished: int
    largest_spent: PureDP
    sum_of_maxima: PureDP
    budget: PureDP
