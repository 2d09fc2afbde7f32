"""The columns of a question, what it is grouped and ordered by, and the form of the whole SELECT."""

from __future__ import annotations

import itertools

from sqlglot import exp

from trafficdp.model import SpeedUnit
from trafficdp.query.columns import RESERVED, Column, End, Kind, Meaning, default_name
from trafficdp.query.dialect import shown
from trafficdp.query.expressions import GridWords, RefusedError, meaning_of
from trafficdp.query.literals import integer_of, name_of, text_of, unwrapped
from trafficdp.query.problems import Problems, UnreadableError

TABLE = "fixes"
LONGEST_NAME = 60
LARGEST_LIMIT = 10**9
Shown = tuple[Meaning, str]
"""A column with the name that the question gives it, empty for none."""
DEFAULTS: list[Shown] = [
    (Meaning(Kind.CELL), ""),
    (Meaning(Kind.MEAN), ""),
    (Meaning(Kind.MEAN, End.LOW), ""),
    (Meaning(Kind.MEAN, End.HIGH), ""),
]
"""What is offered where nothing can be read."""
_READ = {"expressions", "from_", "where", "group", "having", "order", "limit"}
_CALLED = {
    "joins": "a JOIN",
    "distinct": "DISTINCT",
    "qualify": "QUALIFY",
    "with_": "WITH",
    "windows": "WINDOW",
    "offset": "OFFSET",
    "into": "INTO",
    "laterals": "LATERAL",
}
_GROUPS = "GROUP BY cell, place, slot, hour, weekday or date; or no GROUP BY, for the whole city"
_FREE = (
    "a question without it; the answer is kept as a release, and free SQL on releases can do the rest: "
    "SELECT ... FROM cells"
)


def check_form(select: exp.Select, problems: Problems) -> None:
    """Note a problem for every clause that the dialect does not have, and for any table but records."""
    for name, part in select.args.items():
        if part and name not in _READ:
            problems.add(
                f"{_CALLED.get(name, name.strip('_'))} is not part of a priced question", None, _FREE
            )
    origin = select.args.get("from_")
    table = origin.this if isinstance(origin, exp.From) else None
    if not isinstance(table, exp.Table):
        problems.add("a priced question is FROM fixes", None if table is None else text_of(table), TABLE)
    elif table.name.lower() != TABLE or any(part for name, part in table.args.items() if name != "this"):
        problems.add("a priced question is FROM fixes alone", text_of(table), TABLE)


def read_columns(select: exp.Select, words: GridWords, problems: Problems) -> list[Shown]:
    """Return the columns with their names; DEFAULTS when none can be read."""
    aliases = aliases_of(select)
    found: list[Shown] = []
    for node in select.expressions:
        inner = unwrapped(node.this) if isinstance(node, exp.Alias) else node
        name = _alias(node)
        if isinstance(inner, exp.Star) or (
            isinstance(inner, exp.Column) and isinstance(inner.this, exp.Star)
        ):
            problems.add("single records cannot be shown", "*", "columns and statistics by name")
            found += DEFAULTS
            continue
        try:
            found.append((meaning_of(inner, aliases, words), name))
        except RefusedError as error:
            problems.found.append(error.problem)
            if error.instead is not None and error.instead not in [meaning for meaning, _ in found]:
                found.append((error.instead, name))
    if not any(meaning.kind.measured for meaning, _ in found):
        problems.add("the question asks for no statistic", None, "AVG(speed), COUNT(*) or another")
        found += DEFAULTS[0 if not found else 1 :]
    return found


def _alias(node: exp.Expr) -> str:
    if not isinstance(node, exp.Alias):
        return ""
    identifier = node.args.get("alias")
    quoted = isinstance(identifier, exp.Identifier) and identifier.args.get("quoted")
    return node.alias if quoted else node.alias.lower()


def aliases_of(select: exp.Select) -> dict[str, Meaning]:
    """Return what the names of measured columns stand for, so that intervals and orders may use them."""
    found: dict[str, Meaning] = {}
    for node in select.expressions:
        if isinstance(node, exp.Alias):
            try:
                meaning = meaning_of(node.this, {}, GridWords())
            except UnreadableError:
                continue
            found.setdefault(node.alias.lower(), meaning)
    return found


def read_keys(
    select: exp.Select, columns: list[Shown], words: GridWords, problems: Problems
) -> frozenset[Kind]:
    """Return which of CELL and SLOT the question is grouped by; neither: one number for the whole city."""
    keys: set[Kind] = set()
    group = select.args.get("group")
    if isinstance(group, exp.Group):
        if any(part for name, part in group.args.items() if name not in ("expressions", "all")):
            problems.add("groups are hexagons and slots", text_of(group), _GROUPS)
        if group.args.get("all"):
            keys |= {_key(meaning.kind) for meaning, _ in columns if not meaning.kind.measured}
        for node in group.expressions:
            keys |= _group(node, select, words, problems)
    keys.discard(Kind.STATUS)
    shown = {_key(meaning.kind) for meaning, _ in columns} & {Kind.CELL, Kind.SLOT}
    # a column that is shown is grouped by: SQL leaves no other meaning
    if Kind.CELL in shown - keys:
        problems.add("the hexagon is shown but not grouped by", None, "GROUP BY cell", same=True)
    if Kind.SLOT in shown - keys:
        problems.add("the slot is shown but not grouped by", None, "GROUP BY cell, slot", same=True)
    return frozenset(keys | shown)


def _key(kind: Kind) -> Kind:
    return Kind.SLOT if kind.of_slot else Kind.CELL if kind.of_place else kind


def _group(node: exp.Expr, select: exp.Select, words: GridWords, problems: Problems) -> set[Kind]:
    """Return the key that one expression of GROUP BY is; nothing and a problem for any other."""
    try:
        kind = _placed(node, select, words).kind
    except UnreadableError as error:
        problems.found.append(error.problem)
        return set()
    if kind.measured:
        problems.add("groups are hexagons and slots", text_of(node), _GROUPS)
        return set()
    return {_key(kind)}


def _placed(node: exp.Expr, select: exp.Select, words: GridWords) -> Meaning:
    """Return what an expression of GROUP BY or ORDER BY means: a place in the list, a name, a column."""
    node = unwrapped(node)
    if isinstance(node, exp.Literal):
        # the numbering of what was written, not of what could be read
        if not select.expressions:
            raise UnreadableError(
                "there is no list to count places in", text_of(node), "columns after the clause"
            )
        place = integer_of(node, 1, len(select.expressions), "a place in the list")
        written = select.expressions[place - 1]
        return meaning_of(
            written.this if isinstance(written, exp.Alias) else written, aliases_of(select), words
        )
    return meaning_of(node, aliases_of(select), words)


def named(columns: list[Shown], unit: SpeedUnit, problems: Problems) -> tuple[Column, ...]:
    """Return the columns, each with a name of its own; a statistic is followed by its interval.

    Unless an end of its interval is asked for: then that is what is shown.
    """
    taken: dict[tuple[Kind, End], str] = {}
    for (kind, end, _), name in columns:
        if name and end is End.VALUE:
            taken.setdefault((kind, end), name)
    found: list[Column] = []
    seen: set[str] = set()
    for (kind, end, digits), given in columns:
        fallback = default_name(kind, unit) + end.value
        if end is not End.VALUE and (kind, End.VALUE) in taken:
            fallback = taken[kind, End.VALUE] + end.value
        name = given or fallback
        if not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME:
            expected = f"at most {LONGEST_NAME} letters"
            problems.add("a name is too long or not printable", None, expected, same=True)
            name = default_name(kind, unit) + end.value
        if RESERVED.get(name.lower(), kind) is not kind or (
            end is not End.VALUE and name.lower() in RESERVED
        ):
            problems.add("this name is kept for another column", shown(name), fallback, same=True)
            name = default_name(kind, unit) + end.value
        if name.lower() in seen:
            problems.add("two columns have the same name", None, "a name of its own for each", same=True)
            name = _free(name, seen)
        seen.add(name.lower())
        found.append(Column(kind, end, name, digits))
    return _with_intervals(found, seen)


def _with_intervals(columns: list[Column], seen: set[str]) -> tuple[Column, ...]:
    done = {column.kind for column in columns if column.end is not End.VALUE}
    found: list[Column] = []
    for column in columns:
        found.append(column)
        if column.kind.statistic is None or column.kind in done:
            continue
        done.add(column.kind)
        for end in column.kind.ends:
            name = _free(column.name + end.value, seen)
            seen.add(name.lower())
            found.append(Column(column.kind, end, name, column.digits))
    return tuple(found)


def _free(name: str, seen: set[str]) -> str:
    """Return ``name``, with a number where it is taken or kept for another column."""
    taken = {*seen, *RESERVED}
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(each for each in names if each.lower() not in taken)


def read_order(
    select: exp.Select, names: tuple[Column, ...], words: GridWords, problems: Problems
) -> tuple[tuple[int, bool], ...]:
    """Return (number of the column from 1, descending) of every expression of ORDER BY."""
    order = select.args.get("order")
    found: list[tuple[int, bool]] = []
    meanings = [column.meaning for column in names]
    for node in order.expressions if isinstance(order, exp.Order) else ():
        inner = node.this if isinstance(node, exp.Ordered) else node
        by_name = {column.name.lower(): place for place, column in enumerate(names, 1)}
        try:
            if isinstance(node, exp.Ordered) and node.args.get("nulls_first"):
                raise UnreadableError("bins without a number come last", text_of(node), "no NULLS FIRST")
            place = by_name.get(name_of(unwrapped(inner)) or "")
            meaning = meanings[place - 1] if place else _placed(inner, select, words)
            if meaning not in meanings:
                # ORDER BY AVG(speed) where it is shown rounded
                meaning = next((each for each in meanings if each[:2] == meaning[:2]), meaning)
            # of equal columns the first, so that equal orders are equal here
            if meaning not in meanings:
                raise UnreadableError(
                    "only columns that are shown give an order", text_of(node), "ORDER BY 1"
                )
        except UnreadableError as error:
            problems.found.append(error.problem)
            continue
        down = isinstance(node, exp.Ordered) and bool(node.args.get("desc"))
        found.append((meanings.index(meaning) + 1, down))
    return tuple(found)


def read_limit(select: exp.Select, problems: Problems) -> int | None:
    """Return the number of LIMIT, None when there is none."""
    limit = select.args.get("limit")
    if limit is None:
        return None
    try:
        if not isinstance(limit, exp.Limit) or any(
            part for name, part in limit.args.items() if name not in ("this", "expression")
        ):
            raise UnreadableError("rows are limited by LIMIT", text_of(limit), "LIMIT 10")
        return integer_of(limit.expression, 0, LARGEST_LIMIT, "a limit")
    except UnreadableError as error:
        problems.found.append(error.problem)
        return None
