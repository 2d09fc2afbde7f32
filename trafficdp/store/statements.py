"""The door to DuckDB: connections, SQL in files beside this one, and failures in our words and exit codes."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from trafficdp._durable import from_os_error, owner_only, require_regular
from trafficdp.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    TrafficdpError,
)

if TYPE_CHECKING:
    import pyarrow as pa


_FULL = ("no space left", "file too large", "disk full", "could not write", "failed to write", "out of disk")
_READ_ONLY = ("read-only", "permission denied", "not permitted")
_BUSY = ("could not set lock", "conflicting lock")
_DAMAGED = ("corrupt", "checksum")
_UNREADABLE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.FatalException,
    duckdb.InternalException,
)
DOCTOR = "`trafficdp doctor` says what is whole"
_BEGUN = re.compile(r"CREATE (TABLE|VIEW) (?:IF NOT EXISTS )?(\w+)")
_OTHER_VERSION = ("with version number", "storage version")


@contextmanager
def store_failures(what: str, database: str = "vault.duckdb") -> Iterator[None]:
    """Turn failures of DuckDB and the operating system into StoreUnavailableErrors about ``what``.

    ``database`` is the name of the file that DuckDB had open. The text of DuckDB's message is matched,
    never shown: it may quote values.
    """
    try:
        yield
    except TrafficdpError:
        raise
    except OSError as error:
        raise from_os_error(error, what) from error
    except duckdb.Error as error:
        raise from_duckdb(error, what, database) from error


def from_duckdb(error: duckdb.Error, what: str, database: str) -> StoreUnavailableError:
    """Return the error that says what DuckDB could not do with the file ``database``."""
    text = str(error).lower()
    if any(part in text for part in _BUSY):
        return StoreBusyError(
            f"{what} failed: another program has the database open", todo="close it and try again"
        )
    if any(part in text for part in _FULL):
        return StoreFullError(f"{what} failed: the disk is full", todo="free some space and run it again")
    if any(part in text for part in _READ_ONLY):
        return StoreReadOnlyError(f"{what} failed: no permission to write", todo="make the store writable")
    if any(part in text for part in _OTHER_VERSION):
        return StoreVersionError(
            f"{what} failed: the database was written by another version of DuckDB",
            todo="use the version of trafficdp that made it",
        )
    if isinstance(error, _UNREADABLE) or any(part in text for part in _DAMAGED):
        return StoreDamagedError(
            f"{what} failed: {database} cannot be read",
            todo=f"restore the newest complete backup of the store; {DOCTOR}",
        )
    return StoreUnavailableError(
        f"{what} failed: {database} cannot be used", got=type(error).__name__, todo=DOCTOR
    )


def connect(database: str = ":memory:", **options: str) -> duckdb.DuckDBPyConnection:
    """Return a connection to ``database`` that prints nothing; ``options`` are settings of DuckDB."""
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
    """A connection that has nothing open; let go of it at the end of a block that leaves nothing in it.

    What does not fit in memory goes to the folder ``spill``, by default nowhere. ``options`` are settings.
    Whatever fails, the next block has another DuckDB; so have other threads, and a child.
    """
    kind = os.getpid(), *sorted(options.items())
    connection = _idle.pop(kind, None) or connect(temp_directory="", **options)
    try:
        run(connection, f"SET temp_directory = {quoted(spill)}")
        yield connection
    except BaseException:
        with owner_only():
            connection.close()
        raise
    try:
        run(connection, "SET temp_directory = ''")
    except duckdb.Error:
        # a folder once spilled to stays this one's
        with owner_only():
            connection.close()
    else:
        _idle[kind] = connection


@contextmanager
def attached(
    path: Path, name: str, option: str, spill: str = "", **options: str
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection ``in_memory`` that uses the database at ``path`` under ``name`` while the block lasts.

    Opened by its path, a file that this process has open already would be seen as it was before a swap.
    """
    require_regular(path)
    refusal = None
    with in_memory(spill, **options) as connection:
        run(connection, f"ATTACH {quoted(str(path.absolute()))} AS {name} ({option})")
        run(connection, f"USE {name}")
        try:
            yield connection
        except TrafficdpError as error:
            if isinstance(error.__cause__, duckdb.Error):
                raise
            # a command that is refused leaves DuckDB as sound as it was
            refusal = error
            with suppress(duckdb.Error):
                connection.rollback()
        with owner_only():
            try:
                run(connection, "USE memory")
                run(connection, f"DETACH {name}")
            except duckdb.Error:
                # what was committed is in the log, if not in the file yet
                connection.close()
    if refusal is not None:
        raise refusal


def quoted(text: str) -> str:
    """Return ``text`` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


@cache
def script(name: str) -> str:
    """Return the text of ``sql/NAME.sql``, and statements that comment on what it makes.

    What stands behind ``--`` on a line that makes a table, a view or a column of one is said of it in the
    database too, where users read it.
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


Parameters = Sequence[object] | Mapping[str, object]


def run(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()
) -> list[tuple[Any, ...]]:
    """Run a statement (or several) to its end and return the rows of the last.

    DuckDB streams: a result that is not fetched to its end blocks the connection.
    """
    return connection.execute(sql, parameters).fetchall()


@contextmanager
def registered(
    connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table | pa.RecordBatchReader
) -> Iterator[None]:
    """Let statements of the block read ``table`` under ``name``.

    A transaction holds on to it until its end: many rows are given as a reader, for one statement.

    After an error, letting go of it may fail too, in the aborted transaction: the first error is the one
    that is raised.
    """
    connection.register(name, table)
    try:
        yield
    except BaseException:
        with suppress(duckdb.Error):
            connection.unregister(name)
        raise
    connection.unregister(name)


def first(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()
) -> tuple[Any, ...] | None:
    """Return the first row of a query, None when it has none."""
    rows = run(connection, sql, parameters)
    return rows[0] if rows else None


def number(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> int:
    """Return the one whole number that a query yields."""
    ((value,),) = run(connection, sql, parameters)
    return int(value)


def query(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Parameters = ()) -> pa.Table:
    """Return the rows of a query as an Arrow table."""
    return connection.sql(sql, params=parameters).to_arrow_table()
