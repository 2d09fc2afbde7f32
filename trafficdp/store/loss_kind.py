"""What a store promises, fixed with its first file for life: relation, and kind of loss it counts in."""

from __future__ import annotations

from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.loss import LossKind
from trafficdp.store import vault_ledger
from trafficdp.store.statements import number
from trafficdp.store.vault import Vault

_FACT, _RELATION = "loss_kind", "relation"


def kind_of(vault: Vault) -> LossKind | None:
    """Return the kind of the store, None while it is empty. A store that states none is pure.

    Raises StoreDamagedError when a charge of the ledger is of the other kind.
    """
    stated = vault.fact(_FACT)
    kind = LossKind.PURE if stated is None else LossKind(stated)
    if vault_ledger.charges_without(vault, f'"{kind.pico_key}":'):
        raise StoreDamagedError(
            "the store and its ledger count in different kinds of loss",
            expected=f"charges in {kind.quantity}",
            todo="restore the newest complete backup of the store",
        )
    return kind if stated is not None or _begun(vault) else None


def _begun(vault: Vault) -> bool:
    return (
        number(vault.connection, "SELECT count(*) FROM ingests") > 0 or vault_ledger.last(vault) is not None
    )


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


def relation_of(vault: Vault) -> NeighbouringRelation:
    """Return the relation of the store; one that states none, or is empty, is REPLACE_USER_VALUES."""
    return NeighbouringRelation(vault.fact(_RELATION) or NeighbouringRelation.REPLACE_USER_VALUES)


def require_relation(vault: Vault, relation: NeighbouringRelation) -> None:
    """Raise UsageError when the store was begun under another ``relation``, or what was begun is unknown."""
    if relation_of(vault) is not relation and _begun(vault):
        raise UsageError(
            "the store was begun under another relation",
            got=f'[privacy] relation = "{relation.value}"',
            expected=f'"{relation_of(vault).value}", since its first file',
            todo="restore [privacy] relation, or ingest everything into a new store",
        )


def require_promise(vault: Vault, kind: LossKind, relation: NeighbouringRelation) -> None:
    """Raise UsageError when the store promises another kind of loss, or under another relation."""
    require_kind(vault, kind)
    require_relation(vault, relation)


def pin_relation(vault: Vault, relation: NeighbouringRelation) -> None:
    """Record the relation of an empty store (inside the caller's transaction); public counts say nothing."""
    require_relation(vault, relation)
    if relation is not relation_of(vault):
        vault.set_fact(_RELATION, relation.value)
