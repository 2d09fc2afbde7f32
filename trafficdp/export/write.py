"""A release's files in a folder, and one of them wherever the user wants it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from trafficdp._durable import disk_errors, replace_file, require_folder_of
from trafficdp.errors import UsageError, one_of
from trafficdp.export.files import catalogue, tables
from trafficdp.export.files.gis_formats import flatgeobuf_bytes, gpkg_bytes, pmtiles_bytes, shapefile_bytes
from trafficdp.export.files.manifest import build_manifest
from trafficdp.export.map.html_map import html_bytes
from trafficdp.model import NeighbouringRelation
from trafficdp.privacy.estimate import NOISE_COLUMNS
from trafficdp.privacy.release import Release

MANIFEST = "manifest.json"
LIVE = "live.geojson"
Rendered = tuple[str, str, Callable[[Release], bytes]]
"""A file: its name, its format, and what makes its bytes."""
_RENDER: Mapping[str, Callable[[Release], bytes]] = {
    "geojson": tables.geojson_bytes,
    "csv": tables.csv_bytes,
    "geoparquet": tables.geoparquet_bytes,
    "gpkg": gpkg_bytes,
    "flatgeobuf": flatgeobuf_bytes,
    "pmtiles": pmtiles_bytes,
    "shapefile": shapefile_bytes,
    "html": html_bytes,
    "mechanism": tables.mechanism_bytes,
    "registry": catalogue.registry_bytes,
}
FORMATS = tuple(_RENDER)
"""What ``export`` can write."""
GUARANTEED = "guaranteed"
"""What reviewers may have beside those, of a map of which nothing is public: ``release.recomputation``."""
_ENDINGS = {
    "geojson": "geojson",
    "json": "geojson",
    "csv": "csv",
    "parquet": "geoparquet",
    "gpkg": "gpkg",
    "fgb": "flatgeobuf",
    "pmtiles": "pmtiles",
    "zip": "shapefile",
    "html": "html",
    "yaml": "registry",
    "yml": "registry",
}
"""What a file is whose format nobody names."""
MECHANISM = "mechanism.parquet"
MEASUREMENTS = "measurements.parquet"
"""The same where nothing about a vehicle is public: noisy answers, from which every number follows."""
MOST_BINS_OF_TEXT = 1_000_000
"""A larger map is written as tables alone."""
_OF_TEXT = ("geojson", "csv", "html")
_FILES = {
    "map.geojson": "geojson",
    "cells.csv": "csv",
    "cells.parquet": "geoparquet",
    "map.html": "html",
    MECHANISM: "mechanism",
}


def write_release(release: Release, folder: Path) -> dict[str, catalogue.FileFacts]:
    """Write the files of a release into ``folder``, which must exist and be empty; return their facts.

    They are map.geojson, cells.csv, cells.parquet, map.html, mechanism.parquet (or MEASUREMENTS), what
    portals read of them (DATAPACKAGE, DATASET), and the manifest, which lists the SHA-256 of all others. A
    map of more than MOST_BINS_OF_TEXT bins gets only the tables in Parquet and the manifest. Every file is
    synced, the manifest last. The same release gives the same bytes.

    Raises UsageError for a missing or non-empty folder, DataError for an incomplete disclosure,
    StoreFullError or StoreReadOnlyError for a disk that does not take the files.
    """
    with disk_errors(folder / MANIFEST):
        present = sorted(entry.name for entry in folder.iterdir())
    if present:
        raise UsageError(
            "the folder of a release is not empty", got=f"{len(present)} entries", expected="an empty folder"
        )
    hidden = release.disclosure.unit.neighbouring_relation == NeighbouringRelation.ADD_OR_REMOVE_USER
    wanted = [
        (MEASUREMENTS if hidden and name == MECHANISM else name, kind, _RENDER[kind])
        for name, kind in _FILES.items()
        if kind not in _OF_TEXT or release.bins <= MOST_BINS_OF_TEXT
    ]
    return _write_files(release, folder, wanted)


def write_live(release: Release, folder: Path, every_seconds: int) -> dict[str, catalogue.FileFacts]:
    """Write the newest publication of a stream: cells.parquet, map.html, live.geojson, mechanism.parquet,
    what portals read of them, and manifest.json.

    Each file replaces its predecessor whole, the manifest last. The page asks for live.geojson beside it
    every ``every_seconds``. Raises as ``write_release``, but the folder may hold earlier ones.
    """
    wanted: list[Rendered] = [
        ("cells.parquet", "geoparquet", tables.geoparquet_bytes),
        ("map.html", "html", partial(html_bytes, live_seconds=every_seconds)),
        (LIVE, "geojson", tables.geojson_bytes),
        (MECHANISM, "mechanism", tables.mechanism_bytes),
    ]
    return _write_files(release, folder, wanted)


def export(release: Release, format: str, path: Path) -> None:
    """Write ``release`` to ``path`` as one of FORMATS; an existing file is replaced, whole or not at all.

    Raises UsageError for an unknown format, a missing folder or a target that is not a file, and
    StoreFullError or StoreReadOnlyError for a disk that does not take it.
    """
    render = _RENDER[one_of(FORMATS, format=format)]
    require_folder_of(path)
    replace_file(path, render(release))


def format_of(path: Path) -> str:
    """Return which of FORMATS a file's name means; raise UsageError where it means none."""
    ending = path.suffix.lower().removeprefix(".")
    if ending not in _ENDINGS:
        raise UsageError(
            "the file's name does not say its format",
            got=path.name,
            expected="one that ends in ." + ", .".join(_ENDINGS),
            todo="name it so, or add --to FORMAT",
        )
    return _ENDINGS[ending]


def _write_files(
    release: Release, folder: Path, wanted: Iterable[Rendered]
) -> dict[str, catalogue.FileFacts]:
    """Write files, given by name, format and what makes their bytes, what portals read, then the manifest."""
    facts: dict[str, catalogue.FileFacts] = {}
    for name, kind, render in wanted:
        content = render(release)
        replace_file(folder / name, content)
        facts[name] = _facts(name, content, _columns(release, kind))
    described = tuple(facts.values())
    for name, describe in (
        (catalogue.DATAPACKAGE, catalogue.data_package),
        (catalogue.DATASET, catalogue.dataset),
    ):
        content = catalogue.document_bytes(describe(release.disclosure, described))
        replace_file(folder / name, content)
        facts[name] = _facts(name, content, ())
    manifest = catalogue.document_bytes(build_manifest(release, facts), sort_keys=True)
    replace_file(folder / MANIFEST, manifest)
    return {**facts, MANIFEST: _facts(MANIFEST, manifest, ())}


def _facts(name: str, content: bytes, columns: tuple[catalogue.ColumnFacts, ...]) -> catalogue.FileFacts:
    return catalogue.FileFacts(name, hashlib.sha256(content).hexdigest(), len(content), columns)


def _columns(release: Release, kind: str) -> tuple[catalogue.ColumnFacts, ...]:
    """Return the columns of a file, as they are called in it."""
    facts = tables.column_facts(release)
    if kind == "html":
        return ()
    if kind == "mechanism":
        # those of ``mechanism_frame``, in its order
        columns = [facts["hex_id"], facts["slot"]]
        for statistic in tables.published_statistics(release):
            columns.append(facts[f"{statistic.stem}_status"])
            columns += [
                catalogue.ColumnFacts(
                    f"{statistic.stem}_{name}", NOISE_COLUMNS[name].unit, NOISE_COLUMNS[name].description
                )
                for name in release.estimates[statistic].noise
            ]
        return tuple(columns)
    if kind == "geojson":
        facts["reason"] = catalogue.ColumnFacts(
            "reason", None, "why a bin carries no number, or one not to lean on"
        )
        return tuple(facts[name] for name in tables.geojson_columns(release))
    if kind == "csv":
        return tuple(facts.values())
    zone = release.grid.period.time_zone
    for name in tables.INSTANTS:
        first = facts[name].description.partition(",")[0]
        text = f"{first}, a timestamp in UTC to be shown in {zone}; empty when it recurs"
        facts[name] = catalogue.ColumnFacts(name, None, text)
    geometry = catalogue.ColumnFacts(
        "geometry", "degrees", f"{release.grid.noun} of the cell, WGS84, longitude first"
    )
    return (
        *facts.values(),
        geometry,
        catalogue.ColumnFacts("bbox", "degrees", f"bounding box of the {release.grid.noun}"),
    )
