"""Fixes into the vault: vehicles numbered, nothing twice, every file remembered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from trafficdp.errors import DataError
from trafficdp.privacy.ledger import canonical
from trafficdp.sensitive.fixes import Fixes
from trafficdp.store.statements import first, number, registered, run, script
from trafficdp.store.vault import Vault

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EMPTY_VERSION = hashlib.sha256(b"trafficdp data").hexdigest()
"""The data version of a vault without fixes."""


@dataclass(frozen=True, slots=True)
class DataVersion:
    """The state of the data: all fixes of the ingests 1..``ingest_id``; ``digest`` pins their history."""

    ingest_id: int
    digest: str


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """What the vault remembers of a file. For the curator: outside the guarantee."""

    ingest_id: int
    file_name: str
    source: str
    report: str
    ingested_at: datetime


def data_version(vault: Vault) -> DataVersion:
    """Return the newest data version."""
    row = first(
        vault.connection, "SELECT ingest_id, data_version FROM ingests ORDER BY ingest_id DESC LIMIT 1"
    )
    return DataVersion(0, EMPTY_VERSION) if row is None else DataVersion(int(row[0]), str(row[1]))


def already_ingested(vault: Vault, sha256: str, declaration: str) -> bool:
    """Return whether these bytes are in the vault.

    Raises DataError when they were read under another declaration (another unit, say): what is in the
    vault is never edited.
    """
    row = first(vault.connection, "SELECT declaration FROM ingests WHERE file_sha256 = ?", [sha256])
    if row is None:
        return False
    if str(row[0]) != declaration:
        raise DataError(
            "this file is in the store already, read under another declaration of its source",
            todo="restore the declaration, or ingest everything into a new store",
        )
    return True


def add_fixes(
    vault: Vault, fixes: Fixes, *, file_name: str, sha256: str, source: str, declaration: str, report: str
) -> int:
    """Add the fixes of one file (inside the caller's transaction); return how many were new.

    A fix whose (vehicle, instant) is in the vault already is left out: the earlier one stays.
    """
    connection = vault.connection
    previous = data_version(vault)
    ingest_id = previous.ingest_id + 1
    with registered(connection, "incoming_fixes", fixes.table):
        run(connection, script("statements/number_vehicles"))
        before = number(connection, "SELECT count(*) FROM fixes")
        run(connection, script("statements/add_fixes"), {"ingest_id": ingest_id})
        after = number(connection, "SELECT count(*) FROM fixes")
    added = after - before
    run(
        connection,
        "INSERT INTO ingests VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            ingest_id,
            file_name,
            sha256,
            source,
            declaration,
            report,
            _next_digest(previous.digest, sha256, declaration, added),
            datetime.now(UTC),
        ],
    )
    return added


def ingested_files(vault: Vault, up_to_ingest: int | None = None) -> list[IngestedFile]:
    """Return the files in the order they were read, up to a data version (None: all)."""
    rows = run(
        vault.connection,
        # instants travel as numbers: DuckDB hands TIMESTAMPTZ to Python only where pytz is installed
        "SELECT ingest_id, file_name, source, report, epoch_us(ingested_at) FROM ingests "
        "WHERE ingest_id <= coalesce(?, ingest_id) ORDER BY ingest_id",
        [up_to_ingest],
    )
    return [
        IngestedFile(ingest_id, name, source, report, _EPOCH + timedelta(microseconds=at))
        for ingest_id, name, source, report, at in rows
    ]


def declarations(vault: Vault, up_to_ingest: int) -> list[tuple[str, str]]:
    """Return the distinct (source, declaration as JSON) of a data version, in order of first use."""
    rows = run(
        vault.connection,
        "SELECT source, declaration FROM ingests WHERE ingest_id <= ? "
        "GROUP BY source, declaration ORDER BY min(ingest_id)",
        [up_to_ingest],
    )
    return [(str(source), str(declaration)) for source, declaration in rows]


@dataclass(frozen=True, slots=True)
class FixCounts:
    """Counts for the curator's eyes: fixes and vehicles in the vault, and fixes with a derived speed."""

    fixes: int
    vehicles: int
    derived: int


def count_fixes(vault: Vault, up_to_ingest: int) -> FixCounts:
    """Count the fixes of a data version."""
    row = first(
        vault.connection,
        "SELECT count(*), count(DISTINCT vehicle_id), count(*) FILTER (derived) "
        "FROM fixes WHERE ingest_id <= ?",
        [up_to_ingest],
    )
    return FixCounts(*(int(value) for value in (row or (0, 0, 0))))


def version_digest(vault: Vault, ingest_id: int) -> str | None:
    """Return the digest of the data version of ``ingest_id``; None when there is no such version."""
    row = first(vault.connection, "SELECT data_version FROM ingests WHERE ingest_id = ?", [ingest_id])
    return None if row is None else str(row[0])


def recomputed_digest(vault: Vault, ingest_id: int) -> str:
    """Return the digest of a data version from the files it names and the fixes that are there now."""
    digest = EMPTY_VERSION
    for sha256, declaration, added in run(
        vault.connection,
        "SELECT file_sha256, declaration, count(fixes.ingest_id) FROM ingests "
        "LEFT JOIN fixes USING (ingest_id) WHERE ingest_id <= ? "
        "GROUP BY ingest_id, file_sha256, declaration ORDER BY ingest_id",
        [ingest_id],
    ):
        digest = _next_digest(digest, str(sha256), str(declaration), int(added))
    return digest


def _next_digest(previous: str, sha256: str, declaration: str, added: int) -> str:
    history = canonical({"previous": previous, "file": sha256, "declaration": declaration, "added": added})
    return hashlib.sha256(history.encode()).hexdigest()


def speed_provenance(vault: Vault, up_to_ingest: int) -> dict[str, str]:
    """Return for every source whether its speeds are "reported", "derived" or "mixed"."""
    rows = run(
        vault.connection,
        "SELECT ingests.source, bool_or(fixes.derived), bool_and(fixes.derived) "
        "FROM fixes JOIN ingests USING (ingest_id) WHERE ingest_id <= ? GROUP BY ingests.source",
        [up_to_ingest],
    )
    return {str(name): "derived" if every else "mixed" if some else "reported" for name, some, every in rows}
