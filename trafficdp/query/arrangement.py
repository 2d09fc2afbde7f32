"""The arrangement of an answer: a priced SELECT whose aggregates are swapped for columns of the answer.

What touches records is read here and taken out: FROM, GROUP BY, the aggregates (WHERE: ``conditions``). All
else runs in DuckDB on the rows of the answer: HAVING, ORDER BY, LIMIT, arithmetic, CASE, windows, names.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sqlglot import exp

from trafficdp.model import SpeedUnit
from trafficdp.privacy.release import DECIMALS
from trafficdp.query import dialect

LONGEST_NAME = 60
Aliases = dict[str, dialect.AnswerColumn]
"""The columns that a question gives names to, by the name in lower case."""
ARRANGING = {
    "expressions": "SELECT",
    "distinct": "DISTINCT",
    "having": "HAVING",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
}
"""The parts of a SELECT that see the answer alone, in the order in which they are tried."""
_OF_RECORDS = {"from_", "where", "group"}
_CALLED = {"joins": "JOIN", "with_": "WITH", "into": "INTO", "laterals": "LATERAL", "sample": "SAMPLE"}
_PROTECTED = {
    "speed": ("single speeds are what is protected", "AVG(speed)"),
    "vehicle": ("no vehicle can be shown", "COUNT(DISTINCT vehicle)"),
    "plate": ("no vehicle can be shown", "COUNT(DISTINCT vehicle)"),
    "vehicle_id": ("no vehicle can be shown", "COUNT(DISTINCT vehicle)"),
    "time": ("single records cannot be shown", "hour, with GROUP BY hour"),
    "latitude": ("single records cannot be shown", "cell, with GROUP BY cell"),
    "longitude": ("single records cannot be shown", "cell, with GROUP BY cell"),
}
_PARTS: dict[type[exp.Expr], str] = {exp.Hour: "hour", exp.Dayname: "weekday", exp.Date: "date"}
_TRUNCATED = (exp.DateTrunc, exp.TimestampTrunc)
_WHOLE = (
    exp.DataType.Type.TINYINT,
    exp.DataType.Type.SMALLINT,
    exp.DataType.Type.INT,
    exp.DataType.Type.BIGINT,
)
_AROUND_FUNCTION = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)


def plain_form(select: exp.Select) -> exp.Select:
    """Return ``select`` with no alias of the table, and with parts of the time written as plain columns.

    EXTRACT(HOUR FROM time) and HOUR(time) become hour. CAST(time AS DATE), DATE(time) and DATE_TRUNC('day',
    time) become date. DAYNAME(time) becomes weekday. Raises RefusedError for clauses that would reach beyond
    records, and for any other table.
    """
    for name, part in select.args.items():
        if part and name not in ARRANGING and name not in _OF_RECORDS:
            clause = _CALLED.get(name, name.strip("_").upper())
            works = "SELECT ... FROM (the priced SELECT) JOIN ..."
            raise dialect.RefusedError(
                "records are asked alone; arrange the answer around them", works, clause=clause
            )
    origin = select.args.get("from_")
    table = origin.this if isinstance(origin, exp.From) else None
    alias = table.args.get("alias") if isinstance(table, exp.Table) else None
    named = isinstance(alias, exp.TableAlias) and not alias.args.get("columns")
    others = {"this", "alias"} if named else {"this"}
    if (
        not isinstance(table, exp.Table)
        or table.name.lower() not in dialect.TABLES
        or any(part for name, part in table.args.items() if name not in others)
    ):
        raise dialect.RefusedError("a priced question is FROM records alone", "FROM records", table, "FROM")
    if named:
        for column in select.find_all(exp.Column):
            if column.table.lower() == table.alias.lower() and not column.db:
                column.set("table", None)
        table.set("alias", None)
    plain = select.transform(_part)
    return plain if isinstance(plain, exp.Select) else select


def _part(node: exp.Expr) -> exp.Expr:
    """Return the column hour, date or weekday if ``node`` computes it from time, else ``node``."""
    part = None
    if isinstance(node, exp.Extract):
        unit = node.this.name.lower() if isinstance(node.this, exp.Expr) else ""
        part = "hour" if unit == "hour" and dialect.name_of(node.expression) == "time" else None
    elif dialect.name_of(node.args.get("this")) == "time":
        truncated = isinstance(node, _TRUNCATED) and node.text("unit").lower() == "day"
        if truncated or (isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.DATE)):
            part = "date"
        elif not node.expressions:
            part = _PARTS.get(type(node))
    return node if part is None else exp.column(part)


def read_group_by(select: exp.Select, mentions: dialect.Mentions) -> frozenset[dialect.Kind]:
    """Return which of CELL and SLOT the question groups by; empty for one number for the whole city.

    Raises RefusedError for groups by anything else. What GROUP BY names is added to ``mentions``.
    """
    keys: set[dialect.Kind] = set()
    group = select.args.get("group")
    works = "GROUP BY cell, hour, weekday or date"
    with dialect.reading("GROUP BY"):
        if isinstance(group, exp.Group):
            if any(part for name, part in group.args.items() if name not in ("expressions", "all")):
                raise dialect.RefusedError("groups are hexagons and times", works, group)
            if group.args.get("all"):
                found = (_bare(each, {}, dialect.Mentions()) for each in select.expressions)
                keys |= {_key(each.kind) for each in found if each is not None}
            for node in group.expressions:
                column = _grouped(node, select, mentions)
                if column is None or column.kind.measured:
                    raise dialect.RefusedError("groups are hexagons and times", works, node)
                keys.add(_key(column.kind))
    return frozenset(keys & {dialect.Kind.CELL, dialect.Kind.SLOT})


def _grouped(node: exp.Expr, select: exp.Select, mentions: dialect.Mentions) -> dialect.AnswerColumn | None:
    node = dialect.without_brackets(node)
    if isinstance(node, exp.Literal):
        place = dialect.integer_of(
            node, 1, max(1, len(select.expressions)), "a place in the list", "GROUP BY cell"
        )
        return _bare(select.expressions[place - 1], {}, mentions) if select.expressions else None
    found = dialect.read_column(node, {}, mentions)
    named = (each for each in select.find_all(exp.Alias) if each.alias.lower() == dialect.name_of(node))
    meant = next(named, None) if found is None else None
    return found if meant is None else _bare(meant, {}, mentions)


def _key(kind: dialect.Kind) -> dialect.Kind:
    return dialect.Kind.SLOT if kind.of_slot else dialect.Kind.CELL if kind.of_place else kind


def _bare(node: exp.Expr, aliases: Aliases, mentions: dialect.Mentions) -> dialect.AnswerColumn | None:
    """Return the column of the answer in ``node``, ignoring its alias, ROUND and CAST; None if none."""
    node = (
        dialect.without_brackets(node.this) if isinstance(node, exp.Alias) else dialect.without_brackets(node)
    )
    while isinstance(node, (exp.Round, exp.Cast)):
        node = dialect.without_brackets(node.this)
    return dialect.read_column(node, aliases, mentions)


def _known(node: exp.Expr, aliases: Aliases) -> dialect.AnswerColumn | None:
    """Return as ``_bare`` but record no mentions, and return None where ``_bare`` raises RefusedError."""
    try:
        return _bare(node, aliases, dialect.Mentions())
    except dialect.RefusedError:
        return None


def aliases_of(select: exp.Select) -> Aliases:
    """Return the columns of the answer by the lower-case aliases that the SELECT list gives them."""
    found: Aliases = {}
    for node in select.expressions:
        column = _known(node, {}) if isinstance(node, exp.Alias) else None
        if column is not None:
            found.setdefault(node.alias.lower(), column)
    return found


def arranged_select(
    select: exp.Select, keys: frozenset[dialect.Kind], mentions: dialect.Mentions, unit: SpeedUnit, table: str
) -> exp.Select:
    """Return the SELECT that DuckDB runs on the answer, which is the table ``table``.

    Aggregates become columns of that table, and HAVING becomes WHERE; ``select`` is changed in place. The
    columns needed are added to ``mentions``. A statistic is followed by both ends of its interval, unless the
    question asks for an end itself. Raises RefusedError for what the answer cannot give.
    """
    aliases = aliases_of(select)
    where = select.args.get("having")
    with dialect.reading("SELECT"):
        listed, places = _listed(select, aliases, mentions, unit)
    select.set("expressions", listed)
    order = select.args.get("order")
    if isinstance(order, exp.Order):
        with dialect.reading("ORDER BY"):
            _renumber(order, places)
    for name, clause in ARRANGING.items():
        if name == "expressions":
            continue
        with dialect.reading(clause):
            part = select.args.get(name)
            for node in part if isinstance(part, list) else [part]:
                if isinstance(node, exp.Expr):
                    _swap(node, aliases, mentions)
    if not any(kind.measured for kind in mentions.kinds):
        raise dialect.RefusedError("the question asks for no statistic", "AVG(speed)", clause="SELECT")
    for kind in mentions.kinds:
        if not kind.measured and kind is not dialect.Kind.STATUS and _key(kind) not in keys:
            raise dialect.RefusedError(
                f"{kind.value} is not grouped by", f"GROUP BY {kind.value}", clause="GROUP BY"
            )
    select.set("having", None)
    select.set("group", None)
    select.set("where", exp.Where(this=where.this) if isinstance(where, exp.Having) else None)
    select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(table, quoted=True))))
    return select


def sql_of(select: exp.Select) -> str:
    """Return ``select`` as SQL text for DuckDB, without comments."""
    return select.sql(dialect=dialect.Priced, comments=False)


def _listed(
    select: exp.Select, aliases: Aliases, mentions: dialect.Mentions, unit: SpeedUnit
) -> tuple[list[exp.Expr], list[int]]:
    """Return the SELECT list with names and ends of intervals, and the new places of the original items.

    Places count from 1.
    """
    bare = [_known(node, aliases) for node in select.expressions]
    with_ends = {column.kind for column in bare if column is not None and column.end is not dialect.End.VALUE}
    taken = {node.alias.lower() for node in select.expressions if isinstance(node, exp.Alias)}
    values = {column: name for name, column in reversed(aliases.items()) if column.end is dialect.End.VALUE}
    found: list[exp.Expr] = []
    places: list[int] = []
    for node, column in zip(list(select.expressions), bare, strict=True):
        name = _alias(node)
        if column is not None and not name:
            stem = ""
            if column.end is not dialect.End.VALUE:
                stem = values.get(dialect.AnswerColumn(column.kind), "")
            name = (stem or dialect.default_name(column.kind, unit)) + column.end.value
        inner = node.this if isinstance(node, exp.Alias) else node
        digits = _digits(dialect.without_brackets(inner))
        swapped = _swap(inner, aliases, mentions)
        found.append(exp.alias_(swapped, name, quoted=True) if name else swapped)
        places.append(len(found))
        if column is None or column.kind.statistic is None or column.kind in with_ends:
            continue
        with_ends.add(column.kind)
        for end in column.kind.ends:
            mentions.columns.append(dialect.AnswerColumn(column.kind, end))
            ending = _free(name + end.value, taken)
            taken.add(ending.lower())
            found.append(
                exp.alias_(_outward(dialect.AnswerColumn(column.kind, end), digits), ending, quoted=True)
            )
    return found, places


def _alias(node: exp.Expr) -> str:
    """Return the name that the question gives a column, empty for none; in lower case without quotes."""
    if not isinstance(node, exp.Alias):
        return ""
    identifier = node.args.get("alias")
    quoted = isinstance(identifier, exp.Identifier) and identifier.args.get("quoted")
    name = node.alias if quoted else node.alias.lower()
    if not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME:
        raise dialect.RefusedError("a name is too long or not printable", f"at most {LONGEST_NAME} letters")
    return str(name)


def _free(name: str, taken: set[str]) -> str:
    """Return ``name``, with a number where it is taken."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(each for each in names if each.lower() not in taken)


def _renumber(order: exp.Order, places: list[int]) -> None:
    """Rewrite column numbers in ORDER BY: number i of the original list becomes ``places[i - 1]``."""
    for node in order.expressions:
        inner = dialect.without_brackets(node.this) if isinstance(node, exp.Ordered) else node
        if isinstance(inner, exp.Literal) and not inner.is_string:
            place = dialect.integer_of(inner, 1, len(places), "a place in the list", "ORDER BY 1")
            inner.replace(exp.Literal.number(places[place - 1]))


def _swap(node: exp.Expr, aliases: Aliases, mentions: dialect.Mentions) -> exp.Expr:
    """Replace aggregates and bins in ``node`` by columns of the answer, in place; return the result."""
    if isinstance(node, exp.Query):
        if any(table.name.lower() in dialect.TABLES for table in node.find_all(exp.Table)):
            raise dialect.RefusedError("only the priced SELECT reads records", "latest_cells", node, "FROM")
        return node
    if isinstance(node, exp.Window):
        _swap_inside(_of_window(node), aliases, mentions)
        return node
    rounded = dialect.without_brackets(node.this) if isinstance(node, (exp.Round, exp.Cast)) else None
    column = dialect.read_column(node, aliases, mentions) if rounded is None else None
    if (
        rounded is not None
        and (end := dialect.read_column(rounded, aliases, dialect.Mentions()))
        and end.end is not dialect.End.VALUE
    ):
        mentions.columns.append(end)
        return _replaced(node, _outward(end, _digits(node), node))
    if column is not None:
        return _replaced(node, _answered(column))
    _check(node, aliases)
    _swap_inside(node.iter_expressions(), aliases, mentions)
    return node


def _swap_inside(nodes: Iterator[exp.Expr], aliases: Aliases, mentions: dialect.Mentions) -> None:
    for child in list(nodes):
        _swap(child, aliases, mentions)


def _replaced(node: exp.Expr, new: exp.Expr) -> exp.Expr:
    if node.parent is not None:
        node.replace(new)
    return new


def _of_window(window: exp.Window) -> Iterator[exp.Expr]:
    """Yield all of a window but its function itself, which is over rows of the answer."""
    part: exp.Expr = window
    while isinstance(part, (exp.Window, *_AROUND_FUNCTION)):
        yield from (each for each in part.iter_expressions() if each is not part.this)
        part = part.this
    yield from (each for each in part.iter_expressions() if not isinstance(each, exp.Star))


def _check(node: exp.Expr, aliases: Aliases) -> None:
    """Raise RefusedError if ``node`` needs records: *, FILTER, other aggregates, protected columns."""
    if isinstance(node, exp.Star):
        raise dialect.RefusedError("single records cannot be shown", "cell, AVG(speed)", "*")
    if isinstance(node, exp.Filter):
        raise dialect.RefusedError("it is about records", "WHERE hour = 8", clause="FILTER")
    if isinstance(node, exp.AggFunc):
        inside = any(
            _is_column(each) for child in node.iter_expressions() for each in child.find_all(exp.Expr)
        )
        if inside:
            raise dialect.RefusedError("an aggregate of answered numbers needs a window", "OVER ()", node)
        raise dialect.RefusedError("this aggregate is not measured", "AVG(speed)", node)
    name = dialect.name_of(node)
    if name in _PROTECTED and name not in aliases:
        what, works = _PROTECTED[name]
        raise dialect.RefusedError(what, works, node)


def _is_column(node: exp.Expr) -> bool:
    try:
        found = dialect.read_column(node, {}, dialect.Mentions())
    except dialect.RefusedError:
        return False
    return found is not None and found.kind.measured


def _answered(column: dialect.AnswerColumn) -> exp.Column:
    return exp.column(column.name, quoted=True)


def _digits(node: exp.Expr) -> int | None:
    """Return to how many decimals ``node`` (ROUND or CAST) rounds; None if it does not round."""
    if isinstance(node, exp.Round):
        decimals = node.args.get("decimals")
        if decimals is None:
            return 0
        return int(decimals.this) if isinstance(decimals, exp.Literal) and decimals.this.isdecimal() else None
    if isinstance(node, exp.Cast) and node.to.is_type(*_WHOLE):
        return 0
    if (
        isinstance(node, exp.Cast)
        and node.to.is_type(exp.DataType.Type.DECIMAL)
        and len(node.to.expressions) == 2
    ):
        return int(node.to.expressions[1].this.this)
    return None


def _outward(column: dialect.AnswerColumn, digits: int | None, otherwise: exp.Expr | None = None) -> exp.Expr:
    """Return an end of an interval with ``digits`` decimals, rounded outward: it never becomes narrower."""
    answered = _answered(column)
    if digits is None or digits >= DECIMALS or column.end.of_rank or column.kind.counts:
        if otherwise is None:
            return answered
        dialect.without_brackets(otherwise.this).replace(answered)
        return otherwise
    scale = exp.Literal.number(10**digits)
    exact = exp.cast(answered, f"DECIMAL(18, {DECIMALS})")
    away = exp.Floor if column.end is dialect.End.LOW else exp.Ceil
    return exp.Paren(
        this=exp.Div(this=away(this=exp.Mul(this=exact, expression=scale)), expression=scale.copy())
    )
