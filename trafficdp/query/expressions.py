"""One expression of a question's SELECT, GROUP BY or ORDER BY: which column it is, at which grid."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from sqlglot import exp

from trafficdp.model import SlotKind
from trafficdp.query.columns import KIND_OF, End, Kind, Meaning
from trafficdp.query.literals import call_of, integer_of, name_of, number_of, string_of, text_of, unwrapped
from trafficdp.query.problems import Problem, UnreadableError

SHOWN = (
    "cell, place, h3(resolution), hour, weekday, date, slot, slot('hour_of_day'), slot_label, slot_start, "
    "slot_end, status, COUNT(*), "
    "COUNT(DISTINCT vehicle), AVG(speed), VAR_POP(speed), STDDEV_POP(speed), VEHICLE_AVG(speed), "
    "MEDIAN(speed), QUANTILE_CONT(speed, 0.85), "
    "DP_INTERVAL_LOW(x), DP_INTERVAL_HIGH(x) and ROUND(x, digits)"
)
_SLOTS = "one of " + ", ".join(f"slot('{kind.value}')" for kind in SlotKind)
_NAMED = {
    kind.value: kind
    for kind in (
        Kind.CELL,
        Kind.SLOT,
        Kind.SLOT_LABEL,
        Kind.SLOT_START,
        Kind.SLOT_END,
        Kind.HOUR,
        Kind.WEEKDAY,
        Kind.DATE,
        Kind.PLACE,
        Kind.STATUS,
    )
}
_MOST_DIGITS = 3
_WHOLE = (
    exp.DataType.Type.TINYINT,
    exp.DataType.Type.SMALLINT,
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
)
_FLOATING = (exp.DataType.Type.FLOAT, exp.DataType.Type.DOUBLE)
_AGGREGATES: dict[type[exp.Expr], Kind] = {
    exp.Avg: Kind.MEAN,
    exp.VariancePop: Kind.VARIANCE,
    exp.StddevPop: Kind.STDDEV,
    exp.Stddev: Kind.STDDEV,
    exp.Median: Kind.MEDIAN,
}
_QUANTILES = (exp.WithinGroup, exp.PercentileCont, exp.PercentileDisc, exp.Quantile)
_QUANTILE_CALLS = ("quantile_cont", "quantile_disc", "percentile", "approx_percentile")
_SHARES = "one of " + ", ".join(f"{float(share):g}" for share in sorted(KIND_OF))
_SAMPLE: dict[type[exp.Expr], Kind] = {exp.Variance: Kind.VARIANCE, exp.StddevSamp: Kind.STDDEV}
"""Sample statistics: what is released is that of the whole population of records."""


class RefusedError(UnreadableError):
    """An expression that is refused, with the column that would be allowed in its place, if any."""

    def __init__(self, problem: Problem, instead: Meaning | None) -> None:
        self.instead = instead
        super().__init__(problem.what, problem.got, problem.expected)


@dataclass
class GridWords:
    """The resolutions and kinds of slot that a question names, in the order in which it does."""

    resolutions: list[int] = field(default_factory=list)
    slot_kinds: list[SlotKind] = field(default_factory=list)
    bare_cell: bool = False
    bare_slot: bool = False
    clock: set[Kind] = field(default_factory=set)


def meaning_of(node: exp.Expr, aliases: dict[str, Meaning], words: GridWords) -> Meaning:
    """Return what an expression shows; ``aliases`` are the names it may use for others, by lower-case name.

    Raises RefusedError, with what may stand in its place.
    """
    node = unwrapped(node)
    name = name_of(node)
    if name is not None:
        return _named(name, node, aliases, words)
    call = call_of(node)
    if call is not None:
        return _called(call[0], call[1], node, aliases, words)
    kind = type(node)
    if isinstance(node, (exp.Round, exp.Cast)):
        return _rounded(node, aliases, words)
    if isinstance(node, exp.Count):
        return _count(node)
    if isinstance(node, _QUANTILES):
        return _quantile(node)
    if kind in _AGGREGATES:
        _needs_speed(node, Meaning(_AGGREGATES[kind]))
        return Meaning(_AGGREGATES[kind])
    if kind in _SAMPLE:
        instead = _SAMPLE[kind]
        raise _refused("variances are those of all records, not of a sample", node, instead.value, instead)
    raise _refused("this cannot be asked of the vault", node, SHOWN, _inner(node))


def _refused(
    what: str, node: exp.Expr, expected: str, instead: Kind | None, end: End = End.VALUE
) -> RefusedError:
    return RefusedError(
        Problem(what, text_of(node), expected), None if instead is None else Meaning(instead, end)
    )


def _inner(node: exp.Expr) -> Kind | None:
    """Return an aggregate that can stand for a sum, a median, a window and the like."""
    if isinstance(node, exp.AggFunc):
        return Kind.MEAN
    for inside in node.find_all(exp.AggFunc):
        return Kind.FIXES if isinstance(inside, exp.Count) else _AGGREGATES.get(type(inside), Kind.MEAN)
    return None


def _named(name: str, node: exp.Expr, aliases: dict[str, Meaning], words: GridWords) -> Meaning:
    if name not in _NAMED and name in aliases:
        return aliases[name]
    if name not in _NAMED:
        what = {
            "speed": "single speeds are what is protected",
            "vehicle": "no vehicle can be shown",
            "time": "single records cannot be shown",
            "latitude": "single records cannot be shown",
            "longitude": "single records cannot be shown",
        }.get(name, "there is no such column")
        raise _refused(what, node, SHOWN, Kind.MEAN if name == "speed" else None)
    kind = _NAMED[name]
    words.bare_cell |= kind is Kind.CELL
    words.bare_slot |= kind.of_slot
    if kind.of_clock:
        words.clock.add(kind)
    return Meaning(kind)


def _called(
    name: str,
    arguments: list[exp.Expr],
    node: exp.Expr,
    aliases: dict[str, Meaning],
    words: GridWords,
) -> Meaning:
    if name == "h3":
        if len(arguments) != 1:
            raise _refused("h3 takes a resolution", node, "h3(7)", Kind.CELL)
        try:
            words.resolutions.append(integer_of(arguments[0], 0, 15, "a resolution"))
        except UnreadableError as error:
            raise RefusedError(error.problem, Meaning(Kind.CELL)) from None
        return Meaning(Kind.CELL)
    if name == "slot":
        if len(arguments) != 1:
            raise _refused("slot takes the kind of slot", node, _SLOTS, Kind.SLOT)
        try:
            words.slot_kinds.append(_slot_kind(arguments[0]))
        except UnreadableError as error:
            raise RefusedError(error.problem, Meaning(Kind.SLOT)) from None
        return Meaning(Kind.SLOT)
    if name == "vehicle_avg":
        if len(arguments) != 1 or name_of(arguments[0]) != "speed":
            raise _refused("statistics are those of speed", node, Kind.VEHICLE_MEAN.value, Kind.VEHICLE_MEAN)
        return Meaning(Kind.VEHICLE_MEAN)
    if name in _QUANTILE_CALLS and len(arguments) == 2:
        return Meaning(_of_share(arguments[0], arguments[1], node))
    ends = {each.function.lower(): each for each in End if each is not End.VALUE}
    if name not in ends:
        raise _refused("this cannot be asked of the vault", node, SHOWN, _inner(node))
    end = ends[name]
    if len(arguments) != 1:
        raise _refused("an interval is that of one column", node, f"{name}(AVG(speed))", Kind.MEAN, end)
    try:
        kind, inner_end, digits = meaning_of(arguments[0], aliases, words)
    except RefusedError as error:
        instead = error.instead[0] if error.instead else Kind.MEAN
        raise RefusedError(error.problem, Meaning(instead if instead.measured else Kind.MEAN, end)) from None
    if not kind.measured or inner_end is not End.VALUE:
        raise _refused("only statistics have intervals", node, f"{name}(AVG(speed))", Kind.MEAN, end)
    if end not in kind.ends:
        what = "the interval of a quantile is in ranks" if kind.by_rank else "only quantiles have ranks"
        own = kind.ends[end in (End.HIGH, End.RANK_HIGH)]
        raise _refused(what, node, f"{own.function}({kind.value})", kind, own)
    return Meaning(kind, end, digits)


def _quantile(node: exp.Expr) -> Meaning:
    """Return the quantile that QUANTILE(speed, q) or PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY speed) is."""
    if not isinstance(node, exp.WithinGroup):
        share = node.args.get("quantile") or node.args.get("expression")
        return Meaning(_of_share(node.this, share, node))
    order = node.expression.expressions if isinstance(node.expression, exp.Order) else []
    if len(order) != 1 or not isinstance(node.this, (exp.PercentileCont, exp.PercentileDisc)):
        expected = "PERCENTILE_CONT(0.85) WITHIN GROUP (ORDER BY speed)"
        raise _refused("this quantile cannot be read", node, expected, Kind.MEDIAN)
    return Meaning(_of_share(order[0].this, node.this.this, node, down=bool(order[0].args.get("desc"))))


def _of_share(column: object, share: object, node: exp.Expr, *, down: bool = False) -> Kind:
    """Return the quantile of speed below which ``share`` of the vehicles are, or above: ``down``."""
    if name_of(unwrapped(column) if isinstance(column, exp.Expr) else None) != "speed":
        raise _refused("statistics are those of speed", node, Kind.MEDIAN.value, Kind.MEDIAN)
    try:
        asked = share if isinstance(share, exp.Expr) else exp.Null()
        found = Fraction(number_of(asked, "the share of a quantile", _SHARES)).limit_denominator(10**6)
    except UnreadableError as error:
        raise RefusedError(error.problem, Meaning(Kind.MEDIAN)) from None
    kind = KIND_OF.get(1 - found if down else found)
    if kind is None:
        raise _refused("there is no such quantile", node, _SHARES, Kind.MEDIAN)
    return kind


def _rounded(node: exp.Round | exp.Cast, aliases: dict[str, Meaning], words: GridWords) -> Meaning:
    """Return what ROUND(x, digits) and CAST(x AS a type of numbers) show: the number x, rounded."""
    meaning = meaning_of(node.this, aliases, words)
    if not meaning.kind.measured:
        if isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEXT_TYPES):
            return meaning
        raise _refused("only numbers are rounded", node, "ROUND(AVG(speed), 1)", meaning.kind)
    try:
        digits = _digits(node)
    except UnreadableError as error:
        raise RefusedError(error.problem, meaning) from None
    if digits is None or meaning.kind.counts:
        return meaning
    return meaning._replace(digits=digits if meaning.digits is None else min(digits, meaning.digits))


def _digits(node: exp.Round | exp.Cast) -> int | None:
    """Return the decimals that are asked for, None for all that there are."""
    if isinstance(node, exp.Round):
        if node.args.get("decimals") is None:
            return 0
        return min(integer_of(node.args["decimals"], 0, 15, "a number of decimals"), _MOST_DIGITS)
    if node.to.is_type(*_WHOLE):
        return 0
    if node.to.is_type(*_FLOATING) and not node.to.expressions:
        return None
    if node.to.is_type(exp.DataType.Type.DECIMAL) and len(node.to.expressions) == 2:
        return min(integer_of(node.to.expressions[1].this, 0, 15, "a number of decimals"), _MOST_DIGITS)
    raise UnreadableError("numbers are cast to a type of numbers", text_of(node), "CAST(x AS DECIMAL(6, 1))")


def _slot_kind(node: exp.Expr) -> SlotKind:
    text = string_of(node, "the kind of slot", _SLOTS).strip().lower()
    try:
        return SlotKind(text)
    except ValueError:
        raise UnreadableError("there is no such kind of slot", None, _SLOTS) from None


def _count(node: exp.Count) -> Meaning:
    counted = node.this
    others = node.expressions
    if isinstance(counted, exp.Star) and not others and not counted.args.get("except_"):
        return Meaning(Kind.FIXES)
    if isinstance(counted, exp.Distinct) and not others and len(counted.expressions) == 1:
        if name_of(unwrapped(counted.expressions[0])) == "vehicle":
            return Meaning(Kind.VEHICLES)
        raise _refused("vehicles are counted, and records", node, Kind.VEHICLES.value, Kind.VEHICLES)
    raise _refused("vehicles are counted, and records", node, Kind.FIXES.value, Kind.FIXES)


def _needs_speed(node: exp.Expr, instead: Meaning) -> None:
    if name_of(unwrapped(node.this)) != "speed" or node.args.get("expressions"):
        raise _refused("statistics are those of speed", node, instead.kind.value, instead.kind)
