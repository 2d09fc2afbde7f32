"""A city's own zones, such as districts: public polygons, numbered from 1 in the order of their file."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import shapely
from shapely.geometry.base import BaseGeometry

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
