"""What both verifications look at first: the ledger, and the files of what was published."""

from __future__ import annotations

import json
from typing import Any

from trafficdp._durable import read_regular
from trafficdp.export.write import MANIFEST
from trafficdp.model import as_json
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.loss import decimal_text
from trafficdp.privacy.promise import KIND, Promise, changes_in
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

    @property
    def _changed(self) -> str:
        """Every change of the store's promise so far, for the name of the check; "" without one."""
        found = [each.in_words for each in changes_in(self._promises)]
        return f" (changed {'; changed '.join(found)})" if found else ""

    @property
    def _promises(self) -> list[LedgerRow]:
        return [row for row in self._ledger if row.facts["kind"] == KIND]

    def _budget_stated(self) -> str | None:
        """Compare ceiling and changes that the manifest states with those in force at the charge."""
        before = [row for row in self._promises if row.sequence < self._sequence]
        if not before:
            return "the ledger promises nothing before the charge"
        stated = self._manifest()["accounting"]
        ceiling = decimal_text(Promise.from_facts(before[-1].facts).policy.total.pico)
        if stated["budget_per_vehicle"] != ceiling:
            return f"{stated['budget_per_vehicle']} is stated, {ceiling} was promised"
        told = [as_json(each) for each in changes_in(before)]
        return None if stated.get("budget_changes", []) == told else "other changes of the budget"

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads(read_regular(self._folder / MANIFEST).decode("utf-8"))
        return manifest

    def _listed_files(self) -> dict[str, str]:
        """Every file that the manifest lists, with its SHA-256."""
        return {entry["name"]: entry["sha256"] for entry in self._manifest()["files"]}

    def _found_files(self) -> dict[str, str]:
        """Every file in the folder, with its SHA-256."""
        return digests_of(self._folder)
