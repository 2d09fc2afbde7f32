"""Commands on a city's store, run as a user runs them, and what the store says before and after.

Austin's folder for them is made of two days of TRAFFICDP_REAL_DATA.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from capmetro import CONFIG, DAYS, files_of
from trafficdp.cli import main as command_line
from trafficdp.errors import TrafficdpError

Facts = dict[str, Any]
"""What must not be lost, charged twice or drawn twice, by name; JSON."""
QUESTION = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, force = TRUE) AVG(speed) FROM records"
RELEASE = ("release", "--yes", "--force")


@dataclass(frozen=True)
class Command:
    """A command, where it begins, and what the same command does the second time."""

    words: tuple[str, ...]
    begins: str
    """The prepared store: empty, released (a day), or read (a second day besides)."""
    again: str
    """What it does when its effect is there: nothing, refuses, or acts anew."""
    effect: str
    """What it adds one to, of the facts of a store."""
    stdin: str = ""
    config: str = "trafficdp.toml"


COMMANDS = {
    "ingest": Command(("ingest", "day2.csv.gz"), "released", "acts", "ingests"),
    "undo": Command(("ingest", "--undo", "day2.csv.gz"), "read", "refuses", "undone"),
    "plan": Command(("plan", "--save", "next"), "read", "nothing", "plans"),
    "release": Command(RELEASE, "read", "nothing", "charge"),
    "question": Command(("sql", QUESTION), "read", "nothing", "charge"),
    "withdraw": Command(("withdraw", "r0001", "--yes"), "released", "refuses", "withdrawal"),
    "forget": Command(("forget", "--yes"), "released", "acts", "forgetting", "plates.txt"),
    "budget": Command(
        ("budget", "raise", "--reason", "more"), "released", "refuses", "promise", config="budget.toml"
    ),
    "stream": Command(("stream", "arriving", "--once", "--end"), "empty", "refuses", "stream_end"),
}


# What a store says, read from a copy: looking must not be what recovers its log.


def facts_of(folder: Path) -> Facts:
    """Return what must not be lost, charged twice or drawn twice, of the city in ``folder``."""
    store = folder / "city.store"
    found: Facts = {"plans": len(list((store / "plans").glob("[!.]*.json")))}
    with tempfile.TemporaryDirectory(dir=folder.parent) as copy:
        for name in ("vault.duckdb", "vault.duckdb.wal"):
            if (store / name).exists():
                shutil.copy(store / name, copy)
        with duckdb.connect(str(Path(copy) / "vault.duckdb"), config={"threads": 1}) as connection:

            def ask(sql: str) -> list[tuple[Any, ...]]:
                return list(connection.execute(sql).fetchall())

            tables = {str(name) for (name,) in ask("SELECT table_name FROM duckdb_tables()")}
            entries = [
                json.loads(str(entry)) for (entry,) in ask("SELECT entry FROM ledger ORDER BY sequence")
            ]
            found |= Counter(each["kind"] for each in entries)
            found["entries"] = [digest(each) for each in entries]
            found["charged"] = sorted(each["release"] for each in entries if each["kind"] == "charge")
            (found["ingests"],) = ask("SELECT count(*) FROM ingests")[0]
            (found["undone"],) = ask("SELECT count(undone_at) FROM ingests")[0]
            (found["records"],) = ask("SELECT count(*) FROM fixes")[0]
            charges = ask(
                "SELECT sequence, vehicle_id, sum(loss_pico)::BIGINT FROM vehicle_charges GROUP BY ALL"
            )
            found["accounts"] = {f"{sequence} {vehicle}": loss for sequence, vehicle, loss in charges}
            values = "SELECT release_id, list((part, number, md5(piece))) FROM release_pieces "
            values += "WHERE part <> 'allocation' GROUP BY ALL"
            found["values"] = {str(name): digest(sorted(map(str, rows))) for name, rows in ask(values)}
            if "streams" in tables:
                publications = ask("SELECT release_id, number, md5(bins) FROM stream_publications")
                found["values"] |= {f"{name} {number}": str(bins) for name, number, bins in publications}
                found["counted"] = ask("SELECT count(*), sum(records)::BIGINT FROM stream_counts")[0]
                found["rows"] = ask("SELECT count(*), sum(rows_taken)::BIGINT FROM stream_files")[0]
    found["published"] = {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((store / "releases").glob("r*/*"))
        if path.is_file()
    }
    found["names"] = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    )
    return found


def digest(value: object) -> str:
    """Return a short name of ``value``."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def kept(before: Facts, after: Facts, name: str) -> bool:
    """Return whether everything of ``before`` is in ``after`` as it was (the start of a list)."""
    first, second = before[name], after[name]
    if isinstance(first, dict) and isinstance(second, dict):
        return first.items() <= second.items()
    return isinstance(first, list) and isinstance(second, list) and second[: len(first)] == first


# Commands, run as a user runs them, in a child.


def run(
    folder: Path, words: Sequence[str], stdin: str = "", config: str = "trafficdp.toml"
) -> tuple[int, str]:
    """Run a command in this process and return its exit code and what it said on standard error.

    After an error that does not say what to do, this is written after it.
    """
    told: list[str] = []
    failed = command_line._failed

    def listening(error: Exception, output: object) -> int:
        if isinstance(error, TrafficdpError):
            told.append("" if error.todo else " [no advice]")
        return failed(error, output)  # type: ignore[arg-type]

    command_line._failed = listening
    os.chdir(folder)
    with open(folder / stdin if stdin else os.devnull, encoding="utf-8") as given:
        os.dup2(given.fileno(), 0)
    with tempfile.TemporaryFile("w+", dir=folder.parent) as said, open(os.devnull, "w") as nowhere:
        saved = os.dup(1), os.dup(2)
        os.dup2(nowhere.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            code = command_line.run(["--config", config, "--quiet", *words])
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for old, new in zip(saved, (1, 2), strict=True):
                os.dup2(old, new)
                os.close(old)
            command_line._failed = failed
        said.seek(0)
        lines = said.read().replace(str(folder), "").splitlines()
    return code, " | ".join(lines) + "".join(told)


def run_one(folder: Path, command: Command, *options: str) -> tuple[int, str]:
    """Run one of COMMANDS, with global ``options`` before it."""
    return run(folder, (*options, *command.words), command.stdin, command.config)


# A city to try them on.

STREAM = """[stream]
epsilon = 4
publish_every = 360
lateness = 3
records_per_vehicle = 200
records_per_step = 50

[[source]]"""


def make_city(folder: Path, config: str, days: Sequence[Sequence[str]]) -> None:
    """Write what COMMANDS need into ``folder``.

    ``days`` are lines of CSV: a header, whose first column is the vehicle, and records.
    """
    text = config.replace("[[source]]", STREAM, 1)
    text = re.sub(r"(?m)^files = .*", 'files = ["*.csv.gz", "*.csv"]', text)
    (folder / "trafficdp.toml").write_text(text, encoding="utf-8")
    more = re.sub(r"(?m)^(epsilon_per_vehicle = )\d+", r"\g<1>20", text)
    assert more != text
    (folder / "budget.toml").write_text(more, encoding="utf-8")
    for number, lines in enumerate(days, 1):
        with gzip.open(folder / f"day{number}.csv.gz", "wt", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    head, *records = days[0]
    (folder / "plates.txt").write_text(records[0].split(",")[0] + "\n", encoding="utf-8")
    arriving = folder / "arriving"
    arriving.mkdir()
    records = records[:: -(-len(records) // 1000)]
    third = -(-len(records) // 3)
    for number in range(3):
        part = records[third * number : third * (number + 1)]
        (arriving / f"part{number}.csv").write_text("\n".join([head, *part]) + "\n", encoding="utf-8")


def austin(folder: Path) -> None:
    """Make Austin's: a quarter of two days, few and large hexagons, for what is tried is the store."""
    text, days = CONFIG.read_text(encoding="utf-8"), []
    for before, after in (
        ("epsilon_per_vehicle = 8 ", "epsilon_per_vehicle_a_year = 16\nepsilon_per_vehicle = 16 "),
        ("resolution = 7", "resolution = 4"),
        ("statistics =", 'mechanism = "baseline"\nstatistics ='),
    ):
        assert before in text
        text = text.replace(before, after)
    for file in files_of(DAYS[:2]):
        with gzip.open(file, "rt", encoding="utf-8") as rows:
            head, *records = rows.read().splitlines()
        assert head.startswith("vehicle_id,")
        days.append([head, *records[::4]])
    make_city(folder, text, days)


def copy_of(source: Path, folder: Path) -> None:
    """Make the city of the folder ``source``, which holds trafficdp.toml, day1.csv and day2.csv."""
    days = [(source / f"day{number}.csv").read_text(encoding="utf-8").splitlines() for number in (1, 2)]
    make_city(folder, (source / "trafficdp.toml").read_text(encoding="utf-8"), days)
