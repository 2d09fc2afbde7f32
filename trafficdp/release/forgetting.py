"""A vehicle leaves the vault, because its owner asks for it: whole, or not at all, wherever the command dies.

Its records, what it contributes and its pseudonym go, out of the file and not only out of the tables. The
ledger says that vehicles were forgotten, not which, and their charges stay spent under a number that no
identifier leads to. The data that they were in gets new names, so that nothing planned on it before can be
drawn, and ``verify`` says of older releases why their losses cannot be recomputed. What was published stays:
the guarantee holds for a vehicle in it as before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from trafficdp.errors import UsageError
from trafficdp.ingest.vehicle_key import VehicleKey, normalise
from trafficdp.noise.token import new_token
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.release import curator
from trafficdp.store import vault_fixes, vault_ledger, vault_stream
from trafficdp.store.head import Head
from trafficdp.store.lock import store_lock
from trafficdp.store.vault import Vault, require_vault, rewritten

KIND = "forgetting"
"""What the ledger calls it."""
BOUNDARIES = ("vault rewritten", "vault swapped", "forgetting remembered")
"""The named instants between its steps, in order."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many vehicles left the vault, and how many identifiers it knew nothing of."""

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

    Those of the files in the vault are looked at besides. Raises UsageError when there is no identifier or a
    stream is running, StoreKeyError for another store's key, StoreBehindError for a vault from a backup.
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
            _require_no_running_stream(vault)
            spaces = sorted({*namespaces, *_namespaces_of(vault)})
            known = [_numbers_of(vault, key, name, spaces) for name in wanted.to_pylist()]
            vehicles = sorted({number for numbers in known for number in numbers})
            found = Forgotten(len(vehicles), sum(not numbers for numbers in known))
            if not vehicles:
                return found
            first_ingest = vault_fixes.first_ingest_of(vault, vehicles)
        with rewritten(store, vehicles, new_token, lambda: curator.reached(BOUNDARIES[0])) as copy:
            if first_ingest is not None:
                vault_fixes.rename_versions(copy, first_ingest)
            facts = {"kind": KIND, "vehicles": len(vehicles), "at": at.isoformat()}
            vault_ledger.add_entry(copy, facts)
        curator.reached(BOUNDARIES[1])
        with Vault.open(store) as vault:
            Head.beside(key_file, vault.store_id).write(vault_ledger.last(vault))
        curator.reached(BOUNDARIES[2])
    return found


def forgotten_since(ledger: Iterable[LedgerRow], sequence: int) -> str | None:
    """Return what to say of a charge at ``sequence`` whose data is no longer what it was; None: no word."""
    entries = [row.sequence for row in ledger if row.sequence > sequence and row.facts["kind"] == KIND]
    if not entries:
        return None
    return (
        f"vehicles were forgotten since (entry {entries[0]} of the ledger): what they and others lost then "
        "cannot be recomputed from the records that are left"
    )


def _numbers_of(vault: Vault, key: VehicleKey, identifier: str, namespaces: Iterable[str]) -> list[int]:
    pseudonyms = pa.concat_arrays([key.pseudonyms([identifier], each) for each in namespaces])
    return vault_fixes.numbers_of(vault, pseudonyms)


def _namespaces_of(vault: Vault) -> set[str]:
    """Those that the files in the vault were read under."""
    newest = vault_fixes.data_version(vault).ingest_id
    facts = [json.loads(text) for _, text in vault_fixes.declarations(vault, newest)]
    return {str(each.get("namespace", "")) for each in facts}


def _require_no_running_stream(vault: Vault) -> None:
    running = vault_stream.has_streams(vault) and [
        each.release_id for each in vault_stream.all_streams(vault) if not each.ended
    ]
    if running:
        raise UsageError(
            "a stream is running, whose sums no vehicle can be taken out of",
            got=", ".join(running),
            todo="end the stream, then forget",
        )
