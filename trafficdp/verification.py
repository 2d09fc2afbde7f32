"""Does a release stand? Recomputed from the vault's counts and the published files, trusting neither.

The loss of every vehicle is computed anew from the fixes and the recipe *in the published files* (the
columns of cells.parquet and the manifest's ``recipe``), never from what the manifest claims it to be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from trafficdp.curator import Curator
from trafficdp.engine.duckdb_reduce import reduce_fixes
from trafficdp.errors import TrafficdpError, VerificationError
from trafficdp.export.guarantee import loss_text
from trafficdp.export.manifest import validate_manifest
from trafficdp.export.write import MANIFEST
from trafficdp.model.statistic import Statistic
from trafficdp.planner.order import Order
from trafficdp.planner.recipe_kinds import recipe_from_published
from trafficdp.planner.zcdp_recipe import ZCDPRecipe
from trafficdp.privacy.ledger import LedgerRow, accounts_hash
from trafficdp.privacy.loss import decimal_text
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.recipe_column import RECIPE_COLUMNS
from trafficdp.publication import epsilon_of, folder_of
from trafficdp.sensitive.contributions import Contributions
from trafficdp.store import vault_ledger, vault_releases
from trafficdp.store.released import released_matches
from trafficdp.store.vault_fixes import recomputed_digest, version_digest

_UNREADABLE = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    pa.ArrowException,
)
"""What reading a file raises that may hold anything at all."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked: what, whether it holds, and what was found when it does not."""

    name: str
    passed: bool
    found: str


def verify(curator: Curator, release_id: str) -> list[Check]:
    """Return every check of a release. Raises UsageError when there is no such published release."""
    stored = vault_releases.release_named(curator.vault, release_id)
    if stored.withdrawn or not stored.published:
        raise VerificationError(
            "only a published release can be verified",
            got=f"{release_id}, {'withdrawn' if stored.withdrawn else 'unfinished'}",
        )
    subject = _Subject(curator, stored)
    return [run_check(name, check) for name, check in subject.checks()]


def run_check(name: str, check: Callable[[], str | None]) -> Check:
    """Return what ``check`` found: it returns what is wrong, or None. Errors are findings too."""
    try:
        wrong = check()
    except TrafficdpError as error:
        wrong = str(error)
    except _UNREADABLE as error:
        # a tampered file may be anything at all
        wrong = f"the file cannot be read ({type(error).__name__})"
    return Check(name, wrong is None, wrong or "")


class _Subject:
    """One release under examination."""

    def __init__(self, curator: Curator, stored: vault_releases.StoredRelease) -> None:
        self._curator = curator
        self._stored = stored
        # absolute: pandas takes a relative name with a colon for an address
        self._folder = folder_of(curator.store, stored.release_id).absolute()
        self._order = Order.from_json(stored.allocation)
        self._ledger = vault_ledger.rows(curator.vault)
        self._recomputed: Contributions | None = None

    def checks(self) -> Iterator[tuple[str, Callable[[], str | None]]]:
        """Yield names and checks, in an order that a reader can follow."""
        yield "the ledger is not behind its head or any manifest", self._not_behind
        yield "the ledger's charge is the order that was executed", self._order_is_charged
        yield "the vehicles' accounts are those of the charge", self._accounts
        yield "the data is the version that was charged", self._data_version
        yield "the manifest is complete and consistent", self._manifest_valid
        yield "the manifest stands where the ledger says", self._manifest_in_ledger
        yield "every file is the one that was published", self._files
        yield "the published scales cost no vehicle more than it was charged", self._losses
        yield "the manifest's epsilon is the largest recomputed loss", self._epsilon
        yield "released.duckdb holds the same release", self._released

    def _not_behind(self) -> str | None:
        self._curator.check_not_behind()
        return None

    def _charge(self) -> LedgerRow:
        return self._ledger[self._stored.sequence - 1]

    def _order_is_charged(self) -> str | None:
        digest = hashlib.sha256(self._stored.allocation.encode()).hexdigest()
        facts = self._charge().facts
        if facts.get("order_sha256") != digest or facts.get("release") != self._stored.release_id:
            return "another order than the one in the ledger"
        return None

    def _accounts(self) -> str | None:
        vehicle, loss = vault_ledger.charges_of(self._curator.vault, self._stored.sequence)
        return (
            None
            if self._charge().facts.get("accounts_sha256") == accounts_hash(vehicle, loss)
            else "other accounts"
        )

    def _data_version(self) -> str | None:
        vault, pinned = self._curator.vault, self._order
        if version_digest(vault, pinned.ingest_id) != pinned.data_version:
            return "another history of ingested files"
        if recomputed_digest(vault, pinned.ingest_id) != pinned.data_version:
            return "another number of fixes than was ingested"
        return None

    def _manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self._folder / MANIFEST).read_text(encoding="utf-8"))
        return manifest

    def _manifest_valid(self) -> str | None:
        validate_manifest(self._manifest())
        return None

    def _manifest_in_ledger(self) -> str | None:
        accounting = self._manifest()["accounting"]
        charge = self._charge()
        stated = (accounting["ledger_sequence"], accounting["head_hash"])
        return None if stated == (charge.sequence, charge.head_hash) else "another entry of the ledger"

    def _published_files(self) -> dict[str, str]:
        for row in self._ledger:
            facts = row.facts
            if facts.get("kind") == "publication" and facts.get("release") == self._stored.release_id:
                files = facts.get("files")
                if isinstance(files, dict):
                    return {str(name): str(digest) for name, digest in files.items()}
        raise VerificationError("the ledger has no publication of this release")

    def _files(self) -> str | None:
        expected = self._published_files()
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self._folder.iterdir()}
        different = sorted(
            name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
        )
        listed = {entry["name"]: entry["sha256"] for entry in self._manifest()["files"]}
        wrong = sorted(name for name, digest in listed.items() if found.get(name) != digest)
        if different or wrong:
            return "changed, missing or foreign: " + ", ".join(sorted({*different, *wrong}))
        return None

    def _contributions(self) -> Contributions:
        if self._recomputed is None:
            order = self._order
            # from the fixes, not from the cache
            self._recomputed = reduce_fixes(
                self._curator.vault.connection, order.grid, order.bound, order.ingest_id
            )
        return self._recomputed

    def _recomputed_losses(self) -> tuple[Contributions, dict[int, int]]:
        """Every vehicle's loss by the vault's counts and the published recipe."""
        contributions = self._contributions()
        occupancy = contributions.occupancy
        published = pd.read_parquet(self._folder / "cells.parquet")
        cells = np.array([int(text, 16) for text in published["h3"]], dtype=np.uint64)
        if not (
            np.array_equal(cells, occupancy.cell)
            and np.array_equal(published["slot"].to_numpy(dtype=np.int64), occupancy.slot)
        ):
            raise VerificationError("the published bins are not those of the data")
        columns = _recipe_columns(published)
        numbered = _has_number(columns)
        chosen = occupancy.select(numbered)
        recipe = recipe_from_published(
            self._manifest().get("recipe"),
            {
                statistic: {name: values[numbered] for name, values in own.items()}
                for statistic, own in columns.items()
            },
        )
        losses = recipe.event(chosen, contributions.bound).loss_per_user
        return contributions, dict(zip(contributions.vehicle.tolist(), losses.tolist(), strict=True))

    def _losses(self) -> str | None:
        _, recomputed = self._recomputed_losses()
        vehicle, charged = vault_ledger.charges_of(self._curator.vault, self._stored.sequence)
        account = dict(zip(vehicle.tolist(), charged.tolist(), strict=True))
        undercharged = sum(loss > account.get(name, 0) for name, loss in recomputed.items())
        return f"{undercharged} vehicles lose more than they were charged" if undercharged else None

    def _epsilon(self) -> str | None:
        _, recomputed = self._recomputed_losses()
        largest = decimal_text(max(recomputed.values(), default=0))
        claimed = loss_text(self._manifest()["guarantee"])
        concentrated = isinstance(self._order.recipe, ZCDPRecipe)
        if concentrated is not ("rho" in self._manifest()["guarantee"]):
            return "a guarantee of another kind than the noise that was ordered"
        kind = LossKind.ZCDP if concentrated else LossKind.PURE
        charged = self._charge().facts.get(kind.pico_key)
        if claimed != largest or charged != max(recomputed.values(), default=0):
            return f"a claim of {claimed} where {largest} is lost"
        return None

    def _released(self) -> str | None:
        release = self._curator.load(self._stored.release_id)
        same = released_matches(self._curator.store, release, epsilon_of(release))
        return None if same else "other rows than were released"


def _recipe_columns(published: pd.DataFrame) -> dict[Statistic, dict[str, npt.NDArray[Any]]]:
    """Return the recipe's columns of every statistic with a number, over all bins."""
    return {
        statistic: {
            name: published[f"{statistic.stem}_{name}"].to_numpy(
                dtype=np.float64 if column.withheld is None else np.int64
            )
            for name, column in RECIPE_COLUMNS.items()
            if f"{statistic.stem}_{name}" in published
        }
        for statistic in Statistic
        if f"{statistic.stem}_status" in published
    }


def _has_number(columns: Mapping[Statistic, Mapping[str, npt.NDArray[Any]]]) -> npt.NDArray[np.bool_]:
    """Return which bins carry noise or a constant, by any statistic: where a recipe's float is no null."""
    noisy: npt.NDArray[np.bool_] = np.any(
        [
            ~np.isnan(values)
            for own in columns.values()
            for name, values in own.items()
            if RECIPE_COLUMNS[name].withheld is None
        ],
        axis=0,
    )
    return noisy
