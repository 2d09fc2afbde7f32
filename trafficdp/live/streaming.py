"""The door of a stream: charge once, take what arrives, commit, publish. Nothing lost, nothing counted twice.

1. The stream's epsilon is entered in the ledger, once, before the first record is read; every vehicle that
   will ever be in it is charged it in the transaction that holds its first accepted record.
2. A batch of records and everything that follows from it - sums with their drawn noise, accounts, counts, how
   far its file was read, ledger entries and values of the steps that it closed - is one transaction.
3. Only then are files and `released.duckdb` renewed, from the committed values.

So a process that dies at any instant left either all of a batch or nothing of it. The next one goes on where
the last committed batch ended, and publishes what was committed: no record is read twice, no noise that
anybody has seen is drawn again, nothing is charged twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from trafficdp.binning.slots import slots_of
from trafficdp.config.settings import Config
from trafficdp.config.source import declaration_json
from trafficdp.config.stream import StreamSettings
from trafficdp.context.read import read_context
from trafficdp.errors import ConfigError, InsufficientBudgetError, UsageError
from trafficdp.export.files.columns import FileFacts
from trafficdp.export.files.manifest import build_manifest
from trafficdp.export.write import MANIFEST
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.live.files import Arrival, Reader, in_order_of_time
from trafficdp.live.placing import place_newest, placed
from trafficdp.live.specification import StreamSpecification, next_digest, release_of
from trafficdp.model import SourceDeclaration, Statistic
from trafficdp.noise.protocol import new_token
from trafficdp.noise.source import SecureNoise
from trafficdp.privacy.budget import BudgetPolicy, left
from trafficdp.privacy.ledger import GENESIS, LedgerRow
from trafficdp.privacy.loss import PureDP
from trafficdp.privacy.release import LedgerReference, encode
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of
from trafficdp.store import vault_ledger, vault_releases
from trafficdp.stream.horizon import Horizon
from trafficdp.stream.service import FATES, Batch, Closed, Stream

SAID = (Statistic.MEAN, Statistic.VARIANCE)
"""What a stream can say."""


def charged_stream(
    curator: Curator, config: Config, *, again: bool, reached: Callable[[str], None]
) -> tuple[vault_releases.StoredStream, StreamSpecification]:
    """Return the running stream of ``config``, charged now if there is none.

    Every vehicle will lose the stream's epsilon, but only when its first record is taken: until then it has a
    row in no account. Vehicles that cannot pay it are left out of the stream.

    Raises UsageError when a stream with another configuration runs, or one that asked the same is over
    (unless ``again``); ConfigError for what cannot be streamed; InsufficientBudgetError when not even a
    vehicle that has spent nothing could pay.
    """
    wanted = wanted_specification(curator, config)
    for stored in reversed(vault_releases.all_streams(curator.vault)):
        specification = StreamSpecification.from_json(stored.facts)
        same = specification.same_question(wanted)
        if not stored.ended:
            if not same:
                raise UsageError(
                    f"the stream {stored.release_id} is running under another configuration",
                    expected="the configuration that it was charged under",
                    todo="restore it, or end the stream with `trafficdp stream --end`",
                )
            return stored, specification
        if same and not again:
            raise UsageError(
                f"the stream {stored.release_id} asked just this, and is over",
                todo="begin another, which charges every vehicle again, with --again",
            )
    _rehearse(wanted)
    with curator.vault.transaction("charging the stream"):
        promise = vault_ledger.settle_promise(curator.vault, config.promise, datetime.now(UTC))
        _check_budget(curator, promise.policy, wanted.epsilon, wanted.created_at)
        vault_releases.make_tables(curator.vault)
        text = wanted.to_json()
        entry = vault_ledger.add_entry(
            curator.vault,
            {
                "kind": "stream",
                "release": wanted.release_id,
                "at": wanted.created_at.isoformat(),
                "epsilon_pico": wanted.epsilon.pico,
                "specification_sha256": hashlib.sha256(text.encode()).hexdigest(),
            },
        )
        vault_releases.add_stream(curator.vault, wanted.release_id, entry.sequence, text)
    reached("charged")
    curator.head.write(entry)
    return vault_releases.stream_named(curator.vault, wanted.release_id), wanted


def running_stream(curator: Curator) -> tuple[vault_releases.StoredStream, StreamSpecification]:
    """Return the stream that runs, whatever the configuration says; raise UsageError when there is none."""
    for stored in vault_releases.all_streams(curator.vault):
        if not stored.ended:
            return stored, StreamSpecification.from_json(stored.facts)
    raise UsageError("no stream is running", todo="begin one with `trafficdp stream FOLDER`")


def wanted_specification(curator: Curator, config: Config) -> StreamSpecification:
    """Return the specification of a stream that ``config`` would charge now; raises as ``charged_stream``."""
    vault, (settings, epsilon) = curator.vault, _settings(config)
    at = datetime.now(UTC).replace(microsecond=0)
    _check_budget(curator, config.policy, epsilon, at)
    horizon = Horizon.of(config.grid, settings.publish_every, settings.lateness)
    return StreamSpecification(
        release_id=f"s{len(vault_releases.all_streams(vault)) + 1:04d}",
        created_at=at,
        publisher=config.city.publisher,
        place=config.city.name,
        grid=replace(config.grid, context=read_context(config.context, config.grid.area)),
        bound=config.bound,
        display_unit=config.map.display_unit,
        statistics=tuple(each for each in SAID if each in config.map.statistics),
        interval_level=config.map.interval_level,
        min_vehicles=config.map.min_vehicles,
        publish_counts=config.map.publish_counts,
        epsilon=epsilon,
        budget=config.budget,
        spent_before=PureDP(vault_ledger.totals(vault).sum_of_maxima),
        settings=settings,
        horizon=horizon,
        tree=horizon.tree(),
        budget_changes=vault_ledger.promise_changes(vault),
        catalogue=config.catalogue,
        sources=tuple(
            (
                source.name,
                declaration_json(source),
                "mixed" if source.missing_speed == "derive" else "reported",
            )
            for source in config.sources
        ),
    )


def _settings(config: Config) -> tuple[StreamSettings, PureDP]:
    """The settings, and the epsilon; raises ConfigError for what cannot be streamed."""
    settings = config.stream
    if settings is None:
        raise ConfigError(
            "[stream] is missing",
            expected="publish_every and records_per_vehicle",
            todo="add the table [stream] to the configuration file",
        )
    epsilon = settings.epsilon or config.loss
    if not isinstance(epsilon, PureDP):
        raise ConfigError("[stream] epsilon is missing", expected="a number above 0", todo="set it")
    if not set(config.map.statistics) <= set(SAID):
        raise ConfigError(
            "[map] statistics cannot be streamed",
            got=", ".join(each.value for each in config.map.statistics),
            expected=", ".join(each.value for each in SAID),
        )
    if config.grid.zones is not None:
        raise ConfigError(
            "a stream has hexagons",
            got="[map] zones",
            todo="give [map] resolution instead, in a file of its own",
        )
    if not config.grid.selection.everything:
        raise ConfigError("a stream covers the whole study area and period", got="a selection of them")
    if not config.sources:
        raise ConfigError("no source is declared", todo="add a [[source]]")
    return settings.model_copy(update={"epsilon": epsilon}), epsilon


def _check_budget(curator: Curator, policy: BudgetPolicy, epsilon: PureDP, at: datetime) -> None:
    nobody = np.zeros(1, dtype=np.int64)
    windows = policy.windows(at)
    could = PureDP(int(left(windows, [nobody] * len(windows))[0]))
    if epsilon > could:
        raise InsufficientBudgetError(remaining=could.epsilon, requested=epsilon.epsilon)
    # no vehicle yet: this looks at the clock
    vault_ledger.require_budget(curator.vault, nobody[:0], nobody[:0], policy, at)


def _rehearse(specification: StreamSpecification) -> None:
    """Raise before the charge what would fail after it: a publication of two records of speed 0."""
    one = np.ones(1, dtype=np.int64)
    grid = specification.grid
    instant = specification.horizon.origin_us * one
    closed = Closed(
        step=0,
        journal={},
        cell=_SOME_CELL * one,
        slot=slots_of(instant, grid.slot_kind, grid.period.time_zone, grid.day_parts),
        records=2 * one,
        vehicles=specification.min_vehicles * one,
        sums=np.zeros((1, specification.empty_stream().bank.levels), dtype=np.int64),
        terms=one,
    )
    release = release_of(specification, closed, 1, LedgerReference(1, GENESIS), GENESIS)
    build_manifest(release, {MANIFEST: FileFacts(MANIFEST, GENESIS, 1, ())})
    encode(release)


_SOME_CELL = int("8928308280fffff", 16)
BOUNDARIES = ("charged", "batch taken", "batch committed", "head written", "files placed")
"""The named instants of a stream, in order. Tests die at each of them."""
PAGE_SECONDS = 30
"""How often the live page asks for a newer map."""


def reached(boundary: str) -> None:
    """Do nothing. Called at every one of BOUNDARIES."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a stream stands. ``fates`` counts records by what became of them; for the curator's eyes."""

    release_id: str
    publications: int
    as_of: datetime | None
    fates: dict[str, int]
    folder: Path
    ended: bool


@dataclass
class _Running:
    """A stream in memory, as of ``generation`` batches in the vault."""

    specification: StreamSpecification
    charge: LedgerReference
    reader: Reader
    placed: int
    stream: Stream | None = None
    generation: int = -1
    digest: str = GENESIS
    kept: tuple[int, ...] = ()


class LiveStream:
    """The one stream of a store that is running. Every call takes the store's lock by itself.

    ``curators`` opens the store that ``key`` belongs to. ``again`` begins another stream, with a charge of
    its own, where one that asked the same is over.
    """

    def __init__(
        self,
        config: Config,
        store: Path,
        key: VehicleKey,
        curators: Callable[[str], AbstractContextManager[Curator]],
        *,
        again: bool = False,
    ) -> None:
        config.require_public_counts(
            "a stream", "ingest as files come, and release a map now and then, each at a part of the budget"
        )
        self._config, self._store, self.key, self._curators, self._again = config, store, key, curators, again
        self._running: _Running | None = None

    def begin(self) -> Progress:
        """Charge the stream, or go on with the one that is charged; place what was committed before.

        Raises as ``charge.charged_stream``.
        """
        with self._curators("stream") as curator:
            self._open(curator)
            self._place(curator)
            return self._progress(curator)

    @property
    def specification(self) -> StreamSpecification:
        """What the stream was charged for."""
        return self._state.specification

    @property
    def over_at(self) -> datetime:
        """From when on no record can count any more: the end of the last step, and the lateness."""
        horizon = self.specification.horizon
        return self.specification.as_of(horizon.steps - 1) + timedelta(microseconds=horizon.lateness_us)

    def read(self, path: Path | InputFile, digest: str, source: SourceDeclaration | None = None) -> Arrival:
        """Read a file as the stream's configuration declares it; nothing is written."""
        return self._state.reader.read(path, digest, source)

    def met(self, digest: str) -> bool:
        """Return whether the file of this digest was taken to its end."""
        with self._curators("stream") as curator:
            return self._met(curator, digest)

    def take(self, arrivals: Sequence[Arrival], *, live: bool) -> Progress:
        """Take files one after another, then publish; a file that was taken before changes nothing.

        ``live``: records ahead of the wall clock are left out.
        """
        with self._curators("stream") as curator:
            self._open(curator)
            for arrival in arrivals:
                if not self._met(curator, arrival.digest):
                    batch, file = self._begin_file(curator, [arrival], arrival.digest)
                    self._take(curator, batch, file, len(batch), live=live)
            self._place(curator)
            return self._progress(curator)

    def replay(
        self,
        arrivals: Sequence[Arrival],
        due_us: Callable[[int], int | None],
        wait: Callable[[], None],
        tell: Callable[[Progress], None],
    ) -> None:
        """Play files in the order of their instants.

        ``due_us`` is given the first instant and says up to when records are due now (None: all of them);
        where none is, ``wait`` is called with the store free for others. ``tell`` hears of every stretch. A
        replay of the same files that was interrupted goes on where it was.
        """
        digest = self.key.digest("\n".join(each.digest for each in arrivals))
        with self._curators("stream") as curator:
            self._open(curator)
            batch, file = self._begin_file(curator, arrivals, digest)
        batch = in_order_of_time(batch)
        while not file.done:
            due = due_us(int(batch.time_us[0])) if len(batch) else None
            stop = len(batch) if due is None else int(np.searchsorted(batch.time_us, due, side="right"))
            if stop <= file.rows_taken and stop < len(batch):
                wait()
                continue
            with self._curators("stream") as curator:
                self._open(curator)
                file = self._take(curator, batch, file, stop, live=False)
                self._place(curator)
                tell(self._progress(curator))

    def end(self) -> Progress:
        """Publish the steps that are still open and end the stream: nothing can be added afterwards.

        Ends whatever stream runs, under whatever configuration. Raises UsageError when none does; to end
        again the one that this object ended changes nothing.
        """
        with self._curators("stream") as curator:
            self._open(curator, running=True)
            if self._ended(curator):
                return self._progress(curator)
            with self._unmaking():
                closings = []
                while self._stream.due(everything=True):
                    closed = self._stream.close(self._noise())
                    closings += [] if closed is None else [closed]
                self._commit(curator, closings, None, ended=True)
            self._place(curator)
            return self._progress(curator)

    def _noise(self) -> SecureNoise:
        return SecureNoise()

    @property
    def _state(self) -> _Running:
        if self._running is None:
            raise UsageError("the stream has not begun", todo="call begin first")
        return self._running

    @property
    def _stream(self) -> Stream:
        stream = self._state.stream
        if stream is None:
            raise UsageError("the stream is not loaded", todo="call begin first")
        return stream

    def _open(self, curator: Curator, *, running: bool = False) -> None:
        """Have in memory what the vault has, loaded unless it is there already."""
        vault = curator.vault
        if self._running is None:
            vault.check_key(self.key.fingerprint)
            curator.check_not_behind()
            for each in vault_releases.all_streams(vault):
                # what a process that died had committed, and not yet placed
                before = placed(self._store, each.release_id)
                place_newest(curator, each.release_id, before, PAGE_SECONDS)
            if running:
                stored, frozen = running_stream(curator)
            else:
                stored, frozen = charged_stream(curator, self._config, again=self._again, reached=reached)
            charge = vault_ledger.Entries(vault)[stored.sequence - 1]
            self._running = _Running(
                specification=frozen,
                charge=LedgerReference(charge.sequence, charge.head_hash),
                reader=Reader(frozen, self._config.sources, self.key),
                placed=placed(self._store, frozen.release_id),
            )
        state = self._running
        if state.stream is None or state.generation != vault_releases.generation_of(
            vault, state.specification.release_id
        ):
            state.generation, parts = vault_releases.load_parts(vault, state.specification.release_id)
            state.stream = state.specification.stream_from(parts)
            state.digest = parts["kept"]["digest"].tobytes().decode() if parts else GENESIS
            state.kept = ()

    @contextmanager
    def _unmaking(self) -> Iterator[None]:
        """After an error, what memory holds may be ahead of the vault: it is loaded again."""
        try:
            yield
        except BaseException:
            self._state.stream = None
            raise

    def _ended(self, curator: Curator) -> bool:
        return vault_releases.stream_named(curator.vault, self.specification.release_id).ended

    def _met(self, curator: Curator, digest: str) -> bool:
        found = vault_releases.file_progress(curator.vault, self.specification.release_id, digest)
        return found is not None and found.done

    def _begin_file(
        self, curator: Curator, arrivals: Sequence[Arrival], digest: str
    ) -> tuple[Batch, vault_releases.FileProgress]:
        """Return all records of ``arrivals`` and how far they were taken; notes them as one file."""
        vault, name = curator.vault, self.specification.release_id
        if self._ended(curator):
            raise UsageError(f"the stream {name} is over", todo="nothing can be added to it")
        with vault.transaction("beginning a file"):
            file = vault_releases.file_progress(vault, name, digest)
            if file is None:
                reports = [json.loads(each.report) for each in arrivals]
                text = json.dumps(reports if len(reports) > 1 else reports[0], sort_keys=True)
                names = ", ".join(each.name for each in arrivals)
                file = vault_releases.begin_file(vault, name, names, digest, text, datetime.now(UTC))
            parts = [self._state.reader.batch(vault, each) for each in arrivals]
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS]
        return Batch(*columns), file

    def _take(
        self, curator: Curator, batch: Batch, file: vault_releases.FileProgress, stop: int, *, live: bool
    ) -> vault_releases.FileProgress:
        """Take the rows of ``batch`` from where the file stands up to ``stop``; return where it stands."""
        now_us = int(datetime.now(UTC).timestamp() * 1e6) if live else None
        part = Batch(*(getattr(batch, name)[:stop] for name in _COLUMNS))
        with self._unmaking():
            self._stream.meet(part.vehicle[file.rows_taken :])
            self._permit(curator)
            while True:
                row = self._stream.take(part, file.rows_taken, now_us)
                closings = []
                while self._stream.due():
                    closed = self._stream.close(self._noise())
                    closings += [] if closed is None else [closed]
                reached("batch taken")
                file = replace(file, rows_taken=row, done=row == len(batch))
                self._commit(curator, closings, file)
                if row >= stop:
                    return file

    def _permit(self, curator: Curator) -> None:
        """Say who can pay, by what other releases have left every vehicle."""
        windows = vault_ledger.promised_entry(curator.vault).policy.windows(self.specification.created_at)
        spent = vault_ledger.spent_in(curator.vault, self._stream.vehicles.keys, windows)
        self._stream.permit(left(windows, spent) >= self.specification.epsilon.pico)

    def _commit(
        self,
        curator: Curator,
        closings: Sequence[Closed],
        file: vault_releases.FileProgress | None,
        *,
        ended: bool = False,
    ) -> None:
        state, stream, vault = self._state, self._stream, curator.vault
        name, entry = state.specification.release_id, None
        with vault.transaction("keeping the stream"):
            new = np.sort(stream.charge())
            loss = np.full(len(new), state.specification.epsilon.pico, dtype=np.int64)
            vault_ledger.add_charges(vault, state.charge.sequence, new, loss)
            for closed in closings:
                entry = self._add_publication(curator, closed)
            if ended:
                facts = {"kind": "stream_end", "release": name, "at": _now()}
                entry = vault_ledger.add_entry(vault, facts)
                vault_releases.end_stream(vault, name)
            state.generation += 1
            opened, kept = stream.state()
            vault_releases.save_part(vault, name, "opened", state.generation, opened)
            signature = (len(stream.vehicles), len(stream.bins), stream.closed, int(stream.charged.sum()))
            if signature != state.kept:
                digest = np.frombuffer(state.digest.encode(), dtype=np.uint8)
                vault_releases.save_part(vault, name, "kept", state.generation, {**kept, "digest": digest})
            if file is not None:
                vault_releases.advance_file(vault, name, file)
        state.kept = signature
        reached("batch committed")
        if entry is not None:
            curator.head.write(entry)
            reached("head written")

    def _add_publication(self, curator: Curator, closed: Closed) -> LedgerRow:
        state, vault = self._state, curator.vault
        name = state.specification.release_id
        vault_releases.add_counts(vault, name, closed.step, closed.journal)
        state.digest = next_digest(state.digest, closed.step, closed.journal)
        number = vault_releases.newest_publication(vault, name) + 1
        facts, bins = encode(release_of(state.specification, closed, number, state.charge, new_token()))
        text = json.dumps(facts, allow_nan=False)
        stored = vault_releases.StoredPublication(name, number, 0, closed.step, text, bins)
        entry = vault_ledger.add_entry(
            vault,
            {
                "kind": "stream_publication",
                "release": name,
                "number": number,
                "step": closed.step,
                "at": _now(),
                "counts_sha256": state.digest,
                "values_sha256": stored.values_sha256,
            },
        )
        vault_releases.add_publication(vault, replace(stored, sequence=entry.sequence))
        return entry

    def _place(self, curator: Curator) -> None:
        state = self._state
        before, state.placed = (
            state.placed,
            place_newest(curator, state.specification.release_id, state.placed, PAGE_SECONDS),
        )
        if state.placed != before:
            reached("files placed")

    def _progress(self, curator: Curator) -> Progress:
        specification, stream = self.specification, self._stream
        return Progress(
            release_id=specification.release_id,
            publications=vault_releases.newest_publication(curator.vault, specification.release_id),
            as_of=specification.as_of(stream.closed - 1) if stream.closed else None,
            fates={name: int(count) for name, count in zip(FATES, stream.fates, strict=True)},
            folder=folder_of(self._store, specification.release_id),
            ended=self._ended(curator),
        )


_COLUMNS = ("vehicle", "time_us", "cell", "slot", "value")


def _now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()
