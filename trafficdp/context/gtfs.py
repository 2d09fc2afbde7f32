"""Static GTFS (gtfs.org): the ways of shapes.txt and the stops of stops.txt, from a .zip or a folder."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import shapely

from trafficdp.context.simplify import Names, Shapes
from trafficdp.errors import ConfigError
from trafficdp.model import ContextKind

if TYPE_CHECKING:
    import pandas as pd

_WAYS = ("shape_id", "shape_pt_sequence", "shape_pt_lon", "shape_pt_lat")
_STOPS = ("stop_name", "stop_lon", "stop_lat")


def is_gtfs(path: Path) -> bool:
    """Return whether ``path`` is meant as static GTFS: a folder, or a .zip with stops.txt."""
    if path.is_dir():
        return True
    return zipfile.is_zipfile(path) and "stops.txt" in zipfile.ZipFile(path).namelist()


def read_gtfs(path: Path, kind: ContextKind) -> tuple[Shapes, Names, str]:
    """Return stops with their names and (kind TRANSIT) the ways of vehicles without, and a SHA-256.

    Positions are in degrees, longitude first. Raises ConfigError where stops.txt is missing or is none.
    """
    files = {name: _content(path, name) for name in ("shapes.txt", "stops.txt")}
    stops = _table(files["stops.txt"], path, "stops.txt", _STOPS).dropna()
    shapes: list[Shapes] = [np.asarray(shapely.points(stops["stop_lon"], stops["stop_lat"]), dtype=object)]
    names = [stops["stop_name"].astype(str).str.strip().str[:60].to_numpy(dtype=object)]
    if kind is ContextKind.TRANSIT and files["shapes.txt"]:
        ways = _table(files["shapes.txt"], path, "shapes.txt", _WAYS).dropna()
        ways = ways.sort_values(["shape_id", "shape_pt_sequence"])
        ways = ways[ways.groupby("shape_id")["shape_id"].transform("size") > 1]
        number = ways.groupby("shape_id", sort=False).ngroup().to_numpy()
        if len(ways):
            lines = shapely.linestrings(ways[["shape_pt_lon", "shape_pt_lat"]].to_numpy(), indices=number)
            # lines that run both ways, or share a street, are drawn once
            shapes.append(shapely.get_parts(shapely.union_all(lines)))
            names.append(np.full(len(shapes[1]), "", dtype=object))
    digest = hashlib.sha256(b"\0".join(files[name] for name in sorted(files))).hexdigest()
    return np.concatenate(shapes), np.concatenate(names), digest


def _content(path: Path, name: str) -> bytes:
    if path.is_dir():
        return (path / name).read_bytes() if (path / name).is_file() else b""
    with zipfile.ZipFile(path) as archive:
        return archive.read(name) if name in archive.namelist() else b""


def _table(content: bytes, path: Path, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd

    try:
        table = pd.read_csv(
            io.BytesIO(content), dtype={"stop_name": str, "shape_id": str}, encoding="utf-8-sig"
        )
        return table[list(columns)]
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"the context layer {path.name} is not static GTFS",
            got=f"a file {name} without what it should have" if content else f"no {name}",
            expected=f"{name} with the columns {', '.join(columns)}",
        ) from error
