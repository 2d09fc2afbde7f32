"""What a report shows, ready for its template: facts, pictures, lists and diagrams. No words, no HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trafficdp.arrays import FloatArray
from trafficdp.export.map.drawing import Picture
from trafficdp.export.report.certainty import Interval
from trafficdp.model import Statistic
from trafficdp.privacy.disclosure import BinNumbers
from trafficdp.privacy.release import Release

# Small diagrams of one area over its time slots: a line in a band that holds the truth.


WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 36, 8, 10, 24
_STEPS = (1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its position in drawing units, and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Panel:
    """The diagram of one place over the slots, in drawing units.

    ``band`` (intervals) and ``line`` (values) are SVG path data, ``dots`` the values as (x, y). ``rows`` and
    ``columns`` are the marks of both axes.
    """

    band: str
    line: str
    dots: tuple[tuple[float, float], ...]
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]


def panel(labels: list[str], numbers: tuple[FloatArray, FloatArray, FloatArray], top: float) -> Panel:
    """Return the diagram of ``numbers`` (value, low, high), shape (S,) each, over S slots named ``labels``.

    NaN stands where a slot has no number. The axis of numbers runs from 0 to ``top``, the same in all
    diagrams of a page.
    """
    value, low, high = numbers
    x = LEFT + (np.arange(len(labels)) + 0.5) * (WIDTH - LEFT - RIGHT) / len(labels)
    half = (WIDTH - LEFT - RIGHT) / len(labels) / 2
    there = ~np.isnan(value)
    band = "".join(
        f"M{a - half:.1f} {_y(up, top):.1f}h{2 * half:.1f}V{_y(down, top):.1f}h{-2 * half:.1f}z"
        for a, down, up in zip(x[there], low[there], high[there], strict=True)
    )
    steps = [
        f"{'L' if index and there[index - 1] else 'M'}{x[index]:.1f} {_y(value[index], top):.1f}"
        for index in np.flatnonzero(there)
    ]
    room = max(1, int((WIDTH - LEFT - RIGHT) / (6 * max(len(each) for each in labels) + 10)))
    every = math.ceil(len(labels) / room)
    return Panel(
        band,
        "".join(steps),
        tuple((round(float(x[i]), 1), round(_y(float(value[i]), top), 1)) for i in np.flatnonzero(there)),
        tuple(Tick(round(_y(share * top, top), 1), f"{share * top:g}") for share in (0, 0.5, 1)),
        tuple(Tick(round(float(x[i]), 1), labels[i]) for i in range(0, len(labels), every)),
    )


def axis_end(largest: float) -> float:
    """Return where an axis for numbers up to ``largest`` > 0 ends: a round number of at least that.

    It is the least of _STEPS times a power of ten.
    """
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (*_STEPS, 20.0) if step * power >= largest)


def _y(number: float, top: float) -> float:
    return HEIGHT - BOTTOM - min(number / top, 1.0) * (HEIGHT - TOP - BOTTOM)


@dataclass(frozen=True, slots=True)
class RankedBin:
    """A bin in a list of lower (or higher) bins, by its position among the compared ones.

    ``others`` is how many bins are proved higher (or lower) than it.
    """

    position: int
    others: int


@dataclass(frozen=True)
class Order:
    """Who is below and above whom, among ``compared`` bins.

    ``low`` and ``high`` list the bins told to be below (above) others, those told from most others first;
    ``low_half`` and ``high_half`` count the bins below (above) at least half of the others.
    """

    compared: int
    low: tuple[RankedBin, ...]
    high: tuple[RankedBin, ...]
    low_half: int
    high_half: int

    @property
    def proves_nothing(self) -> bool:
        """Whether no bin is proved below or above another."""
        return not self.low and not self.high


@dataclass(frozen=True, slots=True)
class CityComparison:
    """How many of ``compared`` bins are slower, or faster, than the speed ``city`` by a fifth of it.

    Bins count whose chance of that is SURE or more.
    """

    city: float
    compared: int
    slower: int
    faster: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn map. ``slot`` is the label of its time, "" where there is only one.

    ``looks`` counts the places by how they are painted: coloured, hatched (some of the coloured), withheld,
    noisy and empty on a map of numbers; fell, rose and unsure on one of changes.
    """

    picture: Picture
    slot: str
    looks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LegendLine:
    """One line of a legend: a sample, the name of what it stands for, and a public fact about it or ""."""

    sample: Picture
    look: str
    fact: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a list: a bin, by its mark on the map, place, slot and cell, and its number.

    ``value`` is rounded as its interval allows, "" for a change; ``found`` is the interval, None where it
    says nothing; ``others`` counts the bins that this one is told apart from. In a ranking, ``ends`` is the
    interval as text and ``chance`` the probability to be slower, or faster, than the city by a fifth.
    """

    mark: str
    place: str
    slot: str
    cell: str
    value: str
    found: Interval | None
    others: int = 0
    chance: float = 0.0
    ends: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ListedRows:
    """The first ``rows`` of a list of ``total`` bins; ``below``: they are lower than others, or fell."""

    rows: tuple[Row, ...]
    total: int
    below: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a report on one statistic.

    ``order`` is None where nothing is compared, ``figure`` where no map is drawn. ``all`` lists every
    number, where they are few and none can be told apart from another. Where a posterior compares bins with
    the ``city``, ``lists`` are the slowest and the fastest; else those that are proved lower or higher.
    """

    statistic: Statistic
    bins: BinNumbers
    average: Interval | None
    order: Order | None
    figure: Figure | None
    legend: tuple[LegendLine, ...]
    all: ListedRows | None
    lists: tuple[ListedRows, ...]
    city: CityComparison | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """What changed since ``earlier`` in ``number`` common bins.

    ``fell`` and ``rose`` count the bins whose interval of the change lies below 0, or above 0. ``compared``
    is False where no changes can be given. ``average`` is None where no law of the noise is known.
    """

    earlier: Release
    statistic: Statistic
    number: int
    compared: bool = False
    fell: int = 0
    rose: int = 0
    average: Interval | None = None
    figure: Figure | None = None
    lists: tuple[ListedRows, ...] = ()


@dataclass(frozen=True, slots=True)
class AgainstTimetable:
    """Of ``compared`` bins so many are ``slower``, or ``faster``, than scheduled, by their whole intervals.

    ``rows`` lists the first of the slower, with the scheduled speed and per cent of it.
    """

    compared: int
    slower: int
    faster: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class TimeDifference:
    """Labels of two time slots of one place whose intervals do not overlap.

    The true numbers differ by ``gap`` > 0 or more.
    """

    lowest: str
    highest: str
    gap: float


@dataclass(frozen=True, slots=True)
class PlaceOverTime:
    """One place over the time slots: mark on the map, diagram, and the two times furthest apart, if any."""

    mark: str
    place: str
    apart: TimeDifference | None
    drawn: Panel


@dataclass(frozen=True, slots=True)
class SlotsSection:
    """The section on time slots: small maps, unless they are too many, and diagrams from 0 to ``top``."""

    maps: tuple[Figure, ...]
    panels: tuple[PlaceOverTime, ...]
    top: float
