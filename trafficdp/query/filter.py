"""What WHERE selects, in one normal form: days, hours of the week, places, hexagons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from trafficdp.binning.cells import resolutions_of
from trafficdp.model import DAYS, HOURS_A_WEEK, Grid, Period, Place, Selection, StudyArea, by_day
from trafficdp.query.dialect import RefusedError, integer_of, name_of, string_of, text_of, unwrapped

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


def narrowed(period: Period, first: date, last: date) -> Period:
    """Return the days of ``period`` from ``first`` to ``last``; raises ConfigError when there are none."""
    return replace(period, first=max(period.first, first), last=min(period.last, last))


_FORM = "hour BETWEEN 7 AND 9"
_DAY = "weekday = 'monday'"
Numbers = npt.NDArray[np.int64]
_HOURS: Numbers = np.arange(HOURS_A_WEEK, dtype=np.int64)
_COMPARISONS: dict[type[exp.Expr], Callable[[Numbers, int], Week]] = {
    exp.EQ: lambda numbers, value: numbers == value,
    exp.NEQ: lambda numbers, value: numbers != value,
    exp.LT: lambda numbers, value: numbers < value,
    exp.LTE: lambda numbers, value: numbers <= value,
    exp.GT: lambda numbers, value: numbers > value,
    exp.GTE: lambda numbers, value: numbers >= value,
}
_TURNED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}


def week_of(node: exp.Expr) -> Week:
    """Return which hours of the week meet a predicate; raise RefusedError for one that is another."""
    node = unwrapped(node)
    if isinstance(node, (exp.And, exp.Or)):
        parts = [week_of(part) for part in node.flatten()]
        together = np.logical_and if isinstance(node, exp.And) else np.logical_or
        met: Week = together.reduce(parts)
        return met
    if isinstance(node, exp.Not):
        return ~week_of(node.this)
    if isinstance(node, exp.Between):
        name = _name(node.this, node)
        numbers, low, high = _numbers(name), _value(node.args["low"], name), _value(node.args["high"], name)
        if low > high:
            works = f"{name} >= ... OR {name} <= ..."
            raise RefusedError("nothing lies between these", works, text_of(node))
        return (numbers >= low) & (numbers <= high)
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        name = _name(node.this, node)
        return np.isin(_numbers(name), [_value(each, name) for each in node.expressions])
    kind = type(node)
    if kind in _COMPARISONS:
        left, right = unwrapped(node.this), unwrapped(node.expression)
        if name_of(left) is None:
            left, right, kind = right, left, _TURNED.get(kind, kind)
        name = _name(left, node)
        return _COMPARISONS[kind](_numbers(name), _value(right, name))
    raise RefusedError("this predicate cannot be read", _FORM, text_of(node))


def _name(node: exp.Expr, whole: exp.Expr) -> str:
    name = name_of(unwrapped(node))
    if name in ("weekday", "hour"):
        return name
    raise RefusedError("this predicate cannot be read", _FORM, text_of(whole))


def _numbers(name: str) -> Numbers:
    return _HOURS // 24 if name == "weekday" else _HOURS % 24


def _value(node: exp.Expr, name: str) -> int:
    if name == "hour":
        return integer_of(node, 0, 24, "an hour", _FORM)
    text = string_of(node, "a weekday", _DAY).strip().lower()
    found = [day for day, full in enumerate(DAY_NAMES) if len(text) >= 3 and full.startswith(text)]
    if len(found) != 1:
        raise RefusedError("there is no such weekday", _DAY)
    return found[0]
