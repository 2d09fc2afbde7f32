"""Simulated cities: what a mechanism would say where the truth is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import BoolArray, FloatArray, IntArray
from trafficdp.binning.cells import area_km2, cells_of
from trafficdp.errors import integer_between
from trafficdp.measurement.sets import Measure
from trafficdp.mechanisms.pooling import add_remove_map
from trafficdp.mechanisms.pooling.add_remove_design import FLEET_SHARE, AddRemoveDesign
from trafficdp.mechanisms.pooling.calibrated import CalibratedCityWide
from trafficdp.mechanisms.pooling.posterior import LEVELS, Posterior
from trafficdp.mechanisms.protocol import CalibratedMechanism, FromKnownSpeeds, Mechanism
from trafficdp.mechanisms.publish import rounding_bias
from trafficdp.model import ContributionBound, Counts, Statistic, number_pairs, resolution_of
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.disclosure import SkillStated
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.loss import Loss, LossKind
from trafficdp.sensitive import Contributions, Samples, SensitiveInputs
from trafficdp.simulation import city as simulation_city
from trafficdp.simulation.traffic import Fleet, Streets, records_of

# Errors of mechanisms tried on simulated cities.
#
# How far a mechanism's estimates are from the truth, on values that may be looked at for evaluation.
#
# Trying mechanisms on simulated cities: two of ``simulation.city``'s models on the counts of the real one.
#
# In one hexagons differ as they usually do, in the other four times as much. What is reported is the larger
# error of the two.


AT_ONCE = 10
"""Runs that are held in memory together."""


def true_statistic(own: Contributions, statistic: Statistic) -> FloatArray:
    """Return the exact statistic of every bin from the sums ``own``, private or simulated, (G,).

    In the statistic's unit, exact up to one rounding.
    """
    counts, unit = own.counts, float(own.bound.step)
    # pairs are sorted by bin, and every bin has one
    start = counts.start[:-1]
    if statistic is Statistic.VEHICLE_MEAN:
        rounded = (2 * own.total + counts.count) // (2 * counts.count)
        return np.asarray(np.add.reduceat(rounded, start) * unit / counts.users_per_bin)
    total, records = np.add.reduceat(own.total, start), counts.samples_per_bin
    if statistic is Statistic.MEAN:
        return np.asarray(total * unit / records)
    squares = np.add.reduceat(own.total_of_squares, start)
    # in whole numbers, as N Q - S^2 can leave 64 bits
    spread = records.astype(object) * squares - total.astype(object) ** 2
    return np.asarray(spread.astype(np.float64) * unit**2 / records.astype(np.float64) ** 2)


def repeat_bins(samples: Samples, times: int, *, copy_vehicles: bool = False) -> Samples:
    """Return the bins of ``samples`` copied ``times`` times into new cells: one run then gives many draws.

    For mechanisms that treat every bin, or every cell, by itself. With ``copy_vehicles`` each copy has
    vehicles of its own.
    """
    one, copy = samples.counts, np.arange(times)[:, None]
    cells, which = np.unique(one.cell, return_inverse=True)
    counts = Counts(
        cell=(1 + copy * len(cells) + which).ravel().astype(np.uint64),
        slot=np.tile(one.slot, times),
        users_per_bin=np.tile(one.users_per_bin, times),
        user_index=(copy * (one.users if copy_vehicles else 0) + one.user_index).ravel(),
        count=np.tile(one.count, times),
        users=one.users * (times if copy_vehicles else 1),
    )
    vehicle = np.arange(1, counts.users + 1) if copy_vehicles else samples.vehicle
    return Samples(counts, np.tile(samples.value, times), vehicle, samples.bound)


def absolute_errors(
    mechanism: Mechanism,
    samples: Samples,
    statistic: Statistic,
    loss: FloatArray,
    measure: Measure,
    runs: int,
) -> FloatArray:
    """Return each bin's mean |estimate - truth| over ``runs`` independent estimates, shape (G,).

    ``measure`` draws noise without metering (``SimulatedNoise``): for simulated samples only.
    """
    integer_between(1, 10**6, runs=runs)
    truth = true_statistic(samples.contributions(), statistic)
    total = np.zeros_like(truth)
    # what looks at all bins together runs once an estimate
    most = 1 if mechanism.kind is LossKind.ZCDP else AT_ONCE
    together = cache(
        lambda now: (samples, loss) if now == 1 else (repeat_bins(samples, now), np.tile(loss, now))
    )
    for first in range(0, runs, most):
        now = min(most, runs - first)
        many, given = together(now)
        found = mechanism.estimate(many, statistic, given, measure)
        total += np.abs(found.reshape(now, -1) - truth).sum(axis=0)
    return total / runs


CITIES = ("usual", "four_times_cell_spread")
SEED = 1
MOST_BINS, MOST_RECORDS = 1_000, 1_000_000
"""Of more, the bins of every k-th cell are tried: bins are independent, but for blocks within a cell."""
ESTIMATES = 2_000
"""So many estimates in all, over bins and runs, where there are few bins."""


def simulated_samples(
    counts: Counts,
    bound: ContributionBound,
    seed: int,
    model: simulation_city.CityModel | None = None,
    hour: IntArray | None = None,
) -> Samples:
    """Return simulated speeds of ``model`` (None: the usual city) for the public ``counts`` and ``seed``.

    ``hour`` (G,) is the hour of day of every bin, None where slots have none.
    """
    model = model or simulation_city.CityModel()
    value = simulation_city.simulated_records(counts, bound, model, seed=seed, hour=hour)
    return Samples(counts, value, np.arange(1, counts.users + 1), bound)


@dataclass(frozen=True)
class SimulatedCities:
    """What a mechanism is tried in: depends on ``counts``, ``bound`` and ``seed`` alone."""

    counts: Counts
    bound: ContributionBound
    seed: int = SEED

    @cached_property
    def _tried(self) -> BoolArray:
        cells, which = np.unique(self.counts.cell, return_inverse=True)
        records = int(self.counts.count.sum())
        stride = min(len(cells), max(1, -(-self.counts.bins // MOST_BINS), -(-records // MOST_RECORDS)))
        return np.asarray(np.arange(len(cells))[which] % stride == 0)

    @cached_property
    def _cities(self) -> list[Samples]:
        return self._made(self.counts.select(self._tried))

    @cached_property
    def _whole_cities(self) -> list[Samples]:
        return self._made(self.counts)

    def _made(self, counts: Counts) -> list[Samples]:
        models = simulation_city.variations()
        return [simulated_samples(counts, self.bound, self.seed, models[name]) for name in CITIES]

    def error(self, mechanism: Mechanism, statistic: Statistic, loss: FloatArray) -> float:
        """Return the largest over simulated cities of the mean absolute error of ``mechanism``, in tried
        bins.

        ``loss`` is an epsilon a bin, or one rho for all bins together.
        """
        joint = mechanism.kind is LossKind.ZCDP
        tried = np.ones_like(self._tried) if joint else self._tried
        least, most = (3, 50) if joint else (1, 100)
        runs = int(np.clip(ESTIMATES // max(1, int(tried.sum())), least, most))
        given = loss if joint else loss[tried]
        return max(
            float(
                np.mean(
                    absolute_errors(mechanism, samples, statistic, given, SimulatedNoise(self.seed), runs)
                )
            )
            for samples in (self._whole_cities if joint else self._cities)
        )


# Cities behind public counts or a declared grid, and what maps say in them.
#
# How much a map says: its error in simulated cities, beside that of one number for the whole city.
#
# The reference city: how far a map of which nothing is public may be off, before anything is asked.
#
# Nothing of a store is looked at. A simulated fleet drives DAYS days in a simulated city (``simulation``) as
# large as the study area; speeds are drawn for it in several variations, and the map is asked of all of them.
#
# More vehicles than MOST_VEHICLES are not driven: all that moves a number is noise over vehicles, so f
# vehicles at loss e are as n at loss e f / n (rho: rho (f / n)^2), and a hexagon of 5 of them is one of 5 n /
# f.
#
# Cities behind the public counts, and what maps say in them (``Skill``).
#
# Cities of ``simulation.city`` lie behind the same public counts, in several variations, because nobody
# knows which is the real one; the calibrated mechanism is carried out on each as it would be on the real
# speeds. Depends on counts, bound and the calibrated mechanism alone: nothing is paid.


LEAST_SKILL, MOST_WORSE = 0.1, 0.1
"""A map that is less near than this, or further off than one number in more draws, says too little."""
SURE = 0.05
"""The share of draws that may be worse than what is promised."""
LEAST_ERROR = 1e-9
"""In a statistic's unit: what is no further off is right."""


@dataclass(frozen=True)
class Skill:
    """Mean absolute errors of the map (``error``) and of one number (``flat``), in the statistic's unit.

    ``numbers``: how many bins have a number that says something, which none has that is marked as
    uninformative. Shape (n,): one entry a simulated city and draw.

    ``stated_error`` and ``half_width`` are what the map says of its own numbers, on average over cities and
    draws: their expected error, and half of their interval. Shape (G,); where nothing about a vehicle is
    public (1,), of the numbers that say something: of the errors the mean, of the half widths the median.
    """

    error: FloatArray
    flat: FloatArray
    numbers: FloatArray
    stated_error: FloatArray = field(default_factory=lambda: np.full(1, np.nan))
    half_width: FloatArray = field(default_factory=lambda: np.full(1, np.nan))
    expected: float = field(init=False)
    """How much nearer to the truth than one number: 1 - error / flat, on average."""
    at_least: float = field(init=False)
    """The same, reached in 19 of 20 draws."""
    worse: float = field(init=False)
    """The share of draws that are worse than one number."""
    enough: bool = field(init=False)
    """Whether the map says enough to be released."""
    expected_numbers: int = field(init=False)
    """How many bins have a number that says something, on average."""

    def __post_init__(self) -> None:
        # of two that are right to the last digit neither is nearer
        error, flat = (np.maximum(each, LEAST_ERROR) for each in (self.error, self.flat))
        expected = 1 - float(error.mean() / flat.mean())
        worse = float(np.mean(error > flat))
        found = {
            "expected": expected,
            "at_least": float(np.quantile(1 - error / flat, SURE)),
            "worse": worse,
            "enough": expected >= LEAST_SKILL and worse <= MOST_WORSE,
            "expected_numbers": round(float(self.numbers.mean())),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def stated(self, factor: float) -> SkillStated:
        """Return the numbers as they are published, with errors multiplied by ``factor`` to change their
        unit.
        """
        return SkillStated(
            expected_error=float(self.error.mean()) * factor,
            flat_error=float(self.flat.mean()) * factor,
            skill=self.expected,
            skill_19_in_20=self.at_least,
            chance_worse=self.worse,
            in_words=self.in_words(),
        )

    def in_words(self) -> str:
        """Return one sentence that says how accurate the map is beside one city-wide number."""
        if self.expected <= 0:
            return "expected to be no smaller than that of one city-wide average"
        sure = f"in 19 of 20 draws at least {percent(self.at_least)}"
        if self.at_least <= 0:
            sure = f"but larger in {percent(max(self.worse, SURE))} of draws"
        return f"expected to be {percent(self.expected)} smaller than that of one city-wide average ({sure})"


@runtime_checkable
class SimulatesOwnCity(Protocol):
    """A calibrated mechanism that is tried in a city of its own: no counts are public to simulate one by."""

    def skill(self, fleet: int | None = None) -> Skill:
        """Return the errors of means and of one number for the whole city, simulated for ``fleet`` vehicles.

        None: for as many as are expected. No private value is read.
        """

    def with_expected_fleet(self, fleet: int, zone_km2: float | None) -> Self:
        """Return this mechanism with ``fleet`` vehicles expected, and zones of mean area ``zone_km2``.

        None: places are hexagons. Only expected errors change, nothing that is measured.
        """

    def count_errors(self) -> Mapping[str, float]:
        """Return the expected absolute noise in each published count of a place, by name.

        Empty without counts.
        """


def percent(share: float) -> str:
    """Return ``share`` as text in per cent, such as "25 %"."""
    return f"{round(100 * share)} %"


MOST_VEHICLES = 500
DAYS = 3
LEAST_VEHICLES = 5
"""Hexagons that fewer vehicles visit do not count."""
DRAWS = 2
MANY_REFERENCE_BINS = 2_000
"""Of more, every other city is tried, once."""
REFERENCE_SEED = 30
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
        """The approximate number of hexagons, times slots, in a study area of that size."""
        return self.side**2 / area_km2(self.resolution) * self.slots

    @classmethod
    def of(
        cls, cell: npt.NDArray[np.uint64], slots: int = 1, zone_km2: float | None = None
    ) -> ReferenceCityShape:
        """Return the reference city most like the declared places ``cell`` (H,) with so many ``slots``.

        Zones, which have ``zone_km2`` each on average, are taken for the hexagons that are most nearly so
        large.
        """
        if zone_km2 is None:
            resolution, one = int(resolution_of(cell[:1])[0]), 0.0
        else:
            sizes = np.log([area_km2(each) for each in range(16)])
            resolution, one = int(np.argmin(np.abs(sizes - np.log(zone_km2)))), zone_km2
        side = float(np.sqrt((one or area_km2(resolution)) * len(cell)))
        # the like of it to a fifth: a table of few cities serves many maps
        rounded = 1.2 ** round(float(np.log(side) / np.log(1.2)))
        return cls(resolution, float(np.clip(rounded, *simulation_city.RANGES["extent_km"])), min(slots, 24))


@lru_cache(maxsize=256)
def reference_skill(
    place: ReferenceCityShape, bound: ContributionBound, kind: LossKind, means: int, whole: int, fleet: int
) -> Skill:
    """Return how accurate a map of means is beside one number, simulated in a reference city of shape
    ``place``.

    ``fleet`` vehicles; the map's means get ``means`` 10^-12 of ``kind``, the one number the ``whole``. Errors
    are in the unit of ``bound``, over hexagons of at least LEAST_VEHICLES; informative numbers are counted in
    all visited hexagons.
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
    noise, error, flat, numbers = SimulatedNoise(REFERENCE_SEED), [], [], []
    stated = []
    slots = np.unique(counts.slot) if place.slots > 1 else np.zeros(0, dtype=np.int64)
    design = AddRemoveDesign(
        np.unique(counts.cell), bound, kind, own_total, variance=False, separate_slots=slots
    )
    at, _ = design.place_numbers(counts.cell, counts.slot)
    # the first asking has a share of what there is: of so much more it has all
    alone = AddRemoveDesign(
        design.places, bound, kind, whole_total * 100 // FLEET_SHARE[kind], variance=False
    )
    # where places are many, their errors average out within one draw
    many = counts.bins > MANY_REFERENCE_BINS
    for own in cities[:: 2 if many else 1]:
        truth = np.bincount(counts.bin_index, own.total, counts.bins) * float(bound.step)
        truth = (truth / counts.samples_per_bin)[seen]
        for _ in range(1 if many else DRAWS):
            found = add_remove_map.add_remove_map(design, add_remove_map.measure_all(design, own, noise))
            error.append(float(np.abs(found.mean.value[at][seen] - truth).mean()))
            numbers.append(int(np.count_nonzero(found.mean.informed[at])))
            stated.append(_stated(found.mean))
            one = add_remove_map.estimate_fleet(alone, add_remove_map.measure_fleet(alone, own, noise)).centre
            flat.append(float(np.abs(one - truth).mean()))
    stated_error, half_width = np.mean(stated, axis=0)[:, None]
    stated_error = stated_error + rounding_bias(Statistic.MEAN, bound)
    return Skill(np.array(error), np.array(flat), np.array(numbers), stated_error, half_width)


def _stated(found: Posterior) -> tuple[float, float]:
    """The mean expected error and the median half width of the numbers that say something, or of all."""
    low, high = found.ends[LEVELS[-1]]
    own = found.informed if found.informed.any() else np.ones(len(low), dtype=np.bool_)
    return float(found.error[own].mean()), float(np.median(high[own] - low[own]) / 2)


@lru_cache(maxsize=16)
def _cities(place: ReferenceCityShape, bound: ContributionBound, vehicles: int) -> tuple[Contributions, ...]:
    model = replace(simulation_city.CityModel(), extent_km=place.side)
    streets = Streets(model, REFERENCE_SEED)
    fleet = Fleet.of(streets, vehicles, REFERENCE_SEED)
    days = [records_of(streets, fleet, slice(0, vehicles), day, REFERENCE_SEED) for day in range(DAYS)]
    vehicle, latitude, longitude, millisecond = (
        np.concatenate([getattr(day, name)[day.counts] for day in days])
        for name in ("vehicle", "latitude", "longitude", "millisecond")
    )
    cells, which = np.unique(cells_of(latitude, longitude, place.resolution), return_inverse=True)
    slot = np.minimum(millisecond // 3_600_000, 23) * place.slots // 24
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
    models = [each for name, each in simulation_city.variations(model).items() if name not in ALIKE]
    for number, each in enumerate(models):
        drawn = simulation_city.simulated_truths(counts.counts, bound, each, seed=REFERENCE_SEED + number)
        found.append(replace(counts, total=drawn.total[0], total_of_squares=drawn.total_of_squares[0]))
    return tuple(found)


CITY_SEED = 20
DRAWS, MOST_DRAWS = 2, 4
"""Draws of the noise a city, where bins are many and where they are few."""
MANY_BINS = 5_000
"""Of more, errors average out within one draw."""
TRIED = 1_000
"""So many estimates of bins in all, where bins are few, tell maps apart."""
MOST_DRAWN_IN_ALL = 3_000_000
"""So many speeds are drawn in all: of fewer cities where counts are large, of 2 at least."""


@dataclass(frozen=True)
class SimulatedCity:
    """Speeds behind the real counts, with their ``number``."""

    number: int
    values: SensitiveInputs


def simulated_cities_of(
    counts: Counts, bound: ContributionBound, hour: IntArray | None = None, *, squares: bool = True
) -> Iterator[SimulatedCity]:
    """Yield simulated cities in which maps are tried: the public ``counts``, with speeds in 0..U.

    U is that of ``bound``. Each is drawn by another variation of the city model; where counts are large some
    variations are left out, but two are always tried. ``hour`` (G,) is the hour of day of every bin, None
    where slots have none. Without ``squares`` all sums of squares are 0: for maps without a variance.
    """
    models = list(simulation_city.variations().values())
    for number in _numbers(counts):
        model, seed = models[number], CITY_SEED + number
        made = simulation_city.simulated_truths(counts, bound, model, seed=seed, hour=hour, squares=squares)
        vehicle = np.arange(1, counts.users + 1)
        sums = Contributions(counts, made.total[0], made.total_of_squares[0], vehicle, bound)
        # only some maps ask for records, then at every draw
        samples = cache(partial(simulated_samples, counts, bound, seed, model, hour))
        yield SimulatedCity(number, SensitiveInputs(sums, samples))
        # one city at a time is held in memory
        del made, sums


def _numbers(counts: Counts) -> range:
    models, (_, drawn) = len(simulation_city.VARIATIONS), simulation_city.draws_per_pair(counts)
    many = max(2, min(models, MOST_DRAWN_IN_ALL // max(1, drawn)))
    return range(0, models, -(-models // many))


def skills_of(
    mechanisms: Sequence[CalibratedMechanism],
    loss: Loss,
    cities: Iterable[SimulatedCity],
    *,
    once: bool = False,
) -> tuple[dict[Statistic, Skill], ...]:
    """Return how accurate each statistic of each of ``mechanisms`` is in the simulated ``cities``.

    Each is compared with one city-wide number that is given all of ``loss``. Every city is simulated DRAWS
    times, or more until TRIED bins are estimated, but at most MOST_DRAWS; with ``once``, one time.
    """
    mechanisms = [each.without_known() if isinstance(each, FromKnownSpeeds) else each for each in mechanisms]
    # the mean absolute error over all bins, and how many say something, of every draw
    found: list[dict[Statistic, list[tuple[float, int]]]] = [
        {each: [] for each in one.statistics} for one in mechanisms
    ]
    stated = [{each: np.zeros((2, one.public.counts.bins)) for each in one.statistics} for one in mechanisms]
    flats: dict[Statistic, list[float]] = {each: [] for one in mechanisms for each in one.statistics}
    public = mechanisms[0].public
    counts = public.counts
    yardstick = {each: CalibratedCityWide(public, (each,), loss.kind, loss.pico) for each in flats}
    least = 1 if counts.bins > MANY_BINS else DRAWS
    needed = -(-TRIED // (len(_numbers(counts)) * counts.bins))
    draws = 1 if once else int(np.clip(needed, least, MOST_DRAWS))
    for city in cities:
        values = city.values
        truth = {each: true_statistic(values.contributions, each) for each in flats}
        for draw in range(draws):
            seed = 1000 * city.number + 2 * draw
            for each, told in flats.items():
                number = yardstick[each].numbers(values, SimulatedNoise(seed))[each]
                told.append(float(np.abs(number - truth[each]).mean()))
            for calibrated, own, sums in zip(mechanisms, found, stated, strict=True):
                drawn = calibrated.run(values, SimulatedNoise(seed + 1), interval_level=LEVELS[-1])
                for each in calibrated.statistics:
                    one = drawn[each]
                    informative = int(np.count_nonzero(one.status != BinStatus.UNINFORMATIVE.value))
                    own[each].append((float(np.abs(one.value - truth[each]).mean()), informative))
                    sums[each] += one.expected_error, (one.high - one.low) / 2
        del city, values
    return tuple(
        {
            each: Skill(
                np.array(drawn)[:, 0],
                np.array(flats[each]),
                np.array(drawn)[:, 1],
                *(sums[each] / len(drawn)),
            )
            for each, drawn in own.items()
        }
        for own, sums in zip(found, stated, strict=True)
    )
