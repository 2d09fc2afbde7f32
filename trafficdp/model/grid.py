"""The declared grid: hexagons or zones times slots of one kind, within an area and a period."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trafficdp._validate import integer_between
from trafficdp.errors import ConfigError, UsageError
from trafficdp.model.area import StudyArea
from trafficdp.model.context import ContextLayer
from trafficdp.model.mosaic import Mosaic
from trafficdp.model.period import Period
from trafficdp.model.selection import EVERYTHING, Selection
from trafficdp.model.slot import LONGER, SlotKind
from trafficdp.model.zones import Zones


@dataclass(frozen=True, slots=True)
class DayPart:
    """A named part of the local day: clock hours ``first_hour`` up to, not including, ``end_hour``.

    ``first_hour > end_hour`` runs past midnight (22 to 5, say).
    """

    name: str
    first_hour: int
    end_hour: int

    @property
    def hours(self) -> tuple[int, ...]:
        """The clock hours that belong to the part."""
        length = (self.end_hour - self.first_hour) % 24 or 24
        return tuple((self.first_hour + i) % 24 for i in range(length))


DEFAULT_DAY_PARTS = (
    DayPart("night", 22, 6),
    DayPart("morning peak", 6, 10),
    DayPart("midday", 10, 15),
    DayPart("afternoon peak", 15, 19),
    DayPart("evening", 19, 22),
)


@dataclass(frozen=True, slots=True)
class Grid:
    """What is binned: declared, never inferred from data.

    ``resolution`` is H3's, 0 to 15, or None with ``zones``: places are then these, by number; a record that
    lies in none does not count. ``day_parts`` counts only for SlotKind.DAY_PART and must cover
    each of the 24 clock hours exactly once. ``selection`` restricts which records count, by place and time.
    With a ``mosaic``, ``resolution`` is its finest one, and bins are of all its resolutions.
    ``context`` is what is drawn around the bins and names them; no bin depends on it.
    """

    resolution: int | None
    slot_kind: SlotKind
    area: StudyArea
    period: Period
    day_parts: tuple[DayPart, ...] = DEFAULT_DAY_PARTS
    selection: Selection = EVERYTHING
    mosaic: Mosaic | None = None
    context: tuple[ContextLayer, ...] = ()
    zones: Zones | None = None

    def __post_init__(self) -> None:
        if self.zones is None:
            integer_between(0, 15, resolution=self.resolution)
        elif self.resolution is not None or self.mosaic is not None:
            raise UsageError("a map of zones has no resolution", got=self.resolution)
        if self.mosaic is not None and self.mosaic.resolutions[0] != self.resolution:
            raise UsageError(
                "the finest resolution of the mosaic is not that of the grid",
                got=self.mosaic.resolutions[0],
                expected=self.resolution,
            )
        known = LONGER[self.slot_kind]
        if self.mosaic is not None and [k for k in known if k in self.mosaic.longer] != [*self.mosaic.longer]:
            raise UsageError(
                f"slots of kind {self.slot_kind.value} do not add up to longer ones of these kinds",
                got=", ".join(self.mosaic.longer),
                expected=", ".join(known) or "none",
            )
        covered = sorted(hour for part in self.day_parts for hour in part.hours)
        if covered != list(range(24)):
            raise ConfigError(
                "day parts do not cut the day", got=f"hours {covered}", expected="each hour 0 to 23 once"
            )

    @property
    def key(self) -> str:
        """SHA-256 of everything that decides which bin a record falls into."""
        facts: dict[str, object] = {
            "resolution": self.resolution,
            "slot_kind": self.slot_kind.value,
            "area": self.area.hash,
            "first": self.period.first.isoformat(),
            "last": self.period.last.isoformat(),
            "time_zone": self.period.time_zone,
            "day_parts": [[p.name, p.first_hour, p.end_hour] for p in self.day_parts]
            if self.slot_kind is SlotKind.DAY_PART
            else [],
        }
        if not self.selection.everything:
            facts["selection"] = self.selection.key
        if self.zones is not None:
            facts["zones"] = self.zones.key
        if self.mosaic is not None:
            facts["mosaic"] = self.mosaic.to_facts()
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def resolutions(self) -> tuple[int, ...]:
        """The resolutions that bins may have, from the finest."""
        if self.zones is not None:
            return ()
        return (self.hexagon_resolution,) if self.mosaic is None else self.mosaic.resolutions

    @property
    def hexagon_resolution(self) -> int:
        """The resolution of hexagons. Raises UsageError for a map of zones."""
        if self.resolution is None:
            raise UsageError(
                "this needs hexagons",
                got="a map of zones",
                todo="give [map] resolution instead of [map] zones, or --resolution",
            )
        return self.resolution

    def at(self, resolution: int) -> Grid:
        """Return the same grid with hexagons of ``resolution``, in one size."""
        return replace(self, resolution=resolution, zones=None, mosaic=None)

    @property
    def noun(self) -> str:
        """What people call a place of the map."""
        return "hexagon" if self.zones is None else "zone"

    def in_words(self) -> str:
        """What the places are."""
        if self.zones is not None:
            return f"{len(self.zones.names)} zones of {self.zones.file}"
        coarsest, finest = min(self.resolutions), max(self.resolutions)
        return f"H3 hexagons of resolution {finest if coarsest == finest else f'{coarsest} to {finest}'}"

    def spelled(self, cells: npt.NDArray[np.uint64]) -> list[str]:
        """Return the name in tables of every place: hexadecimal digits of H3, or the number of a zone."""
        form = "x" if self.zones is None else "d"
        return [format(cell, form) for cell in cells.tolist()]

    def read_spelled(self, texts: Iterable[str]) -> npt.NDArray[np.uint64]:
        """Return the places that ``spelled`` wrote. Raises ValueError for what it cannot have written."""
        base = 16 if self.zones is None else 10
        return np.array([int(text, base) for text in texts], dtype=np.uint64)

    def may_publish(self, cell: npt.NDArray[np.uint64], slot: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for every bin whether the grid lets it be published: all, or those of the mosaic."""
        if self.mosaic is None:
            return np.ones(len(cell), dtype=np.bool_)
        return self.mosaic.publishes(cell, slot)
