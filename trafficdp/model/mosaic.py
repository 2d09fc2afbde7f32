"""A map of hexagons of several sizes: which bins it publishes. They decide the size of all others too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from trafficdp._validate import integer_between
from trafficdp.errors import UsageError
from trafficdp.model.slot import SlotKind, kinds_of

CellArray = npt.NDArray[np.uint64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
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
