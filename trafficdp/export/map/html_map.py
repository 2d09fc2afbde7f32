"""The offline map: one HTML file with everything in it, which asks no network for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trafficdp.errors import DataError
from trafficdp.export.files.classes import (
    ABSENT,
    CHANCE_BREAKS,
    CHANCE_COLOURS,
    CHANCES,
    COLOURS,
    HATCHED,
    PLAIN,
    UNINFORMATIVE,
    WIDTH_COLOURS,
    WIDTHS,
    WITHHELD,
    classes_in_words,
    ink_on,
)
from trafficdp.export.files.columns import published_statistics, reasons, withheld_because
from trafficdp.export.files.disclosure import on_city_clocks
from trafficdp.export.files.frame import unique_polygons
from trafficdp.export.files.shown import (
    ENDS,
    READ_ENDS,
    level_read,
    read_number,
    shown_breaks,
    shown_hatch_limit,
    shown_largest,
    shown_numbers,
    shown_outer,
    shown_width_breaks,
)
from trafficdp.export.map.drawing import Drawing, outlines_shown
from trafficdp.export.map.library import LIBRARY
from trafficdp.export.map.payload import lines_of_text, pack, thousandths
from trafficdp.export.map.surroundings import AROUND, area_columns, context_columns, sources, tile_server
from trafficdp.export.map.templating import fill_template
from trafficdp.model import QUANTILES, Statistic
from trafficdp.privacy.estimate import BinStatus, IntervalKind
from trafficdp.privacy.release import Release, published_frame

if TYPE_CHECKING:
    import pandas as pd

Column = tuple[str, npt.ArrayLike]
MOST_PLAIN_ROWS = 500
_CHANCES = ("city", "slower", "faster")
_OF_SCRIPT = (
    *("columns", "stem", "brief", "unit", "root", "most", "limit", "often", "rest", "breaks", "widths"),
    "posterior",
)
_BRIEF = {each: each.words.capitalize() for each in QUANTILES} | {
    Statistic.MEAN: "Mean",
    Statistic.VARIANCE: "Standard deviation",
    Statistic.VEHICLE_MEAN: "Mean by vehicle",
}
_LABELS = {each: f"{each.words.capitalize()} (their mean speeds)" for each in QUANTILES} | {
    Statistic.MEAN: "Mean speed (over GPS records)",
    Statistic.VARIANCE: "How much speeds differ (standard deviation, over GPS records)",
    Statistic.VEHICLE_MEAN: "Mean speed (every vehicle weighs the same)",
}


@dataclass(frozen=True, slots=True)
class LegendClass:
    """One line of a legend: the class letter, and the values in words."""

    letter: str
    text: str


@dataclass(frozen=True)
class StatisticView:
    """One statistic as template and script need it. Breaks, widths, limit and ``most`` are in ``unit``.

    ``columns`` names, for every number that the page has of it, the published column. ``root``: whether what
    is shown is the root of what they hold. ``often`` says how often the truth lies in the interval that is
    read, ``rest`` in the wider one ("" where there is none), ``calibration`` how intervals without a theorem
    did.
    """

    number: int
    columns: dict[str, str]
    stem: str
    label: str
    brief: str
    unit: str
    root: bool
    most: float
    limit: float
    level: str
    often: str
    rest: str
    posterior: bool
    kind: str
    calibration: str
    breaks: tuple[float, ...]
    widths: tuple[float, ...]
    classes: tuple[LegendClass, ...]
    width_classes: tuple[LegendClass, ...]
    chance_classes: tuple[LegendClass, ...]


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
    polygons, position = unique_polygons(release)
    polygons = polygons if release.grid.zones is None else outlines_shown(polygons)
    drawing = Drawing.of(polygons, hexagons=release.grid.zones is None)
    table = published_frame(release)
    views = [
        _statistic_view(release, number, each) for number, each in enumerate(published_statistics(release))
    ]
    slots = [int(slot) for slot in np.unique(release.slot)]
    parts, numbers = pack(
        _shapes(drawing, polygons, np.unique(release.cell))
        | {"places": lines_of_text(release.place[np.unique(position, return_index=True)[1]])}
        | area_columns(release.grid.area, drawing.cut)
        | context_columns(release.grid.context, drawing.cut)
        | _numbers(release, slots, table, position)
    )
    number = "H3" if release.grid.zones is None else "Number"
    looks = {letter: asdict(look) for letter, look in LOOKS.items()}
    data: dict[str, Any] = {
        "noun": release.grid.noun,
        "number": number,
        "statuses": [status.value for status in BinStatus],
        "reasons": [reasons(release)[status.value] for status in BinStatus],
        "slots": [release.slots[slot].label for slot in slots],
        "looks": looks,
        "statistics": [{name: getattr(view, name) for name in _OF_SCRIPT} for view in views],
        "chances": CHANCE_BREAKS,
        "parts": [asdict(part) for part in parts],
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
    tiles = tile_server(release.grid.context)
    if tiles is not None:
        data["tiles"] = tiles.url
    text = fill_template(
        "map.html",
        noun=release.grid.noun,
        number=number,
        withheld=withheld_because(release),
        groups=release.disclosure,
        made=on_city_clocks(release.created_at, release.grid.period.time_zone),
        library=LIBRARY,
        sources=sources(release.grid.context),
        tiles=tiles,
        plain=_plain_rows(release, table, views[0]),
        statistics=views,
        slots=data["slots"],
        looks=looks,
        live=live_seconds is not None,
        data=data,
        numbers=numbers,
    )
    return text.encode()


def _shapes(
    drawing: Drawing, polygons: npt.NDArray[np.object_], cell: npt.NDArray[np.uint64]
) -> dict[str, Column]:
    rings = drawing.rings(polygons)
    step = rings.steps()
    return {
        "h3_high": ("u4", cell >> np.uint64(32)),
        "h3_low": ("u4", cell & np.uint64(0xFFFFFFFF)),
        # a hexagon has few corners, a district may have thousands
        "rings": ("u1" if rings.a_polygon.max() < 256 else "u4", rings.a_polygon),
        "corners": ("u1" if rings.corners.max() < 256 else "u4", rings.corners),
        "dx": ("i4", step[:, 0]),
        "dy": ("i4", step[:, 1]),
    }


def _numbers(
    release: Release, slots: list[int], table: pd.DataFrame, position: npt.NDArray[np.int64]
) -> dict[str, Column]:
    """The columns of every slot: ``cell_s``, counts where they are public, and every statistic's numbers."""
    import pandas as pd

    statuses = [status.value for status in BinStatus]
    codes = {
        each: pd.Index(statuses).get_indexer(pd.Index(table[f"{each.stem}_status"]))
        for each in published_statistics(release)
    }
    columns: dict[str, Column] = {}
    shown = {each: _shown_columns(release, table, each) for each in published_statistics(release)}
    for place, slot in enumerate(slots):
        rows = np.flatnonzero(release.slot == slot)
        columns[f"cell_{place}"] = ("u4", position[rows])
        for name, counts in (("vehicles", release.vehicles), ("records", release.records)):
            if counts is not None:
                columns[f"{name}_{place}"] = ("u4", counts[rows])
        for number, statistic in enumerate(published_statistics(release)):
            stem = f"_{place}_{number}"
            for name, numbers in shown[statistic].items():
                columns[name + stem] = thousandths(numbers[rows])
            columns["status" + stem] = ("u1", codes[statistic][rows])
    return columns


def _shown_columns(
    release: Release, table: pd.DataFrame, statistic: Statistic
) -> dict[str, npt.NDArray[np.float64]]:
    """Every number that the page has of ``statistic``, by name, (G,) each."""
    unit = release.display_unit
    found = dict(zip(("value", "low", "high"), shown_numbers(table, statistic, unit), strict=True))
    if release.estimates[statistic].posterior:
        outer = shown_outer(table, statistic, unit)
        found |= dict(zip(("outer_low", "outer_high"), outer, strict=True))
        names = _columns(release, statistic)
        found |= {each: table[names[each]].to_numpy(dtype=np.float64) for each in _CHANCES}
    return found


def _columns(release: Release, statistic: Statistic) -> dict[str, str]:
    """The published column of every number that the page has of ``statistic``, by its name on the page."""
    column, stem = statistic.column(release.display_unit), statistic.stem
    if not release.estimates[statistic].posterior:
        return {"value": column, "low": f"{column}_low", "high": f"{column}_high"}
    ends = {"low": READ_ENDS[0], "high": READ_ENDS[1], "outer_low": ENDS[0], "outer_high": ENDS[1]}
    chances = {"city": f"{column}_city"} | {each: f"{stem}_{each}_chance" for each in ("slower", "faster")}
    return {"value": column} | {name: column + end for name, end in ends.items()} | chances


def _statistic_view(release: Release, number: int, statistic: Statistic) -> StatisticView:
    unit, kind = release.display_unit, release.interval_kind(statistic)
    breaks, widths = (find(statistic, release.bound, unit) for find in (shown_breaks, shown_width_breaks))
    level, posterior = level_read(release, statistic), bool(release.estimates[statistic].posterior)
    sure = "" if kind is IntervalKind.CALIBRATED else "at least "
    return StatisticView(
        number=number,
        columns=_columns(release, statistic),
        stem=statistic.stem,
        label=_LABELS[statistic],
        brief=_BRIEF[statistic],
        unit=unit.label,
        root=statistic.power == 2,
        most=shown_largest(statistic, release.bound, unit),
        limit=shown_hatch_limit(statistic, release.bound, unit),
        level=f"{100 * level:.6g}",
        often=f"{sure}{times_in(level)}",
        rest=times_in(release.interval_level) if posterior else "",
        posterior=posterior,
        kind=kind.value,
        calibration=release.calibration(statistic),
        breaks=breaks,
        widths=widths,
        classes=_legend(PLAIN, classes_in_words(breaks)),
        width_classes=_legend(WIDTHS, classes_in_words(widths)),
        chance_classes=_legend(CHANCES, classes_in_words(CHANCE_BREAKS, " %")),
    )


def times_in(level: float) -> str:
    """Return a chance as people say it: "4 times in 5"."""
    found = Fraction(level).limit_denominator(1000)
    return f"{found.numerator} times in {found.denominator}"


def _plain_rows(release: Release, table: pd.DataFrame, view: StatisticView) -> list[dict[str, str]]:
    """Return the lines of the table that is there without JavaScript: the first slot, the first statistic."""
    statistic = published_statistics(release)[view.number]
    rows = np.flatnonzero(release.slot == release.slot.min())[:MOST_PLAIN_ROWS]
    numbers = np.column_stack(shown_numbers(table, statistic, release.display_unit))[rows]
    lines, spelled = [], release.grid.spelled(release.cell)
    for row, (value, low, high) in zip(rows.tolist(), numbers.tolist(), strict=True):
        read = read_number(value, low, high, view.most)
        lines.append(
            {
                "place": str(release.place[row]),
                "value": f"{read.value} {view.unit}" if read.low else read.value,
                "interval": f"{read.low} and {read.high} {view.unit}" if read.low else "",
                "status": str(release.status[row]),
                "h3": spelled[row],
            }
        )
    return lines


def _legend(letters: str, texts: Sequence[str]) -> tuple[LegendClass, ...]:
    return tuple(LegendClass(*each) for each in zip(letters, texts, strict=True))


LOOKS: Mapping[str, Look] = (
    {letter: Look(colour, None) for letter, colour in zip(PLAIN, COLOURS, strict=True)}
    | {letter: Look(colour, ink_on(letter)) for letter, colour in zip(HATCHED, COLOURS, strict=True)}
    | {letter: Look(colour, None) for letter, colour in zip(WIDTHS, WIDTH_COLOURS, strict=True)}
    | {letter: Look(colour, None) for letter, colour in zip(CHANCES, CHANCE_COLOURS, strict=True)}
    | {
        WITHHELD: Look("#c4c4c4", "#4d4d4d"),
        UNINFORMATIVE: Look("#ffffff", "#4d4d4d"),
        ABSENT: Look("#ffffff", None),
    }
)
"""Of every class letter. The script knows hatching, dots (withheld) and crosses (uninformative)."""
