"""Where the real records of Austin's buses are: CapMetro open data, archived by scascketta/CapMetrics (MIT).

The environment variable TRAFFICDP_REAL_DATA names the folder that holds ``capmetro/YYYY-MM-DD.csv.gz``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from trafficdp.engine.duckdb_samples import read_samples
from trafficdp.errors import UsageError
from trafficdp.model import Grid
from trafficdp.sensitive.values import Samples
from trafficdp.store.vault_fixes import data_version
from trafficdp.workspace import Workspace

CONFIG = Path(__file__).with_name("austin.toml")
DAYS = ("2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27")
"""The four days around Thanksgiving 2016 that ``austin.toml`` is about."""


def folder() -> Path:
    """Return the folder of the days' files. Raises UsageError when the variable is not set."""
    named = os.environ.get("TRAFFICDP_REAL_DATA")
    if not named:
        raise UsageError(
            "TRAFFICDP_REAL_DATA is not set",
            expected=f"the folder that holds capmetro/{DAYS[0]}.csv.gz and other days",
            todo="get the files from scascketta/CapMetrics and set the variable",
        )
    return Path(named) / "capmetro"


def config_of(days: Sequence[str], into: Path) -> Path:
    """Write ``austin.toml`` for the time from the first to the last of ``days`` into ``into``; return it."""
    text, said = CONFIG.read_text(encoding="utf-8"), 'from = "{}", to = "{}"'
    own = into / CONFIG.name
    own.write_text(
        text.replace(said.format(DAYS[0], DAYS[-1]), said.format(days[0], days[-1])), encoding="utf-8"
    )
    return own


def files_of(days: Sequence[str]) -> list[Path]:
    """Return the files of ``days``, YYYY-MM-DD."""
    return [folder() / f"{day}.csv.gz" for day in days]


def samples_of(city: Workspace, grid: Grid | None = None) -> Samples:
    """Return every clipped speed of ``city`` in the bins of ``grid``, the configured one if None.

    Values are for evaluations only: nothing else outside the curator may look at them.
    """
    with city._curator("evaluation") as curator:
        asked = (grid or city.config.grid, city.config.bound, data_version(curator.vault).ingest_id)
        return read_samples(curator.vault.connection, *asked)
