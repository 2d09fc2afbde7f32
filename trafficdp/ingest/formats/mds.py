"""MDS 2.0 telemetry (JSON): ``device_id``, ``timestamp`` in integer milliseconds, ``location``.

Specification: Open Mobility Foundation, mobility-data-specification, data-types, "Telemetry" and "GPS
Data": ``location.lat``, ``location.lng`` in degrees, ``location.speed`` in m/s, if available.
"""

from __future__ import annotations

from collections.abc import Iterator

from trafficdp.ingest.formats.json_records import check_keys, identifier_column, json_records, text_column
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.records import Records, TextColumns
from trafficdp.model import SourceDeclaration


def read(file: InputFile, source: SourceDeclaration) -> Iterator[Records]:
    """Yield the telemetry of ``file``: an array, ``{"telemetry": [...]}``, or (.jsonl) one record a line.

    ``source.columns`` may name another key than ``device_id`` for the vehicle. Raises DataError when a
    document is not JSON or no record of a judged file has the keys of telemetry.
    """
    vehicle_key = source.columns.get("vehicle", "device_id")
    present = []
    for telemetry, malformed in json_records(file, ("telemetry",)):
        locations = [r["location"] if isinstance(r.get("location"), dict) else {} for r in telemetry]
        present.append(
            {
                vehicle_key: any(vehicle_key in record for record in telemetry),
                "timestamp": any("timestamp" in record for record in telemetry),
                "location.lat": any("lat" in place for place in locations),
                "location.lng": any("lng" in place for place in locations),
            }
        )
        yield Records.from_text(
            TextColumns(
                vehicle=identifier_column([record.get(vehicle_key) for record in telemetry]),
                time=text_column([record.get("timestamp") for record in telemetry]),
                latitude=text_column([place.get("lat") for place in locations]),
                longitude=text_column([place.get("lng") for place in locations]),
                speed=text_column([place.get("speed") for place in locations]),
            ),
            time_format="epoch_ms",
            time_zone=None,
            malformed=malformed,
        )
    check_keys(file, present)
