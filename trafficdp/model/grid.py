"""The declared grid: hexagons or zones times slots of one kind; and maps of hexagons of several sizes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp.errors import ConfigError, UsageError, integer_between
from trafficdp.model.area import EVERYTHING, Selection, StudyArea
from trafficdp.model.context import ContextLayer
from trafficdp.model.period import Period
from trafficdp.model.slot import LONGER, SlotKind, kinds_of
from trafficdp.model.zones import Zones

BoolArray = npt.NDArray[np.bool_]
CellArray = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]


_RESOLUTION_SHIFT, _RESOLUTION_MASK = np.uint64(52), np.uint64(15)


@dataclass(frozen=True, slots=True)
class Mosaic:
    """``resolutions`` falls from the finest; ``bins`` are the published (cell, slot), rising.

    None of them lies within another (not checked). A finest bin in none of them lies, withheld, in its
    largest ancestor that holds none of them (``binning.mosaic``). ``half_width`` is what was asked of every
    interval, in the unit of the speed bound. Bins may also be of ``longer`` slots (``model.slot``);
    going up from the finest bins, cells grow before slots do when ``cells_first``, after them otherwise.
    Raises UsageError for resolutions that do not fall, and bins of other resolutions or out of order.
    """

    resolutions: tuple[int, ...]
    bins: tuple[tuple[int, int], ...]
    half_width: Fraction
    longer: tuple[SlotKind, ...] = ()
    cells_first: bool = True

    def __post_init__(self) -> None:
        for resolution in self.resolutions:
            integer_between(0, 15, resolution=resolution)
        if not self.resolutions or list(self.resolutions) != sorted(set(self.resolutions), reverse=True):
            raise UsageError(
                "resolutions of a map do not fall", got=self.resolutions, expected="such as (8, 7, 6)"
            )
        known = np.isin(resolution_of(self.cell), self.resolutions)
        if not bool(known.all()) or list(self.bins) != sorted(set(self.bins)):
            raise UsageError(
                "published bins of a map are out of order or of other resolutions",
                got=f"{len(self.bins)} bins",
                expected="different bins of its resolutions, rising by cell, then slot",
            )

    @property
    def cell(self) -> CellArray:
        """Cells of the published bins."""
        return np.array([cell for cell, _ in self.bins], dtype=np.uint64)

    @property
    def slot(self) -> IntArray:
        """Slots of the published bins."""
        return np.array([slot for _, slot in self.bins], dtype=np.int64)

    def publishes(self, cell: CellArray, slot: IntArray) -> BoolArray:
        """Return for every bin whether it is one of the published ones, shape (n,)."""
        return among(cell, slot, self.cell, self.slot)

    def bins_per_resolution(self) -> dict[int, int]:
        """Return how many published bins each of ``resolutions`` has."""
        found = resolution_of(self.cell)
        return {each: int(np.count_nonzero(found == each)) for each in self.resolutions}

    def to_facts(self) -> dict[str, object]:
        """Return the mosaic as plain JSON values."""
        facts: dict[str, object] = {
            "resolutions": list(self.resolutions),
            "bins": [[format(cell, "x"), slot] for cell, slot in self.bins],
            "half_width": str(self.half_width),
        }
        if self.longer:
            facts |= {"longer": [kind.value for kind in self.longer], "cells_first": self.cells_first}
        return facts

    @classmethod
    def from_facts(
        cls,
        resolutions: Iterable[int],
        bins: Iterable[tuple[str, int]],
        half_width: str,
        longer: Iterable[str] = (),
        cells_first: bool = True,
    ) -> Mosaic:
        """Return the mosaic that ``to_facts`` wrote; called with its members as keywords."""
        pairs = tuple((int(cell, 16), slot) for cell, slot in bins)
        kinds = tuple(SlotKind(name) for name in longer)
        return cls(tuple(resolutions), pairs, Fraction(half_width), kinds, cells_first)

    def levels(self, kind: SlotKind) -> tuple[tuple[int, SlotKind], ...]:
        """Return (resolution, kind of slot) of every level, from the finest, whose slots are of ``kind``."""
        return levels_of(self.resolutions, (kind, *self.longer), self.cells_first)

    def bins_per_level(self, kind: SlotKind) -> dict[tuple[int, SlotKind], int]:
        """Return how many published bins each level has."""
        resolution, kinds = resolution_of(self.cell), kinds_of(self.slot, kind)
        return {
            level: int(np.count_nonzero((resolution == level[0]) & (kinds == level[1])))
            for level in self.levels(kind)
        }


def levels_of(
    resolutions: tuple[int, ...], kinds: tuple[SlotKind, ...], cells_first: bool
) -> tuple[tuple[int, SlotKind], ...]:
    """Return the levels from (finest, shortest) to (coarsest, longest): along cells first, or slots first."""
    if cells_first:
        return (
            *((resolution, kinds[0]) for resolution in resolutions),
            *((resolutions[-1], kind) for kind in kinds[1:]),
        )
    return (
        *((resolutions[0], kind) for kind in kinds),
        *((resolution, kinds[-1]) for resolution in resolutions[1:]),
    )


def resolution_of(cells: CellArray) -> IntArray:
    """Return the resolution of every H3 cell, shape (n,): bits 52 to 55 of its index."""
    return ((cells >> _RESOLUTION_SHIFT) & _RESOLUTION_MASK).astype(np.int64)


def among(cell: CellArray, slot: IntArray, of_cell: CellArray, of_slot: IntArray) -> BoolArray:
    """Return for every (cell, slot) whether it occurs among (of_cell, of_slot), shape (n,)."""
    cell_number = np.unique(np.concatenate([of_cell, cell]), return_inverse=True)[1]
    slots, slot_number = np.unique(np.concatenate([of_slot, slot]), return_inverse=True)
    key = cell_number * len(slots) + slot_number
    return np.isin(key[len(of_cell) :], key[: len(of_cell)])


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
