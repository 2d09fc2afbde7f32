"""GTFS-Realtime VehiclePositions flattened to CSV, as agencies archive them.

Columns bear the dotted paths of the message: ``vehicle.position.latitude``, ``vehicle.timestamp`` (POSIX
seconds), ``vehicle.position.speed`` (m/s), ``vehicle.vehicle.license_plate`` and ``.id``, ``id`` of the
entity. Archives differ in the columns they leave out, and some have an unnamed first one.
"""

from __future__ import annotations

from collections.abc import Iterator

from trafficdp.ingest.formats.csv import check_columns, coalesce_columns, header, read_columns
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.records import Records, TextColumns
from trafficdp.model import SourceDeclaration

VEHICLE_COLUMNS = ("vehicle.vehicle.license_plate", "vehicle.vehicle.id", "id")
TIME_COLUMNS = ("vehicle.timestamp", "header.timestamp")


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file`` in blocks. ``source.columns`` may replace any of the names.

    Times are POSIX seconds unless the source declares another format than the default.
    Raises DataError when columns are missing or the file has no rows.
    """
    vehicle = _either(source, "vehicle", VEHICLE_COLUMNS)
    time = _either(source, "time", TIME_COLUMNS)
    latitude = source.columns.get("latitude", "vehicle.position.latitude")
    longitude = source.columns.get("longitude", "vehicle.position.longitude")
    speed = source.columns.get("speed", "vehicle.position.speed")
    found = header(file, source.dialect)
    for names in (vehicle, time):
        if not set(names) & set(found):
            check_columns(file, names[:1], found)
    required = [latitude, longitude] if source.missing_speed == "derive" else [latitude, longitude, speed]
    for table, malformed in read_columns(file, required, (*vehicle, *time, speed), source.dialect):
        yield Records.from_text(
            TextColumns(
                vehicle=coalesce_columns(table, vehicle),
                time=coalesce_columns(table, time),
                latitude=coalesce_columns(table, [latitude]),
                longitude=coalesce_columns(table, [longitude]),
                speed=coalesce_columns(table, [speed]),
            ),
            time_format="epoch_s" if source.time_format == "iso8601" else source.time_format,
            time_zone=source.time_zone,
            nan_is_missing=True,
            malformed=malformed,
        )


def _either(source: SourceDeclaration, name: str, defaults: tuple[str, ...]) -> tuple[str, ...]:
    return (source.columns[name],) if name in source.columns else defaults
