"""A frozen Allocation: all that is needed to draw the noise later, and only once, without planning again.

With it, the Release that comes of it over all bins, withheld ones included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.declared import declared_bins
from trafficdp.binning.mosaic import slot_facts_of
from trafficdp.context.names import place_names
from trafficdp.export.files.disclosure import bin_numbers
from trafficdp.mechanisms.protocol import PublicFacts
from trafficdp.mechanisms.publish import bin_status
from trafficdp.model import (
    ContributionBound,
    Counts,
    Grid,
    NeighbouringRelation,
    SpeedUnit,
    Statistic,
    as_json,
    from_json,
)
from trafficdp.privacy.disclosure import Disclosure
from trafficdp.privacy.estimate import BinStatus, Estimate
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.noise_column import NOISE_COLUMNS
from trafficdp.privacy.release import LedgerReference, Release
from trafficdp.privacy.release_codec import bound_from_facts, bound_to_facts, grid_from_facts, grid_to_facts


def assemble(
    specification: Specification,
    counts: Counts,
    keep: npt.NDArray[np.bool_],
    estimates: Mapping[Statistic, Estimate],
    ledger: LedgerReference,
) -> Release:
    """Return the release of ``specification``: ``counts`` has all G bins, ``estimates`` those of ``keep``."""
    spread = {statistic: _spread(estimate, keep) for statistic, estimate in estimates.items()}
    status = bin_status(keep, [estimate.status for estimate in estimates.values()])
    # where nothing about a vehicle is public, statuses follow from what was drawn
    coverage = replace(specification.disclosure.coverage, bins=bin_numbers(status))
    vehicles = records = None
    if specification.publish_counts:
        noise = next(iter(spread.values())).noise
        if "vehicles_answer" in noise:
            vehicles, records = (np.rint(noise[name]).astype(np.int64) for name in ("vehicles", "records"))
        else:
            vehicles, records = counts.users_per_bin, counts.samples_per_bin
    return Release(
        id=specification.release_id,
        created_at=specification.created_at,
        grid=specification.grid,
        bound=specification.bound,
        display_unit=specification.display_unit,
        interval_level=specification.interval_level,
        min_vehicles=specification.min_vehicles,
        cell=counts.cell,
        slot=counts.slot,
        status=status,
        place=place_names(counts.cell, specification.grid.context, specification.grid.zones),
        vehicles=vehicles,
        records=records,
        estimates=spread,
        slots=slot_facts_of(specification.grid, counts.slots),
        ledger=ledger,
        disclosure=replace(specification.disclosure, coverage=coverage),
    )


def _spread(estimate: Estimate, keep: npt.NDArray[np.bool_]) -> Estimate:
    """Return the estimate over all bins: NaN, WITHHELD and such where ``keep`` is false."""

    def numbers(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        full = np.full(len(keep), np.nan)
        full[keep] = values
        return full

    def column(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        withheld = NOISE_COLUMNS[name].withheld
        if withheld is None:
            return numbers(values)
        full = np.full(len(keep), withheld, dtype=np.int64)
        full[keep] = values
        return full

    status = np.full(len(keep), BinStatus.WITHHELD.value, dtype=object)
    status[keep] = estimate.status
    return Estimate(
        statistic=estimate.statistic,
        value=numbers(estimate.value),
        low=numbers(estimate.low),
        high=numbers(estimate.high),
        noise_scale=numbers(estimate.noise_scale),
        expected_error=numbers(estimate.expected_error),
        status=status,
        noise={name: column(name, values) for name, values in estimate.noise.items()},
        posterior={name: numbers(values) for name, values in estimate.posterior.items()},
    )


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

    def keeps(self, counts: Counts) -> npt.NDArray[np.bool_]:
        """Return which bins of ``counts`` get numbers."""
        return (counts.users_per_bin >= self.min_vehicles) & self.grid.may_publish(counts.cell, counts.slot)

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
