"""Records kept by place and time, against the plainest arithmetic."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.binning.cells import cells_of
from trafficdp.binning.places import hours_of_week, meets_selection
from trafficdp.model import Place, Selection, StudyArea

ZONES = ("UTC", "Asia/Kolkata", "Europe/Vienna", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe")
BOX = Place("box", StudyArea.from_bbox(16.3, 48.1, 16.4, 48.2))
TRIANGLE = Place(
    "triangle",
    StudyArea.from_geojson(
        '{"type":"Polygon","coordinates":[[[16.4,48.1],[16.6,48.1],[16.4,48.3],[16.4,48.1]]]}', where="t"
    ),
)


def instants(*moments):
    return np.array([int(moment.timestamp()) * 1_000_000 for moment in moments], dtype=np.int64)


@pytest.mark.slow
@given(seconds=st.lists(st.integers(0, 4_000_000_000), min_size=1, max_size=20), zone=st.sampled_from(ZONES))
@settings(max_examples=examples(60))
def test_hours_of_the_week_are_those_of_the_local_clock(seconds, zone):
    found = hours_of_week(np.array(seconds, dtype=np.int64) * 1_000_000, zone)
    for second, hour in zip(seconds, found.tolist(), strict=True):
        local = datetime.fromtimestamp(second, UTC).astimezone(ZoneInfo(zone))
        assert hour == local.weekday() * 24 + local.hour


def test_a_fix_must_meet_every_restriction():
    monday_8 = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
    monday_9 = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    time_us = instants(monday_8, monday_8, monday_8, monday_9)
    latitude = np.array([48.15, 48.15, 48.25, 48.15])
    longitude = np.array([16.35, 16.45, 16.55, 16.35])

    def kept(**restrictions):
        selection = Selection(**restrictions)
        return meets_selection(selection, latitude, longitude, time_us, "Europe/Vienna").tolist()

    assert kept() == [True, True, True, True]
    assert kept(hours_of_week=(8,)) == [True, True, True, False]
    assert kept(hours_of_week=(8, 9)) == [True, True, True, True]
    assert kept(places=((BOX,),)) == [True, False, False, True]
    assert kept(places=((BOX, TRIANGLE),)) == [True, True, False, True]
    assert kept(places=((BOX,), (TRIANGLE,))) == [False, False, False, False]
    assert kept(places=((BOX, TRIANGLE),), hours_of_week=(9,)) == [False, False, False, True]


@pytest.mark.parametrize("resolution", [0, 5, 9])
def test_a_listed_cell_holds_the_fixes_that_h3_puts_into_it(resolution):
    generator = np.random.default_rng(5)
    latitude, longitude = generator.uniform(48.1, 48.3, 400), generator.uniform(16.2, 16.6, 400)
    cells = cells_of(latitude, longitude, resolution)
    wanted = tuple(int(cell) for cell in np.unique(cells)[:3])
    time_us = np.zeros(400, dtype=np.int64)
    found = meets_selection(Selection(cells=wanted), latitude, longitude, time_us, "UTC")
    assert np.array_equal(found, np.isin(cells, np.array(wanted, dtype=np.uint64)))


def test_no_fix_at_all_is_no_fix_kept():
    nothing = np.empty(0)
    selection = Selection((5,), ((BOX,),), (0x871E15B71FFFFFF,))
    assert meets_selection(selection, nothing, nothing, np.empty(0, dtype=np.int64), "UTC").tolist() == []
