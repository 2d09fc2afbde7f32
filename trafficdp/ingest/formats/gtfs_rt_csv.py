"""GTFS-Realtime VehiclePositions flattened to CSV, as agencies archive them.

Columns bear the dotted paths of the message: ``vehicle.position.latitude``, ``vehicle.timestamp`` (POSIX
seconds), ``vehicle.position.speed`` (m/s), ``vehicle.vehicle.license_plate`` and ``.id``, ``id`` of the
entity. Archives differ in the columns they leave out, and some have an unnamed first one.
"""

from __future__ import annotations

from collections.abc import Iterator

from trafficdp.ingest.formats.csv import read_coalesced
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.records import Records
from trafficdp.model import SourceDeclaration

COLUMNS = {
    "vehicle": ("vehicle.vehicle.license_plate", "vehicle.vehicle.id", "id"),
    "time": ("vehicle.timestamp", "header.timestamp"),
    "latitude": ("vehicle.position.latitude",),
    "longitude": ("vehicle.position.longitude",),
    "speed": ("vehicle.position.speed",),
}


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks. ``source.columns`` may replace any of the names.

    Times are POSIX seconds unless the source declares another format than the default.
    Raises DataError when columns are missing or the file has no rows.
    """
    columns = {ours: source.names_of(ours, *names) for ours, names in COLUMNS.items()}
    time_format = "epoch_s" if source.time_format == "iso8601" else source.time_format
    return read_coalesced(file, source, columns, time_format)
