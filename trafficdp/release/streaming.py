"""A stream: charged once; then it takes what arrives, commits and publishes. Nothing is lost or repeated.

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

import json
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from trafficdp._durable import make_folder, new_token, sync_folder
from trafficdp.config.settings import Config
from trafficdp.errors import DataError, StoreDamagedError, UsageError
from trafficdp.export.write import write_live
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.mechanisms.running_sums import RunningSums
from trafficdp.model import SourceDeclaration
from trafficdp.noise.source import SecureNoise
from trafficdp.privacy.budget import remaining_loss
from trafficdp.privacy.ledger import GENESIS, LedgerRow
from trafficdp.privacy.release import LedgerReference, Release, encode
from trafficdp.release import feeds, stream_release
from trafficdp.release.curator import Curator
from trafficdp.release.publication import folder_of, manifests, publication_number, to_released_publication
from trafficdp.release.specification import Specification
from trafficdp.store import released, vault_ledger, vault_releases
from trafficdp.store.store_files import store_failures
from trafficdp.stream.service import FATES, Batch, ClosedStep, Stream

BOUNDARIES = ("charged", "batch taken", "batch committed", "head written", "files placed")
"""The named instants of a stream, in order. Tests die at each of them."""
PAGE_SECONDS = 30
"""How often the live page asks for a newer map."""


def failpoint(boundary: str) -> None:
    """Do nothing. Called with the name of every instant in BOUNDARIES, where tests end the process."""


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

    specification: Specification
    sums: RunningSums
    charge: LedgerReference
    reader: feeds.Reader
    placed: int
    stream: Stream
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
        """Charge the stream, or go on with one already charged; return how far it is.

        Publications that were committed but not written yet are written. Raises as
        ``stream_release.charged_stream``.
        """
        with self._curators("stream") as curator:
            self._open(curator)
            return self._place(curator)

    @property
    def specification(self) -> Specification:
        """The specification that the stream was charged for."""
        return self._state.specification

    @property
    def over_at(self) -> datetime:
        """The instant after which no record counts: the end of the last step plus the allowed lateness."""
        horizon = self._state.sums.horizon
        return horizon.end_of(horizon.steps - 1) + timedelta(microseconds=horizon.lateness_us)

    def read(
        self, path: Path | InputFile, digest: str, source: SourceDeclaration | None = None
    ) -> feeds.Arrival:
        """Read a file as the stream's configuration declares it; nothing is written."""
        return self._state.reader.read(path, digest, source)

    def has_taken(self, digest: str) -> bool:
        """Return whether the stream has taken the file with this ``digest`` to its end."""
        with self._curators("stream") as curator:
            return self._met(curator, digest)

    def ingest(self, arrivals: Sequence[feeds.Arrival], *, live: bool) -> Progress:
        """Take files one after another, then publish; a file that was taken before changes nothing.

        With ``live``, records ahead of the wall clock are left out.
        """
        with self._curators("stream") as curator:
            self._open(curator)
            for arrival in arrivals:
                if not self._met(curator, arrival.digest):
                    batch, file = self._begin_file(curator, [arrival], arrival.digest)
                    self._take(curator, batch, file, len(batch), live=live)
            return self._place(curator)

    def replay(
        self,
        arrivals: Sequence[feeds.Arrival],
        due_us: Callable[[int], int | None],
        tell: Callable[[Progress], None],
    ) -> None:
        """Play the records of files in order of time, publishing on the way.

        ``due_us`` gets the instant of the first record and returns up to which instant records are due now
        (None: all of them). ``tell`` is called with the progress after each part. A replay of the same files
        that was interrupted goes on where it was.
        """
        digest = self.key.digest("\n".join(each.digest for each in arrivals))
        with self._curators("stream") as curator:
            self._open(curator)
            batch, file = self._begin_file(curator, arrivals, digest)
        batch = batch.select(np.argsort(batch.time_us, kind="stable"))
        while not file.done:
            due = due_us(int(batch.time_us[0])) if len(batch) else None
            stop = len(batch) if due is None else int(np.searchsorted(batch.time_us, due, side="right"))
            if stop <= file.rows_taken and stop < len(batch):
                time.sleep(0.05)
                continue
            with self._curators("stream") as curator:
                self._open(curator)
                file = self._take(curator, batch, file, stop, live=False)
                tell(self._place(curator))

    def end(self) -> Progress:
        """Publish the steps that are still open and end the stream, which then takes no more records.

        Whatever its configuration. Raises UsageError when none runs; ending twice changes nothing.
        """
        with self._curators("stream") as curator:
            self._open(curator, running=True)
            if self._ended(curator):
                return self._progress(curator)
            with self._unmaking():
                self._commit(curator, self._close_steps(everything=True), None, ended=True)
            return self._place(curator)

    def _noise(self) -> SecureNoise:
        return SecureNoise()

    @property
    def _state(self) -> _Running:
        if self._running is None:
            raise UsageError("the stream has not begun", todo="call begin first")
        return self._running

    @property
    def _stream(self) -> Stream:
        return self._state.stream

    def _open(self, curator: Curator, *, running: bool = False) -> None:
        """Have in memory what the vault has, loaded unless it is there already."""
        vault = curator.vault
        if self._running is None:
            vault.check_key(self.key.fingerprint)
            curator.check_not_behind()
            streams = vault_releases.all_streams(vault)
            for each in streams:
                # what a process that died had committed, and not yet placed
                before = placed_publication_number(self._store, each.release_id)
                place_newest_publication(curator, each.release_id, before)
            stored = next((each for each in streams if not each.ended), None)
            if not running:
                stored = stream_release.charged_stream(
                    curator, self._config, again=self._again, failpoint=failpoint
                )
            if stored is None:
                raise UsageError("no stream is running", todo="begin one with `trafficdp stream FOLDER`")
            frozen = Specification.from_json(stored.facts)
            charge = vault_ledger.Entries(vault)[stored.sequence - 1]
            sums = stream_release.running_sums_of(frozen)
            self._running = _Running(
                specification=frozen,
                sums=sums,
                charge=LedgerReference(charge.sequence, charge.head_hash),
                reader=feeds.Reader(frozen.grid, sums, self._config.sources, self.key),
                placed=placed_publication_number(self._store, frozen.release_id),
                stream=sums.stream(),
            )
        state = self._running
        name = state.specification.release_id
        if state.generation != vault_releases.generation_of(vault, name):
            state.generation, parts = vault_releases.load_parts(vault, name)
            state.stream = stream_release.restored_stream(state.specification, parts)
            state.digest = parts["kept"]["digest"].tobytes().decode() if parts else GENESIS
            state.kept = ()

    @contextmanager
    def _unmaking(self) -> Iterator[None]:
        """After an error, what memory holds may be ahead of the vault: it is loaded again."""
        try:
            yield
        except BaseException:
            self._state.generation = -1
            raise

    def _ended(self, curator: Curator) -> bool:
        return vault_releases.stream_named(curator.vault, self.specification.release_id).ended

    def _met(self, curator: Curator, digest: str) -> bool:
        found = vault_releases.file_progress(curator.vault, self.specification.release_id, digest)
        return found is not None and found.done

    def _begin_file(
        self, curator: Curator, arrivals: Sequence[feeds.Arrival], digest: str
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
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return Batch(*map(np.concatenate, columns)), file

    def _take(
        self, curator: Curator, batch: Batch, file: vault_releases.FileProgress, stop: int, *, live: bool
    ) -> vault_releases.FileProgress:
        """Take the rows of ``batch`` from where the file stands up to ``stop``; return where it stands."""
        now_us = int(datetime.now(UTC).timestamp() * 1e6) if live else None
        part = batch.select(slice(stop))
        with self._unmaking():
            self._stream.open_accounts(part.vehicle[file.rows_taken :])
            # who can pay, by what other releases have left every vehicle
            vault, at = curator.vault, self.specification.created_at
            windows = vault_ledger.promise_in_force(vault).policy.windows(at)
            spent = [vault_ledger.spent(vault, self._stream.vehicles.keys, each) for each in windows]
            self._stream.set_can_pay(
                remaining_loss(windows, spent) >= self._state.sums.allowance.epsilon.pico
            )
            while True:
                row = self._stream.process(part, file.rows_taken, now_us)
                closings = self._close_steps()
                failpoint("batch taken")
                file = replace(file, rows_taken=row, done=row == len(batch))
                self._commit(curator, closings, file)
                if row >= stop:
                    return file

    def _close_steps(self, *, everything: bool = False) -> list[ClosedStep]:
        closings = []
        while self._stream.has_step_to_close(everything=everything):
            closings.append(self._stream.close_step(self._noise()))
        return [closed for closed in closings if closed is not None]

    def _commit(
        self,
        curator: Curator,
        closings: Sequence[ClosedStep],
        file: vault_releases.FileProgress | None,
        *,
        ended: bool = False,
    ) -> None:
        state, stream, vault = self._state, self._stream, curator.vault
        name, entry = state.specification.release_id, None
        with vault.transaction("keeping the stream"):
            new = np.sort(stream.mark_charged())
            loss = np.full(len(new), state.sums.allowance.epsilon.pico, dtype=np.int64)
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
        failpoint("batch committed")
        if entry is not None:
            curator.head.write(entry)
            failpoint("head written")

    def _add_publication(self, curator: Curator, closed: ClosedStep) -> LedgerRow:
        state, vault = self._state, curator.vault
        name = state.specification.release_id
        vault_releases.add_counts(vault, name, closed.step, closed.journal)
        state.digest = stream_release.next_digest(state.digest, closed.step, closed.journal)
        number = vault_releases.newest_publication(vault, name) + 1
        facts, bins = encode(
            stream_release.publication_of(state.specification, closed, number, state.charge, new_token())
        )
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

    def _place(self, curator: Curator) -> Progress:
        """Write what was committed and is not written yet; return how far the stream is."""
        state = self._state
        newest = place_newest_publication(curator, self.specification.release_id, state.placed)
        if newest != state.placed:
            state.placed = newest
            failpoint("files placed")
        return self._progress(curator)

    def _progress(self, curator: Curator) -> Progress:
        specification, stream = self.specification, self._stream
        return Progress(
            release_id=specification.release_id,
            publications=vault_releases.newest_publication(curator.vault, specification.release_id),
            as_of=self._state.sums.horizon.end_of(stream.closed - 1) if stream.closed else None,
            fates={name: int(count) for name, count in zip(FATES, stream.fates, strict=True)},
            folder=folder_of(self._store, specification.release_id),
            ended=self._ended(curator),
        )


def _now() -> str:
    return datetime.now(UTC).replace(microsecond=0).isoformat()


# Files of the newest publication, and what people look at.


def placed_publication_number(store: Path, release_id: str) -> int:
    """Return the number of the stream's publication whose files are in place, 0 when there are none.

    The manifest is written last, so the files that it names are there. Raises StoreDamagedError for a
    manifest that names no publication.
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


def place_newest_publication(curator: Curator, release_id: str, before: int) -> int:
    """Publish the stream's committed publications after number ``before``; return the newest number.

    They are added to `released.duckdb`, and the files are those of the newest. Leftovers of an interrupted
    process are removed.
    """
    folder = folder_of(curator.store, release_id)
    with store_failures("tidying the files of the stream"):
        for leftover in folder.glob(".*.partial") if folder.is_dir() else ():
            leftover.unlink(missing_ok=True)
    newest = vault_releases.newest_publication(curator.vault, release_id)
    if newest == before:
        return newest
    missing = [
        to_released_publication(each)
        for each in vault_releases.publications(curator.vault, release_id, before)
    ]
    if not released.append_publications(curator.store, missing):
        # it is not there, or does not hold just the ones before: all of it is written anew
        curator.apply_withdrawals()
    with store_failures("writing the files of the stream"):
        make_folder(folder.parent)
        make_folder(folder)
        sync_folder(folder.parent)
        sync_folder(curator.store)
    write_live(missing[-1].release, folder, PAGE_SECONDS)
    return newest


def newest_release(curator: Curator, release_id: str) -> Release:
    """Return the newest committed publication of a stream; raise UsageError when there is none."""
    name = vault_releases.stream_named(curator.vault, release_id).release_id
    number = vault_releases.newest_publication(curator.vault, name)
    if not number:
        raise UsageError("nothing was published of this stream yet", got=release_id)
    (stored,) = vault_releases.publications(curator.vault, release_id, number - 1)
    return to_released_publication(stored).release


LOOK_SECONDS = 1.0
SESSION_SECONDS = 5.0
"""How long the store is held for files that wait; then others get a turn."""
MOST_LINES = 20_000
LINE_SECONDS = 1.0
LINES = ("csv", "gtfs_rt_csv")
"""Formats that can be read as lines."""
_CHUNK = 1 << 20

Tell = Callable[[Progress], None]
Warn = Callable[[str], None]


def follow_folder(
    live: LiveStream, folder: Path, *, once: bool, stop: Callable[[], bool], tell: Tell, warn: Warn
) -> None:
    """Take files in ``folder`` into the stream as they arrive, by name, until ``stop`` returns True.

    With ``once`` only those that are there. ``tell`` is called with the progress, ``warn`` with a text for
    each file that cannot be read as declared and is passed over. Raises DataError when there is no such
    folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder", expected="a folder in which files arrive")
    watched = feeds.WatchedFolder(folder)
    while not stop():
        waiting = watched.arrived()
        deadline = time.monotonic() + SESSION_SECONDS
        arrivals, settled = [], []
        for path in waiting:
            stamp, digest = feeds.file_stamp(path), feeds.digest_of(path, live.key)
            settled.append((path, stamp))
            if digest is not None and not live.has_taken(digest):
                arrival = live.read(path, digest)
                if arrival.refused is not None:
                    warn(arrival.refused)
                arrivals.append(arrival)
            if time.monotonic() > deadline or len(arrivals) >= 64:
                break
        if arrivals:
            tell(live.ingest(arrivals, live=not once))
        for path, stamp in settled:
            watched.mark_done(path, stamp)
        if datetime.now(UTC) >= live.over_at:
            tell(live.end())
            return
        if not settled:
            if once:
                return
            time.sleep(LOOK_SECONDS)


def source_of_lines(sources: Sequence[SourceDeclaration]) -> SourceDeclaration:
    """Return the source that lines of standard input are read as, the first; UsageError if it is no CSV."""
    if not sources or sources[0].format not in LINES:
        raise UsageError(
            "standard input brings lines of CSV",
            got=f"the source {sources[0].name} with format {sources[0].format}" if sources else "no source",
            expected="a first source with format " + " or ".join(LINES),
        )
    return sources[0]


def follow_lines(
    live: LiveStream,
    descriptor: int,
    source: SourceDeclaration,
    *,
    stop: Callable[[], bool],
    tell: Tell,
    warn: Warn,
) -> None:
    """Take lines of CSV into the stream as they come from the file ``descriptor``, to its end.

    The first line may be a header. Lines are taken together when there are MOST_LINES of them or LINE_SECONDS
    have passed. They cannot be read again: after a crash, whoever writes them may repeat the last ones, which
    then count once.
    """
    pending, header, ended, began = b"", b"", False, time.monotonic()
    number = 0
    while not (ended and not pending) and not stop():
        readable = select.select([descriptor], [], [], LINE_SECONDS)[0]
        chunk = os.read(descriptor, _CHUNK) if readable else b""
        ended = ended or (bool(readable) and not chunk)
        pending += chunk
        if source.dialect.header and not header:
            header, newline, rest = pending.partition(b"\n")
            if not newline:
                header = b""
                if ended:
                    return
                continue
            pending, header = rest, header + newline
        lines = pending.count(b"\n")
        late = time.monotonic() - began >= LINE_SECONDS
        if (lines and (late or lines >= MOST_LINES)) or ended:
            cut = len(pending) if ended else pending.rfind(b"\n") + 1
            body, pending = pending[:cut], pending[cut:]
            began = time.monotonic()
            if body.strip():
                number += 1
                piece = InputFile(Path(f"lines-{number}.csv"), held=header + body, form_by_name=not header)
                arrival = live.read(piece, live.key.digest(piece.sha256()), source)
                if arrival.refused is not None:
                    warn(arrival.refused)
                tell(live.ingest([arrival], live=True))


def replay_files(live: LiveStream, files: Sequence[Path], speed: float, *, tell: Tell, warn: Warn) -> None:
    """Play ``files`` ``speed`` times as fast as they were recorded (0: at once), then end the stream.

    Raises UsageError when no file can be read.
    """
    arrivals = []
    for path in files:
        digest = feeds.digest_of(path, live.key)
        if digest is None:
            raise DataError(f"there is no file {path}", todo="correct its name")
        arrivals.append(live.read(path, digest))
    for arrival in arrivals:
        if arrival.refused is not None:
            warn(arrival.refused)
    if not any(arrival.refused is None for arrival in arrivals):
        raise UsageError("nothing to replay", got="no file that can be read as declared")
    live.replay(arrivals, feeds.pace(speed), tell)
    tell(live.end())
