"""The tool in Python: open a city's store, ingest, plan, release, verify.

>>> import trafficdp
>>> city = trafficdp.open("data/sample/trafficdp.toml", store="city.store", create=True)
>>> city.ingest(sorted(Path("data/sample").glob("*.csv.gz")))
>>> print(city.plan().loss)
>>> release = city.release()
>>> release.to_geodataframe()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trafficdp._durable import DEFAULT_WAIT, replace_file, require_folder_of
from trafficdp.config.document import store_and_key
from trafficdp.config.file import load_config
from trafficdp.config.map import with_accounting, with_mechanism
from trafficdp.config.settings import Config
from trafficdp.engine.reduced import Spark
from trafficdp.errors import UsageError, integer_between
from trafficdp.export import notebook, site, write
from trafficdp.export.report import change_files, pooled_map, report
from trafficdp.ingest.report import FileReport
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.mechanisms.per_statistic_map import mechanism_named
from trafficdp.model import Counts, Grid, SlotKind, Statistic
from trafficdp.planner.allocation import WidthGoal
from trafficdp.planner.suggest import half_width_of
from trafficdp.privacy.budget import ChangedFact
from trafficdp.privacy.ledger import LedgerRow
from trafficdp.privacy.loss import Loss
from trafficdp.release import intake, results, verification
from trafficdp.release.curator import Curator
from trafficdp.release.knowledge import earlier_release
from trafficdp.release.planning import LookedAt, Planning, uninformative_plan_error
from trafficdp.release.publication import folder_of
from trafficdp.release.recomputation import Check, guaranteed_csv
from trafficdp.release.results import IngestedFile, Plan, PlanQuestion, ReleasedMap, UndoneFile
from trafficdp.release.status import Status, create_store, read_status
from trafficdp.release.stream_verification import verify_stream
from trafficdp.release.streaming import LiveStream, newest_release
from trafficdp.store import store_files, vault_fixes, vault_ledger, vault_releases
from trafficdp.store.analyst import DEFAULT_TIMEOUT, AnalystSession
from trafficdp.store.store_files import RELEASED_NAME, Head, store_lock
from trafficdp.store.vault import Vault, database_in

if TYPE_CHECKING:
    from trafficdp.query.answer import Answered, Explanation

LARGEST_MIN_VEHICLES = 10**9


class Workspace:
    """A city's configuration, store and key. Every call takes the store's lock by itself.

    ``wait`` is how many seconds to wait for another process. ``progress`` is asked for a bar per file.
    """

    def __init__(
        self, config: Config, store: Path, key_file: Path, *, wait: float, progress: intake.Progress | None
    ) -> None:
        self.config = config
        self.store = store
        self.key_file = key_file
        self._wait = wait
        self._progress = progress

    def __repr__(self) -> str:
        return f"<workspace of {self.config.city.name}: {self.store}>"

    def _repr_html_(self) -> str:
        city, grid, policy = self.config.city, self.config.grid, self.config.policy
        loss = "" if self.config.loss is None else f"{policy.kind.quantity} {self.config.loss} a release; "
        rows = {
            "store": str(self.store),
            "period": f"{grid.period.first} to {grid.period.last}, {grid.period.time_zone}",
            "map": ", ".join(each.value.replace("_", " ") for each in self.config.map.statistics)
            + f"; {grid.in_words()}; "
            f"slot {grid.slot_kind.value.replace('_', ' ')}",
            "budget": f"{loss}{policy.kind.quantity} {policy.total} a vehicle for all of them",
            "sources": ", ".join(source.name for source in self.config.sources),
        }
        return notebook.card(f"{city.name}, published by {city.publisher}", [*rows.items()])

    def with_map(
        self,
        *,
        resolution: int | None = None,
        slot_kind: SlotKind | str | None = None,
        min_vehicles: int | None = None,
        mechanism: str | Mapping[Statistic, str] | None = None,
        accounting: str | None = None,
    ) -> Workspace:
        """Return the same city, store, key and budget with another map; what is not given stays.

        This is how a suggestion of ``plan`` is followed. Nothing is read or written. ``mechanism`` is
        "baseline", "auto" or a name of the registry, for all statistics or for each of those it names;
        ``accounting`` is "best" or the accounting of the baseline by name.
        Raises UsageError for a resolution outside 0 to 15, an unknown slot or accounting, ``min_vehicles``
        below 1 and a mechanism that is unknown, cannot estimate its statistic or has no exact sampler.
        """
        if min_vehicles or mechanism or accounting:
            self.config.require_public_counts(
                "min_vehicles, mechanism or accounting",
                "leave it out: one mechanism makes the map, every hexagon gets a number, and one of which "
                "nothing is known is marked",
            )
        grid, settings, kind = self.config.grid, self.config.map, self.config.policy.kind
        if resolution is not None:
            grid, settings = grid.with_resolution(resolution), replace(settings, adaptive=None)
        if slot_kind is not None:
            known = [kind.value for kind in SlotKind]
            if slot_kind not in known:
                raise UsageError("unknown slot", got=repr(str(slot_kind)), expected=", ".join(known))
            grid = replace(grid, slot_kind=SlotKind(slot_kind))
        if min_vehicles is not None:
            integer_between(1, LARGEST_MIN_VEHICLES, min_vehicles=min_vehicles)
            settings = replace(settings, min_vehicles=min_vehicles)
        if mechanism is not None:
            settings = with_mechanism(settings, mechanism, kind)
        if accounting is not None:
            settings = with_accounting(settings, accounting, kind, instead_of_auto=mechanism is None)
        config = replace(self.config, grid=grid, map=settings)
        return Workspace(config, self.store, self.key_file, wait=self._wait, progress=self._progress)

    def ingest(
        self,
        given: object,
        *,
        source: str | None = None,
        dry_run: bool = False,
        engine: str | Spark = "duckdb",
    ) -> list[IngestedFile]:
        """Read records into the vault: all of a call or none. The data gets a new name, whatever was read.

        A record whose vehicle and instant are there already is left out. ``given`` is a path, a frame or a
        list of them; a frame is one of pandas, polars or Arrow, a DuckDB relation, or a GeoDataFrame of
        points in any reference system. ``source`` names the [[source]] that says what its columns mean;
        without it a path is read by the first whose pattern fits, a frame by the only one there is.

        ``engine`` "spark", or a ``Spark``, reduces on a cluster and imports; "reduced" imports only. With
        ``dry_run`` everything is read and checked and nothing is written. Speeds that do not fit the declared
        unit are in the report. Raises DataError when a file cannot be read as declared; then nothing of the
        call is kept.
        """
        if engine != "duckdb":
            cluster = intake.Cluster(self.config, self.key_file, self.store)
            folder = cluster.jobs(engine, given, source, dry_run=dry_run)
            with self._curator("ingest") as curator:
                imported = cluster.import_jobs(curator.vault, folder)
                curator.write_head()
                return imported
        key = VehicleKey.load(self.key_file)
        with self._curator("ingest", recover=not dry_run) as curator:
            taking = intake.Intake(curator.vault, self.config, key, dry_run, self._progress)
            done = taking.ingest_all_or_none(given, source)
            if not dry_run:
                curator.write_head()
            return done

    def undo_ingest(self, files: str | Path | Sequence[str | Path]) -> list[UndoneFile]:
        """Remove the records that ``files`` (names) brought, as long as no release has used them.

        A file that was read several times loses its newest reading. The data gets a new name. Raises
        UsageError, and then changes nothing, for an unknown file and one that a release was made of.
        """
        names = [files] if isinstance(files, str | Path) else files
        with self._curator("ingest") as curator:
            return intake.undo(curator, [Path(each).name for each in names], datetime.now(UTC))

    def plan(
        self,
        loss: Loss | str | float | None = None,
        *,
        suggestions: bool = True,
        max_half_width: str | float | None = None,
        search_maps: bool | LookedAt = False,
        within_budget: bool = False,
        save: str | None = None,
        saved: str | None = None,
    ) -> Plan:
        """Return what a release would cost and give, from public counts. Nothing is spent.

        ``loss`` is the total, of the store's kind: None for the configured one. With ``max_half_width``
        ("5 km/h", "5 km/h in every bin", or a number in the unit of the speed bound, squared where only a
        variance is released) the plan is that of the least loss with intervals so narrow in the median bin,
        or in every one; with ``search_maps`` too (True, or a
        function that is told of every map that is tried), of the finest map that is so precise at ``loss``.
        ``within_budget`` takes the largest loss that every vehicle on the map can pay, if that is less.
        ``save`` keeps the plan, frozen, for ``release(plan=...)``; ``saved`` names one that was kept. See
        ``planning`` for what is raised.
        """
        searched = search_maps is not False
        width, goal = None, WidthGoal.MEDIAN
        if max_half_width is not None:
            width, goal = half_width_of(max_half_width, self.config.map.bound, self.config.map.statistics)
        question = PlanQuestion(width, goal, searched, within_budget, suggestions, saved)
        if save is not None:
            store_files.checked_plan_name(save)
        looked_at = None if isinstance(search_maps, bool) else search_maps
        asked = self.config.requested_loss(loss)
        with self._curator("plan") as curator:
            planning = Planning(curator, self.config, looked_at)
            plan = planning.plan(asked, question)
            if save is not None:
                planning.save(save, plan)
            version = vault_fixes.data_version(curator.vault)
            earlier = earlier_release(curator, version, plan.grid, plan.allocation)
            return replace(plan, earlier_release=earlier)

    def counts(self, grid: Grid | None = None) -> Counts:
        """Return the public counts of records by (bin, vehicle) on ``grid`` or the configured one; no speed.

        Where nothing about a vehicle is public: of one possible vehicle in every declared bin.
        """
        self.config.require_public_counts(
            "a table of counts",
            "ask for noisy ones, with [map] publish_counts = true or by a priced question (COUNT(*))",
        )
        with self._curator("plan") as curator:
            version = vault_fixes.data_version(curator.vault)
            return curator.counted(grid or self.config.grid, self.config.map.bound, version).counts

    def release(
        self,
        loss: Loss | str | float | None = None,
        *,
        force: bool = False,
        within_budget: bool = False,
        plan: str | None = None,
        allow_idealised_noise: str | None = None,
        again: bool = False,
    ) -> ReleasedMap:
        """Charge every vehicle, draw the noise and publish a release; return it.

        ``loss`` and ``within_budget`` are as for ``plan``. ``plan`` names a saved plan: its noise scales are
        used, and it is refused once the data has changed. ``allow_idealised_noise`` names a mechanism whose
        noise has no exact sampler: it then releases the statistics that it knows, and the manifest says so.
        Nothing else ever uses such a mechanism.

        The same question of the same data is answered by the release that answered it before, for nothing,
        unless ``again``. A release that an interrupted process began is finished, not charged again. Raises
        as ``Curator.release``.
        """
        if allow_idealised_noise is not None:
            return self.with_idealised_noise(allow_idealised_noise).release(
                loss, force=force, within_budget=within_budget, plan=plan, again=again
            )
        key = VehicleKey.load(self.key_file)
        with self._curator("release", recover=False) as curator:
            curator.vault.check_key(key.fingerprint)
            finished = curator.recover()
            question = PlanQuestion(within_budget=within_budget, suggestions=not force, saved=plan)
            planning = Planning(curator, self.config)
            planned = planning.plan(self.config.requested_loss(loss), question)
            version = planning.version
            earlier = earlier_release(curator, version, planned.grid, planned.allocation)
            if earlier is not None and (earlier in finished or not again):
                found, folder = curator.load(earlier), folder_of(self.store, earlier)
                return ReleasedMap(found, folder, planned.budget_left, is_reused=earlier not in finished)
            context = results.context_of(self.config, curator.vault, version, planned.grid, datetime.now(UTC))
            contributions = curator.counted(planned.grid, self.config.map.bound, version)
            # what cannot be paid is said first: no other map of this loss would help
            loss_per_user = planned.allocation.event.loss_per_user
            vault_ledger.require_budget(
                curator.vault, contributions.vehicle, loss_per_user, self.config.policy, context.created_at
            )
            if planned.verdict.refused and not force:
                raise uninformative_plan_error(planned)
            release = curator.release(
                planned.allocation,
                contributions,
                self.config.promise,
                context,
                force=force,
            )
            return ReleasedMap(release, folder_of(self.store, release.id), planned.left_after)

    def with_idealised_noise(self, mechanism: str) -> Workspace:
        """Return this workspace with ``mechanism`` for the statistics that it knows, exact sampler or not."""
        self.config.require_public_counts(
            "a mechanism by name", "leave it out: one mechanism, with exact noise, makes the map"
        )
        settings, kind = self.config.map, self.config.policy.kind
        known = mechanism_named(mechanism, kind).statistics
        named = {statistic: mechanism for statistic in settings.statistics if statistic in known}
        if not named:
            raise UsageError(
                f"{mechanism} knows none of the statistics of this map",
                got=", ".join(statistic.value for statistic in settings.statistics),
                expected=", ".join(statistic.value for statistic in known),
            )
        config = replace(self.config, map=with_mechanism(settings, named, kind, allow_idealised=True))
        return Workspace(config, self.store, self.key_file, wait=self._wait, progress=self._progress)

    def ask(
        self,
        text: str,
        *,
        analyst: str | None = None,
        files: Sequence[str | Path] = (),
        timeout: float = DEFAULT_TIMEOUT,
    ) -> Answered | Explanation:
        """Answer any SQL on released maps, for nothing, and SELECT WITH DIFFERENTIAL_PRIVACY ... at a price.

        The latter is charged to ``analyst`` (a name of [[analysts]]) and to the vehicles like any release,
        once: the same question of the same data again costs nothing, however its answer is arranged, and
        EXPLAIN tells the price. ``files`` (CSV, Parquet, JSON) are tables of their names for both, and
        DuckDB may take ``timeout`` seconds. Raises as ``query.priced_query`` and ``store.analyst``.
        """
        # the parser takes a moment to load: only those who ask wait for it
        from trafficdp.query.answer import query_released_maps
        from trafficdp.query.priced_query import PricedQuery
        from trafficdp.query.recognise import is_priced

        own = [Path(file) for file in files]
        if not is_priced(text):
            nothing, zones = type(self.config.policy.total)(0), self.config.grid.zones
            return query_released_maps(self.store, text, nothing, zones, own)
        query = PricedQuery.of(text, self.config, analyst, self.store)
        key = VehicleKey.load(self.key_file)
        released = self.store / RELEASED_NAME
        with (
            AnalystSession(released if released.exists() else None, timeout=timeout, files=own) as session,
            self._curator("sql") as curator,
        ):
            curator.vault.check_key(key.fingerprint)
            return query.answer(curator, datetime.now(UTC), session)

    def releases(self) -> list[results.ReleaseSummary]:
        """Return a summary of every charged release, in order."""
        with self._curator("releases") as curator:
            return results.summaries(curator, self.store)

    def map(self, release_id: str) -> ReleasedMap:
        """Return a published release, or the newest publication of a stream."""
        with self._curator("export") as curator:
            if release_id.startswith("s"):
                newest = newest_release(curator, release_id)
                return ReleasedMap(newest, folder_of(self.store, release_id))
            if vault_releases.release_named(curator.vault, release_id).withdrawn:
                raise UsageError("this release was withdrawn", got=release_id)
            return ReleasedMap(curator.load(release_id), folder_of(self.store, release_id))

    def export(self, release_id: str, format: str, path: str | Path) -> Path:
        """Write a release as one of ``export.write.FORMATS``, such as "geojson"; return path.

        As "guaranteed": where nothing about a vehicle is public the sets that a theorem guarantees, as CSV
        for reviewers (``release.recomputation.guaranteed_csv``). Raises UsageError where counts are public.
        """
        own = self.map(release_id)
        if format == write.GUARANTEED:
            require_folder_of(Path(path))
            replace_file(Path(path), guaranteed_csv(own.folder))
        else:
            write.export(own.release, format, Path(path))
        return Path(path)

    def city_report(self, release_id: str, path: str | Path, *, against: str | None = None) -> Path:
        """Write the report on a release for the public, as .html or .pdf; return the path.

        It costs no budget.

        ``against`` names an earlier release: then the report says what changed.
        """
        earlier = None if against is None else self.map(against).release
        report.write_report(self.map(release_id).release, Path(path), earlier=earlier)
        return Path(path)

    def changes(self, earlier: str, later: str) -> change_files.ChangeTable:
        """Return what changed from release ``earlier`` to release ``later``, by bin. It costs no budget.

        Raises UsageError for two that do not measure the same thing.
        """
        return change_files.ChangeTable.of(self.map(later).release, self.map(earlier).release)

    def pool(self, releases: Sequence[str]) -> pooled_map.PooledMap:
        """Return one map of the mean speed over the periods of ``releases``. It costs no budget.

        Releases that one of them started from are read too, so that nothing counts twice. Raises UsageError
        for releases that do not measure the same thing, or of overlapping periods.
        """
        own = [self.map(each).release for each in dict.fromkeys(releases)]
        known = {name for each in own for name, _ in pooled_map.started_from(each)}
        known -= {each.id for each in own}
        return pooled_map.PooledMap.of(own, [self.map(each).release for each in sorted(known)])

    def site(self, folder: str | Path, *, answers: bool = False) -> list[str]:
        """Write a web site of all releases into ``folder``; return the names of the files that changed.

        ``answers``: also the answers to analysts' questions. It costs no budget.
        """
        with self._curator("site") as curator:
            published, withdrawn = results.site_releases(curator, self.store, answers)
            config = self.config
            city = site.SiteCity(config.city.name, config.city.publisher, config.catalogue)
            return site.write_site(Path(folder), city, published, withdrawn)

    def withdraw(self, release_id: str) -> None:
        """Withdraw a release: its files and rows are removed, its charge stays spent."""
        with self._curator("withdraw") as curator:
            curator.withdraw(release_id, datetime.now(UTC))

    def forget(self, identifiers: Sequence[str]) -> intake.Forgotten:
        """Remove all records of the vehicles with these ``identifiers`` from the vault; return counts.

        What is published stays, and so do charges. See ``release.intake.forget``.
        """
        namespaces = [each.namespace for each in self.config.sources]
        return intake.forget(
            self.store, self.key_file, identifiers, namespaces, datetime.now(UTC), wait=self._wait
        )

    def raise_budget(self, reason: str) -> tuple[ChangedFact, ...]:
        """Make the configured budgets, delta, speed bound and analysts the store's promise; return changes.

        They may be higher or lower than before. ``reason`` is published with every later release. The
        neighbouring relation and the kind of loss never change.
        """
        key = VehicleKey.load(self.key_file)
        with self._curator("budget", recover=False, other_promise=True) as curator:
            curator.vault.check_key(key.fingerprint)
            curator.recover()
            return curator.change_promise(self.config.promise, reason, datetime.now(UTC))

    def verify(self, release_id: str) -> list[Check]:
        """Recompute a release or a stream from the vault and its files; return every check and its outcome.

        See ``release.verification`` and ``release.stream_verification``.
        """
        with self._curator("verify") as curator:
            if release_id.startswith("s"):
                return verify_stream(curator, release_id)
            return verification.verify(curator, release_id)

    def live(self, *, again: bool = False) -> LiveStream:
        """Return the stream that [stream] of the configuration declares, to be begun or continued.

        ``again``: another one, charged again, where the same is over. See ``release.streaming``.
        """
        key = VehicleKey.load(self.key_file)
        return LiveStream(self.config, self.store, key, self._curator, again=again)

    def ledger(self) -> list[LedgerRow]:
        """Return all entries of the ledger, in order; their chain of hashes is checked."""
        with self._curator("ledger") as curator:
            return vault_ledger.ledger_rows(curator.vault)

    def reports(self) -> list[FileReport]:
        """Return the ingest reports, in order. They lie outside the guarantee: never publish them."""
        with self._curator("status") as curator:
            return [FileReport.from_json(each.report) for each in vault_fixes.ingested_files(curator.vault)]

    def reports_with_few_rows_kept(self) -> list[FileReport]:
        """Return the ingest reports of files since the newest release of which few rows were kept.

        Outside the privacy guarantee; see ``release.intake.reports_with_few_rows_kept``.
        """
        with self._curator("status") as curator:
            return intake.reports_with_few_rows_kept(curator)

    def status(self) -> Status:
        """Return what the store holds and how much budget is spent. For the curator's eyes."""
        return read_status(self.config, self.store, wait=self._wait)

    @contextmanager
    def _curator(
        self, purpose: str, *, recover: bool = True, other_promise: bool = False
    ) -> Iterator[Curator]:
        """Open the store under its lock for a block; ``purpose`` is what others are told.

        Raises StoreUnavailableError when there is none or, after a wait, while another holds it.
        """
        database_in(self.store, must_exist=True)
        with (
            store_lock(self.store, purpose=purpose, wait=self._wait),
            Vault.open(self.store) as vault,
        ):
            curator = Curator(self.store, vault, Head(self.key_file, vault.store_id))
            if not other_promise:
                vault_ledger.require_promise(vault, self.config.promise)
            if recover:
                curator.recover()
            yield curator


def open_workspace(
    config: str | Path = "trafficdp.toml",
    *,
    store: str | Path | None = None,
    create: bool = False,
    wait: float = DEFAULT_WAIT,
    progress: intake.Progress | None = None,
) -> Workspace:
    """Return the workspace of a configuration file. ``create`` makes store and key if there are none.

    The store is ``store``, else the configuration's, else ``city.store`` beside the configuration; the
    key is the configuration's ``key_file``, else STORE.key beside the store, never inside it.
    """
    settings = load_config(Path(config))
    given = None if store is None else Path(store)
    folder, key_file = store_and_key(Path(config), given, settings.store, settings.key_file)
    workspace = Workspace(settings, folder, key_file, wait=wait, progress=progress)
    if create:
        create_store(folder, key_file, wait=wait, only_if_missing=True)
    return workspace
