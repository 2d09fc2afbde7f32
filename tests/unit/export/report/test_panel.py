from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.export.report.page import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, axis_end, panel

NAN = np.nan
NUMBERS = (
    np.array([20.0, NAN, 30.0, 40.0]),
    np.array([10.0, NAN, 25.0, 40.0]),
    np.array([30.0, NAN, 35.0, 40.0]),
)
LABELS = ["00:00", "06:00", "12:00", "18:00"]


def test_a_gap_is_a_gap():
    drawn = panel(LABELS, NUMBERS, 40)
    assert len(drawn.dots) == 3
    assert drawn.band.count("M") == 3
    assert drawn.line.count("M") == 2
    assert drawn.line.count("L") == 1


def test_the_band_reaches_from_low_to_high_on_the_axis():
    drawn = panel(LABELS, NUMBERS, 40)
    inner = HEIGHT - TOP - BOTTOM
    top, bottom = map(float, re.match(r"M\S+ (\S+?)h\S+?V(\S+?)h", drawn.band).groups())
    assert bottom - top == pytest.approx(20 / 40 * inner, abs=0.11)
    assert [tick.text for tick in drawn.rows] == ["0", "20", "40"]
    assert (drawn.rows[0].at, drawn.rows[-1].at) == (HEIGHT - BOTTOM, TOP)


@given(st.integers(1, 48), st.integers(1, 24))
def test_labels_never_run_into_one_another(slots, letters):
    labels = ["x" * letters] * slots
    one = np.ones(slots)
    drawn = panel(labels, (one, one, one), 2)
    apart = (WIDTH - LEFT - RIGHT) / len(drawn.columns)
    assert drawn.columns
    assert len(drawn.columns) == 1 or apart >= 6 * letters


@given(st.floats(0.01, 1e5))
def test_an_axis_ends_soon_after_the_largest_number(largest):
    assert largest <= axis_end(largest) * (1 + 1e-12)
    assert axis_end(largest) <= 2.01 * largest
