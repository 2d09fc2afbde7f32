"""Putting committed releases where people take them. Idempotent: run it again and nothing changes.

A folder `releases/ID` appears in one rename, complete or not at all; `released.duckdb` is swapped whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

from trafficdp._durable import MACHINE, from_os_error, make_folder, read_regular, sync_folder
from trafficdp.errors import StoreDamagedError, VerificationError
from trafficdp.export.files.catalogue import FileFacts
from trafficdp.export.write import MANIFEST, write_release
from trafficdp.privacy.release import Release, decode
from trafficdp.store import released, vault_releases
from trafficdp.store.store_files import store_failures
from trafficdp.store.vault import Vault

RELEASES = "releases"


def place_files(store: Path, release: Release) -> Mapping[str, FileFacts]:
    """Write the files of ``release`` to the folder `releases/ID` of ``store`` and return their facts.

    A complete folder from an earlier, interrupted run holds the same bytes and is replaced by them.
    """
    target = folder_of(store, release.id)
    half_made = store / RELEASES / f".{release.id}.new"
    with store_failures("writing the files of the release"):
        make_folder(half_made.parent)
        shutil.rmtree(half_made, ignore_errors=True)
        make_folder(half_made)
        try:
            facts = write_release(release, half_made)
        except BaseException:
            shutil.rmtree(half_made, ignore_errors=True)
            raise
        outdated = store / RELEASES / f".{release.id}.old"
        shutil.rmtree(outdated, ignore_errors=True)
        if target.exists():
            os.replace(target, outdated)
        os.replace(half_made, target)
        shutil.rmtree(outdated, ignore_errors=True)
        sync_folder(target.parent)
        sync_folder(store)
    return facts


def folder_of(store: Path, release_id: str) -> Path:
    """Return the folder of a release's published files, which may not exist yet."""
    return store / RELEASES / release_id


def remove_files(store: Path, release_id: str) -> None:
    """Remove the folder of a withdrawn release: one rename first, then its files.

    Raises a StoreUnavailableError when files remain.
    """
    target = folder_of(store, release_id)
    outdated = store / RELEASES / f".{release_id}.old"
    with store_failures("removing the files of the release"):
        if target.exists():
            shutil.rmtree(outdated, ignore_errors=True)
            os.replace(target, outdated)
            sync_folder(target.parent)
        if outdated.exists():
            shutil.rmtree(outdated)


def update_released(store: Path, vault: Vault, added: Release | None = None) -> None:
    """Replace `released.duckdb` by one with exactly the finished releases and publications of the vault.

    ``added`` is the release that was just finished: where only that is new, it is added to a copy.
    """
    stored_releases = vault_releases.all_releases(vault)
    if added is not None:
        before = {
            each.release_id: each.withdrawn
            for each in stored_releases
            if each.drawn and each.finished and each.release_id != added.id
        }
        if released.append_release(store, added, before):
            return
    rows = []
    for stored in stored_releases:
        values = vault_releases.values_of(vault, stored.release_id) if stored.finished else None
        if values is not None:
            release = decode(json.loads(values[0]), values[1])
            rows.append((release, stored.withdrawn))
    publications = [
        to_released_publication(publication)
        for stream in vault_releases.all_streams(vault)
        for publication in vault_releases.publications(vault, stream.release_id)
    ]
    released.build_released(store, rows, publications)


def to_released_publication(stored: vault_releases.StoredPublication) -> released.Publication:
    """Return a committed publication of a stream in the form that `released.duckdb` is built from."""
    release = decode(json.loads(stored.facts), stored.bins)
    stream = release.disclosure.noise.stream
    if stream is None:
        raise StoreDamagedError("a publication of a stream does not say so", got=release.id)
    return released.Publication(stored.number, datetime.fromisoformat(stream.as_of), stored.sequence, release)


def publication_number(manifest: Mapping[str, object]) -> int | None:
    """Return the number of a stream's publication that ``manifest`` states; None where it states none."""
    noise = manifest.get("noise")
    stream = noise.get("stream") if isinstance(noise, Mapping) else None
    number = stream.get("publication") if isinstance(stream, Mapping) else None
    return number if isinstance(number, int) else None


def manifests(store: Path, excluded: Collection[str] = ()) -> dict[str, dict[str, object]]:
    """Return the manifests of published releases by name, without those named in ``excluded``.

    Raises StoreDamagedError for one that cannot be read or is not JSON.
    """
    found: dict[str, dict[str, object]] = {}
    folder = store / RELEASES
    with store_failures("looking for releases"):
        there = os.listdir(folder) if folder.is_dir() else []
    for name in sorted({*there}.difference(excluded)):
        path = folder / name / MANIFEST
        if name.startswith(".") or not path.exists():
            continue
        try:
            manifest = json.loads(read_regular(path).decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, OSError) and error.errno in MACHINE:
                raise from_os_error(error, "reading a manifest") from error
            raise _unreadable(path) from error
        if not isinstance(manifest, dict):
            raise _unreadable(path)
        found[name] = manifest
    return found


def _unreadable(path: Path) -> StoreDamagedError:
    return StoreDamagedError(
        "a manifest cannot be read", got=str(path), todo="restore the file from what was published"
    )


def ledger_reference(manifest: Mapping[str, object]) -> tuple[int, str]:
    """Return (sequence, head hash) of the ledger entry that ``manifest`` states.

    Raises VerificationError when it states none.
    """
    accounting = manifest.get("accounting")
    if isinstance(accounting, Mapping):
        sequence, head_hash = accounting.get("ledger_sequence"), accounting.get("head_hash")
        if type(sequence) is int and isinstance(head_hash, str):
            return sequence, head_hash
    raise VerificationError("a manifest does not say where in the ledger it stands")
