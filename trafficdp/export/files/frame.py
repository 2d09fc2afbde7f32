"""The published table with the shapes of its places."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.binning.places import shapes_of
from trafficdp.privacy.release import Release, published_frame

CRS = "EPSG:4326"
"""Longitude first, as in OGC:CRS84: geopandas keeps x = longitude for both."""


def unique_polygons(release: Release) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int64]]:
    """Return the polygon of every different cell, shape (C,), and for every bin which it is, shape (G,).

    Polygons are in degrees, longitude first, counter-clockwise, cut at the antimeridian.
    """
    cells, position = np.unique(release.cell, return_inverse=True)
    return np.asarray(shapes_of(cells, release.grid.zones), dtype=object), position.astype(np.int64)


def to_geodataframe(release: Release) -> Any:  # noqa: ANN401 - geopandas carries no types
    """Return a geopandas.GeoDataFrame: the published columns and ``geometry``, one row a bin.

    Rows and columns are those of ``published_frame``; the CRS is WGS84 with longitude first.
    """
    # it takes longer to import than most commands to run
    import geopandas

    polygons, position = unique_polygons(release)
    return geopandas.GeoDataFrame(published_frame(release), geometry=polygons[position], crs=CRS)
