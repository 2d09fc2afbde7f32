"""Where and when a record must be sent to count: the study area, and a choice of places and hours within it.

A selection looks at nothing but where and when a record was sent, never at its speed, so choosing one says as
much about a vehicle as the counts that are public already.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import shapely
from shapely.geometry.base import BaseGeometry

from trafficdp.errors import ConfigError, UsageError


@dataclass(frozen=True)
class StudyArea:
    """Where a record must lie to count. ``geometry`` is in degrees, x = longitude, y = latitude.

    A box whose west is greater than its east crosses the antimeridian.
    """

    geometry: BaseGeometry

    @classmethod
    def from_bbox(cls, west: float, south: float, east: float, north: float) -> StudyArea:
        """Build the box; raise ConfigError unless -180..180, -90..90 and south < north, west != east."""
        corners = f"[{west}, {south}, {east}, {north}]"
        valid = -180 <= west <= 180 and -180 <= east <= 180 and -90 <= south < north <= 90 and west != east
        if not valid:
            raise ConfigError(
                "study area is not a box", got=corners, expected="[west, south, east, north] in degrees"
            )
        if west < east:
            return cls(shapely.box(west, south, east, north))
        return cls(
            shapely.MultiPolygon(
                [shapely.box(west, south, 180, north), shapely.box(-180, south, east, north)]
            )
        )

    @classmethod
    def from_geojson(cls, text: str, *, where: str) -> StudyArea:
        """Read a Polygon, MultiPolygon, Feature or FeatureCollection; raise ConfigError otherwise."""
        try:
            document = json.loads(text)
            features = document.get("features", [document])
            shapes = [shapely.from_geojson(json.dumps(item.get("geometry", item))) for item in features]
            geometry = shapely.union_all(shapes)
        except (ValueError, AttributeError, TypeError, shapely.errors.ShapelyError) as error:
            raise ConfigError(f"study area {where} is not GeoJSON", expected="polygons in WGS84") from error
        if (
            geometry.geom_type not in ("Polygon", "MultiPolygon")
            or geometry.is_empty
            or not geometry.is_valid
        ):
            raise ConfigError(
                f"study area {where} is not a valid polygon",
                got=geometry.geom_type,
                expected="a valid, non-empty Polygon or MultiPolygon in WGS84",
            )
        west, south, east, north = geometry.bounds
        if west < -180 or east > 180 or south < -90 or north > 90:
            raise ConfigError(
                f"study area {where} leaves the globe", expected="WGS84 degrees, longitude first"
            )
        return cls(geometry)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the normalised geometry: what the manifest and the vault pin."""
        canonical = shapely.to_wkb(shapely.normalize(self.geometry), byte_order=1)
        return hashlib.sha256(canonical).hexdigest()

    @cached_property
    def is_box(self) -> bool:
        """Whether the area is one axis-parallel box (tested by comparison only, much faster)."""
        geometry = self.geometry
        return geometry.geom_type == "Polygon" and bool(geometry.equals(shapely.box(*geometry.bounds)))

    def contains(
        self, latitude: npt.NDArray[np.float64], longitude: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.bool_]:
        """Return for every position whether it lies in the area, its boundary included.

        Positions that are not finite or off the globe are outside.
        """
        west, south, east, north = self.geometry.bounds
        inside = (latitude >= south) & (latitude <= north) & (longitude >= west) & (longitude <= east)
        if self.is_box:
            return inside
        chosen = np.flatnonzero(inside)
        shapely.prepare(self.geometry)
        inside[chosen] = shapely.intersects_xy(self.geometry, longitude[chosen], latitude[chosen])
        return inside

    def to_geojson(self) -> dict[str, object]:
        """Return the geometry as a GeoJSON object."""
        result: dict[str, object] = json.loads(shapely.to_geojson(self.geometry))
        return result


HOURS_A_WEEK = 168
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Place:
    """An area with the name that people call it by."""

    name: str
    area: StudyArea


@dataclass(frozen=True, slots=True)
class Selection:
    """Restrictions that a record must meet, all of them; None or nothing: no restriction.

    ``hours_of_week`` are local clock hours counted from Monday 00:00, 0 to 167, sorted. Of every tuple in
    ``places`` one place must hold the record. ``cells`` are H3 cells of one resolution, sorted, one of which
    must hold it.

    Raises UsageError for an empty tuple, which no record could meet, and for hours that are none.
    """

    hours_of_week: tuple[int, ...] | None = None
    places: tuple[tuple[Place, ...], ...] = ()
    cells: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.hours_of_week == () or self.cells == () or () in self.places:
            raise UsageError("the selection holds no place or no time", expected="at least one")
        if self.hours_of_week and not all(0 <= hour < HOURS_A_WEEK for hour in self.hours_of_week):
            raise UsageError("an hour of the week is out of range", expected="0 to 167")

    @property
    def everything(self) -> bool:
        """Whether nothing is restricted."""
        return self.hours_of_week is None and not self.places and self.cells is None

    @property
    def key(self) -> dict[str, object]:
        """What decides which records count, as JSON values: equal for equal restrictions, however named."""
        clauses = {tuple(sorted({place.area.hash for place in clause})) for clause in self.places}
        return {
            "hours_of_week": None if self.hours_of_week is None else list(self.hours_of_week),
            "places": [list(clause) for clause in sorted(clauses)],
            "cells": None if self.cells is None else [format(cell, "x") for cell in self.cells],
        }

    def in_words(self) -> str:
        """Return the restriction as one phrase, such as "Monday to Friday 07:00-10:00; within centre"."""
        parts = [] if self.hours_of_week is None else [hours_in_words(self.hours_of_week)]
        parts += ["within " + " or ".join(place.name for place in clause) for clause in self.places]
        if self.cells is not None:
            number = len(self.cells)
            parts.append(f"within {number} listed hexagon" + ("s" if number > 1 else ""))
        return "; ".join(parts) or "all of the area and period"


EVERYTHING = Selection()
"""No restriction."""


def by_day(hours_of_week: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Return [(days, hours)]: days 0 (Monday) to 6 that have the same clock hours, in order of the days."""
    hours_of_day: dict[int, list[int]] = {}
    for hour in hours_of_week:
        hours_of_day.setdefault(hour // 24, []).append(hour % 24)
    groups: dict[tuple[int, ...], list[int]] = {}
    for day, hours in sorted(hours_of_day.items()):
        groups.setdefault(tuple(hours), []).append(day)
    return [(days, list(hours)) for hours, days in groups.items()]


def runs(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the stretches (first, last) of consecutive numbers in a sorted list."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def hours_in_words(hours_of_week: tuple[int, ...]) -> str:
    """Return hours of the week as people say them: "Monday to Friday 07:00-10:00, Sunday"."""
    parts = []
    for days, hours in by_day(hours_of_week):
        named = [_days(first, last) for first, last in runs(days)]
        times = [f"{first:02d}:00-{last + 1:02d}:00" for first, last in runs(hours)]
        parts.append(" and ".join(named) + ("" if len(hours) == 24 else " " + " and ".join(times)))
    return ", ".join(parts)


def _days(first: int, last: int) -> str:
    if first == last:
        return DAYS[first]
    return f"{DAYS[first]} {'to' if last > first + 1 else 'and'} {DAYS[last]}"
