"""The door to DuckDB for this process: what holds for every connection is said once."""

from __future__ import annotations

import duckdb


def connect(database: str = ":memory:", **options: str) -> duckdb.DuckDBPyConnection:
    """Return a connection to ``database`` that prints nothing; ``options`` are settings of DuckDB."""
    connection = duckdb.connect(database, config={**options})
    # it draws a bar on standard output wherever Python looks interactive, be that a file; in a notebook that
    # cannot draw one the bar is off, and to say so again is an error
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")
    return connection
