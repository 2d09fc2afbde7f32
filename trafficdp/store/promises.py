"""What a store promises: entries of its ledger, the first of all and those that change it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.disclosure import BudgetChange
from trafficdp.privacy.ledger import LedgerRow, check_chain
from trafficdp.privacy.promise import FOR_LIFE, KIND, Promise, changes_in
from trafficdp.store import vault_ledger
from trafficdp.store.vault import Vault

RAISE = 'run `trafficdp budget raise --reason "..."`, which every later release shows'
NEW_STORE = "restore the configuration, or ingest everything into a new store"


def in_force(vault: Vault) -> Promise | None:
    """Return the newest promise; None before anything was ingested or charged.

    Raises StoreDamagedError where its entry was altered, and for a ledger without one.
    """
    newest = vault_ledger.entries_of(vault, KIND)[-1:]
    for row in newest:
        check_chain([row], vault_ledger.Entries(vault)[row.sequence - 2] if row.sequence > 1 else None)
        return Promise.from_facts(row.facts)
    if vault_ledger.last(vault) is not None:
        raise StoreDamagedError(
            "the ledger does not say what the store promises",
            expected="a promise at its first entry",
            todo="restore the newest complete backup of the store",
        )
    return None


def promised(vault: Vault) -> Promise:
    """Return the newest promise; raise UsageError before anything was ingested or charged."""
    found = in_force(vault)
    if found is None:
        raise UsageError("the store has promised nothing yet", todo="run `trafficdp ingest FILE...` first")
    return found


def relation_of(vault: Vault) -> NeighbouringRelation:
    """Return the relation under which the store promises."""
    return promised(vault).policy.relation


def changes(vault: Vault) -> tuple[BudgetChange, ...]:
    """Return how the promise changed, in order."""
    return changes_in(vault_ledger.entries_of(vault, KIND))


def require(vault: Vault, configured: Promise) -> None:
    """Raise UsageError where the configuration says otherwise than the store promises, with both."""
    there = in_force(vault)
    found = () if there is None else there.changes_to(configured)
    if not found:
        return
    for_life = [each for each in found if each.what in FOR_LIFE]
    told = for_life or found
    raise UsageError(
        "the configuration says otherwise than the store promises",
        got=", ".join(f"{each.what}: {each.after}" for each in told),
        expected=", ".join(f"{each.what}: {each.before}" for each in told),
        todo=NEW_STORE if for_life else f"restore the configuration, or {RAISE}",
    )


def settle(vault: Vault, configured: Promise, at: datetime) -> Promise:
    """Return the promise in force, which must say what is ``configured``; without one, that is written now.

    To be called inside the transaction that ingests or charges.
    """
    require(vault, configured)
    if in_force(vault) is None:
        vault_ledger.add_entry(vault, _facts(configured, at))
    return promised(vault)


def replace(vault: Vault, configured: Promise, reason: str, at: datetime) -> LedgerRow:
    """Promise ``configured`` from now on (inside the caller's transaction); ``reason`` is checked already.

    Raises UsageError where nothing changes, where nothing was promised yet, and for another relation or kind.
    """
    there = promised(vault)
    changed = there.changes_to(configured)
    if not changed:
        raise UsageError(
            "the configuration says what the store promises", todo="change the configuration first"
        )
    if any(each.what in FOR_LIFE for each in changed):
        require(vault, configured)
    return vault_ledger.add_entry(vault, {**_facts(configured, at), "reason": reason})


def _facts(configured: Promise, at: datetime) -> Mapping[str, object]:
    return {"kind": KIND, "at": at.replace(microsecond=0).isoformat(), **configured.facts()}
