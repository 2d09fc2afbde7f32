"""Files of a stream: records read, numbered and binned; files that arrive; the pace of a replay."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from trafficdp.binning.cells import CellTable
from trafficdp.binning.places import slots_of
from trafficdp.errors import DataError, UsageError
from trafficdp.ingest import input_file, read, vehicle_key
from trafficdp.mechanisms.running_sums import RunningSums
from trafficdp.model import Clip, Grid, SourceDeclaration
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
    """Reads files as the sources of a stream declare; remembers squares of cells from file to file."""

    def __init__(
        self,
        grid: Grid,
        sums: RunningSums,
        sources: tuple[SourceDeclaration, ...],
        key: vehicle_key.VehicleKey,
    ) -> None:
        self._grid, self._horizon, self._sources, self._key = grid, sums.horizon, sources, key
        self._cells = CellTable(grid.area.geometry.bounds, grid.hexagon_resolution)
        self._clip = Clip(sums.bound)

    def read(
        self, path: Path | input_file.InputFile, digest: str, source: SourceDeclaration | None = None
    ) -> Arrival:
        """Read one file; of one that is not as declared, return an ``Arrival`` that says so.

        ``digest`` is that of its bytes. ``source`` says how it is read; None: the first that matches its
        name.
        """
        try:
            chosen = source or read.choose_source(Path(path.name), self._sources)
            found = read.read_file(path, chosen, self._grid.area, self._key)
        except DataError as error:
            report = json.dumps({"file": path.name, NOT_READ: str(error)}, sort_keys=True)
            return Arrival(path.name, digest, report, str(error), None)
        return Arrival(path.name, digest, found.report.to_json(), None, found.fixes.table)

    def batch(self, vault: Vault, arrival: Arrival) -> Batch:
        """Return the records of a file with cell, slot and clipped speed; empty where the file was refused.

        New vehicles get numbers in ``vault`` (inside the caller's transaction).
        """
        table = arrival.fixes
        if table is None or not table.num_rows:
            none = np.zeros(0, dtype=np.int64)
            return Batch(none, none, none, none, none)
        # a file that is read at once is one chunk
        vehicle = vault_fixes.number_vehicles(vault, table.column("vehicle").chunk(0))
        time_us = table.column("time_us").to_numpy()
        horizon, grid = self._horizon, self._grid
        step = horizon.step_of(time_us)
        inside = (step >= 0) & (step < horizon.steps)
        cell = np.zeros(len(time_us), dtype=np.int64)
        slot = np.zeros(len(time_us), dtype=np.int64)
        latitude, longitude = (table.column(name).to_numpy()[inside] for name in ("latitude", "longitude"))
        cell[inside] = self._cells.cells_of(latitude, longitude).astype(np.int64)
        slot[inside] = slots_of(time_us[inside], grid.slot_kind, grid.period.time_zone, grid.day_parts)
        value = self._clip.steps_of(table.column("speed_centi"), table.column("speed_unit"))
        return Batch(vehicle, time_us, cell, slot, value)


def digest_of(path: Path, key: vehicle_key.VehicleKey) -> str | None:
    """Return the ``VehicleKey.digest`` of a file's bytes; None for a file that cannot be read now."""
    try:
        return key.digest(input_file.InputFile(path).sha256())
    except DataError:
        return None


HALF_WRITTEN = (".tmp", ".part", ".partial", ".crdownload", ".new")
Stamp = tuple[int, int, int]


@dataclass
class WatchedFolder:
    """A folder that is looked at again and again. Only names, sizes and times are looked at here.

    A file counts as arrived when it bears its final name: whoever writes it must write elsewhere and rename.
    Names that begin with a dot or end like half-written ones are passed over.
    """

    path: Path
    _seen: dict[str, Stamp] = field(default_factory=dict)

    def arrived(self) -> list[Path]:
        """Return the files that are new or were replaced since they were marked as done, by name."""
        found = []
        for path in sorted(self.path.iterdir()):
            if path.name.startswith(".") or path.name.endswith(HALF_WRITTEN):
                continue
            stamp = file_stamp(path)
            if stamp is not None and self._seen.get(path.name) != stamp:
                found.append(path)
        return found

    def mark_done(self, path: Path, stamp: Stamp | None) -> None:
        """Remember that the file at ``path`` was taken when it had ``stamp``; if replaced it is new again."""
        if stamp is not None:
            self._seen[path.name] = stamp


def file_stamp(path: Path) -> Stamp | None:
    """Return (inode, time of change, size) of a file, which differ once it is replaced; None if no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size) if path.is_file() else None


def pace(speed: float, clock: Callable[[], float] = time.monotonic) -> Callable[[int], int | None]:
    """Return what says up to which instant records are due: ``speed`` seconds of stream time a second.

    It is called with the instant of the first record, which is due at its first call, and returns an instant,
    both in microseconds since 1970 UTC; None, with a speed of 0: all are due. Raises UsageError below 0.
    """
    if not 0 <= speed < float("inf"):
        raise UsageError("a replay cannot run at this speed", got=speed, expected="0 or more")
    began: list[float] = []

    def due_us(first_us: int) -> int | None:
        if not began:
            began.append(clock())
        return first_us + int((clock() - began[0]) * speed * 1e6) if speed else None

    return due_us
