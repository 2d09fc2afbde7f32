"""What a report shows, ready for its template: facts, pictures, lists and diagrams. No words, no HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trafficdp.export.map.drawing import Picture
from trafficdp.export.report.certainty import Interval
from trafficdp.model import Statistic
from trafficdp.privacy.disclosure import BinNumbers
from trafficdp.privacy.release import Release

# Small diagrams of one area over its time slots: a line in a band that holds the truth.


FloatArray = npt.NDArray[np.float64]
WIDTH, HEIGHT = 300, 150
LEFT, RIGHT, TOP, BOTTOM = 36, 8, 10, 24
_STEPS = (1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: where, and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Panel:
    """One diagram; paths are in drawing units."""

    band: str
    line: str
    dots: tuple[tuple[float, float], ...]
    rows: tuple[Tick, ...]
    columns: tuple[Tick, ...]


def panel(labels: list[str], numbers: tuple[FloatArray, FloatArray, FloatArray], top: float) -> Panel:
    """Return the diagram of value, low and high over the slots (shape (S,), NaN where there is none).

    The axis of numbers runs from 0 to ``top``, the same in all diagrams of a page.
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


def nice_top(largest: float) -> float:
    """Return the least of _STEPS times a power of ten that is at least ``largest`` > 0."""
    power = 10.0 ** math.floor(math.log10(largest))
    return next(step * power for step in (*_STEPS, 20.0) if step * power >= largest)


def _y(number: float, top: float) -> float:
    return HEIGHT - BOTTOM - min(number / top, 1.0) * (HEIGHT - TOP - BOTTOM)


# What a report shows, ready for its template: facts, pictures, lists and diagrams. No words, no HTML.


@dataclass(frozen=True, slots=True)
class RankedBin:
    """One compared bin: its position among the compared, and how many others it is told apart from."""

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
    def silent(self) -> bool:
        """Whether no two bins can be told apart."""
        return not self.low and not self.high


@dataclass(frozen=True, slots=True)
class CityComparison:
    """How many of ``compared`` bins are surely (SURE) slower, or faster, than ``city`` by a fifth of it."""

    city: float
    compared: int
    slower: int
    faster: int


@dataclass(frozen=True, slots=True)
class Figure:
    """A map, which time it shows ("" where there is one only), and how many places have which look.

    Looks of a map of numbers are coloured, hatched (of those), withheld, noisy and empty; of one of changes
    fell, rose and unsure.
    """

    picture: Picture
    slot: str
    looks: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LegendLine:
    """A sample of a look, its name, and the public fact to be told of it, if any."""

    sample: Picture
    look: str
    fact: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of a list: its mark on the map, place, slot and cell as they are called, and the number.

    ``value`` is as it is read, "" for a change; ``found`` its interval, None where that says nothing;
    ``others`` how many it is told apart from. In a ranking ``ends`` is the interval as it is read, and
    ``chance`` that to be slower, or faster, than the city.
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
    """The first ``rows`` of a list of ``told``; ``below``: of what is below others, or fell."""

    rows: tuple[Row, ...]
    told: int
    below: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One statistic. ``order`` is None where nothing is compared, ``figure`` where no map is drawn.

    ``all`` lists every number, where they are few and none can be told apart from another. Where a posterior
    compares with the ``city``, ``lists`` are the slowest and the fastest; else those told apart.
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
    """What changed since ``earlier``, over ``number`` common bins, if that can be ``compared``.

    ``average`` is None where no law says.
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
    """Two times of one place whose intervals are apart, by at least ``gap`` > 0."""

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


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report. Numbers are in the release's display unit, with ``digits`` decimals.

    ``several``: there is more than one time slot. ``level_read``: the level of the intervals that decide on
    hatching. ``calibrated``: intervals rest on trials, not on a
    theorem.
    """

    release: Release
    created: str
    several: bool
    digits: int
    bound: float
    level_read: float
    calibrated: bool
    main: Section
    timetable: AgainstTimetable | None
    times: SlotsSection | None
    others: tuple[Section, ...]
    change: Change | None
    change_legend: tuple[LegendLine, ...]
