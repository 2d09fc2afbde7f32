"""Putting committed releases where people take them. Idempotent: run it again and nothing changes.

A folder `releases/ID` appears in one rename, complete or not at all; `released.duckdb` is swapped whole.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from trafficdp.errors import StoreDamagedError, VerificationError
from trafficdp.export.columns import FileFacts
from trafficdp.export.disclosure import disclosed
from trafficdp.export.write import MANIFEST, write_release
from trafficdp.privacy.release import Release
from trafficdp.store.failures import store_failures
from trafficdp.store.released import build

RELEASES = "releases"


def place_files(store: Path, release: Release) -> Mapping[str, FileFacts]:
    """Write the files of ``release`` to `releases/ID` and return their facts.

    A complete folder from an earlier, interrupted run holds the same bytes and is replaced by them.
    """
    target = store / RELEASES / release.id
    half_made = store / RELEASES / f".{release.id}.new"
    with store_failures("writing the files of the release"):
        half_made.parent.mkdir(exist_ok=True)
        shutil.rmtree(half_made, ignore_errors=True)
        half_made.mkdir()
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
        _sync(target.parent)
    return facts


def remove_files(store: Path, release_id: str) -> None:
    """Take the folder of a withdrawn release away, in one rename first."""
    target = store / RELEASES / release_id
    outdated = store / RELEASES / f".{release_id}.old"
    with store_failures("removing the files of the release"):
        if target.exists():
            shutil.rmtree(outdated, ignore_errors=True)
            os.replace(target, outdated)
        shutil.rmtree(outdated, ignore_errors=True)


def rebuild_released(store: Path, releases: Sequence[tuple[Release, bool]]) -> None:
    """Swap in a `released.duckdb` that holds exactly these (release, withdrawn)."""
    build(store, [(release, epsilon_of(release), withdrawn) for release, withdrawn in releases])


def epsilon_of(release: Release) -> Decimal:
    """Return the loss that the release discloses."""
    return Decimal(str(disclosed(release, "guarantee", "epsilon")))


def manifests(store: Path) -> dict[str, dict[str, object]]:
    """Return the manifests of the store by release; raise StoreDamagedError for one that is not JSON."""
    found: dict[str, dict[str, object]] = {}
    folder = store / RELEASES
    paths = sorted(folder.glob(f"[!.]*/{MANIFEST}")) if folder.is_dir() else []
    for path in paths:
        try:
            found[path.parent.name] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreDamagedError(
                "a manifest cannot be read", got=str(path), todo="restore the file from what was published"
            ) from error
    return found


def ledger_reference(manifest: Mapping[str, object]) -> tuple[int, str]:
    """Return (sequence, head hash) of a manifest; raise VerificationError when it states none."""
    accounting = manifest.get("accounting")
    if isinstance(accounting, Mapping):
        sequence, head_hash = accounting.get("ledger_sequence"), accounting.get("head_hash")
        if isinstance(sequence, int) and isinstance(head_hash, str):
            return sequence, head_hash
    raise VerificationError("a manifest does not say where in the ledger it stands")


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
