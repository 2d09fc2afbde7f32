"""What people see of a statistic: a variance as its standard deviation, in the unit of speed.

The root of an interval's ends holds the root of what the interval holds, so nothing is lost but the square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.export.files.classes import HATCH_SHARE, WIDTH_SHARES, breaks_of, range_of
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.privacy.release import DECIMALS

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]


def shown_numbers(
    table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return value, low and high of the published ``table``, each of shape (G,), in ``unit``, or NaN."""
    column = statistic.column(unit)
    digit = 10.0**DECIMALS
    value, low, high = (
        table[column + end].to_numpy(dtype=np.float64) ** (1 / statistic.power)
        for end in ("", "_low", "_high")
    )
    if statistic.power == 1:
        return value, low, high
    value = np.round(value * digit) / digit
    # the ends outwards, and a value that rounding moved past its interval takes the interval's end with it
    low = np.minimum(np.floor(low * digit) / digit, value)
    return value, low, np.maximum(np.ceil(high * digit) / digit, value)


def shown_largest(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> float:
    """Return the largest that can be shown, in ``unit``."""
    largest: float = range_of(statistic, bound, unit) ** (1 / statistic.power)
    return largest


def shown_breaks(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return the six breaks of the classes in ``unit``."""
    breaks = breaks_of(statistic, bound, unit)
    return breaks if statistic.power == 1 else tuple(float(format(each**0.5, ".2g")) for each in breaks)


def shown_hatch_limit(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> float:
    """Return the width of an interval in ``unit`` beyond which a hexagon is hatched."""
    return float(format(shown_largest(statistic, bound, unit) * float(HATCH_SHARE), ".3g"))


def shown_width_breaks(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return five breaks of widths of intervals in ``unit``: 1/64 to 1/4 of the range."""
    largest = shown_largest(statistic, bound, unit)
    return tuple(float(format(largest * float(share), ".3g")) for share in WIDTH_SHARES)


@dataclass(frozen=True, slots=True)
class NumberRead:
    """A number as people read it, without its unit; ``low`` and ``high`` are "" where nothing can be said."""

    value: str
    low: str
    high: str


def error_digits(low: float, high: float) -> int:
    """Return how many decimals an interval carries: those of its half width's first digit."""
    half = (high - low) / 2
    return max(0, min(DECIMALS, -math.floor(math.log10(half)))) if half > 0 else 1


def read_number(value: float, low: float, high: float, largest: float) -> NumberRead:
    """Return a number with no digit that its interval does not carry; the interval's ends go outwards.

    "unknown" where the interval is all that could be (0 to ``largest``), "withheld" for NaN.
    """
    if math.isnan(value):
        return NumberRead("withheld", "", "")
    if low <= 0 and high >= largest:
        return NumberRead("unknown", "", "")
    digits = error_digits(low, high)
    unit = 10**digits
    # published ends have DECIMALS digits: what floating point adds to them is no reason to go outwards
    down, up = math.floor(low * unit + 1e-6) / unit, math.ceil(high * unit - 1e-6) / unit
    return NumberRead(*(f"{each:.{digits}f}" for each in (value, down, up)))
