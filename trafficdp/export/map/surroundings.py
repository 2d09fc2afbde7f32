"""Study area and public layers as columns of a page: lines and points in 1/100,000 degree (1.1 m)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import shapely

from trafficdp.export.map.drawing import Rings, east_of
from trafficdp.export.map.payload import lines_of_text
from trafficdp.model import ContextKind, ContextLayer, StudyArea

AROUND = {"west": 0.0, "north": 0.0, "units": 100_000, "squeeze": 1, "margin": 0}
"""How the script finds degrees again: x = 100,000 longitude, y = -100,000 latitude."""
Columns = dict[str, tuple[str, npt.ArrayLike]]


@dataclass(frozen=True, slots=True)
class TileServer:
    """Where tiles come from: the address with {z}, {x} and {y}, and its ``host``."""

    url: str
    host: str


def context_columns(context: Sequence[ContextLayer], cut: float) -> Columns:
    """Return the shapes of all layers, in order, and their names. What is west of ``cut`` moves round."""
    shapes = [shape for layer in context for shape in layer.shapes]
    names = (name for layer in context for name in layer.names)
    return {**_columns("context_", shapes, cut), "context_names": lines_of_text(names)}


def area_columns(area: StudyArea, cut: float) -> Columns:
    """Return the edge of the study area, in one piece across the antimeridian."""
    parts = shapely.transform(shapely.get_parts(area.geometry), lambda xy: east_of(xy, cut))
    return _columns("area_", [shapely.boundary(shapely.union_all(parts))], -np.inf)


def sources(context: Sequence[ContextLayer]) -> str:
    """Return who made the layers, each once: what must stand beside the map."""
    return "; ".join(dict.fromkeys(layer.attribution for layer in context))


def tile_server(context: Sequence[ContextLayer]) -> TileServer | None:
    """Return the server of tiles that the page asks, if there is one."""
    layer = next((each for each in context if each.kind is ContextKind.TILES), None)
    return None if layer is None else TileServer(layer.file, urlsplit(layer.file).netloc)


def _columns(prefix: str, shapes: Sequence[shapely.Geometry], cut: float) -> Columns:
    """Return what ``outlines`` of map_data.js reads: every ring, line or point is one of its rings."""
    parts, of_shape = shapely.get_parts(np.asarray(shapes, dtype=object), return_index=True)
    areas = shapely.get_type_id(parts) == shapely.GeometryType.POLYGON
    rings, of_part = shapely.get_rings(parts[areas], return_index=True)
    lines = np.concatenate([rings, parts[~areas]])
    owner = np.concatenate([of_shape[areas][of_part], of_shape[~areas]])
    order = np.argsort(owner, kind="stable")
    positions, of_line = shapely.get_coordinates(lines[order], return_index=True)
    point = np.rint(east_of(positions, cut) * [100_000, -100_000]).astype(np.int64)
    found = Rings(
        a_polygon=np.bincount(owner, minlength=len(shapes)),
        corners=np.bincount(of_line, minlength=len(lines)),
        point=point,
    )
    step = found.steps() if len(point) else point
    return {
        f"{prefix}rings": ("u4", found.a_polygon),
        f"{prefix}corners": ("u4", found.corners),
        f"{prefix}dx": ("i4", step[:, 0]),
        f"{prefix}dy": ("i4", step[:, 1]),
    }
