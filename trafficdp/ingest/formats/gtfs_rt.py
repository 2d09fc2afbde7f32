"""GTFS-Realtime: a protobuf FeedMessage, one snapshot a file.

Specification: gtfs.org/realtime. proto2: an unset speed reads as 0.0, so presence is asked for first; a
bus without a speedometer is not a bus that stands. Feeds repeat a vehicle until it moves: the same
(vehicle, timestamp) again is the same fix, and is dropped as a repeat here or, across files, in the vault.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from google.transit.gtfs_realtime_pb2 import FeedEntity, FeedHeader

from trafficdp.errors import DataError
from trafficdp.ingest import input_file, times, vehicle_key
from trafficdp.model import SourceDeclaration

_LARGEST_SNAPSHOT = 8 << 20
"""Some 80,000 vehicles. An entity that says nothing takes 2 bytes here and over 100 in memory."""
_HEADER, _ENTITY = 1, 2
"""Fields of a FeedMessage."""
_BYTES = 2
"""The wire type of what says how many bytes it has."""


def read(file: input_file.InputFile, source: SourceDeclaration) -> Iterator[times.Records]:
    """Yield the vehicle positions of the snapshot; speeds are m/s by the specification.

    The vehicle is ``vehicle.license_plate``, else ``vehicle.id``, else the entity's ``id``; the time is
    ``vehicle.timestamp``, else the header's. Where ``columns`` name a field of OPERATOR_FIELDS as the
    operator, the vehicle is its identifier within it. A snapshot in which no vehicle runs has no rows and is
    accepted. Raises DataError when the file is not a FeedMessage or holds other entities only.
    """
    header, entities, malformed = _parts(file)
    running = [(entity, entity.vehicle) for entity in entities if entity.HasField("vehicle")]
    if entities and not running and file.refuse_by_rows:
        raise DataError(
            f"{file.name} holds no vehicle positions",
            got="trip updates or alerts",
            expected="a VehiclePositions feed",
        )
    names = [
        position.vehicle.license_plate.strip() or position.vehicle.id.strip() or entity.id
        for entity, position in running
    ]
    # proto2 gives bytes for what is not UTF-8
    vehicle = [name if isinstance(name, str) else None for name in names]
    positions = [position for _, position in running]
    seconds = [position.timestamp or header.timestamp for position in positions]
    located = [position.HasField("position") for position in positions]
    stated = np.array([p.position.HasField("speed") for p in positions], dtype=np.bool_)
    speed = np.array([p.position.speed for p in positions], dtype=np.float64)
    finite = stated & np.isfinite(speed)
    records = times.Records(
        vehicle=pc.dictionary_encode(pa.array(vehicle, pa.string())),
        times=times.numeric_to_times(pa.array(seconds, pa.uint64()), "epoch_s"),
        latitude=_degrees([p.position.latitude for p in positions], located),
        longitude=_degrees([p.position.longitude for p in positions], located),
        speed=np.where(finite, speed, np.nan),
        speed_unreadable=stated & ~finite,
        no_operator=np.zeros(len(speed), dtype=np.bool_),
        file=np.zeros(len(speed), dtype=np.int32),
        malformed=malformed,
        header_times=sum(not position.timestamp for position in positions) if header.timestamp else 0,
    )
    field = source.columns.get("operator")
    if field is not None:
        operators = [_field(entity, field) for entity, _ in running]
        records = vehicle_key.with_operator(
            records, pa.array(operators, pa.string()), source.operator_separator
        )
    yield records


def _field(entity: FeedEntity, path: str) -> str | None:
    """Return the text of a field by its path, None where it is not given or no text."""
    value: object = entity
    for name in path.split("."):
        value = getattr(value, name)
    # proto2 gives bytes for what is not UTF-8
    return value if isinstance(value, str) and value else None


def _parts(file: input_file.InputFile) -> tuple[FeedHeader, list[FeedEntity], int]:
    """Return the header and the entities of a snapshot, and how many beside these are none.

    A FeedMessage says how long each of its entities is: one that cannot be parsed spoils no other.
    """
    try:
        fields = UnknownFieldSet(Empty.FromString(file.content(_LARGEST_SNAPSHOT)))
        parts = [(each.field_number, each.data) for each in fields if each.wire_type == _BYTES]
        header = FeedHeader.FromString(b"".join(data for number, data in parts if number == _HEADER))
        version = header.gtfs_realtime_version
        complete = isinstance(version, str) and version.startswith(("1", "2"))
    except (DecodeError, UnicodeDecodeError, RecursionError):
        complete = False
    if not complete:
        raise DataError(
            f"{file.name} is not a GTFS-Realtime feed", expected="a protobuf FeedMessage of version 1 or 2"
        )
    entities = [_entity(data) for number, data in parts if number == _ENTITY]
    whole = [entity for entity in entities if entity is not None]
    return header, whole, len(entities) - len(whole)


def _entity(data: bytes) -> FeedEntity | None:
    try:
        entity = FeedEntity.FromString(data)
    except (DecodeError, RecursionError):
        return None
    return entity if entity.IsInitialized() else None


def _degrees(values: list[float], located: list[bool]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    degrees = np.array(values, dtype=np.float64)
    degrees[~np.array(located, dtype=np.bool_) | ~np.isfinite(degrees)] = np.nan
    return degrees
