"""Releases in the vault: charged, committed, published, withdrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trafficdp.errors import UsageError
from trafficdp.store.statements import registered, run
from trafficdp.store.vault import Vault

PIECE = 1024
"""Bytes a row of what a release leaves. DuckDB merges the newest rows at each checkpoint until they are 2048,
later only where that doubles: no more than this is written anew, however many releases there are."""


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """One charged release; ``drawn``: its noise is committed."""

    release_id: str
    sequence: int
    drawn: bool
    published: bool
    withdrawn: bool

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do: published, or withdrawn."""
        return self.published or self.withdrawn


_STATES = "SELECT release_id, sequence, drawn, published, withdrawn FROM releases "


def all_releases(vault: Vault) -> list[StoredRelease]:
    """Return every charged release in the order of charging."""
    return [StoredRelease(*row) for row in run(vault.connection, _STATES + "ORDER BY sequence")]


def published_of(vault: Vault, data_version: str) -> list[StoredRelease]:
    """Return the releases that are published, newest first, and whose charge names ``data_version``."""
    charges = run(
        vault.connection,
        """SELECT sequence FROM ledger WHERE entry LIKE '%"kind":"charge"%' AND contains(entry, ?)""",
        [data_version],
    )
    charged = {sequence for (sequence,) in charges}
    return [
        each
        for each in reversed(all_releases(vault))
        if each.sequence in charged and each.published and not each.withdrawn
    ]


def release_named(vault: Vault, release_id: str) -> StoredRelease:
    """Return the release; raise UsageError, naming those there are, when there is none of that name."""
    found = run(vault.connection, _STATES + "WHERE release_id = ?", [release_id])
    if not found:
        names = [release.release_id for release in all_releases(vault)]
        raise UsageError(
            "there is no such release",
            got=release_id,
            expected="one of " + ", ".join(names) if names else "a release; none was made yet",
        )
    return StoredRelease(*found[0])


def allocation_of(vault: Vault, release_id: str) -> str:
    """Return the JSON of the frozen allocation of a release; raise as ``release_named``."""
    release_named(vault, release_id)
    return _read(vault, release_id, "allocation").decode()


def values_of(vault: Vault, release_id: str) -> tuple[str, bytes] | None:
    """Return (facts, bins) of a release, None until its noise is committed; raise as ``release_named``."""
    if not release_named(vault, release_id).drawn:
        return None
    return _read(vault, release_id, "facts").decode(), _read(vault, release_id, "bins")


def measured_of(vault: Vault, release_id: str) -> bytes:
    """Return the answers that a drawn release was made from; raise as ``release_named``."""
    release_named(vault, release_id)
    return _read(vault, release_id, "measured")


def add_charged(vault: Vault, release_id: str, sequence: int, allocation: str) -> None:
    """Write a charged release with its frozen allocation (inside the caller's transaction)."""
    run(
        vault.connection,
        "INSERT INTO releases (release_id, sequence) VALUES (?, ?)",
        [release_id, sequence],
    )
    _write(vault, release_id, {"allocation": allocation.encode()})


def commit_values(vault: Vault, release_id: str, facts: str, bins: bytes, measured: bytes) -> None:
    """Write the noisy values of a charged release, once (inside the caller's transaction).

    Raises UsageError when values are there already: a committed value is never redrawn.
    """
    changed = run(
        vault.connection,
        "UPDATE releases SET drawn = true WHERE release_id = ? AND NOT drawn RETURNING release_id",
        [release_id],
    )
    if len(changed) != 1:
        raise UsageError("the values of this release are committed already", got=release_id)
    _write(vault, release_id, {"facts": facts.encode(), "bins": bins, "measured": measured})


def mark_published(vault: Vault, release_id: str) -> None:
    """Write that the files of a release are in place (inside the caller's transaction)."""
    run(vault.connection, "UPDATE releases SET published = true WHERE release_id = ?", [release_id])


def mark_withdrawn(vault: Vault, release_id: str) -> None:
    """Write that a release was withdrawn (inside the caller's transaction)."""
    run(vault.connection, "UPDATE releases SET withdrawn = true WHERE release_id = ?", [release_id])


def _write(vault: Vault, release_id: str, parts: Mapping[str, bytes]) -> None:
    import pyarrow as pa

    for part, content in parts.items():
        pieces = [content[start : start + PIECE] for start in range(0, len(content), PIECE)]
        rows = pa.table({"number": range(1, len(pieces) + 1), "piece": pa.array(pieces, pa.binary())})
        with registered(vault.connection, "incoming_pieces", rows):
            run(
                vault.connection,
                "INSERT INTO release_pieces SELECT ?, ?, number, piece FROM incoming_pieces",
                [release_id, part],
            )


def _read(vault: Vault, release_id: str, part: str) -> bytes:
    rows = run(
        vault.connection,
        "SELECT piece FROM release_pieces WHERE release_id = ? AND part = ? ORDER BY number",
        [release_id, part],
    )
    return b"".join(piece for (piece,) in rows)
