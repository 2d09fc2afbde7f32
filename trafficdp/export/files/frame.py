"""The published table with the shapes of its places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.binning.places import shapes_of
from trafficdp.privacy.release import Release, published_frame

CRS = "EPSG:4326"
"""Longitude first, as in OGC:CRS84: geopandas keeps x = longitude for both."""


def unique_polygons(release: Release) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int64]]:
    """Return the polygon of every different cell, shape (C,), and for every bin which it is, shape (G,).

    Polygons are in degrees, longitude first, counter-clockwise, cut at the antimeridian.
    """
    cells, position = np.unique(release.every_bin.cell, return_inverse=True)
    return np.asarray(shapes_of(cells, release.grid.zones), dtype=object), position.astype(np.int64)


def bounding_box(polygons: Sequence[BaseGeometry] | npt.NDArray[np.object_]) -> list[float]:
    """Return [west, south, east, north] of the narrowest box; west > east across the antimeridian.

    The box leaves out the widest gap between the shapes on the circle of longitudes.
    """
    boxes = shapely.bounds(shapely.get_parts(np.asarray(polygons, dtype=object)))
    order = np.argsort(boxes[:, 0], kind="stable")
    west, east = boxes[order, 0], np.maximum.accumulate(boxes[order, 2])
    gaps = np.append(west[1:] - east[:-1], west[0] + 360.0 - east[-1])
    # on a tie the plain box, whose gap is the last
    widest = len(gaps) - 1 - int(np.argmax(gaps[::-1]))
    south, north = float(boxes[:, 1].min()), float(boxes[:, 3].max())
    if widest == len(gaps) - 1 or float(gaps[widest]) <= 0:
        return [float(west[0]), south, float(east[-1]), north]
    return [float(west[widest + 1]), south, float(east[widest]), north]


def to_geodataframe(release: Release) -> Any:  # noqa: ANN401 - geopandas carries no types
    """Return a geopandas.GeoDataFrame: the published columns and ``geometry``, one row a bin.

    Rows and columns are those of ``published_frame``; the CRS is WGS84 with longitude first.
    """
    # it takes longer to import than most commands to run
    import geopandas

    polygons, position = unique_polygons(release)
    return geopandas.GeoDataFrame(published_frame(release), geometry=polygons[position], crs=CRS)
