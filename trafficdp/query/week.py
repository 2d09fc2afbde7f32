"""Predicates on weekday and hour: any of AND, OR, NOT, comparisons, IN and BETWEEN, as hours of the week."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from trafficdp.model import HOURS_A_WEEK
from trafficdp.query.filter import DAY_NAMES, Week
from trafficdp.query.literals import integer_of, name_of, string_of, text_of, unwrapped
from trafficdp.query.problems import UnreadableError

_FORM = "weekday IN ('monday', 'friday'), hour BETWEEN 7 AND 9, hour <> 12, joined by AND, OR, NOT"
_DAY = "'monday' to 'sunday'"
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


class TurnedError(UnreadableError):
    """A stretch that ends before it starts; ``instead`` are the hours from its start past the end."""

    def __init__(self, what: str, got: str | None, expected: str, instead: Week) -> None:
        self.instead = instead
        super().__init__(what, got, expected)


def week_of(node: exp.Expr) -> Week:
    """Return which hours of the week meet a predicate; raise UnreadableError for one that is another."""
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
            raise TurnedError(
                "nothing lies between these",
                text_of(node),
                f"{name} >= ... OR {name} <= ..., past the end",
                (numbers >= low) | (numbers <= high),
            )
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
    raise UnreadableError("this predicate cannot be read", text_of(node), _FORM)


def _name(node: exp.Expr, whole: exp.Expr) -> str:
    name = name_of(unwrapped(node))
    if name in ("weekday", "hour"):
        return name
    raise UnreadableError("this predicate cannot be read", text_of(whole), _FORM)


def _numbers(name: str) -> Numbers:
    return _HOURS // 24 if name == "weekday" else _HOURS % 24


def _value(node: exp.Expr, name: str) -> int:
    if name == "hour":
        return integer_of(node, 0, 24, "an hour")
    text = string_of(node, "a weekday", _DAY).strip().lower()
    found = [day for day, full in enumerate(DAY_NAMES) if len(text) >= 3 and full.startswith(text)]
    if len(found) != 1:
        raise UnreadableError("there is no such weekday", None, _DAY)
    return found[0]
