"""WHERE: conditions on records, of place and time alone, which the mechanism understands; no values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import numpy as np
from sqlglot import exp

from trafficdp.binning.cells import cells_from_text, resolutions_of
from trafficdp.errors import TrafficdpError
from trafficdp.model import HOURS_A_WEEK, Period, Place, StudyArea
from trafficdp.query.dialect import (
    RefusedError,
    call_of,
    date_of,
    instant_of,
    integer_of,
    name_of,
    number_of,
    reading,
    string_of,
    text_of,
    unwrapped,
)
from trafficdp.query.filter import Filter, Week, box_name, narrowed, text_literal, week_of

Named = Callable[[], Mapping[str, int | Place]]
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
_HOUR = "hour BETWEEN 7 AND 9"
_TIMES = "time >= '2026-03-02 07:00' AND time < '2026-03-02 09:00'"
_DAYS = "date BETWEEN '2026-03-02' AND '2026-03-08'"
_ONE_LIST = "only one list of hexagons can be given"
_CELLS = "cell = '861f8d567ffffff'"


@dataclass
class _Found:
    """The restrictions met so far."""

    first: date
    last: date
    week: Week = field(default_factory=lambda: np.ones(HOURS_A_WEEK, dtype=np.bool_))
    places: list[tuple[Place, ...]] = field(default_factory=list)
    cells: frozenset[int] | None = None
    start: datetime = datetime.min
    end: datetime = datetime.max
    remarks: list[str] = field(default_factory=list)


def read_where(
    where: exp.Expr | None,
    period: Period,
    areas: Mapping[str, StudyArea],
    named: Named,
    resolution: int | None,
    remarks: list[str],
) -> Filter:
    """Return what ``where`` selects; raises RefusedError for a predicate of any other kind.

    ``areas`` and ``named`` are what may be called by name, ``resolution`` that of the question's ``cell``.
    How a time was read that is not what it says to the second is added to ``remarks``.
    """
    found = _Found(period.first, period.last, remarks=remarks)
    with reading("WHERE"):
        for predicate in [] if where is None else _conjuncts(where):
            _read(predicate, found, areas, named, resolution)
        _apply_time(found)
        try:
            chosen = narrowed(period, found.first, found.last)
        except TrafficdpError:
            works = f"date = '{period.first.isoformat()}'"
            raise RefusedError("no day of the configured period is left", works) from None
        try:
            return Filter.of(chosen, found.week, found.places, found.cells)
        except TrafficdpError:
            raise RefusedError(
                "no time or no hexagon is left by the conditions together", "fewer of them"
            ) from None


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    node = unwrapped(node)
    if isinstance(node, exp.And):
        return [each for part in node.flatten() for each in _conjuncts(part)]
    return [node]


def _read(
    node: exp.Expr, found: _Found, areas: Mapping[str, StudyArea], named: Named, resolution: int | None
) -> None:
    names = {name_of(column) for column in node.find_all(exp.Column)}
    refused = sorted(name for name in names if name in _VALUES)
    if refused:
        raise RefusedError(_VALUES[refused[0]], _HOUR, text_of(node))
    call = call_of(node)
    if names and names <= {"weekday", "hour"}:
        found.week = found.week & week_of(node)
    elif names == {"date"}:
        first, last = _days(node)
        found.first, found.last = max(found.first, first), min(found.last, last)
    elif names == {"time"}:
        _read_time(node, found)
    elif names == {"area"}:
        found.places.append(_areas(node, areas))
    elif names == {"place"}:
        _read_places(node, named, found)
    elif call is not None and call[0] == "in_box":
        found.places.append((_box(call[1], node),))
    elif names == {"cell"} or (not names and any(_h3(each) for each in node.find_all(exp.Anonymous))):
        cells = _cells(node, resolution)
        found.cells = cells if found.cells is None else _both(found.cells, cells, node)
    else:
        raise RefusedError("this condition cannot be read", _HOUR, text_of(node))


def _days(node: exp.Expr) -> tuple[date, date]:
    """Return the first and last day that a predicate allows."""
    if isinstance(node, exp.Between) and name_of(unwrapped(node.this)) == "date":
        return date_of(node.args["low"]), date_of(node.args["high"])
    values = _tested(node)
    if len(values) == 1:
        return date_of(values[0]), date_of(values[0])
    compared = _compared(node, "date")
    if compared is not None:
        day, below, strict = compared
        return _half_open(date_of(day), below, strict, node)
    raise RefusedError("this condition on date cannot be read", _DAYS, text_of(node))


def _half_open(day: date, below: bool, strict: bool, node: exp.Expr) -> tuple[date, date]:
    try:
        step = timedelta(days=1 if strict else 0)
        return (date.min, day - step) if below else (day + step, date.max)
    except OverflowError:
        raise RefusedError("this condition on date cannot be read", _DAYS, text_of(node)) from None


def _read_time(node: exp.Expr, found: _Found) -> None:
    """Narrow the stretch of local time by a comparison with an instant."""
    if isinstance(node, exp.Between) and name_of(unwrapped(node.this)) == "time":
        low, high = instant_of(node.args["low"]), instant_of(node.args["high"])
        found.start = max(found.start, _whole_hour(low))
        found.end = min(found.end, _hour_after(high, found))
        return
    compared = _compared(node, "time")
    if compared is None:
        raise RefusedError("this condition on time cannot be read", _TIMES, text_of(node))
    value, below, strict = compared
    instant = instant_of(value)
    # an end lies after what is included, a start after what is left out
    edge = _whole_hour(instant) if below == strict else _hour_after(instant, found)
    if below:
        found.end = min(found.end, edge)
    else:
        found.start = max(found.start, edge)


def _compared(node: exp.Expr, name: str) -> tuple[exp.Expr, bool, bool] | None:
    """Return what ``name`` is compared with by <, <=, > or >=, whether it is below that, and strictly."""
    if not isinstance(node, (exp.LT, exp.LTE, exp.GT, exp.GTE)):
        return None
    left, right = unwrapped(node.this), unwrapped(node.expression)
    below, strict = isinstance(node, (exp.LT, exp.LTE)), isinstance(node, (exp.LT, exp.GT))
    if name_of(left) != name:
        left, right, below = right, left, not below
    return (right, below, strict) if name_of(left) == name else None


def _whole_hour(instant: datetime) -> datetime:
    if instant != instant.replace(minute=0, second=0, microsecond=0):
        raise RefusedError("times are chosen by whole hours", _TIMES)
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
    """Turn the stretch of time into days, and into hours of the week where it begins or ends within a day."""
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
        raise RefusedError("a stretch that begins or ends within a day is a week at most", _TIMES)
    within = np.zeros(HOURS_A_WEEK, dtype=np.bool_)
    within[(start.weekday() * 24 + start.hour + np.arange(hours)) % HOURS_A_WEEK] = True
    found.week = found.week & within


def _tested(node: exp.Expr) -> list[exp.Expr]:
    """Return the values that a condition by = or IN names; none for any other."""
    if isinstance(node, exp.EQ):
        left, right = unwrapped(node.this), unwrapped(node.expression)
        return [right if isinstance(left, (exp.Column, exp.Anonymous)) else left]
    return node.expressions if isinstance(node, exp.In) and not node.args.get("query") else []


def _listed(node: exp.Expr, what: str, works: str) -> list[str]:
    """Return the texts that a condition names."""
    values = _tested(node)
    if not values:
        raise RefusedError(f"a condition on {what} is = or IN", works, text_of(node))
    return [string_of(each, what, works) for each in values]


def _areas(node: exp.Expr, areas: Mapping[str, StudyArea]) -> tuple[Place, ...]:
    known = {name.casefold(): name for name in areas}
    works = f"area = {text_literal(min(areas))}" if areas else "[[areas]] with a name in the configuration"
    places = []
    for text in _listed(node, "an area", works):
        name = known.get(text.strip().casefold())
        if name is None:
            raise RefusedError("there is no such area", works)
        places.append(Place(name, areas[name]))
    return tuple(places)


def _read_places(node: exp.Expr, named: Named, found: _Found) -> None:
    """Narrow to hexagons by what the newest map calls them, or to zones by their names."""
    works = "a name of SELECT DISTINCT place FROM latest_cells"
    texts = [text.strip().casefold() for text in _listed(node, "a place", works)]
    known = named()
    if not set(texts) <= known.keys():
        what = "no map calls a place so" if known else "no map was released that names places"
        todo = works if known else _CELLS
        raise RefusedError(what, todo, text_of(node))
    places = [place for each in texts if isinstance(place := known[each], Place)]
    cells = frozenset(cell for each in texts if isinstance(cell := known[each], int))
    if places:
        found.places.append(tuple(places))
    else:
        if len(set(resolutions_of(np.array(sorted(cells), dtype=np.uint64)).tolist())) > 1:
            raise RefusedError(_ONE_LIST, "places of one resolution", text_of(node))
        found.cells = cells if found.cells is None else _both(found.cells, cells, node)


def _box(corners: list[exp.Expr], node: exp.Expr) -> Place:
    works = "in_box(west, south, east, north), in degrees"
    if len(corners) != 4:
        raise RefusedError("a box has four sides", works, text_of(node))
    numbers = [number_of(corner, "a side of a box", works) + 0.0 for corner in corners]
    west, south, east, north = numbers
    try:
        return Place(box_name(west, south, east, north), StudyArea.from_bbox(west, south, east, north))
    except TrafficdpError:
        raise RefusedError("this is not a box", works, text_of(node)) from None


def _h3(node: exp.Expr) -> bool:
    call = call_of(node)
    return call is not None and call[0] == "h3"


def _cells(node: exp.Expr, resolution: int | None) -> frozenset[int]:
    works = _CELLS
    tested = unwrapped(node.this) if isinstance(node.this, exp.Expr) else node
    call = call_of(tested)
    if call is not None:
        if call[0] != "h3" or len(call[1]) != 1:
            raise RefusedError("this condition cannot be read", "h3(7) = '...'", text_of(node))
        resolution = integer_of(call[1][0], 0, 15, "a resolution", "h3(7) IN (...)")
    elif name_of(tested) != "cell":
        raise RefusedError("this condition cannot be read", works, text_of(node))
    texts = [text.strip() for text in _listed(node, "a hexagon", works)]
    try:
        cells = cells_from_text(texts)
    except TrafficdpError:
        raise RefusedError("this is no hexagon of H3", works, text_of(node)) from None
    found = sorted(set(resolutions_of(cells).tolist()))
    if found != [resolution]:
        got = "resolution " + ", ".join(map(str, found))
        raise RefusedError("the hexagons are of another resolution", f"h3({found[0]}) IN (...)", got)
    return frozenset(int(cell) for cell in cells)


def _both(one: frozenset[int], other: frozenset[int], node: exp.Expr) -> frozenset[int]:
    resolutions = resolutions_of(np.array([min(one), min(other)], dtype=np.uint64)) if one else None
    if resolutions is not None and resolutions[0] != resolutions[1]:
        raise RefusedError(_ONE_LIST, "hexagons of one resolution", text_of(node))
    return one & other
