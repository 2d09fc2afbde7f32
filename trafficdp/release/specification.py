"""A frozen Allocation: all that is needed to draw the noise later, and only once, without planning again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.declared import declared_bins
from trafficdp.mechanisms.protocol import Calibrated, PublicFacts
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.model import (
    ContributionBound,
    Counts,
    Grid,
    NeighbouringRelation,
    SpeedUnit,
    as_json,
    from_json,
)
from trafficdp.privacy.disclosure import Disclosure
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.release_codec import bound_from_facts, bound_to_facts, grid_from_facts, grid_to_facts


@dataclass(frozen=True)
class Specification:
    """What a charge commits to. ``cell`` and ``slot`` are the bins that get numbers, shape (G,).

    Where nothing about a vehicle is public these are all that ``grid`` declares, and not written down.

    ``calibrated`` says how, as its ``to_facts`` wrote it (``on``). ``ingest_id`` and ``data_version`` pin the
    data. ``disclosure`` is the manifest without ledger and files.
    """

    release_id: str
    created_at: datetime
    grid: Grid
    bound: ContributionBound
    ingest_id: int
    data_version: str
    cell: npt.NDArray[np.uint64]
    slot: npt.NDArray[np.int64]
    calibrated: Mapping[str, Any]
    display_unit: SpeedUnit
    interval_level: float
    min_vehicles: int
    publish_counts: bool
    disclosure: Disclosure

    def on(self, counts: Counts) -> Calibrated:
        """Return what will be carried out, on ``counts`` of the bins that get numbers.

        Raises UsageError for a kind of calibrated mechanism that is not known.
        """
        return calibrated_from_facts(self.calibrated, self.public(counts))

    def public(self, counts: Counts) -> PublicFacts:
        """Return what is public beside ``counts``."""
        return PublicFacts(counts, self.bound, self._relation)

    @property
    def _relation(self) -> NeighbouringRelation:
        return NeighbouringRelation(self.disclosure.unit.neighbouring_relation)

    def to_json(self) -> str:
        """Return the canonical JSON text; floats keep every bit."""
        listed: dict[str, Any] = {}
        if not self._relation.hides_presence:
            listed = {"cell": self.cell.tolist(), "slot": self.slot.tolist()}
        return canonical(
            {
                **listed,
                "release_id": self.release_id,
                "created_at": self.created_at.isoformat(),
                "grid": grid_to_facts(self.grid),
                "bound": bound_to_facts(self.bound),
                "ingest_id": self.ingest_id,
                "data_version": self.data_version,
                "calibrated": self.calibrated,
                "display_unit": self.display_unit.value,
                "interval_level": self.interval_level,
                "min_vehicles": self.min_vehicles,
                "publish_counts": self.publish_counts,
                "disclosure": as_json(self.disclosure),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Specification:
        """Return the specification that ``to_json`` wrote."""
        facts: dict[str, Any] = json.loads(text)
        grid = grid_from_facts(facts["grid"])
        if "cell" in facts:
            cell = np.array(facts["cell"], dtype=np.uint64)
            slot = np.array(facts["slot"], dtype=np.int64)
        else:
            cell, slot = declared_bins(grid)
        return cls(
            release_id=facts["release_id"],
            created_at=datetime.fromisoformat(facts["created_at"]),
            grid=grid,
            bound=bound_from_facts(facts["bound"]),
            ingest_id=facts["ingest_id"],
            data_version=facts["data_version"],
            cell=cell,
            slot=slot,
            calibrated=facts["calibrated"],
            display_unit=SpeedUnit(facts["display_unit"]),
            interval_level=facts["interval_level"],
            min_vehicles=facts["min_vehicles"],
            publish_counts=facts["publish_counts"],
            disclosure=from_json(Disclosure, facts["disclosure"]),
        )
