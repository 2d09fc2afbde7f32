"""What a notebook shows: a card of facts, a release with its map and promise, a plot, the page itself."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trafficdp.errors import UsageError, one_of
from trafficdp.export.files import classes
from trafficdp.export.files.language import ENGLISH, Language, fill_template, render_sentence
from trafficdp.export.files.tables import CRS, published_statistics, unique_polygons
from trafficdp.export.map.html_map import html_bytes, places_in_words
from trafficdp.export.report.maps import ReportMaps, fullest_slot, legend
from trafficdp.model import Statistic
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import Release, published_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_TABLE = 10
SHOW = ("value", "uncertainty")
_GREY, _WHITE, _INK = "#c4c4c4", "#ffffff", "#4d4d4d"


@dataclass(frozen=True)
class Explored:
    """The page of a release, in a frame of a notebook; it asks no network for anything."""

    release: str
    page: bytes
    height: int

    def __repr__(self) -> str:
        return f"<the page of {self.release}: a notebook shows it>"

    def _repr_html_(self) -> str:
        # an attribute: quotes and ampersands are what would end it
        page = html.escape(self.page.decode(), quote=True)
        style = f"width:100%;height:{self.height}px;border:1px solid #767676"
        return f'<iframe title="Map of {self.release}" srcdoc="{page}" style="{style}"></iframe>'


def card(
    title: str,
    rows: Sequence[Sequence[str]],
    *,
    columns: Sequence[str] = (),
    sentences: Sequence[str] = (),
    language: Language = ENGLISH,
    **picture: object,
) -> str:
    """Return HTML for a notebook: a title, perhaps a map, a table and sentences."""
    values: dict[str, object] = {"figure": None} | picture
    return fill_template(
        "card.html", language, title=title, rows=rows, columns=columns, sentences=sentences, **values
    )


def release_in_words(release: Release) -> str:
    """Return one line on ``release``: what it is of, and how many numbers it has."""
    told = [BinStatus.RELEASED.value, BinStatus.UNINFORMATIVE.value]
    numbers = int(np.isin(release.status, told).sum())
    place, period = release.disclosure.coverage.place, release.grid.period
    days = render_sentence("days", period.first, period.last)
    return (
        f"<release {release.id}: {place}, {days}, {numbers:,} hexagons and times "
        f"with numbers, {release.bins - numbers:,} without, {release.disclosure.guarantee.in_short}>"
    )


def release_card(release: Release) -> str:
    """Return HTML: the map of the first statistic, the first numbers of its slot, and the promise.

    In the language of the release.
    """
    disclosed, period = release.disclosure, release.grid.period
    language = Language.of(disclosed.catalogue.language)
    days = render_sentence("days", period.first, period.last, language=language)
    title = render_sentence("title", disclosed.coverage.place, language=language) + f", {days} ({release.id})"
    sentences = (
        f"{language.gettext('Protected:')} {language.translate_sentence(disclosed.unit.protected)}",
        language.translate_sentence(disclosed.guarantee.in_words),
    )
    if not release.bins:
        return card(title, (), sentences=sentences, language=language)
    statistic = published_statistics(release)[0]
    slot = fullest_slot(release, statistic)
    atlas, unit = ReportMaps.of(release), release.request.display_unit
    level = language.number(f"{100 * classes.shown_level(release, statistic):g}")
    when = f", {language.translate_sentence(release.slots[slot].label)}" if atlas.has_several_slots else ""
    value = render_sentence("value_and_unit", statistic, unit.label, language=language)
    rows = np.flatnonzero(release.slot == slot)
    numbers = np.column_stack(classes.shown_numbers(published_frame(release), statistic, unit))
    most = classes.shown_largest(statistic, release.request.bound, unit)
    shown = rows[:LONGEST_TABLE]
    read = [classes.number_in_words(value, low, high, most) for value, low, high in numbers[shown].tolist()]
    rest = len(rows) - len(read)
    more = language.gettext(
        "and {number} more: {call} has all.", number=language.fixed(rest), call="to_frame()"
    )
    return card(
        title,
        [
            (
                place,
                language.number(language.gettext(each.value)),
                language.gettext(
                    "{first} to {last}", first=language.number(each.low), last=language.number(each.high)
                )
                if each.low
                else "",
            )
            for place, each in zip(places_in_words(release, shown, language), read, strict=True)
        ],
        columns=(language.gettext("Where"), value, language.gettext("{level} % interval", level=level)),
        sentences=(*([more] if rest else []), *sentences),
        language=language,
        figure=atlas.figure(statistic, slot, {}, small=False),
        caption=f"{value}{when}.",
        legend=legend(release, statistic, atlas.has_several_slots),
        release=release,
        statistic=statistic,
    )


def explore(release: Release, height: int) -> Explored:
    """Return the page of ``release`` for a notebook, ``height`` pixels high. Raises as ``html_bytes``."""
    return Explored(release.id, html_bytes(release), height)


def plot(release: Release, statistic: str, slot: str | None, show: str, axes: Axes | None) -> Axes:
    """Draw hexagons at a slot (by its label) with matplotlib: fixed classes, withheld ones hatched.

    A variance is drawn as standard deviation. ``show`` "uncertainty" draws the width of the interval instead
    of the value. Raises UsageError for what the release does not have.
    """
    import geopandas
    import matplotlib.pyplot as plt
    from matplotlib.colors import BoundaryNorm, ListedColormap

    wanted = Statistic(one_of([each.value for each in published_statistics(release)], statistic=statistic))
    one_of(SHOW, show=show)
    if not release.bins:
        raise UsageError("the release has no bins, so there is nothing to draw")
    labels = {facts.label: number for number, facts in release.slots.items()}
    number = fullest_slot(release, wanted) if slot is None else labels[one_of([*labels], slot=slot)]
    unit, width = release.request.display_unit, show == "uncertainty"
    polygons, position = unique_polygons(release)
    here = release.slot == number
    value, low, high = classes.shown_numbers(published_frame(release), wanted, unit)
    hexagons = geopandas.GeoDataFrame(
        {"shown": high - low if width else value, "status": release.estimates[wanted].status},
        geometry=polygons[position],
        crs=CRS,
    )[here]
    if axes is None:
        axes = plt.subplots(layout="constrained")[1]
    coloured = hexagons[hexagons["shown"].notna()]
    for rows, colour, hatch in (
        (hexagons[hexagons["shown"].isna()], _GREY, "//"),
        (coloured[coloured["status"] == BinStatus.UNINFORMATIVE.value], _WHITE, "xx"),
    ):
        if len(rows) and not (width and hatch == "xx"):
            rows.plot(ax=axes, color=colour, edgecolor=_INK, linewidth=0.4, hatch=hatch)
    if not width:
        coloured = coloured[coloured["status"] != BinStatus.UNINFORMATIVE.value]
    largest = classes.shown_largest(wanted, release.request.bound, unit)
    breaks = (classes.shown_width_breaks if width else classes.shown_breaks)(
        wanted, release.request.bound, unit
    )
    edges = [0.0, *breaks, max(largest, breaks[-1] * 1.001)]
    noun = render_sentence("capital", render_sentence("noun", wanted))
    label = f"{'Width of the interval' if width else noun}, {unit.label}"
    colours = ListedColormap(list(classes.WIDTH_COLOURS if width else classes.COLOURS))
    norm = BoundaryNorm(edges, len(edges) - 1)
    if len(coloured):
        coloured.plot(ax=axes, column="shown", cmap=colours, norm=norm, edgecolor=_INK, linewidth=0.4)
    for layer in release.grid.context:
        shapes = geopandas.GeoSeries(list(layer.shapes), crs=CRS)
        lines = shapes[shapes.geom_type.isin(["LineString", "MultiLineString"])]
        if len(lines):
            for colour, line in ((_WHITE, 1.2), (_INK, 0.5)):
                lines.plot(ax=axes, color=colour, linewidth=line)
    # streets and rivers go on where the hexagons end
    west, south, east, north = hexagons.total_bounds
    edge = 0.05 * max(east - west, north - south)
    axes.set(xlim=(west - edge, east + edge), ylim=(south - edge, north + edge))
    drawn: Any = plt.cm.ScalarMappable(norm=norm, cmap=colours)
    axes.figure.colorbar(drawn, ax=axes, label=label, ticks=edges, format="%g", spacing="uniform", shrink=0.8)
    when = f", {release.slots[number].label}" if len(release.slots) > 1 else ""
    axes.set_title(f"{noun}{when}" if not width else f"{noun}: how uncertain{when}")
    axes.set_axis_off()
    return axes
