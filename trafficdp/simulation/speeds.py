"""Speeds drawn for public counts: many cities that might lie behind one set of counts, and their truth.

A mechanism tried on them shows how far it would be off, before anything of the real speeds is read. The law:
every cell has a level (``cell_levels``), every bin of it another by hour, every vehicle a pace; a record
stands with probability ``standing``, and moves at a log-normal speed about the three otherwise.

Law of a record: 0 with probability s, else  level c_g p_u e / (1 - s), with log-normal factors of mean 1: p_u
of a vehicle, e of a record; at most ``top_speed``. Clipped to [0, U] and rounded to whole steps, as real
speeds are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, starmap

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import centres_of
from trafficdp.errors import DataError, integer_between
from trafficdp.model import ContributionBound, Counts
from trafficdp.noise.simulate import Generator, generator
from trafficdp.simulation.city import CityModel, mean_one

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

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
_AT_ONCE = 1 << 21


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
        mean: FloatArray = self._per_record(self.total) * float(self.bound.step)
        return mean

    def variances(self) -> FloatArray:
        """Return the true population variance of every bin, in squares of that unit, shape (cities, G)."""
        mean, square = self._per_record(self.total), self._per_record(self.total_of_squares)
        return np.maximum(square - mean**2, 0.0) * float(self.bound.step) ** 2

    def _per_record(self, sums: IntArray) -> FloatArray:
        # pairs are sorted by bin, and every bin has one
        start = np.searchsorted(self.counts.bin_index, np.arange(self.counts.bins))
        return np.add.reduceat(sums, start, axis=1) / self.counts.samples_per_bin


def simulated_truths(
    counts: Counts,
    bound: ContributionBound,
    model: CityModel,
    *,
    seed: int,
    cities: int = 1,
    hour: IntArray | None = None,
) -> SimulatedTruths:
    """Return ``cities`` cities of ``model`` on ``counts``, shape (cities, P): a function of these alone.

    ``hour`` is the hour of day of every bin (0..23), shape (G,), or None where slots have none: then
    ``hour_swing`` moves nothing. Counts are given, so the model's fleet and flaws move nothing either. City k
    is the same however many there are. Cost: one draw a record, at most ``most_drawn`` a pair, for every
    city; some 2 million draws are held at a time.

    It does not depend on how vehicles are numbered.

    Raises UsageError unless 1 <= ``cities`` <= 10,000 and 0 <= ``seed``.
    """
    integer_between(1, 10_000, cities=cities)
    integer_between(0, 2**63 - 1, seed=seed)
    places = _Places.of(counts)
    total = np.empty((2, cities, counts.pairs), dtype=np.int64)
    for city in range(cities):
        moving = partial(_moving_speeds, counts, places, model, hour)
        for part, start, value, times in _drawn_pairs(counts, moving, bound, model, generator((seed, city))):
            times *= value
            total[0, city, part] = np.add.reduceat(times, start)
            times *= value
            total[1, city, part] = np.add.reduceat(times, start)
    return SimulatedTruths(counts, bound, total[0], total[1])


def simulated_records(
    counts: Counts, bound: ContributionBound, model: CityModel, *, seed: int, hour: IntArray | None = None
) -> IntArray:
    """Return every record's speed in whole steps, pair by pair, shape (sum of counts,): one city.

    For mechanisms that need more than sums: these are the records of the first of ``simulated_truths``.
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
        return cls(
            of_bin=of_bin,
            slots=len(np.unique(counts.slot)),
            vehicles=vehicles,
            dwell=_standard(np.log(records / vehicles)),
            away=_away(cell, records),
            records=records,
        )


def _away(cell: npt.NDArray[np.uint64], records: FloatArray) -> FloatArray:
    try:
        latitude, longitude = centres_of(cell)
    except DataError:
        return np.zeros(len(cell))
    # longitudes beside that of one cell, so that no city is cut at the antimeridian
    east = (longitude - longitude[:1] + 180) % 360 * np.cos(np.radians(latitude))
    away = np.hypot(_centred(latitude, records), _centred(east, records))
    return 2 * away / max(float(away.max(initial=0.0)), 1e-12) - 1


def _centred(value: FloatArray, weight: FloatArray) -> FloatArray:
    return value - np.average(value, weights=weight) if len(value) else value


def _standard(value: FloatArray) -> FloatArray:
    centred = _centred(value, np.ones_like(value))
    spread = float(centred.std()) if len(value) else 0.0
    return centred / spread if spread > 1e-9 else np.zeros_like(value)


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
    factor = mean_one(normal, spread) * (1 + model.gradient * places.away)
    if cells:
        factor /= np.average(factor, weights=places.records)
    level = model.level * factor
    fast = random.uniform(size=cells) < model.fast_share
    level[fast] = model.fast_factor * model.level
    of_bin = level[places.of_bin]
    if places.slots > 1:
        of_bin = of_bin * mean_one(random.standard_normal(counts.bins), SLOT_SHARE * model.cell_spread)
    if hour is not None:
        of_bin = of_bin * model.by_hour(hour)
    pace = mean_one(random.standard_normal(counts.users)[counts.order.rank], model.vehicle_spread)
    moving: FloatArray = of_bin[counts.bin_index] * pace[counts.user_index] / (1 - model.standing)
    return moving


def most_drawn(counts: Counts) -> int:
    """Return how many speeds are drawn of a vehicle in a bin at most; see MOST_AT_ALL."""
    most = MOST_DRAWN
    while most > LEAST_DRAWN and int(np.minimum(counts.count, most).sum()) > MOST_AT_ALL:
        most //= 2
    return most


def stretches(size: npt.NDArray[np.int64] | FloatArray, at_once: int) -> Iterator[slice]:
    """Yield slices, one after another, of things of ``size`` (n,) that add up to about ``at_once`` each."""
    ends = np.flatnonzero(np.diff(np.floor_divide(np.cumsum(size), at_once))) + 1
    edges = [0, *ends.tolist(), len(size)] if len(size) else []
    # what is cut may be large, and is not needed while it is worked on
    del size
    yield from starmap(slice, pairwise(edges))


def _drawn_pairs(
    counts: Counts,
    moving_speeds: Callable[[Generator], FloatArray],
    bound: ContributionBound,
    model: CityModel,
    random: Generator,
) -> Iterator[tuple[npt.NDArray[np.integer], IntArray, IntArray, IntArray]]:
    """Yield some pairs after others and their draws: where a pair's begin, speeds, records of each."""
    moving, pairs, most = moving_speeds(random), counts.order.pairs, most_drawn(counts)
    for stretch in stretches(np.minimum(counts.count[pairs], most), _AT_ONCE):
        part = pairs[stretch]
        count = counts.count[part]
        drawn = np.minimum(count, most)
        value = _drawn(np.repeat(moving[part], drawn), bound, model, random)
        # a pair's draws stand for count // drawn records each, the first count % drawn of them for one more
        times = np.repeat(count // drawn, drawn)
        start, more = np.cumsum(drawn) - drawn, count % drawn
        first = np.repeat(start - np.cumsum(more) + more, more)
        times[first + np.arange(len(first))] += 1
        yield part, start, value, times


def _drawn(moving: FloatArray, bound: ContributionBound, model: CityModel, random: Generator) -> IntArray:
    """Return one record's speed about every mean, in whole steps of the bound."""
    speed = mean_one(random.standard_normal(len(moving)), model.record_spread)
    speed *= moving
    speed[random.uniform(size=len(moving)) < model.standing] = 0.0
    np.minimum(speed, model.top_speed, out=speed)
    speed *= float(1 / (bound.unit.metres_per_second * bound.step))
    np.minimum(speed, bound.steps, out=speed)
    value: IntArray = np.rint(speed, out=speed).astype(np.int64)
    return value
