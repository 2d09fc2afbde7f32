"""Streets of a simulated city, who drives when, and the records that are sent.

The streets of a simulated city: a lattice of blocks, how fast each place is, and the way of every trip.

Places are named by whole blocks east and north of the south-western corner. Every third street is an
arterial. A trip goes from its beginning along a street to an arterial, along that, and along a street to its
end; which of the two directions is the arterial's is drawn.

Who drives when, and the records that are sent: one call makes a stretch of the fleet's day.

A vehicle's trips of a day begin where the last one ended, never before it has ended. Within a trip time runs
on through its blocks: driving, then perhaps standing. A record is sent every so many seconds, so slow places
get more records, and distance over time agrees with the speeds. Nothing loops over vehicles, trips or
records.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import cos, radians

import numpy as np

from trafficdp.arrays import BoolArray, FloatArray, IntArray, run_starts
from trafficdp.noise.source import Generator, generator
from trafficdp.simulation.city import TRIPS_BY_HOUR, CityModel, log_normal_factors

BLOCK = 400.0
"""Metres between neighbouring streets."""
ARTERIAL = 3
"""Every so many streets one is an arterial."""
PLACE = 6
"""Blocks along the side of a place: 2.4 km, so that a place is as large as a hexagon of resolution 7."""
ARTERIAL_FACTOR, STREET_FACTOR = 1.1, 0.9
"""Speeds on arterials and on other streets over the place's. Round numbers."""
SPREAD = 0.2
"""Standard deviation of where vehicles live, over the side of the city. A round number."""
MARGIN = 200.0
"""Metres between the outermost streets and the edge of the study area."""
_METRES_A_DEGREE = 111_195.0


@dataclass(frozen=True)
class StreetBlocks:
    """Blocks that trips drive through, trip by trip, in order; shape (n,) each.

    ``trip``: which trip. ``east`` and ``north``: where the block is entered, in blocks. ``step_east`` and
    ``step_north``: -1, 0 or 1, the way it is driven. ``speed``: of a vehicle of mean pace that moves, at a
    mean hour, in m/s. ``stop``: seconds that a vehicle stands there on average.
    """

    trip: IntArray
    east: IntArray
    north: IntArray
    step_east: IntArray
    step_north: IntArray
    speed: FloatArray
    stop: FloatArray


class Streets:
    """The same model and seed give the same streets."""

    def __init__(self, model: CityModel, seed: int) -> None:
        self.model = model
        self.places = max(2, round(model.extent_km * 1000 / BLOCK / PLACE))
        """Places along a side of the city."""
        self.side = self.places * PLACE
        """Blocks along a side of the city."""
        random = generator((seed, 1))
        factor = log_normal_factors(random.standard_normal((self.places, self.places)), model.cell_spread)
        middle = (np.arange(self.places) + 0.5) / self.places - 0.5
        # 0 in the centre, 1 halfway along an edge
        away = np.minimum(2 * np.hypot(middle[:, None], middle[None, :]), 1.0)
        factor *= 1 + model.gradient * (2 * away - 1)
        # records are sent by time, more of them where it is slow: their mean is harmonic, by traffic
        traffic = np.exp(-((middle / SPREAD) ** 2) / 2)
        factor *= np.average(1 / factor, weights=np.outer(traffic, traffic))
        self.fast = self._fast_places(random.permutation(self.places))
        self.moving = np.where(self.fast, model.fast_factor * model.level, factor * model.moving_speed)
        """Speed of moving vehicles in every place, m/s, shape (places, places): north, then east."""

    def _fast_places(self, rows: IntArray) -> BoolArray:
        """Return where the fast roads run: from the west along one row of places after another."""
        fast = np.zeros(self.places**2, dtype=np.bool_)
        fast[: round(self.model.fast_share * len(fast))] = True
        found: BoolArray = np.zeros((self.places, self.places), dtype=np.bool_)
        found[rows] = fast.reshape(self.places, self.places)
        return found

    def trip_blocks(self, start: IntArray, end: IntArray, turned: BoolArray) -> StreetBlocks:
        """Return the street blocks that trips from ``start`` to ``end`` pass, in order, with speeds and
        stops.

        ``start`` and ``end`` (trips, 2) count blocks east and north; ``turned`` (trips,) says whether the
        arterial runs north instead of east. A trip to where it begins has no block.
        """
        along = np.where(turned, 1, 0)
        row = np.arange(len(start))
        p, q = start[row, along], start[row, 1 - along]
        p_end, q_end = end[row, along], end[row, 1 - along]
        far = np.abs(p_end - p) >= ARTERIAL
        # the nearest one; the last street is an arterial too
        arterial = np.where(far, (q + 1) // ARTERIAL * ARTERIAL, q)
        first, second, third = np.abs(arterial - q), np.abs(p_end - p), np.abs(q_end - arterial)
        length = first + second + third
        trip = np.repeat(row, length)
        done = np.arange(len(trip)) - np.repeat(np.cumsum(length) - length, length)
        in_first = np.minimum(done, first[trip])
        done -= in_first
        in_second = np.minimum(done, second[trip])
        in_third = done - in_second
        across = (in_first == first[trip]) & (in_second < second[trip])
        on_arterial = across & far[trip]
        sign_first, sign_second = np.sign(arterial - q)[trip], np.sign(p_end - p)[trip]
        sign_third = np.sign(q_end - arterial)[trip]
        at_p = p[trip] + sign_second * in_second
        at_q = q[trip] + sign_first * in_first + sign_third * in_third
        step_p = np.where(across, sign_second, 0)
        step_q = np.where(across, 0, np.where(in_first < first[trip], sign_first, sign_third))
        turn = turned[trip]
        east, north = np.where(turn, at_q, at_p), np.where(turn, at_p, at_q)
        step_east, step_north = np.where(turn, step_q, step_p), np.where(turn, step_p, step_q)
        # the middle of a block decides its place; on a border, the one to the south or west
        place = tuple(
            np.clip((2 * at + step - 1) // (2 * PLACE), 0, self.places - 1)
            for at, step in ((north, step_north), (east, step_east))
        )
        fast, speed = self.fast[place], self.moving[place]
        standing = self.model.standing / (1 - self.model.standing)
        stop = np.where(fast, 0.0, BLOCK / speed * standing)
        speed = speed * np.where(fast, 1.0, np.where(on_arterial, ARTERIAL_FACTOR, STREET_FACTOR))
        return StreetBlocks(trip, east, north, step_east, step_north, speed, stop)

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east and north limits of the study area in degrees; all traffic lies within."""
        half = self.side * BLOCK / 2 + MARGIN
        north, east = half / _METRES_A_DEGREE, half / self._metres_a_degree_east
        latitude, longitude = self.model.latitude, self.model.longitude
        corners = (longitude - east, latitude - north, longitude + east, latitude + north)
        return tuple(round(corner, 6) for corner in corners)  # type: ignore[return-value]

    @property
    def _metres_a_degree_east(self) -> float:
        return _METRES_A_DEGREE * cos(radians(self.model.latitude))

    def positions(self, east: FloatArray, north: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latitudes and longitudes of points ``east`` and ``north`` in metres, to a millionth of a
        degree, (n,).
        """
        west, south, _, _ = self.bounds
        latitude = np.round(south + (north + MARGIN) / _METRES_A_DEGREE, 6)
        return latitude, np.round(west + (east + MARGIN) / self._metres_a_degree_east, 6)


DAY = 86_400
SENTINEL = 113.9952
"""What a broken sensor sends for a speed: 255 mph in m/s."""
TURNAROUND = 60.0
"""Seconds at least between two trips of a vehicle."""
_GPS_METRES = 4.0
_SLOWEST = 0.3
"""m/s: nothing that moves is slower."""


@dataclass(frozen=True)
class Fleet:
    """All vehicles, shape (vehicles,) each: where they live, how much, how fast and how often they send."""

    home: IntArray
    """Blocks east and north, shape (vehicles, 2)."""
    trips: FloatArray
    """Mean number of trips a day."""
    interval: FloatArray
    """Seconds between records."""
    pace: FloatArray
    """Speed over that of a mean vehicle."""
    records: FloatArray
    """About how many records a day are to be expected; sums of it say how large a stretch is."""

    @classmethod
    def of(cls, streets: Streets, vehicles: int, seed: int) -> Fleet:
        """Return a simulated fleet of ``vehicles``; the same arguments give the same.

        Numbers of records are log-normal. A vehicle that sends w times the mean makes sqrt(w) times as many
        trips as a mean one, and waits 1/sqrt(w) times as long between records.
        """
        model, random = streets.model, generator((seed, 2))
        home = streets.side * (0.5 + SPREAD * random.standard_normal((vehicles, 2)))
        weight = np.exp(model.fleet_sigma * random.standard_normal(vehicles) - model.fleet_sigma**2 / 2)
        root, mean_root = np.sqrt(weight), np.exp(-(model.fleet_sigma**2) / 8)
        rate = 1000 * model.trip_km / model.level / model.interval
        return cls(
            home=np.clip(np.rint(home), 0, streets.side).astype(np.int64),
            trips=model.trips_a_day * root / mean_root,
            interval=np.clip(model.interval / (root * mean_root), 1.0, 3600.0),
            pace=log_normal_factors(random.standard_normal(vehicles), model.vehicle_spread),
            records=np.minimum(model.trips_a_day * weight * rate, DAY),
        )


@dataclass(frozen=True)
class SimulatedRecords:
    """Rows of a feed, vehicle by vehicle in the order of time, shape (n,) each.

    ``centi`` is the true speed in 0.01 m/s; ``speed`` (m/s, NaN where none was sent) and the position are
    what is sent. ``counts``: whether a row is one of the records that the truth is taken of, as it is
    neither flawed nor a repeat. ``late``: whether it arrives with the next day's file.
    """

    vehicle: IntArray
    millisecond: IntArray
    """Of the day."""
    latitude: FloatArray
    longitude: FloatArray
    speed: FloatArray
    centi: IntArray
    counts: BoolArray
    late: BoolArray


def records_of(streets: Streets, fleet: Fleet, members: slice, day: int, seed: int) -> SimulatedRecords:
    """Return the simulated records that the vehicles ``members`` of the fleet send on day number ``day``.

    The same arguments, ``seed`` among them, give the same records; another day, other trips.
    """
    random = generator((seed, 3, day, members.start))
    vehicle, wish, blocks = _trips(streets, fleet, members, random)
    trips, trip, model = len(vehicle), blocks.trip, streets.model
    hour = np.minimum(wish // 3600, 23).astype(np.int64)
    pace = fleet.pace[vehicle] * model.hour_factors(hour)
    speed = np.clip(blocks.speed * pace[trip], _SLOWEST, model.top_speed)
    drive = BLOCK / speed
    # one block in two has a stop
    stop = 2 * blocks.stop * random.standard_exponential(len(trip)) * (random.uniform(size=len(trip)) < 0.5)
    end = np.cumsum(drive + stop)
    of_trip = np.bincount(trip, minlength=trips)
    last = np.cumsum(of_trip)
    whole = np.concatenate([[0.0], end])
    before, duration = whole[last - of_trip], whole[last] - whole[last - of_trip]
    end -= before[trip]
    begin = whole[:-1] - before[trip]
    start = _one_after_another(vehicle, wish, duration + TURNAROUND)

    # the j-th record of a trip is sent ``phase + j interval`` seconds after its start
    interval = fleet.interval[vehicle]
    phase = interval * random.uniform(size=trips)
    first = np.ceil((begin - phase[trip]) / interval[trip]).astype(np.int64)
    after = np.ceil((end - phase[trip]) / interval[trip]).astype(np.int64)
    np.maximum(first, 0, out=first)
    number = np.maximum(after - first, 0)
    block = np.repeat(np.arange(len(trip)), number)
    step = np.arange(len(block)) + np.repeat(first - (np.cumsum(number) - number), number)
    of = trip[block]
    time = phase[of] + step * interval[of]
    millisecond = ((start[of] + time) * 1000).astype(np.int64)
    today = np.flatnonzero(millisecond < DAY * 1000)
    if len(today) < len(block):
        block, of, time, millisecond = block[today], of[today], time[today], millisecond[today]
    done = (time - begin[block]) / drive[block]
    moves = done < 1
    np.minimum(done, 1, out=done)
    latitude, longitude = _positions(streets, blocks, block, done, random)
    sent = speed[block] * log_normal_factors(random.standard_normal(len(block)), model.record_spread)
    centi = np.where(moves, np.rint(100 * np.minimum(sent, model.top_speed)), 0).astype(np.int64)
    late = random.uniform(size=members.stop - members.start) < model.late
    sender = vehicle[of]
    late = late[sender - members.start]
    found = SimulatedRecords(sender, millisecond, latitude, longitude, centi / 100, centi, moves, late)
    return _with_flaws(found, model, random)


def _trips(
    streets: Streets, fleet: Fleet, part: slice, random: Generator
) -> tuple[IntArray, FloatArray, StreetBlocks]:
    """Return vehicle and wished second of the start of every trip of a day, and all their blocks."""
    model = streets.model
    number = random.poisson(fleet.trips[part])
    vehicle = np.repeat(np.arange(part.start, part.stop), number)
    share = np.concatenate([[0.0], np.cumsum(TRIPS_BY_HOUR)]) / sum(TRIPS_BY_HOUR)
    second = np.interp(random.uniform(size=len(vehicle)), share, 3600.0 * np.arange(25))
    # in order within each vehicle; vehicles are in order already
    wish = np.sort(vehicle * float(DAY) + second) - vehicle * float(DAY)
    # two normal places differ by 2 / sqrt(pi) deviations, in each of two directions
    reach = model.trip_km * 1000 / BLOCK / (4 / np.sqrt(np.pi))
    place = fleet.home[vehicle] + np.rint(reach * random.standard_normal((len(vehicle), 2))).astype(np.int64)
    end = np.clip(place, 0, streets.side)
    start = np.roll(end, 1, axis=0)
    opening = run_starts(vehicle)
    start[opening] = fleet.home[vehicle[opening]]
    return vehicle, wish, streets.trip_blocks(start, end, random.uniform(size=len(vehicle)) < 0.5)


def _one_after_another(vehicle: IntArray, wish: FloatArray, duration: FloatArray) -> FloatArray:
    """Return the start of every trip: as wished, or when the vehicle's trip before has ended.

    start_i = max over j <= i of wish_j + (durations of j to i - 1): a running maximum of wish_j minus the sum
    of the durations before j. A constant a vehicle, larger than any day, keeps vehicles apart.
    """
    before = np.cumsum(duration) - duration
    if not len(before):
        return wish
    apart = (vehicle - vehicle[0]) * (before[-1] + duration[-1] + DAY)
    return np.asarray(np.maximum.accumulate(wish - before + apart) + before - apart)


def _positions(
    streets: Streets, blocks: StreetBlocks, block: IntArray, done: FloatArray, random: Generator
) -> tuple[FloatArray, FloatArray]:
    east = blocks.east[block] + blocks.step_east[block] * done
    north = blocks.north[block] + blocks.step_north[block] * done
    error = _GPS_METRES * random.standard_normal((2, len(block)))
    return streets.positions(BLOCK * east + error[0], BLOCK * north + error[1])


def _with_flaws(records: SimulatedRecords, model: CityModel, random: Generator) -> SimulatedRecords:
    """Return the rows with the flaws of real feeds: each row has at most one, whatever its speed is."""
    chance = random.uniform(size=len(records.vehicle))
    bounds = np.cumsum([model.repeats, model.sentinels, model.missing, model.lost])
    fate = np.searchsorted(bounds, chance, side="right")
    lost = fate == 3
    speed = np.where(fate == 1, SENTINEL, np.where(fate == 2, np.nan, records.speed))
    latitude = np.where(lost, 0.0, records.latitude)
    longitude = np.where(lost, 0.0, records.longitude)
    counts = (fate == 0) | (fate == 4)
    row = np.repeat(np.arange(len(fate)), np.where(fate == 0, 2, 1))
    return SimulatedRecords(
        records.vehicle[row],
        records.millisecond[row],
        latitude[row],
        longitude[row],
        speed[row],
        records.centi[row],
        counts[row] & run_starts(row),
        records.late[row],
    )
