"""Classes of the map: fixed public breaks, colours and limits. Nothing here looks at a released value."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.privacy.estimate import BinStatus

FloatArray: TypeAlias = npt.NDArray[np.float64]

COLOURS = ("#440154", "#443983", "#31688e", "#21918c", "#35b779", "#90d743", "#fde725")
"""Seven steps of viridis, slow to fast."""
LIGHT, DARK = "#ffffff", "#000000"
HATCH_SHARE = Fraction(1, 4)
"""A cell is hatched where its interval is wider than this share of the statistic's range."""

_SPEED_BREAKS = {
    SpeedUnit.KILOMETRES_PER_HOUR: (10, 20, 30, 40, 50, 60),
    SpeedUnit.MILES_PER_HOUR: (5, 10, 15, 20, 25, 35),
    SpeedUnit.METRES_PER_SECOND: (2, 4, 6, 9, 12, 16),
}
_VARIANCE_BREAKS = {
    SpeedUnit.KILOMETRES_PER_HOUR: (25, 50, 100, 200, 400, 800),
    SpeedUnit.MILES_PER_HOUR: (10, 20, 40, 80, 160, 320),
    SpeedUnit.METRES_PER_SECOND: (2, 4, 8, 16, 32, 64),
}

PLAIN, HATCHED = "0123456", "abcdefg"
WITHHELD, UNINFORMATIVE, ABSENT = "w", "u", "n"
"""One letter a cell: its class, plain or hatched, or why it has none."""


def breaks_of(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return six breaks in ``unit`` (to the statistic's power): the usual ones of the unit.

    Where the declared range is too small for those, it is cut into seven equal classes.
    """
    usual = (_VARIANCE_BREAKS if statistic.power == 2 else _SPEED_BREAKS)[unit]
    largest = range_of(statistic, bound, unit)
    if usual[-1] < largest:
        return tuple(float(each) for each in usual)
    return tuple(float(format(largest * step / len(COLOURS), ".3g")) for step in range(1, len(COLOURS)))


def classes_in_words(breaks: Sequence[float]) -> list[str]:
    """Return what the classes between ``breaks`` are called, from the lowest."""
    between = [f"{low:g} to {high:g}" for low, high in pairwise(breaks)]
    return [f"under {breaks[0]:g}", *between, f"{breaks[-1]:g} and more"]


def ink_on(letter: str) -> str:
    """Return the colour of lines that stand out from class ``letter``: white on dark, black on light."""
    number = (PLAIN if letter in PLAIN else HATCHED).index(letter)
    return LIGHT if number < len(COLOURS) // 2 else DARK


def range_of(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> float:
    """Return the largest value of the statistic, in ``unit`` to its power."""
    return statistic.largest(bound.upper * bound.unit.factor_to(unit))


def hatch_limit(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> float:
    """Return the interval width, in ``unit`` to the statistic's power, beyond which a cell is hatched."""
    return float(format(range_of(statistic, bound, unit) * float(HATCH_SHARE), ".3g"))


def letters_of(
    value: FloatArray,
    low: FloatArray,
    high: FloatArray,
    status: npt.NDArray[np.object_],
    breaks: tuple[float, ...],
    limit: float,
) -> npt.NDArray[np.str_]:
    """Return the class letter of every bin, shape (n,). An uninformative number gets no colour."""
    withheld = (status == BinStatus.WITHHELD.value) | np.isnan(value)
    position = np.searchsorted(np.array(breaks), np.where(withheld, 0.0, value), side="right")
    wide = np.where(withheld, 0.0, high - low) > limit
    letters = np.where(wide, np.array(list(HATCHED))[position], np.array(list(PLAIN))[position])
    letters = np.where(status == BinStatus.UNINFORMATIVE.value, UNINFORMATIVE, letters)
    return np.where(withheld, WITHHELD, letters)


WIDTH_COLOURS = ("#3f007d", "#6a51a3", "#807dba", "#a8a6cf", "#cbcbe3", "#efedf5")
"""Six steps of purple, narrow to wide intervals."""
WIDTHS = "ABCDEF"
WIDTH_SHARES = tuple(Fraction(1, 2**power) for power in (6, 5, 4, 3, 2))
