"""What a stream may come from: a folder in which files arrive, lines of standard input, an archive.

Feeding stops when ``stop`` says so, or when no record can count any more; then the stream is ended.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from trafficdp.errors import DataError, UsageError
from trafficdp.ingest.input_file import InputFile
from trafficdp.live.files import digest_of
from trafficdp.live.streaming import LiveStream, Progress
from trafficdp.model import SourceDeclaration
from trafficdp.stream.horizon import Pace, WatchedFolder, stamp_of

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
    """Take files as they arrive in ``folder``, by name; ``once``: those that are there, then return.

    A file that cannot be read as declared is noted, told to ``warn`` and passed over.
    Raises DataError when there is no such folder.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder", expected="a folder in which files arrive")
    watched = WatchedFolder(folder)
    while not stop():
        waiting = watched.arrived()
        deadline = time.monotonic() + SESSION_SECONDS
        arrivals, settled = [], []
        for path in waiting:
            stamp, digest = stamp_of(path), digest_of(path, live.key)
            settled.append((path, stamp))
            if digest is not None and not live.met(digest):
                arrival = live.read(path, digest)
                if arrival.refused is not None:
                    warn(arrival.refused)
                arrivals.append(arrival)
            if time.monotonic() > deadline or len(arrivals) >= 64:
                break
        if arrivals:
            tell(live.take(arrivals, live=not once))
        for path, stamp in settled:
            watched.settle(path, stamp)
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
    """Take lines of CSV as they come from an open file; the first is the header. Returns at its end.

    Lines are taken together when there are MOST_LINES of them or LINE_SECONDS have passed. They cannot be
    read again: whoever writes them may repeat what it wrote last after a crash, and it counts once.
    """
    pending, header, ended, began = b"", b"", False, time.monotonic()
    number = 0
    while not (ended and not pending) and not stop():
        readable = select.select([descriptor], [], [], LINE_SECONDS)[0]
        chunk = os.read(descriptor, _CHUNK) if readable else b""
        ended = ended or (bool(readable) and not chunk)
        pending += chunk
        if not header:
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
                piece = InputFile(Path(f"lines-{number}.csv"), held=header + body)
                arrival = live.read(piece, live.key.digest(piece.sha256()), source)
                if arrival.refused is not None:
                    warn(arrival.refused)
                tell(live.take([arrival], live=True))


def replay_files(live: LiveStream, files: Sequence[Path], speed: float, *, tell: Tell, warn: Warn) -> None:
    """Play an archive ``speed`` times as fast as it happened (0: as fast as possible), then end the stream.

    Raises UsageError when no file can be read.
    """
    arrivals = []
    for path in files:
        digest = digest_of(path, live.key)
        if digest is None:
            raise DataError(f"there is no file {path}", todo="correct its name")
        arrivals.append(live.read(path, digest))
    for arrival in arrivals:
        if arrival.refused is not None:
            warn(arrival.refused)
    if not any(arrival.refused is None for arrival in arrivals):
        raise UsageError("nothing to replay", got="no file that can be read as declared")
    live.replay(arrivals, Pace(speed).due_us, lambda: time.sleep(0.05), tell)
    tell(live.end())
