"""Reduced contributions, kept in the vault until the data or the question changes."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from trafficdp.model.bound import ContributionBound
from trafficdp.model.grid import Grid
from trafficdp.privacy.ledger import canonical
from trafficdp.sensitive.contributions import Contributions
from trafficdp.store.statements import number, query, registered, run
from trafficdp.store.vault import Vault
from trafficdp.store.vault_fixes import DataVersion

MOST_CACHED = 8
"""Reductions kept; the cache is emptied when one more would come."""


def cache_key(grid: Grid, bound: ContributionBound, version: DataVersion) -> str:
    """Return SHA-256 over grid, speed bound, unit, step and data version."""
    facts = {
        "grid": grid.key,
        "upper": str(bound.upper),
        "step": str(bound.step),
        "unit": bound.unit.value,
        "data_version": version.name,
    }
    return hashlib.sha256(canonical(facts).encode()).hexdigest()


def load(vault: Vault, grid: Grid, bound: ContributionBound, version: DataVersion) -> Contributions | None:
    """Return the kept contributions, None when there are none."""
    table = query(
        vault.connection,
        "SELECT cell, slot, vehicle_id, fixes, total, total_of_squares FROM contributions "
        "WHERE cache_key = ? ORDER BY cell, slot, vehicle_id",
        [cache_key(grid, bound, version)],
    )
    return from_table(table, bound) if table.num_rows else None


def save(
    vault: Vault, grid: Grid, bound: ContributionBound, version: DataVersion, contributions: Contributions
) -> None:
    """Keep contributions (inside the caller's transaction)."""
    kept = number(vault.connection, "SELECT count(DISTINCT cache_key) FROM contributions")
    if kept >= MOST_CACHED:
        run(vault.connection, "DELETE FROM contributions")
    with registered(vault.connection, "incoming_contributions", to_table(contributions)):
        run(
            vault.connection,
            "INSERT INTO contributions SELECT $cache_key, cell, slot, vehicle_id, fixes, total, "
            "total_of_squares FROM incoming_contributions",
            {"cache_key": cache_key(grid, bound, version)},
        )


def to_table(contributions: Contributions) -> pa.Table:
    """Return one row a (bin, vehicle), sorted by bin, then vehicle."""
    counts = contributions.counts
    return pa.table(
        {
            "cell": counts.cell[counts.bin_index],
            "slot": counts.slot[counts.bin_index],
            "vehicle_id": contributions.vehicle[counts.user_index],
            "fixes": counts.count,
            "total": contributions.total,
            "total_of_squares": contributions.total_of_squares,
        }
    )


def from_table(table: pa.Table, bound: ContributionBound) -> Contributions:
    """Return the contributions of a table sorted by cell, slot and vehicle; the reverse of ``to_table``."""
    return Contributions.from_rows(
        cell=table.column("cell").to_numpy(),
        slot=table.column("slot").to_numpy(),
        vehicle=table.column("vehicle_id").to_numpy(),
        count=table.column("fixes").to_numpy(),
        total=table.column("total").to_numpy(),
        total_of_squares=table.column("total_of_squares").to_numpy(),
        bound=bound,
    )
