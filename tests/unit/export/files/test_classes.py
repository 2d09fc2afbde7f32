from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from trafficdp.export.files.classes import (
    CHANCE_BREAKS,
    CHANCE_COLOURS,
    CHANCE_WORDS,
    CHANCES,
    COLOURS,
    HATCHED,
    PLAIN,
    WIDTH_COLOURS,
    class_letters,
    hatch_limits,
    number_in_words,
    shown_breaks,
    shown_largest,
    shown_width_breaks,
)
from trafficdp.export.map.html_map import LOOKS
from trafficdp.model import ContributionBound, SpeedUnit, Statistic

MS, KMH = SpeedUnit.METRES_PER_SECOND, SpeedUnit.KILOMETRES_PER_HOUR
BREAKS = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0)


def bound(upper, unit=MS):
    return ContributionBound(Fraction(upper), Fraction(upper) / 100, unit)


@pytest.mark.parametrize("unit", list(SpeedUnit))
@pytest.mark.parametrize("statistic", list(Statistic))
@pytest.mark.parametrize("upper", [1, 5, 12, 30, 65, 300])
def test_there_are_seven_rising_classes_within_the_range(unit, statistic, upper):
    breaks = shown_breaks(statistic, bound(upper), unit)
    assert len(breaks) == len(COLOURS) - 1
    assert all(low < high for low, high in pairwise(breaks))
    assert breaks[0] > 0
    assert breaks[-1] < shown_largest(statistic, bound(upper), unit)


def test_a_city_in_kilometres_an_hour_has_the_usual_breaks():
    assert shown_breaks(Statistic.MEAN, bound(30), KMH) == BREAKS


def test_a_hexagon_is_hatched_beyond_twice_the_width_of_its_class():
    assert hatch_limits(BREAKS) == (20.0,) * 7
    assert hatch_limits(shown_breaks(Statistic.MEAN, bound(30), MS)) == (4, 4, 4, 6, 6, 8, 8)
    value = np.array([3.0, 3.0, 10.0, 10.0, 20.0, 20.0])
    half = np.array([2.0, 2.01, 3.0, 3.01, 4.0, 4.01])
    released = np.full(6, "released", dtype=object)
    breaks = shown_breaks(Statistic.MEAN, bound(30), MS)
    assert "".join(class_letters(value, value - half, value + half, released, breaks)) == "1b4e6g"


def test_letters_tell_class_hatching_and_what_has_no_class():
    value = np.array([0.0, 10.0, 9.2, 60.0, 35.0, np.nan, 35.0, 0.0, 20.0, 20.0])
    low = np.array([0.0, 5.0, 5.0, 55.0, 10.0, np.nan, 0.0, 0.0, 10.0, 10.0])
    high = np.array([5.0, 15.0, 15.0, 65.0, 60.0, np.nan, 100.0, 0.0, 30.0, 30.01])
    status = np.array(["released"] * 5 + ["withheld", "uninformative", "constant"] + ["released"] * 2)
    assert "".join(class_letters(value, low, high, status.astype(object), BREAKS)) == "0106dwu02c"


@pytest.mark.parametrize("unit", list(SpeedUnit))
def test_a_number_as_it_is_read_lies_in_its_class(unit):
    """Near every edge, whatever the interval: what is written is what is coloured."""
    breaks = shown_breaks(Statistic.MEAN, bound(30), unit)
    edge, off = np.repeat(breaks, 400), np.tile(np.linspace(-1.1, 1.1, 400), len(breaks))
    value = np.round(edge + off, 3)
    told_apart = 0
    for half in (0.004, 0.04, 0.4, 0.9, 4.0):
        low, high = value - half, value + half
        letters = class_letters(value, low, high, np.full(len(value), "released", dtype=object), breaks)
        for one in range(len(value)):
            read = float(number_in_words(value[one], low[one], high[one], 1000).value)
            number = sum(read >= each for each in breaks)
            assert letters[one] in (PLAIN[number], HATCHED[number])
            told_apart += number != sum(value[one] >= each for each in breaks)
    assert told_apart > 50, "rounding moves some numbers over an edge"


@pytest.mark.parametrize("statistic", list(Statistic))
@pytest.mark.parametrize("upper", [1, 30, 300])
def test_widths_have_six_rising_classes_up_to_a_limit_of_hatching(statistic, upper):
    breaks = shown_width_breaks(statistic, bound(upper), MS)
    assert len(breaks) == len(WIDTH_COLOURS) - 1
    assert all(low < high for low, high in pairwise(breaks))
    assert breaks[-1] in hatch_limits(shown_breaks(statistic, bound(upper), MS))


def test_chances_have_three_classes_a_side_and_none_for_what_is_as_likely_not():
    assert len(CHANCES) == len(CHANCE_COLOURS) == 2 * len(CHANCE_BREAKS) + 1
    assert len(CHANCE_WORDS) == len(CHANCE_BREAKS)
    assert CHANCE_BREAKS[0] > 5


def lightness(colour):
    """Relative luminance of sRGB (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [COLOURS, WIDTH_COLOURS, CHANCE_COLOURS[:4], CHANCE_COLOURS[:2:-1]])
def test_classes_can_be_told_apart_in_grey(colours):
    light = [lightness(colour) for colour in colours]
    assert all((high + 0.05) / (low + 0.05) > 1.15 for low, high in pairwise(light))


def test_hatching_dots_and_crosses_stand_out_from_their_colour():
    for letter, look in LOOKS.items():
        if look.ink is not None:
            low, high = sorted([lightness(look.colour), lightness(look.ink)])
            assert (high + 0.05) / (low + 0.05) >= 3, letter
