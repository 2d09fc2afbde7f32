"""What people see of a statistic: a variance as its standard deviation, in the unit of speed.

The root of an interval's ends holds the root of what the interval holds, so nothing is lost but the square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.export.files.classes import (
    as_read,
    breaks_of,
    digits_read,
    range_of,
    width_breaks,
)
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.privacy.release import DECIMALS, Release, outward_down, outward_up

if TYPE_CHECKING:
    import pandas as pd

FloatArray = npt.NDArray[np.float64]
READ_LEVEL = 0.8
"""Of the interval that people read first, where there is a posterior: else that of the release."""
READ_ENDS, ENDS = ("_low_80", "_high_80"), ("_low", "_high")


def shown_numbers(
    table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return value, low and high of the published ``table``, each of shape (G,), in ``unit``, or NaN.

    The ends are those of the interval that is read first: of READ_LEVEL where there is a posterior.
    """
    return _shown(table, statistic, unit, READ_ENDS if has_posterior(table, statistic, unit) else ENDS)


def shown_outer(table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit) -> tuple[FloatArray, FloatArray]:
    """Return both ends of the interval of the release's level, as ``shown_numbers``."""
    return _shown(table, statistic, unit, ENDS)[1:]


def has_posterior(table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit) -> bool:
    """Return whether the published ``table`` says what a posterior says of ``statistic``."""
    return statistic.column(unit) + READ_ENDS[0] in table


def level_read(release: Release, statistic: Statistic) -> float:
    """Return the level of the interval that is read first."""
    return READ_LEVEL if release.estimates[statistic].posterior else release.request.interval_level


def _shown(
    table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit, ends: tuple[str, str]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    column = statistic.column(unit)
    value, low, high = (
        table[column + end].to_numpy(dtype=np.float64) ** (1 / statistic.power) for end in ("", *ends)
    )
    if statistic.power == 1:
        return value, low, high
    value = np.round(value * 10.0**DECIMALS) / 10.0**DECIMALS
    # the ends outwards, and a value that rounding moved past its interval takes the interval's end with it
    low = np.minimum(outward_down(low), value)
    return value, low, np.maximum(outward_up(high), value)


def shown_largest(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> float:
    """Return the largest that can be shown, in ``unit``."""
    largest: float = range_of(statistic, bound, unit) ** (1 / statistic.power)
    return largest


def shown_breaks(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return the six breaks of the classes in ``unit``."""
    breaks = breaks_of(statistic, bound, unit)
    return breaks if statistic.power == 1 else tuple(float(format(each**0.5, ".2g")) for each in breaks)


def shown_width_breaks(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return five breaks of widths of intervals in ``unit``."""
    return width_breaks(shown_breaks(statistic, bound, unit))


@dataclass(frozen=True, slots=True)
class NumberRead:
    """A number as people read it, without its unit; ``low`` and ``high`` are "" where nothing can be said."""

    value: str
    low: str
    high: str


def error_digits(low: float, high: float) -> int:
    """Return how many decimals an interval carries."""
    return int(digits_read(np.asarray(low), np.asarray(high)))


def read_number(value: float, low: float, high: float, largest: float) -> NumberRead:
    """Return a number with no digit that its interval does not carry; the interval's ends go outwards.

    "unknown" where the interval is all that could be (0 to ``largest``), "withheld" for NaN.
    """
    if math.isnan(value):
        return NumberRead("withheld", "", "")
    if low <= 0 and high >= largest:
        return NumberRead("unknown", "", "")
    digits = error_digits(low, high)
    read = as_read(*(np.asarray(each) for each in (value, low, high)))
    return NumberRead(*(f"{each:.{digits}f}" for each in read))
