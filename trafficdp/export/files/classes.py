"""What people see of a statistic: its unit, and the classes of the map by fixed public breaks.

No break, colour or limit looks at a released value. A variance is shown as its standard deviation: the root
of an interval's ends holds the root of what the interval holds, so nothing is lost but the square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.export.files.language import ENGLISH, Language
from trafficdp.model import ContributionBound, SpeedUnit, Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import DECIMALS, Release, outward_down, outward_up

if TYPE_CHECKING:
    import pandas as pd

COLOURS = ("#440154", "#443983", "#31688e", "#21918c", "#35b779", "#90d743", "#fde725")
"""Seven steps of viridis, slow to fast."""
LIGHT, DARK = "#ffffff", "#000000"
HATCHED_CLASSES = 2
"""A cell is hatched where the interval that is read is wider than so many times its class."""
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


def classes_in_words(breaks: Sequence[float], language: Language = ENGLISH) -> list[str]:
    """Return the name of each class of a legend, such as "10 to 20", from the lowest.

    ``breaks`` are the limits between the classes.
    """
    limits = [language.number(f"{each:g}") for each in breaks]
    between = [language.gettext("{first} to {last}", first=low, last=high) for low, high in pairwise(limits)]
    first = language.gettext("under {limit}", limit=limits[0])
    return [first, *between, language.gettext("{limit} and more", limit=limits[-1])]


def ink_on(letter: str) -> str:
    """Return a colour for lines on the colour of the class ``letter``: white on dark, black on light."""
    number = (PLAIN if letter in PLAIN else HATCHED).index(letter)
    return LIGHT if number < len(COLOURS) // 2 else DARK


def hatch_limits(breaks: Sequence[float]) -> tuple[float, ...]:
    """Return for each class between ``breaks`` the width of interval above which a cell is hatched.

    It is twice the width of the class. The last class counts as being as wide as the one before.
    """
    widths = np.diff([0.0, *breaks]).tolist()
    return tuple(float(format(HATCHED_CLASSES * width, ".3g")) for width in (*widths, widths[-1]))


def shown_decimals(low: FloatArray, high: FloatArray) -> IntArray:
    """Return how many decimals to show of numbers with the intervals [low, high], shape (n,).

    To the first digit of half the interval's width; at least 0 and at most MOST_DIGITS.
    """
    half = (high - low) / 2
    digits = -np.floor(np.log10(np.where(half > 0, half, 0.1)))
    return np.clip(digits, 0, MOST_DIGITS).astype(np.int64)


def round_to_interval(
    value: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return value, low and high rounded to ``shown_decimals``, shape (n,) each; the ends outward."""
    unit = 10.0 ** shown_decimals(low, high)
    # published numbers are decimals: what floating point adds or takes is no reason to round otherwise
    near = np.floor(value * unit + 0.5 + 1e-9), np.floor(low * unit + 1e-6), np.ceil(high * unit - 1e-6)
    value, low, high = (np.asarray(each / unit) for each in near)
    return value, low, high


def class_letters(
    value: FloatArray,
    low: FloatArray,
    high: FloatArray,
    status: npt.NDArray[np.object_],
    breaks: tuple[float, ...],
) -> npt.NDArray[np.str_]:
    """Return the class letter of every bin, shape (n,), of numbers rounded by ``round_to_interval``.

    The class lies between ``breaks`` and is hatched where the interval is wide. Bins without a number are
    WITHHELD, bins of status uninformative are UNINFORMATIVE.
    """
    withheld = (status == BinStatus.WITHHELD.value) | np.isnan(value)
    value, low, high = round_to_interval(*(np.where(withheld, 0.0, each) for each in (value, low, high)))
    position = np.searchsorted(np.array(breaks), value, side="right")
    wide = high - low > np.array(hatch_limits(breaks))[position] + 1e-9
    letters = np.where(wide, np.array(list(HATCHED))[position], np.array(list(PLAIN))[position])
    letters = np.where(status == BinStatus.UNINFORMATIVE.value, UNINFORMATIVE, letters)
    return np.where(withheld, WITHHELD, letters)


WIDTH_COLOURS = ("#3f007d", "#6a51a3", "#807dba", "#a8a6cf", "#cbcbe3", "#efedf5")
"""Six steps of purple, narrow to wide intervals."""
WIDTHS = "ABCDEF"
WIDTH_SHARES = tuple(Fraction(1, 2**power) for power in (4, 3, 2, 1, 0))

CHANCE_COLOURS = ("#542788", "#998ec3", "#d8daeb", "#f7f7f7", "#fee0b6", "#f1a340", "#b35806")
"""PuOr: surely slower, by way of neither, to surely faster."""
CHANCES = "hijklmo"
CHANCE_BREAKS = (6, 8, 10)
"""In ten, as chances are read, where 10 is more than 19 in 20. What reads 5 in 10 or less has no colour."""
CHANCE_WORDS = ("6 or 7 in 10", "8 or 9 in 10", "more than 19 in 20")


SHARE_BREAKS = (70, 85, 100, 115, 130)
"""Per cent of the scheduled speed; what is not surely below or above 100 has no colour."""


READ_LEVEL = 0.8
"""Of the interval that people read first, where there is a posterior: else that of the release."""
READ_ENDS, ENDS = ("_low_80", "_high_80"), ("_low", "_high")


def shown_level(release: Release, statistic: Statistic) -> float:
    """Return the level (0 to 1) of the interval that is shown first.

    READ_LEVEL where there is a posterior, else the release's own.
    """
    return READ_LEVEL if release.estimates[statistic].posterior else release.request.interval_level


def shown_numbers(
    table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit, *, outer: bool = False
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return value, low and high of the published ``table`` in ``unit``, shape (G,) each, NaN if withheld.

    A variance becomes the standard deviation. The ends are those of the interval shown first: of READ_LEVEL
    where there is a posterior. With ``outer`` they are those of the release's level.
    """
    column = statistic.column(unit)
    ends = ENDS if outer or column + READ_ENDS[0] not in table else READ_ENDS
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
    """Return the largest value that ``statistic`` can have, in ``unit``; of a variance, its root."""
    largest: float = statistic.largest(bound.upper * bound.unit.factor_to(unit)) ** (1 / statistic.power)
    return largest


def shown_breaks(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return the six limits between the seven classes of a legend, in ``unit``.

    They are the usual ones of the unit or, where the range of speeds of ``bound`` is too small for those,
    seven equal parts. Those of a variance are given as standard deviation.
    """
    breaks = [float(each) for each in (_VARIANCE_BREAKS if statistic.power == 2 else _SPEED_BREAKS)[unit]]
    largest = statistic.largest(bound.upper * bound.unit.factor_to(unit))
    if breaks[-1] >= largest:
        breaks = [float(format(largest * step / len(COLOURS), ".3g")) for step in range(1, len(COLOURS))]
    return tuple(breaks if statistic.power == 1 else (float(format(each**0.5, ".2g")) for each in breaks))


def shown_width_breaks(statistic: Statistic, bound: ContributionBound, unit: SpeedUnit) -> tuple[float, ...]:
    """Return five limits between classes of widths of intervals, in ``unit``.

    The last is the median of ``hatch_limits``, the others are a sixteenth to a half of it.
    """
    limit = float(np.median(hatch_limits(shown_breaks(statistic, bound, unit))))
    return tuple(float(format(limit * float(share), ".3g")) for share in WIDTH_SHARES)


@dataclass(frozen=True, slots=True)
class NumberRead:
    """A number as text for people, without unit; ``low`` and ``high`` are "" where it has no interval."""

    value: str
    low: str
    high: str


def number_in_words(value: float, low: float, high: float, largest: float) -> NumberRead:
    """Return a number and its interval as text, with only the digits that the interval's width allows.

    The ends go outwards. "unknown" where the interval is all that could be (0 to ``largest``), "withheld" for
    NaN.
    """
    if math.isnan(value):
        return NumberRead("withheld", "", "")
    if low <= 0 and high >= largest:
        return NumberRead("unknown", "", "")
    number, *ends = (np.asarray(each) for each in (value, low, high))
    digits, read = int(shown_decimals(*ends)), round_to_interval(number, *ends)
    return NumberRead(*(f"{each:.{digits}f}" for each in read))
