"""A simulated city as files: a feed a day in Parquet, a configuration that reads it, and the truth beside it.

Rows are made and written in groups of about ``GROUP_ROWS``, and no more than a few groups are ever in memory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import cos, radians, sqrt
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from trafficdp.binning.cells import CellTable, area_km2, cell_text, cells_of, polygons_of
from trafficdp.errors import UsageError, integer_between
from trafficdp.simulation.city import CityModel, batches_of_size
from trafficdp.simulation.traffic import SENTINEL, Fleet, SimulatedRecords, Streets, records_of

Step = Callable[[str, int, int | None], None]

GROUP_ROWS = 1 << 19
"""Rows that are made and written at a time, about: a vehicle's day is never cut."""
MOST_RECORDS = 10**10
"""A larger city is refused: sums of squares might leave the whole numbers that floats hold."""
FIRST_DAY = date(2026, 3, 2)
"""A Monday."""
TRUTH = "truth of simulated data: no vehicle, record or speed of it exists"
_HOURS = 24
_KM_A_DEGREE = 111.195
_SCHEMA = pa.schema(
    [
        ("vehicle", pa.dictionary(pa.int32(), pa.string())),
        ("time", pa.timestamp("ms", "UTC")),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("speed", pa.float64()),
    ],
    metadata={"trafficdp": "simulated records: no vehicle, record or speed of it exists"},
)
_ENCODING = {"latitude": "BYTE_STREAM_SPLIT", "longitude": "BYTE_STREAM_SPLIT", "time": "DELTA_BINARY_PACKED"}
_CONFIG = """\
# A simulated city: no vehicle, record or speed of it exists. `truth.parquet` beside this file says what a
# map of it should show. Made by `trafficdp simulate`.

[city]
name = "Simulated City"
publisher = "trafficdp simulate"
time_zone = "UTC"
study_area = {{ bbox = [{bounds}] }}
period = {{ from = "{first}", to = "{last}" }}

[privacy]
relation = "replace_user_values"
epsilon = 4

[budget]
epsilon_per_vehicle = 20

[map]
resolution = {resolution}
slot = "whole_period"
speed_bound = {bound:.2f}
speed_unit = "m/s"
speed_step = 0.01
min_vehicles = 5
statistics = ["mean", "variance"]

[[source]]
name = "simulated vehicles"
format = "parquet"
files = ["records-*.parquet"]
speed_unit = "m/s"
sentinels = [{sentinel}]
[source.columns]
vehicle = "vehicle"
time = "time"
latitude = "latitude"
longitude = "longitude"
speed = "speed"
"""


@dataclass(frozen=True)
class SimulatedFiles:
    """What ``simulate`` wrote. ``rows`` with flaws and repeats; ``records``: those that the truth counts."""

    folder: Path
    config: Path
    feeds: tuple[Path, ...]
    truth: Path
    rows: int
    records: int


def simulate(
    into: Path | str,
    *,
    vehicles: int,
    days: int,
    seed: int,
    model: CityModel | None = None,
    resolution: int = 7,
    step: Step | None = None,
) -> SimulatedFiles:
    """Make a city and write it into the new folder ``into``; the same arguments give the same bytes.

    - ``records-<day>.parquet``: what arrived on that day (columns vehicle, time, latitude, longitude, speed
      in m/s), late records of the day before included; one file more holds the late ones of the last day.
    - ``truth.parquet``: GeoParquet, one row an H3 cell of ``resolution`` (0 to 10) and hour of day (UTC) with
      records: their number, sum and sum of squares (of speeds in 0.01 m/s, exact), and mean and population
      variance from these. Rows add up to longer slots.
    - ``trafficdp.toml``: a configuration that reads them; nothing is clipped by its bound.

    ``model`` is the usual ``CityModel`` unless another is given. ``step(text, done, of)`` is told how far
    it is. Bytes are the same on machines of one kind with the same versions of NumPy and pyarrow.

    Raises UsageError for numbers out of range and where ``into`` exists.
    """
    integer_between(1, 10_000_000, vehicles=vehicles)
    integer_between(1, 10_000, days=days)
    integer_between(0, 2**63 - 1, seed=seed)
    integer_between(0, 10, resolution=resolution)
    model, folder = CityModel() if model is None else model, Path(into)
    streets = Streets(model, seed)
    fleet = Fleet.of(streets, vehicles, seed)
    if fleet.records.sum() * days > MOST_RECORDS:
        raise UsageError(
            "the city is too large",
            got=f"about {fleet.records.sum() * days:.2g} records",
            expected=f"at most {MOST_RECORDS:.0e}",
            todo="take fewer vehicles or days",
        )
    with _new_folder(folder) as made:
        truth = _Truth(streets, resolution)
        rows, feeds = _write_feeds(made, streets, fleet, days, seed, truth, step or _silent)
        pq.write_table(truth.table(), made / "truth.parquet", compression="zstd")
        text = _CONFIG.format(
            bounds=", ".join(f"{corner:.6f}" for corner in streets.bounds),
            first=FIRST_DAY,
            last=FIRST_DAY + timedelta(days=days - 1),
            resolution=resolution,
            bound=model.top_speed,
            sentinel=SENTINEL,
        )
        (made / "trafficdp.toml").write_text(text, encoding="utf-8")
    return SimulatedFiles(
        folder=folder,
        config=folder / "trafficdp.toml",
        feeds=tuple(folder / name for name in feeds),
        truth=folder / "truth.parquet",
        rows=rows,
        records=int(truth.count.sum()),
    )


def _silent(_text: str, _done: int, _of: int | None) -> None:
    """Tell nobody."""


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that becomes ``folder`` once it is complete, and is removed otherwise."""
    if folder.exists():
        raise UsageError(
            "the folder for the simulated city exists", got=str(folder), todo="remove it or name another"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield made
        made.chmod(0o755)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _write_feeds(
    folder: Path, streets: Streets, fleet: Fleet, days: int, seed: int, truth: _Truth, step: Step
) -> tuple[int, list[str]]:
    """Write the files of all days; return the number of rows and the names of the files."""
    # a vehicle's day is never cut
    parts, rows, names = list(batches_of_size(fleet.records, GROUP_ROWS)), 0, []
    late: list[pa.Table] = []
    for day in range(days + 1):
        arriving, late = late, []
        today = parts if day < days else []
        if not (today or arriving):
            break
        names.append(f"records-{FIRST_DAY + timedelta(days=day)}.parquet")
        with pq.ParquetWriter(
            folder / names[-1],
            _SCHEMA,
            compression="zstd",
            use_dictionary=["vehicle", "speed"],
            column_encoding=_ENCODING,
        ) as writer:
            for number, part in enumerate(today):
                step("simulating", day * len(parts) + number, days * len(parts))
                records = records_of(streets, fleet, part, day, seed)
                truth.add(records)
                rows += len(records.vehicle)
                made = _table(records, part, day)
                _write(writer, made.filter(pa.array(~records.late)))
                late.append(made.filter(pa.array(records.late)))
            if arriving:
                # the rows of a hundred groups and more: about one in a hundred is late
                writer.write_table(pa.concat_tables(arriving), row_group_size=GROUP_ROWS)
        late = [table for table in late if table.num_rows]
    return rows, names


def _write(writer: pq.ParquetWriter, table: pa.Table) -> None:
    if table.num_rows:
        writer.write_table(table, row_group_size=table.num_rows)


def _table(records: SimulatedRecords, part: slice, day: int) -> pa.Table:
    midnight = datetime.combine(FIRST_DAY + timedelta(days=day), datetime.min.time(), UTC)
    time = records.millisecond + int(midnight.timestamp()) * 1000
    # no feed of a real vehicle looks like it
    names = np.char.add("SIM-", np.char.zfill(np.arange(part.start, part.stop).astype(np.str_), 8))
    vehicle = pa.DictionaryArray.from_arrays(
        pa.array((records.vehicle - part.start).astype(np.int32)), pa.array(names)
    )
    columns = [
        vehicle,
        pa.array(time).cast(pa.timestamp("ms", "UTC")),
        pa.array(records.latitude),
        pa.array(records.longitude),
        pa.array(records.speed, mask=np.isnan(records.speed)),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


class _Truth:
    """Exact sums over all records, by cell and hour of day: they stay below 2^53, so floats hold them."""

    def __init__(self, streets: Streets, resolution: int) -> None:
        self._cells = _cells_in(streets.bounds, resolution)
        self._table = CellTable(streets.bounds, resolution)
        self.count, self._total, self._squares = np.zeros((3, len(self._cells) * _HOURS))

    def add(self, records: SimulatedRecords) -> None:
        """Add those of ``records`` that are neither flawed nor repeats to the true sums."""
        chosen = np.flatnonzero(records.counts)
        cells = self._table.cells_of(records.latitude[chosen], records.longitude[chosen])
        number = np.searchsorted(self._cells, cells) * _HOURS + records.millisecond[chosen] // 3_600_000
        centi = records.centi[chosen].astype(np.float64)
        size = len(self.count)
        self.count += np.bincount(number, minlength=size)
        self._total += np.bincount(number, centi, size)
        self._squares += np.bincount(number, centi * centi, size)

    def table(self) -> pa.Table:
        """Return the rows of ``truth.parquet``, by cell, then hour."""
        seen = np.flatnonzero(self.count)
        count, total, squares = (each[seen] for each in (self.count, self._total, self._squares))
        cells, of = np.unique(self._cells[seen // _HOURS], return_inverse=True)
        mean = total / count
        columns = {
            "hex_id": pa.array(cell_text(cells)).take(pa.array(of)),
            "hour": seen % _HOURS,
            "records": count.astype(np.int64),
            "sum_centi": total.astype(np.int64),
            "sum_centi2": squares.astype(np.int64),
            "mean_ms": mean / 100,
            "variance_m2s2": np.maximum(squares / count - mean**2, 0) / 10_000,
            "geometry": pa.array(shapely.to_wkb(polygons_of(cells), byte_order=1).tolist()).take(
                pa.array(of)
            ),
        }
        geometry = {"encoding": "WKB", "geometry_types": ["Polygon"]}
        geo = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}
        return pa.table(columns).replace_schema_metadata({"trafficdp": TRUTH, "geo": json.dumps(geo)})


def _cells_in(bounds: tuple[float, float, float, float], resolution: int) -> npt.NDArray[np.uint64]:
    """Return all cells that meet a box, and some around it, ascending.

    A lattice of positions finds a cell when a disc in the cell holds one of them. Positions are half an
    inradius apart (halved again, because hexagons are not all of the average size), and the lattice is wider
    than the box by two circumradii.
    """
    west, south, east, north = bounds
    across = sqrt(2 * area_km2(resolution) / sqrt(3)) / _KM_A_DEGREE
    shrunk = cos(radians(max(abs(south), abs(north))))
    rows = np.arange(south - 1.5 * across, north + 1.5 * across, across / 8)
    columns = np.arange(west - 1.5 * across / shrunk, east + 1.5 * across / shrunk, across / 8 / shrunk)
    latitude, longitude = (each.ravel() for each in np.meshgrid(rows, columns, indexing="ij"))
    return np.unique(cells_of(latitude, longitude, resolution))
