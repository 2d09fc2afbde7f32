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
HATCHED_CLASSES = 2
"""A cell is hatched where the interval that is read is wider than so many classes."""
MOST_DIGITS = 3

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


def classes_in_words(breaks: Sequence[float], unit: str = "") -> list[str]:
    """Return what the classes between ``breaks`` are called, from the lowest, with ``unit`` (" %") behind."""
    between = [f"{low:g} to {high:g}{unit}" for low, high in pairwise(breaks)]
    return [f"under {breaks[0]:g}{unit}", *between, f"{breaks[-1]:g}{unit} and more"]


def ink_on(letter: str) -> str:
    """Return the colour of lines that stand out from class ``letter``: white on dark, black on light."""
    number = (PLAIN if letter in PLAIN else HATCHED).index(letter)
    return LIGHT if number < len(COLOURS) // 2 else DARK


def range_of(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> float:
    """Return the largest value of the statistic, in ``unit`` to its power."""
    return statistic.largest(bound.upper * bound.unit.factor_to(unit))


def hatch_limit(breaks: Sequence[float]) -> float:
    """Return the interval width beyond which a cell is hatched: twice the usual width of a class."""
    width = float(np.median(np.diff([0.0, *breaks])))
    return float(format(HATCHED_CLASSES * width, ".3g"))


def width_breaks(breaks: Sequence[float]) -> tuple[float, ...]:
    """Return five breaks of widths of intervals, the last of which is ``hatch_limit``."""
    limit = hatch_limit(breaks)
    return tuple(float(format(limit * float(share), ".3g")) for share in WIDTH_SHARES)


def digits_read(low: FloatArray, high: FloatArray) -> npt.NDArray[np.int64]:
    """Return how many decimals intervals carry: those of their half width's first digit, at most 3."""
    half = (high - low) / 2
    digits = -np.floor(np.log10(np.where(half > 0, half, 0.1)))
    return np.clip(digits, 0, MOST_DIGITS).astype(np.int64)


def as_read(
    value: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return numbers as they are read, to the decimals that the interval carries; its ends go outwards."""
    unit = 10.0 ** digits_read(low, high)
    # published numbers are decimals: what floating point adds or takes is no reason to round otherwise
    near = np.floor(value * unit + 0.5 + 1e-9), np.floor(low * unit + 1e-6), np.ceil(high * unit - 1e-6)
    value, low, high = (np.asarray(each / unit) for each in near)
    return value, low, high


def letters_of(
    value: FloatArray,
    low: FloatArray,
    high: FloatArray,
    status: npt.NDArray[np.object_],
    breaks: tuple[float, ...],
) -> npt.NDArray[np.str_]:
    """Return the class letter of every bin, shape (n,): that of the numbers as they are read.

    An uninformative number gets no colour.
    """
    withheld = (status == BinStatus.WITHHELD.value) | np.isnan(value)
    value, low, high = as_read(*(np.where(withheld, 0.0, each) for each in (value, low, high)))
    position = np.searchsorted(np.array(breaks), value, side="right")
    wide = high - low > hatch_limit(breaks) + 1e-9
    letters = np.where(wide, np.array(list(HATCHED))[position], np.array(list(PLAIN))[position])
    letters = np.where(status == BinStatus.UNINFORMATIVE.value, UNINFORMATIVE, letters)
    return np.where(withheld, WITHHELD, letters)


WIDTH_COLOURS = ("#3f007d", "#6a51a3", "#807dba", "#a8a6cf", "#cbcbe3", "#efedf5")
"""Six steps of purple, narrow to wide intervals."""
WIDTHS = "ABCDEF"
WIDTH_SHARES = tuple(Fraction(1, 2**power) for power in (4, 3, 2, 1, 0))

CHANCE_COLOURS = ("#fff5eb", "#fdd9b4", "#fdae6b", "#f07818", "#c04602", "#702303")
"""Six steps of orange, unlikely to likely."""
CHANCES = "hijklm"
CHANCE_BREAKS = (5.0, 20.0, 50.0, 80.0, 95.0)
"""Per cent, as chances are read."""
