"""What it costs to read a timetable, by its stop times.

    python tests/benchmarks/bench_timetable.py

Trips of 34 stops, 500 m apart, 4,000 ways, 2,000 services with exceptions, hexagons of resolution 8.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from table import keep

from trafficdp.knowledge.timetable import read_timetable
from trafficdp.model import Grid, Period, SlotKind, StudyArea

STOP_TIMES = (1_000_000, 10_000_000)
STOPS, LONG, WAYS, SERVICES, AT_ONCE = 30_000, 34, 4_000, 2_000, 10_000
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def clock(seconds: np.ndarray) -> list[str]:
    """Return ``seconds`` as clocks."""
    return [f"{each // 3600:02d}:{each // 60 % 60:02d}:{each % 60:02d}" for each in seconds.tolist()]


def write(path: Path, many: int) -> None:
    """Write a timetable of about ``many`` stop times."""
    draw = np.random.default_rng(0)
    way = np.cumsum(draw.normal(0, 0.0035, (2, STOPS)), axis=1)
    stops: dict[str, Any] = {"stop_id": [f"de:{each}:1" for each in range(STOPS)]}
    stops |= {"stop_lat": 47 + np.abs(way[0] % 4 - 2), "stop_lon": 9 + np.abs(1.4 * way[1] % 6 - 3)}
    services, trips = [f"s{each}" for each in range(SERVICES)], many // LONG // AT_ONCE * AT_ONCE
    calendar = {each: draw.integers(0, 2, SERVICES) for each in DAYS}
    first = draw.integers(0, STOPS - LONG - 1, WAYS)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:

        def table(name: str, columns: Mapping[str, Any]) -> None:
            archive.writestr(name, pd.DataFrame(columns).to_csv(index=False))

        table("stops.txt", stops)
        names = [f"{each}.T0.12-345-j{each % 77}" for each in range(trips)]
        table("trips.txt", {"service_id": draw.choice(services, trips), "trip_id": names})
        valid = {"start_date": 20240101, "end_date": 20241231}
        table("calendar.txt", {"service_id": services, **calendar, **valid})
        removed = np.unique(draw.integers(0, SERVICES * 30, 30 * SERVICES))
        exceptions: dict[str, Any] = {"service_id": [services[each // 30] for each in removed.tolist()]}
        exceptions |= {"date": 20240101 + removed % 30, "exception_type": 1 + removed % 2}
        table("calendar_dates.txt", exceptions)
        with archive.open("stop_times.txt", "w", force_zip64=True) as file:
            file.write(b"trip_id,arrival_time,departure_time,stop_id,stop_sequence\n")
            for start in range(0, trips, AT_ONCE):
                trip, place = np.divmod(np.arange(AT_ONCE * LONG), LONG)
                time = clock(np.repeat(draw.integers(4 * 3600, 26 * 3600, AT_ONCE), LONG) + 90 * place)
                stop = first[(trip + start) % WAYS] + place
                rows: dict[str, Any] = {
                    "trip": np.repeat(names[start : start + AT_ONCE], LONG),
                    "arrives": time,
                }
                rows |= {"leaves": time, "stop": [stops["stop_id"][each] for each in stop], "place": place}
                file.write(pd.DataFrame(rows).to_csv(index=False, header=False).encode())


def read(path: Path) -> None:
    """Read it, and print processor seconds, peak memory in MB and rows found."""
    area = StudyArea.from_bbox(9, 47, 12, 49)
    week = Period(date(2024, 1, 8), date(2024, 1, 14), "Europe/Berlin")
    before = resource.getrusage(resource.RUSAGE_SELF)
    found = read_timetable(path, Grid(8, SlotKind.HOUR_OF_DAY, area, week))
    after = resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{seconds:.1f} {after.ru_maxrss / 1000:.0f} {len(found.place)}")


def main() -> int:
    """Measure and write."""
    if len(sys.argv) > 1:
        read(Path(sys.argv[1]))
        return 0
    rows = []
    for many in STOP_TIMES:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "timetable.zip"
            write(path, many)
            own = subprocess.run([sys.executable, __file__, path], capture_output=True, text=True, check=True)
            rows.append([f"{many:,}", *own.stdout.split()])
    keep(
        "Timetables",
        "Reading static GTFS: scheduled speeds of hexagons of resolution 8 by hour of the week.",
        ["stop times", "seconds", "memory (MB)", "rows of hexagons and hours"],
        rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
