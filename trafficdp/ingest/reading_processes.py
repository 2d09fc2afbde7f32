"""Many files read in lots, by one process or several: the same records in the same order."""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self

from trafficdp.errors import TrafficdpError
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import Records

# Process k of n reads lots k, n + k, 2n + k, ... of files; the parent takes them in their order. A pipe holds
# little, so no process is more than a block or two ahead of the parent.
#
# What goes wrong in a process is said by the parent: it reads that lot again from its start.

LARGE = {
    **dict.fromkeys(("json", "mds", "iudx", "xml", "nextbus"), 128 << 20),
    "siri": 256 << 20,
    "gtfs_rt": 16 << 20,
}
"""Formats that take time, and from how many unpacked bytes on starting processes pays."""
MOST_PROCESSES = 8
"""Each takes some 150 MB."""
_PIPE = 1 << 20
_ROWS = 20_000
"""Of a block that is put together of smaller ones."""
_ENDS = "the end of a lot"
_START = "from trafficdp.ingest.reading_processes import read_in_process; read_in_process()"

Read = Callable[[Any], Iterator[Records]]
"""Of a file, or of a frame."""


def process_count() -> int:
    """Return how many processes may read files at once."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_PROCESSES)


class Readers(ExitStack):
    """A context manager that starts processes to read ``files`` of one source, where that pays.

    Below ``large`` unpacked bytes in all it does not: then files are read in this process. ``read`` reads one
    file and must be picklable. ``read_blocks`` must be called for every lot of files, in order.
    """

    def __init__(
        self,
        files: Sequence[InputFile] = (),
        read: Read | None = None,
        *,
        large: int = 0,
        named_by_vehicle: bool = False,
    ) -> None:
        super().__init__()
        self._files, self._large, self._next = files, large, 0
        self._how = named_by_vehicle, read
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            sizes = [size for file in self._files for size in file.unpacked_sizes()]
        except TrafficdpError:
            # whoever reads it meets it, after what comes before
            sizes = []
        if len(sizes) < 2 or sum(sizes) < self._large or (number := process_count()) < 2:
            return self
        paths = [str(each.path.absolute()) for each in self._files]
        told = (paths, self._files[0].refuse_by_rows, self._files[0].form_by_name, *self._how)
        found: list[subprocess.Popen[bytes]] = []
        with ExitStack() as started, suppress(OSError):
            for own in range(number):
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _START],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
                started.callback(_end, process)
                found.append(process)
                with suppress(OSError, AttributeError):
                    # of Linux; it may be a block ahead
                    fcntl.fcntl(_pipe(process.stdout), fcntl.F_SETPIPE_SZ, _PIPE)
                with suppress(OSError), _pipe(process.stdin) as pipe:
                    pipe.write(pickle.dumps((*told, own, number)))
            # all or none
            self._processes = found
            self.callback(started.pop_all().close)
        return self

    def read_blocks(self, lot: Sequence[Any], read: Read) -> Iterator[Records]:
        """Yield the records of ``lot``, the next list of files, in large blocks.

        ``read`` reads one file in this process, where no other process reads it.
        """
        skipped = 0
        if self._processes:
            process = self._processes[self._next % len(self._processes)]
            self._next += 1
            while isinstance(found := _received(process), Records):
                yield found
                skipped += 1
            if found == _ENDS:
                return
        held: list[Records] = []
        for member in lot:
            for records in read(member):
                held.append(records)
                if sum(map(len, held)) < _ROWS:
                    continue
                if not skipped:
                    yield Records.concatenate(held)
                held, skipped = [], max(0, skipped - 1)
        if held and not skipped:
            yield Records.concatenate(held)


def _received(process: subprocess.Popen[bytes]) -> Records | str | None:
    try:
        found: Records | str = pickle.load(_pipe(process.stdout))
    except (EOFError, OSError, pickle.UnpicklingError):
        return None
    return found


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise ValueError("a process was started without pipes")
    return pipe


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            _pipe(pipe).close()


def read_in_process() -> None:
    """Main function of a reading process: read the files named on standard input, and write their records.

    Ends when all files are read, when one cannot be read, or when the starting process has gone.
    """
    # who presses Ctrl-C means the parent, which ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        paths, refuse_by_rows, form_by_name, named_by_vehicle, read, own, number = pickle.load(
            sys.stdin.buffer
        )
        files = (
            InputFile(Path(path), refuse_by_rows=refuse_by_rows, form_by_name=form_by_name) for path in paths
        )
        lots = (lot for file in files for lot in file.file_groups(named_by_vehicle=named_by_vehicle))
        for lot in islice(lots, own, None, number):
            for records in Readers().read_blocks(lot, read):
                pickle.dump(records, out, protocol=5)
            pickle.dump(_ENDS, out)
            out.flush()
