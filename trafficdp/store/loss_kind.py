"""The kind of loss a store counts in: fixed with its first file, and never another."""

from __future__ import annotations

from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.store import vault_ledger
from trafficdp.store.statements import number
from trafficdp.store.vault import Vault

_FACT = "loss_kind"


def kind_of(vault: Vault) -> LossKind | None:
    """Return the kind of the store, None while it is empty. A store that states none is pure.

    Raises StoreDamagedError when a charge of the ledger is of the other kind.
    """
    stated = vault.fact(_FACT)
    kind = LossKind.PURE if stated is None else LossKind(stated)
    if not all(f'"{kind.pico_key}":' in row.entry for row in vault_ledger.charges(vault)):
        raise StoreDamagedError(
            "the store and its ledger count in different kinds of loss",
            expected=f"charges in {kind.quantity}",
            todo="restore the newest complete backup of the store",
        )
    empty = vault_ledger.last(vault) is None and number(vault.connection, "SELECT count(*) FROM ingests") == 0
    return None if empty and stated is None else kind


def require_kind(vault: Vault, kind: LossKind) -> None:
    """Raise UsageError when the store counts in another kind than ``kind``."""
    there = kind_of(vault)
    if there is not None and there is not kind:
        raise UsageError(
            "the store counts its budget in another kind of loss",
            got=f'[budget] kind = "{kind.value}"',
            expected=f'kind = "{there.value}": losses in {there.quantity}, since its first file',
            todo="restore [budget] kind, or ingest everything into a new store",
        )


def pin_kind(vault: Vault, kind: LossKind) -> None:
    """Record the kind of an empty store (inside the caller's transaction). A pure one says nothing."""
    if kind_of(vault) is None and kind is not LossKind.PURE:
        vault.set_fact(_FACT, kind.value)
