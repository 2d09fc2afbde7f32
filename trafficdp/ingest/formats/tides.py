"""TIDES 1.0 ``vehicle_locations``: a CSV, or a Frictionless ``datapackage.json`` that names it.

Specification: tides-transit.org, ``vehicle_locations``: ``vehicle_id``, ``event_timestamp``, ``latitude``,
``longitude``, ``speed`` (m/s, may be missing). Missing values are written ``NA``, ``NaN`` or empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from trafficdp.errors import DataError
from trafficdp.ingest.formats.csv import read_coalesced
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.records import Records
from trafficdp.model import SourceDeclaration

COLUMNS = {
    "vehicle": "vehicle_id",
    "time": "event_timestamp",
    "latitude": "latitude",
    "longitude": "longitude",
    "speed": "speed",
}
TABLE = "vehicle_locations"


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of a ``vehicle_locations`` CSV in blocks, or of all that a data package names.

    Raises DataError when columns are missing, the file has no rows, or the package is not one, names no
    vehicle_locations, or names files outside its own folder.
    """
    columns = {ours: source.names_of(ours, name) for ours, name in COLUMNS.items()}
    for table in package_files(file) if file.path.suffix.lower() == ".json" else [file]:
        yield from read_coalesced(table, source, columns, source.time_format)


def package_files(file: InputFile) -> list[InputFile]:
    """Return the vehicle_locations files that the Frictionless package ``file`` names, in its order."""
    try:
        package = json.loads(file.text())
    except (ValueError, RecursionError):
        raise DataError(f"{file.name} is not JSON", expected="a Frictionless data package") from None
    resources = package.get("resources") if isinstance(package, dict) else None
    if not isinstance(resources, list):
        raise DataError(f"{file.name} is not a data package", expected='a list "resources"')
    paths: list[Any] = []
    for resource in resources:
        if isinstance(resource, dict) and _is_vehicle_locations(resource):
            path = resource.get("path")
            paths.extend(path if isinstance(path, list) else [path])
    if not paths:
        raise DataError(f"{file.name} names no {TABLE}", expected="a resource of that name or schema")
    return [InputFile(_inside(file, path), judged=file.judged) for path in paths]


def _is_vehicle_locations(resource: dict[str, Any]) -> bool:
    stem = PurePosixPath(str(resource.get("path", ""))).name.split(".")[0]
    schema = str(resource.get("schema", "")).rsplit("/", 1)[-1]
    return TABLE in (resource.get("name"), stem) or schema.startswith(TABLE)


def _inside(file: InputFile, path: object) -> Path:
    folder = file.path.parent.resolve()
    if isinstance(path, str) and "\x00" not in path and "://" not in path:
        target = (folder / path).resolve()
        if target.is_relative_to(folder):
            return target
    raise DataError(
        f"{file.name} names a file outside its own folder", expected="paths inside the folder of the package"
    )
