"""What checks of releases and streams share: the charge, the folder, the manifest, and how a check runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp._durable import read_regular
from trafficdp.errors import TrafficdpError
from trafficdp.export.write import MANIFEST
from trafficdp.model import Counts, Grid, Statistic
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.noise_column import NOISE_COLUMNS
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of
from trafficdp.store import vault_ledger

if TYPE_CHECKING:
    import pandas as pd

NamedChecks = Iterator[tuple[str, Callable[[], str | None]]]
"""What is checked, and the check: it returns what is wrong, or None."""
UNREADABLE = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    pa.ArrowException,
)
"""What reading a file raises that may hold anything at all."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked: what, whether it holds, and what was found when it does not."""

    name: str
    passed: bool
    found: str


def run_checks(checks: NamedChecks) -> list[Check]:
    """Return what every check found. Errors are findings too."""
    return [_run(name, check) for name, check in checks]


def _run(name: str, check: Callable[[], str | None]) -> Check:
    try:
        wrong = check()
    except TrafficdpError as error:
        wrong = str(error)
    except UNREADABLE as error:
        # a tampered file may be anything at all
        wrong = f"the file cannot be read ({type(error).__name__})"
    return Check(name, wrong is None, wrong or "")


class Examined:
    """What ``release_id`` published under the charge number ``sequence`` of the ledger."""

    def __init__(self, curator: Curator, release_id: str, sequence: int) -> None:
        self._curator = curator
        # absolute: pandas takes a relative name with a colon for an address
        self._folder = folder_of(curator.store, release_id).absolute()
        self._ledger = vault_ledger.rows(curator.vault)
        self._sequence = sequence

    @property
    def _charge(self) -> LedgerRow:
        """The ledger's entry; a ledger too short is a finding like any other."""
        return self._ledger[self._sequence - 1]

    def _not_behind(self) -> str | None:
        self._curator.check_not_behind(whole=True)
        return None

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(read_regular(self._folder / MANIFEST).decode("utf-8"))
        return manifest

    def _listed_files(self) -> dict[str, str]:
        """Every file that the manifest lists, with its SHA-256."""
        return {entry["name"]: entry["sha256"] for entry in self._manifest()["files"]}

    def _found_files(self) -> dict[str, str]:
        """Every file in the folder, with its SHA-256."""
        return digests_of(self._folder)


def digests_of(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file in ``folder``, by name."""
    return {path.name: hashlib.sha256(read_regular(path)).hexdigest() for path in folder.iterdir()}


def differing(expected: Mapping[str, str], found: Mapping[str, str]) -> set[str]:
    """Return the names of files that are changed, missing or foreign."""
    return {name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)}


def names_differing(names: set[str]) -> str | None:
    """Return what is wrong with the files of these names, None when there are none."""
    return "changed, missing or foreign: " + ", ".join(sorted(names)) if names else None


def rows_are_of(published: pd.DataFrame, grid: Grid, counts: Counts) -> bool:
    """Return whether ``published`` has the rows of ``counts``: every bin, or without slots every hexagon."""
    cells = grid.read_spelled(published["h3"])
    if "slot" not in published:
        return np.array_equal(cells, np.unique(counts.cell))
    slots = published["slot"].to_numpy(dtype=np.int64)
    return np.array_equal(cells, counts.cell) and np.array_equal(slots, counts.slot)


def noise_columns(published: pd.DataFrame) -> dict[Statistic, dict[str, npt.NDArray[Any]]]:
    """Return the noise columns of every statistic with a number, over all rows."""
    return {
        statistic: {
            name: published[f"{statistic.stem}_{name}"].to_numpy(
                dtype=np.float64 if column.withheld is None else np.int64
            )
            for name, column in NOISE_COLUMNS.items()
            if f"{statistic.stem}_{name}" in published
        }
        for statistic in Statistic
        if f"{statistic.stem}_status" in published
    }
