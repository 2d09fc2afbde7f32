"""A vehicle leaves the vault, because its owner asks for it: whole, or not at all, wherever the command dies.

Its records and what it contributes go, out of the file and not only out of the tables. Forgetting is an act
that is done alike whether the vault knows the vehicle or not: the vault is written anew, all data gets new
names, so that nothing planned before can be drawn, and the ledger says how many identifiers were named, not
which and not how many were known. ``verify`` says of older releases why their losses cannot be recomputed.
What was published stays: the guarantee holds for a vehicle in it as before.

Where counts are public every vehicle has an account of its own. One that was charged keeps the keyed hash of
its identifier beside its charges, and nothing else: without it the same vehicle would come back with a new
account, and lose its budget a second time. So the hash is kept for that vehicle's sake, as an objector's name
is kept on a list of whom not to write to. It leads to a vehicle only for who has both an identifier and the
key: destroying the key erases it. Where nothing is public there is one account for all, and no hash stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from trafficdp.errors import UsageError
from trafficdp.ingest.vehicle_key import VehicleKey, normalise
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.release import curator
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.store.lock import store_lock
from trafficdp.store.store_files import Head
from trafficdp.store.vault import Vault, require_vault, rewritten

KIND = "forgetting"
"""What the ledger calls it."""
BOUNDARIES = ("vault rewritten", "vault swapped", "forgetting remembered")
"""The named instants between its steps, in order."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What the vault knew of the ``identifiers`` that were named. For the curator's eyes.

    ``vehicles`` are those that it knew, ``unknown`` the identifiers that lead to none.
    """

    identifiers: int
    vehicles: int
    unknown: int


def forget(
    store: Path,
    key_file: Path,
    identifiers: Sequence[str],
    namespaces: Iterable[str],
    at: datetime,
    *,
    wait: float,
) -> Forgotten:
    """Forget the vehicles of ``identifiers``, spelt as any feed would, in every one of ``namespaces``.

    Those of all files that were ever read are looked at besides. Raises UsageError when there is no
    identifier, when nothing was ever read and when a stream is running, StoreKeyError for another store's
    key, StoreBehindError for a vault from a backup.
    """
    wanted = normalise(identifiers).drop_null().unique()
    if not len(wanted):
        raise UsageError("no vehicle is named", expected="identifiers, one a line", todo="give at least one")
    key = VehicleKey.load(key_file)
    require_vault(store)
    with store_lock(store, purpose="forget", wait=wait):
        with Vault.open(store) as vault:
            vault.check_key(key.fingerprint)
            door = curator.Curator(store, vault, Head.beside(key_file, vault.store_id))
            door.recover()
            door.check_not_behind()
            _require_something_read(vault)
            _require_no_running_stream(vault)
            spaces = sorted({*namespaces, *vault_fixes.namespaces(vault)})
            known = [_numbers_of(vault, key, name, spaces) for name in wanted.to_pylist()]
            vehicles = sorted({number for numbers in known for number in numbers})
        with rewritten(store, vehicles, lambda: curator.reached(BOUNDARIES[0])) as copy:
            vault_fixes.rename_versions(copy)
            facts = {"kind": KIND, "identifiers": len(wanted), "at": at.isoformat()}
            vault_ledger.add_entry(copy, facts)
        curator.reached(BOUNDARIES[1])
        with Vault.open(store) as vault:
            Head.beside(key_file, vault.store_id).write(vault_ledger.last(vault))
        curator.reached(BOUNDARIES[2])
    return Forgotten(len(wanted), len(vehicles), sum(not numbers for numbers in known))


def forgotten_since(ledger: Iterable[LedgerRow], sequence: int) -> str | None:
    """Return what to say of a charge at ``sequence`` whose data is no longer what it was; None: no word."""
    entries = [row.sequence for row in ledger if row.sequence > sequence and row.facts["kind"] == KIND]
    if not entries:
        return None
    return (
        f"vehicles were forgotten since (entry {entries[0]} of the ledger), known ones or not: what was lost "
        "before can no longer be recomputed"
    )


def _numbers_of(vault: Vault, key: VehicleKey, identifier: str, namespaces: Iterable[str]) -> list[int]:
    pseudonyms = pa.concat_arrays([key.pseudonyms([identifier], each) for each in namespaces])
    return vault_fixes.numbers_of(vault, pseudonyms)


def _require_something_read(vault: Vault) -> None:
    if vault_fixes.data_version(vault).ingest_id == 0 and vault_ledger.last(vault) is None:
        raise UsageError("the store is empty", expected="one that has read a file or begun a stream")


def _require_no_running_stream(vault: Vault) -> None:
    running = vault_releases.has_streams(vault) and [
        each.release_id for each in vault_releases.all_streams(vault) if not each.ended
    ]
    if running:
        raise UsageError(
            "a stream is running, whose sums no vehicle can be taken out of",
            got=", ".join(running),
            todo="end the stream, then forget",
        )
