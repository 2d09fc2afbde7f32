"""Reduced contributions, kept in the vault: those of older data are brought up to date by what came later."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.model import ContributionBound, Counts, Grid
from trafficdp.privacy.ledger import canonical
from trafficdp.sensitive import Contributions, numbered
from trafficdp.store.store_files import number, query, run
from trafficdp.store.vault import Vault

MOST_CACHED = 8
"""Reductions kept; the cache is emptied when one more would come."""
_AT_ONCE = 1 << 18
"""Numbers of a piece."""


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

    What is not whole or out of order is passed over.
    """
    rows = query(
        vault.connection,
        "SELECT ingest_id, part, number, type, piece FROM contributions WHERE cache_key = ?",
        [cache_key(grid, bound)],
    )
    if not len(rows) or (newest := rows["ingest_id"][0].as_py()) > up_to_ingest:
        return None
    try:
        # pieces stay where DuckDB put them: there are many bytes
        pieces = {
            (row["part"], row["number"]): np.frombuffer(piece.as_buffer(), dtype=row["type"])
            for row, piece in zip(rows.drop_columns("piece").to_pylist(), rows["piece"], strict=True)
        }
        del rows

        def whole(part: str, kind: type[np.generic] | None = np.int64) -> npt.NDArray[Any]:
            return np.concatenate([pieces.pop(at) for at in sorted(pieces) if at[0] == part], dtype=kind)

        cell, slot, pairs = whole("cell", np.uint64), whole("slot"), whole("pairs")
        vehicle = whole("vehicle_id", None)
        if not len(cell) == len(slot) == len(pairs) or pairs.min() < 1 or pairs.sum() != len(vehicle):
            return None
        bins = np.repeat(np.arange(len(cell)), pairs)
        for first, second in ((cell, slot), (bins, vehicle)):
            equal = first[1:] == first[:-1]
            if not ((first[1:] > first[:-1]) | equal & (second[1:] > second[:-1])).all():
                return None
        vehicles, user = numbered(vehicle)
        fixes, total, squares = whole("fixes"), whole("total"), whole("total_of_squares")
    except (ValueError, TypeError, IndexError):
        return None
    if not len(fixes) == len(total) == len(squares) == len(bins):
        return None
    counts = Counts(cell, slot, bins, user, fixes, len(vehicles))
    return CachedContributions(Contributions(counts, total, squares, vehicles, bound), newest)


def save(
    vault: Vault, grid: Grid, bound: ContributionBound, up_to_ingest: int, contributions: Contributions
) -> None:
    """Keep contributions in the place of older ones (inside the caller's transaction)."""
    key = cache_key(grid, bound)
    run(vault.connection, "DELETE FROM contributions WHERE cache_key = ?", [key])
    kept = number(vault.connection, "SELECT count(DISTINCT cache_key) FROM contributions")
    if kept >= MOST_CACHED:
        run(vault.connection, "DELETE FROM contributions")
    counts = contributions.counts
    parts = {
        "cell": counts.cell,
        "slot": counts.slot,
        "pairs": counts.users_per_bin,
        "vehicle_id": contributions.vehicle[counts.user_index],
        "fixes": counts.count,
        "total": contributions.total,
        "total_of_squares": contributions.total_of_squares,
    }
    for part, column in parts.items():
        for place, start in enumerate(range(0, len(column), _AT_ONCE), start=1):
            piece = column[start : start + _AT_ONCE]
            ends = map(np.min_scalar_type, (piece.min(), piece.max()))
            piece = piece.astype(np.promote_types(*ends))
            run(
                vault.connection,
                "INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?)",
                [key, up_to_ingest, part, place, piece.dtype.str, piece.tobytes()],
            )
