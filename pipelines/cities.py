"""Public traces of other cities than Austin, to try there what was tuned on Austin's buses.

Nothing of them is in this repository. Below the folder that TRAFFICDP_REAL_DATA names are expected:

* ``cabspotting/new_*.txt``: San Francisco's taxis in May and June 2008, one file a taxi, lines of latitude,
  longitude, whether it is hired, seconds since 1970. From the archive ogozuacik/cabspotting_case_study (MIT
  licence), after Piorkowski, Sarafijanovic-Djukic, Grossglauser, A Parsimonious Model of Mobile Partitioned
  Networks with Clustering (2009). Speeds are those between a taxi's neighbouring positions.
* ``wmata/vehicle_positions_2026-02-16.csv.gz``: buses of three routes of Washington, D.C., on one morning:
  GTFS-Realtime with dotted column names. From the repository UTEL-UIUC/transittraj (data-raw).
* ``warsaw/*.json``: Warsaw's buses on one afternoon, 465 answers of the city's interface, without speeds.
  From the repository zajacx/warsaw-buses (online_data/busy_hours; no licence of its own), after the open data
  of the City of Warsaw. It was looked at once, when all was chosen; after that, its timetable made maps
  of which nothing is public follow known speeds by less where their answers say so, and chose no constant.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from trafficdp.errors import UsageError

CONFIG = """\
[city]
name = "{name}"
publisher = "trafficdp example on public traces"
time_zone = "{zone}"
study_area = {{ bbox = {box} }}
period = {{ from = "{day}", to = "{day}" }}
[privacy]
relation = "replace_user_values"
epsilon = 4
[budget]
epsilon_per_vehicle = 8
[map]
resolution = 7
slot = "whole_period"
speed_bound = 30
speed_unit = "m/s"
speed_step = 0.01
min_vehicles = 5
statistics = ["mean"]
[[source]]
name = "traces"
files = ["*"]
speed_unit = "m/s"
{source}
"""


@dataclass(frozen=True)
class OtherCity:
    """One day of a city: where it is, how its files are read, which they are, and where they come from.

    ``prepared`` makes what is read of what is published, in a folder.
    """

    name: str
    zone: str
    box: str
    day: str
    source: str
    pattern: str
    origin: str
    prepared: Callable[[list[Path], Path], list[Path]] = lambda files, _: files

    def config(self, into: Path) -> Path:
        """Write the configuration into ``into``; return it."""
        facts = {name: getattr(self, name) for name in ("name", "zone", "box", "day", "source")}
        own = into / "trafficdp.toml"
        own.write_text(CONFIG.format(**facts), encoding="utf-8")
        return own

    def files(self, into: Path) -> list[Path]:
        """Return the files to read, ``prepared`` into ``into``. Raises UsageError without them."""
        named = os.environ.get("TRAFFICDP_REAL_DATA")
        if not named:
            raise UsageError("TRAFFICDP_REAL_DATA is not set", expected="the folder that holds public traces")
        found = sorted(Path(named).glob(self.pattern))
        if not found:
            raise UsageError(
                f"there are no traces of {self.name}",
                expected=f"{Path(named).name}/{self.pattern}",
                todo=f"get {self.origin}",
            )
        return self.prepared(found, into)


def taxis(files: list[Path], into: Path) -> list[Path]:
    """Write the files of single taxis into one CSV without speeds; return it."""
    names = ["latitude", "longitude", "hired", "time"]
    whole = pd.concat(
        pd.read_csv(file, sep=" ", names=names).assign(vehicle=file.stem, speed="") for file in files
    )
    path = into / "taxis.csv"
    whole.to_csv(path, index=False)
    return [path]


SAN_FRANCISCO = OtherCity(
    "San Francisco",
    "America/Los_Angeles",
    "[-122.55, 37.55, -122.2, 37.85]",
    "2008-05-29",
    'format = "csv"\ntime_format = "epoch_s"\nmissing_speed = "derive"\n'
    'columns = { vehicle = "vehicle", time = "time", latitude = "latitude", longitude = "longitude", '
    'speed = "speed" }',
    "cabspotting/new_*.txt",
    "cabspottingdata of ogozuacik/cabspotting_case_study",
    taxis,
)
WASHINGTON = OtherCity(
    "Washington",
    "America/New_York",
    "[-77.2, 38.75, -76.9, 39.05]",
    "2026-02-16",
    'format = "csv"\ntime_format = "epoch_s"\n'
    'columns = { vehicle = "vehicle.vehicle.id", time = "vehicle.timestamp", '
    'latitude = "vehicle.position.latitude", longitude = "vehicle.position.longitude", '
    'speed = "vehicle.position.speed" }',
    "wmata/vehicle_positions_2026-02-16.csv.gz",
    "it from data-raw of UTEL-UIUC/transittraj",
)
WARSAW = OtherCity(
    "Warsaw",
    "Europe/Warsaw",
    "[20.8, 52.05, 21.35, 52.4]",
    "2024-02-19",
    'format = "json"\nrecords = "result"\ntime_format = "iso8601"\ntime_zone = "Europe/Warsaw"\n'
    'missing_speed = "derive"\n'
    'columns = { vehicle = "VehicleNumber", time = "Time", latitude = "Lat", longitude = "Lon" }',
    "warsaw/*.json",
    "online_data/busy_hours of zajacx/warsaw-buses",
)
OTHER_CITIES = (SAN_FRANCISCO, WASHINGTON, WARSAW)
