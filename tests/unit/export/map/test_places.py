from __future__ import annotations

import numpy as np
import pytest
import shapely

from trafficdp.export.files.tables import unique_polygons
from trafficdp.export.map.drawing import Drawing, centres_of


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
