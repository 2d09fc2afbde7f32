"""Looking into a DuckDB file without a trace: it is read to its end, and no byte of the store changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from trafficdp._durable import require_regular
from trafficdp.errors import StoreDamagedError
from trafficdp.store.statements import connect, run, store_failures
from trafficdp.store.vault import Vault, database_in


@contextmanager
def looked_at(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the database at ``path`` for reading; rows that do not fit in memory are not spilled anywhere.

    Raises what ``store_failures`` says of a file that cannot be opened.
    """
    with store_failures("opening it", path.name):
        if not path.exists():
            raise StoreDamagedError(f"{path.name} is missing")
        for file in (path, path.with_name(path.name + ".wal")):
            require_regular(file)
        connection = connect(str(path), access_mode="READ_ONLY", temp_directory="")
    try:
        yield connection
    finally:
        # nothing was written that could be lost
        with suppress(duckdb.Error):
            connection.close()


@contextmanager
def vault_looked_at(folder: Path) -> Iterator[Vault]:
    """Open the vault of ``folder`` for reading; raises as ``Vault.open``, and writes nothing."""
    path = database_in(folder)
    with looked_at(path) as connection:
        vault = Vault(connection, path)
        with store_failures("reading it"):
            vault.check_version()
        yield vault


def tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the names of the tables."""
    return [name for (name,) in run(connection, "SELECT table_name FROM duckdb_tables() ORDER BY table_name")]


def read_through(connection: duckdb.DuckDBPyConnection, table: str) -> None:
    """Read every value of every row of ``table``; DuckDB checks the sums of its blocks on the way."""
    whole = connection.table(table).aggregate("bit_xor(hash(COLUMNS(*)))")
    whole.fetchall()
