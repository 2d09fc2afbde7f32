"""Every bin of a declared grid is listed, and no record is needed for that."""

from datetime import date

import numpy as np
import pytest
import shapely

from trafficdp.binning import places
from trafficdp.binning.cells import cells_of, cells_over
from trafficdp.binning.places import declared_bins, declared_slots, meets_selection, slot_facts, slots_of
from trafficdp.errors import UsageError
from trafficdp.model import Grid, Period, Place, Selection, SlotKind, StudyArea

# both changes of the clock lie in it
PERIOD = Period(date(2026, 3, 28), date(2026, 10, 26), "Europe/Vienna")
RING = "[[16,48],[16.6,48],[16.6,48.1],[16.1,48.1],[16.1,48.4],[16,48.4],[16,48]]"
L_SHAPE = f'{{"type": "Polygon", "coordinates": [{RING}]}}'


def grid(area, kind=SlotKind.WHOLE_PERIOD, period=PERIOD, resolution=7, **more):
    return Grid(resolution, kind, area, period, **more)


@pytest.mark.parametrize(
    "area",
    [
        StudyArea.from_bbox(-98.3, 29.9, -97.3, 30.7),
        StudyArea.from_bbox(179.7, -17.2, -179.7, -16.8),
        StudyArea.from_geojson(L_SHAPE, where="here"),
    ],
    ids=["box", "antimeridian", "polygon"],
)
@pytest.mark.parametrize("resolution", [5, 7])
def test_every_position_of_the_area_has_its_hexagon_in_the_list(area, resolution):
    cells, slots = declared_bins(grid(area, resolution=resolution))
    assert np.all(cells[1:] > cells[:-1])
    assert not slots.any()
    rng = np.random.default_rng(1)
    corners = [part.bounds for part in shapely.get_parts(area.geometry)]
    lng = np.concatenate([rng.uniform(west, east, 40_000) for west, _, east, _ in corners])
    lat = np.concatenate([rng.uniform(south, north, 40_000) for _, south, _, north in corners])
    inside = area.contains(lat, lng)
    found = np.unique(cells_of(lat[inside], lng[inside], resolution))
    assert len(found) > 10
    assert np.isin(found, cells).all()
    # those that no position of the area lies in are few: the list is no larger than its border makes it
    assert len(cells) < 2 * len(found) + 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(SlotKind))
def test_every_instant_of_the_period_has_its_slot_in_the_list(kind):
    listed = declared_slots(grid(StudyArea.from_bbox(16, 48, 16.2, 48.2), kind))
    instants = np.random.default_rng(2).integers(*PERIOD.utc_seconds, 30_000) * 1_000_000
    there = np.unique(slots_of(instants, kind, PERIOD.time_zone))
    assert np.isin(there, listed).all()
    assert np.all(np.diff(listed) > 0)
    assert len(slot_facts(listed, kind, PERIOD)) == len(listed)


def test_bins_are_hexagons_times_slots():
    cells, slots = declared_bins(grid(StudyArea.from_bbox(16, 48, 16.2, 48.2), SlotKind.HOUR_OF_DAY))
    assert len(cells) == 24 * len(np.unique(cells))
    order = np.lexsort((slots, cells))
    assert np.array_equal(order, np.arange(len(cells)))


def test_a_grid_that_cannot_be_listed_is_refused():
    with pytest.raises(UsageError, match="too many hexagons"):
        declared_bins(grid(StudyArea.from_bbox(-180, -80, 180, 80), resolution=9))
    far = Place("far", StudyArea.from_bbox(17, 48, 17.1, 48.1))
    with pytest.raises(UsageError, match="meets the conditions"):
        declared_bins(grid(BOX, selection=Selection(places=((far,),))))


def test_far_from_the_equator_a_square_degree_has_fewer_hexagons(monkeypatch):
    north, south = (StudyArea.from_bbox(16, low, 16.4, low + 0.2) for low in (65, -65.2))
    found = [len(declared_bins(grid(area, resolution=8))[0]) for area in (north, south)]
    # a third more than it has, where the equator has more than twice as many
    monkeypatch.setattr(places, "MOST_BINS", max(found) * 4 // 3)
    places._bins.cache_clear()
    assert [len(declared_bins(grid(area, resolution=8))[0]) for area in (north, south)] == found


def test_kept_bins_are_those_of_the_grid_and_cannot_be_changed():
    one, other = grid(BOX), grid(StudyArea.from_bbox(16, 48, 16.1, 48.1))
    cells = [declared_bins(each)[0] for each in (one, other, one)]
    assert len(cells[1]) < len(cells[0])
    np.testing.assert_array_equal(cells[0], cells[2])
    with pytest.raises(ValueError, match="read-only"):
        cells[0][0] = 0


BOX = StudyArea.from_bbox(16, 48, 16.2, 48.2)
WEST = Place("west", StudyArea.from_bbox(15.9, 48, 16.1, 48.2))
SOUTH = Place("south", StudyArea.from_bbox(16, 47.9, 16.2, 48.1))


@pytest.mark.parametrize(
    "selection",
    [
        Selection(places=((WEST,),)),
        Selection(places=((WEST, SOUTH),)),
        Selection(places=((WEST,), (SOUTH,))),
        Selection(cells=tuple(cells_over(shapely.box(16.05, 48.05, 16.07, 48.07), 8).tolist())),
        Selection(cells=tuple(cells_over(shapely.box(16.05, 48.05, 16.07, 48.07), 6).tolist())),
        Selection(cells=tuple(cells_over(shapely.box(16.05, 48.05, 16.07, 48.07), 7).tolist())),
        Selection(hours_of_week=(7, 8, 33), places=((SOUTH,),)),
    ],
)
@pytest.mark.parametrize("kind", [SlotKind.HOUR_OF_DAY, SlotKind.DAY, SlotKind.WHOLE_PERIOD])
def test_every_record_that_meets_the_conditions_has_a_listed_bin(selection, kind):
    """Of records everywhere, at all times; no more is listed than they could fill."""
    places = grid(BOX, kind, selection=selection)
    rng, many = np.random.default_rng(3), 200_000
    east, north = rng.uniform(16, 16.2, many), rng.uniform(48, 48.2, many)
    time = rng.integers(*PERIOD.utc_seconds, many) * 1_000_000
    kept = meets_selection(selection, north, east, time, PERIOD.time_zone)
    cells = cells_of(north[kept], east[kept], 7)
    slots = slots_of(time[kept], kind, PERIOD.time_zone)
    there = set(zip(cells.tolist(), slots.tolist(), strict=True))
    listed = set(zip(*(each.tolist() for each in declared_bins(places)), strict=True))
    assert there <= listed
    # what is listed beside them touches what is left of the area, or has an hour that few records meet
    assert len({cell for cell, _ in listed}) <= 1.6 * len({cell for cell, _ in there}) + 8
    assert {slot for _, slot in listed} == {slot for _, slot in there}
