"""Files of a store beside its databases: the ledger's head, plans, spilled rows, the lock; DuckDB itself."""

from __future__ import annotations

import atexit
import errno
import fcntl
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt

from trafficdp import _durable, errors
from trafficdp.privacy.ledger import GENESIS, LedgerRow

if TYPE_CHECKING:
    import pyarrow as pa

# The ledger's head, kept beside the key and so outside the store.
#
# A store that is restored from an old backup has a shorter ledger than its head says. That must not give
# budget back, so such a store refuses to release. Stores may share a key, never a head: each has a file of
# its own, named after the store.


BEHIND = "restore the newest backup of the store: a ledger that was cut back would give budget back"
_LARGEST = 4096


class Head:
    """The file that remembers number and hash of the newest entry of one store's ledger.

    It lies beside ``key_file`` and bears the store's random name ``store_id``.
    """

    def __init__(self, key_file: Path, store_id: str) -> None:
        self.path = key_file.with_name(f"{key_file.name}.{store_id}.head")
        self.store_id = store_id
        self._half_made = self.path.with_name(f"{self.path.name}.new")

    def write(self, row: LedgerRow | None) -> None:
        """Write number and hash of the newest entry ``row`` to the file, in one move.

        None: an empty ledger.
        """
        facts = {
            "store_id": self.store_id,
            "sequence": row.sequence if row else 0,
            "head_hash": row.head_hash if row else GENESIS,
        }
        with store_failures("writing the ledger's head beside the key"):
            _durable.write_whole(self.path, self._half_made, json.dumps(facts).encode("ascii"))

    def verify(self, ledger: Sequence[LedgerRow]) -> int:
        """Return the number of the ledger entry that this file names, which ``ledger`` must have.

        The file is written after all entries up to that one were checked, so these need not be checked again.
        Raises StoreBehindError when the entry is not there, or the file is missing or another store's, and
        StoreDamagedError when it cannot be read.
        """
        sequence, head_hash = self.read()
        require_head(ledger, sequence, head_hash, f"the head beside the key ({self.path.name})")
        return sequence

    def remove_half_written(self) -> None:
        """Remove the half-written file of an interrupted write."""
        with store_failures("tidying beside the key"):
            self._half_made.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the file, of a store whose creation was interrupted."""
        self.remove_half_written()
        with store_failures("tidying beside the key"):
            self.path.unlink(missing_ok=True)

    def read(self) -> tuple[int, str]:
        """Return (number, hash) of the ledger entry that the file names; raise as ``verify``."""
        try:
            facts = json.loads(_durable.read_regular(self.path, _LARGEST).decode("ascii"))
            owner, sequence, head_hash = facts["store_id"], int(facts["sequence"]), str(facts["head_hash"])
        except FileNotFoundError as error:
            raise errors.StoreBehindError(
                "the ledger's head beside the key is missing",
                expected=str(self.path),
                todo="restore it from where the key is backed up",
            ) from error
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            if isinstance(error, OSError) and error.errno in _durable.MACHINE:
                raise _durable.from_os_error(error, "reading the ledger's head beside the key") from error
            raise errors.StoreDamagedError(
                "the ledger's head beside the key cannot be read",
                got=str(self.path),
                todo="restore it from where the key is backed up",
            ) from error
        if owner != self.store_id:
            raise errors.StoreBehindError(
                "the ledger's head beside the key is another store's",
                got=str(self.path),
                todo="restore the head of this store from where the key is backed up",
            )
        return sequence, head_hash


def require_head(ledger: Sequence[LedgerRow], sequence: int, head_hash: str, witness: str) -> None:
    """Raise StoreBehindError unless entry number ``sequence`` of ``ledger`` has the hash ``head_hash``.

    0 is the start of the ledger. ``witness`` names what stated the hash, for the message.
    """
    if sequence == 0 and head_hash == GENESIS:
        return
    if not 1 <= sequence <= len(ledger):
        raise errors.StoreBehindError(
            f"the vault is behind {witness}",
            got=f"a ledger of {len(ledger)} entries",
            expected=f"at least {sequence}",
            todo=BEHIND,
        )
    if ledger[sequence - 1].head_hash != head_hash:
        raise errors.StoreBehindError(
            f"the vault's ledger is not the one that {witness} was signed with",
            got=f"another hash at entry {sequence}",
            todo=BEHIND,
        )


# Plans saved by name in the store: `plans/NAME.json`. They hold public facts; only the owner reads them.


FOLDER = "plans"
RELEASED_NAME = "released.duckdb"
HALF_RELEASED = f".{RELEASED_NAME}.new"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def checked_plan_name(name: str) -> str:
    """Return ``name``; raise UsageError unless a saved plan can have this name."""
    if not _NAME.fullmatch(name):
        raise errors.UsageError(
            "this cannot be the name of a plan",
            got=f"{name:.40}",
            expected="up to 64 letters, digits, dots, dashes and underscores, the first a letter or digit",
        )
    return name


def save_plan(store: Path, name: str, text: str) -> Path:
    """Write the plan ``name`` and return its file. A plan of that name is replaced."""
    target = store / FOLDER / f"{checked_plan_name(name)}.json"
    half_made = target.with_name(f".{target.name}.new")
    with store_failures("saving the plan"), _durable.owner_only():
        _durable.make_folder(target.parent)
        _durable.write_whole(target, half_made, text.encode())
    return target


def read_plan(store: Path, name: str) -> str:
    """Return the text of the plan ``name``; raise UsageError when there is none."""
    path = store / FOLDER / f"{checked_plan_name(name)}.json"
    with store_failures("reading the plan"):
        if not path.is_file():
            there = plan_names(store)
            raise errors.UsageError(
                "there is no such plan",
                got=name,
                expected="one of " + ", ".join(there) if there else "a saved plan; none was saved yet",
                todo="`trafficdp plan --save NAME` makes one",
            )
        return _durable.read_regular(path).decode("utf-8", errors="replace")


def remove_leftovers(store: Path) -> None:
    """Remove half-written plans and `released.duckdb` files of interrupted commands."""
    for leftover in (*(store / FOLDER).glob(".*.new"), store / HALF_RELEASED, store / f"{HALF_RELEASED}.wal"):
        leftover.unlink(missing_ok=True)


def plan_names(store: Path) -> list[str]:
    """Return the names of the saved plans, sorted."""
    folder = store / FOLDER
    return sorted(path.stem for path in folder.glob("[!.]*.json")) if folder.is_dir() else []


# Files for rows that do not fit in memory: without a name, in a folder that only the owner enters.


class Spill(AbstractContextManager["Spill", None]):
    """Rows in order of writing, in an unnamed file of ``folder``: a process that dies leaves none.

    Rows are of the NumPy type ``kind``. Use it as a context manager. Raises OSError where the disk is full.
    """

    def __init__(self, folder: Path, kind: npt.DTypeLike = np.int64) -> None:
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _durable.make_folder(folder)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._kind, self._rows = np.dtype(kind), 0

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Append ``rows``, shape (n,), to the file."""
        self._file.seek(0, os.SEEK_END)
        self._file.write(np.ascontiguousarray(rows, dtype=self._kind).view(np.uint8).data)
        self._rows += len(rows)

    def read(self, start: int, rows: int) -> npt.NDArray[Any]:
        """Return up to ``rows`` rows, from position ``start`` on, shape (n,)."""
        found = np.empty(max(min(rows, self._rows - start), 0), dtype=self._kind)
        self._file.seek(self._kind.itemsize * start)
        self._file.readinto(found.view(np.uint8).data)
        return found


# One at a time: an `flock` on a file of the store around every access to the vault.
#
# DuckDB lets one process write or many read and makes nobody wait; the lock queues instead. It is freed by
# the operating system when its holder dies, however it dies.


LOCK_NAME = ".lock"
POLL_SECONDS = 0.05


@contextmanager
def store_lock(folder: Path, *, purpose: str | None, wait: float) -> Iterator[None]:
    """Context manager: hold the store's lock; ``purpose`` (a command's name) is what waiting others are told.

    With None nothing is written, and a store without a lock file is not locked. Waits up to ``wait`` seconds,
    then raises StoreBusyError naming the holder. Raises StoreUnavailableError when there is no such folder,
    and what ``from_os_error`` returns when it cannot be locked.
    """
    flags = os.O_RDONLY if purpose is None else os.O_RDWR | os.O_CREAT
    try:
        descriptor = _durable.open_regular(folder / LOCK_NAME, flags)
    except FileNotFoundError as error:
        if purpose is not None:
            raise errors.StoreUnavailableError(
                "there is no store here", got=str(folder), todo="run `trafficdp init` or pass --store"
            ) from error
        yield
        return
    except OSError as error:
        raise _durable.from_os_error(error, "locking the store") from error
    try:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise errors.StoreUnavailableError(
                        "the store cannot be locked", got=error.strerror
                    ) from error
            if time.monotonic() >= deadline:
                raise errors.StoreBusyError(
                    "the store is in use",
                    got=_holder(descriptor),
                    expected=f"a free store within {wait:g} s",
                    todo=f"wait for it to finish, or raise --wait ({folder})",
                )
            time.sleep(POLL_SECONDS)
        if purpose is not None:
            holder = {"pid": os.getpid(), "command": purpose, "since": int(time.time())}
            # it only tells whoever waits: a full disk must not matter here
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        facts = json.loads(os.pread(descriptor, 4096, 0))
        return f"held by process {facts['pid']} (trafficdp {facts['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "held by another process"


# DuckDB: connections, SQL in files beside this one, and failures in our words and exit codes.


_READ_ONLY = ("read-only", "permission denied", "not permitted")
_FULL = ("no space left", "disk full", "out of disk", "file too large", "could not write", "failed to write")
_SYSTEM = {
    "too many open files": errno.EMFILE,
    "cannot allocate memory": errno.ENOMEM,
    "input/output error": errno.EIO,
    "fsync failed": errno.EIO,
    **dict.fromkeys(_FULL, errno.ENOSPC),
}
"""What DuckDB says of an error of the system, and its number."""
_BUSY = ("could not set lock", "conflicting lock")
_DAMAGED = ("corrupt", "checksum")
_UNREADABLE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.FatalException,
    duckdb.InternalException,
)
DOCTOR = "`trafficdp doctor` says what is whole"
BACKUP = "restore the newest complete backup of the store"
_BEGUN = re.compile(r"CREATE (TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)")
_OTHER_VERSION = ("with version number", "storage version")


@contextmanager
def store_failures(what: str, database: str = "vault.duckdb") -> Iterator[None]:
    """Context manager: turn errors of DuckDB and the system into StoreUnavailableErrors about ``what``.

    ``what`` is what was being done, ``database`` the name of the file that DuckDB had open. DuckDB's message
    is never shown: it may quote values.
    """
    try:
        yield
    except errors.TrafficdpError:
        raise
    except OSError as error:
        raise _durable.from_os_error(error, what) from error
    except duckdb.Error as error:
        raise from_duckdb(error, what, database) from error


def from_duckdb(error: duckdb.Error, what: str, database: str) -> errors.StoreUnavailableError:
    """Return (do not raise) the error of trafficdp for an ``error`` of DuckDB on the file ``database``.

    ``what`` is what was being done.
    """
    text = str(error).lower()
    for said, number in _SYSTEM.items():
        if said in text:
            return _durable.from_os_error(OSError(number, said.capitalize(), database), what)
    if any(part in text for part in _BUSY):
        return errors.StoreBusyError(
            f"{what} failed: another program has the database open", todo="close it and try again"
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return _durable.from_os_error(OSError(errno.ENOMEM, "Out of memory", database), what)
    if any(part in text for part in _READ_ONLY):
        return errors.StoreReadOnlyError(
            f"{what} failed: no permission to write", todo="make the store writable"
        )
    if any(part in text for part in _OTHER_VERSION):
        return errors.StoreVersionError(
            f"{what} failed: the database was written by another version of DuckDB",
            todo="use the version of trafficdp that made it",
        )
    if isinstance(error, _UNREADABLE) or any(part in text for part in _DAMAGED):
        return errors.StoreDamagedError(
            f"{what} failed: {database} cannot be read",
            todo=f"{BACKUP}; {DOCTOR}",
        )
    return errors.StoreUnavailableError(
        f"{what} failed: {database} cannot be used", got=type(error).__name__, todo=DOCTOR
    )


def damaged_store(what: str, *, got: object = None, expected: object = None) -> errors.StoreDamagedError:
    """Return (do not raise) the error for a vault that is not as it was written; a backup replaces it."""
    return errors.StoreDamagedError(what, got=got, expected=expected, todo=BACKUP)


def connect(database: str = ":memory:", **options: str) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection to ``database`` without a progress bar; ``options`` are settings."""
    connection = duckdb.connect(database, config={**options})
    # it draws a bar on standard output wherever Python looks interactive, be that a file; in a notebook that
    # cannot draw one the bar is off, and to say so again is an error
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")
    return connection


_idle: dict[tuple[object, ...], duckdb.DuckDBPyConnection] = {}
"""A DuckDB that has nothing open, by process and settings: to start one takes longer than most work."""
atexit.register(lambda: [_idle.pop(each) for each in [*_idle] if each[0] == os.getpid()])


@contextmanager
def in_memory(spill: str = "", **options: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Context manager: a DuckDB connection without a database, for a block that leaves nothing in it.

    What does not fit in memory goes to the folder ``spill`` ("": nowhere). ``options`` are DuckDB's settings.
    After an error the next block gets another DuckDB; so do other threads and child processes.
    """
    kind = os.getpid(), *sorted(options.items())
    connection = _idle.pop(kind, None) or connect(temp_directory="", **options)
    try:
        if spill:
            connection.execute(f"SET temp_directory = {quoted(spill)}")
        yield connection
    except BaseException:
        with _durable.owner_only():
            connection.close()
        raise
    try:
        if spill:
            connection.execute("SET temp_directory = ''")
    except duckdb.Error:
        # a folder once spilled to stays this one's
        with _durable.owner_only():
            connection.close()
    else:
        _idle[kind] = connection


@contextmanager
def attached(
    path: Path, name: str, mode: str, spill: str = "", **options: str
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Context manager: a connection that uses the database at ``path`` under ``name``.

    ``mode`` is READ_WRITE or READ_ONLY; ``spill`` and ``options`` are as for ``in_memory``. The file is
    attached anew each time, so that one which was swapped meanwhile is seen.
    """
    _durable.require_regular(path)
    refusal = None
    with in_memory(spill, **options) as connection:
        connection.execute(f"ATTACH {quoted(str(path.absolute()))} AS {name} ({mode}); USE {name}")
        try:
            yield connection
        except errors.TrafficdpError as error:
            if isinstance(error.__cause__, duckdb.Error):
                raise
            # a command that is refused leaves DuckDB as sound as it was
            refusal = error
            with suppress(duckdb.Error):
                connection.rollback()
        with _durable.owner_only():
            try:
                connection.execute(f"USE memory; DETACH {name}")
            except duckdb.Error:
                # what was committed is in the log, if not in the file yet
                connection.close()
    if refusal is not None:
        raise refusal


def quoted(text: str) -> str:
    """Return ``text`` as a string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


@cache
def script(name: str) -> str:
    """Return the statements in ``sql/NAME.sql``, and COMMENT ON statements for what they make.

    A comment behind ``--`` on a line that makes a table, a view or a column becomes that object's comment.
    """
    text = files("trafficdp.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    statements, kind, made = [text], "", ""
    for code, _, said in (line.partition(" -- ") for line in text.splitlines()):
        begun = _BEGUN.match(code)
        if begun:
            kind, made = begun.groups()
        if made and code.strip() and said:
            words = code.rstrip(",").split()
            column = f"{made}.{words[0] if kind == 'TABLE' else words[-1]}"
            what = f"{kind} {made}" if begun else f"COLUMN {column}"
            statements.append(f"COMMENT ON {what} IS {quoted(said)};\n")
    return "".join(statements)


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(at: datetime) -> int:
    """Return the instant ``at`` in microseconds since 1970 UTC, in which DuckDB counts."""
    return (at - EPOCH) // timedelta(microseconds=1)


@contextmanager
def registered(
    connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table | pa.RecordBatchReader
) -> Iterator[None]:
    """Context manager: let SQL in the block read ``table`` under ``name``.

    A transaction keeps it until its end: give many rows as a reader, for one statement.
    """
    connection.register(name, table)
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):
            connection.unregister(name)
        raise
    connection.unregister(name)
