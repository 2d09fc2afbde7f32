"""The table of squares gives exactly the cells that asking for each position gives."""

from __future__ import annotations

import h3.api.numpy_int as h3
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.binning import cells as module
from trafficdp.binning.cells import CellTable, boundary_of, cells_of
from trafficdp.errors import DataError, UsageError


def icosahedron() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Corners, middles of the edges, and centres of the faces, as rows (latitude, longitude)."""
    corner = np.array([h3.cell_to_latlng(cell) for cell in h3.get_pentagons(15)])
    lat, lng = np.radians(corner).T
    xyz = np.column_stack([np.cos(lat) * np.cos(lng), np.cos(lat) * np.sin(lng), np.sin(lat)])
    near = xyz @ xyz.T > 0.4
    edges = [(i, j) for i in range(12) for j in range(i) if near[i, j]]
    faces = [(i, j, k) for i, j in edges for k in range(j) if near[i, k] and near[j, k]]
    assert (len(edges), len(faces)) == (30, 20)

    def middle(groups: list[tuple[int, ...]]) -> np.ndarray:
        sums = np.array([xyz[list(group)].sum(axis=0) for group in groups])
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        return np.degrees(np.column_stack([np.arcsin(sums[:, 2]), np.arctan2(sums[:, 1], sums[:, 0])]))

    return corner, middle(edges), middle(faces)


CORNERS, EDGES, FACES = icosahedron()


def assert_table_equals_cells(
    lat: float, lng: float, resolution: int, spread: float, seed: int, n: int = 4000
) -> CellTable:
    """Compare around one place: at random, and close to the borders of the cells found there."""
    random = np.random.default_rng(seed)
    south, north = max(lat - spread, -90.0), min(lat + spread, 90.0)
    west, east = max(lng - spread, -180.0), min(lng + spread, 180.0)
    some_lat, some_lng = random.uniform(south, north, n), random.uniform(west, east, n)
    border, _ = boundary_of(np.unique(cells_of(some_lat, some_lng, resolution))[:2000])
    border_lng, border_lat = border.T
    along = random.uniform(0, 1, len(border))
    next_vertex = np.roll(np.arange(len(along)), -1)
    away = 10.0 ** random.uniform(-12, -3, (2, len(along))) * random.choice([-1, 1], (2, len(along)))
    near_lat = border_lat * along + border_lat[next_vertex] * (1 - along) + away[0]
    near_lng = border_lng * along + border_lng[next_vertex] * (1 - along) + away[1]
    all_lat = np.clip(np.concatenate([some_lat, near_lat, border_lat, [lat]]), south, north)
    all_lng = np.clip(np.concatenate([some_lng, near_lng, border_lng, [lng]]), west, east)
    table = CellTable((west, south, east, north), resolution)
    expected = cells_of(all_lat, all_lng, resolution)
    for _ in range(2):  # the second time from what it remembers
        np.testing.assert_array_equal(table.cells_of(all_lat, all_lng), expected)
    return table


def squares_in_one_cell(table: CellTable) -> int:
    return int(np.count_nonzero(table._cell_of_square > 1))


@pytest.fixture(autouse=True)
def _look_at_every_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTHWHILE", 1)


@pytest.mark.parametrize("resolution", range(5, 10))
def test_cities_get_the_cells_they_would_get_one_by_one(resolution: int) -> None:
    spread = 10 * 7 ** (-resolution / 2) * 15
    for seed, (lat, lng) in enumerate([(30.27, -97.74), (12.97, 77.59), (-33.9, 18.4), (64.1, -21.9)]):
        table = assert_table_equals_cells(lat, lng, resolution, min(spread, 1.0), seed)
        assert squares_in_one_cell(table) > 100


@pytest.mark.parametrize("resolution", range(5, 10))
@pytest.mark.parametrize("kind", ["corners", "edges", "faces"])
def test_places_where_the_icosahedron_bends_are_exact(resolution: int, kind: str) -> None:
    places = {"corners": CORNERS, "edges": EDGES, "faces": FACES}[kind]
    for seed, (lat, lng) in enumerate(places):
        assert_table_equals_cells(lat, lng, resolution, 30 * 7 ** (-resolution / 2), seed, n=1500)


@pytest.mark.parametrize("resolution", [7, 9])
def test_positions_beside_the_centre_of_a_face_are_exact(resolution: int) -> None:
    # there the libraries round the most
    random = np.random.default_rng(1)
    for lat, lng in FACES:
        away = 10.0 ** random.uniform(-14, -4, (2, 3000)) * random.choice([-1, 1], (2, 3000))
        some_lat, some_lng = lat + away[0], lng + away[1]
        table = CellTable((lng - 0.01, lat - 0.01, lng + 0.01, lat + 0.01), resolution)
        np.testing.assert_array_equal(
            table.cells_of(some_lat, some_lng), cells_of(some_lat, some_lng, resolution)
        )


@pytest.mark.parametrize("resolution", [5, 7])
@pytest.mark.parametrize(
    ("lat", "lng"),
    [(79.99, 5), (-79.99, 5), (80.0, 5), (89.9, 5), (-89.9, 170), (10, 179.95), (10, -179.95), (10, 180)],
)
def test_poles_and_antimeridian_are_exact(lat: float, lng: float, resolution: int) -> None:
    assert_table_equals_cells(lat, lng, resolution, 0.2, 1)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    lat=st.floats(-85, 85),
    lng=st.floats(-180, 180),
    resolution=st.integers(0, 15),
    spread=st.sampled_from([0.001, 0.05, 0.5, 5.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_place_is_exact(lat: float, lng: float, resolution: int, spread: float, seed: int) -> None:
    module._WORTHWHILE, before = 1, module._WORTHWHILE
    try:
        assert_table_equals_cells(lat, lng, resolution, spread, seed, n=500)
    finally:
        module._WORTHWHILE = before


def test_positions_outside_the_box_are_served_too() -> None:
    random = np.random.default_rng(2)
    lat, lng = random.uniform(-90, 90, 5000), random.uniform(-180, 180, 5000)
    lat[:2500], lng[:2500] = random.uniform(30, 31, 2500), random.uniform(-98, -97, 2500)
    table = CellTable((-98, 30, -97, 31), 7)
    np.testing.assert_array_equal(table.cells_of(lat, lng), cells_of(lat, lng, 7))
    assert squares_in_one_cell(table) > 0


@pytest.mark.parametrize("bounds", [(-180, -90, 180, 90), (0, 85, 10, 90), (5, 5, 5, 5), (179.95, 0, 180, 1)])
def test_boxes_without_use_for_squares_still_serve(bounds: tuple[float, float, float, float]) -> None:
    lat, lng = np.array([86.0, 0.0, 5.0]), np.array([5.0, 179.99, 5.0])
    table = CellTable(bounds, 9)
    assert squares_in_one_cell(table) == 0
    np.testing.assert_array_equal(table.cells_of(lat, lng), cells_of(lat, lng, 9))


def test_rare_squares_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTHWHILE", 3)
    table = CellTable((-98, 30, -97, 31), 7)
    table.cells_of(np.array([30.5, 30.5]), np.array([-97.5, -97.5]))
    assert squares_in_one_cell(table) == 0
    table.cells_of(np.array([30.5] * 3), np.array([-97.5] * 3))
    assert np.count_nonzero(table._cell_of_square) == 1


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 91.0])
def test_positions_off_the_globe_are_refused(wrong: float) -> None:
    table = CellTable((-98, 30, -97, 31), 7)
    with pytest.raises(DataError, match="1 of 2"):
        table.cells_of(np.array([30.5, wrong]), np.array([-97.5, -97.5]))
    with pytest.raises(UsageError):
        table.cells_of(np.zeros(2), np.zeros(3))


def test_unknown_resolutions_are_refused() -> None:
    with pytest.raises(UsageError):
        CellTable((-98, 30, -97, 31), 16)


def test_a_table_of_no_use_is_given_up_and_stays_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WORTHWHILE", 3)
    monkeypatch.setattr(module, "_TRIAL", 1000)
    random = np.random.default_rng(3)
    lat, lng = random.uniform(30, 31, 3000), random.uniform(-98, -97, 3000)
    table = CellTable((-98, 30, -97, 31), 9)
    for _ in range(2):
        np.testing.assert_array_equal(table.cells_of(lat, lng), cells_of(lat, lng, 9))
        assert len(table._cell_of_square) == 0
