"""Reduced contributions, kept in the vault: those of older data are brought up to date by what came later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp.model import ContributionBound, Grid
from trafficdp.privacy.ledger import canonical
from trafficdp.sensitive import Contributions
from trafficdp.store.store_files import number, registered, run
from trafficdp.store.vault import Vault

MOST_CACHED = 8
"""Reductions kept; the cache is emptied when one more would come."""
_ROWS = 1 << 18  # rows that are handed over at once
_TYPES = {
    "cell": np.uint64,
    "slot": np.int64,
    "vehicle_id": np.int32,
    "fixes": np.int64,
    "total": np.int64,
    "total_of_squares": np.int64,
}


@dataclass(frozen=True, repr=False)
class CachedContributions:
    """What vehicles contribute by the files 1 to ``up_to_ingest``."""

    contributions: Contributions
    up_to_ingest: int


def cache_key(grid: Grid, bound: ContributionBound) -> str:
    """Return SHA-256 over grid, speed bound, unit and step."""
    facts = {
        "grid": grid.key,
        "upper": str(bound.upper),
        "step": str(bound.step),
        "unit": bound.unit.value,
    }
    return hashlib.sha256(canonical(facts).encode()).hexdigest()


def load(vault: Vault, grid: Grid, bound: ContributionBound, up_to_ingest: int) -> CachedContributions | None:
    """Return what is kept of the files up to ``up_to_ingest`` or of fewer, None when there is nothing.

    What is there out of order is passed over.
    """
    key = cache_key(grid, bound)
    ((newest, rows),) = run(
        vault.connection,
        "SELECT max(ingest_id), count(*) FROM contributions WHERE cache_key = ?",
        [key],
    )
    if not rows or newest > up_to_ingest:
        return None
    columns: dict[str, npt.NDArray[Any]] = {name: np.empty(rows, kind) for name, kind in _TYPES.items()}
    # in the order of writing: the vault keeps it
    reader = vault.connection.sql(
        "SELECT * EXCLUDE (cache_key, ingest_id) FROM contributions WHERE cache_key = ?", params=[key]
    ).to_arrow_reader(_ROWS)
    start = 0
    for batch in reader:
        for name, column in columns.items():
            column[start : start + len(batch)] = batch.column(name).to_numpy()
        start += len(batch)
    if not _rising(columns["cell"], columns["slot"], columns["vehicle_id"]):
        return None
    return CachedContributions(
        Contributions.from_rows(
            cell=columns["cell"],
            slot=columns["slot"],
            vehicle=columns["vehicle_id"],
            count=columns["fixes"],
            total=columns["total"],
            total_of_squares=columns["total_of_squares"],
            bound=bound,
        ),
        int(newest),
    )


def save(
    vault: Vault, grid: Grid, bound: ContributionBound, up_to_ingest: int, contributions: Contributions
) -> None:
    """Keep contributions in the place of older ones (inside the caller's transaction)."""
    key = cache_key(grid, bound)
    run(vault.connection, "DELETE FROM contributions WHERE cache_key = ?", [key])
    kept = number(vault.connection, "SELECT count(DISTINCT cache_key) FROM contributions")
    if kept >= MOST_CACHED:
        run(vault.connection, "DELETE FROM contributions")
    for table in _tables(contributions):
        with registered(vault.connection, "incoming_contributions", table):
            run(
                vault.connection,
                "INSERT INTO contributions SELECT $cache_key, $up_to_ingest, cell, slot, vehicle_id, fixes, "
                "total, total_of_squares FROM incoming_contributions",
                {"cache_key": key, "up_to_ingest": up_to_ingest},
            )


def _tables(contributions: Contributions) -> Iterator[pa.Table]:
    """Yield one row a (bin, vehicle), sorted by bin, then vehicle, in tables that memory hardly notices."""
    counts = contributions.counts
    for start in range(0, counts.pairs, _ROWS):
        here = slice(start, start + _ROWS)
        bins = counts.bin_index[here]
        yield pa.table(
            {
                "cell": counts.cell[bins],
                "slot": counts.slot[bins],
                "vehicle_id": contributions.vehicle[counts.user_index[here]],
                "fixes": counts.count[here],
                "total": contributions.total[here],
                "total_of_squares": contributions.total_of_squares[here],
            }
        )


def _rising(*columns: npt.NDArray[Any]) -> bool:
    """Return whether rows rise by the first column, where it is equal by the second, and so on."""
    equal = np.ones(max(len(columns[0]) - 1, 0), dtype=np.bool_)
    rises = ~equal
    for column in columns:
        rises |= equal & (column[1:] > column[:-1])
        equal &= column[1:] == column[:-1]
    return bool(rises.all())
