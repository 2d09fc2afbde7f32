from __future__ import annotations

import numpy as np
import pytest
import shapely

from trafficdp.binning.cells import polygons_of
from trafficdp.export.files.frame import unique_polygons
from trafficdp.export.map.drawing import Drawing
from trafficdp.export.map.places import centres_of, place_in_words


@pytest.mark.parametrize("name", ["city", "fiji", "pentagon"])
def test_the_middle_of_a_cell_is_in_it_and_its_circle_too(name, request):
    polygons, _ = unique_polygons(request.getfixturevalue(name))
    drawing = Drawing.of(polygons)
    centres = centres_of(drawing, polygons)
    whole = np.array([polygon.geom_type == "Polygon" for polygon in polygons])
    for place in np.flatnonzero(whole):
        numbers = drawing.paths([polygons[place]])[0]
        corners = corners_of(numbers)
        circle = shapely.Point(centres.x[place], centres.y[place]).buffer(0.8 * centres.radius[place])
        assert shapely.Polygon(corners).contains(circle)
    assert np.all((centres.x > 0) & (centres.x < drawing.width))
    assert np.all((centres.y > 0) & (centres.y < drawing.height))


def corners_of(path):
    start, steps = path[1:-1].split("l")
    points = [np.array(start.split(), dtype=float)]
    for pair in np.array(steps.split(), dtype=float).reshape(-1, 2):
        points.append(points[-1] + pair)
    return points


def test_directions_are_those_of_a_compass(city):
    polygons = np.asarray(polygons_of(np.unique(city.cell)), dtype=object)
    drawing = Drawing.of(polygons)
    x, y, step = drawing.width / 2, drawing.height / 2, drawing.units_per_degree / 111.195
    said = {
        (0, -5): "5.0 km north",
        (5, -5): "7.1 km north-east",
        (5, 0): "5.0 km east",
        (5, 5): "7.1 km south-east",
        (0, 5): "5.0 km south",
        (-5, 5): "7.1 km south-west",
        (-5, 0): "5.0 km west",
        (-20, -20): "28 km north-west",
        (0.1, 0.1): "in the middle",
    }
    for (east, south), words in said.items():
        assert place_in_words(drawing, x + east * step, y + south * step, 0.5 * step) == words
