"""Where the real records of Austin's buses are: CapMetro open data, archived by scascketta/CapMetrics (MIT).

The environment variable TRAFFICDP_REAL_DATA names the folder that holds ``capmetro/YYYY-MM-DD.csv.gz``.
Pages of what was measured on them are written here too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trafficdp.engine.duckdb_reduce import read_samples
from trafficdp.errors import TrafficdpError, UsageError
from trafficdp.model import Grid
from trafficdp.sensitive import Samples
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
    """Return the files of ``days``, YYYY-MM-DD, there or in a folder beside it.

    Raises UsageError when one is missing.
    """
    return [_file_of(day) for day in days]


def _file_of(day: str) -> Path:
    for file in sorted(folder().parent.rglob(f"{day}.csv.gz")):
        return file
    raise UsageError(f"there is no {day}.csv.gz", got=folder().name, todo="get it from scascketta/CapMetrics")


def samples_of(city: Workspace, grid: Grid | None = None) -> Samples:
    """Return every clipped speed of ``city`` in the bins of ``grid``, the configured one if None.

    Values are for evaluations only: nothing else outside the curator may look at them.
    """
    with city._curator("evaluation") as curator:
        asked = (grid or city.config.grid, city.config.map.bound, data_version(curator.vault).ingest_id)
        return read_samples(curator.vault.connection, *asked)


def page(about: str, default: Path, report: Callable[[], Iterable[str]]) -> int:
    """Print the lines of ``report`` and write them to ``default``, or to the file that --into names.

    Returns the exit code that `trafficdp` would give.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--into", type=Path, default=default, help="file to write")
    into, lines = parser.parse_args().into, []
    try:
        for line in report():
            print(line, flush=True)
            lines.append(line)
    except TrafficdpError as error:
        print(f"{Path(parser.prog).stem}: {error}", file=sys.stderr)
        return error.exit_code
    into.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return 0


def write_section(guide: Path, script: str, lines: Iterable[str]) -> None:
    """Put ``lines`` between the marks that ``script`` has in ``guide``."""
    first, last = f"<!-- written by pipelines/{script}.py -->\n", "<!-- up to here -->\n"
    before, rest = guide.read_text(encoding="utf-8").split(first)
    after = rest.split(last, 1)[1]
    guide.write_text(before + first + "\n".join(lines) + "\n" + last + after, encoding="utf-8")
