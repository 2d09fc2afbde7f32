"""A position lies in the first zone that holds it, or in none."""

import numpy as np
import pytest
import shapely

from trafficdp.binning.cells import ZoneTable, cells_of, places_of, shapes_of
from trafficdp.errors import DataError, UsageError
from trafficdp.model import NOWHERE, Grid, Zones

# a square with a lake, an island in that lake, a zone of two parts, and a neighbour with a border in common
OUTER = shapely.box(0, 0, 4, 4).difference(shapely.box(1, 1, 3, 3))
ISLAND = shapely.box(1.5, 1.5, 2.5, 2.5)
TWO = shapely.MultiPolygon([shapely.box(4, 0, 6, 2), shapely.box(8, 0, 9, 9)])
WEDGE = shapely.Polygon([(4, 2), (6, 2), (4, 4)])
ZONES = Zones("districts.gpkg", "0" * 64, ("Outer", "Island", "Two", "Wedge"), (OUTER, ISLAND, TWO, WEDGE))


def by_hand(latitude, longitude):
    point = shapely.Point(longitude, latitude)
    return next((n for n, shape in enumerate(ZONES.shapes, start=1) if shape.intersects(point)), NOWHERE)


def test_every_position_gets_the_first_zone_that_holds_it():
    source = np.random.default_rng(7)
    # many of these are on borders and corners
    positions = [*source.uniform(-1, 10, (3_000, 2)), *source.integers(-1, 20, (1_000, 2)) / 2]
    longitude, latitude = np.array(positions, dtype=np.float64).T
    expected = [by_hand(*each) for each in zip(latitude, longitude, strict=True)]
    found = ZoneTable(ZONES).cells_of(latitude, longitude)
    assert found.dtype == np.uint64
    assert found.tolist() == expected
    assert set(expected) == {0, 1, 2, 3, 4}
    assert len(ZoneTable(ZONES).cells_of(latitude[:0], longitude[:0])) == 0


def test_positions_off_the_globe_are_refused():
    with pytest.raises(DataError, match="not on the globe"):
        ZoneTable(ZONES).cells_of(np.array([91.0]), np.array([0.0]))


def test_shapes_are_those_of_the_numbers_and_of_hexagons_without_zones():
    assert shapes_of(np.array([4, 1], dtype=np.uint64), ZONES).tolist() == [WEDGE, OUTER]
    cell = cells_of(np.array([2.0]), np.array([2.0]), 5)
    assert shapes_of(cell, None)[0].contains(shapely.Point(2, 2))
    for wrong in (0, 5):
        with pytest.raises(DataError, match="numbers of zones; expected 1 to 4"):
            shapes_of(np.array([wrong], dtype=np.uint64), ZONES)


def test_a_grid_has_hexagons_or_zones(any_grid):
    grid = Grid(None, any_grid.slot_kind, any_grid.area, any_grid.period, zones=ZONES)
    assert isinstance(places_of(grid), ZoneTable)
    assert (grid.noun, grid.resolutions, grid.in_words()) == ("zone", (), "4 zones of districts.gpkg")
    assert grid.spelled(np.array([1, 12], dtype=np.uint64)) == ["1", "12"]
    assert grid.read_spelled(["1", "12"]).tolist() == [1, 12]
    assert len({grid.key, any_grid.key, grid.with_resolution(7).key}) == 3
    assert grid.with_resolution(7).zones is None
    with pytest.raises(UsageError, match="this needs hexagons; got a map of zones"):
        _ = grid.hexagon_resolution
    with pytest.raises(UsageError, match="a map of zones has no resolution; got 7"):
        Grid(7, any_grid.slot_kind, any_grid.area, any_grid.period, zones=ZONES)


@pytest.fixture
def any_grid():
    from datetime import date

    from trafficdp.model import Period, SlotKind, StudyArea

    period = Period(date(2026, 3, 3), date(2026, 3, 4), "UTC")
    return Grid(6, SlotKind.WHOLE_PERIOD, StudyArea.from_bbox(-1, -1, 10, 10), period)
