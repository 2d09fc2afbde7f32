"""A store: making it, what it holds and what was spent. Nothing that is slow to load is imported."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trafficdp._durable import DEFAULT_WAIT
from trafficdp.errors import StoreUnavailableError
from trafficdp.privacy.budget import BudgetChange, BudgetPolicy, ChangedFact, Promise
from trafficdp.privacy.loss import Loss, PureDP
from trafficdp.store import vault as store_vault
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.store.store_files import LOCK_NAME, Head, store_failures, store_lock
from trafficdp.store.vault_ledger import AnalystSpending

if TYPE_CHECKING:
    from trafficdp.config.settings import Config


@dataclass(frozen=True, slots=True)
class WindowSpending:
    """A ceiling of the present year or month ("in 2026"), and what the busiest vehicle has spent in it."""

    name: str
    ceiling: Loss
    largest_spent: Loss


@dataclass(frozen=True, slots=True, repr=False)
class Status:
    """What the store holds, for the curator. ``analysts`` are those that were ever charged.

    Its ``repr`` holds what any reader of the releases may know: no vehicle's count or loss.
    ``delta`` only where losses are rho: at which ``epsilon_spent`` is told.
    ``windows`` are the ceilings of the present year and month, where the budget has any.
    ``budget_changes``: how the store's promise was changed, in order.
    """

    store: Path
    records: int
    vehicles: int
    derived: int
    files: int
    data_version: str
    releases: int
    unfinished: int
    largest_spent: Loss
    sum_of_maxima: Loss
    budget: Loss
    analysts: tuple[AnalystSpending, ...] = ()
    windows: tuple[WindowSpending, ...] = ()
    delta: str | None = None
    epsilon_spent: PureDP | None = None
    budget_changes: tuple[BudgetChange, ...] = ()

    @property
    def quantity(self) -> str:
        """What losses count: epsilon or rho."""
        return self.budget.kind.quantity

    @property
    def epsilon_in_words(self) -> str | None:
        """The most that any vehicle has spent as (epsilon, delta) in words; None where losses are epsilon."""
        return None if self.delta is None else f"epsilon {self.epsilon_spent} at delta {self.delta}"

    def _facts(self) -> dict[str, str]:
        unfinished = f", {self.unfinished} unfinished" if self.unfinished else ""
        return {
            "store": self.store.name,
            "files": f"{self.files:,}",
            "releases": f"{self.releases:,}{unfinished}",
            "promised": f"all releases together, {self.quantity} {self.sum_of_maxima} a vehicle at most",
            "budget": f"{self.quantity} {self.budget} a vehicle",
        }

    def __repr__(self) -> str:
        return f"<{'; '.join(f'{name} {text}' for name, text in self._facts().items())}>"

    def _repr_html_(self) -> str:
        from trafficdp.export.notebook import card

        return card("What the store holds", [*self._facts().items()])


def read_status(config: Config, store: Path, *, wait: float) -> Status:
    """Return what ``store`` holds; the budget of ``config`` is shown in the present year and month.

    Raises StoreUnavailableError when there is none or, after ``wait`` seconds, while another holds it.
    """
    store_vault.database_in(store, must_exist=True)
    with store_lock(store, purpose="status", wait=wait), store_vault.Vault.open(store) as vault:
        vault_ledger.require_promise(vault, config.promise)
        return _status_of(vault, store, config.policy, datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """What a store promises (None: nothing yet), its changes, and where the configuration differs."""

    promised: Promise | None
    changes: tuple[BudgetChange, ...]
    configured_otherwise: tuple[ChangedFact, ...]


def read_budget(config: Config, store: Path, *, wait: float) -> BudgetStatus:
    """Return what ``store`` promises, whatever ``config`` says; raises as ``read_status``."""
    store_vault.database_in(store, must_exist=True)
    with store_lock(store, purpose="budget", wait=wait), store_vault.Vault.open(store) as vault:
        promised = vault_ledger.promise_in_force(vault) if vault_ledger.promises(vault) else None
        otherwise = () if promised is None else promised.changes_to(config.promise)
        return BudgetStatus(promised, vault_ledger.promise_changes(vault), otherwise)


def _status_of(vault: store_vault.Vault, store: Path, policy: BudgetPolicy, at: datetime) -> Status:
    version = vault_fixes.data_version(vault)
    counts = vault_fixes.count_fixes(vault, version.ingest_id)
    spent = vault_ledger.totals(vault)
    releases = vault_releases.all_releases(vault)
    loss = type(policy.total)
    return Status(
        store=store,
        records=counts.fixes,
        vehicles=counts.vehicles,
        derived=counts.derived,
        files=vault_fixes.number_of_files(vault),
        data_version=version.name,
        releases=len(releases),
        unfinished=sum(not each.finished for each in releases),
        largest_spent=loss(spent.largest),
        sum_of_maxima=loss(spent.sum_of_maxima),
        budget=policy.total,
        delta=policy.delta,
        epsilon_spent=policy.epsilon(loss(spent.largest)),
        budget_changes=vault_ledger.promise_changes(vault),
        analysts=tuple(vault_ledger.analyst_spending(vault)),
        windows=tuple(
            WindowSpending(window.name, window.ceiling, loss(vault_ledger.largest_spent_in(vault, window)))
            for window in policy.windows(at)
            if window.months
        ),
    )


def create_store(
    store: Path, key_file: Path, *, wait: float = DEFAULT_WAIT, only_if_missing: bool = False
) -> None:
    """Make an empty store, its key outside it (mode 0600) and the ledger's head beside the key.

    A key that is there already is taken: stores may share one. Raises UsageError when there is a store;
    with ``only_if_missing`` it is left alone. ``wait``: for the lock. A process that dies on the way leaves
    nothing that the next one for this store does not take or remove.
    """
    # it is slow to load, and only who makes a store needs it
    from trafficdp.ingest.vehicle_key import VehicleKey

    store_vault.database_in(store)
    with store_failures("making the store"):
        if only_if_missing and (store / store_vault.VAULT_NAME).exists():
            return
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        key_file.parent.mkdir(parents=True, exist_ok=True)
    with store_lock(store, purpose="init", wait=wait):
        if only_if_missing and (store / store_vault.VAULT_NAME).exists():
            return
        try:
            with store_failures("making the store"):
                store.chmod(0o700)
            _forget_unfinished(store, key_file)
            key = VehicleKey.load(key_file) if os.path.lexists(key_file) else VehicleKey.create(key_file)
            store_id = str(uuid.uuid4())
            head = Head(key_file, store_id)
            # the head before the vault's name: a store whose head is missing could not release
            store_vault.Vault.create(
                store, key_fingerprint=key.fingerprint, store_id=store_id, ready=lambda: head.write(None)
            )
        except BaseException:
            if not (store / store_vault.VAULT_NAME).exists():
                with suppress(OSError, StoreUnavailableError):
                    _forget_unfinished(store, key_file)
                    (store / LOCK_NAME).unlink()
            raise


def _forget_unfinished(store: Path, key_file: Path) -> None:
    """Remove the vaults that never got their name, each after the head that was written for it."""
    for store_id in store_vault.unfinished(store):
        Head(key_file, store_id).remove()
        store_vault.remove_unfinished(store, store_id)
