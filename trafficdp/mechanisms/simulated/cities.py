"""Cities behind the public counts, and what maps say in them (``simulated.skill``).

Cities of ``simulation.speeds`` lie behind the same public counts, in several variations, because nobody knows
which is the real one; the calibrated mechanism is carried out on each as it would be on the real speeds.
Depends on counts, bound and the calibrated mechanism alone: nothing is paid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.pooling.calibrated import CalibratedFlat
from trafficdp.mechanisms.protocol import CalibratedMechanism
from trafficdp.mechanisms.simulated.accuracy import true_statistic
from trafficdp.mechanisms.simulated.skill import Skill
from trafficdp.model import ContributionBound, Counts, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.loss import Loss
from trafficdp.sensitive.values import Contributions, Samples, SensitiveInputs
from trafficdp.simulation.city import VARIATIONS, variations
from trafficdp.simulation.speeds import most_drawn, simulated_records, simulated_truths

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SEED = 20
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


def cities_of(
    counts: Counts, bound: ContributionBound, hour: npt.NDArray[np.int64] | None = None
) -> Iterator[SimulatedCity]:
    """Yield the cities in which maps of ``counts`` are tried: fewer of many records (``MOST_RECORDS``).

    ``hour`` is the hour of day of every bin, (G,), None where slots have none.
    """
    models, vehicle = list(variations().values()), np.arange(counts.users, dtype=np.int64)
    for number in _numbers(counts):
        model, seed = models[number], SEED + number
        made = simulated_truths(counts, bound, model, seed=seed, hour=hour)
        sums = Contributions(counts, made.total[0], made.total_of_squares[0], vehicle, bound)
        # only some maps ask for records, then at every draw
        records = cache(partial(simulated_records, counts, bound, model, seed=seed, hour=hour))
        yield SimulatedCity(number, SensitiveInputs(sums, partial(_samples, counts, records, vehicle, bound)))
        # one city at a time is held in memory
        del made, sums


def _numbers(counts: Counts) -> range:
    models = len(VARIATIONS)
    drawn = int(np.minimum(counts.count, most_drawn(counts)).sum())
    many = max(2, min(models, MOST_DRAWN_IN_ALL // max(1, drawn)))
    return range(0, models, -(-models // many))


def skills_of(
    maps: Sequence[CalibratedMechanism], loss: Loss, cities: Iterable[SimulatedCity], *, once: bool = False
) -> tuple[dict[Statistic, Skill], ...]:
    """Return the skill of every statistic of each of ``maps``, all carried out in ``cities_of`` their counts.

    One number gets all of ``loss``, of each statistic by itself. A city has DRAWS, or as many more, to
    MOST_DRAWS, as all bins of all cities need to be estimated TRIED times; one where bins are MANY_BINS, or
    ``once`` is enough. What is found of a map does not depend on the others.
    """
    found: list[dict[Statistic, list[tuple[float, int]]]] = [
        {each: [] for each in one.statistics} for one in maps
    ]
    flats: dict[Statistic, list[float]] = {each: [] for one in maps for each in one.statistics}
    public = maps[0].public
    counts = public.counts
    yardstick = {each: CalibratedFlat(public, (each,), loss.kind, loss.pico) for each in flats}
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
            for calibrated, own in zip(maps, found, strict=True):
                for each, drawn in _drawn(calibrated, values, SimulatedNoise(seed + 1), truth).items():
                    own[each].append(drawn)
        del city, values
    return tuple(
        {
            each: Skill(np.array(drawn)[:, 0], np.array(flats[each]), np.array(drawn)[:, 1])
            for each, drawn in own.items()
        }
        for own in found
    )


def _drawn(
    calibrated: CalibratedMechanism,
    values: SensitiveInputs,
    noise: SimulatedNoise,
    truth: Mapping[Statistic, FloatArray],
) -> dict[Statistic, tuple[float, int]]:
    """The mean absolute error over all bins and how many say something, a statistic, of one draw."""
    found = calibrated.run(values, noise, interval_level=0.95)
    return {
        each: (
            float(np.abs(found[each].value - truth[each]).mean()),
            int(np.count_nonzero(found[each].status != BinStatus.UNINFORMATIVE.value)),
        )
        for each in calibrated.statistics
    }


def _samples(
    counts: Counts, records: Callable[[], IntArray], vehicle: IntArray, bound: ContributionBound
) -> Samples:
    return Samples(counts, records(), vehicle, bound)
