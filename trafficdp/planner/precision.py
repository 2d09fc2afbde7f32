"""How wide the published intervals will be, and the least loss that makes them as narrow as asked.

Half widths are those of the released intervals before they are clamped to the statistic's range; they follow
from counts and the calibrated mechanism alone. Where noise is b = a / epsilon they are close to a' / epsilon
+ c, c the rounding of speeds, and never grow with epsilon or rho: so the least is found by proportion, then
bracketed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp._validate import positive
from trafficdp.errors import UsageError
from trafficdp.model.bound import ContributionBound
from trafficdp.model.speed_unit import parse_speed_unit
from trafficdp.model.statistic import Statistic
from trafficdp.planner.allocation import Allocation
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, Loss, rounded_up

FloatArray = npt.NDArray[np.float64]
CLOSE = 1e-4
"""The search ends when the least loss is known to this share."""
ATTEMPTS = 60
LEAST, LARGEST = 1e-6, LARGEST_LOSS / PICO
_HALF_WIDTH = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(?:(?!in every bin)(\D.*?))?\s*(\bin every bin)?\s*")


class Reach(StrEnum):
    """Which bins must be within a half width: the MEDIAN bin (so half of them), or EVERY bin."""

    MEDIAN = "median"
    EVERY = "every"


@dataclass(frozen=True, slots=True)
class Precision:
    """Half widths of the main statistic's intervals over the bins that carry noise, in its unit."""

    median: float
    worst: float

    def at(self, reach: Reach) -> float:
        """Return the half width that ``reach`` is about."""
        return self.median if reach is Reach.MEDIAN else self.worst


def precision(allocation: Allocation) -> Precision:
    """Return how wide the main statistic's intervals will be (0 where no bin carries noise)."""
    request = allocation.request
    widths = allocation.calibrated.half_widths(request.interval_level)[request.main]
    noisy = widths[widths > 0]
    return Precision(float(np.median(noisy)), float(noisy.max())) if noisy.size else Precision(0.0, 0.0)


def half_width_of(
    asked: str | float | None, bound: ContributionBound, statistics: Collection[Statistic]
) -> tuple[float | None, Reach]:
    """Return the half width that is ``asked`` for, in the unit of ``bound``, and in which bins it shall hold.

    "5 km/h", "5 km/h in every bin", a number, or None. Raises UsageError
    for no speed above 0, and for a unit of speed where only a variance is released.
    """
    expected = 'a number above 0, alone or with a unit, such as "5 km/h", or "5 km/h in every bin"'
    if not isinstance(asked, str):
        return asked, Reach.MEDIAN
    found = _HALF_WIDTH.fullmatch(asked)
    if found is None or not (number := Fraction(found[1])):
        raise UsageError("the half width is not a speed", got=f"{asked:.40}", expected=expected)
    reach = Reach.MEDIAN if found[3] is None else Reach.EVERY
    if found[2] is None:
        return float(number), reach
    if {*statistics} == {Statistic.VARIANCE}:
        raise UsageError(
            "a half width of a variance has no unit of speed",
            got=f"{asked:.40}",
            expected=f"a bare number, in ({bound.unit.label})²",
        )
    unit = parse_speed_unit(found[2], where="the half width")
    return float(number * unit.factor_to(bound.unit)), reach


def least_loss(
    allocate_at: Callable[[Loss], Allocation], start: Loss, half_width: float, reach: Reach
) -> Loss | None:
    """Return the least loss, rounded up to three significant digits, with intervals of ``half_width``.

    ``allocate_at`` plans one map at any loss of the kind of ``start``, where the search begins. None when not
    even a million would do: speeds are rounded, or some noise cannot be drawn. Raises UsageError unless
    ``half_width`` is positive.
    """
    positive(half_width=half_width)
    of = type(start).of

    def width(loss: float) -> float:
        try:
            return precision(allocate_at(of(f"{loss:.12f}"))).at(reach)
        except UsageError:
            # too much noise to be drawn exactly
            return math.inf

    low, high, loss = 0.0, math.inf, float(start.exact)
    for _ in range(ATTEMPTS):
        found = width(loss)
        low, high = (low, loss) if found <= half_width else (loss, high)
        if low >= LARGEST or high <= LEAST or high <= low * (1 + CLOSE):
            break
        loss = _next(loss * found / half_width, low, high)
    if not math.isfinite(high):
        return None
    rounded = rounded_up(high)
    # three digits above what passes pass too, but for rounding of scales
    return of(rounded) if width(float(rounded)) <= half_width else of(f"{high:.12f}")


def _next(guess: float, low: float, high: float) -> float:
    """Return the guess by proportion a hair above, or the middle when that lies outside the bracket."""
    guess = min(max(guess * (1 + CLOSE / 2), LEAST), LARGEST) if math.isfinite(guess) else 2 * low
    if low < guess < high:
        return guess
    if not math.isfinite(high):
        return min(2 * low, LARGEST)
    return high * (1 - CLOSE / 2) if low == 0 else math.sqrt(low * high)
