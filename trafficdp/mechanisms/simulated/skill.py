"""How much a map says: its error in simulated cities, beside that of one number for the whole city.

Cities of ``simulation.speeds`` lie behind the same public counts, in several variations, because nobody knows
which is the real one; the calibrated mechanism is carried out on each as it would be on the real speeds.
Depends on counts, bound and the calibrated mechanism alone: nothing is paid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.pooling.calibrated import CalibratedFlat
from trafficdp.mechanisms.simulated.accuracy import true_statistic
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.disclosure import SkillStated
from trafficdp.privacy.loss import Loss
from trafficdp.sensitive.samples import Samples
from trafficdp.sensitive.values import Values
from trafficdp.simulation.city import variations
from trafficdp.simulation.speeds import simulated_records

if TYPE_CHECKING:
    from trafficdp.mechanisms.calibrated import Calibrated

FloatArray = npt.NDArray[np.float64]
SEED = 20
DRAWS, MOST_DRAWS = 2, 20
"""Draws of the noise a city, where bins are many and where they are few."""
MOST_RECORDS = 3_000_000
"""So many records are drawn in all: of fewer cities where counts are large, of 2 at least."""
SURE = 0.05
"""The share of draws that may be worse than what is promised."""


@dataclass(frozen=True)
class Skill:
    """Mean absolute errors of the map (``error``) and of one number (``flat``), in the statistic's unit.

    Shape (n,): one entry a simulated city and draw.
    """

    error: FloatArray
    flat: FloatArray

    @property
    def expected(self) -> float:
        """How much nearer to the truth than one number: 1 - error / flat, on average."""
        return 1 - float(self.error.mean() / self.flat.mean())

    @property
    def at_least(self) -> float:
        """The same, reached in 19 of 20 draws."""
        return float(np.quantile(1 - self.error / self.flat, SURE))

    @property
    def worse(self) -> float:
        """The share of draws that are worse than one number."""
        return float(np.mean(self.error > self.flat))

    def stated(self, factor: float = 1.0) -> SkillStated:
        """Return all of it as it is published, errors times ``factor``: from one unit to another."""
        return SkillStated(
            expected_error=float(self.error.mean()) * factor,
            flat_error=float(self.flat.mean()) * factor,
            skill=self.expected,
            skill_19_in_20=self.at_least,
            chance_worse=self.worse,
            in_words=self.in_words(),
        )

    def in_words(self) -> str:
        """Return one sentence for people."""
        if self.expected <= 0:
            return "expected no nearer to the truth than one number for the city"
        sure = f"19 times in 20 at least {_percent(self.at_least)}"
        if self.at_least <= 0:
            sure = f"but worse than it in {_percent(max(self.worse, SURE))} of all draws"
        return f"expected {_percent(self.expected)} nearer to the truth than one number for the city ({sure})"


def skills_of(
    maps: Sequence[Calibrated],
    counts: Counts,
    bound: ContributionBound,
    loss: Loss,
    hour: npt.NDArray[np.int64] | None = None,
    *,
    estimates: int = 0,
) -> tuple[dict[Statistic, Skill], ...]:
    """Return the skill of every statistic of each of ``maps``, all carried out in the same cities.

    ``hour`` is the hour of day of every bin, (G,), None where slots have none. One number gets all of
    ``loss``, of each statistic by itself. Of many records fewer cities are made (``MOST_RECORDS``). Each has
    DRAWS, or as many more, to MOST_DRAWS, as all bins of all cities need to be estimated ``estimates`` times.
    """
    errors: list[dict[Statistic, list[float]]] = [{each: [] for each in one.statistics} for one in maps]
    flats: dict[Statistic, list[float]] = {each: [] for one in maps for each in one.statistics}
    models = list(variations().values())
    many = max(2, min(len(models), MOST_RECORDS // max(1, int(counts.count.sum()))))
    numbers = range(0, len(models), -(-len(models) // many))
    draws = int(np.clip(-(-estimates // (len(numbers) * counts.bins)), DRAWS, MOST_DRAWS))
    for number in numbers:
        value = simulated_records(counts, bound, models[number], seed=SEED + number, hour=hour)
        samples = Samples(counts, value, np.arange(counts.users, dtype=np.int64), bound)
        values = Values(samples.contributions(), partial(_same, samples))
        truth = {each: true_statistic(values.contributions, each) for each in flats}
        for draw in range(draws):
            noise = SimulatedNoise(1000 * number + draw)
            for each, told in flats.items():
                told.append(_error(CalibratedFlat((each,), loss.kind, loss.pico), values, noise, truth)[each])
            for calibrated, own in zip(maps, errors, strict=True):
                for each, error in _error(calibrated, values, noise, truth).items():
                    own[each].append(error)
    return tuple(
        {each: Skill(np.array(error), np.array(flats[each])) for each, error in own.items()} for own in errors
    )


def _error(
    calibrated: Calibrated, values: Values, noise: SimulatedNoise, truth: Mapping[Statistic, FloatArray]
) -> dict[Statistic, float]:
    """The mean absolute error over all bins, a statistic, of one draw."""
    found = calibrated.estimates(values, noise, interval_level=0.95, uninformative_above=1.0)
    return {each: float(np.abs(found[each].value - truth[each]).mean()) for each in calibrated.statistics}


def _same(samples: Samples) -> Samples:
    return samples


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
