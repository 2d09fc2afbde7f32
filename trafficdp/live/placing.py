"""Putting a stream's newest committed publication where people take it. Idempotent, each file in one move."""

from __future__ import annotations

from pathlib import Path

from trafficdp._durable import make_folder, sync_folder
from trafficdp.errors import StoreDamagedError, UsageError
from trafficdp.export.write import write_live
from trafficdp.privacy.release import Release
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of, manifests, publication_number, published
from trafficdp.store import released, vault_releases
from trafficdp.store.statements import store_failures


def placed(store: Path, release_id: str) -> int:
    """Return the number of the publication whose files are in place, 0 when there are none.

    The manifest is written last of all, so what it names is there. Raises StoreDamagedError for a manifest
    that names none.
    """
    manifest = manifests(store).get(release_id)
    if manifest is None:
        return 0
    number = publication_number(manifest)
    if number is None:
        raise StoreDamagedError(
            "a manifest of a stream does not say which publication it is",
            got=str(folder_of(store, release_id)),
            todo="move the folder away; the next command writes it again",
        )
    return number


def place_newest(curator: Curator, release_id: str, before: int, every_seconds: int) -> int:
    """Add the publications after ``before`` to `released.duckdb` and renew the files; return the newest.

    What a process that died was writing is removed.
    """
    folder = folder_of(curator.store, release_id)
    with store_failures("tidying the files of the stream"):
        for leftover in folder.glob(".*.partial") if folder.is_dir() else ():
            leftover.unlink(missing_ok=True)
    newest = vault_releases.newest_publication(curator.vault, release_id)
    if newest == before:
        return newest
    missing = [published(each) for each in vault_releases.publications(curator.vault, release_id, before)]
    if not released.append(curator.store, missing):
        # it is not there, or does not hold just the ones before: all of it is written anew
        curator.tidy()
    with store_failures("writing the files of the stream"):
        make_folder(folder.parent)
        make_folder(folder)
        sync_folder(folder.parent)
        sync_folder(curator.store)
    write_live(missing[-1].release, folder, every_seconds)
    return newest


def newest_release(curator: Curator, release_id: str) -> Release:
    """Return the newest committed publication of a stream; raise UsageError when there is none."""
    name = vault_releases.stream_named(curator.vault, release_id).release_id
    number = vault_releases.newest_publication(curator.vault, name)
    if not number:
        raise UsageError("nothing was published of this stream yet", got=release_id)
    (stored,) = vault_releases.publications(curator.vault, release_id, number - 1)
    return published(stored).release
