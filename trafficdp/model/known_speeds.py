"""What public sources say of speeds before a record is read: it moves what maps start from, and no charge."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trafficdp.model.json_codec import Text, as_json, from_json
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.speed import SpeedUnit

FloatArray = npt.NDArray[np.float64]
MOST_SOURCES = 4
"""Of speeds that are known before, for one map."""
NEWEST = "newest"


class KnowledgeKind(StrEnum):
    """What a public source of speeds is."""

    RELEASE = "release"
    TIMETABLE = "timetable"
    SPEEDS = "speeds"

    @property
    def noun(self) -> str:
        """What people are told that it is."""
        return _NOUNS[self]

    def share(self, relation: NeighbouringRelation) -> float:
        """Return how far a map starts from its speeds, 0 to 1; of a file at most.

        Chosen on days in Austin, 2015-03-07 to 2017-03-21: of a release 0.5 and 0.7 are nearly as good.
        """
        if self is KnowledgeKind.RELEASE:
            return 0.6
        return 1.0 if relation.hides_presence else 0.6


_NOUNS = {
    KnowledgeKind.RELEASE: "earlier release",
    KnowledgeKind.TIMETABLE: "timetable",
    KnowledgeKind.SPEEDS: "typical speeds of",
}


@dataclass(frozen=True)
class KnowledgeSource:
    """A public source of speeds as the configuration names it: a ``release``, or a file at ``path``.

    NEWEST is the newest release that was made of other records. ``licence`` and ``date`` are those of a file.
    Of typical speeds, ``column`` holds a speed in ``speed_unit`` (None: each says its own), or one of the
    ``classes`` of road, of which each has a speed (None: those of OpenStreetMap).
    """

    kind: KnowledgeKind
    release: str | None = None
    path: Path | None = None
    licence: str | None = None
    date: datetime.date | None = None
    column: str | None = None
    speed_unit: SpeedUnit | None = None
    classes: tuple[tuple[str, float], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """What a manifest says of one source: ``name`` is that of an earlier release of the store, or of a file.

    ``sha256`` is that of the release's table of cells, or of the file; ``share`` is how far a map starts from
    the source's speeds (0..1), of a file at most. ``licence`` and ``date`` are those of the file.
    """

    kind: KnowledgeKind
    name: Text
    licence: Text | None = None
    date: Text | None = None
    sha256: Text
    share: float

    @property
    def in_words(self) -> str:
        """Return the source as people are told it."""
        of_file = ", ".join(filter(None, (self.date, self.licence)))
        return f"the {self.kind.noun} {self.name}" + (f" ({of_file})" if of_file else "")


@dataclass(frozen=True, eq=False)
class PlaceSpeeds:
    """One source: ``speed`` (N,) of hexagons or zones ``cell``, in any unit; 0 or less, or NaN: not known.

    ``slot`` (N,) None: the same in all slots.
    """

    source: Knowledge
    cell: npt.NDArray[np.uint64]
    slot: npt.NDArray[np.int64] | None
    speed: FloatArray

    def at(self, cell: npt.NDArray[np.uint64], slot: npt.NDArray[np.int64]) -> FloatArray:
        """Return the speeds of bins (``cell``, ``slot``), NaN where none is known, shape (G,)."""
        import pandas as pd

        if self.slot is None:
            own, asked = pd.Index(self.cell), pd.Index(cell)
        else:
            own = pd.MultiIndex.from_arrays([self.cell, self.slot])
            asked = pd.MultiIndex.from_arrays([cell, slot])
        place = own.get_indexer(asked)
        found = np.where(place >= 0, self.speed[place], np.nan)
        return np.where(found > 0, found, np.nan)


@dataclass(frozen=True, eq=False)
class KnownSpeeds:
    """What K ``sources`` say of G bins: ``speed`` (K, G), each in a unit of its own, NaN: not known."""

    sources: tuple[Knowledge, ...]
    speed: FloatArray

    @classmethod
    def of(
        cls, sources: Sequence[PlaceSpeeds], cell: npt.NDArray[np.uint64], slot: npt.NDArray[np.int64]
    ) -> KnownSpeeds | None:
        """Return what ``sources`` say of bins; None without a source."""
        if not sources:
            return None
        return cls(
            tuple(each.source for each in sources), np.array([each.at(cell, slot) for each in sources])
        )

    @property
    def scheduled(self) -> FloatArray | None:
        """The speeds of the first timetable, m/s, shape (G,); None without one."""
        of_timetables = (
            own
            for source, own in zip(self.sources, self.speed, strict=True)
            if source.kind is KnowledgeKind.TIMETABLE
        )
        return next(of_timetables, None)

    def to_facts(self) -> dict[str, Any]:
        """Return it as JSON values."""
        speed = [[None if np.isnan(each) else each for each in own.tolist()] for own in self.speed]
        return {"sources": as_json(self.sources), "speed": speed}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> KnownSpeeds:
        """Return what ``to_facts`` wrote."""
        sources = tuple(from_json(Knowledge, each) for each in facts["sources"])
        return cls(sources, np.array(facts["speed"], dtype=np.float64))
