"""Public polygons and lines: a city's own zones, and what maps say of a place."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.model.json_codec import Text

# What public maps say of a place: streets, water, parks, names. It decides nothing about the numbers.


class ContextKind(StrEnum):
    """What a layer shows, and so how it is drawn and what it gives names to."""

    ROADS = "roads"
    WATER = "water"
    PARK = "park"
    BOUNDARY = "boundary"
    PLACE = "place"
    TRANSIT = "transit"
    TILES = "tiles"


@dataclass(frozen=True)
class ContextFile:
    """A layer as the configuration names it. ``name`` is the column with names (None: the usual one).

    ``path`` is the address of a server for TILES, as text.
    """

    path: Path | str
    kind: ContextKind
    name: str | None
    attribution: str


@dataclass(frozen=True)
class ContextLayer:
    """One public layer as the page shows it: simplified, cut to the study area.

    ``shapes`` are in degrees, longitude first; ``names`` has one text for each, "" for none. ``file`` is the
    file's name and ``sha256`` its hash (hexadecimal); ``attribution`` must be shown wherever the layer is.
    TILES have no shapes: ``file`` is the address of their server, and ``sha256`` the hash of that.
    """

    kind: ContextKind
    file: str
    sha256: str
    attribution: str
    names: tuple[str, ...]
    shapes: tuple[BaseGeometry, ...]

    def to_facts(self) -> dict[str, Any]:
        """Return the layer as plain JSON values."""
        import shapely

        packed = zlib.compress(shapely.to_wkb(shapely.GeometryCollection(list(self.shapes))), 9)
        return {
            "kind": self.kind.value,
            "file": self.file,
            "sha256": self.sha256,
            "attribution": self.attribution,
            "names": list(self.names),
            "shapes": base64.b64encode(packed).decode("ascii"),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> ContextLayer:
        """Return the layer that ``to_facts`` wrote."""
        import shapely

        collection = shapely.from_wkb(zlib.decompress(base64.b64decode(facts["shapes"])))
        return cls(
            ContextKind(facts["kind"]),
            facts["file"],
            facts["sha256"],
            facts["attribution"],
            tuple(facts["names"]),
            tuple(shapely.get_parts(collection)),
        )


# A city's own zones, such as districts: public polygons, numbered from 1 in the order of their file.


NOWHERE = 0
"""Stands for the number of a zone where a position lies in none."""


@dataclass(frozen=True)
class Zones:
    """What a map is cut into instead of hexagons. ``file`` is the file's name, ``sha256`` its hash.

    Zone number i + 1 is called ``names[i]``, different from all others, and has the shape ``shapes[i]``: a
    valid polygon or several, in degrees, longitude first. No two overlap, save by slivers of their borders.
    """

    file: str
    sha256: str
    names: tuple[str, ...]
    shapes: tuple[BaseGeometry, ...]

    @cached_property
    def key(self) -> str:
        """SHA-256 of all shapes in their order: what decides in which zone a position lies."""
        return hashlib.sha256(b"".join(shapely.to_wkb(list(self.shapes), byte_order=1))).hexdigest()

    def to_facts(self) -> dict[str, Any]:
        """Return the zones as plain JSON values."""
        packed = zlib.compress(shapely.to_wkb(shapely.GeometryCollection(list(self.shapes))), 9)
        return {
            "file": self.file,
            "sha256": self.sha256,
            "names": list(self.names),
            "shapes": base64.b64encode(packed).decode("ascii"),
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Zones:
        """Return the zones that ``to_facts`` wrote."""
        collection = shapely.from_wkb(zlib.decompress(base64.b64decode(facts["shapes"])))
        shapes = tuple(shapely.get_parts(collection))
        return cls(facts["file"], facts["sha256"], tuple(facts["names"]), shapes)


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """What open-data portals are told beside a map, as configured; ``previous`` names the map before it.

    ``licence`` is an SPDX identifier or an address, ``contact`` an e-mail address or an address, ``language``
    the BCP 47 tag of the keywords.
    """

    licence: Text | None = None
    contact: Text | None = None
    landing_page: Text | None = None
    keywords: tuple[Text, ...] = ()
    language: Text | None = None
    previous: Text | None = None


NO_CATALOGUE_ENTRY = CatalogueEntry()
"""Where nothing is configured."""
