"""IUDX ITMS records (JSON), in the three shapes in which they are met.

Flat: ``"speed": 12, "location": {"type": "Point", "coordinates": [72.8, 21.2]}``. Dotted keys:
``"location.coordinates": "[72.8, 21.2]"``. NGSI-LD normalised: ``"speed": {"type": "Property", "value":
12}``, times as ``{"@type": "date-time", "@value": ...}``. The vehicle is ``license_plate``, else
``vehicle_id``; the time ``observationDateTime`` with its offset. The unit of ``speed`` is stated nowhere,
so the source must declare it.

A file is an array, ``{"results": [...]}`` as the resource server answers, or (.jsonl) one record a line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trafficdp.ingest.formats.json_records import check_keys, identifier_column, json_records, text_column
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.records import Records, TextColumns
from trafficdp.model import SourceDeclaration

_DEPTH = 4


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the records of ``file``; ``source.columns`` may rename vehicle, time and speed.

    Raises DataError when a document is not JSON, or no record of a judged file has a vehicle, time or place.
    """
    vehicle_keys = source.names_of("vehicle", "license_plate", "vehicle_id")
    time_keys = source.names_of("time", "observationDateTime")
    speed_keys = source.names_of("speed", "speed")
    present = []
    for observations, malformed in json_records(file, ("results",)):
        vehicles = [_property(record, vehicle_keys) for record in observations]
        times = [_property(record, time_keys) for record in observations]
        places = [_coordinates(record) for record in observations]
        present.append(
            {
                " or ".join(vehicle_keys): any(value is not None for value in vehicles),
                time_keys[0]: any(value is not None for value in times),
                "location.coordinates": any(place[0] is not None for place in places),
            }
        )
        yield Records.from_text(
            TextColumns(
                vehicle=identifier_column(vehicles),
                time=text_column(times),
                latitude=text_column([latitude for _, latitude in places]),
                longitude=text_column([longitude for longitude, _ in places]),
                speed=text_column([_property(record, speed_keys) for record in observations]),
            ),
            time_format=source.time_format,
            time_zone=source.time_zone,
            malformed=malformed,
        )
    check_keys(file, present)


def _value(item: object) -> object:
    """Return what an NGSI-LD property holds: the inside of ``value`` and ``@value``."""
    for _ in range(_DEPTH):
        if not isinstance(item, dict):
            break
        if "value" in item:
            item = item["value"]
        elif "@value" in item:
            item = item["@value"]
        else:
            break
    return item


def _property(record: dict[str, Any], keys: tuple[str, ...]) -> object:
    """Return the first of the properties that is there and not blank, in whichever shape."""
    for key in keys:
        for spelling in (key, f"{key}.value"):
            value = _value(record.get(spelling))
            if value is not None and value != "":
                return value
    return None


def _coordinates(record: dict[str, Any]) -> tuple[object, object]:
    """Return (longitude, latitude) of a record, None where it has no point."""
    place = _value(record.get("location"))
    if isinstance(place, str):
        place = _parsed(place)
    if isinstance(place, dict):
        place = place.get("coordinates")
    if place is None:
        for key in ("location.coordinates", "location.value.coordinates"):
            place = _value(record.get(key)) if place is None else place
    if isinstance(place, str):
        place = _parsed(place)
    if isinstance(place, list) and len(place) >= 2:
        return place[0], place[1]
    return None, None


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return [part.strip() for part in text.strip("[]() ").split(",")]
