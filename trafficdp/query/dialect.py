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

# The words of the dialect, refusals that repeat nothing else, and values that a question writes out.


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
    """Return the SQL of a part of a question, as ``shown`` in a message; None where it has none."""
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


# The columns that an answer has: how a question writes them, and how they are read.


class Kind(StrEnum):
    """What a column holds. The value is how it is written in a question."""

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
        """The noisy statistic it comes from, None for what is public under the counts assumption."""
        return _STATISTICS.get(self)

    @property
    def of_slot(self) -> bool:
        """Whether it belongs to the slot, which must then be grouped by."""
        return self in (Kind.SLOT, Kind.SLOT_LABEL, Kind.SLOT_START, Kind.SLOT_END) or self.of_clock

    @property
    def of_clock(self) -> bool:
        """Whether it is a part of the local time, which says what slots there are."""
        return self in (Kind.HOUR, Kind.WEEKDAY, Kind.DATE)

    @property
    def of_place(self) -> bool:
        """Whether it is the cell or the name of the place: a question with it must group by hexagon."""
        return self in (Kind.CELL, Kind.PLACE)

    @property
    def counts(self) -> bool:
        """Whether it is an exact count."""
        return self in (Kind.RECORDS, Kind.VEHICLES)

    @property
    def measured(self) -> bool:
        """Whether it is a number that may have an interval: a statistic or a count."""
        return self.counts or self.statistic is not None

    @property
    def by_rank(self) -> bool:
        """Whether it is a quantile, whose interval is one of ranks."""
        return self.statistic in QUANTILES

    @property
    def ends(self) -> tuple[End, End]:
        """Which columns hold the lower and upper end of its interval: ranks of a quantile, else values."""
        return (End.RANK_LOW, End.RANK_HIGH) if self.by_rank else (End.LOW, End.HIGH)


class End(StrEnum):
    """Which number of a measured column: the value, or an end of its interval (of a quantile: ranks)."""

    VALUE = ""
    LOW = "_low"
    HIGH = "_high"
    RANK_LOW = "_rank_low"
    RANK_HIGH = "_rank_high"

    @property
    def of_rank(self) -> bool:
        """Whether it is the number of a vehicle, counted from the slowest."""
        return self in (End.RANK_LOW, End.RANK_HIGH)

    @property
    def function(self) -> str:
        """What asks for it."""
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
    """A column of the answer: what it holds, and of a number whether it is the value or an end."""

    kind: Kind
    end: End = End.VALUE

    @property
    def name(self) -> str:
        """What the answer calls it: as it is written in a question, so that no name of the asker's is it."""
        return self.kind.value if self.end is End.VALUE else f"{self.end.function}({self.kind.value})"


@dataclass
class Mentions:
    """What of the answer and of the grid a question names, in the order in which it does."""

    columns: list[AnswerColumn] = field(default_factory=list)
    resolutions: list[int] = field(default_factory=list)
    slot_kinds: list[SlotKind] = field(default_factory=list)

    @property
    def kinds(self) -> dict[Kind, None]:
        """The kinds of the columns, each once."""
        return dict.fromkeys(column.kind for column in self.columns)


def default_name(kind: Kind, unit: SpeedUnit) -> str:
    """Return what a column is called that is given no name: with the unit of its speeds."""
    if kind is Kind.STDDEV:
        return f"speed_stddev_{unit.value}"
    if kind.statistic is not None:
        return kind.statistic.column(unit)
    return {Kind.RECORDS: "records", Kind.VEHICLES: "vehicles"}.get(kind, kind.value)


def read_column(node: exp.Expr, aliases: dict[str, AnswerColumn], mentions: Mentions) -> AnswerColumn | None:
    """Return the column of the answer that an expression is, and note it; None where it is none.

    ``aliases`` are the names that the question gives to columns, in lower case. Raises RefusedError for what
    would be an aggregate of records that is not measured.
    """
    found = _column(unwrapped(node), aliases, mentions)
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
        raise RefusedError(
            "variances are those of all records, not of a sample", _SAMPLE[kind].value, text_of(node)
        )
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
            raise RefusedError("h3 takes a resolution", "h3(7)", text_of(node))
        mentions.resolutions.append(integer_of(arguments[0], 0, 15, "a resolution", "h3(7)"))
        return AnswerColumn(Kind.CELL)
    if name == "slot":
        if len(arguments) != 1:
            raise RefusedError("slot takes the kind of slot", "slot('hour_of_day')", text_of(node))
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
        raise RefusedError("an interval is that of one column", works, text_of(node))
    inner = aliases.get(name_of(arguments[0]) or "") or _column(arguments[0], aliases, mentions)
    if inner is None or not inner.kind.measured or inner.end is not End.VALUE:
        raise RefusedError("only statistics have intervals", works, text_of(node))
    if end not in inner.kind.ends:
        what = "the interval of a quantile is in ranks" if inner.kind.by_rank else "only quantiles have ranks"
        own = inner.kind.ends[end in (End.HIGH, End.RANK_HIGH)]
        raise RefusedError(what, AnswerColumn(inner.kind, own).name)
    return AnswerColumn(inner.kind, end)


def _of_speed(node: exp.Expr, arguments: list[exp.Expr], kind: Kind) -> Kind:
    if len(arguments) == 1 and name_of(unwrapped(arguments[0])) == "speed":
        return kind
    raise RefusedError("statistics are those of speed", kind.value, text_of(node))


def _quantile(node: exp.Expr) -> Kind:
    """Return the quantile that QUANTILE(speed, q) or PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY speed) is."""
    if not isinstance(node, exp.WithinGroup):
        share = node.args.get("quantile") or node.args.get("expression")
        return _of_share(node.this, share, node)
    order = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if len(order) != 1 or not isinstance(node.this, (exp.PercentileCont, exp.PercentileDisc)):
        works = "PERCENTILE_CONT(0.85) WITHIN GROUP (ORDER BY speed)"
        raise RefusedError("this quantile cannot be read", works, text_of(node))
    return _of_share(order[0].this, node.this.this, node, down=bool(order[0].args.get("desc")))


def _of_share(column: object, share: object, node: exp.Expr, *, down: bool = False) -> Kind:
    """Return the quantile of speed below which ``share`` of the vehicles are, or above: ``down``."""
    if name_of(unwrapped(column) if isinstance(column, exp.Expr) else None) != "speed":
        raise RefusedError("statistics are those of speed", Kind.P85.value, text_of(node))
    asked = share if isinstance(share, exp.Expr) else exp.Null()
    found = Fraction(number_of(asked, "the share of a quantile", _SHARES)).limit_denominator(10**6)
    kind = KIND_OF.get(1 - found if down else found)
    if kind is None:
        raise RefusedError("there is no such quantile", _SHARES, text_of(node))
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
    if len(distinct) == 1 and name_of(unwrapped(distinct[0])) == "vehicle":
        return Kind.VEHICLES
    raise RefusedError("records are counted, and vehicles", Kind.VEHICLES.value, text_of(node))
