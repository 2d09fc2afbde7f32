from __future__ import annotations

import re

import numpy as np
import pytest
import shapely

from trafficdp.binning.cells import polygons_of
from trafficdp.export.map import drawing as drawing_module
from trafficdp.export.map.drawing import Drawing, outlines_shown


def points(path):
    """All corners of a path, absolute."""
    corners = []
    for ring in re.findall(r"M(-?\d+) (-?\d+)l([-\d ]*)z", path):
        x, y = int(ring[0]), int(ring[1])
        corners.append((x, y))
        steps = list(map(int, ring[2].split()))
        for dx, dy in zip(steps[::2], steps[1::2], strict=True):
            x, y = x + dx, y + dy
            corners.append((x, y))
    return np.array(corners)


@pytest.mark.parametrize("name", ["city", "fiji", "pentagon", "globe"])
def test_every_cell_lies_within_the_drawing(name, request):
    polygons = polygons_of(np.unique(request.getfixturevalue(name).cell))
    drawing = Drawing.of(polygons)
    for path in drawing.paths(polygons):
        corners = points(path)
        assert (corners >= 0).all()
        assert (corners <= [drawing.width, drawing.height]).all()


def test_north_is_up_and_east_is_right(city):
    polygons = polygons_of(np.unique(city.cell))
    drawing = Drawing.of(polygons)
    middles = np.array([points(path).mean(axis=0) for path in drawing.paths(polygons)])
    centres = np.array([(shape.centroid.x, shape.centroid.y) for shape in polygons])
    assert np.corrcoef(middles[:, 0], centres[:, 0])[0, 1] > 0.999
    assert np.corrcoef(middles[:, 1], centres[:, 1])[0, 1] < -0.999


def test_cells_across_the_antimeridian_stay_together(fiji):
    polygons = polygons_of(np.unique(fiji.cell))
    drawing = Drawing.of(polygons)
    assert 0.5 < drawing.width / drawing.height < 2
    for path in drawing.paths(polygons):
        assert np.ptp(points(path)[:, 0]) < drawing.width / 3


def test_the_study_area_has_no_seam_at_the_antimeridian(fiji):
    drawing = Drawing.of(polygons_of(np.unique(fiji.cell)))
    assert fiji.grid.area.geometry.geom_type == "MultiPolygon"
    assert drawing.outline(fiji.grid.area.geometry).count("M") == 1


def test_hexagons_are_nearly_regular(city):
    polygons = polygons_of(np.unique(city.cell))
    drawing = Drawing.of(polygons)
    corners = points(drawing.paths(polygons)[0])
    sides = np.hypot(*(corners - np.roll(corners, 1, axis=0)).T)
    assert sides.max() / sides.min() < 1.3


def test_the_scale_bar_is_true(city):
    import h3

    polygons = polygons_of(np.unique(city.cell))
    drawing = Drawing.of(polygons)
    bar = drawing.scale_bar
    one, other = (points(path).mean(axis=0) for path in np.array(drawing.paths(polygons))[[0, -1]])
    centres = [h3.cell_to_latlng(h3.int_to_str(int(cell))) for cell in np.unique(city.cell)[[0, -1]]]
    kilometres = h3.great_circle_distance(*centres, unit="km")
    assert np.hypot(*(one - other)) * bar.kilometres / bar.length == pytest.approx(kilometres, rel=0.02)


def test_a_globe_has_no_scale_bar(globe):
    assert Drawing.of(polygons_of(np.unique(globe.cell))).scale_bar is None


@pytest.mark.parametrize("name", ["city", "fiji", "pentagon", "globe"])
def test_rings_are_the_corners_of_the_paths_and_steps_add_up_to_them(name, request):
    polygons = polygons_of(np.unique(request.getfixturevalue(name).cell))
    drawing = Drawing.of(polygons)
    rings = drawing.rings(polygons)
    drawn = [points(path) for path in drawing.paths(polygons)]
    np.testing.assert_array_equal(rings.point, np.concatenate(drawn))
    assert rings.a_polygon.sum() == len(rings.corners)
    found, first, at, step = [], np.zeros(2, dtype=int), 0, rings.corner_offsets()
    for corners in rings.corners:
        here = first = first + step[at]
        found.append(here)
        for number in range(at + 1, at + corners):
            here = here + step[number]
            found.append(here)
        at += corners
    np.testing.assert_array_equal(found, rings.point)


def districts():
    """Nine districts whose borders are wavy lines of a thousand points, the same from both sides."""
    squares = np.array([shapely.box(x, y, x + 1, y + 1) for x in range(3) for y in range(3)])
    fine = np.array([shapely.segmentize(each, 1 / 256) for each in squares])

    def waved(at):
        x, y = at.T
        return np.column_stack([x + 0.01 * np.sin(20 * y), y + 0.01 * np.sin(20 * x)])

    return shapely.transform(fine, waved)


def test_zones_with_few_corners_are_drawn_as_they_are():
    given = districts()
    assert outlines_shown(given) is given


def test_fine_zones_are_drawn_with_fewer_corners_and_still_touch(monkeypatch):
    monkeypatch.setattr(drawing_module, "MOST_CORNERS", 3_000)
    given = districts()
    shown = outlines_shown(given)
    assert shapely.get_num_coordinates(shown).sum() <= 3_000 < shapely.get_num_coordinates(given).sum()
    assert shapely.coverage_is_valid(shown)
    assert shapely.is_ccw(shapely.get_exterior_ring(shown)).all()
    assert np.all(shapely.hausdorff_distance(shown, given) < 0.01)
    # what cannot be drawn in so few corners is no coarser than a screen shows
    monkeypatch.setattr(drawing_module, "MOST_CORNERS", 10)
    assert np.all(shapely.hausdorff_distance(outlines_shown(given), given) < 0.02)
