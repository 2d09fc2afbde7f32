"""Where the hexagons lie in a drawing: their middles, and how much room there is around them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely

from trafficdp.export.map.drawing import Drawing

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Centres:
    """Middle of every cell in drawing units, shape (C,), and the radius of a circle that fits into it."""

    x: FloatArray
    y: FloatArray
    radius: FloatArray


def centres_of(drawing: Drawing, polygons: npt.NDArray[np.object_], *, hexagons: bool = True) -> Centres:
    """Return the middles of ``polygons`` (shape (C,)); of one that is cut, that of its larger part.

    The middle of what is no hexagon is that of its largest circle.
    """
    parts, owner = shapely.get_parts(polygons, return_index=True)
    order = np.lexsort((-shapely.area(parts), owner))
    largest = order[np.unique(owner[order], return_index=True)[1]]
    if not hexagons:
        flat = drawing.flat(parts[largest])
        radii = shapely.maximum_inscribed_circle(flat)
        ends = shapely.get_coordinates(radii).reshape(-1, 2, 2)
        return Centres(ends[:, 0, 0], ends[:, 0, 1], shapely.length(radii))
    x, y = drawing.placed(shapely.get_coordinates(shapely.centroid(parts[largest]))).T
    area = shapely.area(parts[largest]) * drawing.squeeze * drawing.units_per_degree**2
    # the inscribed circle of a hexagon of area A has radius sqrt(A / (2 sqrt 3)); 0.95 for those askew
    return Centres(x, y, 0.95 * np.sqrt(area / (2 * math.sqrt(3))))
