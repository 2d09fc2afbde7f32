"""Settings guessed from a file."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet

from trafficdp.errors import DataError
from trafficdp.ingest.formats import geopackage, gtfs_rt
from trafficdp.ingest.formats.csv_files import Lines, check_columns, may_hold_values, read_lines
from trafficdp.ingest.formats.json_files import first_documents, is_json_lines, value_at_path
from trafficdp.ingest.formats.xml_files import is_xml, iterate_elements, local_name, text_at_path
from trafficdp.ingest.input_file import InputFile
from trafficdp.ingest.times import MISSING_NUMBERS
from trafficdp.model import FILE_NAME, PAIRS, Dialect, SourceDeclaration, SpeedUnit, UnitPeriod

if TYPE_CHECKING:
    from lxml import etree

# What a file seems to be, from its name, its header and how its first rows are written.
#
# For the curator's eyes: names of columns are repeated, values are not. Where only a person can know (the
# unit of speeds, the zone of clocks), the answer is None and the declaration says CHOOSE.


ROWS = 100
_START = 1 << 20
_DEPTH = 4
_ENOUGH = 20
"""Vehicles whose speeds may say something together."""
_GTFS_RT_JSON = {
    "vehicle": "vehicle.vehicle.id",
    "time": "vehicle.timestamp",
    "latitude": "vehicle.position.latitude",
    "longitude": "vehicle.position.longitude",
    "speed": "vehicle.position.speed",
}
"""GTFS-Realtime as protobuf's own JSON has it."""
_GEOJSON = {"latitude": "geometry.coordinates.1", "longitude": "geometry.coordinates.0"}
"""Points of GeoJSON, by its specification in this order and in degrees of WGS84."""
_HFP = {"oper", "veh", "tst", "lat", "long", "spd"}
"""Keys of the high-frequency positioning (HFP) of Finnish cities; its specification says m/s."""
NAMES = {
    "vehicle": r"(vehicle|veh|plate|fleet|medallion|licen[cs]e|kennzeichen|fahrzeug|bus|truck|taxi|device|"
    r"unit|car|matricula|placa|immatriculation)([ _.-]?(id|no|nr|number|label|plate|ref))?|uid|tid|vid|imei",
    "time": r"(time[ _]?stamp|date[ _]?time|time|zeit|zeitstempel|zeitpunkt|uhrzeit|datum|fecha|hora|heure|"
    r"date|horodatage|data[ _]?hora|observation|observed|recorded|received|reported|gps)"
    r"([ _.-]?(at|date[ _]?time|time|utc|stamp|received))?|ts|t|tst|tsi",
    "latitude": r"lat(itude)?|breite(ngrad)?|latitud|y",
    "longitude": r"lon(gitude)?|long|lng|l[aä]nge(ngrad)?|longitud|x",
    "speed": r"(gps[ _.-]?)?(speed|spd|velocity|geschwindigkeit|velocidade?|velocit[aà]|vitesse|snelheid|"
    r"tempo|km[ _/]?h|mph|v)([ _.-]?(kmh|km[ _/]?h|mph|m[ _/]?s|ms))?",
}
"""What columns are called: the whole name, in any case, but for a unit in brackets at its end.

A column ``id`` may number rows, each of which would then be protected as a vehicle: a person must choose.
"""
_UNIT_AT_END = re.compile(r"\s*[\[(].*[\])]\s*$")
UNITS = {"km/h": r"km[ _/]?h|kph", "mph": r"mph", "m/s": r"m[ _/]s|ms$|mps"}
_PAIR = r"(?i:\s*(?:point)?\s*[\[({]?\s*)([-+]?\d{1,3}\.\d+)\s*[\s,;]\s*([-+]?\d{1,3}\.\d+)\s*[\])}]?\s*"
_JOURNEY = re.compile(r"\s*\[\s*\[[-+\d. ]+,")
_VALUE = re.compile(
    r"[-+]?[\d.,' ]*\d([eE][-+]?\d+)?|\d{4}-\d\d-\d\d.*|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}.*|\d{1,2}:\d\d.*"
)
"""A number, a date or a time: no name of a column."""
_IN_DEGREES = r"[-+]?\d{1,3}\.(\d+)"
_DECIMALS = 4
"""Of most degrees, at least: zeros at the end may be left out."""
_NORTHERNMOST = 72
"""Degrees of latitude: no city lies further north."""
ENCODINGS = ("utf-8", "cp1252")


@dataclass(frozen=True)
class Suggestion:
    """A declaration as far as a file tells it; None where a person must choose.

    ``other_order``: latitude and longitude may be the other way round.
    """

    format: str
    dialect: Dialect = field(default_factory=Dialect)
    columns: dict[str, str | None] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    time_format: str | None = None
    offset: bool = True
    speed_unit: str | None = None
    missing_speed: str = "reject"
    records: str = ""
    sentinels: tuple[int, ...] = ()
    other_order: bool = False


def suggest_source(file: InputFile) -> Suggestion:
    """Return a guess how ``file``, or the first file of a zip archive, must be declared as a source.

    Raises DataError for a file that is neither a table nor of a known format.
    """
    for lot in file.file_groups():
        return _of_file(lot[0])
    raise DataError(f"{file.name} holds no file")


def _of_file(file: InputFile) -> Suggestion:
    name = file.unpacked_name
    with file.open() as stream:
        head = stream.read(64)
    # the header of a FeedMessage
    if name.endswith(".pb") or re.match(rb"\n.\n\x03[12]\.", head, re.DOTALL):
        return _of_gtfs_rt(file)
    if file.form == "gpkg":
        return _of_geopackage(file)
    if file.form == "parquet" or name.endswith(".parquet"):
        return _of_parquet(file)
    # an object, or a list of objects
    in_json = name.endswith((".json", ".jsonl", ".ndjson")) or re.match(
        rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{", head
    )
    if in_json or is_xml(file):
        with file.open() as stream:
            start = stream.read(_START)
        text = start.decode("utf-16" if b"\0" in start[:4] else "utf-8", "replace")
        if re.search(r"\bVehicle(Activity|MonitoringDelivery)\b", text):
            return _of_siri(text)
        if in_json and re.search(r'"observationDateTime"\s*:', text):
            times = re.findall(r'"observationDateTime"\s*:[^"]*"([^"]+)"', text)
            form, offset = _time_format(times[:ROWS])
            return Suggestion("iudx", time_format=form, offset=offset)
        if in_json and re.search(r'"telemetry"\s*:|"device_id"\s*:.*"location"\s*:', text, re.DOTALL):
            return Suggestion("mds", speed_unit="m/s")
        if in_json:
            return _of_json(file)
        return _of_xml(file, text)
    return _of_csv(file)


def _of_gtfs_rt(file: InputFile) -> Suggestion:
    declared = SourceDeclaration("", "gtfs_rt", (), (UnitPeriod(SpeedUnit.METRES_PER_SECOND),))
    (records,) = gtfs_rt.read(file, declared)
    stated = np.count_nonzero(np.isfinite(records.speed))
    nothing = stated >= _ENOUGH and not np.nan_to_num(records.speed).any()
    missing_speed = "derive" if nothing or 2 * stated < len(records) else "reject"
    return Suggestion(
        "gtfs_rt", speed_unit="m/s", missing_speed=missing_speed, sentinels=(0,) if nothing else ()
    )


def _of_parquet(file: InputFile) -> Suggestion:
    """Look at the schema, and at the times of the first rows; points of GeoParquet are the place."""
    try:
        with pyarrow.parquet.ParquetFile(file.path) as parquet:
            schema = parquet.schema_arrow
            found = _of_columns(file, "parquet", Dialect(), schema.names, [])
            columns, time = found.columns, found.columns["time"]
            facts = json.loads((schema.metadata or {}).get(b"geo", b"{}"))
            geometry = facts.get("primary_column") if isinstance(facts, dict) else None
            if geometry in schema.names:
                others = (ours for ours in columns if ours not in ("latitude", "longitude"))
                columns = {ours: columns[ours] for ours in others} | {"geometry": geometry}
            form, offset = found.time_format, found.offset
            if time is not None and pyarrow.types.is_timestamp(schema.field(time).type):
                form, offset = "iso8601", schema.field(time).type.tz is not None
            elif time is not None:
                start = next(parquet.iter_batches(ROWS, columns=[time]), None)
                times = [] if start is None else start.column(0).to_pylist()
                form, offset = _time_format([str(each) for each in times if each is not None])
    except (pyarrow.ArrowException, OSError, ValueError):
        raise DataError(f"{file.name} cannot be read as Parquet") from None
    return replace(found, columns=columns, time_format=form, offset=offset)


def _of_geopackage(file: InputFile) -> Suggestion:
    """Look at the first rows of the first layer of points."""
    layers = geopackage.layers(file)
    if not layers:
        raise DataError(f"{file.name} has no layer of points")
    names, values = geopackage.first_rows(file, layers[0], ROWS)
    rows = [[each or "" for each in row] for row in values]
    found = _of_columns(file, "gpkg", Dialect(), names, rows)
    columns = {ours: each for ours, each in found.columns.items() if ours not in (*PAIRS, *_DEGREES)}
    return replace(found, columns=columns, records=layers[0] if len(layers) > 1 else "")


def _of_siri(text: str) -> Suggestion:
    times = re.findall(r'\bRecordedAtTime"?\s*[:>]\s*(?:{\s*"value"\s*:\s*)?"?([^",<>{}]+)', text)
    form, offset = _time_format([each.strip() for each in times[:ROWS]]) if times else ("iso8601", True)
    stated = re.search(r'\bVelocity"?\s*[:>]\s*"?\d', text)
    missing_speed = "reject" if stated else "derive"
    return Suggestion("siri", time_format=form, offset=offset, speed_unit="m/s", missing_speed=missing_speed)


def _of_json(file: InputFile) -> Suggestion:
    """Look at the first records; of keys only those are repeated that are what columns are called."""
    blocks = first_documents(file)
    records, listed = ("", blocks) if is_json_lines(file) else _records_in(blocks[0] if blocks else None)
    rows = [row for row in listed[:ROWS] if isinstance(row, dict)]
    leaves = list(dict.fromkeys(path for row in rows for path in _leaves(row)))
    if _GTFS_RT_JSON["latitude"] in leaves:
        speeds = sum(value_at_path(row, _GTFS_RT_JSON["speed"]) is not None for row in rows)
        derived = "derive" if 2 * speeds < len(rows) else "reject"
        return Suggestion(
            "json", Dialect(), dict(_GTFS_RT_JSON), (), "epoch_s", True, "m/s", derived, records=records
        )
    paths = {path.rpartition(".")[2]: path for path in reversed(leaves)}
    named = list(reversed(paths))
    table = _table_in(blocks[0]) if blocks and not rows else None
    if table is not None:
        records, rows, named = table
        paths = {name: str(at) for at, name in enumerate(named)}
    values = [[_plain(value_at_path(row, paths[name])) for name in named] for row in rows]
    found = _of_columns(file, "json", Dialect(decimal=_decimal(values)), named, values)
    columns = {ours: None if name is None else paths[name] for ours, name in found.columns.items()}
    if records == "features" and all(value_at_path(rows[0], path) is not None for path in _GEOJSON.values()):
        columns |= _GEOJSON
    elif not any(columns.values()) or (
        table is None and any(re.search(r"(^|\.)\d", path) for path in columns.values() if path)
    ):
        raise DataError(
            f"{file.name} holds JSON whose records are not recognised",
            expected="a list of objects, or one object a line (.jsonl)",
            todo='declare it by hand: format = "json", with paths as columns',
        )
    if {*named} >= _HFP:
        return replace(found, columns=columns | {"operator": paths["oper"]}, speed_unit="m/s")
    return replace(found, columns=columns, records=records, header=())


def _decimal(rows: Sequence[Sequence[str]]) -> str:
    """Return the decimal mark of texts: a comma where one is written as degrees are."""
    return "," if any(re.fullmatch(r"[-+]?\d{1,3},\d{4,}", each) for row in rows for each in row) else "."


def _records_in(document: object) -> tuple[str, list[object]]:
    """Return the path to the one list of objects that is least deep in a document, and the list.

    Where there are several, or none, it is empty: keys may then be identifiers.
    """
    level = [("", document)]
    for _ in range(_DEPTH):
        lists = [(path, value) for path, value in level if isinstance(value, list) and value]
        objects = [(path, value) for path, value in lists if isinstance(value[0], dict)]
        if objects:
            return objects[0] if len(objects) == 1 else ("", [])
        level = [
            (f"{path}.{key}".lstrip("."), inner)
            for path, value in level
            if isinstance(value, dict)
            for key, inner in value.items()
        ]
    return "", []


def _table_in(document: object) -> tuple[str, list[Any], list[str]] | None:
    """Return the key of a list of rows, which are lists, its first rows and the list beside it of names."""
    found = document.items() if isinstance(document, dict) else ()
    lists = [(key, value) for key, value in found if isinstance(value, list) and value]
    headers = [value for _, value in lists if all(isinstance(name, str) for name in value)]
    for (key, rows), names in itertools.product(lists, headers):
        if isinstance(rows[0], list) and len(rows[0]) == len(names):
            return key, rows[:ROWS], names
    return None


def _leaves(value: object, path: str = "", depth: int = 0) -> Iterator[str]:
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".lstrip("."), depth + 1)
    elif not isinstance(value, dict | list):
        yield path


def _plain(value: object) -> str:
    return value if isinstance(value, str) else ""


def _of_xml(file: InputFile, text: str) -> Suggestion:
    """Look at the first elements that have a place; of names only those are repeated that are declared."""
    found = list(itertools.islice(_elements_of_records(file), ROWS))
    root, name = found[0][:2] if found else ("", "")
    if root == "gpx" and any(each == "trkpt" for _, each, _ in found):
        name = "trkpt"
    rows = [values for _, each, values in found if each == name]
    if not rows:
        first = re.search(r"<([A-Za-z_][\w.:-]{0,39})", text)
        raise DataError(
            f"{file.name} is XML of a kind that is not recognised",
            got=f"<{first.group(1)}>" if first else None,
            expected="SIRI vehicle monitoring, GPX, NextBus, SUMO's FCD, or elements with a position",
            todo='declare it by hand: format = "xml", with paths as columns',
        )
    if "secsSinceReport" in {path.lstrip("@") for path in rows[0]}:
        return Suggestion("nextbus", speed_unit="km/h")
    paths: dict[str, str] = {}
    for path in (path for row in rows for path in row):
        paths.setdefault(path.rpartition("/")[2].lstrip("@"), path)
    table = [[row.get(path, "") for path in paths.values()] for row in rows]
    guessed = _of_columns(file, "xml", Dialect(decimal=_decimal(table)), [*paths], table)
    columns = {ours: None if each is None else paths[each] for ours, each in guessed.columns.items()}
    suggestion = replace(guessed, columns=columns, records=name, header=())
    if root == "gpx":
        named = "../../name" if any("../../name" in row for row in rows) else None
        return replace(suggestion, columns=columns | {"vehicle": named}, speed_unit="m/s")
    if root == "fcd-export":
        if any(abs(float(row["@x"])) > 180 or abs(float(row["@y"])) > 90 for row in rows):
            raise DataError(
                f"the positions of {file.name} are no degrees",
                todo="write it with SUMO's option --fcd-output.geo",
            )
        return replace(
            suggestion,
            columns=columns | {"vehicle": "@id"},
            speed_unit="m/s",
            time_format="seconds since CHOOSE",
            offset=True,
        )
    return suggestion


def _elements_of_records(file: InputFile) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the root's name, the name and what lies at each path, for elements with a place of their own."""
    for _, element in iterate_elements(file, ["*"], "elements with a position"):
        own = {f"@{name}": value for name, value in element.attrib.items()}
        own |= _texts_within(element, depth=3)
        bare = {path.rpartition("/")[2].lstrip("@") for path in own if "/" not in path}
        if all(any(re.fullmatch(NAMES[each], name, re.IGNORECASE) for name in bare) for each in _DEGREES):
            up = ""
            for around in itertools.islice(element.iterancestors(), _DEPTH):
                up += "../"
                own |= {f"{up}@{name}": value for name, value in around.attrib.items()}
                own |= _texts_within(around, up, depth=1)
            yield local_name(element.getroottree().getroot()), local_name(element), own


_DEGREES = ("latitude", "longitude")


def _texts_within(element: etree._Element, above: str = "", *, depth: int) -> dict[str, str]:
    """Return the texts of the elements up to ``depth`` levels within one, by their paths."""
    found: dict[str, str] = {}
    for child in element.iterchildren("*"):
        path = f"{above}{local_name(child)}"
        if (value := text_at_path(child, ())) is not None:
            found[path] = value
        if depth > 1:
            found |= _texts_within(child, f"{path}/", depth=depth - 1)
    return found


def _of_csv(file: InputFile) -> Suggestion:
    encoding, lines = _decoded(file)
    if not lines:
        raise DataError(f"{file.name} is empty", got="no first line")
    delimiter = max(",;\t| ", key=lambda mark: (lines[0].count(mark), mark != " "))
    if delimiter == " " and any(mark in lines[0] for mark in ",;\t|"):
        # times have spaces too
        delimiter = max(",;\t|", key=lines[0].count)
    if delimiter == " ":
        lines = [" ".join(line.split()) for line in lines]
    found = [fields for line in lines if (fields := _fields(line.rstrip("\r"), delimiter))]
    if not found:
        raise DataError(f"{file.name} is not CSV", got="no line with fields", expected="a header line")
    names, *rows = found
    # where files were put one behind another, the names come again
    rows = [row for row in rows if row != names] or rows
    without_names = any(_VALUE.fullmatch(name.strip()) or re.fullmatch(_PAIR, name) for name in names)
    if without_names:
        rows = [names, *rows]
        names = [str(number) for number in range(1, len(names) + 1)]
    if "vehicle.position.latitude" in names:
        written = Dialect(encoding=encoding)
        return Suggestion("gtfs_rt_csv", written, time_format="epoch_s", speed_unit="m/s")
    numbers = [field for row in rows for field in row if re.fullmatch(r"[-+]?[\d.,' ]*\d", field)]
    comma = delimiter != "," and any(re.fullmatch(r"[-+]?[\d. ']*,\d+", each) for each in numbers)
    grouped = comma and any(re.fullmatch(r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?", each) for each in numbers)
    dialect = Dialect(
        delimiter=delimiter,
        decimal="," if comma else ".",
        thousands="." if grouped else "",
        encoding=encoding,
        header=not without_names,
    )
    return _of_columns(file, "csv", dialect, names, rows)


def _fields(line: str, delimiter: str) -> list[str]:
    """Return the fields of a line; none of one that is empty, or holds a longer field than Python reads."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _decoded(file: InputFile) -> tuple[str, list[str]]:
    """The encoding and the first lines of a file; the last of ENCODINGS fits whatever the others do not."""
    for encoding in ENCODINGS:
        start = next(read_lines(file, encoding), Lines(b"", 0))
        if not start.left_out:
            return encoding, start.text.decode().split("\n")[: ROWS + 1]
    raise file.encoding_error(ENCODINGS[-1])


def _of_columns(
    file: InputFile, kind: str, dialect: Dialect, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> Suggestion:
    columns: dict[str, str | None] = {}
    for ours, pattern in NAMES.items():
        bare = ((name, _UNIT_AT_END.sub("", name).strip()) for name in header)
        fits = (name for name, said in bare if re.fullmatch(pattern, said, re.IGNORECASE))
        columns[ours] = next((name for name in fits if name not in columns.values()), None)
    check_columns(file, [name for name in columns.values() if name is not None], header)
    if not dialect.header:
        columns["time"] = next(
            (name for name in header if _time_format(_column(rows, int(name) - 1))[0]), None
        )
    columns, other_order = _with_degrees(columns, header, rows, dialect.decimal)
    columns = _with_pair(columns, header, rows)
    if columns.get("latitude", "") is None and any(_JOURNEY.match(each) for row in rows for each in row):
        raise DataError(
            f"the rows of {file.name} are whole journeys",
            got="lists of positions",
            expected="a row for every position, with its own time",
            todo="write one row a position, with a script of your own",
        )
    speed, time = columns["speed"], columns["time"]
    unit = next(
        (unit for unit, pattern in UNITS.items() if speed and re.search(pattern, speed, re.IGNORECASE)), None
    )
    times, speeds = ([] if name is None else _column(rows, header.index(name)) for name in (time, speed))
    form, offset = (
        _time_format([each for each in times if each])
        if kind in ("csv", "gpkg", "json", "xml")
        else ("iso8601", True)
    )
    stated = sum(each.strip().upper() not in MISSING_NUMBERS for each in speeds)
    missing_speed = "derive" if speed is None or 2 * stated < len(speeds) else "reject"
    return Suggestion(
        kind, dialect, columns, tuple(header), form, offset, unit, missing_speed, other_order=other_order
    )


def _with_degrees(
    columns: dict[str, str | None], header: Sequence[str], rows: Sequence[Sequence[str]], decimal: str
) -> tuple[dict[str, str | None], bool]:
    """Return ``columns`` with the two that hold degrees, and whether either may be the latitude."""
    if any(columns[each] is not None for each in _DEGREES):
        return columns, False
    degrees = {}
    for at, name in enumerate(header):
        texts = [each.strip().replace(decimal, ".") for each in _column(rows, at)]
        found = [number for each in texts if (number := re.fullmatch(_IN_DEGREES, each))]
        if len(texts) == len(found) < 2 * sum(len(number.group(1)) >= _DECIMALS for number in found):
            # in the middle: a receiver without a position writes 99 or 999
            degrees[name] = median(abs(float(each)) for each in texts)
    north = [name for name, middle in degrees.items() if middle <= _NORTHERNMOST]
    if len(degrees) != 2 or not north or max(degrees.values()) > 180:
        return columns, False
    (east,) = {*degrees} - {north[0]}
    return columns | {"latitude": north[0], "longitude": east}, len(north) == 2


def _with_pair(
    columns: dict[str, str | None], header: Sequence[str], rows: Sequence[Sequence[str]]
) -> dict[str, str | None]:
    """Return ``columns`` with the one that holds both numbers of a position, where no two hold one each."""
    if columns["latitude"] is not None or columns["longitude"] is not None:
        return columns
    for at, name in enumerate(header):
        texts = [each for each in _column(rows, at) if each.strip()]
        found = [re.fullmatch(_PAIR, each) for each in texts]
        if texts and all(found) and name not in columns.values():
            pairs = [(float(each.group(1)), float(each.group(2))) for each in found if each]
            latitude_first = re.match(r"lat", name, re.IGNORECASE) or any(
                abs(second) > 90 for _, second in pairs
            )
            pair = "latitude_longitude" if latitude_first else "longitude_latitude"
            others = (ours for ours in columns if ours not in ("latitude", "longitude"))
            return {ours: columns[ours] for ours in others} | {pair: name}
    return columns


def _column(rows: Sequence[Sequence[str]], at: int) -> list[str]:
    return [row[at] for row in rows if len(row) > at]


def _time_format(times: Sequence[str]) -> tuple[str | None, bool]:
    """How instants are written, and whether they bear an offset."""
    for form, pattern in (
        ("epoch_s", r"\d{9,10}(\.\d+)?"),
        ("epoch_ms", r"\d{12,13}"),
        ("epoch_us", r"\d{15,16}"),
        ("%Y%m%d%H%M%S", r"(19|20)\d{12}"),
    ):
        if times and all(re.fullmatch(pattern, each) for each in times):
            return form, form.startswith("epoch")
    if times and all(re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", each) for each in times):
        return "iso8601", all(re.search(r"(Z|[+-]\d\d(:?\d\d)?)$", each) for each in times)
    found = itertools.product(
        ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"), (" %H:%M:%S", " %H:%M")
    )
    fits = [day + clock for day, clock in found if times and all(_fits(each, day + clock) for each in times)]
    # 03/04/2026 may be April or March
    return (fits[0] if len(fits) == 1 else None), False


def _fits(text: str, form: str) -> bool:
    try:
        datetime.strptime(text, form)  # only whether it fits
    except ValueError:
        return False
    return True


def _about_columns(found: Suggestion) -> str:
    """Return the comment that names the columns, but for a first line that may hold a record."""
    if not found.dialect.header:
        return f'# the file names no columns: they are "1" to "{found.header[-1]}"'
    if found.format == "csv" and may_hold_values(found.header):
        return (
            "# the first line is not repeated: it may hold values. Without names of columns: header = false"
        )
    return f"# the columns of the file: {', '.join(found.header)}"


def source_table_in_toml(found: Suggestion, name: str, pattern: str) -> str:
    """Return ``found`` as a commented table ``[[source]]`` in TOML; CHOOSE stands where a person must decide.

    ``name`` is the name of the source and ``pattern`` that of its files.
    """
    dialect, usual = found.dialect, Dialect()
    without_speed = "speed" in found.columns and found.columns["speed"] is None
    named = {ours: theirs for ours, theirs in found.columns.items() if theirs is not None or ours != "speed"}
    columns = ", ".join(f"{ours} = {_text(theirs or 'CHOOSE')}" for ours, theirs in named.items())
    first = next((pair for pair in PAIRS if pair in named), None)
    other_order = ""
    if first is not None:
        other_order = "  # or " + next(pair for pair in PAIRS if pair != first)
    elif found.other_order:
        other_order = "  # or latitude and longitude the other way round: ingest tells"
    lines = [
        "[[source]]",
        f"name = {_text(name)}",
        f"format = {_text(found.format)}",
        f"files = [{_text(pattern)}]",
    ]
    if found.header:
        lines.append(_about_columns(found))
    if named.get("vehicle", "") is None:
        lines.append(
            f"# the vehicle: a column; or {_text(FILE_NAME)}, where each file of an archive is one vehicle's"
        )
    if named:
        lines.append(f"columns = {{ {columns} }}{other_order}")
    if not dialect.header:
        lines.append("header = false")
    if found.records:
        lines.append(f"records = {_text(found.records)}")
    for key in ("delimiter", "decimal", "thousands", "encoding"):
        if getattr(dialect, key) != getattr(usual, key):
            lines.append(f"{key} = {_text(getattr(dialect, key))}")
    if found.format not in ("gtfs_rt", "mds", "nextbus"):
        lines.append(
            f"time_format = {_text(found.time_format or 'CHOOSE')}"
            + ("" if found.time_format else '  # such as "%d/%m/%Y %H:%M:%S"')
        )
    if not found.offset:
        lines.append('time_zone = "CHOOSE"  # of the clock that wrote the times, such as "Europe/Berlin"')
    if found.missing_speed != "reject":
        none = (
            "no column looks like a speed; if one is, name it" if without_speed else "most records state none"
        )
        lines.append(f"missing_speed = {_text(found.missing_speed)}  # from positions: {none}")
        lines.append(
            "# positions of one file: where each file is one moment, put a day's into one zip archive"
        )
    if found.sentinels:
        lines.append(f"sentinels = {list(found.sentinels)}  # every speed is 0: none is known")
    if without_speed:
        lines.append('speed_unit = "m/s"')
    elif found.format in ("csv", "parquet", "gpkg", "json", "xml", "iudx", "nextbus"):
        unit = found.speed_unit or "CHOOSE"
        lines.append(f"speed_unit = {_text(unit)}  # m/s, km/h or mph: only who made the file knows")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{escaped}"'
