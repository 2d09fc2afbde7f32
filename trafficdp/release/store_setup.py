"""Where a store and its key lie, and making them."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from trafficdp._durable import DEFAULT_WAIT
from trafficdp.errors import StoreUnavailableError, UsageError
from trafficdp.store.store_files import LOCK_NAME, Head, store_failures, store_lock
from trafficdp.store.vault import VAULT_NAME, Vault, database_in, remove_unfinished, unfinished

if TYPE_CHECKING:
    from trafficdp.config.settings import Config


def store_path(config: Path, given: Path | None, configured: Path | None) -> Path:
    """Return the folder of the store: given, configured, or beside the configuration.

    Raises UsageError unless DuckDB can take its path: text that is UTF-8, without NUL.
    """
    store = given or configured or config.parent / "city.store"
    try:
        usable = b"\0" not in os.path.abspath(store).encode("utf-8")
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise UsageError(
            "the path of the store cannot be used",
            got=str(store),
            expected="letters in UTF-8",
            todo="rename it",
        )
    return store


def key_path(store: Path, configured: Path | None) -> Path:
    """Return where the key of a store lies; raise UsageError for a place inside the store."""
    path = configured or store.with_name(store.name + ".key")
    # realpath, unlike Path.resolve, takes a loop of links as it is
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(store)):
        raise UsageError(
            "the key must not lie in the store", got=str(path), todo="set key_file to another folder"
        )
    return path


def places_of(settings: Config, config: Path, given: Path | None) -> tuple[Path, Path]:
    """Return (folder of the store, its key file) of the configuration in ``config``; see ``store_path``."""
    folder = store_path(config, given, settings.store)
    return folder, key_path(folder, settings.key_file)


def create_store(store: Path, key_file: Path) -> None:
    """Make an empty store, its key outside it (mode 0600) and the ledger's head beside the key.

    A key that is there already is taken: stores may share one. Raises UsageError when there is a store.
    """
    make_store(store, key_file, wait=DEFAULT_WAIT, only_if_missing=False)


def make_store(store: Path, key_file: Path, *, wait: float, only_if_missing: bool) -> None:
    """The same; with ``only_if_missing`` a store that is there is left alone. ``wait``: for the lock.

    A process that dies on the way leaves nothing that the next one for this store does not take or remove.
    """
    # it is slow to load, and only who makes a store needs it
    from trafficdp.ingest.vehicle_key import VehicleKey

    database_in(store)
    with store_failures("making the store"):
        if only_if_missing and (store / VAULT_NAME).exists():
            return
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        key_file.parent.mkdir(parents=True, exist_ok=True)
    with store_lock(store, purpose="init", wait=wait):
        if only_if_missing and (store / VAULT_NAME).exists():
            return
        try:
            with store_failures("making the store"):
                store.chmod(0o700)
            _forget_unfinished(store, key_file)
            key = VehicleKey.load(key_file) if os.path.lexists(key_file) else VehicleKey.create(key_file)
            store_id = str(uuid.uuid4())
            head = Head.beside(key_file, store_id)
            # the head before the vault's name: a store whose head is missing could not release
            Vault.create(
                store, key_fingerprint=key.fingerprint, store_id=store_id, ready=lambda: head.write(None)
            )
        except BaseException:
            if not (store / VAULT_NAME).exists():
                with suppress(OSError, StoreUnavailableError):
                    _forget_unfinished(store, key_file)
                    (store / LOCK_NAME).unlink()
            raise


def _forget_unfinished(store: Path, key_file: Path) -> None:
    """Remove the vaults that never got their name, each after the head that was written for it."""
    for store_id in unfinished(store):
        Head.beside(key_file, store_id).remove()
        remove_unfinished(store, store_id)
