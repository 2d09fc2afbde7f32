"""How much a map says: its error in simulated cities, beside that of one number for the whole city."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from trafficdp.privacy.disclosure import SkillStated

FloatArray = npt.NDArray[np.float64]
LEAST_SKILL, MOST_WORSE = 0.1, 0.1
"""A map that is less near than this, or further off than one number in more draws, says too little."""
SURE = 0.05
"""The share of draws that may be worse than what is promised."""


@dataclass(frozen=True)
class Skill:
    """Mean absolute errors of the map (``error``) and of one number (``flat``), in the statistic's unit.

    ``numbers``: how many bins have a number that says something, which none has that is marked as
    uninformative. Shape (n,): one entry a simulated city and draw.
    """

    error: FloatArray
    flat: FloatArray
    numbers: FloatArray

    @property
    def expected(self) -> float:
        """How much nearer to the truth than one number: 1 - error / flat, on average."""
        return 1 - float(self.error.mean() / self.flat.mean())

    @property
    def expected_numbers(self) -> int:
        """How many bins have a number that says something, on average."""
        return round(float(self.numbers.mean()))

    @property
    def at_least(self) -> float:
        """The same, reached in 19 of 20 draws."""
        return float(np.quantile(1 - self.error / self.flat, SURE))

    @property
    def worse(self) -> float:
        """The share of draws that are worse than one number."""
        return float(np.mean(self.error > self.flat))

    @property
    def enough(self) -> bool:
        """Whether the map says enough to be released."""
        return self.expected >= LEAST_SKILL and self.worse <= MOST_WORSE

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


@runtime_checkable
class TriedElsewhere(Protocol):
    """A calibrated mechanism that is tried in a city of its own: no counts are public to simulate one by."""

    def skill(self, fleet: int | None = None) -> Skill:
        """Return that of means, of a ``fleet`` of another size than expected where it is named."""

    def expecting(self, fleet: int, zone_km2: float | None) -> Self:
        """Return the same where a ``fleet`` of that size is expected, and zones of that size."""

    def count_errors(self) -> Mapping[str, float]:
        """Return how far noise puts published counts off, in a fleet as usual."""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
