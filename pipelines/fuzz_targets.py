"""Everything that reads what others wrote, as functions of bytes: nothing but our own errors may come of any.

A target takes the bytes and a folder of its own. ``seeds`` are where its fuzzing begins.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from google.transit.gtfs_realtime_pb2 import FeedMessage

from trafficdp.cli.commands.init import iudx_template
from trafficdp.config.file import load_config
from trafficdp.config.settings import Config
from trafficdp.context.read import is_gtfs, read_gtfs, read_zones
from trafficdp.errors import TrafficdpError
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.ingest.formats.csv_files import GTFS_RT_COLUMNS, TIDES_COLUMNS
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.read import read_file
from trafficdp.ingest.suggest import suggest_source
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.knowledge.timetable import read_timetable
from trafficdp.model import ContextKind, SourceDeclaration, SpeedUnit, StudyArea, UnitPeriod
from trafficdp.privacy.ledger import GENESIS
from trafficdp.query.question import read_question
from trafficdp.query.recognise import is_priced
from trafficdp.query.statement import read_statement
from trafficdp.release.planning import SavedPlan
from trafficdp.release.publication import ledger_reference, publication_number
from trafficdp.simulation.city import like_release
from trafficdp.store.store_files import Head

Target = Callable[[bytes, Path], object]
ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "sample" / "trafficdp.toml"
FIELDS = ("vehicle", "time", "latitude", "longitude", "speed")
ROWS = (("A1", 1606545001, 21.2, 72.8, 8.0), ("B2", 1606545061, 21.21, 72.81, 0.0))
AREA = {"type": "Polygon", "coordinates": [[[72.5, 21.0], [73.0, 21.0], [73.0, 21.5], [72.5, 21.0]]]}
TABLES = {
    "stops.txt": "stop_id,stop_name,stop_lat,stop_lon\nA,Gate,21.1,72.8\nB,Fort,21.12,72.8\n",
    "trips.txt": "route_id,service_id,trip_id\nr,week,day\n",
    "calendar.txt": "service_id,monday,tuesday,wednesday,thursday,friday,saturday,sunday,"
    "start_date,end_date\n"
    "week,1,1,1,1,1,0,0,20260301,20260331\n",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
    "day,08:00:00,08:00:00,A,1\nday,25:01:00, 8:02:00,B,2\n",
}
"""A timetable, static GTFS."""
SHAPES = "shape_id,shape_pt_sequence,shape_pt_lon,shape_pt_lat\ns,1,72.8,21.1\ns,2,72.8,21.12\n"
CLAUSE = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) "
QUESTIONS = (
    CLAUSE + "cell, AVG(speed) FROM records GROUP BY cell",
    CLAUSE + "h3(6) AS cell, slot('hour_of_day') AS slot, COUNT(*) AS n, VAR_POP(speed) AS v, "
    "DP_INTERVAL_LOW(v) FROM records GROUP BY cell, slot ORDER BY n DESC LIMIT 10",
    "EXPLAIN " + CLAUSE + "cell, STDDEV(speed) FROM records WHERE date BETWEEN '2026-03-03' AND DATE "
    "'2026-03-04' AND (weekday IN ('tuesday') OR NOT hour BETWEEN 7 AND 9) GROUP BY ALL",
    f"SELECT a.m FROM ({CLAUSE} hour, QUANTILE_CONT(speed, 0.85) AS m FROM records GROUP BY hour) a",  # noqa: S608
)


def _declared(kind: str) -> SourceDeclaration:
    columns = {
        "csv": {each: each for each in FIELDS},
        "parquet": {each: each for each in FIELDS},
        "json": {
            **{each: each for each in ("vehicle", "time", "speed")},
            "latitude": "at.latitude",
            "longitude": "at.longitude.0",
        },
    }
    return SourceDeclaration(
        "fuzzed",
        kind,
        ("*",),
        (UnitPeriod(SpeedUnit.METRES_PER_SECOND),),
        columns.get(kind, {}),
        time_format="iso8601" if kind in ("mds", "iudx", "siri") else "epoch_s",
    )


@cache
def _area() -> StudyArea:
    return StudyArea.from_geojson(json.dumps(AREA), where="fuzzed")


def _sample() -> str:
    """Return the configuration of the embedded city, without its layers, which are files beside it."""
    return SAMPLE.read_text(encoding="utf-8").partition("[[context]]")[0]


@cache
def _config() -> Config:
    return load_config(SAMPLE)


def _file(content: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _reader(kind: str, name: str) -> Target:
    source, key = _declared(kind), VehicleKey(bytes(range(32)))

    def read(content: bytes, folder: Path) -> None:
        path = _file(content, folder, name)
        read_file(path, source, _area(), key, refuse_by_rows=len(content) % 2 == 0)

    return read


def _suggest(content: bytes, folder: Path, name: str) -> object:
    return suggest_source(InputFile(_file(content, folder, name)))


def _configuration(content: bytes, folder: Path) -> object:
    return load_config(_file(content, folder, "trafficdp.toml"))


def _study_area(content: bytes, folder: Path) -> object:
    return StudyArea.from_geojson(content.decode("utf-8", "replace"), where="fuzzed").hash


def _area_of_file(content: bytes, folder: Path) -> object:
    _file(content, folder, "area.geojson")
    lines = [
        'study_area = { geojson = "area.geojson" }' if each.startswith("study_area") else each
        for each in _sample().splitlines()
    ]
    return load_config(_file("\n".join(lines).encode(), folder, "trafficdp.toml"))


def _zones(content: bytes, folder: Path) -> object:
    return read_zones(_file(content, folder, "zones.geojson"), None)


def _timetable(content: bytes, folder: Path) -> object:
    return read_timetable(_file(content, folder, "city.zip"), _config().grid)


def _timetable_table(content: bytes, folder: Path, table: str) -> object:
    return _timetable(_zipped({**TABLES, table: content}), folder)


def _gtfs_layer(content: bytes, folder: Path) -> object:
    path = _file(content, folder, "city.zip")
    return read_gtfs(path, ContextKind.TRANSIT) if is_gtfs(path) else None


def _gtfs_layer_table(content: bytes, folder: Path, table: str) -> object:
    return _gtfs_layer(_zipped({"stops.txt": TABLES["stops.txt"], table: content}), folder)


def _saved_plan(content: bytes, folder: Path) -> object:
    plan = SavedPlan.from_json(content.decode("utf-8", "replace"))
    return plan.grid, plan.loss


def _manifest(content: bytes, folder: Path) -> object:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict):
        publication_number(document)
        ledger_reference(document)
    return validate_manifest(document)


def _question(content: bytes, folder: Path) -> object:
    text = content.decode("utf-8", "surrogateescape")
    return (
        [read_question(part, _config()) for part in read_statement(text).parts] if is_priced(text) else None
    )


def _iudx(content: bytes, folder: Path) -> object:
    return iudx_template(_file(content, folder, "pipeline.json"))


def _like(content: bytes, folder: Path) -> object:
    return like_release(_file(content, folder, "map.geojson"))


def _head(content: bytes, folder: Path) -> object:
    _file(content, folder, "city.key.this.head")
    return Head(folder / "city.key", "this").verify([])


TARGETS: Mapping[str, Target] = {
    "csv": _reader("csv", "day.csv"),
    "json": _reader("json", "day.json"),
    "json_lines": _reader("json", "day.jsonl"),
    "gtfs_rt": _reader("gtfs_rt", "day.pb"),
    "gtfs_rt_csv": _reader("gtfs_rt_csv", "day.csv"),
    "tides": _reader("tides", "day.csv"),
    "mds": _reader("mds", "day.json"),
    "iudx": _reader("iudx", "day.json"),
    "siri": _reader("siri", "day.xml"),
    "siri_json": _reader("siri", "day.json"),
    "parquet": _reader("parquet", "day.parquet"),
    "suggest_csv": partial(_suggest, name="day.csv"),
    "suggest_json": partial(_suggest, name="day.json"),
    "suggest_any": partial(_suggest, name="day"),
    "configuration": _configuration,
    "study_area": _study_area,
    "area_of_file": _area_of_file,
    "zones": _zones,
    "gtfs_layer": _gtfs_layer,
    "gtfs_layer_stops": partial(_gtfs_layer_table, table="stops.txt"),
    "gtfs_layer_shapes": partial(_gtfs_layer_table, table="shapes.txt"),
    "timetable": _timetable,
    **{f"timetable_{each[:-4]}": partial(_timetable_table, table=each) for each in TABLES},
    "saved_plan": _saved_plan,
    "manifest": _manifest,
    "question": _question,
    "iudx_configuration": _iudx,
    "like": _like,
    "head": _head,
}
"""What reads, by what it is called in the table."""


def crash_of(name: str, content: bytes, folder: Path) -> BaseException | None:
    """Return what comes of ``content`` that is none of our errors."""
    try:
        TARGETS[name](content, folder)
    except TrafficdpError as error:
        return error if type(error).exit_code == 1 else None
    except OSError as error:
        # of a path, which the command line tells
        return None if error.filename else error
    except Exception as error:  # noqa: BLE001 - what is looked for
        return error
    return None


def _csv(header: tuple[str, ...] | list[str]) -> bytes:
    rows = [",".join(map(str, row)) for row in ROWS]
    return "\n".join([",".join(header), *rows, ""]).encode()


def _first_names(columns: Mapping[str, Any]) -> list[str]:
    return [columns[each] if isinstance(columns[each], str) else columns[each][0] for each in FIELDS]


def _snapshot() -> bytes:
    message = FeedMessage()
    message.header.gtfs_realtime_version = "2.0"
    for number, (vehicle, time, latitude, longitude, speed) in enumerate(ROWS):
        entity = message.entity.add(id=f"e{number}")
        entity.vehicle.vehicle.id, entity.vehicle.timestamp = vehicle, time
        place = entity.vehicle.position
        place.latitude, place.longitude, place.speed = latitude, longitude, speed
    found: bytes = message.SerializeToString()
    return found


def _parquet() -> bytes:
    sink = pa.BufferOutputStream()
    columns = [[row[place] for row in ROWS] for place in range(len(FIELDS))]
    pq.write_table(pa.table(dict(zip(FIELDS, columns, strict=True))), sink, compression="none")
    return bytes(sink.getvalue().to_pybytes())


def _zipped(tables: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in tables.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return written.getvalue()


def seeds(name: str) -> list[bytes]:
    """Return inputs that the target ``name`` reads whole; others lie in data/fuzz."""

    def lines(records: list[dict[str, Any]]) -> list[bytes]:
        return [json.dumps(records).encode(), "\n".join(map(json.dumps, records)).encode()]

    at = "2020-11-28T06:30:01Z"
    plain = [
        {"vehicle": v, "time": t, "at": {"latitude": y, "longitude": [x]}, "speed": s}
        for v, t, y, x, s in ROWS
    ]
    mds = [
        {"device_id": v, "timestamp": t * 1000, "location": {"lat": y, "lng": x, "speed": s}}
        for v, t, y, x, s in ROWS
    ]
    iudx = [
        {
            "vehicle_id": v,
            "observationDateTime": at,
            "location": {"type": "Point", "coordinates": [x, y]},
            "speed": {"type": "Property", "value": s},
        }
        for v, t, y, x, s in ROWS
    ]
    activity = {
        "RecordedAtTime": at,
        "MonitoredVehicleJourney": {
            "VehicleRef": "A1",
            "OperatorRef": "O",
            "Velocity": 8,
            "VehicleLocation": {"Longitude": 72.8, "Latitude": 21.2},
        },
    }
    delivery = {"ServiceDelivery": {"VehicleMonitoringDelivery": {"VehicleActivity": [activity]}}}
    place = "<Longitude>72.8</Longitude><Latitude>21.2</Latitude>"
    journey = f"<VehicleRef>A1</VehicleRef><VehicleLocation>{place}</VehicleLocation><Velocity>8</Velocity>"
    xml = (
        '<Siri xmlns="http://www.siri.org.uk/siri"><ServiceDelivery><VehicleMonitoringDelivery><VehicleActivity>'
        f"<RecordedAtTime>{at}</RecordedAtTime><MonitoredVehicleJourney>{journey}</MonitoredVehicleJourney>"
        "</VehicleActivity></VehicleMonitoringDelivery></ServiceDelivery></Siri>"
    )
    feature = {"type": "Feature", "properties": {"name": "west"}, "geometry": AREA}
    collection = {"type": "FeatureCollection", "features": [feature]}
    shown = {
        "speed_mean_kmh": 20.5,
        "speed_mean_status": "released",
        "speed_mean_kmh_expected_error": 0.4,
    }
    released = {"features": [{"properties": shown}, {"properties": {**shown, "speed_mean_kmh": 31}}]}
    pipeline = {"spatial_generalize": {"h3_resolution": 7}, "differential_privacy": {"dp_epsilon": 1}}
    csv = [_csv(FIELDS), b"vehicle;time\n1,5;2\n"]
    areas = [json.dumps(each).encode() for each in (AREA, feature, collection)]
    kept: dict[str, list[bytes]] = {
        "csv": csv,
        "gtfs_rt_csv": [_csv(_first_names(GTFS_RT_COLUMNS))],
        "tides": [_csv(_first_names(TIDES_COLUMNS))],
        "gtfs_rt": [_snapshot()],
        "json": lines(plain)[:1],
        "json_lines": lines(plain)[1:],
        "mds": lines(mds),
        "iudx": lines(iudx),
        "siri": [xml.encode()],
        "siri_json": [json.dumps(delivery).encode()],
        "parquet": [_parquet()],
        "suggest_csv": csv,
        "suggest_json": [*lines(mds), *lines(iudx), json.dumps(delivery).encode(), *areas],
        "suggest_any": [_parquet(), _snapshot(), xml.encode(), *csv],
        "configuration": [_sample().encode()],
        "study_area": areas,
        "area_of_file": areas,
        "zones": areas,
        "timetable": [_zipped(TABLES)],
        "gtfs_layer": [_zipped(TABLES)],
        "gtfs_layer_stops": [TABLES["stops.txt"].encode()],
        "gtfs_layer_shapes": [SHAPES.encode()],
        **{f"timetable_{each[:-4]}": [content.encode()] for each, content in TABLES.items()},
        "question": [each.encode() for each in QUESTIONS],
        "iudx_configuration": [json.dumps(pipeline).encode()],
        "like": [json.dumps(released).encode()],
        "head": [json.dumps({"store_id": "this", "sequence": 0, "head_hash": GENESIS}).encode()],
    }
    return kept.get(name, [b"{}"])
