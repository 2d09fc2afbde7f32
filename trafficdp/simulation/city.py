"""What a simulated city is like: every number it is made from, with where it comes from.

Nothing here was read from a vault. "Published" names a text or an open archive that anyone can read; "a round
number" is our own guess. ``variations`` are the same city with one guess wrong: what a choice made for one
must survive.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from trafficdp.errors import DataError, UsageError, finite
from trafficdp.model import SpeedUnit

FloatArray = npt.NDArray[np.float64]

SPEED_BY_HOUR = (
    1.0, 1.0, 1.0, 1.0, 0.9, 0.6, -0.1, -0.8, -1.0, -0.4, -0.1, -0.1,
    -0.2, -0.1, -0.2, -0.5, -0.9, -1.0, -0.6, -0.1, 0.2, 0.4, 0.7, 0.9,
)  # fmt: skip
"""How speeds swing over the hours of a day, from -1 (slowest) to 1: slow at 8 and 17. Round numbers."""
TRIPS_BY_HOUR = (
    4, 2, 2, 2, 5, 20, 55, 95, 100, 65, 50, 55, 60, 60, 65, 80, 100, 100, 75, 55, 40, 30, 20, 10,
)  # fmt: skip
"""Trips that begin in each hour of a day, in proportion: rush hours at 8 and 17. Round numbers."""
RANGES = {
    "level": (0.5, 30), "cell_spread": (0, 3), "gradient": (0, 0.9), "fast_share": (0, 0.5),
    "fast_factor": (1, 10), "hour_swing": (0, 0.9), "standing": (0, 0.9), "vehicle_spread": (0, 1),
    "record_spread": (0, 3), "top_speed": (5, 100), "top_share": (0.01, 0.6), "trips_a_day": (0.1, 100),
    "trip_km": (0.5, 100), "interval": (1, 600), "extent_km": (5, 200), "latitude": (-70, 70),
    "longitude": (-170, 170), "repeats": (0, 0.5), "sentinels": (0, 0.5), "missing": (0, 0.5),
    "lost": (0, 0.5), "late": (0, 0.5),
}  # fmt: skip
"""The least and the largest value of every number of a ``CityModel``."""


@dataclass(frozen=True, slots=True)
class CityModel:
    """The numbers behind a simulated city. Speeds in m/s; spreads are standard deviations over means.

    Raises UsageError for a number out of its range (``RANGES``).

    **Speeds**

    level : mean speed of all records. Published: 20.67 km/h, 5.7 m/s, of 217 buses (Rameshwar et al.,
        "Mean Estimation with User-Level Privacy on Multi-Dimensional IoT Datasets", section IV).
    cell_spread : how much places of the size of a hexagon of resolution 7 differ. A round number: 2 of
        6 m/s.
    gradient : the edge is faster than the level by this share, the centre slower. A round number.
    fast_share : share of places where all drive on a fast road. A round number.
    fast_factor : speed there over ``level``. A round number: 27 m/s where others drive 9.
    hour_swing : largest change of speeds by the hour of day, as a share (``SPEED_BY_HOUR``). A round number.
    standing : share of records of vehicles that stand at stops. Published: 12 to 43 % of a day's records are
        0 in Austin's open archive of bus positions (CapMetro, scascketta/CapMetrics, 2015 to 2017).
    vehicle_spread : how much vehicles differ on the same road. A round number: about an eighth of the
        variance of ``data/itms_counts``.
    record_spread : how much records of one moving vehicle differ in one place. A round number: with those
        that stand it makes a variance of about 30 (m/s)^2 at 6 m/s.
    top_speed : no vehicle is faster. A round number: 108 km/h.

    **Fleet**

    top_share : share of all records that the busiest 1 % of the vehicles send. Published: the same 217
        buses sent 79 records on average, 46 in the median; log-normal numbers with that ratio have 10 %.
    trips_a_day : mean number of trips of a vehicle. A round number.
    trip_km : mean length of a trip. A round number.
    interval : seconds between two records of a vehicle of mean activity. A round number: GTFS-Realtime asks
        for positions that are at most 30 to 90 seconds old.
    extent_km : side of the city's square. A round number.
    latitude, longitude : its centre, in the Atlantic, so that it is taken for no real city.

    **Flaws**, as shares of the rows

    repeats : sent twice. Published: 139 of 44,564 rows of 2015-03-07 of that archive.
    sentinels : a broken sensor's value for a speed. Published: 255 mph, up to 44 times a day there.
    missing : no speed. A round number; GTFS-Realtime and TIDES let it be left out.
    lost : latitude and longitude 0. Published: up to 53 of 19,690 rows a day there.
    late : vehicles' days that arrive with the next day's file. A round number.
    """

    level: float = 6.0
    cell_spread: float = 1 / 3
    gradient: float = 0.3
    fast_share: float = 0.02
    fast_factor: float = 3.0
    hour_swing: float = 0.2
    standing: float = 0.25
    vehicle_spread: float = 0.15
    record_spread: float = 0.6
    top_speed: float = 30.0
    top_share: float = 0.1
    trips_a_day: float = 5.0
    trip_km: float = 4.0
    interval: float = 30.0
    extent_km: float = 24.0
    latitude: float = 45.0
    longitude: float = -30.0
    repeats: float = 0.003
    sentinels: float = 0.001
    missing: float = 0.001
    lost: float = 0.0027
    late: float = 0.01

    def __post_init__(self) -> None:
        for each in fields(self):
            value, (low, high) = finite(**{each.name: getattr(self, each.name)}), RANGES[each.name]
            if not low <= value <= high:
                raise UsageError(
                    f"{each.name} is out of range",
                    got=f"{each.name}={value}",
                    expected=f"a number from {low} to {high}",
                )

    @property
    def moving(self) -> float:
        """Mean speed of the records of moving vehicles, in m/s: ``level`` over their share."""
        return self.level / (1 - self.standing)

    @property
    def fleet_sigma(self) -> float:
        """Standard deviation of the logarithm of a vehicle's number of records.

        Log-normal numbers of parameter sigma: the busiest 1 % have the share Phi(sigma - z), where
        Phi(z) = 0.99 (the Lorenz curve of the log-normal law). Hence sigma = z + Phi^-1(``top_share``).
        """
        return float(ndtri(0.99) + ndtri(self.top_share))

    def by_hour(self, hour: npt.NDArray[np.int64]) -> FloatArray:
        """Return by what factor speeds of the hours of day ``hour`` (0..23) differ, shape of ``hour``.

        Their harmonic mean over the trips of a day (``TRIPS_BY_HOUR``) is 1.
        """
        factor = 1 + self.hour_swing * np.array(SPEED_BY_HOUR)
        by_hour: FloatArray = (factor * np.average(1 / factor, weights=TRIPS_BY_HOUR))[hour]
        return by_hour


def mean_one(normal: FloatArray, spread: float | FloatArray) -> FloatArray:
    """Return log-normal factors of mean 1 and standard deviation ``spread`` from standard normal draws."""
    sigma2 = np.log1p(np.square(spread))
    factor: FloatArray = np.sqrt(sigma2) * normal
    factor -= sigma2 / 2
    return np.exp(factor, out=factor)


def variations(model: CityModel | None = None) -> dict[str, CityModel]:
    """Return cities that differ from ``model`` (the usual one if None) in one number, by name."""
    usual = CityModel() if model is None else model
    changes: dict[str, dict[str, float]] = {
        "usual": {},
        "half_cell_spread": {"cell_spread": usual.cell_spread / 2},
        "twice_cell_spread": {"cell_spread": usual.cell_spread * 2},
        "four_times_cell_spread": {"cell_spread": usual.cell_spread * 4},
        "half_speeds": {"level": usual.level / 2},
        "twice_speeds": {"level": usual.level * 2},
        "fast_cells": {"fast_share": 0.05},
        "hour_swing": {"hour_swing": 0.4},
        "few_busy_vehicles": {"top_share": 0.3},
        "no_gradient": {"gradient": 0.0},
        "twice_record_spread": {"record_spread": usual.record_spread * 2},
    }
    return {
        name: replace(usual, **{key: float(np.clip(value, *RANGES[key])) for key, value in change.items()})
        for name, change in changes.items()
    }


VARIATIONS = tuple(variations())
"""Names of the variations."""


def like_release(path: Path) -> CityModel:
    """Return the usual model with ``level`` and ``cell_spread`` of a released map, a GeoJSON file of ours.

    What is released is public, so this costs nothing. ``level`` is the mean m of the released means x_g (all
    bins weigh the same), and cell_spread^2 = (variance of x - mean of 2 e_g^2) / m^2, at least 0, where 2 e^2
    is the variance of Laplace noise of expected error e.

    Raises DataError unless the file holds two released means.
    """
    try:
        rows = [feature["properties"] for feature in json.loads(path.read_bytes())["features"]]
        name = next(key for key in rows[0] if re.fullmatch(r"speed_mean_(ms|kmh|mph)", key))
        unit = float(SpeedUnit(name.removeprefix("speed_mean_")).metres_per_second)
        shown = [row for row in rows if row[name] is not None and row["speed_mean_status"] == "released"]
        mean = np.array([row[name] for row in shown], dtype=np.float64) * unit
        error = np.array([row[f"{name}_expected_error"] for row in shown], dtype=np.float64) * unit
        if len(mean) < 2:
            raise ValueError("too few")
    except (ValueError, TypeError, LookupError, OverflowError, StopIteration, RecursionError):
        raise DataError(
            f"{path.name} is no released map that a city can be made like",
            expected="the map.geojson of a release, with means of two hexagons at least",
        ) from None
    level = float(mean.mean())
    spread = np.sqrt(max(float(mean.var() - 2 * np.mean(error**2)), 0.0)) / max(level, RANGES["level"][0])
    return replace(
        CityModel(),
        level=float(np.clip(level, *RANGES["level"])),
        cell_spread=float(np.clip(spread, *RANGES["cell_spread"])),
    )
