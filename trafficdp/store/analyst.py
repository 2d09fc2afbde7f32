"""SQL on what is released: any query that reads, on `released.duckdb` and nothing else.

Nothing here knows the vault, its lock or the key; an analyst may have the one file only. Queries run in a
process of their own (`analyst_worker.py`), so that one that goes wrong takes neither this process nor the
machine's memory with it.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pyarrow as pa

from trafficdp.errors import DataError, StoreDamagedError, StoreUnavailableError, UsageError, positive
from trafficdp.store.vault import VAULT_NAME

DEFAULT_TIMEOUT = 60.0
"""Seconds that a query may take."""
LONGEST_TIMEOUT = 86_400.0
LONGEST_QUERY = 100_000
"""Characters."""
LARGEST_RESULT = 256 << 20
"""Bytes, as Arrow."""

FILES = ("csv", "parquet", "json")
"""What an asker's own file may be, by the end of its name."""

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORKER = Path(__file__).with_name("analyst_worker.py")
_KEPT = ("PYTHON", "LD_", "LC_", "DYLD_")
_KEPT_WHOLE = ("PATH", "HOME", "LANG", "VIRTUAL_ENV", "TMPDIR")
"""How the environment variables begin that a worker gets, and others by their whole names."""
_START_SECONDS = 60.0
_GRACE_SECONDS = 2.0

TABLES = """
SELECT name, kind, comment FROM (
    SELECT table_name AS name, 'table' AS kind, comment FROM duckdb_tables() WHERE NOT internal
    UNION ALL
    SELECT view_name, 'view', comment FROM duckdb_views() WHERE database_name = 'released' AND NOT internal
) ORDER BY kind, name
"""
"""What there is to read, with comments."""
COLUMNS = """
SELECT table_name AS name, column_name AS "column", data_type AS type, comment FROM duckdb_columns()
WHERE database_name IN ('released', 'memory') AND NOT internal ORDER BY name, column_index
"""
"""Every column, with comments."""


class AnalystSession(AbstractContextManager["AnalystSession", None]):
    """A released database, opened for reading. A query keeps nothing for the next one.

    ``path`` is the file (None: there is none yet), ``timeout`` the seconds a query may take. ``files`` are
    the asker's own: each is a table of the name that it has without its ending.

    Raises UsageError when there is no such file, it is a vault or one of ``files`` is no table,
    StoreDamagedError when it cannot be read as a released database.
    """

    def __init__(
        self, path: Path | None, *, timeout: float = DEFAULT_TIMEOUT, files: Sequence[Path] = ()
    ) -> None:
        self.timeout = positive(timeout=timeout)
        if self.timeout > LONGEST_TIMEOUT:
            raise UsageError(
                "timeout is out of range",
                got=f"timeout={self.timeout:g}",
                expected=f"at most {LONGEST_TIMEOUT:g} seconds",
            )
        self.path = None if path is None else _released_file(path)
        self._files = _tables_of(files)
        self._worker: _Worker | None = None
        self._started()

    def run(self, sql: str) -> pa.Table:
        """Return the rows of the one SQL statement ``sql``, which may only read.

        Column names are unique: a second "a" is called "a_1". Times with a zone are in the city's. Raises
        UsageError for a query that is wrong, refused, too long, too slow or too large, DataError for one that
        fails on the data.
        """
        if len(sql) > LONGEST_QUERY:
            raise UsageError(
                "the query is too long", got=f"{len(sql)} characters", expected=f"at most {LONGEST_QUERY}"
            )
        stream = self._asked(b"Q", sql.encode("utf-8", "replace"))
        try:
            return _without_dictionaries(pa.ipc.open_stream(stream).read_all())
        except pa.ArrowException:
            self.close()
            raise _beyond_the_engine() from None

    def keep(self, name: str, rows: pa.RecordBatch) -> None:
        """Create the table ``name`` from ``rows`` for the queries that follow, replacing one of this name.

        A dictionary column is ordered as its dictionary is. Raises as ``run``.
        """
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, rows.schema) as written:
            written.write_batch(rows)
        self._asked(b"T", name.encode() + b"\0" + stream.getvalue().to_pybytes())

    def _asked(self, letter: bytes, content: bytes) -> bytes:
        worker = self._started()
        try:
            return worker.ask(letter, content, self.timeout)
        except BaseException:
            # a process that answered in full goes on; any other is of no use any more
            if worker.busy:
                self.close()
            raise

    def _started(self) -> _Worker:
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = _Worker(self.path, self.timeout, self._files)
        return self._worker

    def close(self) -> None:
        """End the worker process; the next query starts another."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def __exit__(self, *error: object) -> None:
        self.close()


def _released_file(path: Path) -> Path:
    try:
        real = Path(os.path.realpath(path))
        found = real.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        raise UsageError(
            "there is no released database here",
            got=str(path),
            expected="the file released.duckdb of a store",
            todo="run `trafficdp release` first, or name the file with --file",
        )
    if real.name == VAULT_NAME:
        raise UsageError(
            "this is the vault, which nobody queries",
            got=str(path),
            expected="released.duckdb",
            todo="name the file beside it",
        )
    return real


def _tables_of(files: Sequence[Path]) -> dict[str, Path]:
    """Return the files by the names of their tables; raises UsageError for what is no table."""
    found: dict[str, Path] = {}
    for file in files:
        what = None
        if file.suffix[1:].lower() not in FILES:
            what = "the file's name does not say its format"
        elif not _PLAIN_NAME.fullmatch(file.stem) or file.stem.lower() in found:
            what = "a file is a table of its own name: letters, digits and _, once each"
        elif not file.is_file():
            what = "there is no such file"
        elif any((folder / VAULT_NAME).exists() for folder in file.resolve().parents):
            what = "a file of a store is none of an analyst's"
        if what is not None:
            raise UsageError(f"--with: {what}", got=file.name, todo="try --with districts.csv")
        found[file.stem.lower()] = file.absolute()
    return found


def _without_dictionaries(table: pa.Table) -> pa.Table:
    """Return ``table`` with texts for ENUMs."""
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


class _Worker:
    """The process that runs the queries, seen from here. ``busy`` while an answer is outstanding."""

    def __init__(self, path: Path | None, timeout: float, files: Mapping[str, Path]) -> None:
        self.busy = True
        named = [text for name, file in files.items() for text in (name, str(file))]
        kept = {
            name: value for name, value in os.environ.items() if name.startswith(_KEPT) or name in _KEPT_WHOLE
        }
        # -P: nothing in the current folder is imported
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER), str(path or ""), str(timeout + _GRACE_SECONDS), *named],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=kept,
            start_new_session=True,
        )
        self._unread = bytearray()
        try:
            self._result(time.monotonic() + _START_SECONDS)
        except UsageError:
            self.end()
            if not self.busy:
                # it answered: a file is no table
                raise
            raise StoreUnavailableError(
                "the released database or a file could not be read in time", got=path and path.name
            ) from None
        except BaseException:
            self.end()
            raise

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, letter: bytes, content: bytes, timeout: float) -> bytes:
        """Return the answer to a frame, which is an Arrow IPC stream or empty."""
        self.busy = True
        deadline = time.monotonic() + timeout
        pipe = self._process.stdin
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.write(letter + len(content).to_bytes(8, "big") + content)
                pipe.flush()
        return self._result(deadline)

    def _result(self, deadline: float) -> bytes:
        result = bytearray()
        while True:
            letter, content = self._frame(deadline)
            if letter == b"D":
                result += content
                if len(result) > LARGEST_RESULT:
                    raise UsageError(
                        "the result is too large",
                        got=f"more than {LARGEST_RESULT >> 20} MiB",
                        todo="add LIMIT, or aggregate",
                    )
                continue
            answer = {} if letter == b"R" else json.loads(content)
            # after such an error the engine is not to be relied upon
            self.busy = answer.get("kind") in ("memory", "broken")
            if answer:
                raise _error(answer)
            return bytes(result)

    def _frame(self, deadline: float) -> tuple[bytes, bytes]:
        self._fill(9, deadline)
        size = int.from_bytes(self._unread[1:9], "big")
        self._fill(9 + size, deadline)
        letter, content = bytes(self._unread[:1]), bytes(self._unread[9 : 9 + size])
        del self._unread[: 9 + size]
        return letter, content

    def _fill(self, size: int, deadline: float) -> None:
        """Read until ``size`` bytes are there."""
        pipe = self._process.stdout
        if pipe is None:
            raise _beyond_the_engine()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while len(self._unread) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                raise UsageError(
                    "the query took too long",
                    todo="ask for less, or give it more seconds with --timeout",
                )
            piece = os.read(pipe.fileno(), 1 << 20)
            if not piece:
                raise _beyond_the_engine()
            self._unread += piece

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()


def _beyond_the_engine() -> UsageError:
    return UsageError(
        "the query broke the engine: too much memory, or nested too deeply", todo="ask for less at a time"
    )


def _error(answer: dict[str, str]) -> UsageError | DataError | StoreDamagedError:
    kind, message = answer["kind"], answer["message"]
    if kind == "closed":
        return StoreDamagedError(
            message, todo="name released.duckdb of a store; `trafficdp doctor` says what of a store is whole"
        )
    if kind == "data":
        return DataError(message)
    todo = {
        "memory": "aggregate, or add WHERE or LIMIT",
        "file": "write results with --to and a file name",
        "refused": "what you need in between goes into WITH",
        "table": "ask latest_cells; `trafficdp sql` and \\d list every table",
        "records": "try SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) AVG(speed) FROM records",
    }.get(kind)
    return UsageError(message, todo=todo)
