"""Releases in the vault: charged, committed, published, withdrawn."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.errors import UsageError
from trafficdp.store.statements import run
from trafficdp.store.vault import Vault


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


def all_releases(vault: Vault) -> list[StoredRelease]:
    """Return every charged release in the order of charging."""
    rows = run(
        vault.connection,
        "SELECT release_id, sequence, facts IS NOT NULL AND bins IS NOT NULL, published, withdrawn "
        "FROM releases ORDER BY sequence",
    )
    return [StoredRelease(*row) for row in rows]


def release_named(vault: Vault, release_id: str) -> StoredRelease:
    """Return the release; raise UsageError, naming those there are, when there is none of that name."""
    releases = all_releases(vault)
    found = [release for release in releases if release.release_id == release_id]
    if not found:
        names = [release.release_id for release in releases]
        raise UsageError(
            "there is no such release",
            got=release_id,
            expected="one of " + ", ".join(names) if names else "a release; none was made yet",
        )
    return found[0]


def allocation_of(vault: Vault, release_id: str) -> str:
    """Return the JSON of the frozen allocation of a release; raise as ``release_named``."""
    release_named(vault, release_id)
    ((allocation,),) = run(
        vault.connection, "SELECT allocation FROM releases WHERE release_id = ?", [release_id]
    )
    return str(allocation)


def values_of(vault: Vault, release_id: str) -> tuple[str, bytes] | None:
    """Return (facts, bins) of a release, None until its noise is committed; raise as ``release_named``."""
    if not release_named(vault, release_id).drawn:
        return None
    ((facts, bins),) = run(
        vault.connection, "SELECT facts, bins FROM releases WHERE release_id = ?", [release_id]
    )
    return str(facts), bytes(bins)


def add_charged(vault: Vault, release_id: str, sequence: int, allocation: str) -> None:
    """Write a charged release with its frozen allocation (inside the caller's transaction)."""
    run(
        vault.connection,
        "INSERT INTO releases (release_id, sequence, allocation) VALUES (?, ?, ?)",
        [release_id, sequence, allocation],
    )


def measured_of(vault: Vault, release_id: str) -> bytes:
    """Return the answers that a drawn release was made from; raise as ``release_named``."""
    release_named(vault, release_id)
    ((measured,),) = run(vault.connection, "SELECT measured FROM releases WHERE release_id = ?", [release_id])
    return bytes(measured)


def commit_values(vault: Vault, release_id: str, facts: str, bins: bytes, measured: bytes) -> None:
    """Write the noisy values of a charged release, once (inside the caller's transaction).

    Raises UsageError when values are there already: a committed value is never redrawn.
    """
    changed = run(
        vault.connection,
        "UPDATE releases SET facts = ?, bins = ?, measured = ? "
        "WHERE release_id = ? AND facts IS NULL RETURNING release_id",
        [facts, bins, measured, release_id],
    )
    if len(changed) != 1:
        raise UsageError("the values of this release are committed already", got=release_id)


def mark_published(vault: Vault, release_id: str) -> None:
    """Write that the files of a release are in place (inside the caller's transaction)."""
    run(vault.connection, "UPDATE releases SET published = true WHERE release_id = ?", [release_id])


def mark_withdrawn(vault: Vault, release_id: str) -> None:
    """Write that a release was withdrawn (inside the caller's transaction)."""
    run(vault.connection, "UPDATE releases SET withdrawn = true WHERE release_id = ?", [release_id])
