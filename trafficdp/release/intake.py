"""Files and frames into the vault, all of a call or none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from trafficdp.config.file import Config, declaration_json
from trafficdp.errors import UsageError
from trafficdp.ingest.input_file import RefusedFor
from trafficdp.ingest.read import Reading, choose_source, one_by_one, require_kept_rows
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.model import SourceDeclaration
from trafficdp.release.holdings import pin_area
from trafficdp.release.outcomes import IngestedFile
from trafficdp.store import loss_kind, vault_fixes
from trafficdp.store.statements import store_failures
from trafficdp.store.vault import Vault, audit
from trafficdp.store.vault_imports import require_records

Progress = Callable[[Path], AbstractContextManager[Callable[[int], None] | None]]
"""Asked for a bar per file, which is told of bytes."""


@dataclass(frozen=True)
class Intake:
    """One ingest into an open ``vault``; with ``dry_run`` everything is read and checked, nothing written."""

    vault: Vault
    config: Config
    key: VehicleKey
    dry_run: bool
    strict_units: bool
    progress: Progress | None

    def all_or_none(self, given: object, source: str | None) -> list[IngestedFile]:
        """Return what became of every path and frame of ``given``; see ``Workspace.ingest``."""
        parts = one_by_one(given)
        if not parts:
            raise UsageError("no file to ingest", todo="name the files, for example data/sample/*.csv.gz")
        self.vault.check_key(self.key.fingerprint)
        if self.strict_units:
            self.config.require_public_counts("a refusal by the speeds of a file")
        # the report of a file is text; its records go straight into the transaction
        with store_failures("reading files") if self.dry_run else self.vault.transaction("ingesting"):
            require_records(self.vault)
            pin_area(self.vault, self.config.grid.area.hash, dry_run=self.dry_run)
            if not self.dry_run:
                loss_kind.pin_kind(self.vault, self.config.policy.kind)
                loss_kind.pin_relation(self.vault, self.config.relation)
            before = vault_fixes.data_version(self.vault).ingest_id
            chosen = [(each, choose_source(each, self.config.sources, source)) for each in parts]
            done = [self._one(*each) for each in chosen]
            if any(each.added for each in done):
                audit(self.vault, before)
            return done

    @property
    def _refused_for(self) -> RefusedFor:
        if self.strict_units:
            return RefusedFor.UNITS
        return RefusedFor.ROWS if self.config.relation.may_refuse_by_counts else RefusedFor.FORMAT

    def _one(self, given: object, source: SourceDeclaration) -> IngestedFile:
        declaration = declaration_json(source)
        bar = self.progress(given) if self.progress and isinstance(given, Path) else nullcontext(None)
        with bar as advance:
            reading = Reading(
                given,
                source,
                self.config.grid.area,
                self.key,
                progress=advance,
                refused_for=self._refused_for,
                scratch=self.vault.spill_folder / "ingest",
            )
            there = vault_fixes.already_ingested(self.vault, reading.digest, declaration)
            incoming = None if there or self.dry_run else vault_fixes.Incoming(self.vault)
            for fixes in reading.parts():
                if incoming is not None:
                    incoming.add(fixes)
        report, name = reading.report, reading.report.file
        if there:
            return IngestedFile(report, name, 0, already_there=True)
        require_kept_rows(report, source, self.config.relation)
        if incoming is None:
            return IngestedFile(report, name, 0, already_there=False)
        facts = vault_fixes.FileFacts(
            name=name,
            digest=reading.digest,
            source=source.name,
            declaration=declaration,
            strict_units=self.strict_units,
            report=report.to_json(),
        )
        return IngestedFile(report, name, incoming.finish(facts), already_there=False)
