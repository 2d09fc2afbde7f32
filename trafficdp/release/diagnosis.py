"""Is a store whole, and what is to be restored if not? Everything is looked at and nothing is changed.

A fault in one place does not keep the others from being looked at. What is said names files, tables and
entries of the ledger, never a record.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from trafficdp.errors import StoreDamagedError, StoreUnavailableError, TrafficdpError
from trafficdp.export.write import MANIFEST
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.privacy.budget import BudgetChange
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.release import publication
from trafficdp.release.curator import Curator
from trafficdp.release.planning import SavedPlan
from trafficdp.release.recomputation import UNREADABLE, differing_files
from trafficdp.store import store_files, vault_ledger, vault_releases
from trafficdp.store import vault as store_vault
from trafficdp.store.released import differing_release, publications_match
from trafficdp.store.store_files import DOCTOR, RELEASED_NAME, Head, require_head, store_failures, store_lock

BACKUP = "restore the newest complete backup of the store"
FILES = "restore the files from what was published"
REBUILT = "restore it from what was published; the next release, too, writes it anew"


class State(StrEnum):
    """How one part of a store was found."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    UNKNOWN = "unknown"
    """It cannot be told before something else is restored."""
    NOTE = "note"
    """Nothing is wrong; the next command tidies it up, or the curator may want to know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One part of a store: what it is, its state, what was found and what is to be done."""

    what: str
    state: State
    found: str = ""
    todo: str = ""


Looks = Iterator[tuple[str, Callable[[], str | None], str]]
"""What is looked at, the look (it returns what is wrong, or None), and what to do then."""


def examine(store: Path, key_file: Path, *, wait: float) -> list[Finding]:
    """Check every part of a store and return what was found. Nothing is written, not even to the lock.

    Raises StoreUnavailableError when there is no such folder and, after ``wait`` seconds, while another
    process holds the store.
    """
    if not store.is_dir():
        raise StoreUnavailableError(
            "there is no store here", got=str(store), todo="run `trafficdp init` or pass --store"
        )
    with store_lock(store, purpose=None, wait=wait), ExitStack() as opened:
        examination = _Examination(store, key_file, opened)
        findings = [_finding(*look) for look in examination.looks()]
        return findings + examination.notes()


def _finding(what: str, look: Callable[[], str | None], todo: str) -> Finding:
    try:
        with store_failures("reading it"):
            wrong = look()
    except TrafficdpError as error:
        wrong = error.what if error.got is None else f"{error.what} (got {error.got})"
        # an advice to ask the doctor is none here
        advice = (error.todo or todo).removesuffix(DOCTOR).rstrip("; ")
        todo = advice or todo
    except UNREADABLE as error:
        wrong = f"it cannot be read ({type(error).__name__})"
    if wrong is None:
        return Finding(what, State.WHOLE)
    return Finding(what, State.UNKNOWN if wrong == _CLOSED else State.DAMAGED, wrong, todo)


_CLOSED = "the vault does not open"


class _Examination:
    """One store under examination; ``vault`` and ``ledger`` are None unless they can be read."""

    def __init__(self, store: Path, key_file: Path, opened: ExitStack) -> None:
        self._store, self._key_file, self._opened = store, key_file, opened
        self._vault: store_vault.Vault | None = None
        self._ledger: list[LedgerRow] | None = None

    def looks(self) -> Looks:
        """Yield (name of a part, function that checks it, what to do if it fails), in order."""
        yield "permissions", self._permissions, "take the rights of others away with chmod"
        yield store_vault.VAULT_NAME, self._open, BACKUP
        yield "the key", self._key, "put back the key that the store was made with"
        if self._vault is not None:
            for table in self._tables():
                yield f"table {table}", partial(self._table, table), BACKUP
        looks: tuple[tuple[str, Callable[[store_vault.Vault], str | None], str], ...] = (
            ("the vault's audits", lambda vault: store_vault.audit(vault), BACKUP),
            ("the ledger", self._chain, BACKUP),
            ("the vehicles' accounts", lambda vault: vault_ledger.check_accounts(vault, self._rows), BACKUP),
            ("the ledger's head", self._remembered, BACKUP),
            ("the releases in the vault", self._committed, BACKUP),
            ("the files of the releases", self._files, FILES),
            (RELEASED_NAME, self._released, REBUILT),
        )
        for what, look, todo in looks:
            yield what, partial(self._with_vault, look), todo
        for name in store_files.plan_names(self._store):
            yield f"the saved plan {name}", partial(self._plan, name), "plan and save it again"

    def notes(self) -> list[Finding]:
        """Return findings that are no faults: leftovers, unfinished releases, heads of other stores."""
        found = []
        left = [
            *self._store.glob(".*.new*"),
            *self._store.glob(f"{store_files.FOLDER}/.*"),
            *self._store.glob(f"{publication.RELEASES}/.*"),
            *self._store.glob(f"{publication.RELEASES}/*/.*"),
            *self._store.glob(f"{store_vault.VAULT_NAME}.tmp"),
            *self._key_file.parent.glob(f"{self._key_file.name}.*.head.new"),
        ]
        if left:
            names = ", ".join(sorted(path.name for path in left))
            found.append(Finding("leftovers", State.NOTE, names, "the next command that writes removes them"))
        for change in self._changes():
            found.append(
                Finding("the budget was changed", State.NOTE, change.in_words, "every later release shows it")
            )
        own = None if self._vault is None else self._vault.store_id
        heads = [
            path.name
            for path in sorted(self._key_file.parent.glob(f"{self._key_file.name}.*.head"))
            if own is not None and path != Head(self._key_file, own).path
        ]
        if heads:
            found.append(
                Finding(
                    "other heads beside the key",
                    State.NOTE,
                    ", ".join(heads),
                    "keep each that another store with this key has; one of no store may be deleted",
                )
            )
        return found

    def _changes(self) -> tuple[BudgetChange, ...]:
        # what is wrong with the ledger is a finding of its own
        with suppress(TrafficdpError, *UNREADABLE), store_failures("reading it"):
            return () if self._vault is None else vault_ledger.promise_changes(self._vault)
        return ()

    @property
    def _rows(self) -> list[LedgerRow]:
        if self._ledger is None:
            raise StoreDamagedError("the ledger cannot be read")
        return self._ledger

    def _with_vault(self, look: Callable[[store_vault.Vault], str | None]) -> str | None:
        return _CLOSED if self._vault is None else look(self._vault)

    def _permissions(self) -> str | None:
        folders = (self._store, self._store / publication.RELEASES, self._store / store_files.FOLDER)
        files = (
            self._store / store_vault.VAULT_NAME,
            self._store / f"{store_vault.VAULT_NAME}.wal",
            self._key_file,
        )
        open_to_others = [
            path.name
            for path in (*folders, *files)
            if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077
        ]
        return f"open to other users: {', '.join(open_to_others)}" if open_to_others else None

    def _open(self) -> None:
        self._vault = self._opened.enter_context(store_vault.open_vault_for_reading(self._store))

    def _key(self) -> str | None:
        key = VehicleKey.load(self._key_file)
        if self._vault is None:
            return _CLOSED
        self._vault.check_key(key.fingerprint)
        return None

    def _tables(self) -> list[str]:
        with suppress(TrafficdpError), store_failures("reading it"):
            return [] if self._vault is None else store_vault.tables(self._vault.connection)
        return []

    def _table(self, table: str) -> None:
        if self._vault is not None:
            store_vault.read_all_values(self._vault.connection, table)

    def _head(self, vault: store_vault.Vault) -> Head:
        return Head(self._key_file, vault.store_id)

    def _remembered(self, vault: store_vault.Vault) -> None:
        self._head(vault).verify(self._rows)

    def _chain(self, vault: store_vault.Vault) -> None:
        self._ledger = vault_ledger.ledger_rows(vault)
        vault_ledger.promise_changes(vault)

    def _committed(self, vault: store_vault.Vault) -> None:
        curator = Curator(self._store, vault, self._head(vault))
        for stored in vault_releases.all_releases(vault):
            if stored.drawn:
                curator.load(stored.release_id)
        entries = {row.sequence: row for row in self._rows}
        for stream in vault_releases.all_streams(vault):
            for each in vault_releases.publications(vault, stream.release_id):
                entry = entries.get(each.sequence)
                if entry is None or entry.facts.get("values_sha256") != each.values_sha256:
                    raise StoreDamagedError(
                        "a publication is not the one in the ledger", got=f"{each.release_id}, {each.number}"
                    )

    def _files(self, vault: store_vault.Vault) -> str | None:
        """Batches by the digests in the ledger, streams by those that their manifest lists."""
        expected: dict[str, dict[str, str]] = {}
        for facts in (row.facts for row in self._rows):
            name, files = str(facts.get("release")), facts.get("files")
            if facts.get("kind") == "withdrawal":
                expected.pop(name, None)
            elif facts.get("kind") == "publication" and isinstance(files, dict):
                expected[name] = files
        known = {each.release_id for each in vault_releases.all_releases(vault)}
        streams = {each.release_id for each in vault_releases.all_streams(vault)}
        folder = self._store / publication.RELEASES
        there = {path.name for path in folder.glob("[!.]*")} if folder.is_dir() else set()
        wrong = [f"{name} is of no release in the vault" for name in sorted(there - known - streams)]
        for name, files in sorted(expected.items()):
            differences = differing_files(publication.folder_of(self._store, name), files)
            wrong += [f"{name}: {differences}"] if differences else []
        for name, manifest in publication.manifests(self._store).items():
            require_head(
                self._rows, *publication.ledger_reference(manifest), f"the manifest of release {name}"
            )
            if name in streams:
                listed = _listed(manifest)
                differences = differing_files(publication.folder_of(self._store, name), listed, unlisted="*")
                wrong += [f"{name}: {differences}"] if differences else []
        return "; ".join(wrong) or None

    def _released(self, vault: store_vault.Vault) -> str | None:
        curator = Curator(self._store, vault, self._head(vault))
        releases = [each for each in vault_releases.all_releases(vault) if each.published]
        streams = {
            each.release_id: vault_releases.publications(vault, each.release_id)
            for each in vault_releases.all_streams(vault)
        }
        path = self._store / RELEASED_NAME
        if not path.exists():
            return "it is missing" if releases or any(streams.values()) else None
        with store_failures("reading it", RELEASED_NAME), store_vault.open_for_reading(path) as connection:
            for table in store_vault.tables(connection):
                store_vault.read_all_values(connection, table)
        loaded = (curator.load(each.release_id) for each in releases if not each.withdrawn)
        other = differing_release(self._store, loaded)
        if other is not None:
            return f"other rows of {other} than were released"
        for name, publications in streams.items():
            if publications and not publications_match(
                self._store, [publication.to_released_publication(each) for each in publications]
            ):
                return f"other rows of {name} than were published"
        return None

    def _plan(self, name: str) -> None:
        # its digest is checked on the way
        SavedPlan.from_json(store_files.read_plan(self._store, name))


def _listed(manifest: dict[str, object]) -> dict[str, str]:
    files = manifest.get("files")
    if not isinstance(files, list):
        raise StoreDamagedError(f"a {MANIFEST} lists no files", todo=FILES)
    return {str(each["name"]): str(each["sha256"]) for each in files}
