"""Two stores of neighbouring data, in the same folder one after the other, and all that leaves either.

The same key, the same random names and the same clock; noise is chosen so that both publish the same numbers.
"""

import contextlib
import hashlib
import importlib
import inspect
import io
import os
import pkgutil
from datetime import UTC, datetime
from itertools import count

import duckdb
import numpy as np
from vienna import configuration

import trafficdp
from trafficdp.cli.main import run
from trafficdp.noise.source import SimulatedNoise
from trafficdp.stream.tree import SignedCounterBank

CONFIG = configuration(
    30,
    'resolution = 7\nstatistics = ["mean", "variance"]\npublish_counts = true',
    """\
[[analysts]]
name = "newsroom"
epsilon_per_vehicle = 9

[[areas]]
name = "north"
bbox = [16.20, 48.18, 16.60, 48.30]

[stream]
epsilon = 4
publish_every = 5
lateness = 3
records_per_vehicle = 30

""",
)
CONFIG = CONFIG.replace("[privacy]\n", "[privacy]\naccept_weak_promise = true\n")
AREAS = CONFIG[CONFIG.index("[[areas]]") : CONFIG.index("[stream]")]
HIDDEN = CONFIG[: CONFIG.index("[[analysts]]")] + AREAS + CONFIG[CONFIG.index("[[source]]") :]
HIDDEN = HIDDEN.replace('relation = "replace_user_values"', 'relation = "add_or_remove_user"')
HIDDEN = HIDDEN.replace("epsilon_per_vehicle = 30", "epsilon = 30").replace("min_vehicles = 3\n", "")
HIDDEN = HIDDEN.replace("publish_counts = true\n", "fleet = 200\n")
"""The same where nothing about a vehicle is public."""
HEADER = "bus,at,lat,lng,v"
BUSES, FIXES = 12, 12
VICTIM = "W-0003"
"""Sends so many more records than the others that its speeds alone decide whether the unit seems to fit."""
NOON = datetime(2026, 3, 5, 12, 0, 0, tzinfo=UTC)


def feed(day):
    """Rows (bus, at, latitude, longitude, speed) of buses that drive north as fast as they say."""
    start, rows = np.datetime64(f"{day}T06:00:00"), []
    for bus in range(BUSES):
        name, speed = f"W-{bus:04d}", 4.0 + bus % 8
        for step in range(FIXES * (40 if name == VICTIM else 1)):
            at = start + np.timedelta64(10 * step, "s")
            place = abs((step + bus) % 40 - 20) * 10 * speed / 111_195
            rows.append(
                (name, f"{at}Z", f"{48.18 + place:.7f}", f"{16.30 + 0.01 * (bus % 4):.2f}", f"{speed:.2f}")
            )
    return rows


def other_speeds(rows):
    """The neighbour under `replace_user_values`: all speeds of one vehicle, some beyond the bound."""
    others = ("0", "0.01", "7.77", "20.00", "400.5", "-3")
    return [
        (*row[:4], others[number % len(others)]) if row[0] == VICTIM else row
        for number, row in enumerate(rows)
    ]


def without(rows, plate=VICTIM):
    """The neighbour under `add_or_remove_user`: all records of one vehicle are gone."""
    return [row for row in rows if row[0] != plate]


class _Draw(np.ndarray):
    """A draw that is told which sum to come to: what it is added to does not matter."""

    script = None

    def __array_finalize__(self, other):
        self.script = getattr(other, "script", None)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [np.asarray(each) if isinstance(each, _Draw) else each for each in inputs]
        found = getattr(ufunc, method)(*plain, **options)
        return self.script.follow(found) if ufunc is np.add and method == "__call__" else found


class Script:
    """The outputs of everything noisy, in order: written the first time, followed the second."""

    def __init__(self):
        self.outputs, self.followed = [], None

    def again(self):
        self.followed = iter(self.outputs)
        return self

    def follow(self, found):
        if self.followed is None:
            self.outputs.append(np.array(found))
            return found
        wanted = next(self.followed)
        assert wanted.shape == np.shape(found)
        return wanted.copy()


class ChosenNoise(SimulatedNoise):
    """Seeded noise that follows a script."""

    def __init__(self, script):
        super().__init__(11)
        self.script = script

    def _told(self, drawn):
        told = np.asarray(drawn).view(_Draw)
        told.script = self.script
        return told

    def discrete_laplace(self, scale):
        return self._told(super().discrete_laplace(scale))

    def discrete_gaussian(self, sd):
        return self._told(super().discrete_gaussian(sd))

    def block(self, half_width, block, scale):
        return self._told(super().block(half_width, block, scale))


class Clock(datetime):
    """It is always the same instant."""

    @classmethod
    def now(cls, tz=None):
        return NOON.astimezone(tz)


class World:
    """One of two stores, in the same folder one after the other: its key, its names, its clock, its noise."""

    def __init__(self, folder, rows, script, patch, config=CONFIG):
        folder.mkdir()
        self.folder, self.rows, self.patch, self.left, self.hidden = folder, rows, patch, {}, {}
        (folder / "trafficdp.toml").write_text(config)
        for day, content in rows.items():
            self.write(f"{day}.csv", content)
        numbers = count(1)
        # the same key, the same random names
        patch.setattr(os, "urandom", lambda size: hashlib.shake_256(b"%d" % next(numbers)).digest(size))
        patch.setattr("trafficdp.release.curator.SecureNoise", lambda: ChosenNoise(script))
        sums = SignedCounterBank.sums
        patch.setattr(SignedCounterBank, "sums", lambda bank, noise: script.follow(sums(bank, noise)))
        patch.setattr("trafficdp.release.streaming.SecureNoise", lambda: SimulatedNoise(12))
        patch.chdir(folder)

    def write(self, name, rows):
        """Write a file of a feed."""
        lines = [HEADER, *(",".join(row) for row in rows), ""]
        (self.folder / name).write_text("\n".join(lines))

    def command(self, *arguments, curators_eyes=False, given=""):
        """Run a command, ``given`` on its standard input; remember its exit code and what it printed."""
        # rows of an answer leave as bytes
        written, err = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
        self.patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run([*arguments])
        name = f"{len(self.left) + len(self.hidden):02d} {' '.join(arguments)}"
        self.left[f"{name}: exit code"] = code
        # a refusal is for anyone
        (self.hidden if curators_eyes and not code else self.left)[f"{name}: output"] = (
            written.getvalue().decode(),
            err.getvalue(),
        )
        return code

    def both(self, *arguments):
        """Run a command that changes nothing, plain and as JSON."""
        code = self.command(*arguments)
        assert self.command("--json", *arguments) == code
        return code

    def verify(self, first, *others):
        """Verify releases, the first plain and as JSON."""
        assert self.both("verify", first) == 0
        for release in others:
            assert self.command("verify", release) == 0

    def collect(self):
        """Remember every file that can leave, and what is in `released.duckdb`."""
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if not path.is_file() or (name.suffix == ".csv" and len(name.parts) == 1) or name.name == ".lock":
                continue
            if name.name.startswith("vault.duckdb"):
                continue
            if name.name == "released.duckdb":
                self.left[f"{name}: size"] = path.stat().st_size
                self.left |= {f"{name}: {table}": rows for table, rows in tables_of(path).items()}
            else:
                self.left[str(name)] = path.read_bytes()


def tables_of(path):
    """Return {table or view: rows as text} of a DuckDB file."""
    with duckdb.connect(str(path), read_only=True) as connection:
        names = connection.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
        return {
            name: connection.execute(
                f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {name} ORDER BY ALL"
            ).fetchall()
            for (name,) in names
        }


def modules_with_clocks():
    """All modules of the package that tell the time."""
    for found in pkgutil.walk_packages(trafficdp.__path__, "trafficdp."):
        # these need an extra, and tell no time
        if not found.name.endswith(("__main__", "spark_job")):
            module = importlib.import_module(found.name)
            # where it only names a type it must stay that type
            if getattr(module, "datetime", None) is datetime and "datetime.now(" in inspect.getsource(module):
                yield module


def differing(one, other):
    return sorted(
        name for name in one.left.keys() | other.left.keys() if one.left.get(name) != other.left.get(name)
    )
