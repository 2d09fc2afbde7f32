"""What both verifications look at first: the ledger, and the files of what was published."""

from __future__ import annotations

import json
from typing import Any

from trafficdp._durable import read_regular
from trafficdp.export.write import MANIFEST
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of
from trafficdp.release.recomputation import digests_of
from trafficdp.store import vault_ledger


class Examined:
    """What ``release_id`` published under the charge number ``sequence`` of the ledger."""

    def __init__(self, curator: Curator, release_id: str, sequence: int) -> None:
        self._curator = curator
        # absolute: pandas takes a relative name with a colon for an address
        self._folder = folder_of(curator.store, release_id).absolute()
        self._ledger = vault_ledger.rows(curator.vault)
        self._sequence = sequence

    @property
    def _charge(self) -> LedgerRow:
        """The ledger's entry; a ledger too short is a finding like any other."""
        return self._ledger[self._sequence - 1]

    def _not_behind(self) -> str | None:
        self._curator.check_not_behind(whole=True)
        return None

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(read_regular(self._folder / MANIFEST).decode("utf-8"))
        return manifest

    def _listed_files(self) -> dict[str, str]:
        """Every file that the manifest lists, with its SHA-256."""
        return {entry["name"]: entry["sha256"] for entry in self._manifest()["files"]}

    def _found_files(self) -> dict[str, str]:
        """Every file in the folder, with its SHA-256."""
        return digests_of(self._folder)
