"""A question's tree without its table alias, and with the parts of the local time by their own names."""

from __future__ import annotations

from sqlglot import exp

from trafficdp.query.literals import name_of

_PARTS: dict[type[exp.Expr], str] = {exp.Hour: "hour", exp.Dayname: "weekday", exp.Date: "date"}
_TRUNCATED = (exp.DateTrunc, exp.TimestampTrunc)


def plain_form(select: exp.Select) -> exp.Select:
    """Return ``select`` with ``f.speed`` of FROM fixes AS f as speed, and EXTRACT(HOUR FROM time) as hour.

    CAST(time AS DATE), DATE(time) and DATE_TRUNC('day', time) are date, HOUR(time) is hour, DAYNAME(time) is
    weekday. Nothing else is changed.
    """
    origin = select.args.get("from_")
    table = origin.this if isinstance(origin, exp.From) else None
    alias = table.args.get("alias") if isinstance(table, exp.Table) else None
    if isinstance(table, exp.Table) and isinstance(alias, exp.TableAlias) and not alias.args.get("columns"):
        for column in select.find_all(exp.Column):
            if column.table.lower() == table.alias.lower() and not column.db:
                column.set("table", None)
        table.set("alias", None)
    plain = select.transform(_part)
    return plain if isinstance(plain, exp.Select) else select


def _part(node: exp.Expr) -> exp.Expr:
    """Return the column that ``node`` is, when it is a part of the local time."""
    part = None
    if isinstance(node, exp.Extract):
        unit = node.this.name.lower() if isinstance(node.this, exp.Expr) else ""
        part = "hour" if unit == "hour" and name_of(node.expression) == "time" else None
    elif name_of(node.args.get("this")) == "time":
        truncated = isinstance(node, _TRUNCATED) and node.text("unit").lower() == "day"
        if truncated or (isinstance(node, exp.Cast) and node.to.is_type(exp.DataType.Type.DATE)):
            part = "date"
        elif not node.expressions:
            part = _PARTS.get(type(node))
    return node if part is None else exp.column(part)
