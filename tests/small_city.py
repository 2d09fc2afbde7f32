"""A city small enough to release in a blink: fifteen vehicles, five cells, two days. Loaded by conftests."""

import atexit
import hashlib
import json
import os
import signal
import struct
import sys
import warnings
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from pathlib import Path
from unittest.mock import patch

import duckdb

import trafficdp
from trafficdp.errors import UsageError
from trafficdp.mechanisms import simulated_cities
from trafficdp.mechanisms.pooling import add_remove_calibrated
from trafficdp.planner.request import Request
from trafficdp.store import vault_fixes
from trafficdp.store.vault import Vault

PLATES = [f"ka-{number:02d} Zx {7000 + 13 * number}" for number in range(1, 16)]
"""As a feed would spell them. Vehicles 1 to 10 drive on the first day, 6 to 15 on the second."""
LONELY = "mh 99 q 4242"
"""The only vehicle of its cell."""
CELLS = ((21.12, 72.72), (21.16, 72.76), (21.20, 72.80), (21.24, 72.84))
LONELY_CELL = (21.12, 72.90)
DAYS = {1: range(10), 2: range(5, 15)}

CONFIG = """
[city]
name = "Small City"
publisher = "Small City Transport"
time_zone = "Asia/Kolkata"
study_area = { bbox = [72.70, 21.10, 72.95, 21.28] }
period = { from = "@first", to = "@last" }

[privacy]
relation = "replace_user_values"
epsilon = @epsilon

[budget]
epsilon_per_vehicle = @budget

[map]
resolution = @resolution
slot = "whole_period"
speed_bound = 65
speed_unit = "km/h"
speed_step = 0.01
display_unit = "km/h"
min_vehicles = 3
statistics = [@statistics]
accounting = "@accounting"

[[source]]
name = "buses"
format = "csv"
files = ["*.csv"]
speed_unit = "@unit"
time_format = "iso8601"
columns = { vehicle = "plate", time = "at", latitude = "latitude", longitude = "longitude", speed = "speed" }
"""
ACCEPTED = "accept_weak_promise = true\n"
DEFAULTS = {
    "first": "2026-03-03",
    "last": "2026-03-04",
    "epsilon": "8",
    "budget": "20",
    "resolution": "7",
    "statistics": '"mean", "variance"',
    "accounting": "best",
    "unit": "km/h",
}


_skill_once = lru_cache(maxsize=256)(simulated_cities.reference_skill.__wrapped__)
"""What is found with fewer tries is kept apart from what is found with all."""


def plan_request(bound, loss, tolerance, min_vehicles=1, level=0.95, **more):
    """What the planner is asked for, in the unit of ``bound``."""
    return Request(bound, min_vehicles, level, bound.unit, loss=loss, tolerance=tolerance, **more)


def try_maps_once(setattr=setattr):
    """Try every map and mechanism about once, in two simulated cities: plans take a sixth of the time.

    Where nothing is public, in every other reference city.
    """
    setattr(simulated_cities, "ESTIMATES", 40)
    setattr(simulated_cities, "MOST_DRAWS", 1)
    setattr(simulated_cities, "_numbers", lambda counts: range(0, 8, 4))
    setattr(simulated_cities, "MANY_REFERENCE_BINS", 0)
    setattr(add_remove_calibrated, "reference_skill", _skill_once)


def forked(work, stdin=os.devnull, stdout=os.devnull, stderr=os.devnull):
    """Start ``work()``, or a command of these words, in a process that need not import what this one has.

    Its streams are descriptors or names of files. Return its id, for ``ended``.
    """
    with warnings.catch_warnings():
        # it uses nothing that a thread of this one may hold
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = 99
    try:
        from trafficdp.cli.main import main

        for number, stream in enumerate((stdin, stdout, stderr)):
            opened = stream if isinstance(stream, int) else os.open(stream, os.O_RDWR | os.O_CREAT)
            os.dup2(opened, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        # of another number than 0, so that questions are not asked by readline, which a command never loads
        sys.stdin = os.fdopen(os.dup(0))
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        signal.alarm(300)
        if not callable(work):
            sys.argv = ["trafficdp", *map(str, work)]
        (work if callable(work) else main)()
        code = 0
    except SystemExit as done:
        code = done.code
    finally:
        os._exit(code)


def ended(child):
    """Wait for a process that was ``forked`` and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for_no_disk():
    """Let this process and its children write without waiting for the disk: no test cuts the power."""
    os.fsync = os.fstat
    connect = duckdb.connect

    def unsynced(database=":memory:", read_only=False, config=()):
        return connect(database, read_only, {"fsync_mode": "NONE", **dict(config)})

    duckdb.connect = unsynced


def write_config(folder, **changes):
    """Write `trafficdp.toml`; ``changes`` replace DEFAULTS, ``area`` the bounding box."""
    text = CONFIG
    for name, value in {**DEFAULTS, **changes}.items():
        text = text.replace(f"@{name}", str(value))
    if "area" in changes:
        text = text.replace("[72.70, 21.10, 72.95, 21.28]", changes["area"])
    if float(str(changes.get("budget", 0)).splitlines()[0]) > 20:
        text = text.replace("[privacy]\n", f"[privacy]\n{ACCEPTED}")
    path = Path(folder) / "trafficdp.toml"
    path.write_text(text, encoding="utf-8")
    return path


def write_day(folder, day):
    """Write `day1.csv` or `day2.csv`: a different number of records for every vehicle, never a stray one."""
    zone = timezone(timedelta(hours=5, minutes=30))
    start = datetime(2026, 3, 2 + day, 8, tzinfo=zone)
    rows = ["plate,at,latitude,longitude,speed"]
    for vehicle in DAYS[day]:
        at = start
        for hop in range(2):
            latitude, longitude = CELLS[(vehicle + hop) % len(CELLS)]
            for record in range(4 + vehicle * 7 % 5 + hop):
                at += timedelta(seconds=150)
                speed = 20 + (vehicle * 37 + record * 11 + hop * 5 + day * 3) % 41 + record / 100
                plate = PLATES[vehicle] if record % 2 else PLATES[vehicle].upper().replace(" ", "-")
                rows.append(f"{plate},{at.isoformat()},{latitude},{longitude},{speed:.2f}")
    at = start
    for record in range(7):
        at += timedelta(seconds=150)
        rows.append(f"{LONELY},{at.isoformat()},{LONELY_CELL[0]},{LONELY_CELL[1]},{30 + record}")
    path = Path(folder) / f"day{day}.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


class City:
    """A folder with configuration, files and store."""

    def __init__(self, folder, **changes):
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_config(folder, **changes)
        for day in DAYS:
            write_day(folder, day)
        self._name_files(Path(folder))

    def _name_files(self, folder):
        self.folder = folder
        self.config = folder / "trafficdp.toml"
        self.days = {day: folder / f"day{day}.csv" for day in DAYS}
        self.store = self.folder / "city.store"
        self.key = self.folder / "city.store.key"
        self.vault = self.store / "vault.duckdb"
        self.released = self.store / "released.duckdb"

    def open(self, wait=5.0, **changes):
        """Return a workspace, under a changed configuration if asked; make the store if there is none."""
        if changes:
            write_config(self.folder, **changes)
        workspace = trafficdp.open(self.config, create=True, wait=wait)
        if changes:
            # another budget than the store promises, where it has promised one
            with suppress(UsageError):
                workspace.raise_budget("tried in a test")
        return workspace

    def head(self):
        """Return the path of the ledger's head."""
        (path,) = self.folder.glob("city.store.key.*.head")
        return path

    def sql(self, statement, parameters=(), *, database="vault"):
        """Run a statement in the vault (or released.duckdb), as an intruder would; return its rows."""
        path = self.vault if database == "vault" else self.released
        reads = statement.lstrip().upper().startswith(("SELECT", "FROM"))
        with attached(path, " (READ_ONLY)" if reads else "") as connection:
            return connection.execute(statement, parameters).fetchall()

    def contributions(self):
        """Return rows (cell, slot, vehicle, fixes, total, total of squares) of what the cache has, sorted."""
        config = self.open().config
        with Vault.open(self.store) as vault:
            found = vault_fixes.load_contributions(
                vault, config.grid, config.map.bound, 1 << 31
            ).contributions
        own = found.counts
        vehicle = found.vehicle[own.user_index]
        bins = own.cell[own.bin_index], own.slot[own.bin_index]
        columns = (*bins, vehicle, own.count, found.total, found.total_of_squares)
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def forge(self, part, number):
        """Put ``number`` in the place of every number of a part of the cache."""
        forged = struct.pack("<q", number) * len(self.contributions())
        self.sql("UPDATE contributions SET type = '<i8', piece = ? WHERE part = ?", [forged, part])

    def kept(self, part, release="r0001"):
        """Return what the vault keeps of a release under the name ``part``, as bytes."""
        found = "SELECT piece FROM release_pieces WHERE release_id = ? AND part = ? ORDER BY number"
        return b"".join(piece for (piece,) in self.sql(found, [release, part]))

    def keep(self, part, content, release="r0001"):
        """Put ``content`` in the place of what the vault keeps of a release under the name ``part``."""
        self.sql("DELETE FROM release_pieces WHERE release_id = ? AND part = ?", [release, part])
        self.sql("INSERT INTO release_pieces VALUES (?, ?, 1, ?)", [release, part, content])

    def dump(self):
        """Return the logical content of the store: see ``logical_dump``."""
        return logical_dump(self.store)


def at(folder):
    """Return the city that lies in ``folder`` already, nothing written."""
    found = City.__new__(City)
    found._name_files(Path(folder))
    return found


KEPT = {}
"""DuckDB by process: to start it takes longer than to look into a store. A child never uses its parent's."""
atexit.register(KEPT.clear)


@contextmanager
def attached(path, option):
    """A connection that uses the database at ``path``; after an error the next one is of another DuckDB."""
    if os.getpid() not in KEPT:
        KEPT[os.getpid()] = duckdb.connect(config={"threads": 1})
    quoted = str(path).replace("'", "''")
    try:
        with KEPT[os.getpid()].cursor() as connection:
            connection.execute(f"ATTACH '{quoted}' AS it{option}")
            connection.execute("USE it")
            yield connection
            connection.execute("USE memory")
            connection.execute("DETACH it")
    except BaseException:
        KEPT.pop(os.getpid()).close()
        raise


_tables = {}


def tables_of(path):
    """Return {table: sorted rows as text} of a DuckDB file, and of its log if there is one.

    The same bytes hold the same tables: they are read once.
    """
    path = Path(path)
    log = path.with_name(path.name + ".wal")
    written = path.read_bytes(), log.read_bytes() if log.exists() else b""
    seen = tuple(hashlib.sha256(each).digest() for each in written)
    if seen not in _tables:
        _tables[seen] = _read_tables(path)
    return dict(_tables[seen])


def _read_tables(path):
    found = {}
    with attached(path, " (READ_ONLY)") as connection:
        names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'it'")
        for (name,) in sorted(names.fetchall()):
            rows = connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {name}").fetchall()
            found[name] = sorted(rows, key=repr)
    return found


def logical_dump(store):
    """Return what a store says: all rows of both databases, and the digest of every other file.

    The cache of contributions may come and go at any time, and the lock names its last holder: neither is
    content.
    """
    store = Path(store)
    vault = tables_of(store / "vault.duckdb")
    vault.pop("contributions")
    released = store / "released.duckdb"
    aside = ("vault.duckdb", "vault.duckdb.wal", "released.duckdb", ".lock")
    files = {
        str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name not in aside
    }
    return {
        "vault": vault,
        "released": tables_of(released) if released.exists() else None,
        "files": files,
        "folders": sorted(str(path.relative_to(store)) for path in store.rglob("*") if path.is_dir()),
    }


FILES = "every file is the one that was published"
EPSILON = "the manifest's epsilon is the largest recomputed loss"
LOSSES = "the published scales cost no vehicle more than it was charged"


def failed(city, release="r0001", only=None):
    """Return {check: what `verify` found wrong}; where checks are named, ``only`` these are made."""

    # it imports every mechanism, which tests of a mechanism that does not compile must not
    from trafficdp.release.recomputation import run_checks

    def chosen(checks):
        named = {name: check for name, check in checks if only is None or name in only}
        assert only is None or named.keys() == {*only}
        return run_checks(named.items())

    with patch("trafficdp.release.recomputation.run_checks", chosen):
        return {check.name: check.found for check in city.open().verify(release) if not check.passed}


def charges_by_plate_order(city):
    """Return {vehicle_id: {sequence: pico}} of the vault."""
    found = {}
    for sequence, vehicle, loss in city.sql("SELECT sequence, vehicle_id, loss_pico FROM vehicle_charges"):
        found.setdefault(vehicle, {})[sequence] = loss
    return found


def ledger_entries(city):
    """Return the entries of the ledger as dictionaries, in order."""
    return [json.loads(entry) for (entry,) in city.sql("SELECT entry FROM ledger ORDER BY sequence")]


def spent(city):
    """Return {vehicle_id: pico} over all charges."""
    return {vehicle: sum(account.values()) for vehicle, account in charges_by_plate_order(city).items()}


def charges(city):
    """Return the ledger's charges as dictionaries, in order."""
    return [entry for entry in ledger_entries(city) if entry["kind"] == "charge"]


def write_hidden(folder, *, delta="", slot="whole_period", statistics='"mean", "variance"', epsilon="4"):
    """Write `trafficdp.toml` of a store of which nothing about a vehicle is public."""
    path = write_config(folder, statistics=statistics, epsilon=epsilon)
    text = path.read_text(encoding="utf-8")
    for before, after in (
        ('"replace_user_values"', '"add_or_remove_user"'),
        (f"epsilon = {epsilon}\n", f"epsilon = {epsilon}\n{delta}"),
        ("epsilon_per_vehicle = 20", "epsilon = 9"),
        ("min_vehicles = 3\n", "fleet = 120\n"),
        ('slot = "whole_period"', f'slot = "{slot}"'),
    ):
        assert before in text
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")
