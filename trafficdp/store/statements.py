"""The door to DuckDB: connections are made here; SQL lives in files beside this one, and is read and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa


def connect(database: str = ":memory:", **options: str) -> duckdb.DuckDBPyConnection:
    """Return a connection to ``database`` that prints nothing; ``options`` are settings of DuckDB."""
    connection = duckdb.connect(database, config={**options})
    # it draws a bar on standard output wherever Python looks interactive, be that a file; in a notebook that
    # cannot draw one the bar is off, and to say so again is an error
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")
    return connection


@cache
def script(name: str) -> str:
    """Return the text of ``sql/NAME.sql``."""
    return files("trafficdp.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


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
