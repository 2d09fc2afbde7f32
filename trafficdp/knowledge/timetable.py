"""Scheduled speeds of places from a static GTFS timetable (gtfs.org): public, and read without any record.

For neighbouring stops of every trip that runs in the period: their straight distance and the scheduled time,
spread evenly over POINTS points between them. The speed of a place is the sum of distances over the sum of
times of the points in it. Stops without a time are passed over. A run between stops belongs to the hour in
which it leaves, times beyond 24:00 to the same hours of the day that began.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trafficdp._durable import sha256_of, unpacking
from trafficdp.arrays import FloatArray, IntArray, run_starts
from trafficdp.binning.cells import places_of
from trafficdp.binning.places import hours_of_week, slots_of
from trafficdp.errors import ConfigError
from trafficdp.model import NOWHERE, Grid, SlotKind

POINTS = 12
EARTH_RADIUS = 6_371_008.8
"""Metres."""
LARGEST = 16 << 30
"""Bytes of the unpacked tables together."""
MEMORY = "600MB"
CHECKED = "check the file with a GTFS validator"
_CALENDAR = ("service_id", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
REQUIRED = {
    "stops.txt": ("stop_id", "stop_lat", "stop_lon"),
    "trips.txt": ("trip_id", "service_id"),
    "stop_times.txt": ("trip_id", "stop_id", "stop_sequence", "arrival_time", "departure_time"),
}
OPTIONAL = {
    "calendar.txt": (*_CALENDAR, "start_date", "end_date"),
    "calendar_dates.txt": ("service_id", "date", "exception_type"),
    "frequencies.txt": ("trip_id", "start_time", "end_time", "headway_secs"),
}
TABLES = REQUIRED | OPTIONAL


@dataclass(frozen=True)
class Timetable:
    """Scheduled traffic of places in a period: one row a (place, hour of the week) with any, shape (n,).

    ``hour`` counts from Monday 00:00, 0 to 167. ``metres`` and ``seconds`` are sums over the days of the
    period. ``file`` is the file's name and ``sha256`` its hash (hexadecimal).
    """

    file: str
    sha256: str
    place: npt.NDArray[np.uint64]
    hour: IntArray
    metres: FloatArray
    seconds: FloatArray

    def traffic(
        self, grid: Grid, cell: npt.NDArray[np.uint64], slot: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return scheduled speed (m/s) and distance (metres) of every bin, shape (G,) each.

        From public timetables alone. Bins are pairs (``cell``, ``slot``) of ``grid``, (G,). Distance is the
        sum over the whole period of all hours of the week that lie in the slot, even where it is of one date;
        0 where nothing is scheduled in them. The speed is then the place's over all slots; NaN where nothing
        is scheduled there at all.
        """
        # numbers of slots that recur weekly: of every hour of the week, (168,), and of every slot, (G,)
        kind, zone, of_hour = grid.slot_kind, grid.period.time_zone, np.arange(168)
        if kind is SlotKind.WHOLE_PERIOD:
            of_hour, of_slot = np.zeros_like(of_hour), np.zeros(len(slot), dtype=np.int64)
        elif kind is SlotKind.DAY:
            of_hour, of_slot = of_hour // 24, hours_of_week(slot * 1_000_000, zone) // 24
        elif kind is SlotKind.CALENDAR_HOUR:
            of_slot = hours_of_week(slot * 1_000_000, zone)
        else:
            # 1970-01-05 was a Monday
            monday = (4 * 24 + of_hour) * 3_600_000_000
            of_hour, of_slot = slots_of(monday, kind, "UTC", grid.day_parts), slot
        places, at = np.unique(np.append(cell, self.place), return_inverse=True)
        bin_at, own_at, many = at[: len(cell)], at[len(cell) :], int(of_hour.max()) + 1

        def rates(bins: IntArray, own: IntArray, size: int) -> tuple[FloatArray, FloatArray]:
            metres: FloatArray = np.bincount(own, self.metres, size)[bins].astype(np.float64)
            seconds = np.bincount(own, self.seconds, size)[bins]
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(seconds > 0, metres / seconds, np.nan), metres

        keys = bin_at * many + of_slot, own_at * many + of_hour[self.hour]
        speed, service = rates(*keys, len(places) * many)
        usual, _ = rates(bin_at, own_at, len(places))
        return np.where(np.isnan(speed), usual, speed), service


def read_timetable(path: Path, grid: Grid) -> Timetable:
    """Return the scheduled traffic in the places of ``grid``, from the static GTFS archive at ``path``, a
    .zip.

    Days of the period that it is not for count as its average one of the same day of the week. Raises
    ConfigError for a file that is no static GTFS, lacks a table or a column, or cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="trafficdp-") as folder:
        _unpack(path, Path(folder))
        with _database(path, folder) as database:
            for name, day in (("first", grid.period.first), ("last", grid.period.last)):
                database.execute(f"SET VARIABLE {name} = DATE '{day.isoformat()}'")
            database.execute(
                files("trafficdp.knowledge").joinpath("sql", "timetable.sql").read_text(encoding="utf-8")
            ).fetchall()
            found = database.sql("FROM unread, (SELECT count(*) FROM between_stops)")
            ((wrong, many, runs),) = found.fetchall()
            if wrong:
                raise ConfigError(
                    f"times of the timetable {path.name} cannot be read",
                    got=f"{wrong} of {many} rows of stop_times.txt",
                    expected='clocks such as "25:10:00", and whole numbers as stop_sequence',
                    todo=CHECKED,
                )
            if not runs:
                raise ConfigError(
                    f"by the timetable {path.name} nothing runs in the period",
                    expected="trips of two stops with times, on days of the week that the period has",
                    todo=CHECKED,
                )
            points = _points(database.sql("FROM pair").to_arrow_table(), grid)
            database.register("points", points)
            traffic = database.sql(
                "SELECT place, weekday * 24 + hour AS hour, sum(share * runs * metres) AS metres, "
                "sum(share * seconds) AS seconds FROM between_stops JOIN points USING (origin, destination) "
                "GROUP BY ALL ORDER BY ALL"
            ).fetchnumpy()
            database.unregister("points")
    return Timetable(
        path.name,
        sha256_of(path),
        np.asarray(traffic["place"], dtype=np.uint64),
        np.asarray(traffic["hour"], dtype=np.int64),
        np.asarray(traffic["metres"], dtype=np.float64),
        np.asarray(traffic["seconds"], dtype=np.float64),
    )


def _points(pair: pa.Table, grid: Grid) -> pa.Table:
    """Which part of the way between two stops lies in which place of ``grid``, and how long the way is."""
    south, west, north, east = (pair[name].to_numpy() for name in ("south", "west", "north", "east"))
    over = (east - west + 180) % 360 - 180
    part = ((np.arange(POINTS) + 0.5) / POINTS)[:, None]
    latitude = south + part * (north - south)
    longitude = (west + part * over + 180) % 360 - 180
    place = places_of(grid).cells_of(latitude.ravel(), longitude.ravel())
    number = np.tile(np.arange(len(south)), POINTS)
    there = place != NOWHERE
    # one row a (pair, place), however many of its points lie there
    order = np.lexsort((place[there], number[there]))
    place, number = place[there][order], number[there][order]
    first = np.flatnonzero(run_starts(place, number))
    own = number[first]
    # the way along the great circle
    a, b = np.radians(south), np.radians(north)
    haversine = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin(np.radians(over) / 2) ** 2
    return pa.table(
        {
            "origin": pair["origin"].to_numpy()[own],
            "destination": pair["destination"].to_numpy()[own],
            "place": place[first],
            "share": np.diff(np.append(first, len(place))) / POINTS,
            "metres": 2 * EARTH_RADIUS * np.arcsin(np.sqrt(haversine))[own],
        }
    )


@contextmanager
def _database(path: Path, folder: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that knows ``folder``; what DuckDB cannot read is a ConfigError."""
    connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": folder})
    try:
        # in a notebook that cannot draw it the bar is off, and to say so again is an error
        if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
            connection.execute("SET enable_progress_bar = false")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute("SET VARIABLE folder = $folder", {"folder": folder})
        yield connection
    except duckdb.Error as error:
        raise ConfigError(
            f"the timetable {path.name} cannot be read",
            got=str(error).splitlines()[0][:200],
            todo=CHECKED,
        ) from error
    finally:
        connection.close()


def _unpack(path: Path, into: Path) -> None:
    """Write the tables of the .zip ``path`` into ``into``, with headers as ``timetable.sql`` wants them."""
    if not path.exists():
        raise ConfigError(f"the timetable {path.name} does not exist", got=str(path), todo="correct its name")
    if not zipfile.is_zipfile(path):
        raise ConfigError(f"the timetable {path.name} is not static GTFS", expected="a .zip of tables")
    with unpacking(f"the timetable {path.name}", "tables"), zipfile.ZipFile(path) as archive:
        size = {each.filename: each.file_size for each in archive.infolist()}
        if not OPTIONAL.keys() & {*size} - {"frequencies.txt"}:
            raise _not_gtfs(path, "neither calendar.txt nor calendar_dates.txt")
        if sum(size.get(name, 0) for name in TABLES) > LARGEST:
            raise ConfigError(
                f"the timetable {path.name} is too large", expected=f"tables of {LARGEST >> 30} GiB at most"
            )
        for name, columns in TABLES.items():
            with (into / name).open("wb") as unpacked:
                if name in size:
                    with unpacking(f"the timetable {path.name}", name), archive.open(name) as packed:
                        header = packed.readline(1 << 16).decode("utf-8-sig", "replace")
                        try:
                            given = [each.strip() for each in next(csv.reader([header]), [])]
                        except csv.Error:
                            got = f"{name} whose first line is no header of a CSV"
                            raise _not_gtfs(path, got) from None
                        missing = [each for each in columns if each not in given]
                        if missing:
                            raise _not_gtfs(path, f"{name} without the column {missing[0]}")
                        unpacked.write(",".join(given).encode() + b"\n")
                        shutil.copyfileobj(packed, unpacked, 1 << 20)
                elif name in OPTIONAL:
                    unpacked.write(",".join(columns).encode() + b"\n")
                else:
                    raise _not_gtfs(path, f"no {name}")


def _not_gtfs(path: Path, got: str) -> ConfigError:
    return ConfigError(
        f"the timetable {path.name} is not static GTFS",
        got=got,
        expected="a .zip with stops.txt, trips.txt, stop_times.txt and calendar.txt at its top",
    )
