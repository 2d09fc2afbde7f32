"""SQL lives in files beside this one; here it is read and run."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import duckdb


@cache
def script(name: str) -> str:
    """Return the text of ``sql/NAME.sql``."""
    return files("trafficdp.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def run_script(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Run every statement of ``sql/NAME.sql``."""
    connection.execute(script(name))
