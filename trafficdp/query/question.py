"""A priced question, understood: what is asked of which grid, for how much. Equal ones are equal here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp

from trafficdp.binning.cells import resolution_holding
from trafficdp.config.settings import Config
from trafficdp.errors import TrafficdpError
from trafficdp.mechanisms.names import AUTO, BASELINE
from trafficdp.model import Grid, SlotKind, Statistic
from trafficdp.planner.request import COUNTS_ALONE_PERCENT, COUNTS_PERCENT
from trafficdp.privacy.loss import PureDP
from trafficdp.query.arrangement import arranged_select, plain_form, read_group_by
from trafficdp.query.conditions import Filter, Named, read_where, zones_of
from trafficdp.query.dialect import SLOTS_BY_CLOCK, TABLES, Kind, Mentions, RefusedError, reading
from trafficdp.query.statement import WORKS, Options, PricedPart, read_options


@dataclass(frozen=True, slots=True)
class Question:
    """One question in its normal form: however it was written and is arranged, equal questions are equal.

    ``kinds`` are the numbers that are asked for. ``by_cell`` says whether it is grouped by place, which are
    zones for ``resolution`` None; if not, ``resolution`` is that of a hexagon that holds the whole study
    area. ``by_slot``: by slot; if not, ``slot_kind`` is WHOLE_PERIOD. ``arrangement`` is what DuckDB runs on
    the answer, which is its table ``table``; ``remarks`` say how the text was read.
    """

    options: Options
    kinds: tuple[Kind, ...]
    resolution: int | None
    slot_kind: SlotKind
    by_slot: bool
    filter: Filter
    by_cell: bool = True
    arrangement: exp.Select = field(default_factory=exp.Select, compare=False, repr=False)
    table: str = field(default="", compare=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def counts(self) -> bool:
        """Whether the question asks for the number of vehicles or of records."""
        return any(kind.counts for kind in self.kinds)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The noisy statistics that the question asks for, in the order of Statistic; may be empty."""
        asked = {kind.statistic for kind in self.kinds}
        return tuple(statistic for statistic in Statistic if statistic in asked)

    def grid(self, config: Config) -> Grid:
        """Return the bins asked about: the configured grid with the question's places, slots and filter."""
        period = replace(config.grid.period, first=self.filter.first, last=self.filter.last)
        return replace(
            config.grid,
            resolution=self.resolution,
            zones=config.grid.zones if self.resolution is None else None,
            slot_kind=self.slot_kind,
            period=period,
            selection=self.filter.selection,
            mosaic=None,
        )

    def answer_config(self, config: Config) -> Config:
        """Return the configuration whose map is the answer: the question's grid, statistics and epsilon."""
        settings, options, statistics = config.map, self.options, self.statistics
        if config.relation.hides_presence:
            # a mean is measured with everything else: a variance and counts are about it
            statistics = tuple(each for each in Statistic if each in {Statistic.MEAN, *statistics})
            percent = COUNTS_PERCENT if self.statistics else COUNTS_ALONE_PERCENT
            settings = replace(
                settings,
                per_slot=self.by_slot,
                counts_percent=percent if self.counts else 0,
            )
        tolerance = {
            statistic: settings.tolerance.get(
                statistic, float(config.map.bound.upper) if statistic is Statistic.VARIANCE else 1.0
            )
            for statistic in statistics
        }
        bound = settings.bound
        if options.speed_bound is not None:
            bound = replace(bound, upper=options.speed_bound)
        # the intervals of BASELINE rest on a theorem
        named = {each: settings.mechanism.get(each, AUTO) for each in statistics}
        level, least = options.interval_level, options.min_vehicles
        changed = replace(
            settings,
            bound=bound,
            min_vehicles=settings.min_vehicles if least is None else least,
            interval_level=settings.interval_level if level is None else float(level),
            publish_counts=self.counts if config.relation.hides_presence else settings.publish_counts,
            adaptive=None,
            tolerance=tolerance,
            mechanism={each: BASELINE if name == AUTO else name for each, name in named.items()},
            answer=True,
        )
        return replace(config, grid=self.grid(config), map=changed, loss=options.epsilon)

    def to_sql(self, config: Config) -> str:
        """Return the question as SQL in one spelling, without ORDER BY and other arrangement.

        ``read_question`` reads it as an equal question.
        """
        cell = "cell" if self.resolution is None else f"h3({self.resolution})"
        keys = [
            *([cell] if self.by_cell else []),
            *([f"slot('{self.slot_kind.value}')"] if self.by_slot else []),
        ]
        where = self.filter.to_sql(config.grid.period, config.grid.resolution)
        parts = [
            f"SELECT WITH DIFFERENTIAL_PRIVACY {self.options.to_sql()}",
            ", ".join([*keys, *(kind.value for kind in self.kinds)]),
            f"FROM {TABLES[0]}",
            f"WHERE {' AND '.join(where)}" if where else "",
            f"GROUP BY {', '.join(keys)}" if keys else "",
        ]
        return " ".join(part for part in parts if part)


def read_question(part: PricedPart, config: Config, names: Named = dict, table: str = "answer") -> Question:
    """Return what a priced SELECT asks, under the city of ``config``; its answer will be the ``table``.

    Raises RefusedError for anything that is not a question of this dialect. Nothing is read but the text,
    the configuration and, where the text has ``place``, what ``names`` gives.
    """
    try:
        return _read(part, config, names, table)
    except RecursionError:
        raise RefusedError("the question is nested too deeply", "fewer brackets") from None


def _read(part: PricedPart, config: Config, names: Named, table: str) -> Question:
    select, mentions, remarks = plain_form(part.select), Mentions(), list[str]()
    where = select.args.get("where")
    keys = read_group_by(select, mentions)
    arranged = arranged_select(select, keys, mentions, config.map.display_unit, table)
    kinds = tuple(kind for kind in Kind if kind in mentions.kinds and kind.measured)
    _check_statistics(kinds, config)
    configured = _resolution(mentions, config)
    return Question(
        options=_options(part, config, kinds),
        kinds=kinds,
        resolution=configured if Kind.CELL in keys else _whole(config),
        slot_kind=_slot_kind(mentions, config) if Kind.SLOT in keys else SlotKind.WHOLE_PERIOD,
        by_slot=Kind.SLOT in keys,
        by_cell=Kind.CELL in keys,
        filter=read_where(
            where.this if isinstance(where, exp.Where) else None,
            config.grid.period,
            {**{place.name: place.area for place in zones_of(config.grid)}, **config.areas},
            names,
            configured,
            remarks,
        ),
        arrangement=arranged,
        table=table,
        remarks=tuple(remarks),
    )


def _options(part: PricedPart, config: Config, kinds: tuple[Kind, ...]) -> Options:
    hidden = config.relation.hides_presence
    noisy = hidden or any(kind.statistic is not None for kind in kinds)
    default = config.loss if isinstance(config.loss, PureDP) else PureDP.of(1)
    with reading("OPTIONS"):
        options = read_options(part.options, default, needed=noisy)
        if hidden and options.min_vehicles is not None:
            raise RefusedError("nothing is withheld where no number of vehicles is public", "no min_vehicles")
        if hidden and options.interval_level not in (None, Fraction("0.95")):
            raise RefusedError("intervals are calibrated at 95 % here", "interval_level = 0.95")
        if options.speed_bound is not None:
            try:
                replace(config.map.bound, upper=options.speed_bound)
            except TrafficdpError:
                raise RefusedError("option speed_bound is not valid", WORKS["speed_bound"]) from None
    return options


def _check_statistics(kinds: tuple[Kind, ...], config: Config) -> None:
    """Raise RefusedError for statistics that are not measured here, or not together."""
    noisy = [kind for kind in kinds if kind.statistic is not None]
    ranked = [kind for kind in noisy if kind.by_rank]
    hidden, mean = config.relation.hides_presence, Kind.MEAN.value
    with reading("SELECT"):
        if hidden and Kind.VEHICLE_MEAN in kinds:
            raise RefusedError("means over vehicles are not measured here", mean, Kind.VEHICLE_MEAN.value)
        if hidden and ranked:
            what = "there are no quantiles where nothing about a vehicle is public"
            raise RefusedError(what, mean, ranked[0].value)
        if ranked and len(ranked) < len(noisy):
            got = " and ".join(kind.value for kind in noisy)
            raise RefusedError("quantiles are asked for apart from other statistics", "two questions", got)


def _resolution(mentions: Mentions, config: Config) -> int | None:
    """Return the one resolution that is named, or the configured one."""
    found = mentions.resolutions
    if len(set(found)) > 1:
        got = ", ".join(f"h3({each})" for each in dict.fromkeys(found))
        raise RefusedError("hexagons of one resolution at a time", f"h3({found[0]})", got, "GROUP BY")
    return found[0] if found else config.grid.resolution


def _whole(config: Config) -> int:
    """Return the resolution of the hexagon that holds the whole study area."""
    found = resolution_holding(config.grid.area)
    if found is None:
        raise RefusedError(
            "no hexagon holds the whole study area: the city has no single number", "h3(0)", clause="GROUP BY"
        )
    return found


def _slot_kind(mentions: Mentions, config: Config) -> SlotKind:
    """Return the kind of slot that is named, or that the parts of the time mean, or the configured one."""
    found = mentions.slot_kinds
    clock = {kind for kind in mentions.kinds if kind.of_clock}
    with reading("GROUP BY"):
        if len(set(found)) > 1:
            got = ", ".join(f"slot('{each.value}')" for each in dict.fromkeys(found))
            raise RefusedError("slots of one kind at a time", f"slot('{found[0].value}')", got)
        if clock:
            meant = [kind for kind, parts in SLOTS_BY_CLOCK.items() if clock <= parts]
            if not meant or (found and found[0] not in meant):
                got = ", ".join(sorted(part.value for part in clock))
                raise RefusedError("there are no such slots", "hour, weekday, date, or date and hour", got)
            if not found:
                return next(kind for kind in meant if SLOTS_BY_CLOCK[kind] == clock)
    return found[0] if found else config.grid.slot_kind
