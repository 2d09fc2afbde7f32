"""How much a map says: its error in simulated cities, beside that of one number for the whole city.

Cities of ``simulation.speeds`` lie behind the same public counts, in several variations, because nobody knows
which is the real one; the calibrated mechanism is carried out on each as it would be on the real speeds.
Depends on counts, bound and the calibrated mechanism alone: nothing is paid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.mechanisms.pooling.calibrated import CalibratedFlat
from trafficdp.mechanisms.simulated.accuracy import true_statistic
from trafficdp.model.bound import ContributionBound
from trafficdp.model.counts import Counts
from trafficdp.model.statistic import Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.sensitive.samples import Samples
from trafficdp.sensitive.values import Values
from trafficdp.simulation.city import variations
from trafficdp.simulation.speeds import simulated_records

if TYPE_CHECKING:
    from trafficdp.mechanisms.calibrated import Calibrated

FloatArray = npt.NDArray[np.float64]
SEED = 20
DRAWS = 2
"""Draws of the noise a city."""
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

    def in_words(self) -> str:
        """Return one sentence for people."""
        if self.expected <= 0:
            return "expected no nearer to the truth than one number for the city"
        sure = f"19 times in 20 at least {_percent(self.at_least)}"
        if self.at_least <= 0:
            sure = f"but worse than it in {_percent(max(self.worse, SURE))} of all draws"
        return f"expected {_percent(self.expected)} nearer to the truth than one number for the city ({sure})"


def skill_of(
    calibrated: Calibrated,
    counts: Counts,
    bound: ContributionBound,
    kind: LossKind,
    pico: int,
    hour: npt.NDArray[np.int64] | None = None,
) -> dict[Statistic, Skill]:
    """Return the skill of every statistic of ``calibrated``, for ``pico`` 10^-12 of ``kind`` in all.

    ``hour`` is the hour of day of every bin, (G,), None where slots have none. One number gets the whole
    budget: of each statistic by itself.
    """
    errors: dict[Statistic, list[float]] = {each: [] for each in calibrated.statistics}
    flats: dict[Statistic, list[float]] = {each: [] for each in calibrated.statistics}
    for number, model in enumerate(variations().values()):
        value = simulated_records(counts, bound, model, seed=SEED + number, hour=hour)
        samples = Samples(counts, value, np.arange(counts.users, dtype=np.int64), bound)
        contributions = samples.contributions()
        values = Values(contributions, lambda samples=samples: samples)  # type: ignore[misc]
        for draw in range(DRAWS):
            noise = SimulatedNoise(1000 * number + draw)
            found = calibrated.estimates(values, noise, interval_level=0.95, uninformative_above=1.0)
            for each in calibrated.statistics:
                truth = true_statistic(contributions, each)
                errors[each].append(float(np.abs(found[each].value - truth).mean()))
                flat = CalibratedFlat((each,), kind, pico)
                one = flat.estimates(values, noise, interval_level=0.95, uninformative_above=1.0)[each]
                flats[each].append(float(np.abs(one.value - truth).mean()))
    return {each: Skill(np.array(errors[each]), np.array(flats[each])) for each in calibrated.statistics}


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
