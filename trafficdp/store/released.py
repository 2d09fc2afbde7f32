"""`released.duckdb`: what analysts open. Built in a new file from Release objects and swapped in.

Dropped rows survive in a DuckDB file's pages, so nothing is ever deleted or altered here, and nothing is
copied from the vault: the only way in is a Release.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

from trafficdp.errors import StoreDamagedError
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.published import published_frame
from trafficdp.privacy.release import Release
from trafficdp.store.failures import store_failures
from trafficdp.store.statements import query, run, script

RELEASED_NAME = "released.duckdb"
STORAGE_VERSION = "v1.2.0"
"""Format of the file: DuckDB clients from 1.2 on open it."""

_PARTS = ("", "_low", "_high", "_noise_scale", "_expected_error")


def build(folder: Path, releases: Sequence[tuple[Release, Decimal, bool]]) -> None:
    """Write `released.duckdb` in ``folder`` anew from (release, epsilon, withdrawn), in one move.

    Raises StoreDamagedError when the result fails its audits (and leaves the old file in place).
    """
    target = folder / RELEASED_NAME
    half_made = folder / f".{RELEASED_NAME}.new"
    with store_failures("writing released.duckdb"):
        for leftover in (half_made, half_made.with_name(half_made.name + ".wal")):
            leftover.unlink(missing_ok=True)
        connection = duckdb.connect()
        try:
            run(
                connection,
                "ATTACH '" + str(half_made).replace("'", "''") + "' AS released "
                "(STORAGE_VERSION '" + STORAGE_VERSION + "')",
            )
            run(connection, "USE released")
            connection.begin()
            run(connection, script("tables/released"))
            run(connection, script("views/released"))
            for release, epsilon, withdrawn in releases:
                _insert_release(connection, release, epsilon, withdrawn)
                if not withdrawn:
                    _insert_cells(connection, release)
            connection.commit()
            problems = run(connection, script("audits/released"))
            run(connection, "USE memory")
            run(connection, "DETACH released")
        finally:
            connection.close()
        if problems:
            raise StoreDamagedError(
                "released.duckdb fails its audits", got="; ".join(str(p[0]) for p in problems)
            )
        with open(half_made, "rb") as file:
            os.fsync(file.fileno())
        os.replace(half_made, target)


def _insert_release(
    connection: duckdb.DuckDBPyConnection, release: Release, epsilon: Decimal, withdrawn: bool
) -> None:
    factor = float(release.bound.unit.factor_to(release.display_unit))
    run(
        connection,
        "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [
            release.id,
            release.created_at,
            "withdrawn" if withdrawn else "published",
            epsilon,
            NeighbouringRelation.REPLACE_USER_VALUES.value,
            release.grid.resolution,
            release.grid.slot_kind.value,
            release.grid.period.first,
            release.grid.period.last,
            release.grid.period.time_zone,
            release.display_unit.value,
            float(release.bound.upper) * factor,
            release.interval_level,
            release.min_vehicles,
            release.ledger.sequence,
            release.ledger.head_hash,
            canonical(release.disclosure),
        ],
    )


def _cells_table(release: Release) -> pa.Table:
    published = published_frame(release)
    rows = pd.DataFrame(
        {
            "release_id": pd.Series([release.id] * len(published), dtype="str"),
            "cell": release.cell,
            **{name: published[name] for name in ("h3", "slot", "slot_label", "status", "vehicles", "fixes")},
            **{name: pd.to_datetime(published[name], utc=True) for name in ("slot_start", "slot_end")},
        }
    )
    for statistic in Statistic:
        present = statistic in release.estimates
        name = statistic.column(release.display_unit)
        for part in _PARTS:
            rows[statistic.stem + part] = published[name + part] if present else np.nan
        rows[f"{statistic.stem}_status"] = published[f"{statistic.stem}_status"] if present else None
    # NaN means null here: withheld numbers are absent, not not-a-numbers
    return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)


def _insert_cells(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    connection.register("incoming_cells", _cells_table(release))
    try:
        run(connection, "INSERT INTO cells BY NAME SELECT * FROM incoming_cells")
    finally:
        connection.unregister("incoming_cells")


def released_matches(folder: Path, release: Release) -> bool:
    """Return whether `released.duckdb` in ``folder`` holds exactly the published rows of ``release``."""
    with store_failures("reading released.duckdb"):
        connection = duckdb.connect(str(folder / RELEASED_NAME), read_only=True)
        try:
            stored = query(
                connection, "SELECT * FROM cells WHERE release_id = ? ORDER BY cell, slot", [release.id]
            )
        finally:
            connection.close()
    expected = _cells_table(release)
    return all(
        stored.column(name).equals(expected.column(name).cast(stored.schema.field(name).type))
        for name in expected.column_names
    )
