"""Names and literal values in a parsed question. Only literals: nothing is ever computed from a record."""

from __future__ import annotations

from datetime import date, datetime

from sqlglot import exp

from trafficdp.query.dialect import shown
from trafficdp.query.problems import UnreadableError


def text_of(node: exp.Expr) -> str | None:
    """Return what may be shown of part of the question."""
    try:
        return shown(node.sql())
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return what stands within brackets."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.Expr):
        node = node.this
    return node


def name_of(node: object) -> str | None:
    """Return the lower-case name of a column of fixes, None for anything else."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    return node.name.lower() if node.table.lower() in ("", "fixes") and not node.db else None


def call_of(node: object) -> tuple[str, list[exp.Expr]] | None:
    """Return (lower-case name, arguments) of a function that sqlglot does not know, None for others."""
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        return None
    return node.this.lower(), [unwrapped(each) for each in node.expressions]


def string_of(node: exp.Expr, what: str, expected: str) -> str:
    """Return a text in single quotes; raise UnreadableError for anything else."""
    node = unwrapped(node)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    raise UnreadableError(f"{what} is a text in single quotes", text_of(node), expected)


def number_of(node: exp.Expr, what: str, expected: str) -> float:
    """Return a number that is written out; raise UnreadableError for anything else."""
    node = unwrapped(node)
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = unwrapped(node.this), -1
    if isinstance(node, exp.Literal) and not node.is_string:
        text = str(node.this)
        if len(text) <= 40:
            try:
                return sign * float(text)
            except ValueError:
                pass
    raise UnreadableError(f"{what} is a number that is written out", text_of(node), expected)


def integer_of(node: exp.Expr, low: int, high: int, what: str) -> int:
    """Return a whole number from ``low`` to ``high``; raise UnreadableError for anything else."""
    expected = f"a whole number from {low} to {high}"
    number = number_of(node, what, expected)
    if not low <= number <= high or number != int(number):
        raise UnreadableError(f"{what} is out of range", text_of(node), expected)
    return int(number)


def date_of(node: exp.Expr) -> date:
    """Return a day that is written out as '2026-03-02' or DATE '2026-03-02'."""
    expected = "a day such as '2026-03-02'"
    node = unwrapped(node)
    cast = isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.DATE)
    if cast or isinstance(node, (exp.Date, exp.TsOrDsToDate)):
        node = node.this if isinstance(node.this, exp.Expr) else node
    text = string_of(node, "a day", expected)
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise UnreadableError("this is not a day", None, expected) from None


def instant_of(node: exp.Expr) -> datetime:
    """Return a local instant that is written out: '2026-03-02', '2026-03-02 07:00', TIMESTAMP '...'."""
    expected = "a local time such as '2026-03-02 07:00'"
    node = unwrapped(node)
    if isinstance(node, exp.Cast) and node.to.is_type(
        exp.DataType.Type.DATE, exp.DataType.Type.TIMESTAMP, exp.DataType.Type.DATETIME
    ):
        node = node.this if isinstance(node.this, exp.Expr) else node
    text = string_of(node, "a time", expected)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UnreadableError("this is not a time", None, expected) from None
    if found.tzinfo is not None:
        raise UnreadableError("times are those of the city's clocks, without an offset", None, expected)
    return found
