"""The one entry point: takes values, gives a release. Charge first, noise second, files last."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import IntArray
from trafficdp.binning.places import declared_bins
from trafficdp.engine.duckdb_reduce import read_samples, reduce_fixes
from trafficdp.errors import StoreBehindError, StoreDamagedError, UsageError
from trafficdp.export.files.catalogue import FileFacts
from trafficdp.export.files.manifest import build_manifest
from trafficdp.export.write import MANIFEST
from trafficdp.measurement.measure import PrivacyMeter
from trafficdp.measurement.sets import Claim, Measure, Ranks, Scores, Step
from trafficdp.mechanisms.registry import calibrated_from_facts
from trafficdp.model import ContributionBound, Grid, NeighbouringRelation, Statistic
from trafficdp.noise.source import SecureNoise, SimulatedNoise
from trafficdp.planner.allocation import Allocation, assess_utility, uninformative_error
from trafficdp.pricing import check_steps
from trafficdp.privacy.budget import Analyst, ChangedFact, Promise, checked_reason
from trafficdp.privacy.ledger import GENESIS, LedgerRow, accounts_hash
from trafficdp.privacy.release import LedgerReference, Release, decode, encode
from trafficdp.release import publication
from trafficdp.release.specification import (
    ListedBins,
    ReleaseContext,
    Specification,
    assemble_release,
    build_specification,
)
from trafficdp.sensitive import Contributions, MeasureInput, Samples, SensitiveInputs
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.store.store_files import Head, remove_leftovers, require_head, store_failures
from trafficdp.store.vault import Vault
from trafficdp.store.vault_fixes import DataVersion, is_imported, require_reduced
from trafficdp.store.vault_releases import IndexedRelease

# What a rehearsal reads in place of records: nothing.


def refuse_imported_samples() -> Samples:
    """Raise UsageError: the reader of single values in a store of imported sums, which has none."""
    raise UsageError(
        "this store holds sums from a cluster, and the mechanism needs every single speed",
        todo='choose another mechanism, such as "baseline", or ingest the files into a store of records',
    )


# What was measured is kept as it was drawn: answers are noisy and paid for, so they may lie wherever the
# release does. ``verification`` measures again from them.


@dataclass(frozen=True)
class Recorded:
    """A ``Measure`` that passes every call on to another one and keeps the answers, for verification."""

    _measure: Measure
    _answers: list[npt.NDArray[Any]] = field(default_factory=list, init=False)

    def to_bytes(self) -> bytes:
        """Return the kept answers in their order, as the bytes of a NumPy archive (npz)."""
        sink = io.BytesIO()
        # drawn noise hardly packs
        np.savez(sink, *self._answers, allow_pickle=False)
        return sink.getvalue()

    def measure(self, step: Step, values: MeasureInput) -> IntArray:
        """Return the noisy sums of ``step`` over the private ``values``, one a coordinate, and keep them."""
        return self._kept(self._measure.measure(step, values))

    def select(self, ranks: Ranks, values: npt.NDArray[Any]) -> IntArray:
        """Return one privately selected quantile for each coordinate, shape (C,), and keep them."""
        return self._kept(self._measure.select(ranks, values))

    def select_claimed(self, scores: Scores, cost: IntArray, weight: IntArray, start: IntArray) -> IntArray:
        """Return for each coordinate the position of the candidate that was drawn, shape (C,), and keep them.

        Drawn by the exponential mechanism: see ``PrivacyMeter.select_claimed``.
        """
        return self._kept(self._measure.select_claimed(scores, cost, weight, start))

    def charge_unverified(self, noise: Claim) -> None:
        """Meter the loss of ``noise``; nothing is kept, as that noise is made of ``uniform_below``."""
        self._measure.charge_unverified(noise)

    def uniform_below(self, count: IntArray) -> IntArray:
        """Return a uniform whole number in 0..``count`` - 1 for each entry of ``count``, and keep them."""
        return self._kept(self._measure.uniform_below(count))

    def _kept(self, answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        self._answers.append(answer.copy())
        return answer


# The one entry point: takes values, gives a release. Charge first, noise second, files last.
#
# 1. Transaction 1 commits the charge: ledger entry, every vehicle's account, the frozen Specification.
# 2. Transaction 2 commits the noisy values. They are drawn once; a committed value is never redrawn.
# 3. Files are renamed in, `released.duckdb` is swapped, and transaction 3 notes it in the ledger.
#
# Whatever dies in between, the next command that opens the vault finishes the work (``recover``): under
# the same Specification, without a new charge. A crash costs neither privacy nor budget.


BOUNDARIES = (
    "charged",
    "head written",
    "values drawn",
    "values committed",
    "files placed",
    "released swapped",
    "published",
)
"""The named instants between steps of a release, in order. Tests die at each of them."""

WITHDRAWAL_BOUNDARIES = ("withdrawal committed", "withdrawal remembered", "cells removed", "files removed")
"""The same of a withdrawal."""
CHANGE_BOUNDARIES = ("budget changed", "change remembered")
"""The same of a change of the budget."""


def failpoint(boundary: str) -> None:
    """Do nothing. Called with the name of every instant in the BOUNDARIES, where tests end the process."""


@dataclass(frozen=True)
class Curator:
    """The only one who sees values and gives releases. Use it under the store's lock."""

    store: Path
    vault: Vault
    head: Head
    _last: list[tuple[object, vault_fixes.CachedContributions]] = field(default_factory=list, repr=False)
    """The counts that were asked for last: a release asks for what its plan had."""
    _anyone: list[Contributions] = field(default_factory=list, repr=False)
    """The same, of anyone."""

    @cached_property
    def relation(self) -> NeighbouringRelation:
        """The neighbouring relation that the store promises for ever: it says whether counts are public."""
        return vault_ledger.promise_in_force(self.vault).policy.relation

    def contributions(self, grid: Grid, bound: ContributionBound, version: DataVersion) -> Contributions:
        """Return the sums of every (bin, vehicle) on ``grid`` in the data ``version``; raises as ``counted``.

        Where nothing about a vehicle is public, sums of 0 of one possible vehicle in every declared bin
        instead.
        """
        found = self.counted(grid, bound, version)
        return found if self.relation.hides_presence else self._recorded(grid, bound, version)

    def counted(self, grid: Grid, bound: ContributionBound, version: DataVersion) -> Contributions:
        """Return what may be planned with: the counts of ``contributions``, with sums of 0.

        Raises DataError where public counts allow sums that 64 bits do not hold, UsageError where a cluster
        has not reduced records for this map: before anything is charged.
        """
        if not self.relation.hides_presence:
            found = self._counted(grid, bound, version).contributions
            found.require_exact_sums()
            return found
        if is_imported(self.vault.connection):
            key = vault_fixes.cache_key(grid, bound)
            require_reduced(self.vault.connection, key, version.ingest_id)
        cell, slot = declared_bins(grid)
        if not self._anyone or self._anyone[0].counts.cell is not cell or self._anyone[0].bound != bound:
            self._anyone[:] = [Contributions.for_declared_grid(cell, slot, bound)]
        return self._anyone[0]

    def _recorded(self, grid: Grid, bound: ContributionBound, version: DataVersion) -> Contributions:
        """Return the statistics of every (vehicle, bin), with the very counts of ``_counted``."""
        counted, last = self._counted(grid, bound, version), version.ingest_id
        # what planning has left, and then what loading leaves
        self.vault.free_memory()
        found = vault_fixes.load_contributions(self.vault, grid, bound, last, counted)
        self.vault.free_memory()
        if found is not None:
            return found.contributions
        # the cache was emptied since, for other maps
        return replace(self._reduced(grid, bound, last), counts=counted.contributions.counts)

    def _counted(
        self, grid: Grid, bound: ContributionBound, version: DataVersion
    ) -> vault_fixes.CachedContributions:
        """Return the counts of every (vehicle, bin), with sums of 0: those asked for last, or the cache's."""
        asked, last = (grid, bound, version), version.ingest_id
        if not self._last or self._last[0][0] != asked:
            found = vault_fixes.load_contributions(self.vault, grid, bound, last, sums=False)
            if found is None or found.up_to_ingest != last:
                made = self._reduced(grid, bound, last, found)
                found = vault_fixes.CachedContributions(made.zeroed(), last)
                del made
            self.vault.free_memory()
            self._last[:] = [(asked, found)]
        return self._last[0][1]

    def _reduced(
        self,
        grid: Grid,
        bound: ContributionBound,
        last: int,
        known: vault_fixes.CachedContributions | None = None,
    ) -> Contributions:
        """Bring the cache up to date, of which ``known`` are the counts; return what it has then."""
        kept = vault_fixes.load_contributions(self.vault, grid, bound, last, known)
        found = reduce_fixes(self.vault.connection, grid, bound, last, kept)
        with self.vault.transaction("keeping the contributions"):
            vault_fixes.save_contributions(self.vault, grid, bound, last, found)
        return found

    def check_not_behind(self, *, whole: bool = False) -> None:
        """Raise StoreBehindError when the ledger lacks an entry that its head or a manifest names.

        Raises StoreDamagedError when its chain is broken or the vehicles' accounts are not what it says.
        Entries up to the head's were checked when that was written and are not checked again, unless
        ``whole``.
        """
        entries: Sequence[LedgerRow] = vault_ledger.Entries(self.vault)
        remembered = self.head.verify(entries)
        checked = 0 if whole else remembered
        unchecked = vault_ledger.ledger_rows(self.vault, checked)
        vault_ledger.check_accounts(self.vault, unchecked, checked)
        entries = unchecked if whole else entries
        stored = vault_releases.all_releases(self.vault)
        known = {each.release_id for each in stored if each.published and each.sequence <= checked}
        for name, manifest in publication.manifests(self.store, known).items():
            sequence, head_hash = publication.ledger_reference(manifest)
            require_head(entries, sequence, head_hash, f"the manifest of release {name}")

    def release(
        self,
        allocation: Allocation,
        contributions: Contributions,
        configured: Promise,
        context: ReleaseContext,
        *,
        force: bool,
        analyst: Analyst | None = None,
    ) -> Release:
        """Charge every vehicle, draw the noise, publish; return the release.

        ``contributions`` are all that there are on the grid of ``allocation``, from which its bins were kept.
        The charge bears the name of ``analyst``, whose own budget must allow it as well. What may be spent is
        what the store has promised: ``configured`` must say the same.
        Raises UninformativeReleaseError (unless ``force``), InsufficientBudgetError, StoreBehindError and,
        when a second computation finds that the charge does not cover a loss, AllocationError before
        anything is written.
        """
        verdict = assess_utility(allocation)
        if verdict.refused and not force:
            raise uninformative_error(verdict, allocation.request)
        if allocation.event.idealised and not allocation.request.allow_idealised:
            raise UsageError(
                "this noise has no exact sampler",
                got=allocation.event.mechanism,
                todo="release with --allow-idealised-noise, which the manifest records",
            )
        self.check_not_behind()
        vehicle, loss = contributions.vehicle, allocation.event.loss_per_user
        with self.vault.transaction("charging the release"):
            promise = vault_ledger.settle_promise(self.vault, configured, datetime.now(UTC))
            policy = promise.policy
            if policy.kind is not allocation.event.kind:
                raise UsageError(
                    "the release and the budget count in different kinds of loss",
                    expected=f"a release in {policy.kind.quantity}",
                )
            number = len(vault_releases.all_releases(self.vault)) + 1
            before = vault_ledger.totals(self.vault)
            specification = build_specification(
                context, allocation, contributions.counts, f"r{number:04d}", before.sum_of_maxima
            )
            vault_ledger.require_budget(self.vault, vehicle, loss, policy, specification.created_at)
            if analyst is not None:
                own = promise.analyst(analyst.name)
                vault_ledger.require_analyst_budget(self.vault, vehicle, loss, own)
            self._require_unseen(specification.release_id)
            text = specification.to_json()
            frozen = Specification.from_json(text)
            self._rehearse(frozen, contributions, loss)
            entry = vault_ledger.add_entry(
                self.vault,
                {
                    "kind": "charge",
                    "release": specification.release_id,
                    "at": specification.created_at.isoformat(),
                    policy.kind.pico_key: allocation.loss.pico,
                    "vehicles_charged": int(np.count_nonzero(loss)),
                    "accounts_sha256": accounts_hash(vehicle[loss > 0], loss[loss > 0]),
                    "specification_sha256": hashlib.sha256(text.encode()).hexdigest(),
                    "data_version": specification.data_version,
                    "forced": verdict.refused,
                    **({} if analyst is None else {"analyst": analyst.name}),
                },
            )
            asked_by = None if analyst is None else analyst.name
            vault_ledger.add_charges(self.vault, entry.sequence, vehicle, loss, asked_by)
            stored = vault_releases.add_charged(self.vault, specification.release_id, entry.sequence, text)
        failpoint("charged")
        self.head.write(entry)
        failpoint("head written")
        return self._finish(stored, frozen)

    def recover(self) -> list[str]:
        """Finish what an interrupted process began; return the names of the releases that were finished.

        Raises StoreBehindError for a vault that is older than its head or manifests: from an old backup, the
        noise of a release that was published already would be drawn a second time.
        """
        # what commands that were killed left behind: half-made and outdated files, never a release
        with store_failures("removing leftovers of an interrupted command"):
            remove_leftovers(self.store)
            folder = self.store / publication.RELEASES
            for name in os.listdir(folder) if folder.is_dir() else ():
                if name.startswith(".") and Path(name).suffix in (".new", ".old"):
                    shutil.rmtree(folder / name)
        self.head.remove_half_written()
        stored = vault_releases.all_releases(self.vault)
        unfinished = [each for each in stored if not each.finished]
        if unfinished:
            self.check_not_behind()
        # before anything else can be seen of a charge, it is remembered outside the store
        self.write_head()
        for each in unfinished:
            self._finish(each, self.specification_of(each.release_id))
        if any(
            each.withdrawn and publication.folder_of(self.store, each.release_id).exists() for each in stored
        ):
            self.apply_withdrawals()
        return [each.release_id for each in unfinished]

    def change_promise(self, configured: Promise, reason: str, at: datetime) -> tuple[ChangedFact, ...]:
        """Make ``configured`` the store's promise from now on, for ``reason``; return what it changes."""
        self.check_not_behind()
        with self.vault.transaction("changing the budget"):
            changed = vault_ledger.promise_in_force(self.vault).changes_to(configured)
            entry = vault_ledger.replace_promise(self.vault, configured, checked_reason(reason), at)
        failpoint("budget changed")
        self.head.write(entry)
        failpoint("change remembered")
        return changed

    def write_head(self) -> None:
        """Write the newest ledger entry into the head file beside the key, where that names an older one.

        The ledger is checked first; raises as ``check_not_behind``. A head that is missing is left missing.
        """
        try:
            sequence, _ = self.head.read()
        except (StoreBehindError, StoreDamagedError):
            return
        if sequence < len(vault_ledger.Entries(self.vault)):
            self.check_not_behind()
            self.head.write(vault_ledger.newest_entry(self.vault))

    def withdraw(self, release_id: str, at: datetime) -> None:
        """Withdraw a release: its files and its rows in `released.duckdb` are removed, its charge stays.

        Raises UsageError for one that is withdrawn already.
        """
        stored = vault_releases.release_named(self.vault, release_id)
        if stored.withdrawn:
            raise UsageError("this release is withdrawn already", got=release_id)
        self.check_not_behind()
        with self.vault.transaction("withdrawing the release"):
            entry = vault_ledger.add_entry(
                self.vault, {"kind": "withdrawal", "release": release_id, "at": at.isoformat()}
            )
            vault_releases.mark_withdrawn(self.vault, release_id)
        failpoint("withdrawal committed")
        self.head.write(entry)
        failpoint("withdrawal remembered")
        self.apply_withdrawals()

    def apply_withdrawals(self) -> None:
        """Remove withdrawn releases from `released.duckdb`, then their folders, as far as they are there.

        The folders go last: while one is there, ``recover`` knows that work is left.
        """
        publication.update_released(self.store, self.vault)
        failpoint("cells removed")
        for name in (each.release_id for each in vault_releases.all_releases(self.vault) if each.withdrawn):
            publication.remove_files(self.store, name)
        failpoint("files removed")

    def specification_of(self, release_id: str) -> Specification:
        """Return the specification that a release was charged for; raise UsageError when there is none."""
        return Specification.from_json(vault_releases.part_of(self.vault, release_id, "allocation"))

    def load(self, release_id: str) -> Release:
        """Return a release from its committed values; raise UsageError when it has none yet."""
        values = vault_releases.values_of(self.vault, release_id)
        if values is None:
            raise UsageError(
                "this release is not finished", got=release_id, todo="run any command that writes"
            )
        facts, bins = values
        return decode(json.loads(facts), bins)

    def _finish(self, stored: vault_releases.StoredRelease, specification: Specification) -> Release:
        if not stored.drawn:
            # the noise is drawn, once
            self._require_unseen(stored.release_id)
            policy = vault_ledger.promise_in_force(self.vault).policy
            charge = vault_ledger.Entries(self.vault)[stored.sequence - 1]
            pinned = DataVersion(specification.ingest_id, specification.data_version)
            vehicle = self.counted(specification.grid, specification.request.bound, pinned).vehicle
            charged, loss = vault_ledger.charges_of(self.vault, stored.sequence)
            paid = np.zeros(len(vehicle), dtype=np.int64)
            paid[np.searchsorted(vehicle, charged)] = loss
            meter = PrivacyMeter(SecureNoise(), paid, policy.kind, hidden=policy.relation.hides_presence)
            measure = Recorded(meter)
            ledger = LedgerReference(charge.sequence, charge.head_hash)
            release = execute_release(specification, self.sensitive_inputs(specification), measure, ledger)
            failpoint("values drawn")
            # drawing takes more than all that follows
            self.vault.free_memory()
            facts, bins = encode(release)
            with self.vault.transaction("committing the noisy values"):
                text = json.dumps(facts, allow_nan=False)
                vault_releases.commit_values(self.vault, release.id, text, bins, measure.to_bytes())
            failpoint("values committed")
        # what was committed is published
        release = self.load(stored.release_id)
        files = publication.place_files(self.store, release)
        failpoint("files placed")
        with self.vault.transaction("noting the publication"):
            vault_releases.mark_published(
                self.vault,
                IndexedRelease(
                    release_id=release.id,
                    data_version=specification.data_version,
                    numbers_sha256=specification.numbers_sha256,
                    area_sha256=specification.grid.area.hash,
                    of_question=specification.disclosure.identity.question is not None,
                    of_everything=specification.grid.selection.everything,
                ),
            )
            entry = vault_ledger.add_entry(
                self.vault,
                {
                    "kind": "publication",
                    "release": release.id,
                    "at": release.created_at.isoformat(),
                    "files": {name: each.sha256 for name, each in sorted(files.items())},
                },
            )
            publication.update_released(self.store, self.vault, release)
            failpoint("released swapped")
        self.head.write(entry)
        failpoint("published")
        return release

    def sensitive_inputs(
        self, specification: Specification, known: Contributions | None = None
    ) -> SensitiveInputs:
        """Return the private inputs for ``specification``; single values are read only if its mechanism asks.

        ``known`` are its contributions, if they were read already.
        """
        version = DataVersion(specification.ingest_id, specification.data_version)

        def samples() -> Samples:
            return read_samples(
                self.vault.connection,
                specification.grid,
                specification.request.bound,
                specification.ingest_id,
            )

        asked = specification.grid, specification.request.bound, version
        return SensitiveInputs(known or self.contributions(*asked), samples, partial(self._recorded, *asked))

    def _require_unseen(self, release_id: str) -> None:
        """Raise StoreBehindError when files of a release lie here whose values the vault does not know.

        They came from a later vault than this one, and drawing the noise again would spend twice.
        """
        folder = publication.folder_of(self.store, release_id)
        if folder.exists():
            raise StoreBehindError(
                "the vault knows no values of a release that has files",
                got=str(folder),
                todo="restore the newest backup of the store, or move away a folder that is not a release",
            )

    def _rehearse(self, specification: Specification, contributions: Contributions, loss: IntArray) -> None:
        """Raise before the charge what would fail after it, of the frozen ``specification``.

        A second computation of what it costs (``pricing.check_steps``), from the steps of its calibrated
        mechanism on all bins, must find that ``loss`` covers every vehicle; and it is executed on speeds that
        are all 0.
        """
        counts = contributions.counts
        kept = counts.select(specification.bins_kept(counts))
        calibrated = calibrated_from_facts(specification.calibrated, specification.public_facts(kept))
        check_steps(calibrated.steps(), loss)
        policy = vault_ledger.promise_in_force(self.vault).policy
        hidden = policy.relation.hides_presence
        silent = SensitiveInputs.zeros(contributions)
        if hidden:
            # who was where is not read either: one record stands for all, and what is public is as large
            one = Contributions.for_declared_grid(counts.cell[:1], counts.slot[:1], contributions.bound)
            silent = replace(silent, recorded=lambda: one)
        if is_imported(self.vault.connection):
            silent = replace(silent, read_samples=refuse_imported_samples)
        meter = PrivacyMeter(SimulatedNoise(0), loss, policy.kind, hidden=hidden)
        release = execute_release(specification, silent, meter, LedgerReference(1, GENESIS))
        build_manifest(release, {MANIFEST: FileFacts(MANIFEST, GENESIS, 1, ())})


def execute_release(
    specification: Specification, everything: SensitiveInputs, measure: Measure, ledger: LedgerReference
) -> Release:
    """Return the release of ``specification`` over all bins of ``everything``, with the noise of ``measure``.

    Raises StoreDamagedError when the bins are not those that the order was made for.
    """
    counts = everything.contributions.counts
    keep = specification.bins_kept(counts)
    if not (
        np.array_equal(counts.cell[keep], specification.cell)
        and np.array_equal(counts.slot[keep], specification.slot)
    ):
        raise StoreDamagedError(
            "the data is not what the release was charged for",
            got=f"{int(keep.sum())} bins",
            expected=f"the {len(specification.cell)} bins of the charge",
            todo="restore the newest complete backup of the store",
        )
    public = specification.public_facts(counts.select(keep))
    calibrated = calibrated_from_facts(specification.calibrated, public)
    if Statistic.VARIANCE not in calibrated.statistics:
        # squares are read for variances alone, and take as much memory as sums
        sums = everything.contributions
        everything = replace(
            everything, contributions=replace(sums, total_of_squares=sums.zeroed().total_of_squares)
        )
        del sums
    values = everything.select(keep)
    # the sums of all bins are as large, and not needed any more
    del everything
    estimates = calibrated.run(values, measure, interval_level=specification.request.interval_level)
    bins = ListedBins(counts.cell, counts.slot, counts.users_per_bin, counts.samples_per_bin)
    return assemble_release(specification, bins, keep, estimates, ledger)
