"""The streets of a simulated city: a lattice of blocks, how fast each place is, and the way of every trip.

Places are named by whole blocks east and north of the south-western corner. Every third street is an
arterial. A trip goes from its beginning along a street to an arterial, along that, and along a street to its
end; which of the two directions is the arterial's is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import cos, radians

import numpy as np
import numpy.typing as npt

from trafficdp.noise.simulate import generator
from trafficdp.simulation.city import CityModel, mean_one

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

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
class Blocks:
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
        factor = mean_one(random.standard_normal((self.places, self.places)), model.cell_spread)
        middle = (np.arange(self.places) + 0.5) / self.places - 0.5
        # 0 in the centre, 1 halfway along an edge
        away = np.minimum(2 * np.hypot(middle[:, None], middle[None, :]), 1.0)
        factor *= 1 + model.gradient * (2 * away - 1)
        # records are sent by time, more of them where it is slow: their mean is harmonic, by traffic
        traffic = np.exp(-((middle / SPREAD) ** 2) / 2)
        factor *= np.average(1 / factor, weights=np.outer(traffic, traffic))
        self.fast = self._fast_places(random.permutation(self.places))
        self.moving = np.where(self.fast, model.fast_factor * model.level, factor * model.moving)
        """Speed of moving vehicles in every place, m/s, shape (places, places): north, then east."""

    def _fast_places(self, rows: IntArray) -> npt.NDArray[np.bool_]:
        """Return where the fast roads run: from the west along one row of places after another."""
        fast = np.zeros(self.places**2, dtype=np.bool_)
        fast[: round(self.model.fast_share * len(fast))] = True
        found: npt.NDArray[np.bool_] = np.zeros((self.places, self.places), dtype=np.bool_)
        found[rows] = fast.reshape(self.places, self.places)
        return found

    def ways(self, start: IntArray, end: IntArray, turned: npt.NDArray[np.bool_]) -> Blocks:
        """Return the blocks of trips from ``start`` to ``end``, shape (trips, 2) each: east, north.

        ``turned`` (trips,): whether the arterial runs north instead of east. A trip to where it begins has
        no block.
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
        place = (
            np.clip((2 * north + step_north - 1) // (2 * PLACE), 0, self.places - 1),
            np.clip((2 * east + step_east - 1) // (2 * PLACE), 0, self.places - 1),
        )
        fast, speed = self.fast[place], self.moving[place]
        standing = self.model.standing / (1 - self.model.standing)
        stop = np.where(fast, 0.0, BLOCK / speed * standing)
        speed = speed * np.where(fast, 1.0, np.where(on_arterial, ARTERIAL_FACTOR, STREET_FACTOR))
        return Blocks(trip, east, north, step_east, step_north, speed, stop)

    @cached_property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east, north of the study area in degrees; nothing is beyond it."""
        half = self.side * BLOCK / 2 + MARGIN
        north, east = half / _METRES_A_DEGREE, half / self._metres_a_degree_east
        latitude, longitude = self.model.latitude, self.model.longitude
        corners = (longitude - east, latitude - north, longitude + east, latitude + north)
        return tuple(round(corner, 6) for corner in corners)  # type: ignore[return-value]

    @property
    def _metres_a_degree_east(self) -> float:
        return _METRES_A_DEGREE * cos(radians(self.model.latitude))

    def positions(self, east: FloatArray, north: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return latitudes and longitudes, to a millionth of a degree, of places in metres; shape (n,)."""
        west, south, _, _ = self.bounds
        latitude = np.round(south + (north + MARGIN) / _METRES_A_DEGREE, 6)
        return latitude, np.round(west + (east + MARGIN) / self._metres_a_degree_east, 6)
