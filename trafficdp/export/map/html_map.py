"""The offline map: one HTML file with everything in it, which asks no network for anything."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import shapely
from markupsafe import Markup

from trafficdp.arrays import FloatArray, IntArray
from trafficdp.errors import DataError
from trafficdp.export.files import classes as files_classes
from trafficdp.export.files.disclosure import on_city_clocks
from trafficdp.export.files.language import PLACES, Language, fill_template
from trafficdp.export.files.tables import published_statistics, reasons, unique_polygons, withheld_because
from trafficdp.export.map.drawing import Drawing, Rings, outlines_shown, unwrapped_longitudes
from trafficdp.model import ContextKind, SpeedUnit, Statistic
from trafficdp.privacy.estimate import BinStatus, IntervalKind
from trafficdp.privacy.release import Release, published_frame

if TYPE_CHECKING:
    import pandas as pd


# Columns of numbers inside a page: compressed, as text. What a browser unpacks by itself.
#
# Of every column first come the lowest bytes of all numbers, then the next ones (likes compress well beside
# likes); all columns, one after another, are compressed (zlib, which browsers call "deflate") and written in
# base64. The list of parts says what there is, in which order.


TYPES: dict[str, np.dtype[Any]] = {name: np.dtype(f"<{name}") for name in ("u1", "u4", "i4", "f8")}
"""What JavaScript has typed arrays for."""
NOTHING = -(2**31)
"""Stands for a number that was not released, in a column of whole numbers; in one of floats it is NaN."""


Column = tuple[str, npt.ArrayLike]
"""A column: its type, a key of TYPES, and its numbers."""


def pack(columns: Mapping[str, Column]) -> tuple[list[dict[str, str | int]], str]:
    """Return name, type and length of each of ``columns``, in order, and all numbers as one base64 text.

    Equal columns give equal text. Raises OverflowError when a number does not fit its type.
    """
    parts: list[dict[str, str | int]] = []
    pieces = []
    for name, (kind, numbers) in columns.items():
        given = np.asarray(numbers)
        with np.errstate(invalid="ignore"):
            column: npt.NDArray[Any] = given.astype(TYPES[kind])
        if not np.array_equal(column, given, equal_nan=kind == "f8"):
            raise OverflowError(f"column {name} does not fit {kind}")
        parts.append({"name": name, "type": kind, "length": len(column)})
        pieces.append(column.view(np.uint8).reshape(len(column), column.itemsize).T.tobytes())
    return parts, base64.b64encode(zlib.compress(b"".join(pieces), 9)).decode("ascii")


def text_column(texts: Iterable[str]) -> tuple[str, npt.NDArray[np.uint8]]:
    """Return ``texts`` as a column for ``pack``: the type "u1" and their bytes, joined by line breaks."""
    return "u1", np.frombuffer("\n".join(texts).encode(), dtype=np.uint8)


def thousandths_column(column: FloatArray) -> tuple[str, FloatArray]:
    """Return a published column as a column for ``pack``: its type and whole thousandths, NOTHING for NaN.

    A column with numbers beyond 31 bits stays as it is, with type "f8".
    """
    missing = np.isnan(column)
    whole = np.round(np.where(missing, 0.0, column) * 1000)
    if bool(np.any(np.abs(whole) >= -NOTHING)):
        return "f8", column
    return "i4", np.where(missing, NOTHING, whole)


# Leaflet, which draws the map: one file that becomes a part of every page, so that no page asks for it.
#
# It is kept beside this module as its authors wrote it, with its licence; its version and hashes are here,
# and a test holds the files to them. To renew it: ``npm pack leaflet@VERSION``, compare the archive's hash
# with the one that the registry states, copy dist/leaflet.js, dist/leaflet.css and LICENSE over the three
# files, write version and hashes here, and run the tests in a browser.
#
# Why Leaflet: 162 kB a page, drawn on canvas, letters of the page's own fonts. MapLibre GL takes 1,128 kB,
# and it needs WebGL, which a locked-down or old computer has not, and letters as files of their own.


VERSION = "1.9.4"
ARCHIVE = "sha512-nxS1ynzJOmOlHp+iL3FyWqK89GtNL8U8rvlMOsQdTTssxZwCXh8N2NB3GDQOL+YR3XnWyZAxwQixURb+FA74PA=="
"""Of the npm archive leaflet-1.9.4.tgz, as the registry states it ("integrity")."""
SHA256 = {
    "LICENSE": "53e8dc25862014e4324741ca18fbe3611e11d42ef69f59f86ea8c5389647d4cb",
    "leaflet.css": "a7837102824184820dfa198d1ebcd109ff6d0ff9a2672a074b9a1b4d147d04c6",
    "leaflet.js": "db49d009c841f5ca34a888c96511ae936fd9f5533e90d8b2c4d57596f4e5641a",
}
_FOLDER = files("trafficdp.export").joinpath("map/leaflet")


def content(name: str) -> bytes:
    """Return the bytes of one of Leaflet's files, whose names are the keys of SHA256."""
    return _FOLDER.joinpath(name).read_bytes()


def _kept() -> dict[str, Markup]:
    css, script = (content(name).decode() for name in ("leaflet.css", "leaflet.js"))
    # the pictures of controls that the page has not, and the map of the script's source, are other files
    plain = "\n".join(line for line in css.splitlines() if "url(" not in line)
    return {"css": Markup(plain), "script": Markup(script.partition("//# sourceMappingURL")[0])}


LIBRARY = _kept()
"""What a page takes up: a style sheet and a script, as they are."""


# Study area and public layers as columns of a page: lines and points in 1/100,000 degree (1.1 m).


AROUND = {"west": 0.0, "north": 0.0, "units": 100_000, "squeeze": 1, "margin": 0}
"""How the script finds degrees again: x = 100,000 longitude, y = -100,000 latitude."""


def _layer_columns(prefix: str, shapes: Sequence[shapely.Geometry], cut: float) -> dict[str, Column]:
    """Return what ``outlines`` of map_data.js reads: every ring, line or point is one of its rings."""
    parts, of_shape = shapely.get_parts(np.asarray(shapes, dtype=object), return_index=True)
    areas = shapely.get_type_id(parts) == shapely.GeometryType.POLYGON
    rings, of_part = shapely.get_rings(parts[areas], return_index=True)
    lines = np.concatenate([rings, parts[~areas]])
    owner = np.concatenate([of_shape[areas][of_part], of_shape[~areas]])
    order = np.argsort(owner, kind="stable")
    positions, of_line = shapely.get_coordinates(lines[order], return_index=True)
    point = np.rint(unwrapped_longitudes(positions, cut) * [100_000, -100_000]).astype(np.int64)
    found = Rings(
        a_polygon=np.bincount(owner, minlength=len(shapes)),
        corners=np.bincount(of_line, minlength=len(lines)),
        point=point,
    )
    step = found.corner_offsets() if len(point) else point
    return {
        f"{prefix}rings": ("u4", found.a_polygon),
        f"{prefix}corners": ("u4", found.corners),
        f"{prefix}dx": ("i4", step[:, 0]),
        f"{prefix}dy": ("i4", step[:, 1]),
    }


MOST_PLAIN_ROWS = 500
_OF_SCRIPT = (
    *("columns", "stem", "brief", "unit", "root", "most", "limits", "often", "rest", "breaks", "widths"),
    *("chances", "timetable"),
)


@dataclass(frozen=True)
class Look:
    """How a class letter is painted: a colour, and an ink for hatching, dots or crosses (or None)."""

    colour: str
    ink: str | None


def html_bytes(release: Release, *, live_seconds: int | None = None) -> bytes:
    """Return the map of ``release`` as UTF-8 HTML; the same release gives the same bytes.

    Leaflet (``library``), a part of the page, draws hexagons and the public layers around them on canvas:
    shapes, names and numbers are packed columns (``payload``). Without JavaScript there is a table. With
    ``live_seconds`` the page asks for ``live.geojson`` beside it that often; with a layer of tiles it asks
    their server for pictures; for nothing else ever. Raises DataError without bins.
    """
    if not release.bins:
        raise DataError("the release has no bins, so there is nothing to draw")
    language = Language.of(release.disclosure.catalogue.language)
    polygons, position = unique_polygons(release)
    polygons = polygons if release.grid.zones is None else outlines_shown(polygons)
    drawing = Drawing.of(polygons, hexagons=release.grid.zones is None)
    table, context = published_frame(release), release.grid.context
    views = [
        _statistic_view(release, table, number, each, language)
        for number, each in enumerate(published_statistics(release))
    ]
    slots = [int(slot) for slot in np.unique(release.slot)]
    # the edge of the study area, in one piece across the antimeridian
    parts_of_area = shapely.get_parts(release.grid.area.geometry)
    area = shapely.transform(parts_of_area, lambda xy: unwrapped_longitudes(xy, drawing.cut))
    places = places_in_words(release, np.unique(position, return_index=True)[1], language)
    slot_columns = number_columns(
        table, release.slot, position, published_statistics(release), release.request.display_unit
    )
    parts, numbers = pack(
        _shapes(drawing, polygons, np.unique(release.cell))
        | {"places": text_column(places)}
        | _layer_columns("area_", [shapely.boundary(shapely.union_all(area))], -np.inf)
        | _layer_columns("context_", [shape for each in context for shape in each.shapes], drawing.cut)
        | {"context_names": text_column(name for each in context for name in each.names)}
        | slot_columns[0]
    )
    # a telephone draws the first slot before it has the others
    later = [pack(columns) for columns in slot_columns[1:]]
    number = "H3" if release.grid.zones is None else language.gettext("Number")
    looks = {letter: asdict(look) for letter, look in LOOKS.items()}
    data: dict[str, Any] = {
        "noun": release.grid.noun,
        "number": number,
        "statuses": [status.value for status in BinStatus],
        "told": [language.translate_sentence(status.value) for status in BinStatus],
        "reasons": [
            None if each is None else language.translate_sentence(each)
            for each in (reasons(release)[status.value] for status in BinStatus)
        ],
        "slots": [language.translate_sentence(release.slots[slot].label) for slot in slots],
        "looks": looks,
        "statistics": [{name: view[name] for name in _OF_SCRIPT} for view in views],
        "chances": files_classes.CHANCE_BREAKS,
        "shares": files_classes.SHARE_BREAKS,
        "point": language.number("."),
        "parts": parts,
        "projection": {
            "west": drawing.west,
            "north": drawing.north,
            "cut": drawing.cut,
            "units": drawing.units_per_degree,
            "squeeze": drawing.squeeze,
            "margin": drawing.margin,
        },
        "places": AROUND,
        "context": [{"kind": each.kind.value, "shapes": len(each.shapes)} for each in release.grid.context],
    }
    if live_seconds is not None:
        data["live"] = live_seconds
    tiles = next((each.file for each in context if each.kind is ContextKind.TILES), None)
    if tiles is not None:
        data["tiles"] = tiles
    text = fill_template(
        "map.html",
        language,
        noun=language.gettext(release.grid.noun),
        nouns=language.gettext(f"{release.grid.noun}s"),
        number=number,
        withheld=language.translate_sentence(withheld_because(release)),
        groups=release.disclosure,
        made=language.localise_dates(on_city_clocks(release.created_at, release.grid.period.time_zone)),
        library=LIBRARY,
        sources="; ".join(dict.fromkeys(each.attribution for each in context)),
        tiles=None if tiles is None else {"url": tiles, "host": urlsplit(tiles).netloc},
        plain=_plain_rows(release, table, views[0], language),
        statistics=views,
        slots=data["slots"],
        looks=looks,
        live=live_seconds is not None,
        data=data,
        numbers=numbers,
        later=[{"parts": own, "numbers": text} for own, text in later],
    )
    return text.encode()


def places_in_words(release: Release, rows: IntArray, language: Language) -> list[str]:
    """Return the names of the places of the bins ``rows`` in ``language``; zones have names of their own."""
    names: list[str] = release.place[rows].tolist()
    return (
        [language.translate_sentence(each, PLACES) for each in names] if release.grid.zones is None else names
    )


def _shapes(
    drawing: Drawing, polygons: npt.NDArray[np.object_], cell: npt.NDArray[np.uint64]
) -> dict[str, Column]:
    rings = drawing.rings(polygons)
    step = rings.corner_offsets()
    return {
        "h3_high": ("u4", cell >> np.uint64(32)),
        "h3_low": ("u4", cell & np.uint64(0xFFFFFFFF)),
        # a hexagon has few corners, a district may have thousands
        "rings": ("u1" if rings.a_polygon.max() < 256 else "u4", rings.a_polygon),
        "corners": ("u1" if rings.corners.max() < 256 else "u4", rings.corners),
        "dx": ("i4", step[:, 0]),
        "dy": ("i4", step[:, 1]),
    }


def number_columns(
    table: pd.DataFrame,
    slot: IntArray,
    position: IntArray,
    statistics: Sequence[Statistic],
    unit: SpeedUnit,
) -> list[dict[str, Column]]:
    """Return for each slot its columns for ``pack``: cell, status, counts if public, and all numbers.

    ``table`` is the published one; ``slot`` and ``position`` (G,) give each row's slot and cell. Numbers of
    ``statistics`` are in ``unit``.
    """
    import pandas as pd

    statuses = [status.value for status in BinStatus]
    codes = {
        each: pd.Index(statuses).get_indexer(pd.Index(table[f"{each.stem}_status"])) for each in statistics
    }
    found = []
    shown = {}
    for each in statistics:
        numbers = dict(
            zip(("value", "low", "high"), files_classes.shown_numbers(table, each, unit), strict=True)
        )
        named = _columns(table, each, unit)
        if "outer_low" in named:
            outer = files_classes.shown_numbers(table, each, unit, outer=True)[1:]
            numbers |= dict(zip(("outer_low", "outer_high"), outer, strict=True))
        for name, column in named.items():
            if name not in numbers:
                numbers[name] = table[column].to_numpy(np.float64)
        shown[each] = numbers
    counts = [name for name in ("vehicles", "records") if not table[name].isna().all()]
    for place, number_of_slot in enumerate(np.unique(slot)):
        rows = np.flatnonzero(slot == number_of_slot)
        columns: dict[str, Column] = {f"cell_{place}": ("u4", position[rows])}
        for name in counts:
            columns[f"{name}_{place}"] = ("u4", table[name].to_numpy(np.int64)[rows])
        for number, statistic in enumerate(statistics):
            stem = f"_{place}_{number}"
            for name, values in shown[statistic].items():
                columns[name + stem] = thousandths_column(values[rows])
            columns["status" + stem] = ("u1", codes[statistic][rows])
        found.append(columns)
    return found


_SCRIPTS = re.compile(
    rb'id="data">(.*?)</script>\s*<script type="text/plain" id="numbers">(.*?)</script>', re.S
)
_LATER = re.compile(rb'<script type="application/json" class="later">(.*?)</script>', re.S)


def unpack(page: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the columns that ``pack`` put into an HTML ``page``, by name; raise ValueError if none."""
    found = _SCRIPTS.search(page)
    if found is None:
        raise ValueError("this is no page of a map")
    columns = {}
    blocks = [json.loads(found[1]) | {"numbers": found[2]}, *map(json.loads, _LATER.findall(page))]
    for block in blocks:
        packed, start = zlib.decompress(base64.b64decode(block["numbers"])), 0
        for part in block["parts"]:
            kind, length = TYPES[part["type"]], int(part["length"])
            piece = np.frombuffer(packed[start : start + length * kind.itemsize], np.uint8)
            start += len(piece)
            columns[str(part["name"])] = np.frombuffer(piece.reshape(kind.itemsize, length).T.tobytes(), kind)
    return columns


def _columns(table: pd.DataFrame, statistic: Statistic, unit: SpeedUnit) -> dict[str, str]:
    """Return the published column of each number of ``statistic`` on the page, by its name on the page."""
    column, stem = statistic.column(unit), statistic.stem
    if column + files_classes.READ_ENDS[0] not in table:
        return {"value": column, "low": f"{column}_low", "high": f"{column}_high"}
    names = ("low", "high", "outer_low", "outer_high")
    ends = dict(zip(names, (*files_classes.READ_ENDS, *files_classes.ENDS), strict=True))
    compared = {each: f"{stem}_{each}_chance" for each in ("slower", "faster")}
    compared |= {"scheduled": f"{column}_scheduled"}
    compared |= {f"share{end}": f"{stem}_of_scheduled{end}" for end in ("", *files_classes.ENDS)}
    return (
        {"value": column}
        | {name: column + end for name, end in ends.items()}
        | {name: each for name, each in compared.items() if each in table}
    )


def _statistic_view(
    release: Release, table: pd.DataFrame, number: int, statistic: Statistic, language: Language
) -> dict[str, Any]:
    """Return what template and script need of one statistic; breaks, widths, limits and "most" in its unit.

    "columns" names, for every number that the page has of it, the published column.
    """
    unit, stated = release.request.display_unit, release.mechanism_stated(statistic)
    chances = [language.gettext(each) for each in files_classes.CHANCE_WORDS]
    shares = files_classes.classes_in_words(files_classes.SHARE_BREAKS, language)
    breaks = files_classes.shown_breaks(statistic, release.request.bound, unit)
    widths = files_classes.shown_width_breaks(statistic, release.request.bound, unit)
    level = files_classes.shown_level(release, statistic)
    labels = {
        Statistic.MEAN: (language.gettext("Mean speed (over GPS records)"), language.gettext("Mean")),
        Statistic.VARIANCE: (
            language.gettext("How much speeds differ (standard deviation, over GPS records)"),
            language.gettext("Standard deviation"),
        ),
        Statistic.VEHICLE_MEAN: (
            language.gettext("Mean speed (every vehicle weighs the same)"),
            language.gettext("Mean by vehicle"),
        ),
    }
    if statistic not in labels:
        brief = language.translate_sentence(statistic.words)
        brief = brief[0].upper() + brief[1:]
        labels[statistic] = language.gettext("{quantile} (their mean speeds)", quantile=brief), brief
    label, brief = labels[statistic]
    often, columns = chance_in_words(level, language), _columns(table, statistic, unit)
    if stated.interval_kind != IntervalKind.CALIBRATED:
        often = language.gettext("at least {often}", often=often)
    by_chance = (
        *(language.gettext("slower: {chance}", chance=each) for each in reversed(chances)),
        language.gettext("neither is more likely than not"),
        *(language.gettext("faster: {chance}", chance=each) for each in chances),
    )
    by_share = (*shares[:3], language.gettext("neither is sure, or no service"), *shares[3:])
    # the class letters, and what they mean in words
    legends = {
        "classes": (files_classes.PLAIN, files_classes.classes_in_words(breaks, language)),
        "width_classes": (files_classes.WIDTHS, files_classes.classes_in_words(widths, language)),
        "chance_classes": (files_classes.CHANCES, by_chance),
        "share_classes": (files_classes.CHANCES, by_share),
    }
    return {
        "number": number,
        "columns": columns,
        "stem": statistic.stem,
        "label": label,
        "brief": brief,
        "unit": unit.label,
        # what is shown is the root of what the columns hold
        "root": statistic.power == 2,
        "most": files_classes.shown_largest(statistic, release.request.bound, unit),
        "limits": files_classes.hatch_limits(breaks),
        # how often the truth lies in the interval that is read, and in the wider one, if there is one
        "often": often,
        "rest": chance_in_words(release.request.interval_level, language)
        if release.estimates[statistic].posterior
        else "",
        # whether it is compared with the city, with a timetable
        "chances": "slower" in columns,
        "timetable": "share" in columns,
        "kind": stated.interval_kind,
        "calibration": "" if stated.calibration is None else stated.calibration.in_words,
        "breaks": breaks,
        "widths": widths,
        **{name: [*zip(letters, texts, strict=True)] for name, (letters, texts) in legends.items()},
    }


def chance_in_words(level: float, language: Language) -> str:
    """Return a probability ``level`` (0 to 1) in words, such as "4 times in 5"."""
    found = Fraction(level).limit_denominator(1000)
    return language.gettext("{times} times in {all}", times=found.numerator, all=found.denominator)


def _plain_rows(
    release: Release, table: pd.DataFrame, view: Mapping[str, Any], language: Language
) -> list[dict[str, str]]:
    """Return the lines of the table that is there without JavaScript: the first slot, the first statistic."""
    statistic = published_statistics(release)[view["number"]]
    rows = np.flatnonzero(release.slot == release.slot.min())[:MOST_PLAIN_ROWS]
    numbers = np.column_stack(files_classes.shown_numbers(table, statistic, release.request.display_unit))[
        rows
    ]
    lines, spelled = [], release.grid.spelled(release.cell)
    places = places_in_words(release, rows, language)
    for row, place, (value, low, high) in zip(rows.tolist(), places, numbers.tolist(), strict=True):
        read = files_classes.number_in_words(value, low, high, view["most"])
        ends = {"low": language.number(read.low), "high": language.number(read.high), "unit": view["unit"]}
        said = language.translate_sentence(read.value)
        lines.append(
            {
                "place": place,
                "value": f"{said} {view['unit']}" if read.low else said,
                "interval": language.gettext("{low} and {high} {unit}", **ends) if read.low else "",
                "status": language.translate_sentence(str(release.status[row])),
                "hex_id": spelled[row],
            }
        )
    return lines


_CLASSES = (
    (files_classes.PLAIN, files_classes.COLOURS),
    (files_classes.HATCHED, files_classes.COLOURS),
    (files_classes.WIDTHS, files_classes.WIDTH_COLOURS),
    (files_classes.CHANCES, files_classes.CHANCE_COLOURS),
)
LOOKS: Mapping[str, Look] = {
    letter: Look(colour, files_classes.ink_on(letter) if letter in files_classes.HATCHED else None)
    for letters, colours in _CLASSES
    for letter, colour in zip(letters, colours, strict=True)
} | {
    files_classes.WITHHELD: Look("#c4c4c4", "#4d4d4d"),
    files_classes.UNINFORMATIVE: Look("#ffffff", "#767676"),
    files_classes.ABSENT: Look("#ffffff", None),
}
"""Of every class letter. The script knows hatching, dots (withheld) and small crosses (uninformative)."""
