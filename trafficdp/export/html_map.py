"""The offline map: one HTML file with everything in it, which asks no network for anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import jinja2
import numpy as np
import numpy.typing as npt
import pandas as pd

from trafficdp.errors import DataError
from trafficdp.export.classes import ABSENT, COLOURS, HATCHED, PLAIN, breaks_of, hatch_limit, letters_of
from trafficdp.export.columns import published_statistics, reasons, unit_label
from trafficdp.export.disclosure import disclosed
from trafficdp.export.drawing import Drawing
from trafficdp.export.file import replace_file
from trafficdp.export.frame import unique_polygons
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.published import published_frame
from trafficdp.privacy.release import BinStatus, Release

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("trafficdp.export", "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
_LABELS = {
    Statistic.MEAN: "Mean speed (over GPS fixes)",
    Statistic.VARIANCE: "Variance of speed (over GPS fixes)",
    Statistic.VEHICLE_MEAN: "Mean speed (every vehicle weighs the same)",
}


@dataclass(frozen=True, slots=True)
class LegendClass:
    """One line of a legend: the class letters, and the values in words."""

    letter: str
    text: str


@dataclass(frozen=True)
class StatisticRow:
    """One statistic of one slot: a letter for every cell, then numbers and statuses a bin."""

    letters: str
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]
    status: list[int]


@dataclass(frozen=True)
class SlotView:
    """One slot: which cells have a bin in it, and its statistics."""

    bins: list[int]
    statistics: tuple[StatisticRow, ...]


@dataclass(frozen=True)
class StatisticView:
    """One statistic as the template needs it."""

    column: str
    label: str
    description: str
    unit: str
    limit: str
    classes: tuple[LegendClass, ...]


def write_html(release: Release, path: Path) -> None:
    """Write the map of ``release`` to ``path``. DataError without disclosure; else as ``replace_file``."""
    replace_file(path, html_bytes(release))


def html_bytes(release: Release) -> bytes:
    """Return the map of ``release`` as UTF-8 HTML; the same release gives the same bytes.

    Cells are drawn once; every slot and statistic adds one letter a cell (its class) and its numbers.
    """
    groups = {name: release.disclosure[name] for name in _needed_groups(release)}
    if not release.bins:
        raise DataError("the release has no bins, so there is nothing to draw")
    polygons, position = unique_polygons(release)
    drawing = Drawing.of(polygons)
    table = published_frame(release)
    views = _views(release, table, position, len(polygons))
    text = _ENVIRONMENT.get_template("map.html").render(
        release=release,
        groups=groups,
        drawing=drawing,
        cells=zip(drawing.paths(polygons), views[0].statistics[0].letters, strict=True),
        outline=drawing.outline(release.grid.area.geometry),
        statistics=[_statistic_view(release, each) for each in published_statistics(release)],
        slots=[release.slots[slot].label for slot in _slots(release)],
        colours=list(
            zip(PLAIN, HATCHED, COLOURS, [_ink(number) for number in range(len(COLOURS))], strict=True)
        ),
        level=format(100 * release.interval_level, ".6g"),
        pattern=min(max(15, drawing.width // 150), 30),
        data={
            "cells": table["h3"].iloc[np.unique(position, return_index=True)[1]].tolist(),
            "statuses": [status.value for status in BinStatus],
            "reasons": [reasons(release)[status.value] for status in BinStatus],
            "level": format(100 * release.interval_level, ".6g"),
            "views": [asdict(view) for view in views],
        },
    )
    return text.encode()


def _needed_groups(release: Release) -> tuple[str, ...]:
    for group, field in (("identity", "publisher"), ("coverage", "place"), ("unit", "not_protected")):
        disclosed(release, group, field)
    disclosed(release, "guarantee", "in_words")
    disclosed(release, "honesty", "counts_revealed")
    return ("identity", "coverage", "unit", "guarantee", "honesty")


def _slots(release: Release) -> list[int]:
    return [int(slot) for slot in np.unique(release.slot)]


def _views(
    release: Release, table: pd.DataFrame, position: npt.NDArray[np.int64], cells: int
) -> list[SlotView]:
    views = []
    for slot in _slots(release):
        rows = np.flatnonzero(release.slot == slot)
        part, place = table.iloc[rows], position[rows]
        statistics = (
            _statistic_row(release, each, part, place, cells) for each in published_statistics(release)
        )
        views.append(SlotView(place.tolist(), tuple(statistics)))
    return views


def _statistic_row(
    release: Release, statistic: Statistic, part: pd.DataFrame, place: npt.NDArray[np.int64], cells: int
) -> StatisticRow:
    codes = {status.value: number for number, status in enumerate(BinStatus)}
    unit, column = release.display_unit, statistic.column(release.display_unit)
    value, low, high = (part[column + suffix].to_numpy() for suffix in ("", "_low", "_high"))
    status = part[f"{statistic.stem}_status"].to_numpy(dtype=object)
    breaks = breaks_of(statistic, release.bound, unit)
    limit = hatch_limit(statistic, release.bound, unit)
    letters = np.full(cells, ABSENT)
    letters[place] = letters_of(value, low, high, status, breaks, limit)
    return StatisticRow(
        letters="".join(letters.tolist()),
        value=_numbers(value),
        low=_numbers(low),
        high=_numbers(high),
        status=[codes[each] for each in status],
    )


def _numbers(column: npt.NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in (column + 0.0).tolist()]


def _statistic_view(release: Release, statistic: Statistic) -> StatisticView:
    unit = release.display_unit
    breaks = [format(each, "g") for each in breaks_of(statistic, release.bound, unit)]
    texts = [f"under {breaks[0]}"]
    texts += [f"{low} to {high}" for low, high in pairwise(breaks)]
    texts += [f"{breaks[-1]} and more"]
    return StatisticView(
        column=statistic.column(unit),
        label=_LABELS[statistic],
        description=statistic.description,
        unit=unit_label(statistic, unit),
        limit=format(hatch_limit(statistic, release.bound, unit), "g"),
        classes=tuple(LegendClass(letter, text) for letter, text in zip(PLAIN, texts, strict=True)),
    )


def _ink(number: int) -> str:
    """Colour of hatch lines that stands out from class ``number``: white on dark, black on light."""
    return "#ffffff" if number < len(COLOURS) // 2 else "#000000"
