"""The words of the dialect, refusals that repeat nothing else, and values that a question writes out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from trafficdp.errors import UsageError

LONGEST_SHOWN = 60
"""Characters of a question that a refusal repeats."""
LONGEST_REFUSAL = 149
"""Characters: with the name of the program before it, 160."""
PARSER_FAILS = (SqlglotError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
TABLES = ("records", "fixes")
"""What the records are called, the name of the guides first."""
_OWN = """
    records fixes cell h3 slot slot_label slot_start slot_end status speed vehicle plate vehicle_id
    latitude longitude time date weekday hour area in_box count avg sum min max median var_pop var_samp
    stddev stddev_pop stddev_samp vehicle_avg quantile quantile_cont quantile_disc percentile percentile_cont
    percentile_disc within group dp_interval_low dp_interval_high dp_rank_low dp_rank_high
    differential_privacy options
    epsilon delta min_vehicles interval_level speed_bound force privacy_unit_column
"""
_OMITTED = "..."
_INSTANTS = (
    exp.DataType.Type.DATE,
    exp.DataType.Type.DATETIME,
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPNTZ,
)

# the parser's remarks on odd SQL are not for our standard error
logging.getLogger("sqlglot").addHandler(logging.NullHandler())


class Priced(DuckDB):
    """DuckDB's SQL: no commands, no templates, no hints."""

    class Tokenizer(DuckDB.Tokenizer):
        """Its words."""

        KEYWORDS = {  # noqa: RUF012 - sqlglot reads it as it stands
            word: kind
            for word, kind in DuckDB.Tokenizer.KEYWORDS.items()
            if word not in ("EXPLAIN", "/*+") and not word.startswith(("{", "%", "+%", "-%", "+}", "-}"))
        }
        COMMANDS: ClassVar[set[TokenType]] = set()


WORDS = frozenset(_OWN.upper().split()) | Priced.Tokenizer.KEYWORDS.keys()
"""What a refusal may repeat."""
_SIGNS = frozenset(Priced.Tokenizer.SINGLE_TOKENS) - {"'", '"'}


class RefusedError(UsageError):
    """A clause that a question cannot have: why, and one thing that works, in LONGEST_REFUSAL characters.

    ``got`` is of the dialect's words alone (``shown``) or of what was understood.
    """

    def __init__(self, what: str, works: str, got: str | None = None, clause: str = "") -> None:
        self.reason, self.works, self.clause = what, works, clause
        text = f"{clause}: {what}" if clause else what
        room = LONGEST_REFUSAL - len(f"{text}; try {works}") - len("; got ")
        shortened = None if got is None or room < 10 else got if len(got) <= room else f"{got[: room - 3]}..."
        self.part = got
        super().__init__(text, got=shortened, todo=f"try {works}")


@contextmanager
def reading(clause: str) -> Iterator[None]:
    """Say in every refusal of the block that it is of ``clause``, unless it names one of its own."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(error.reason, error.works, error.part, error.clause or clause) from None


def shown(text: str) -> str | None:
    """Return what a refusal may repeat of part of a question; None when that is nothing.

    Words and signs of the dialect alone, cut to LONGEST_SHOWN characters: texts, numbers, names of the
    asker's own and comments are left out, for a vehicle may be written in any of them.
    """
    try:
        found = Priced().tokenize(text)
    except (*PARSER_FAILS, RecursionError):
        return None
    flat, end = "", -1
    for token in found:
        kept = token.text if token.text.upper() in WORDS or token.text in _SIGNS else _OMITTED
        gap = " " if flat and token.start > end + 1 else ""
        if not (kept == _OMITTED and flat.endswith(_OMITTED)):
            flat += gap + kept
        end = token.end
    if not flat.strip(f"{_OMITTED} "):
        return None
    return flat if len(flat) <= LONGEST_SHOWN else f"{flat[: LONGEST_SHOWN - 3]}..."


def text_of(node: exp.Expr) -> str | None:
    """Return what may be shown of part of the question."""
    try:
        return shown(node.sql(dialect=Priced, comments=False))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def unwrapped(node: exp.Expr) -> exp.Expr:
    """Return what stands within brackets."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.Expr):
        node = node.this
    return node


def name_of(node: object) -> str | None:
    """Return the lower-case name of a column of the records, None for anything else."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    return node.name.lower() if node.table.lower() in ("", *TABLES) and not node.db else None


def call_of(node: object) -> tuple[str, list[exp.Expr]] | None:
    """Return (lower-case name, arguments) of a function that sqlglot does not know, None for others."""
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        return None
    return node.this.lower(), [unwrapped(each) for each in node.expressions]


def string_of(node: exp.Expr, what: str, works: str) -> str:
    """Return a text in single quotes; raise RefusedError for anything else."""
    node = unwrapped(node)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    raise RefusedError(f"{what} is a text in single quotes", works, text_of(node))


def number_of(node: exp.Expr, what: str, works: str) -> float:
    """Return a number that is written out; raise RefusedError for anything else."""
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
    raise RefusedError(f"{what} is a number that is written out", works, text_of(node))


def integer_of(node: exp.Expr, low: int, high: int, what: str, works: str) -> int:
    """Return a whole number from ``low`` to ``high``; raise RefusedError for anything else."""
    number = number_of(node, what, works)
    if not low <= number <= high or number != int(number):
        raise RefusedError(f"{what} is a whole number from {low} to {high}", works, text_of(node))
    return int(number)


def date_of(node: exp.Expr) -> date:
    """Return a day that is written out as '2026-03-02' or DATE '2026-03-02'."""
    works = "date = '2026-03-02'"
    node = unwrapped(node)
    cast = isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.DATE)
    if cast or isinstance(node, (exp.Date, exp.TsOrDsToDate)):
        node = node.this if isinstance(node.this, exp.Expr) else node
    text = string_of(node, "a day", works)
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise RefusedError("this is not a day", works) from None


def instant_of(node: exp.Expr) -> datetime:
    """Return a local instant that is written out: '2026-03-02', '2026-03-02 07:00', TIMESTAMP '...'."""
    works = "time >= '2026-03-02 07:00'"
    node = unwrapped(node)
    if isinstance(node, exp.Cast) and node.to.is_type(*_INSTANTS):
        node = node.this if isinstance(node.this, exp.Expr) else node
    text = string_of(node, "a time", works)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise RefusedError("this is not a time", works) from None
    if found.tzinfo is not None:
        raise RefusedError("times are those of the city's clocks, without an offset", works)
    return found
