"""Records enter the vault, whole or not at all; a vehicle leaves it likewise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa

from trafficdp.config.file import declaration_json
from trafficdp.config.settings import Config
from trafficdp.engine.reduced import JobManifest, Spark, batches, finished_jobs, local_folder
from trafficdp.engine.spark_rows import Reduction
from trafficdp.errors import DataError, UsageError
from trafficdp.ingest import read as ingest_read
from trafficdp.ingest.report import Extents, FileReport, extent_in_words, with_few_rows_kept
from trafficdp.ingest.vehicle_key import VehicleKey, normalise_identifiers
from trafficdp.model import SourceDeclaration
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.release import curator
from trafficdp.release.curator import Curator
from trafficdp.release.results import IngestedFile, UndoneFile
from trafficdp.store import vault_fixes, vault_ledger, vault_releases
from trafficdp.store.store_files import Head, store_failures, store_lock
from trafficdp.store.vault import Vault, audit, database_in, rewrite_without_vehicles
from trafficdp.store.vault_fixes import add_import, is_imported, needs_import, require_newest_job

# A vehicle leaves the vault, because its owner asks for it: whole, or not at all, wherever the command dies.
#
# Its records and what it contributes go, out of the file and not only out of the tables. Forgetting is an act
# that is done alike whether the vault knows the vehicle or not: the vault is written anew, all data gets new
# names, so that nothing planned before can be drawn, and the ledger says how many identifiers were named, not
# which and not how many were known. ``verify`` says of older releases why their losses cannot be recomputed.
# What was published stays: the guarantee holds for a vehicle in it as before.
#
# Where counts are public every vehicle has an account of its own. One that was charged keeps the keyed hash
# of its identifier beside its charges, and nothing else: without it the same vehicle would come back with a
# new account, and lose its budget a second time. So the hash is kept for that vehicle's sake, as an
# objector's name is kept on a list of whom not to write to. It leads to a vehicle only for who has both an
# identifier and the key: destroying the key erases it. Where nothing is public there is one account for all,
# and no hash stays.


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
    """Remove the records of the vehicles with these ``identifiers`` from the vault; return the counts.

    Identifiers are normalised, and looked up in each of ``namespaces`` and of those that files were read
    under. Raises UsageError when there is no identifier, when nothing was ever read and when a stream is
    running, StoreKeyError for another store's key, StoreBehindError for a vault from a backup.
    """
    wanted = normalise_identifiers(identifiers).drop_null().unique()
    if not len(wanted):
        raise UsageError("no vehicle is named", expected="identifiers, one a line", todo="give at least one")
    key = VehicleKey.load(key_file)
    database_in(store, must_exist=True)
    with store_lock(store, purpose="forget", wait=wait):
        with Vault.open(store) as vault:
            vault.check_key(key.fingerprint)
            door = curator.Curator(store, vault, Head(key_file, vault.store_id))
            door.recover()
            door.check_not_behind()
            if vault_fixes.data_version(vault).ingest_id == 0 and vault_ledger.newest_entry(vault) is None:
                raise UsageError("the store is empty", expected="one that has read a file or begun a stream")
            _require_no_running_stream(vault)
            spaces = sorted({*namespaces, *vault_fixes.namespaces(vault)})
            known = [_numbers_of(vault, key, name, spaces) for name in wanted.to_pylist()]
            vehicles = sorted({number for numbers in known for number in numbers})
        with rewrite_without_vehicles(store, vehicles, lambda: curator.failpoint(BOUNDARIES[0])) as copy:
            vault_fixes.rename_versions(copy)
            facts = {"kind": KIND, "identifiers": len(wanted), "at": at.isoformat()}
            vault_ledger.add_entry(copy, facts)
        curator.failpoint(BOUNDARIES[1])
        with Vault.open(store) as vault:
            Head(key_file, vault.store_id).write(vault_ledger.newest_entry(vault))
        curator.failpoint(BOUNDARIES[2])
    return Forgotten(len(wanted), len(vehicles), sum(not numbers for numbers in known))


FORGOTTEN = "vehicles were forgotten"
"""How the reason begins why an earlier release cannot be recomputed."""


def forgotten_since(ledger: Iterable[LedgerRow], sequence: int) -> str | None:
    """Return the sentence that vehicles were forgotten after ledger entry ``sequence``; None if none were.

    Then the data of that charge is no longer what it was.
    """
    entries = [row.sequence for row in ledger if row.sequence > sequence and row.facts["kind"] == KIND]
    if not entries:
        return None
    return (
        f"{FORGOTTEN} since (entry {entries[0]} of the ledger), known ones or not, so this can no longer be "
        "recomputed"
    )


def _numbers_of(vault: Vault, key: VehicleKey, identifier: str, namespaces: Iterable[str]) -> list[int]:
    pseudonyms = pa.concat_arrays([key.pseudonyms([identifier], each) for each in namespaces])
    return vault_fixes.numbers_of(vault, pseudonyms)


def _require_no_running_stream(vault: Vault) -> None:
    running = [each.release_id for each in vault_releases.all_streams(vault) if not each.ended]
    if running:
        raise UsageError(
            "a stream is running, whose sums no vehicle can be taken out of",
            got=", ".join(running),
            todo="end the stream, then forget",
        )


# Files and frames into the vault, and what a cluster made of records: all of a call or none.
#
# Every ingest is an act: it gives the data a new name, whatever the files hold, also where they were read
# before or hold nothing. The next question then costs what it costs of new data. What became of the rows is
# for the curator's eyes.


@dataclass(frozen=True)
class Cluster:
    """A city as Spark and the import see it; the job needs its ``key_file`` and no ``store``."""

    config: Config
    key_file: Path
    store: Path

    def jobs(self, engine: str | Spark, given: object, source: str | None, *, dry_run: bool) -> Path:
        """Return the folder of jobs to import: ``given`` if ``engine`` is "reduced", else Spark's.

        Spark then reduces ``given`` first. Raises UsageError for a dry run, an unknown engine and a folder on
        another file system.
        """
        if dry_run:
            raise UsageError("a cluster has no dry run")
        if engine == "reduced":
            return Path(str(given))
        spark = engine if isinstance(engine, Spark) else Spark()
        if engine not in (spark, "spark"):
            raise UsageError("unknown engine", got=f"engine={engine!r}", expected="duckdb, spark or reduced")
        self.reduce(given, spark, source)
        return local_folder(self._into(spark))

    def reduce(self, given: object, spark: Spark, source: str | None) -> str | None:
        """Let Spark reduce ``given``, names of files or a DataFrame; return the folder of the new job.

        None where no file was new. Raises UsageError where Spark is not installed or has nowhere to write to,
        and as ``engine.spark_job``.
        """
        if self.config.grid.zones is not None:
            raise UsageError(
                "Spark puts records into hexagons", got="[map] zones", todo="ingest the files without it"
            )
        try:
            from trafficdp.engine import spark_job
        except ImportError as error:
            raise UsageError(
                "Spark is not installed", got=error.name, todo="run: pip install 'trafficdp[spark]'"
            ) from None
        frame = given if hasattr(given, "sparkSession") else None
        several = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        uris = [] if frame is not None else [str(each) for each in several]
        session = spark_job.spark_session(spark.session if frame is None else frame.sparkSession)
        local, mount = spark_job.is_local(session), spark.key_mount
        if spark.into is None and not local:
            raise UsageError("where shall the cluster write", todo="name a folder that it shares: into")
        declared = self._source([given] if frame is not None else [Path(uri) for uri in uris], source)
        work = spark_job.Work(
            reduction=Reduction.of(
                declared,
                self.config.grid,
                self.config.map.bound,
                refuse_by_rows=self.config.relation.may_refuse_by_counts,
            ),
            declaration=declaration_json(declared),
            key=spark_job.KeyLocation(
                VehicleKey.load(self.key_file),
                Path(mount) if mount else self.key_file.absolute() if local else None,
            ),
            into=self._into(spark),
        )
        if frame is not None:
            return str(spark_job.reduce_frame(frame, work, order=spark.order))
        folder: str | None = spark_job.reduce_files(session, uris, work)
        return folder

    def _source(self, given: Sequence[object], name: str | None) -> SourceDeclaration:
        sources = {
            each.name: each
            for each in (ingest_read.choose_source(g, self.config.sources, name) for g in given)
        }
        if len(sources) != 1:
            raise UsageError(
                "a job reads one source", got=", ".join(sources) or "none", todo="run one job for each"
            )
        return next(iter(sources.values()))

    def _into(self, spark: Spark) -> str:
        return str(spark.into or self.store.absolute().with_name(self.store.name + ".contributions"))

    def import_jobs(self, vault: Vault, folder: Path) -> list[IngestedFile]:
        """Import the finished jobs in ``folder`` into an open ``vault``, all or none.

        A job that was imported before adds nothing; the data gets a new name all the same. Raises DataError
        for a folder that is not whole, UsageError for jobs that took no account of others that are here,
        StoreKeyError for another key.
        """
        jobs = finished_jobs(folder)
        vault.check_key(VehicleKey.load(self.key_file).fingerprint)
        with vault.transaction("importing contributions"):
            vault_fixes.pin_area(vault, self.config.grid.area.hash, dry_run=False)
            vault_ledger.settle_promise(vault, self.config.promise, datetime.now(UTC))
            before = vault_fixes.data_version(vault).ingest_id
            done = [_imported(vault, self.config, path, manifest) for path, manifest in jobs]
            if all(each.read_before for each in done):
                # to import what is here is an act too, and gives the data a new name
                add_import(vault, jobs[-1][1].key, None, _facts(jobs[-1][1]), ())
            audit(vault, before)
            return done


def undo(curator: Curator, names: Sequence[str], at: datetime) -> list[UndoneFile]:
    """Remove the records that the files of these ``names`` brought, of all of them or none.

    Of a file that was read several times the newest reading is undone. What is refused depends on which files
    were read and what was released, never on their contents. Raises UsageError for a name that no file of the
    store has, and for a file whose data a release or an answer used.
    """
    vault = curator.vault
    curator.check_not_behind()
    newest, used = _newest_release(curator)
    with vault.transaction("taking a file back"):
        done = []
        for name in names:
            here = vault_fixes.ingested_files(vault)
            readings = [each.ingest_id for each in here if each.file_name == name]
            if not readings:
                raise UsageError(
                    "no file of this name is in the store",
                    got=name,
                    expected="one of " + ", ".join(sorted({each.file_name for each in here})[:9])
                    if here
                    else "a file that was ingested; the store is empty",
                )
            if readings[-1] <= used:
                raise UsageError(
                    "a release was made of data that this file is in",
                    got=f"{name}, in the data of {newest}",
                    todo="leave it; or ingest what is right into a new store",
                )
            require_newest_job(vault, readings[-1])
            records = vault_fixes.undo(vault, readings[-1], at)
            later = tuple(each.file_name for each in here if each.ingest_id > readings[-1])
            done.append(UndoneFile(name, records, later))
        audit(vault)
    return done


def reports_with_few_rows_kept(curator: Curator) -> list[FileReport]:
    """Return the reports on files read since the newest release of which few rows were kept.

    Few is less than LITTLE of them. Outside the privacy guarantee: for the curator's eyes.
    """
    _, used = _newest_release(curator)
    here = vault_fixes.ingested_files(curator.vault)
    return with_few_rows_kept(FileReport.from_json(each.report) for each in here if each.ingest_id > used)


def _newest_release(curator: Curator) -> tuple[str, int]:
    """Return the newest release and the newest file in its data; "" and 0 where there is none."""
    releases = vault_releases.all_releases(curator.vault)
    newest = releases[-1].release_id if releases else ""
    return newest, curator.specification_of(newest).ingest_id if newest else 0


def _imported(vault: Vault, config: Config, folder: Path, manifest: JobManifest) -> IngestedFile:
    report = manifest.report
    vault.check_key(manifest.key_fingerprint)
    if manifest.area != config.grid.area.hash:
        raise DataError("these contributions are of another study area", got=str(folder))
    if not needs_import(vault, manifest.key, manifest.job, manifest.after):
        return IngestedFile(report, report.file, 0, read_before=True, declared_otherwise=False)
    ingest_read.require_kept_rows(
        report, ingest_read.choose_source(folder, config.sources, manifest.source), config.relation
    )
    added = add_import(vault, manifest.key, manifest.job, _facts(manifest), batches(folder, manifest))
    if added != manifest.fixes:
        raise DataError(f"the contributions of {folder.name} are not those of its manifest")
    return IngestedFile(report, report.file, added, read_before=False, declared_otherwise=False)


def _facts(manifest: JobManifest) -> vault_fixes.FileDetails:
    return vault_fixes.FileDetails(
        name=manifest.report.file,
        digest=manifest.job,
        source=manifest.source,
        declaration=manifest.declaration,
        report=manifest.report.to_json(),
    )


Progress = Callable[[Path], AbstractContextManager[Callable[[int], None] | None]]
"""Asked for a bar per file, which is told of bytes."""


class _Bars(ExitStack):
    """The bar of the file that is being read; the one before is taken away."""

    def __init__(self, progress: Progress | None) -> None:
        super().__init__()
        self._progress, self._path = progress, Path()
        self._told: Callable[[int], None] | None = None

    def of(self, given: object) -> Callable[[int], None] | None:
        """Return what is told of bytes; None where nobody looks."""
        return partial(self._tell, given) if self._progress and isinstance(given, Path) else None

    def _tell(self, path: Path, read: int) -> None:
        if self._progress and path is not self._path:
            self.close()
            self._path, self._told = path, self.enter_context(self._progress(path))
        if self._told:
            self._told(read)


@dataclass(frozen=True)
class Intake:
    """One ingest into an open ``vault``; with ``dry_run`` everything is read and checked, nothing written."""

    vault: Vault
    config: Config
    key: VehicleKey
    dry_run: bool
    progress: Progress | None

    def ingest_all_or_none(self, given: object, source: str | None) -> list[IngestedFile]:
        """Read every path and frame in ``given`` into the vault, all or none; return what became of each.

        ``source`` names the source that declares them (None: by file name). See ``Workspace.ingest``.
        """
        parts = ingest_read.list_of_inputs(given)
        if not parts:
            raise UsageError("no file to ingest", todo="name the files, for example data/sample/*.csv.gz")
        self.vault.check_key(self.key.fingerprint)
        # the report of a file is text; its records go straight into the transaction
        with store_failures("reading files") if self.dry_run else self.vault.transaction("ingesting"):
            if is_imported(self.vault.connection):
                raise UsageError(
                    "this store holds contributions from a cluster, so it cannot find repeats in files",
                    todo="reduce the files on the cluster too, or begin another store",
                )
            vault_fixes.pin_area(self.vault, self.config.grid.area.hash, dry_run=self.dry_run)
            if not self.dry_run:
                vault_ledger.settle_promise(self.vault, self.config.promise, datetime.now(UTC))
            before = vault_fixes.data_version(self.vault).ingest_id
            chosen = [ingest_read.choose_source(each, self.config.sources, source) for each in parts]
            together: dict[str | int, list[int]] = {}
            for place, its in enumerate(chosen):
                # a speed is derived from positions in any file
                together.setdefault(its.name if its.missing_speed == "derive" else place, []).append(place)
            incoming = None if self.dry_run else vault_fixes.Incoming(self.vault)
            readings = dict[int, ingest_read.Reading]()
            for places in together.values():
                files, its = [parts[place] for place in places], chosen[places[0]]
                for at, reading in self._read(files, its, incoming, len(readings)).items():
                    readings[places[at]] = reading
            added = {} if incoming is None else incoming.finish(once=len(together) == 1)
            done = {
                place: self._note(reading, chosen[place], incoming, added.get(number, 0))
                for number, (place, reading) in enumerate(readings.items())
            }
            if not self.dry_run:
                audit(self.vault, before)
            return [done[place] for place in range(len(parts))]

    def _read(
        self,
        given: Sequence[object],
        source: SourceDeclaration,
        incoming: vault_fixes.Incoming | None,
        before: int,
    ) -> dict[int, ingest_read.Reading]:
        """Read files of one source together, in the order of their names, after ``before`` other files.

        Return what was read, in that order, by the place in ``given``.
        """
        with _Bars(self.progress) as bars:
            readings = [
                ingest_read.Reading(
                    each,
                    source,
                    self.config.grid.area,
                    self.key,
                    progress=bars.of(each),
                    refuse_by_rows=self.config.relation.may_refuse_by_counts,
                    period=self.config.grid.period,
                )
                for each in given
            ]
            order = sorted(range(len(readings)), key=lambda at: (readings[at].file.name, readings[at].digest))
            in_order = [readings[at] for at in order]
            for fixes, file in ingest_read.parts_of_files(in_order, self.vault.spill_folder / "ingest"):
                if incoming is not None:
                    incoming.add(fixes, before + file)
        together = FileReport.together([reading.report for reading in readings])
        extents = Extents()
        for reading in readings:
            extents |= reading.extents
        extent = extents.readable
        days = None if extent is None else extent_in_words(extent, self.config.grid.period.time_zone)["days"]
        ingest_read.require_kept_rows(together, source, self.config.relation, days)
        return dict(zip(order, in_order, strict=True))

    def _note(
        self,
        reading: ingest_read.Reading,
        source: SourceDeclaration,
        incoming: vault_fixes.Incoming | None,
        added: int,
    ) -> IngestedFile:
        declaration, report = declaration_json(source), reading.report
        before = vault_fixes.earlier_declarations(self.vault, reading.digest)
        if incoming is not None:
            facts = vault_fixes.FileDetails(
                name=report.file,
                digest=reading.digest,
                source=source.name,
                declaration=declaration,
                report=report.to_json(),
            )
            incoming.note(facts, added)
        otherwise = bool(before - {declaration})
        return IngestedFile(report, report.file, added, bool(before), otherwise, reading.extents)
