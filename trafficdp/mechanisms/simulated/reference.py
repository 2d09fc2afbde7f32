"""The reference city: how far a map of which nothing is public may be off, before anything is asked.

Nothing of a store is looked at. A simulated fleet drives DAYS days in a simulated city (``simulation``) as
large as the study area; speeds are drawn for it in several variations, and the map is asked of all of them.

More vehicles than MOST_VEHICLES are not driven: all that moves a number is noise over vehicles, so f vehicles
at loss e are as n at loss e f / n (rho: rho (f / n)^2), and a hexagon of 5 of them is one of 5 n / f.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import area_km2, cells_of, resolutions_of
from trafficdp.mechanisms.pooling.hidden_design import FLEET_SHARE, HiddenDesign
from trafficdp.mechanisms.pooling.hidden_map import estimate_fleet, hidden_map, measure_all, measure_fleet
from trafficdp.mechanisms.simulated.skill import Skill
from trafficdp.model import ContributionBound, number_pairs
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss import LossKind
from trafficdp.sensitive.values import Contributions
from trafficdp.simulation.city import RANGES, CityModel, variations
from trafficdp.simulation.speeds import simulated_truths
from trafficdp.simulation.traffic import Fleet, Streets, records_of

MOST_VEHICLES = 500
DAYS = 3
LEAST_VEHICLES = 5
"""Hexagons that fewer vehicles visit do not count."""
DRAWS = 2
MANY_BINS = 2_000
"""Of more, every other city is tried, once."""
SEED = 30
ALIKE = ("few_busy_vehicles", "hour_swing")
"""Variations that differ in counts or hours alone."""


@dataclass(frozen=True)
class ReferenceCityShape:
    """What decides the reference city of a map: resolution and side of the city in km, slots apart."""

    resolution: int
    side: float
    slots: int = 1

    @property
    def places(self) -> float:
        """How many hexagons times slots a study area of that size has, about."""
        return self.side**2 / area_km2(self.resolution) * self.slots

    @classmethod
    def of(
        cls, cell: npt.NDArray[np.uint64], slots: int = 1, zone_km2: float | None = None
    ) -> ReferenceCityShape:
        """Return that of the declared places ``cell`` (H,), each once, and of so many slots of each.

        Zones, which have ``zone_km2`` each on average, are taken for the hexagons that are most nearly so
        large.
        """
        if zone_km2 is None:
            resolution, one = int(resolutions_of(cell[:1])[0]), 0.0
        else:
            sizes = np.log([area_km2(each) for each in range(16)])
            resolution, one = int(np.argmin(np.abs(sizes - np.log(zone_km2)))), zone_km2
        side = float(np.sqrt((one or area_km2(resolution)) * len(cell)))
        # the like of it to a fifth: a table of few cities serves many maps
        rounded = 1.2 ** round(float(np.log(side) / np.log(1.2)))
        return cls(resolution, float(np.clip(rounded, *RANGES["extent_km"])), min(slots, 24))


@lru_cache(maxsize=256)
def reference_skill(
    place: ReferenceCityShape, bound: ContributionBound, kind: LossKind, means: int, whole: int, fleet: int
) -> Skill:
    """Return errors of the map of means of ``fleet`` vehicles for ``means`` 10^-12, and of one number.

    One number gets the ``whole``. In the unit of ``bound``, over hexagons of at least LEAST_VEHICLES. Numbers
    that say something are counted in all hexagons that are visited.
    """
    driven = min(fleet, MOST_VEHICLES)
    times = fleet / driven
    own_total, whole_total = (
        round(each * times ** (1 if kind is LossKind.PURE else 2)) for each in (means, whole)
    )
    cities = _cities(place, bound, driven)
    counts = cities[0].counts
    seen = counts.users_per_bin >= max(1, round(LEAST_VEHICLES / times))
    if not seen.any():
        # so few vehicles that none of it is known
        seen |= True
    noise, error, flat, numbers = SimulatedNoise(SEED), [], [], []
    apart = np.unique(counts.slot) if place.slots > 1 else np.zeros(0, dtype=np.int64)
    design = HiddenDesign(np.unique(counts.cell), bound, kind, own_total, variance=False, apart=apart)
    at, _ = design.where(counts.cell, counts.slot)
    # the first asking has a share of what there is: of so much more it has all
    alone = HiddenDesign(design.places, bound, kind, whole_total * 100 // FLEET_SHARE[kind], variance=False)
    # where places are many, their errors average out within one draw
    many = counts.bins > MANY_BINS
    for own in cities[:: 2 if many else 1]:
        truth = np.bincount(counts.bin_index, own.total, counts.bins) * float(bound.step)
        truth = (truth / counts.samples_per_bin)[seen]
        for _ in range(1 if many else DRAWS):
            found = hidden_map(design, measure_all(design, own, noise))
            error.append(float(np.abs(found.mean[at][seen] - truth).mean()))
            numbers.append(int(np.count_nonzero(found.known(design.upper)[at])))
            one = estimate_fleet(alone, measure_fleet(alone, own, noise)).centre
            flat.append(float(np.abs(one - truth).mean()))
    return Skill(np.array(error), np.array(flat), np.array(numbers))


@lru_cache(maxsize=16)
def _cities(place: ReferenceCityShape, bound: ContributionBound, vehicles: int) -> tuple[Contributions, ...]:
    model = replace(CityModel(), extent_km=place.side)
    streets = Streets(model, SEED)
    fleet = Fleet.of(streets, vehicles, SEED)
    days = [records_of(streets, fleet, slice(0, vehicles), day, SEED) for day in range(DAYS)]
    counted = [each.counts for each in days]
    vehicle = np.concatenate([day.vehicle[own] for day, own in zip(days, counted, strict=True)])
    latitude = np.concatenate([day.latitude[own] for day, own in zip(days, counted, strict=True)])
    longitude = np.concatenate([day.longitude[own] for day, own in zip(days, counted, strict=True)])
    hour = np.concatenate([day.millisecond[own] for day, own in zip(days, counted, strict=True)]) // 3_600_000
    cells, which = np.unique(cells_of(latitude, longitude, place.resolution), return_inverse=True)
    slot = np.minimum(hour, 23) * place.slots // 24
    bins = which.ravel().astype(np.int64) * place.slots + slot
    at, user, entry = number_pairs(bins, vehicle, len(cells) * place.slots, vehicles)
    nothing = np.zeros(len(at), dtype=np.int64)
    counts = Contributions.from_rows(
        cell=cells[at // place.slots],
        slot=at % place.slots,
        vehicle=user,
        count=np.bincount(entry, minlength=len(at)),
        total=nothing,
        total_of_squares=nothing,
        bound=bound,
    )
    found = []
    models = [each for name, each in variations(model).items() if name not in ALIKE]
    for number, each in enumerate(models):
        drawn = simulated_truths(counts.counts, bound, each, seed=SEED + number)
        found.append(replace(counts, total=drawn.total[0], total_of_squares=drawn.total_of_squares[0]))
    return tuple(found)
