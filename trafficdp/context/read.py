"""A public layer from its file: whatever GDAL reads of what is local, and static GTFS. Nothing is fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from trafficdp.context.gtfs import is_gtfs, read_gtfs
from trafficdp.context.simplify import Names, Shapes, simplified
from trafficdp.errors import ConfigError
from trafficdp.model import ContextFile, ContextKind, ContextLayer, StudyArea

if TYPE_CHECKING:
    import pyproj

WGS84 = "EPSG:4326"
ENDINGS = (".gpkg", ".geojson", ".json", ".shp", ".fgb", ".osm.pbf", ".zip")
"""Of files that can be read; .zip and a folder are static GTFS."""
_DRIVEN = (
    "motorway", "trunk", "primary", "secondary", "tertiary", "motorway_link", "trunk_link", "primary_link",
    "secondary_link", "tertiary_link", "unclassified", "residential", "living_street",
)  # fmt: skip
_OPENSTREETMAP: Mapping[ContextKind, tuple[tuple[str, str | None], ...]] = {
    ContextKind.ROADS: (("lines", f"highway IN {_DRIVEN}"),),
    ContextKind.WATER: (
        ("lines", "waterway IN ('river', 'canal')"),
        ("multipolygons", "natural = 'water'"),
    ),
    ContextKind.PARK: (("multipolygons", "leisure IN ('park', 'nature_reserve')"),),
    ContextKind.BOUNDARY: (("multipolygons", "boundary = 'administrative'"),),
    ContextKind.PLACE: (
        ("points", "place IN ('city', 'town', 'village', 'suburb', 'quarter', 'neighbourhood')"),
    ),
    ContextKind.TRANSIT: (("points", 'other_tags LIKE \'%"public_transport"=>"station"%\''),),
}
"""What of an OpenStreetMap extract belongs to a kind: tables and conditions, in GDAL's words."""


def read_context(files: Sequence[ContextFile], area: StudyArea) -> tuple[ContextLayer, ...]:
    """Return the layers as the page of ``area`` shows them, without files that have nothing there.

    The same files give the same layers. Raises ConfigError for a file that is not there or cannot be read,
    has no such column, or no coordinate system.
    """
    layers = (_read(file, file.path, area) for file in files)
    return tuple(layer for layer in layers if layer.shapes or layer.kind is ContextKind.TILES)


def check_context(files: Sequence[ContextFile]) -> None:
    """Raise what ``read_context`` would for a file that is not there or has no such column; read no shape."""
    import pyogrio

    for file in files:
        if isinstance(file.path, Path) and _is_tables(file.path):
            with _reading(file.path):
                for table, _ in _wanted(file, file.path):
                    _column(file.path, file.name, pyogrio.read_info(file.path, layer=table))


def _is_tables(path: Path) -> bool:
    """Whether GDAL reads it, and it is not static GTFS; raise ConfigError where nothing does."""
    name = path.name
    if not path.exists():
        raise ConfigError(f"the context layer {name} does not exist", got=str(path), todo="correct file")
    if is_gtfs(path):
        return False
    if not name.lower().endswith(ENDINGS):
        raise ConfigError(f"the context layer {name} cannot be read", expected=", ".join(ENDINGS))
    return True


def _read(file: ContextFile, path: Path | str, area: StudyArea) -> ContextLayer:
    if isinstance(path, str):
        return ContextLayer(
            file.kind, path, hashlib.sha256(path.encode()).hexdigest(), file.attribution, (), ()
        )
    if _is_tables(path):
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        shapes, names = _read_tables(file, path, area)
    else:
        shapes, names, digest = read_gtfs(path, file.kind)
    shapes, names = simplified(shapes, names, area.geometry)
    return ContextLayer(file.kind, path.name, digest, file.attribution, tuple(names), tuple(shapes))


def read_table(path: Path, name: str | None) -> tuple[Shapes, Names]:
    """Return the shapes of the first layer of ``path`` in degrees, and what its column ``name`` calls each.

    All of them in the file's order; what has no shape is None. Raises as ``read_context``.
    """
    import pyogrio

    if not path.exists():
        raise ConfigError(f"the file {path.name} does not exist", got=str(path), todo="correct its name")
    with _reading(path):
        return _read_table(path, name, None, pyogrio.list_layers(path)[0, 0], None)


def _read_tables(file: ContextFile, path: Path, area: StudyArea) -> tuple[Shapes, Names]:
    with _reading(path):
        tables = [_read_table(path, file.name, area, table, where) for table, where in _wanted(file, path)]
    shapes, names = (np.concatenate(each) for each in zip(*tables, strict=True))
    there = ~shapely.is_missing(shapes)
    return shapes[there], names[there]


def _wanted(file: ContextFile, path: Path) -> tuple[tuple[str, str | None], ...]:
    """The tables of ``path`` that are of the kind, with a condition on their rows."""
    import pyogrio

    if path.name.lower().endswith(".osm.pbf"):
        return _OPENSTREETMAP[file.kind]
    return ((pyogrio.list_layers(path)[0, 0], None),)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyogrio

    try:
        yield
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, IndexError) as error:
        raise ConfigError(
            f"{path.name} cannot be read as a map",
            expected="GeoPackage, GeoJSON, Shapefile, FlatGeobuf, an OpenStreetMap extract or static GTFS",
        ) from error


def _read_table(
    path: Path, name: str | None, area: StudyArea | None, table: str, where: str | None
) -> tuple[Shapes, Names]:
    import pyogrio
    import pyproj

    about = pyogrio.read_info(path, layer=table)
    if about["crs"] is None:
        raise ConfigError(
            f"{path.name} does not say in which coordinate system it is",
            todo="write it anew with one, such as EPSG:4326",
        )
    column = _column(path, name, about)
    to_file = pyproj.Transformer.from_crs(WGS84, about["crs"], always_xy=True)
    box = None if area is None else to_file.transform_bounds(*area.geometry.bounds)
    _, _, packed, columns = pyogrio.raw.read(
        path, layer=table, columns=[column] if column else [], bbox=box, where=where, force_2d=True
    )
    shapes = _degrees(shapely.from_wkb(packed), to_file)
    names = np.asarray(columns[0], dtype=object) if column else np.full(len(shapes), None, dtype=object)
    return shapes, np.array([_text(each) for each in names], dtype=object)


def _column(path: Path, name: str | None, about: Mapping[str, Any]) -> str | None:
    """The column of names: ``name``, else that called "name" where there is one; raise ConfigError."""
    known = list(about["fields"])
    column = name or ("name" if "name" in known else None)
    if column is not None and column not in known:
        raise ConfigError(f"{path.name} has no column {column}", expected=", ".join(known) or None)
    return column


def _degrees(shapes: Shapes, to_file: pyproj.Transformer) -> Shapes:
    def moved(positions: Any) -> Any:  # noqa: ANN401 - arrays of positions, shape (n, 2)
        return np.column_stack(to_file.transform(positions[:, 0], positions[:, 1], direction="INVERSE"))

    degrees: Shapes = shapely.transform(shapes, moved)
    return degrees


def _text(value: object) -> str:
    """Return one printable line, at most 60 letters; "" for nothing."""
    text = " ".join(str(value).split()) if value is not None and value == value else ""
    return text[:60] if text.isprintable() else ""
