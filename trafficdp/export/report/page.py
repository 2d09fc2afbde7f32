"""What a report shows, ready for its template: facts, pictures, lists and diagrams. No words, no HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trafficdp.export.map.picture import Picture
from trafficdp.export.report.certainty import Interval
from trafficdp.export.report.panel import Panel
from trafficdp.model import Statistic
from trafficdp.privacy.disclosure import BinNumbers
from trafficdp.privacy.release import Release


@dataclass(frozen=True, slots=True)
class Standing:
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
    low: tuple[Standing, ...]
    high: tuple[Standing, ...]
    low_half: int
    high_half: int

    @property
    def silent(self) -> bool:
        """Whether no two bins can be told apart."""
        return not self.low and not self.high


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
    ``others`` how many it is told apart from.
    """

    mark: str
    place: str
    slot: str
    cell: str
    value: str
    found: Interval | None
    others: int = 0


@dataclass(frozen=True, slots=True)
class Listed:
    """The first ``rows`` of a list of ``told``; ``below``: of what is below others, or fell."""

    rows: tuple[Row, ...]
    told: int
    below: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """One statistic. ``order`` is None where nothing is compared, ``figure`` where no map is drawn.

    ``all`` lists every number, where they are few and none can be told apart from another.
    """

    statistic: Statistic
    bins: BinNumbers
    average: Interval | None
    order: Order | None
    figure: Figure | None
    legend: tuple[LegendLine, ...]
    all: Listed | None
    lists: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What changed since ``earlier``, over ``number`` common bins; ``average`` is None where no law says."""

    earlier: Release
    statistic: Statistic
    number: int
    fell: int = 0
    rose: int = 0
    average: Interval | None = None
    figure: Figure | None = None
    lists: tuple[Listed, ...] = ()


@dataclass(frozen=True, slots=True)
class Apart:
    """Two times of one place whose intervals are apart, by at least ``gap`` > 0."""

    lowest: str
    highest: str
    gap: float


@dataclass(frozen=True, slots=True)
class PlaceOverTime:
    """One place over the time slots: mark on the map, diagram, and the two times furthest apart, if any."""

    mark: str
    place: str
    apart: Apart | None
    drawn: Panel


@dataclass(frozen=True, slots=True)
class Times:
    """The part on time slots: small maps, unless they are too many, and diagrams from 0 to ``top``."""

    maps: tuple[Figure, ...]
    panels: tuple[PlaceOverTime, ...]
    top: float


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report. Numbers are in the release's display unit, with ``digits`` decimals.

    ``several``: there is more than one time slot. ``limit``: width of an interval from which a place is
    hatched, ``level_read`` the level of that interval. ``calibrated``: intervals rest on trials, not on a
    theorem.
    """

    release: Release
    created: str
    several: bool
    digits: int
    bound: float
    limit: float
    level_read: float
    calibrated: bool
    main: Section
    times: Times | None
    others: tuple[Section, ...]
    change: Change | None
    change_legend: tuple[LegendLine, ...]
