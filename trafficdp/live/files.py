"""A file of a stream: its records cleaned, numbered and binned, ready to be taken."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from trafficdp.binning.cells import CellTable
from trafficdp.binning.slots import slots_of
from trafficdp.errors import DataError
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import choose_source, read_file
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.live.specification import StreamSpecification
from trafficdp.model import Clip, SourceDeclaration
from trafficdp.store import vault_fixes
from trafficdp.store.vault import Vault
from trafficdp.stream.service import Batch

NOT_READ = "not_read"


@dataclass(frozen=True, repr=False)
class Arrival:
    """A file as it was read: pseudonyms and the rest of a batch, or why it could not be read.

    ``report`` is JSON for the curator's eyes, outside the guarantee.
    """

    name: str
    digest: str
    report: str
    refused: str | None
    fixes: pa.Table | None


class Reader:
    """Reads files as a stream's specification declares; remembers squares of cells from file to file."""

    def __init__(
        self, specification: StreamSpecification, sources: tuple[SourceDeclaration, ...], key: VehicleKey
    ) -> None:
        self._specification, self._sources, self._key = specification, sources, key
        self._cells = CellTable(
            specification.grid.area.geometry.bounds, specification.grid.hexagon_resolution
        )
        self._clip = Clip(specification.bound)

    def read(self, path: Path | InputFile, digest: str, source: SourceDeclaration | None = None) -> Arrival:
        """Read one file; a file that is not as declared is refused, not raised: the stream goes on."""
        try:
            chosen = source or choose_source(Path(path.name), self._sources)
            found = read_file(path, chosen, self._specification.grid.area, self._key)
        except DataError as error:
            report = json.dumps({"file": path.name, NOT_READ: str(error)}, sort_keys=True)
            return Arrival(path.name, digest, report, str(error), None)
        return Arrival(path.name, digest, found.report.to_json(), None, found.fixes.table)

    def batch(self, vault: Vault, arrival: Arrival) -> Batch:
        """Return the records of a file; numbers new vehicles (inside the caller's transaction)."""
        table = arrival.fixes
        if table is None or not table.num_rows:
            none = np.zeros(0, dtype=np.int64)
            return Batch(none, none, none, none, none)
        # a file that is read at once is one chunk
        vehicle = vault_fixes.number_vehicles(vault, table.column("vehicle").chunk(0))
        time_us = table.column("time_us").to_numpy()
        horizon, grid = self._specification.horizon, self._specification.grid
        step = horizon.step_of(time_us)
        inside = (step >= 0) & (step < horizon.steps)
        cell = np.zeros(len(time_us), dtype=np.int64)
        slot = np.zeros(len(time_us), dtype=np.int64)
        latitude, longitude = (table.column(name).to_numpy()[inside] for name in ("latitude", "longitude"))
        cell[inside] = self._cells.cells_of(latitude, longitude).astype(np.int64)
        slot[inside] = slots_of(time_us[inside], grid.slot_kind, grid.period.time_zone, grid.day_parts)
        value = self._clip.steps_of(table.column("speed_centi"), table.column("speed_unit"))
        return Batch(vehicle, time_us, cell, slot, value)


def digest_of(path: Path, key: VehicleKey) -> str | None:
    """Return the digest of a file's bytes under ``key``; None for one that cannot be read now."""
    try:
        return key.digest(InputFile(path).sha256())
    except DataError:
        return None


def in_order_of_time(batch: Batch) -> Batch:
    """Return the records by their instants; those of the same instant stay in their order."""
    order = np.argsort(batch.time_us, kind="stable")
    return Batch(*(getattr(batch, name)[order] for name in Batch.__dataclass_fields__))
