"""HAVING: which rows of an answer are shown. It looks at released numbers and counts alone, so it is free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from trafficdp.query.columns import Meaning
from trafficdp.query.expressions import GridWords, meaning_of
from trafficdp.query.literals import number_of, text_of, unwrapped
from trafficdp.query.problems import Problems, UnreadableError

_LARGEST = 1e12
_NUMBER = "a number that is written out"
_FORM = "comparisons of columns that are shown, or of counts, with numbers, joined by AND, OR, NOT"
_SIGNS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARE: dict[str, Callable[[pa.Array, float], pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A released number or a count against a number; unknown where the bin has none, as in SQL."""

    of: Meaning
    sign: str
    number: float

    def to_sql(self) -> str:
        """Return it in one spelling."""
        return f"{self.of.expression()} {self.sign} {Decimal(repr(self.number)):f}"

    def meets(self, arrays: Mapping[Meaning, pa.Array]) -> pa.Array:
        """Return for every row whether it is met, null where that is unknown."""
        return _COMPARE[self.sign](arrays[self.of], self.number)

    def meanings(self) -> set[Meaning]:
        """Return what it looks at."""
        return {self.of}


@dataclass(frozen=True, slots=True)
class Joined:
    """``parts`` joined by "AND" or "OR"; of one part by "NOT"."""

    by: str
    parts: tuple[Comparison | Joined, ...]

    def to_sql(self) -> str:
        """Return it in one spelling."""
        if self.by == "NOT":
            return f"NOT ({self.parts[0].to_sql()})"
        return f" {self.by} ".join(f"({part.to_sql()})" for part in self.parts)

    def meets(self, arrays: Mapping[Meaning, pa.Array]) -> pa.Array:
        """Return for every row whether it is met, null where that is unknown."""
        found = self.parts[0].meets(arrays)
        if self.by == "NOT":
            return pc.invert(found)
        join = pc.and_kleene if self.by == "AND" else pc.or_kleene
        for part in self.parts[1:]:
            found = join(found, part.meets(arrays))
        return found

    def meanings(self) -> set[Meaning]:
        """Return what it looks at."""
        return set().union(*(part.meanings() for part in self.parts))


Having = Comparison | Joined


def read_having(
    node: object, aliases: dict[str, Meaning], shown: set[Meaning], problems: Problems
) -> Having | None:
    """Return what HAVING says; None, and a problem where there is one that cannot be read."""
    if not isinstance(node, exp.Having):
        return None
    try:
        return _read(node.this, aliases, shown)
    except UnreadableError as error:
        problems.found.append(error.problem)
        return None


def _read(node: exp.Expr, aliases: dict[str, Meaning], shown: set[Meaning]) -> Having:
    node = unwrapped(node)
    if isinstance(node, (exp.And, exp.Or)):
        parts = tuple(_read(part, aliases, shown) for part in node.flatten())
        return Joined("AND" if isinstance(node, exp.And) else "OR", parts)
    if isinstance(node, exp.Not):
        return Joined("NOT", (_read(node.this, aliases, shown),))
    if isinstance(node, exp.Between):
        of = _measured(node.this, node, aliases, shown)
        low, high = (_number(node.args[name]) for name in ("low", "high"))
        return Joined("AND", (Comparison(of, ">=", low), Comparison(of, "<=", high)))
    sign = _SIGNS.get(type(node))
    if sign is None:
        raise UnreadableError("this condition on the answer cannot be read", text_of(node), _FORM)
    left, right = unwrapped(node.this), unwrapped(node.expression)
    if isinstance(left, (exp.Literal, exp.Neg)):
        left, right, sign = right, left, _TURNED.get(sign, sign)
    return Comparison(_measured(left, node, aliases, shown), sign, _number(right))


def _measured(node: exp.Expr, whole: exp.Expr, aliases: dict[str, Meaning], shown: set[Meaning]) -> Meaning:
    meaning = meaning_of(node, aliases, GridWords())
    if not meaning.kind.measured:
        raise UnreadableError(
            "HAVING is about released numbers and counts; places and times are chosen by WHERE",
            text_of(whole),
            _FORM,
        )
    if not meaning.kind.counts and (meaning.kind, meaning.end) not in {each[:2] for each in shown}:
        raise UnreadableError(
            "HAVING looks at a number that the question does not show", text_of(whole), _FORM
        )
    return meaning


def _number(node: exp.Expr) -> float:
    number = number_of(node, "a limit of HAVING", _NUMBER) + 0.0
    if not abs(number) <= _LARGEST:
        raise UnreadableError("a limit of HAVING is out of range", None, f"at most {_LARGEST:g}")
    return number
