"""The words of the dialect, the columns an answer has, and refusals that repeat nothing else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, NamedTuple

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from trafficdp.errors import UsageError
from trafficdp.model import QUANTILES, SlotKind, SpeedUnit, Statistic

LONGEST_SHOWN = 60
"""Characters of a question that a refusal repeats."""
LONGEST_REFUSAL = 149
"""Characters: with the name of the program before it, 160."""
PARSER_FAILS = (SqlglotError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
TABLES = ("records", "fixes")
"""What the records are called, the name of the guides first."""
_OWN = """
    records fixes cell h3 hex_id slot slot_label slot_start slot_end status speed vehicle plate vehicle_id
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
    """The SQL dialect of priced questions: DuckDB's, without commands, templates and hints."""

    class Tokenizer(DuckDB.Tokenizer):
        """DuckDB's tokenizer, less EXPLAIN, hints, marks of templates and commands."""

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
    """The error for a part of a priced question that is not allowed.

    ``what`` says why, and ``works`` gives one thing that would be accepted. ``got`` is the refused part: SQL,
    of which the message repeats words of the dialect alone (``repeatable_text``), or text as it was
    understood. It is shortened so that the message has at most LONGEST_REFUSAL characters. ``clause`` is the
    SQL clause, such as WHERE.
    """

    def __init__(self, what: str, works: str, got: exp.Expr | str | None = None, clause: str = "") -> None:
        if isinstance(got, exp.Expr):
            try:
                got = repeatable_text(got.sql(dialect=Priced, comments=False))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
                got = None
        self.reason, self.works, self.clause = what, works, clause
        text = f"{clause}: {what}" if clause else what
        room = LONGEST_REFUSAL - len(f"{text}; try {works}") - len("; got ")
        shortened = None if got is None or room < 10 else got if len(got) <= room else f"{got[: room - 3]}..."
        self.part = got
        super().__init__(text, got=shortened, todo=f"try {works}")


@contextmanager
def reading(clause: str) -> Iterator[None]:
    """Put ``clause`` into every RefusedError that the block raises and that names no clause itself."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(error.reason, error.works, error.part, error.clause or clause) from None


def repeatable_text(text: str) -> str | None:
    """Return the part of ``text``, SQL of a question, that an error message may repeat, or None.

    Words and signs of the dialect are kept, cut to LONGEST_SHOWN characters. Texts, numbers, other names and
    comments are left out, since any of them may hold the identifier of a vehicle.
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


def without_brackets(node: exp.Expr) -> exp.Expr:
    """Return the expression inside the brackets around ``node``, or ``node`` where there are none."""
    while isinstance(node, exp.Paren) and isinstance(node.this, exp.Expr):
        node = node.this
    return node


def name_of(node: object) -> str | None:
    """Return the lower-case name if ``node`` is a plain column of the records, None for anything else."""
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    return node.name.lower() if node.table.lower() in ("", *TABLES) and not node.db else None


def call_of(node: object) -> tuple[str, list[exp.Expr]] | None:
    """Return (lower-case name, arguments) of a function that sqlglot does not know, None for others."""
    if not isinstance(node, exp.Anonymous) or not isinstance(node.this, str):
        return None
    return node.this.lower(), [without_brackets(each) for each in node.expressions]


def string_of(node: exp.Expr, what: str, works: str) -> str:
    """Return the text of ``node``, a literal in single quotes.

    Raises RefusedError for anything else, whose message uses ``what`` (name of the thing) and ``works`` (an
    example that is accepted).
    """
    node = without_brackets(node)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    raise RefusedError(f"{what} is a text in single quotes", works, node)


def number_of(node: exp.Expr, what: str, works: str) -> float:
    """Return the number that ``node`` writes out, such as 0.5 or -3; raises as ``string_of``."""
    node = without_brackets(node)
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = without_brackets(node.this), -1
    if isinstance(node, exp.Literal) and not node.is_string:
        text = str(node.this)
        if len(text) <= 40:
            try:
                return sign * float(text)
            except ValueError:
                pass
    raise RefusedError(f"{what} is a number that is written out", works, node)


def integer_of(node: exp.Expr, low: int, high: int, what: str, works: str) -> int:
    """Return the whole number that ``node`` writes out, from ``low`` to ``high``, both included.

    Raises as ``string_of`` for anything else.
    """
    number = number_of(node, what, works)
    if not low <= number <= high or number != int(number):
        raise RefusedError(f"{what} is a whole number from {low} to {high}", works, node)
    return int(number)


def date_of(node: exp.Expr) -> date:
    """Return the day that ``node`` writes out as '2026-03-02' or DATE '2026-03-02'.

    Raises RefusedError for anything else.
    """
    works = "date = '2026-03-02'"
    node = without_brackets(node)
    cast = isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.DATE)
    if cast or isinstance(node, (exp.Date, exp.TsOrDsToDate)):
        node = node.this if isinstance(node.this, exp.Expr) else node
    text = string_of(node, "a day", works)
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise RefusedError("this is not a day", works) from None


def instant_of(node: exp.Expr) -> datetime:
    """Return the local time, without offset, that ``node`` writes out.

    The forms are '2026-03-02', '2026-03-02 07:00' and TIMESTAMP '...'. Raises RefusedError for anything
    else.
    """
    works = "time >= '2026-03-02 07:00'"
    node = without_brackets(node)
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


# The columns that an answer has: how a question writes them, and how they are read.


class Kind(StrEnum):
    """What a column of the answer holds. The value is the SQL expression that asks for the column."""

    CELL = "cell"
    SLOT = "slot"
    SLOT_LABEL = "slot_label"
    SLOT_START = "slot_start"
    SLOT_END = "slot_end"
    HOUR = "hour"
    WEEKDAY = "weekday"
    DATE = "date"
    PLACE = "place"
    STATUS = "status"
    RECORDS = "COUNT(*)"
    VEHICLES = "COUNT(DISTINCT vehicle)"
    MEAN = "AVG(speed)"
    VARIANCE = "VAR_POP(speed)"
    STDDEV = "STDDEV_POP(speed)"
    VEHICLE_MEAN = "VEHICLE_AVG(speed)"
    MEDIAN = "MEDIAN(speed)"
    P05 = "QUANTILE_CONT(speed, 0.05)"
    P10 = "QUANTILE_CONT(speed, 0.1)"
    P15 = "QUANTILE_CONT(speed, 0.15)"
    P25 = "QUANTILE_CONT(speed, 0.25)"
    P75 = "QUANTILE_CONT(speed, 0.75)"
    P85 = "QUANTILE_CONT(speed, 0.85)"
    P90 = "QUANTILE_CONT(speed, 0.9)"
    P95 = "QUANTILE_CONT(speed, 0.95)"

    @property
    def statistic(self) -> Statistic | None:
        """The noisy statistic that the column is computed from; None for places, times, status and counts."""
        return _STATISTICS.get(self)

    @property
    def of_slot(self) -> bool:
        """Whether the column describes the time slot, so that the question must group by slot."""
        return self in (Kind.SLOT, Kind.SLOT_LABEL, Kind.SLOT_START, Kind.SLOT_END) or self.of_clock

    @property
    def of_clock(self) -> bool:
        """Whether the column is an hour, weekday or date; grouping by these decides the kind of slot."""
        return self in (Kind.HOUR, Kind.WEEKDAY, Kind.DATE)

    @property
    def of_place(self) -> bool:
        """Whether the column is the cell or the place's name, so that the question must group by place."""
        return self in (Kind.CELL, Kind.PLACE)

    @property
    def counts(self) -> bool:
        """Whether the column is a number of records or of vehicles."""
        return self in (Kind.RECORDS, Kind.VEHICLES)

    @property
    def measured(self) -> bool:
        """Whether the column is a statistic or a count, which may have an interval."""
        return self.counts or self.statistic is not None

    @property
    def by_rank(self) -> bool:
        """Whether the column is a quantile of speed, whose interval is given in ranks of vehicles."""
        return self.statistic in QUANTILES

    @property
    def ends(self) -> tuple[End, End]:
        """The (lower, upper) ends of the column's interval: ranks for a quantile, else values."""
        return (End.RANK_LOW, End.RANK_HIGH) if self.by_rank else (End.LOW, End.HIGH)


class End(StrEnum):
    """Which number of a measured column is meant: the value, or one end of its interval.

    The ends of a quantile's interval are ranks. The value of a member is the suffix of the column's name.
    """

    VALUE = ""
    LOW = "_low"
    HIGH = "_high"
    RANK_LOW = "_rank_low"
    RANK_HIGH = "_rank_high"

    @property
    def of_rank(self) -> bool:
        """Whether the number is the rank of a vehicle in its bin, counted from the slowest."""
        return self in (End.RANK_LOW, End.RANK_HIGH)

    @property
    def function(self) -> str:
        """Name of the SQL function that asks for this end, such as DP_INTERVAL_LOW or DP_RANK_LOW."""
        return f"DP{'' if self.of_rank else '_INTERVAL'}{self.upper()}"


_STATISTICS = {
    Kind.MEAN: Statistic.MEAN,
    Kind.VARIANCE: Statistic.VARIANCE,
    Kind.STDDEV: Statistic.VARIANCE,
    Kind.VEHICLE_MEAN: Statistic.VEHICLE_MEAN,
    Kind.MEDIAN: Statistic.VEHICLE_MEDIAN,
    **{kind: Statistic[f"VEHICLE_{kind.name}"] for kind in Kind if kind.startswith("QUANTILE")},
}
KIND_OF = {QUANTILES[each]: kind for kind, each in _STATISTICS.items() if each in QUANTILES}
"""Which quantiles may be asked for."""
SLOTS_BY_CLOCK = {
    SlotKind.HOUR_OF_DAY: {Kind.HOUR},
    SlotKind.WEEKDAY: {Kind.WEEKDAY},
    SlotKind.DAY: {Kind.DATE},
    SlotKind.CALENDAR_HOUR: {Kind.DATE, Kind.HOUR},
}
"""Which parts of the local time a slot of each kind has one of."""
_NAMED = {kind.value: kind for kind in Kind if kind.of_slot or kind.of_place or kind is Kind.STATUS}
_AGGREGATES: dict[type[exp.Expr], Kind] = {
    exp.Avg: Kind.MEAN,
    exp.VariancePop: Kind.VARIANCE,
    exp.StddevPop: Kind.STDDEV,
    exp.Stddev: Kind.STDDEV,
    exp.Median: Kind.MEDIAN,
}
_SAMPLE: dict[type[exp.Expr], Kind] = {exp.Variance: Kind.VARIANCE, exp.StddevSamp: Kind.STDDEV}
"""Sample statistics: what is released is that of the whole population of records."""
_QUANTILES = (exp.WithinGroup, exp.PercentileCont, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile)
_QUANTILE_CALLS = ("quantile_cont", "quantile_disc", "percentile", "approx_percentile")
_ENDS = {each.function.lower(): each for each in End if each is not End.VALUE}
_SHARES = "one of " + ", ".join(f"{float(share):g}" for share in sorted(KIND_OF))


class AnswerColumn(NamedTuple):
    """A column of the answer: ``kind`` is what it holds, ``end`` the value or an interval's end."""

    kind: Kind
    end: End = End.VALUE

    @property
    def name(self) -> str:
        """Name of the column in the answer: the SQL expression that asks for it, such as AVG(speed)."""
        return self.kind.value if self.end is End.VALUE else f"{self.end.function}({self.kind.value})"


@dataclass
class Mentions:
    """What a question names, in order: columns of the answer, H3 resolutions and kinds of time slot."""

    columns: list[AnswerColumn] = field(default_factory=list)
    resolutions: list[int] = field(default_factory=list)
    slot_kinds: list[SlotKind] = field(default_factory=list)

    @property
    def kinds(self) -> dict[Kind, None]:
        """The kinds of ``columns`` as keys in order of mention, each once; the values are None."""
        return dict.fromkeys(column.kind for column in self.columns)


def default_name(kind: Kind, unit: SpeedUnit) -> str:
    """Return the name of a column for which the question gives none; a statistic's name ends in ``unit``."""
    if kind is Kind.STDDEV:
        return f"speed_stddev_{unit.value}"
    if kind.statistic is not None:
        return kind.statistic.column(unit)
    return {Kind.RECORDS: "records", Kind.VEHICLES: "vehicles"}.get(kind, kind.value)


def read_column(node: exp.Expr, aliases: dict[str, AnswerColumn], mentions: Mentions) -> AnswerColumn | None:
    """Return the column of the answer that ``node`` asks for, and append it to ``mentions``; None if none.

    ``aliases`` are the columns by the lower-case names that the question gives them. Raises RefusedError for
    an aggregate of records that is not offered.
    """
    found = _column(without_brackets(node), aliases, mentions)
    if found is not None:
        mentions.columns.append(found)
    return found


def _column(node: exp.Expr, aliases: dict[str, AnswerColumn], mentions: Mentions) -> AnswerColumn | None:
    name, kind = name_of(node), type(node)
    if name is not None:
        return AnswerColumn(_NAMED[name]) if name in _NAMED else None
    if isinstance(node, exp.Count):
        return AnswerColumn(_count(node))
    if isinstance(node, _QUANTILES):
        return AnswerColumn(_quantile(node))
    if kind in _AGGREGATES:
        return AnswerColumn(_of_speed(node, [node.this, *(node.expressions or [])], _AGGREGATES[kind]))
    if kind in _SAMPLE:
        raise RefusedError("variances are those of all records, not of a sample", _SAMPLE[kind].value, node)
    call = call_of(node)
    return None if call is None else _called(call[0], call[1], node, aliases, mentions)


def _called(
    name: str,
    arguments: list[exp.Expr],
    node: exp.Expr,
    aliases: dict[str, AnswerColumn],
    mentions: Mentions,
) -> AnswerColumn | None:
    if name == "h3":
        if len(arguments) != 1:
            raise RefusedError("h3 takes a resolution", "h3(7)", node)
        mentions.resolutions.append(integer_of(arguments[0], 0, 15, "a resolution", "h3(7)"))
        return AnswerColumn(Kind.CELL)
    if name == "slot":
        if len(arguments) != 1:
            raise RefusedError("slot takes the kind of slot", "slot('hour_of_day')", node)
        mentions.slot_kinds.append(_slot_kind(arguments[0]))
        return AnswerColumn(Kind.SLOT)
    if name == "vehicle_avg":
        return AnswerColumn(_of_speed(node, arguments, Kind.VEHICLE_MEAN))
    if name in _QUANTILE_CALLS and len(arguments) == 2:
        return AnswerColumn(_of_share(arguments[0], arguments[1], node))
    if name not in _ENDS:
        return None
    end, works = _ENDS[name], f"{name.upper()}(AVG(speed))"
    if len(arguments) != 1:
        raise RefusedError("an interval is that of one column", works, node)
    inner = aliases.get(name_of(arguments[0]) or "") or _column(arguments[0], aliases, mentions)
    if inner is None or not inner.kind.measured or inner.end is not End.VALUE:
        raise RefusedError("only statistics have intervals", works, node)
    if end not in inner.kind.ends:
        what = "the interval of a quantile is in ranks" if inner.kind.by_rank else "only quantiles have ranks"
        own = inner.kind.ends[end in (End.HIGH, End.RANK_HIGH)]
        raise RefusedError(what, AnswerColumn(inner.kind, own).name)
    return AnswerColumn(inner.kind, end)


def _of_speed(node: exp.Expr, arguments: list[exp.Expr], kind: Kind) -> Kind:
    if len(arguments) == 1 and name_of(without_brackets(arguments[0])) == "speed":
        return kind
    raise RefusedError("statistics are those of speed", kind.value, node)


def _quantile(node: exp.Expr) -> Kind:
    """Return the kind of quantile that ``node`` asks for.

    The forms are QUANTILE(speed, q) and PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY speed). Raises
    RefusedError for a quantile that is not offered.
    """
    if not isinstance(node, exp.WithinGroup):
        share = node.args.get("quantile") or node.args.get("expression")
        return _of_share(node.this, share, node)
    order = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if len(order) != 1 or not isinstance(node.this, (exp.PercentileCont, exp.PercentileDisc)):
        works = "PERCENTILE_CONT(0.85) WITHIN GROUP (ORDER BY speed)"
        raise RefusedError("this quantile cannot be read", works, node)
    return _of_share(order[0].this, node.this.this, node, down=bool(order[0].args.get("desc")))


def _of_share(column: object, share: object, node: exp.Expr, *, down: bool = False) -> Kind:
    """Return the kind of quantile below which the ``share`` (0 to 1) of vehicles lies; above, with ``down``.

    Raises RefusedError for a column other than speed, or a quantile that is not offered.
    """
    if name_of(without_brackets(column) if isinstance(column, exp.Expr) else None) != "speed":
        raise RefusedError("statistics are those of speed", Kind.P85.value, node)
    asked = share if isinstance(share, exp.Expr) else exp.Null()
    found = Fraction(number_of(asked, "the share of a quantile", _SHARES)).limit_denominator(10**6)
    kind = KIND_OF.get(1 - found if down else found)
    if kind is None:
        raise RefusedError("there is no such quantile", _SHARES, node)
    return kind


def _slot_kind(node: exp.Expr) -> SlotKind:
    works = "slot('hour_of_day')"
    text = string_of(node, "the kind of slot", works).strip().lower()
    try:
        return SlotKind(text)
    except ValueError:
        raise RefusedError("there is no such kind of slot", works) from None


def _count(node: exp.Count) -> Kind:
    counted, others = node.this, node.expressions
    whole = counted is None or (isinstance(counted, exp.Star) and not counted.args.get("except_"))
    if whole and not others:
        return Kind.RECORDS
    distinct = counted.expressions if isinstance(counted, exp.Distinct) and not others else []
    if len(distinct) == 1 and name_of(without_brackets(distinct[0])) == "vehicle":
        return Kind.VEHICLES
    raise RefusedError("records are counted, and vehicles", Kind.VEHICLES.value, node)
