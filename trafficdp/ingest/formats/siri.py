"""SIRI Vehicle Monitoring 1.3 to 2.1, as XML or as JSON (SIRI Lite): any number of deliveries a file.

Specification: CEN/TS 15531-3, and the SIRI schemas. Elements are known by their local names, under any
namespace, prefix or envelope: ``ServiceDelivery/VehicleMonitoringDelivery/VehicleActivity``. A vehicle is its
``OperatorRef`` with its ``VehicleRef``, for a number is one vehicle's within its operator only.
``DriverRef`` names a person: it is never asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trafficdp.arrays import FloatArray
from trafficdp.errors import DataError
from trafficdp.ingest.formats import json_files
from trafficdp.ingest.formats.xml_files import Columns, is_xml, path_of_first, record_columns
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import Records, text_to_numbers, text_to_times
from trafficdp.ingest.vehicle_key import with_operator
from trafficdp.model import SourceDeclaration

if TYPE_CHECKING:
    import pyproj

_ACTIVITY = "VehicleActivity"
_JOURNEY = ("LocationRecordedAtTime", "OperatorRef", "VehicleRef", "Velocity")
"""What is read of a MonitoredVehicleJourney, beside its VehicleLocation."""
_PLACE = ("Longitude", "Latitude", "Coordinates")
_PATHS = tuple(
    tuple(path.split("/"))
    for path in (
        "RecordedAtTime",
        *(f"MonitoredVehicleJourney/{name}" for name in _JOURNEY),
        *(
            f"MonitoredVehicleJourney/VehicleLocation/{name}"
            for name in (*_PLACE, "Coordinates/@srsName", "@srsName")
        ),
    )
)
_DEPTH = 6
_EPSG = re.compile(r"(?:urn:(?:x-)?ogc:def:crs:)?epsg:(?:[\d.]*:)?(\d{4,6})", re.IGNORECASE)

Activity = tuple[object, ...]
"""RecordedAtTime, what _JOURNEY names, what _PLACE names, srsName; None for what is missing."""


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the activities of ``file`` in blocks; speeds are m/s by the specification.

    The time is ``LocationRecordedAtTime``, else ``RecordedAtTime``; the position ``Longitude`` and
    ``Latitude`` in WGS84, else ``Coordinates`` in the projected system of an ``srsName``. A delivery in which
    no vehicle runs has no rows and is accepted.

    Raises DataError for XML that is not well-formed or declares a document type; for JSON as
    ``json_records`` does; with ``refuse_by_rows``, where it has no vehicle monitoring delivery.
    """
    for columns, malformed in _xml(file) if is_xml(file) else _json(file):
        yield _records(columns, source, malformed)


# XML


def _xml(file: InputFile) -> Iterator[tuple[Columns, int]]:
    """Yield the activities of an XML file in blocks, first those of deliveries where the first lies."""
    path = path_of_first(file, "VehicleMonitoringDelivery", _ACTIVITY)
    if not path and file.refuse_by_rows:
        raise _no_delivery(file, "XML of another kind")
    within = path[:-1] if path[-1:] == (_ACTIVITY,) else path
    for columns in record_columns(file, within, _ACTIVITY, _PATHS):
        *read, of_coordinates, of_place = columns
        yield [*read, pc.coalesce(of_coordinates, of_place)], 0


def _no_delivery(file: InputFile, got: str) -> DataError:
    return DataError(
        f"{file.name} holds no vehicle monitoring delivery",
        got=got,
        expected="SIRI with ServiceDelivery/VehicleMonitoringDelivery",
    )


# JSON


def _json(file: InputFile) -> Iterator[tuple[Columns, int]]:
    """Yield the activities of a JSON document, or (.jsonl) of a document or an activity a line."""
    delivered = not file.refuse_by_rows
    for documents, malformed in json_files.json_records(file, ()):
        found = [_activities(document) for document in documents]
        delivered = delivered or any(each is not None for each in found)
        activities = [activity for each in found if each is not None for activity in each]
        rows = [_of_object(activity) for activity in activities if isinstance(activity, dict)]
        none = len(activities) - len(rows) + sum(each is None for each in found)
        # but for the operator and the vehicle, whatever is no text is unreadable
        columns = [
            json_files.identifier_column(values) if place in (2, 3) else json_files.text_column(values)
            for place, values in enumerate(zip(*rows, strict=True) if rows else [()] * 9)
        ]
        yield columns, malformed + none
    if not delivered:
        raise _no_delivery(file, "JSON of another kind")


def _activities(document: dict[str, Any]) -> list[Any] | None:
    """Return the activities of all deliveries of a document, itself if it is one; None of another kind."""
    if "MonitoredVehicleJourney" in document:
        return [document]
    service = document.get("Siri", document)
    service = service.get("ServiceDelivery", service) if isinstance(service, dict) else None
    if not isinstance(service, dict) or "VehicleMonitoringDelivery" not in service:
        return None
    deliveries = [each for each in _listed(service["VehicleMonitoringDelivery"]) if isinstance(each, dict)]
    return [activity for each in deliveries for activity in _listed(each.get("VehicleActivity", []))]


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _of_object(activity: dict[str, Any]) -> Activity:
    journey = activity.get("MonitoredVehicleJourney")
    journey = journey if isinstance(journey, dict) else {}
    place = journey.get("VehicleLocation")
    place = place if isinstance(place, dict) else {}
    return (
        _text(activity.get("RecordedAtTime")),
        *(_text(journey.get(name)) for name in _JOURNEY),
        *(_text(place.get(name)) for name in _PLACE),
        _text(place.get("srsName")),
    )


def _text(value: object) -> object:
    """Return a value that may be wrapped, as in ``{"value": "7"}``, or the first of a list."""
    for _ in range(_DEPTH):
        if isinstance(value, list):
            value = value[0] if value else None
    return json_files.property_value(value)


# Both


def _records(columns: Columns, source: SourceDeclaration, malformed: int) -> Records:
    recorded, located, operator, vehicle, speed, longitude, latitude, coordinates, system = columns
    blank = pc.equal(pc.utf8_trim_whitespace(located), "")
    time = pc.coalesce(pc.if_else(blank, pa.scalar(None, pa.string()), located), recorded)
    times = text_to_times(time, source.time_format, source.time_zone)
    records = Records.from_text(
        vehicle, times, latitude, longitude, speed, nan_is_missing=True, malformed=malformed
    )
    records = with_operator(records, operator)
    projected = np.isnan(records.latitude) & np.isnan(records.longitude)
    if not projected.any() or coordinates.null_count == len(coordinates):
        return records
    latitudes, longitudes = _degrees(coordinates, system)
    return replace(
        records,
        latitude=np.where(projected, latitudes, records.latitude),
        longitude=np.where(projected, longitudes, records.longitude),
    )


def _degrees(coordinates: pa.Array, systems: pa.Array) -> tuple[FloatArray, FloatArray]:
    """Return (latitude, longitude) of coordinates in projected systems, NaN where nobody can say them."""
    pair = pc.extract_regex(coordinates, r"^\s*(?P<x>[^\s,;]+)[\s,;]+(?P<y>[^\s,;]+)\s*$")
    x, y = (text_to_numbers(pc.struct_field(pair, name))[0] for name in ("x", "y"))
    latitude, longitude = np.full(len(x), np.nan), np.full(len(x), np.nan)
    encoded = systems.dictionary_encode()
    place = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    for number, name in enumerate(encoded.dictionary.to_pylist()):
        to_degrees = _from_system(name)
        rows = np.flatnonzero((place == number) & ~np.isnan(x) & ~np.isnan(y))
        if to_degrees is not None and len(rows):
            longitude[rows], latitude[rows] = to_degrees.transform(x[rows], y[rows])
    return np.where(np.isfinite(latitude), latitude, np.nan), np.where(
        np.isfinite(longitude), longitude, np.nan
    )


def _from_system(name: str) -> pyproj.Transformer | None:
    """Return what turns a projected EPSG system into degrees; None for any other.

    In which order degrees are written, a geographic system does not tell.
    """
    import pyproj

    code = _EPSG.fullmatch(name.strip())
    try:
        system = None if code is None else pyproj.CRS.from_epsg(int(code.group(1)))
        if system is None or not system.is_projected:
            return None
        return pyproj.Transformer.from_crs(system, "OGC:CRS84", always_xy=True)
    except pyproj.exceptions.ProjError:
        return None
