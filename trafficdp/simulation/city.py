"""What a simulated city is like, by numbers that each say where they come from; and speeds drawn for it.

Nothing here was read from a vault. "Published" names a text or an open archive that anyone can read; "a round
number" is our own guess. ``variations`` are the same city with one guess wrong: what a choice made for one
must survive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise, starmap
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.binning.cells import centres_of
from trafficdp.errors import DataError, UsageError, finite, integer_between
from trafficdp.model import ContributionBound, Counts, SpeedUnit
from trafficdp.noise.source import Generator, generator

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
    def moving_speed(self) -> float:
        """Mean speed of the records of moving vehicles, in m/s: ``level`` over their share."""
        return self.level / (1 - self.standing)

    @property
    def fleet_sigma(self) -> float:
        """Standard deviation of the logarithm of a vehicle's number of records.

        Of log-normal numbers with parameter sigma, the busiest 1 % have the share Phi(sigma - z), where
        Phi(z) = 0.99 (the Lorenz curve of the log-normal law). Hence sigma = z + Phi^-1(``top_share``).
        """
        return float(ndtri(0.99) + ndtri(self.top_share))

    def hour_factors(self, hour: IntArray) -> FloatArray:
        """Return by what factor speeds are higher at the hours of day ``hour`` (0..23), in the shape of
        ``hour``.

        Their harmonic mean over the trips of a day (``TRIPS_BY_HOUR``) is 1.
        """
        factor = 1 + self.hour_swing * np.array(SPEED_BY_HOUR)
        return (factor * np.average(1 / factor, weights=TRIPS_BY_HOUR))[hour]


def log_normal_factors(normal: FloatArray, spread: float | FloatArray) -> FloatArray:
    """Return log-normal factors of mean 1 and standard deviation ``spread``, made of standard normal
    ``normal``.
    """
    sigma2 = np.log1p(np.square(spread))
    factor: FloatArray = np.sqrt(sigma2) * normal
    factor -= sigma2 / 2
    return np.exp(factor, out=factor)


def variations(model: CityModel | None = None) -> dict[str, CityModel]:
    """Return models that differ from ``model`` (the usual one if None) in one parameter each, by name."""
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
    """Return the usual city model with mean speed and spread of cells as in a released map, a GeoJSON file.

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


# Speeds drawn for public counts: many cities that might lie behind one set of counts, and their truth.
#
# A mechanism tried on them shows how far it would be off, before anything of the real speeds is read. The
# law: every cell has a level (``cell_levels``), every bin of it another by hour, every vehicle a pace; a
# record stands with probability ``standing``, and moves at a log-normal speed about the three otherwise.
#
# Law of a record: 0 with probability s, else  level c_g p_u e / (1 - s), with log-normal factors of mean 1:
# p_u of a vehicle, e of a record; at most ``top_speed``. Clipped to [0, U] and rounded to whole steps, as
# real speeds are.


DWELL_SHARE = 0.4
"""Share of the variance between cells that records a vehicle explain: many records, slow traffic. So it is on
days of Austin's open archive of bus positions."""
USUAL_VEHICLES = 30
"""Cells with so many vehicles differ by ``cell_spread``; thinner ones by more: roads that few take differ."""
THINNEST, THICKEST = 3.0, 0.3
"""The most and the least that cells differ over ``cell_spread``, by their number of vehicles."""
SLOT_SHARE = 0.5
"""How much the slots of a cell differ from it, over how much cells differ. A round number."""
MOST_DRAWN = 64
"""Of a vehicle with more records in a bin so many are drawn, and each stands for as many as any other."""
LEAST_DRAWN, MOST_AT_ALL = 4, 3_000_000
"""Of a city of which more speeds would be drawn fewer are of every pair, down to LEAST_DRAWN. Where a bin has
a hundred vehicles, cells differ by 2 % more than with MOST_DRAWN of each."""
_AT_ONCE, _IN_CACHE = 1 << 21, 1 << 15
"""Speeds that are drawn together, and that are worked on together."""


@dataclass(frozen=True)
class SimulatedTruths:
    """Sums of several cities' speeds on the same counts, in whole steps of ``bound.step``.

    ``total`` and ``total_of_squares`` have shape (cities, P): one number a (bin, vehicle) pair of
    ``counts``, as in ``sensitive.Contributions``, but nobody's: speeds of simulated data.
    """

    counts: Counts
    bound: ContributionBound
    total: IntArray
    total_of_squares: IntArray

    def means(self) -> FloatArray:
        """Return the true mean of every bin in the unit of the bound, shape (cities, G)."""
        return self._per_record(self.total) * float(self.bound.step)

    def variances(self) -> FloatArray:
        """Return the true population variance of every bin, in squares of that unit, shape (cities, G)."""
        mean, square = self._per_record(self.total), self._per_record(self.total_of_squares)
        return np.maximum(square - mean**2, 0.0) * float(self.bound.step) ** 2

    def _per_record(self, sums: IntArray) -> FloatArray:
        # pairs are sorted by bin, and every bin has one
        start = self.counts.start[:-1]
        return np.add.reduceat(sums, start, axis=1) / self.counts.samples_per_bin


def simulated_truths(
    counts: Counts,
    bound: ContributionBound,
    model: CityModel,
    *,
    seed: int,
    cities: int = 1,
    hour: IntArray | None = None,
    squares: bool = True,
) -> SimulatedTruths:
    """Return simulated speeds, summed by (bin, vehicle) pair, of ``cities`` cities with the public
    ``counts``.

    They depend on the arguments alone, not on how vehicles are numbered. ``hour`` is the hour of day of every
    bin (0..23), shape (G,), or None where slots have none: then ``hour_swing`` has no effect. Counts are
    given, so the model's fleet and flaws have none either. City k is the same however many there are. Cost:
    one draw a record, at most ``draws_per_pair`` a pair, for every city; some 2 million draws are held at a
    time. Without ``squares`` all sums of squares are 0, and take no memory.

    Raises UsageError unless 1 <= ``cities`` <= 10,000 and 0 <= ``seed``.
    """
    integer_between(1, 10_000, cities=cities)
    integer_between(0, 2**63 - 1, seed=seed)
    places = _Places.of(counts)
    total = np.empty((cities, counts.pairs), dtype=np.int64)
    total_of_squares = np.empty_like(total) if squares else np.broadcast_to(np.int64(0), total.shape)
    for city in range(cities):
        moving = partial(_moving_speeds, counts, places, model, hour)
        for part, start, value, times in _drawn_pairs(counts, moving, bound, model, generator((seed, city))):
            times *= value
            total[city, part] = np.add.reduceat(times, start)
            if squares:
                times *= value
                total_of_squares[city, part] = np.add.reduceat(times, start)
    return SimulatedTruths(counts, bound, total, total_of_squares)


def simulated_records(
    counts: Counts, bound: ContributionBound, model: CityModel, *, seed: int, hour: IntArray | None = None
) -> IntArray:
    """Return the simulated speed of every record in whole steps, pair by pair, shape (sum of counts,).

    For mechanisms that need more than sums: these are the records of the first city of ``simulated_truths``.
    """
    moving = partial(_moving_speeds, counts, _Places.of(counts), model, hour)
    found, start = np.empty(int(counts.count.sum()), dtype=np.int64), np.cumsum(counts.count) - counts.count
    for part, _, value, times in _drawn_pairs(counts, moving, bound, model, generator((seed, 0))):
        count = counts.count[part]
        # the records of a pair lie one after another, wherever the pair does
        away = start[part] - (np.cumsum(count) - count)
        found[np.repeat(away, count) + np.arange(count.sum())] = np.repeat(value, times)
    return found


@dataclass(frozen=True)
class _Places:
    """What counts and geometry say of the cells: shape (cells,), and for every bin its cell, shape (G,)."""

    of_bin: IntArray
    slots: int
    vehicles: FloatArray
    dwell: FloatArray
    """Records a vehicle, as a logarithm; over the cells of mean 0 and standard deviation 1."""
    away: FloatArray
    """From -1 (in the middle of the records) to 1 (farthest); 0 where places are no H3 cells."""
    records: FloatArray

    @classmethod
    def of(cls, counts: Counts) -> _Places:
        visits = counts.visits
        cell, of_bin = visits.cell, visits.of_bin
        vehicles = np.bincount(visits.place, minlength=len(cell)).astype(np.float64)
        records = np.bincount(of_bin, counts.samples_per_bin, len(cell)).astype(np.float64)
        dwell = _centred(np.log(records / vehicles), np.ones(len(cell)))
        spread = float(dwell.std()) if len(cell) else 0.0
        try:
            latitude, longitude = centres_of(cell)
        except DataError:
            away = np.zeros(len(cell))
        else:
            # longitudes beside that of one cell, so that no city is cut at the antimeridian
            east = (longitude - longitude[:1] + 180) % 360 * np.cos(np.radians(latitude))
            far = np.hypot(_centred(latitude, records), _centred(east, records))
            away = 2 * far / max(float(far.max(initial=0.0)), 1e-12) - 1
        return cls(
            of_bin=of_bin,
            slots=len(np.unique(counts.slot)),
            vehicles=vehicles,
            dwell=dwell / spread if spread > 1e-9 else np.zeros_like(dwell),
            away=away,
            records=records,
        )


def _centred(value: FloatArray, weight: FloatArray) -> FloatArray:
    return value - np.average(value, weights=weight) if len(value) else value


def _moving_speeds(
    counts: Counts, places: _Places, model: CityModel, hour: IntArray | None, random: Generator
) -> FloatArray:
    """Return mean speed over that of moving vehicles for every pair, in m/s, shape (P,).

    Cells: log-normal of mean 1 and spread cell_spread clip((vehicles / 30)^-1/2, 0.3, 3), whose normal is
    -sqrt(DWELL_SHARE) dwell + sqrt(1 - DWELL_SHARE) (a draw); times 1 + gradient away. Then the city's mean
    over records is set to ``level``, and fast cells are drawn.
    """
    cells = len(places.records)
    spread = model.cell_spread * np.clip(
        np.sqrt(USUAL_VEHICLES / np.maximum(places.vehicles, 1)), THICKEST, THINNEST
    )
    normal = np.sqrt(1 - DWELL_SHARE) * random.standard_normal(cells) - np.sqrt(DWELL_SHARE) * places.dwell
    factor = log_normal_factors(normal, spread) * (1 + model.gradient * places.away)
    if cells:
        factor /= np.average(factor, weights=places.records)
    level = model.level * factor
    fast = random.uniform(size=cells) < model.fast_share
    level[fast] = model.fast_factor * model.level
    of_bin = level[places.of_bin]
    if places.slots > 1:
        of_bin = of_bin * log_normal_factors(
            random.standard_normal(counts.bins), SLOT_SHARE * model.cell_spread
        )
    if hour is not None:
        of_bin = of_bin * model.hour_factors(hour)
    pace = log_normal_factors(random.standard_normal(counts.users)[counts.order.rank], model.vehicle_spread)
    moving = counts.per_pair(of_bin)
    moving *= pace[counts.user_index]
    moving /= 1 - model.standing
    return moving


def draws_per_pair(counts: Counts) -> tuple[int, int]:
    """Return the most speeds simulated for a (bin, vehicle) pair, and the number simulated for all pairs.

    The first is halved from MOST_DRAWN until the second is at most MOST_AT_ALL, or it is LEAST_DRAWN.
    """
    count, most = np.minimum(counts.count, MOST_DRAWN).astype(np.uint8), MOST_DRAWN
    while (drawn := int(np.minimum(count, most).sum())) > MOST_AT_ALL and most > LEAST_DRAWN:
        most //= 2
    return most, drawn


def batches_of_size(size: IntArray | FloatArray, at_once: int) -> Iterator[slice]:
    """Yield consecutive slices of n items whose sizes add up to about ``at_once`` each.

    ``size``, shape (n,), are the items' sizes.
    """
    batch = np.cumsum(size)
    np.floor_divide(batch, at_once, out=batch)
    ends = np.flatnonzero(batch[1:] != batch[:-1]) + 1
    edges = [0, *ends.tolist(), len(size)] if len(size) else []
    # what is cut may be large, and is not needed while it is worked on
    del size, batch
    yield from starmap(slice, pairwise(edges))


def _drawn_pairs(
    counts: Counts,
    moving_speeds: Callable[[Generator], FloatArray],
    bound: ContributionBound,
    model: CityModel,
    random: Generator,
) -> Iterator[tuple[npt.NDArray[np.integer], IntArray, IntArray, IntArray]]:
    """Yield some pairs after others and their draws: where a pair's begin, speeds, records of each."""
    moving, pairs, (most, _) = moving_speeds(random), counts.order.pairs, draws_per_pair(counts)
    for stretch in batches_of_size(np.minimum(counts.count[pairs], most), _AT_ONCE):
        part = pairs[stretch]
        count = counts.count[part]
        drawn = np.minimum(count, most)
        # one record's speed about every mean, in whole steps of the bound
        mean = np.repeat(moving[part], drawn)
        normal, uniform = random.standard_normal(len(mean)), random.uniform(size=len(mean))
        value = np.empty(len(mean), dtype=np.int64)
        for first in range(0, len(mean), _IN_CACHE):
            here = slice(first, first + _IN_CACHE)
            speed = log_normal_factors(normal[here], model.record_spread)
            speed *= mean[here]
            speed *= uniform[here] >= model.standing
            np.minimum(speed, model.top_speed, out=speed)
            speed *= float(1 / (bound.unit.metres_per_second * bound.step))
            np.minimum(speed, bound.upper_steps, out=speed)
            value[here] = np.rint(speed, out=speed)
        # large, and not needed while these are worked on
        del mean, normal, uniform
        start, times, draw = np.cumsum(drawn) - drawn, np.ones(len(value), dtype=np.int64), np.arange(most)
        # a pair's draws stand for count // most records each, the first count % most of them for one more
        more = np.flatnonzero(count > most)[:, None]
        times[start[more] + draw] = count[more] // most + (draw < count[more] % most)
        yield part, start, value, times
