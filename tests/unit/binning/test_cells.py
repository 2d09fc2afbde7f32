"""Cells: equal to h3-py everywhere, boundaries and polygons too."""

from __future__ import annotations

import sys
from functools import cache

import h3.api.numpy_int as h3
import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.binning import cells as module
from trafficdp.binning.cells import (
    area_km2,
    boundary_of,
    cell_text,
    cells_from_text,
    cells_of,
    centres_of,
    lies_in_one_face,
    parents_of,
    polygons_of,
    reference_cells_of,
)
from trafficdp.errors import DataError, UsageError
from trafficdp.model import resolution_of

RESOLUTIONS = range(16)


def random_positions(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return np.degrees(np.arcsin(random.uniform(-1, 1, n))), random.uniform(-180, 180, n)


def pentagon_positions(resolution: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions at all distances, 1e-9 to 10 degrees, around the 12 pentagons."""
    random = np.random.default_rng(resolution)
    centres = np.array([h3.cell_to_latlng(p) for p in h3.get_pentagons(resolution)]).repeat(each, axis=0)
    offset = random.normal(size=centres.shape) * 10 ** random.uniform(-9, 1, (len(centres), 1))
    lat, lng = (centres + offset).T
    return np.clip(lat, -90, 90), (lng + 180) % 360 - 180


def edge_positions() -> tuple[np.ndarray, np.ndarray]:
    """Positions at and near the poles, and at and near the antimeridian."""
    random = np.random.default_rng(1)
    polar = np.repeat([90.0, -90.0, 89.99, -89.99, 90 - 1e-9], 200)
    around = np.tile(np.concatenate([random.uniform(-180, 180, 196), [180, -180, 0.0, -0.0]]), 5)
    any_latitude = np.concatenate([random.uniform(-90, 90, 600)])
    antimeridian = np.tile([180.0, -180.0, 180 - 1e-9, -180 + 1e-9, 179.99, -179.99], 100)
    return np.concatenate([polar, any_latitude]), np.concatenate([around, antimeridian])


@cache
def polygons_of_interest(resolution: int) -> np.ndarray:
    """The polygons of ``cells_of_interest``."""
    return polygons_of(cells_of_interest(resolution))


@cache
def cells_of_interest(resolution: int) -> np.ndarray:
    """All 12 pentagons with neighbours, cells around the poles and on the antimeridian, random cells."""
    around = list(h3.get_pentagons(resolution))
    around += [h3.latlng_to_cell(lat, 0.0, resolution) for lat in (90, -90, 89.99, -89.99)]
    around += [h3.latlng_to_cell(lat, lng, resolution) for lat in range(-80, 81, 10) for lng in (180, -180)]
    found = [np.asarray(h3.grid_disk(cell, 2), dtype=np.uint64) for cell in around]
    found.append(reference_cells_of(*random_positions(300, resolution), resolution))
    found.append(reference_cells_of(*(each[::8] for each in edge_positions()), resolution))
    return np.unique(np.concatenate(found))


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_cells_equal_h3_py_everywhere(resolution: int) -> None:
    for lat, lng in (random_positions(3000, 7), pentagon_positions(resolution, 200), edge_positions()):
        cells = cells_of(lat, lng, resolution)
        assert cells.dtype == np.uint64
        np.testing.assert_array_equal(cells, reference_cells_of(lat, lng, resolution))


@given(
    lat=st.floats(-90, 90),
    lng=st.floats(-180, 180),
    resolution=st.integers(0, 15),
)
def test_any_position_on_the_globe_has_the_cell_h3_py_gives(lat: float, lng: float, resolution: int) -> None:
    assert cells_of(np.array([lat]), np.array([lng]), resolution)[0] == h3.latlng_to_cell(
        lat, lng, resolution
    )


def test_without_h3ronpy_cells_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lat, lng = random_positions(500, 3)
    expected = cells_of(lat, lng, 9)
    calls = []
    reference = module.reference_cells_of
    monkeypatch.setitem(sys.modules, "h3ronpy.vector", None)
    monkeypatch.setattr(module, "reference_cells_of", lambda *a: calls.append(1) or reference(*a))
    np.testing.assert_array_equal(cells_of(lat, lng, 9), expected)
    assert calls == [1]
    with pytest.raises(DataError):
        cells_of(np.array([91.0]), np.array([0.0]), 9)


@pytest.mark.parametrize(
    ("lat", "lng"),
    [
        (95.1234, 0.0),
        (0.0, 2000.1234),
        (np.nan, 0.0),
        (0.0, np.nan),
        (np.inf, 0.0),
        (0.0, -np.inf),
        (np.nextafter(90, 91), 0.0),
        (0.0, np.nextafter(-180, -181)),
    ],
)
def test_positions_off_the_globe_are_refused_without_showing_them(lat: float, lng: float) -> None:
    with pytest.raises(DataError, match="1 of 3") as caught:
        cells_of(np.array([1.0, lat, 2.0]), np.array([1.0, lng, 2.0]), 7)
    assert "1234" not in str(caught.value)


def test_unequal_shapes_and_unknown_resolutions_are_refused() -> None:
    with pytest.raises(UsageError):
        cells_of(np.zeros(2), np.zeros(3), 7)
    for resolution in (-1, 16):
        with pytest.raises(UsageError, match="resolution"):
            cells_of(np.zeros(2), np.zeros(2), resolution)


def test_no_positions_have_no_cells() -> None:
    assert cells_of(np.empty(0), np.empty(0), 7).shape == (0,)
    assert polygons_of(np.empty(0, dtype=np.uint64)).shape == (0,)
    assert boundary_of(np.empty(0, dtype=np.uint64))[0].shape == (0, 2)


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_boundaries_are_h3_pys_vertex_for_vertex(resolution: int) -> None:
    cells = cells_of_interest(resolution)
    vertices, cell_index = boundary_of(cells)
    for index, cell in enumerate(cells.tolist()):
        ring = tuple((lat, lng) for lng, lat in vertices[cell_index == index].tolist())
        assert ring == h3.cell_to_boundary(cell)


def test_boundaries_of_many_cells_are_those_of_each_and_cannot_be_changed() -> None:
    cells = np.sort(np.asarray(h3.grid_disk(0x89283082803FFFF, 80), dtype=np.uint64))
    assert len(cells) > 1 << 14
    vertices, cell_index = boundary_of(cells)
    for index in (0, (1 << 14) - 1, 1 << 14, len(cells) - 1):
        alone, _ = boundary_of(cells[index : index + 1])
        assert vertices[cell_index == index].tolist() == alone.tolist()
    for each in (vertices, cell_index):
        with pytest.raises(ValueError, match="read-only"):
            each[0] = 0


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_pentagons_have_their_five_or_ten_vertices(resolution: int) -> None:
    pentagons = np.asarray(h3.get_pentagons(resolution), dtype=np.uint64)
    lengths = np.bincount(boundary_of(pentagons)[1])
    assert lengths.tolist() == [10 if resolution % 2 else 5] * 12


@pytest.mark.slow
@pytest.mark.xdist_group("polygons")
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_polygons_are_valid_counter_clockwise_and_on_the_globe(resolution: int) -> None:
    polygons = polygons_of_interest(resolution)
    assert shapely.is_valid(polygons).all()
    assert not shapely.is_empty(polygons).any()
    pieces = shapely.get_parts(polygons)
    assert (shapely.get_type_id(pieces) == shapely.GeometryType.POLYGON).all()
    assert shapely.is_ccw(shapely.get_exterior_ring(pieces)).all()
    west, south, east, north = shapely.bounds(pieces).T
    assert ((west >= -180) & (west < east) & (east <= 180)).all()
    assert ((south >= -90) & (south < north) & (north <= 90)).all()


@pytest.mark.slow
@pytest.mark.xdist_group("polygons")
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_polygons_keep_every_vertex_of_h3_py(resolution: int) -> None:
    cells = cells_of_interest(resolution)
    for cell, polygon in zip(cells.tolist(), polygons_of_interest(resolution), strict=True):
        ring = np.array(h3.cell_to_boundary(cell))[:, ::-1]
        drawn = shapely.get_coordinates(polygon)
        if np.ptp(ring[:, 0]) <= 180:
            np.testing.assert_array_equal(drawn[:-1], ring)
            continue
        for vertex in ring:
            # a vertex within 2e-7 degrees of the antimeridian is put on it, at one end or the other
            away = np.abs(drawn - vertex)
            away[:, 0] = np.minimum(away[:, 0], 360 - away[:, 0])
            assert away.max(axis=1).min() < 2e-7
        new = [v for v in drawn if np.abs(ring - v).max(axis=1).min() > 2e-7]
        assert all(abs(v[0]) == 180 for v in new)


@pytest.mark.slow
@pytest.mark.xdist_group("polygons")
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_every_polygon_holds_its_cells_centre(resolution: int) -> None:
    cells = cells_of_interest(resolution)
    lat, lng = centres_of(cells)
    # 1e-9 degrees: the centre of a polar cell can be the pole itself, on the drawn edge
    away = shapely.distance(polygons_of_interest(resolution), shapely.points(lng, lat))
    assert away.max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("resolution", [0, 1, 2, 3])
def test_polygons_of_all_cells_tile_the_globe(resolution: int) -> None:
    cells = np.unique(np.concatenate([h3.cell_to_children(c, resolution) for c in h3.get_res0_cells()]))
    polygons = polygons_of(cells.astype(np.uint64))
    assert shapely.is_valid(polygons).all()
    # straight in degrees instead of great circles: neighbours agree on their common side all the same,
    # except at the antimeridian, where the cut is on the great circle
    assert shapely.area(polygons).sum() == pytest.approx(360 * 180, rel=2e-3)


def test_a_number_that_is_no_cell_is_refused() -> None:
    wrong = np.array([3], dtype=np.uint64)
    for function in (boundary_of, polygons_of, centres_of):
        with pytest.raises(DataError):
            function(wrong)


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_parents_are_h3_pys(resolution: int) -> None:
    cells = cells_of_interest(resolution)
    assert (resolution_of(cells) == resolution).all()
    for coarser in range(resolution + 1):
        expected = [h3.cell_to_parent(cell, coarser) for cell in cells.tolist()]
        np.testing.assert_array_equal(parents_of(cells, coarser), np.array(expected, dtype=np.uint64))


def test_a_finer_parent_is_refused() -> None:
    with pytest.raises(UsageError, match="finer"):
        parents_of(cells_of(np.zeros(1), np.zeros(1), 7), 8)


def test_text_of_cells_goes_there_and_back() -> None:
    cells = cells_of_interest(8)
    texts = cell_text(cells)
    assert texts == [h3.int_to_str(cell) for cell in cells.tolist()]
    np.testing.assert_array_equal(cells_from_text(texts), cells)


@pytest.mark.parametrize("text", ["", "zz", "3", "-8", "ffffffffffffffff", "1" * 40])
def test_texts_that_are_no_cells_are_refused(text: str) -> None:
    with pytest.raises(DataError):
        cells_from_text([text])


def test_average_areas_are_known() -> None:
    assert area_km2(7) == pytest.approx(5.161, abs=0.001)


def test_only_hexagons_of_one_face_touch_one_face() -> None:
    cells = cells_of_interest(3)
    expected = [len(h3.get_icosahedron_faces(c)) == 1 and not h3.is_pentagon(c) for c in cells.tolist()]
    assert lies_in_one_face(cells).tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_many_positions_keep_their_order_over_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.os, "cpu_count", lambda: 3)
    lat, lng = random_positions(80_001, 11)
    parts = [slice(start, start + 10_000) for start in range(0, 80_001, 10_000)]
    expected = np.concatenate([cells_of(lat[part], lng[part], 8) for part in parts])
    np.testing.assert_array_equal(cells_of(lat, lng, 8), expected)
