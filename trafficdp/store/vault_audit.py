"""The audits of the vault: sql/audits/vault.sql selects bad rows, and must find none."""

from __future__ import annotations

from trafficdp.errors import StoreDamagedError
from trafficdp.store.statements import run, script
from trafficdp.store.vault import Vault


def problems(vault: Vault, after_ingest: int | None = None) -> list[tuple[str, int]]:
    """Return (problem, how many rows) for every problem that the audits find.

    With ``after_ingest`` only what files after it brought is looked at of the records, and repeats only where
    their time is that of earlier files: within a file cleaning finds them.
    """
    ranged = "SELECT coalesce(min(time_us), 0), coalesce(max(time_us), -1) FROM fixes WHERE ingest_id > ?"
    ((first_us, last_us),) = run(vault.connection, ranged, [after_ingest or 0])
    if after_ingest is not None:
        earlier = ranged.replace("> ?", "<= ?") + " AND time_us BETWEEN ? AND ?"
        ((first_us, last_us),) = run(vault.connection, earlier, [after_ingest, first_us, last_us])
    parameters = {"after_ingest": after_ingest or 0, "first_us": first_us, "last_us": last_us}
    found = run(vault.connection, script("audits/vault"), parameters)
    return [(str(what), int(rows)) for what, rows in found]


def audit(vault: Vault, after_ingest: int | None = None) -> None:
    """Raise StoreDamagedError when the audits find a problem; inside a transaction, that undoes it."""
    found = problems(vault, after_ingest)
    if found:
        raise StoreDamagedError(
            "the vault fails its audits",
            got="; ".join(f"{what} ({rows})" for what, rows in found),
            todo="restore the newest complete backup of the store",
        )
