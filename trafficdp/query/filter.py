"""A question's WHERE as what it selects: days, hours of the week, places, hexagons."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt

from trafficdp.binning.cells import resolutions_of
from trafficdp.model import DAYS, HOURS_A_WEEK, Grid, Period, Place, Selection, StudyArea, by_day

Week = npt.NDArray[np.bool_]
"""Which hours of the week, shape (168,), Monday 00:00 first."""
DAY_NAMES = tuple(day.lower() for day in DAYS)


@dataclass(frozen=True, slots=True)
class Filter:
    """The restrictions of a question, all of which a record must meet; ``first`` and ``last`` included."""

    first: date
    last: date
    selection: Selection

    @classmethod
    def of(
        cls, period: Period, week: Week, places: list[tuple[Place, ...]], cells: frozenset[int] | None
    ) -> Filter:
        """Return the one normal form of these restrictions.

        Hours on weekdays that the period does not have are left out, and all hours are no restriction.
        Raises UsageError when no hour or no cell is left.
        """
        present = _present(period)
        hours = np.flatnonzero(week & present)
        clauses = {tuple(sorted({place.area.hash for place in clause})): clause for clause in places}
        return cls(
            period.first,
            period.last,
            Selection(
                None if len(hours) == int(present.sum()) else tuple(hours.tolist()),
                tuple(_sorted(clauses[key]) for key in sorted(clauses)),
                None if cells is None else tuple(sorted(cells)),
            ),
        )

    def to_sql(self, period: Period, resolution: int | None) -> list[str]:
        """Return the predicates, in one spelling; ``period`` is the configured one."""
        parts = []
        if (self.first, self.last) != (period.first, period.last):
            parts.append(f"date BETWEEN '{self.first.isoformat()}' AND '{self.last.isoformat()}'")
        if self.selection.hours_of_week is not None:
            present = _present(narrowed(period, self.first, self.last))
            parts.append(_week_to_sql(self.selection.hours_of_week, int(present.sum()) // 24))
        parts += [_places_to_sql(clause) for clause in self.selection.places]
        if self.selection.cells is not None:
            parts.append(_cells_to_sql(self.selection.cells, resolution))
        return parts


def zones_of(grid: Grid) -> tuple[Place, ...]:
    """Return the zones of the configured map as places; none where it has hexagons."""
    zones = grid.zones
    if zones is None:
        return ()
    return tuple(Place(*each) for each in zip(zones.names, map(StudyArea, zones.shapes), strict=True))


def _sorted(clause: tuple[Place, ...]) -> tuple[Place, ...]:
    return tuple(sorted({place.area.hash: place for place in clause}.values(), key=lambda place: place.name))


def _present(period: Period) -> Week:
    """The hours of the weekdays that the period has."""
    days = min((period.last - period.first).days, 6)
    weekdays = [(period.first + timedelta(days=each)).weekday() for each in range(days + 1)]
    present = np.zeros((7, 24), dtype=np.bool_)
    present[weekdays] = True
    return present.reshape(HOURS_A_WEEK)


def _week_to_sql(hours_of_week: tuple[int, ...], days_there_are: int) -> str:
    groups = []
    for days, hours in by_day(hours_of_week):
        conditions = []
        if len(days) < days_there_are:
            conditions.append(_numbers_to_sql("weekday", days, [f"'{name}'" for name in DAY_NAMES]))
        if len(hours) < 24:
            conditions.append(_numbers_to_sql("hour", hours, [str(hour) for hour in range(24)]))
        groups.append(" AND ".join(conditions))
    return groups[0] if len(groups) == 1 else "(" + " OR ".join(f"({group})" for group in groups) + ")"


def _numbers_to_sql(name: str, numbers: list[int], spelled: list[str]) -> str:
    """Return that ``name`` is one of ``numbers``, whose texts are in ``spelled``."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and last - first + 1 == len(numbers):
        return f"{name} BETWEEN {spelled[first]} AND {spelled[last]}"
    return _one_of(name, [spelled[number] for number in numbers])


def _places_to_sql(clause: tuple[Place, ...]) -> str:
    if len(clause) == 1 and clause[0].name.startswith(BOX):
        return clause[0].name
    return _one_of("area", [text_literal(place.name) for place in clause])


def _cells_to_sql(cells: tuple[int, ...], resolution: int | None) -> str:
    own = int(resolutions_of(np.array(cells[:1], dtype=np.uint64))[0])
    texts = [f"'{cell:x}'" for cell in cells]
    return _one_of("cell" if own == resolution else f"h3({own})", texts)


def _one_of(name: str, values: list[str]) -> str:
    return f"{name} = {values[0]}" if len(values) == 1 else f"{name} IN ({', '.join(values)})"


def text_literal(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


BOX = "in_box("


def box_name(west: float, south: float, east: float, north: float) -> str:
    """Return how a box is written, which is its name as a place."""
    return f"{BOX}{west!r}, {south!r}, {east!r}, {north!r})"


def without_restriction(period: Period) -> Filter:
    """Return the filter that keeps every record of ``period``."""
    return Filter(period.first, period.last, Selection())


def narrowed(period: Period, first: date, last: date) -> Period:
    """Return the days of ``period`` from ``first`` to ``last``; raises ConfigError when there are none."""
    return replace(period, first=max(period.first, first), last=min(period.last, last))
