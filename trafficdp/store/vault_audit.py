"""The audits of the vault: sql/audits/vault.sql selects bad rows, and must find none."""

from __future__ import annotations

from trafficdp.errors import StoreDamagedError
from trafficdp.store.statements import run, script
from trafficdp.store.vault import Vault


def problems(vault: Vault) -> list[tuple[str, int]]:
    """Return (problem, how many rows) for every problem that the audits find."""
    return [(str(what), int(found)) for what, found in run(vault.connection, script("audits/vault"))]


def audit(vault: Vault) -> None:
    """Raise StoreDamagedError when the audits find a problem; inside a transaction, that undoes it."""
    found = problems(vault)
    if found:
        raise StoreDamagedError(
            "the vault fails its audits",
            got="; ".join(f"{what} ({rows})" for what, rows in found),
            todo="restore the newest complete backup of the store",
        )
