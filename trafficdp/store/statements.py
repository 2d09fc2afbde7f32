"""SQL lives in files beside this one; here it is read and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import duckdb
import pyarrow as pa


@cache
def script(name: str) -> str:
    """Return the text of ``sql/NAME.sql``."""
    return files("trafficdp.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def run_script(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Run every statement of ``sql/NAME.sql``."""
    connection.execute(script(name))


def query(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] | Mapping[str, object] = ()
) -> pa.Table:
    """Return the rows of a query as an Arrow table."""
    return connection.execute(sql, parameters).to_arrow_table()
