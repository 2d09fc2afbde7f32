"""From the text of a priced question to a Question, or to an error with the line that would work.

Reading never stops at a problem: the part is left out or replaced, and reading goes on. So what is left in
the end is a question that works, and the error for the first problem offers it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from trafficdp.binning.cells import resolution_holding
from trafficdp.config.settings import Config
from trafficdp.errors import TrafficdpError
from trafficdp.model import SlotKind
from trafficdp.privacy.loss import PureDP
from trafficdp.query.clause import Clause, cut
from trafficdp.query.columns import SLOTS_BY_CLOCK, Column, Kind
from trafficdp.query.expressions import GridWords
from trafficdp.query.filter import zones_of
from trafficdp.query.having import read_having
from trafficdp.query.literals import name_of
from trafficdp.query.options import Options, read_options
from trafficdp.query.problems import Problems
from trafficdp.query.question import Question
from trafficdp.query.select_list import (
    DEFAULTS,
    Shown,
    aliases_of,
    check_form,
    named,
    read_columns,
    read_keys,
    read_limit,
    read_order,
)
from trafficdp.query.where import Named, read_where

_PARTS: dict[type[exp.Expr], str] = {exp.Hour: "hour", exp.Dayname: "weekday", exp.Date: "date"}
_TRUNCATED = (exp.DateTrunc, exp.TimestampTrunc)


def read_question(text: str, config: Config, names: Named = dict) -> Question:
    """Return what ``text`` asks, under the city of ``config``.

    Raises UsageError, whose "what to do" holds a line that would work, for anything that is not a question
    of this dialect. Nothing is read but the text, the configuration and, where the text has ``place``, what
    ``names`` gives.
    """
    problems = Problems()
    clause = cut(text, problems)
    try:
        question = _read(clause, config, names, problems)
    except RecursionError:
        problems.add("the question is nested too deeply", None, "fewer brackets")
        question = _read(Clause(clause.explain, clause.options, None), config, names, problems)
    if problems.found:
        raise problems.refusal(question.without_names(config).to_sql(config))
    return question


def _read(clause: Clause, config: Config, names: Named, problems: Problems) -> Question:
    select, words = clause.select, GridWords()
    columns, keys = DEFAULTS, frozenset({Kind.CELL})
    if select is not None:
        select = _plain_form(select)
        check_form(select, problems)
        columns = read_columns(select, words, problems)
        keys = read_keys(select, columns, words, problems)
    _check_statistics(columns, config, problems)
    shown = named(columns, config.map.display_unit, problems)
    order = () if select is None else read_order(select, shown, words, problems)
    configured = _resolution(words, config, problems)
    resolution = configured if Kind.CELL in keys else _whole(config, problems)
    remarks: list[str] = []
    where = None if select is None else select.args.get("where")
    return Question(
        explain=clause.explain,
        options=_options(clause, config, shown, problems),
        columns=shown,
        resolution=resolution,
        slot_kind=_slot_kind(words, config, problems) if Kind.SLOT in keys else SlotKind.WHOLE_PERIOD,
        by_slot=Kind.SLOT in keys,
        by_cell=Kind.CELL in keys,
        filter=read_where(
            where.this if isinstance(where, exp.Where) else None,
            config.grid.period,
            {**{place.name: place.area for place in zones_of(config.grid)}, **config.areas},
            names,
            configured,
            problems,
            remarks,
        ),
        having=None
        if select is None
        else read_having(
            select.args.get("having"), aliases_of(select), {each.meaning for each in shown}, problems
        ),
        order=order,
        limit=None if select is None else read_limit(select, problems),
        remarks=tuple(remarks),
    )


def _options(clause: Clause, config: Config, columns: tuple[Column, ...], problems: Problems) -> Options:
    hidden = config.relation.hides_presence
    noisy = hidden or any(column.kind.statistic is not None for column in columns)
    default = config.loss if isinstance(config.loss, PureDP) else PureDP.of(1)
    options = read_options(clause.options, default, problems, needed=noisy and clause.select is not None)
    if hidden and options.min_vehicles is not None:
        problems.add(
            "nothing is withheld: how many vehicles are where is no public fact", None, "no min_vehicles"
        )
        options = replace(options, min_vehicles=None)
    if hidden and options.interval_level not in (None, Fraction("0.95")):
        problems.add("intervals are calibrated at 95 % here", None, "interval_level = 0.95")
        options = replace(options, interval_level=None)
    if options.speed_bound is not None:
        try:
            replace(config.bound, upper=options.speed_bound)
        except TrafficdpError as error:
            problems.add("option speed_bound is not valid", None, str(error.expected))
            options = replace(options, speed_bound=None)
    return options


def _check_statistics(columns: list[Shown], config: Config, problems: Problems) -> None:
    """Note a problem for statistics that are not measured here, or not together."""
    kinds = list(dict.fromkeys(each.kind for each, _ in columns if each.kind.statistic is not None))
    ranked = [kind for kind in kinds if kind.by_rank]
    hidden = config.relation.hides_presence
    if hidden and Kind.VEHICLE_MEAN in kinds:
        problems.add("means over vehicles are not measured here", Kind.VEHICLE_MEAN.value, "AVG(speed)")
    if hidden and ranked:
        what = "there are no quantiles where nothing about a vehicle is public: each costs a vehicle once a"
        problems.add(f"{what} hexagon, and nobody knows how many it is in", ranked[0].value, "AVG(speed)")
    elif ranked and len(ranked) < len(kinds):
        problems.add(
            "quantiles are asked for apart from other statistics",
            " and ".join(kind.value for kind in kinds),
            "two questions: what they cost adds up either way",
        )


def _resolution(words: GridWords, config: Config, problems: Problems) -> int | None:
    """Return the one resolution that is named, or the configured one."""
    configured = config.grid.resolution
    found = [*words.resolutions, *([configured] if words.bare_cell and not words.resolutions else [])]
    if len(set(found)) > 1:
        problems.add(
            "hexagons of one resolution at a time",
            ", ".join("cell" if each is None else f"h3({each})" for each in found),
            "cell" if found[0] is None else f"h3({found[0]})",
        )
    return found[0] if found else configured


def _whole(config: Config, problems: Problems) -> int:
    """Return the resolution of the hexagon that holds the whole study area."""
    found = resolution_holding(config.grid.area)
    if found is None:
        problems.add(
            "no hexagon holds the whole study area, so the city has no single number",
            None,
            "GROUP BY h3(0), or by another resolution",
        )
    return 0 if found is None else found


def _slot_kind(words: GridWords, config: Config, problems: Problems) -> SlotKind:
    """Return the kind of slot that is named, or that the parts of the time mean, or the configured one."""
    found = words.slot_kinds
    if words.clock:
        meant = [kind for kind, parts in SLOTS_BY_CLOCK.items() if words.clock <= parts]
        exact = [kind for kind in meant if SLOTS_BY_CLOCK[kind] == words.clock]
        if not meant or (found and found[0] not in meant):
            problems.add(
                "there are no such slots",
                ", ".join(sorted(part.value for part in words.clock)),
                "hour, weekday or date, or date and hour; or slot('weekday_weekend_hour')",
            )
        elif not found:
            return exact[0]
    if len(set(found)) > 1:
        problems.add(
            "slots of one kind at a time",
            ", ".join(f"slot('{each.value}')" for each in found),
            f"slot('{found[0].value}')",
        )
    return found[0] if found else config.grid.slot_kind


def _plain_form(select: exp.Select) -> exp.Select:
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
