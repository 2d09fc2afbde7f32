"""WHERE: conditions on records, of place and time alone, in one normal form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta

import numpy as np
from sqlglot import exp

from trafficdp import model
from trafficdp.arrays import BoolArray, IntArray
from trafficdp.binning.cells import cells_from_text
from trafficdp.errors import TrafficdpError
from trafficdp.query import dialect
from trafficdp.store.store_files import quoted

# What WHERE selects, in one normal form: days, hours of the week, places, hexagons.


Week = BoolArray
"""Which hours of the week, shape (168,), Monday 00:00 first."""
DAY_NAMES = tuple(day.lower() for day in model.DAYS)


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions of a question on records, all of which must hold.

    Days run from ``first`` to ``last``, both included; ``selection`` holds the hours, areas and cells.
    """

    first: date
    last: date
    selection: model.Selection

    @classmethod
    def of(
        cls,
        period: model.Period,
        week: Week,
        places: list[tuple[model.Place, ...]],
        cells: frozenset[int] | None,
    ) -> Filter:
        """Return these conditions in one normal form, so that equal conditions are equal.

        ``week`` marks the allowed hours of the week. A record must lie in one place of every tuple in
        ``places``, and in one of ``cells`` (None: anywhere). Hours on weekdays that ``period`` does not have
        are left out, and all hours are no restriction. Raises UsageError when no hour or no cell is left.
        """
        present = _present(period)
        hours = np.flatnonzero(week & present)
        unique = [{place.area.hash: place for place in clause} for clause in places]
        clauses = {tuple(sorted(each)): each.values() for each in unique}
        return cls(
            period.first,
            period.last,
            model.Selection(
                None if len(hours) == int(present.sum()) else tuple(hours.tolist()),
                tuple(tuple(sorted(clauses[key], key=lambda place: place.name)) for key in sorted(clauses)),
                None if cells is None else tuple(sorted(cells)),
            ),
        )

    def to_sql(self, period: model.Period, resolution: int | None) -> list[str]:
        """Return the conditions as SQL predicates in one spelling; days of the whole ``period`` need none.

        ``period`` is the configured one, ``resolution`` the H3 resolution of the configured cells.
        """
        parts = []
        if (self.first, self.last) != (period.first, period.last):
            parts.append(f"date BETWEEN '{self.first.isoformat()}' AND '{self.last.isoformat()}'")
        if self.selection.hours_of_week is not None:
            present = _present(days_of_period(period, self.first, self.last))
            parts.append(_week_to_sql(self.selection.hours_of_week, int(present.sum()) // 24))
        for clause in self.selection.places:
            box = clause[0].name if len(clause) == 1 and clause[0].name.startswith(BOX) else None
            parts.append(box or _one_of("area", [quoted(place.name) for place in clause]))
        cells = self.selection.cells
        if cells is not None:
            own = int(model.resolution_of(np.array(cells[:1], dtype=np.uint64))[0])
            name = "cell" if own == resolution else f"h3({own})"
            parts.append(_one_of(name, [f"'{cell:x}'" for cell in cells]))
        return parts


def zones_of(grid: model.Grid) -> tuple[model.Place, ...]:
    """Return the zones of the configured map as places; none where it has hexagons."""
    zones = grid.zones
    if zones is None:
        return ()
    return tuple(
        model.Place(*each) for each in zip(zones.names, map(model.StudyArea, zones.shapes), strict=True)
    )


def _present(period: model.Period) -> Week:
    """Return a mask of the hours of the week, shape (168,): True on the weekdays that ``period`` has."""
    days = min((period.last - period.first).days, 6)
    weekdays = [(period.first + timedelta(days=each)).weekday() for each in range(days + 1)]
    present = np.zeros((7, 24), dtype=np.bool_)
    present[weekdays] = True
    return present.reshape(model.HOURS_A_WEEK)


def _week_to_sql(hours_of_week: tuple[int, ...], days_there_are: int) -> str:
    groups = []
    for days, hours in model.hours_by_day(hours_of_week):
        conditions = []
        if len(days) < days_there_are:
            conditions.append(_numbers_to_sql("weekday", days, [f"'{name}'" for name in DAY_NAMES]))
        if len(hours) < 24:
            conditions.append(_numbers_to_sql("hour", hours, [str(hour) for hour in range(24)]))
        groups.append(" AND ".join(conditions))
    return groups[0] if len(groups) == 1 else "(" + " OR ".join(f"({group})" for group in groups) + ")"


def _numbers_to_sql(name: str, numbers: list[int], spelled: list[str]) -> str:
    """Return the SQL predicate that ``name`` is one of ``numbers``; ``spelled[i]`` is the SQL of number i."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and last - first + 1 == len(numbers):
        return f"{name} BETWEEN {spelled[first]} AND {spelled[last]}"
    return _one_of(name, [spelled[number] for number in numbers])


def _one_of(name: str, values: list[str]) -> str:
    return f"{name} = {values[0]}" if len(values) == 1 else f"{name} IN ({', '.join(values)})"


def days_of_period(period: model.Period, first: date, last: date) -> model.Period:
    """Return the part of ``period`` from ``first`` to ``last``; raise ConfigError when it has no day."""
    return replace(period, first=max(period.first, first), last=min(period.last, last))


BOX = "in_box("
_HOUR = "hour BETWEEN 7 AND 9"
_DAY = "weekday = 'monday'"
_HOURS: IntArray = np.arange(model.HOURS_A_WEEK, dtype=np.int64)
_COMPARISONS: dict[type[exp.Expr], Callable[[IntArray, int], Week]] = {
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


def hours_of_predicate(node: exp.Expr) -> Week:
    """Return which hours of the week satisfy a SQL predicate on hour and weekday, as a mask, shape (168,).

    The first is Monday's hour from 00:00. AND, OR, NOT, comparisons, BETWEEN and IN are read. Raises
    RefusedError for every other predicate.
    """
    node = dialect.without_brackets(node)
    if isinstance(node, (exp.And, exp.Or)):
        parts = [hours_of_predicate(part) for part in node.flatten()]
        together = np.logical_and if isinstance(node, exp.And) else np.logical_or
        met: Week = together.reduce(parts)
        return met
    if isinstance(node, exp.Not):
        return ~hours_of_predicate(node.this)
    if isinstance(node, exp.Between):
        name = _name(node.this, node)
        numbers, low, high = _numbers(name), _value(node.args["low"], name), _value(node.args["high"], name)
        if low > high:
            works = f"{name} >= ... OR {name} <= ..."
            raise dialect.RefusedError("nothing lies between these", works, node)
        return (numbers >= low) & (numbers <= high)
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        name = _name(node.this, node)
        return np.isin(_numbers(name), [_value(each, name) for each in node.expressions])
    kind = type(node)
    if kind in _COMPARISONS:
        left, right = dialect.without_brackets(node.this), dialect.without_brackets(node.expression)
        if dialect.name_of(left) is None:
            left, right, kind = right, left, _TURNED.get(kind, kind)
        name = _name(left, node)
        return _COMPARISONS[kind](_numbers(name), _value(right, name))
    raise dialect.RefusedError("this predicate cannot be read", _HOUR, node)


def _name(node: exp.Expr, whole: exp.Expr) -> str:
    name = dialect.name_of(dialect.without_brackets(node))
    if name in ("weekday", "hour"):
        return name
    raise dialect.RefusedError("this predicate cannot be read", _HOUR, whole)


def _numbers(name: str) -> IntArray:
    return _HOURS // 24 if name == "weekday" else _HOURS % 24


def _value(node: exp.Expr, name: str) -> int:
    if name == "hour":
        return dialect.integer_of(node, 0, 24, "an hour", _HOUR)
    text = dialect.string_of(node, "a weekday", _DAY).strip().lower()
    found = [day for day, full in enumerate(DAY_NAMES) if len(text) >= 3 and full.startswith(text)]
    if len(found) != 1:
        raise dialect.RefusedError("there is no such weekday", _DAY)
    return found[0]


Named = Callable[[], Mapping[str, int | model.Place]]
"""Gives the hexagon or zone of every name of a place, in lower case."""
_VALUES = {
    "speed": "speeds are what is protected, and cannot be a condition",
    "vehicle": "no vehicle can be singled out",
    "plate": "no vehicle can be singled out",
    "vehicle_id": "no vehicle can be singled out",
    "latitude": "places are chosen by area, hexagon or box",
    "longitude": "places are chosen by area, hexagon or box",
    "timestamp": "times are chosen by date, weekday and hour",
    "slot": "times are chosen by date, weekday and hour",
}
_TIMES = "time >= '2026-03-02 07:00' AND time < '2026-03-02 09:00'"
_DAYS = "date BETWEEN '2026-03-02' AND '2026-03-08'"
_ONE_LIST = "only one list of hexagons can be given"
_CELLS = "cell = '861f8d567ffffff'"


@dataclass
class _Found:
    """The conditions read so far; local time runs from ``start`` to ``end``, without ``end``."""

    first: date
    last: date
    week: Week = field(default_factory=lambda: np.ones(model.HOURS_A_WEEK, dtype=np.bool_))
    places: list[tuple[model.Place, ...]] = field(default_factory=list)
    cells: frozenset[int] | None = None
    start: datetime = datetime.min
    end: datetime = datetime.max
    remarks: list[str] = field(default_factory=list)


def read_where(
    where: exp.Expr | None,
    period: model.Period,
    areas: Mapping[str, model.StudyArea],
    named: Named,
    resolution: int | None,
    remarks: list[str],
) -> Filter:
    """Return the conditions of the WHERE clause ``where``; None has no conditions.

    ``areas`` and ``named`` are the places that may be called by name; ``resolution`` is the H3 resolution of
    the question's ``cell``. A sentence is added to ``remarks`` where a time is not read to the second.
    Raises RefusedError for any other kind of predicate.
    """
    found = _Found(period.first, period.last, remarks=remarks)
    with dialect.reading("WHERE"):
        for predicate in [] if where is None else _conjuncts(where):
            _read(predicate, found, areas, named, resolution)
        _apply_time(found)
        try:
            chosen = days_of_period(period, found.first, found.last)
        except TrafficdpError:
            works = f"date = '{period.first.isoformat()}'"
            raise dialect.RefusedError("no day of the configured period is left", works) from None
        try:
            return Filter.of(chosen, found.week, found.places, found.cells)
        except TrafficdpError:
            raise dialect.RefusedError(
                "no time or no hexagon is left by the conditions together", "fewer of them"
            ) from None


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    node = dialect.without_brackets(node)
    if isinstance(node, exp.And):
        return [each for part in node.flatten() for each in _conjuncts(part)]
    return [node]


def _read(
    node: exp.Expr, found: _Found, areas: Mapping[str, model.StudyArea], named: Named, resolution: int | None
) -> None:
    names = {dialect.name_of(column) for column in node.find_all(exp.Column)}
    refused = sorted(name for name in names if name in _VALUES)
    if refused:
        raise dialect.RefusedError(_VALUES[refused[0]], _HOUR, node)
    call = dialect.call_of(node)
    if names and names <= {"weekday", "hour"}:
        found.week = found.week & hours_of_predicate(node)
    elif names == {"date"}:
        _read_days(node, found)
    elif names == {"time"}:
        _read_time(node, found)
    elif names == {"area"}:
        found.places.append(_areas(node, areas))
    elif names == {"place"}:
        _read_places(node, named, found)
    elif call is not None and call[0] == "in_box":
        found.places.append((_box(call[1], node),))
    elif names == {"cell"} or (
        not names and any(each.name.lower() == "h3" for each in node.find_all(exp.Anonymous))
    ):
        cells = _cells(node, resolution)
        found.cells = cells if found.cells is None else _both(found.cells, cells, node)
    else:
        raise dialect.RefusedError("this condition cannot be read", _HOUR, node)


def _read_days(node: exp.Expr, found: _Found) -> None:
    """Narrow the days in ``found`` by a predicate on date, or raise RefusedError."""
    values = _tested(node)
    same = [(value, below, False) for value in values for below in (False, True)]
    for value, below, strict in same if len(values) == 1 else _bounds(node, "date", _DAYS):
        day = dialect.date_of(value)
        try:
            if below:
                found.last = min(found.last, day - timedelta(days=strict))
            else:
                found.first = max(found.first, day + timedelta(days=strict))
        except OverflowError:
            raise dialect.RefusedError("this condition on date cannot be read", _DAYS, node) from None


def _read_time(node: exp.Expr, found: _Found) -> None:
    """Narrow the local time in ``found`` by a comparison of time with whole hours, or raise RefusedError."""
    for value, below, strict in _bounds(node, "time", _TIMES):
        instant = dialect.instant_of(value)
        # an end lies after what is included, a start after what is left out
        edge = _whole_hour(instant) if below == strict else _hour_after(instant, found)
        if below:
            found.end = min(found.end, edge)
        else:
            found.start = max(found.start, edge)


def _bounds(node: exp.Expr, name: str, works: str) -> list[tuple[exp.Expr, bool, bool]]:
    """Return the (value, below, strict) of what ``node``, BETWEEN or <, <=, >, >=, compares ``name`` with.

    ``below``: ``name`` must be less than the value, not more. ``strict``: equality is excluded. Raises
    RefusedError for any other predicate.
    """
    if isinstance(node, exp.Between) and dialect.name_of(dialect.without_brackets(node.this)) == name:
        return [(node.args["low"], False, False), (node.args["high"], True, False)]
    if isinstance(node, (exp.LT, exp.LTE, exp.GT, exp.GTE)):
        left, right = dialect.without_brackets(node.this), dialect.without_brackets(node.expression)
        below, strict = isinstance(node, (exp.LT, exp.LTE)), isinstance(node, (exp.LT, exp.GT))
        if dialect.name_of(left) != name:
            left, right, below = right, left, not below
        if dialect.name_of(left) == name:
            return [(right, below, strict)]
    raise dialect.RefusedError(f"this condition on {name} cannot be read", works, node)


def _whole_hour(instant: datetime) -> datetime:
    if instant != instant.replace(minute=0, second=0, microsecond=0):
        raise dialect.RefusedError("times are chosen by whole hours", _TIMES)
    return instant


def _hour_after(instant: datetime, found: _Found) -> datetime:
    """Return the whole hour up to which "<= instant" reaches: '08:59:59' is all of the hour from 08:00."""
    second = instant.replace(microsecond=0)
    if (second.minute, second.second) == (59, 59) or (second.minute, second.second) == (59, 0):
        return second.replace(minute=0, second=0) + timedelta(hours=1)
    whole = _whole_hour(instant)
    remark = "a stretch of time reaches up to its end, and does not include the instant itself"
    if remark not in found.remarks:
        found.remarks.append(remark)
    return whole


def _apply_time(found: _Found) -> None:
    """Turn the local time in ``found`` into days, and into hours of the week where it cuts a day.

    Raises RefusedError for a stretch that cuts a day and is longer than a week.
    """
    midnight = datetime.min.time()
    start = max(found.start, datetime.combine(found.first, midnight))
    last = datetime.combine(found.last, midnight)
    end = min(found.end, last + timedelta(days=1) if last.date() < date.max else last)
    if (start, end) == (datetime.combine(found.first, midnight), last + timedelta(days=1)):
        return
    if start >= end:
        # no day is left, which is said with the other conditions on days
        found.first, found.last = date.max, date.min
        return
    found.first, found.last = start.date(), (end - timedelta(microseconds=1)).date()
    hours = int((end - start).total_seconds()) // 3600
    if start.hour == 0 and end.hour == 0:
        return
    if found.last - found.first > timedelta(days=6):
        raise dialect.RefusedError("a stretch that begins or ends within a day is a week at most", _TIMES)
    within = np.zeros(model.HOURS_A_WEEK, dtype=np.bool_)
    within[(start.weekday() * 24 + start.hour + np.arange(hours)) % model.HOURS_A_WEEK] = True
    found.week = found.week & within


def _tested(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that ``node`` compares with by = or IN; empty for any other condition."""
    if isinstance(node, exp.EQ):
        left, right = dialect.without_brackets(node.this), dialect.without_brackets(node.expression)
        return [right if isinstance(left, (exp.Column, exp.Anonymous)) else left]
    return node.expressions if isinstance(node, exp.In) and not node.args.get("query") else []


def _listed(node: exp.Expr, what: str, works: str) -> list[str]:
    """Return the texts that ``node`` compares with by = or IN; raise RefusedError for other conditions."""
    values = _tested(node)
    if not values:
        raise dialect.RefusedError(f"a condition on {what} is = or IN", works, node)
    return [dialect.string_of(each, what, works) for each in values]


def _areas(node: exp.Expr, areas: Mapping[str, model.StudyArea]) -> tuple[model.Place, ...]:
    known = {name.casefold(): name for name in areas}
    works = f"area = {quoted(min(areas))}" if areas else "[[areas]] with a name in the configuration"
    places = []
    for text in _listed(node, "an area", works):
        name = known.get(text.strip().casefold())
        if name is None:
            raise dialect.RefusedError("there is no such area", works)
        places.append(model.Place(name, areas[name]))
    return tuple(places)


def _read_places(node: exp.Expr, named: Named, found: _Found) -> None:
    """Narrow ``found`` to the zones, or the hexagons of released maps, that ``node`` names."""
    works = "a name of SELECT DISTINCT place FROM latest_cells"
    texts = [text.strip().casefold() for text in _listed(node, "a place", works)]
    known = named()
    if not set(texts) <= known.keys():
        what = "no map calls a place so" if known else "no map was released that names places"
        todo = works if known else _CELLS
        raise dialect.RefusedError(what, todo, node)
    places = [place for each in texts if isinstance(place := known[each], model.Place)]
    cells = frozenset(cell for each in texts if isinstance(cell := known[each], int))
    if places:
        found.places.append(tuple(places))
    else:
        if len(set(model.resolution_of(np.array(sorted(cells), dtype=np.uint64)).tolist())) > 1:
            raise dialect.RefusedError(_ONE_LIST, "places of one resolution", node)
        found.cells = cells if found.cells is None else _both(found.cells, cells, node)


def _box(corners: list[exp.Expr], node: exp.Expr) -> model.Place:
    works = "in_box(west, south, east, north), in degrees"
    if len(corners) != 4:
        raise dialect.RefusedError("a box has four sides", works, node)
    numbers = [dialect.number_of(corner, "a side of a box", works) + 0.0 for corner in corners]
    west, south, east, north = numbers
    try:
        name = f"{BOX}{west!r}, {south!r}, {east!r}, {north!r})"
        return model.Place(name, model.StudyArea.from_bbox(west, south, east, north))
    except TrafficdpError:
        raise dialect.RefusedError("this is not a box", works, node) from None


def _cells(node: exp.Expr, resolution: int | None) -> frozenset[int]:
    works = _CELLS
    tested = dialect.without_brackets(node.this) if isinstance(node.this, exp.Expr) else node
    call = dialect.call_of(tested)
    if call is not None:
        if call[0] != "h3" or len(call[1]) != 1:
            raise dialect.RefusedError("this condition cannot be read", "h3(7) = '...'", node)
        resolution = dialect.integer_of(call[1][0], 0, 15, "a resolution", "h3(7) IN (...)")
    elif dialect.name_of(tested) != "cell":
        raise dialect.RefusedError("this condition cannot be read", works, node)
    texts = [text.strip() for text in _listed(node, "a hexagon", works)]
    try:
        cells = cells_from_text(texts)
    except TrafficdpError:
        raise dialect.RefusedError("this is no hexagon of H3", works, node) from None
    found = sorted(set(model.resolution_of(cells).tolist()))
    if found != [resolution]:
        got = "resolution " + ", ".join(map(str, found))
        raise dialect.RefusedError("the hexagons are of another resolution", f"h3({found[0]}) IN (...)", got)
    return frozenset(int(cell) for cell in cells)


def _both(one: frozenset[int], other: frozenset[int], node: exp.Expr) -> frozenset[int]:
    resolutions = model.resolution_of(np.array([min(one), min(other)], dtype=np.uint64)) if one else None
    if resolutions is not None and resolutions[0] != resolutions[1]:
        raise dialect.RefusedError(_ONE_LIST, "hexagons of one resolution", node)
    return one & other
