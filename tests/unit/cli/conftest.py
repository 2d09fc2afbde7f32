"""A small city on disk, the command line in this process, and what a store holds."""

import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from vienna import configuration

from trafficdp.cli.main import run

CONFIG = configuration(12, 'accounting = "best"\nresolution = 6')
HEADER = "bus,at,lat,lng,v"
FIXES, VEHICLES = 3, 800


@cache
def _feed(day: str) -> tuple[str, ...]:
    """Rows of buses that drive north and back; their speeds agree with the distance they cover."""
    rows = []
    metres_a_degree = np.pi / 180 * 6371008.8
    start = np.datetime64(f"{day}T06:00:00")
    for bus in range(VEHICLES):
        speed = 4.0 + bus % 8
        away = np.abs((np.arange(FIXES) + bus) % 40 - 20) * 10 * speed
        for step in range(FIXES):
            # they set out one after the other
            at = start + np.timedelta64(10 * (step + bus % 60), "s")
            latitude = 48.18 + away[step] / metres_a_degree
            longitude = 16.30 + 0.005 * (bus % 20)
            rows.append(f"W-{bus:04d},{at}Z,{latitude:.7f},{longitude:.7f},{speed:.2f}")
    return tuple(rows)


@dataclass(frozen=True)
class Result:
    """What one command gave."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@dataclass(frozen=True)
class City:
    """A folder with a configuration, files and perhaps a store, whose tables ``tables_of`` reads."""

    folder: Path
    tables_of: Callable[[Path], dict[str, object]]

    @property
    def config(self) -> Path:
        return self.folder / "trafficdp.toml"

    @property
    def store(self) -> Path:
        return self.folder / "city.store"

    def change(self, old: str, new: str) -> None:
        """Replace a text of the configuration that occurs once."""
        text = self.config.read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        self.config.write_text(text.replace(old, new))

    def promise(self, reason: str = "tried in a test") -> None:
        """Let the store promise what the configuration says now."""
        assert run(["--quiet", "--config", str(self.config), "budget", "raise", "--reason", reason]) == 0

    def write(self, name: str, rows: Sequence[str] | bytes, header: str = HEADER) -> str:
        """Write a file and return its name."""
        content = rows if isinstance(rows, bytes) else "\n".join([header, *rows, ""]).encode()
        (self.folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)
        return name

    def dump(self) -> dict[str, object]:
        """What the store, its key and its heads hold, but the cache and the lock."""
        found: dict[str, object] = {}
        vault = self.store / "vault.duckdb"
        if vault.exists():
            found |= self.tables_of(vault)
            del found["contributions"]
        for path in sorted(self.folder.rglob("*")):
            # DuckDB rewrites the bytes of a vault at will, and with them its log
            if path.is_file() and path.name != ".lock" and not path.name.startswith("vault.duckdb"):
                found[str(path.relative_to(self.folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found


@pytest.fixture(scope="session")
def feed():
    """``feed(day)``: rows of one day, a list of one's own."""
    return lambda day: [*_feed(day)]


@pytest.fixture(scope="session")
def _templates(tmp_path_factory, small_city):
    """``templates(name)``: the folder of a prepared city, which is made when it is first asked for."""
    base = tmp_path_factory.mktemp("cities")
    release = ["release", "--yes", "--again"]
    made_by = {
        "empty": (None, [["init"]]),
        "filled": ("empty", [["ingest", "day1.csv.gz", "day2.csv.gz"]]),
        "released": ("filled", [release]),
        "twice": ("filled", [["budget", "raise", "--reason", "tried in a test"], release, release]),
        "planned": ("released", [["plan", "--save", "mine"]]),
    }

    def templates(name) -> Path:
        folder, (before, commands) = base / name, made_by[name]
        if folder.exists():
            return folder
        if before:
            shutil.copytree(templates(before), folder)
        else:
            folder.mkdir()
            (folder / "trafficdp.toml").write_text(CONFIG)
            for number, day in enumerate(("2026-03-02", "2026-03-03"), 1):
                City(folder, small_city.tables_of).write(f"day{number}.csv.gz", _feed(day))
        if name == "twice":
            City(folder, small_city.tables_of).change("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 20")
        with contextlib.chdir(folder):
            for command in commands:
                assert run(["--quiet", *command]) == 0
        return folder

    return templates


@pytest.fixture
def _copied(_templates, tmp_path, monkeypatch, small_city):
    def copied(name) -> City:
        folder = tmp_path / "city"
        shutil.copytree(_templates(name), folder)
        monkeypatch.chdir(folder)
        return City(folder, small_city.tables_of)

    return copied


@pytest.fixture
def empty(_copied) -> City:
    """A city with a configuration, two files and an empty store; the working directory is its folder."""
    return _copied("empty")


@pytest.fixture
def filled(_copied) -> City:
    """The same with both files read."""
    return _copied("filled")


@pytest.fixture
def released(_copied) -> City:
    """The same with one release."""
    return _copied("released")


@pytest.fixture
def planned(_copied) -> City:
    """The same with a saved plan."""
    return _copied("planned")


@pytest.fixture
def twice(_copied) -> City:
    """A city with both files read and two releases, under a budget of 20."""
    return _copied("twice")


@pytest.fixture
def command(capsys):
    """``command("plan", "--epsilon", 3)``: run in this process; returns code, out and err."""

    def command(*arguments) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return command


@pytest.fixture
def refusal(command):
    """``refusal(code, ...)``: the message of a command that fails with ``code``, its form checked."""

    def refusal(code: int, *arguments) -> str:
        result = command(*arguments)
        assert result.code == code, (result, arguments)
        assert result.out == ""
        assert result.err.startswith("trafficdp: ")
        assert result.err.endswith("\n")
        assert result.err.count("\n") == 1
        assert result.err.rstrip("\n").isprintable()
        return result.err

    return refusal


@pytest.fixture(scope="session")
def script() -> str:
    """The installed command."""
    path = Path(sys.executable).with_name("trafficdp")
    if not path.exists():
        pytest.skip("the command trafficdp is not installed beside this Python")
    return str(path)


@pytest.fixture
def process(script):
    """``process("plan", stdout=...)``: run the installed command."""

    def process(*arguments, **options) -> subprocess.CompletedProcess:
        return subprocess.run([script, *map(str, arguments)], timeout=60, check=False, **options)

    return process


@pytest.fixture
def on_terminal(small_city):
    """``on_terminal(work, typed, columns=80)``: exit code and what a terminal shows of a ``forked`` child."""

    def on_terminal(work, typed=b"", columns=80):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        child = small_city.forked(work, theirs, theirs, theirs)
        os.close(theirs)
        os.write(ours, typed)
        shown = b""
        # the terminal is gone once nobody holds its other end
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 1 << 16):
                shown += piece
        os.close(ours)
        return small_city.ended(child), re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", shown).decode()

    return on_terminal


@pytest.fixture(autouse=True)
def _maps_are_tried_once(two_cities, shared_workers):
    """What commands say must hold of any number of tries."""
