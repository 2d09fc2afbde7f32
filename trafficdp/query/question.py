"""A priced question, understood: what is asked of which grid, for how much, and how it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from trafficdp.config.settings import Config, MapSettings
from trafficdp.mechanisms.protocol import AUTO, BASELINE
from trafficdp.model import ContributionBound, Grid, SlotKind, SpeedUnit, Statistic
from trafficdp.planner.request import COUNTS_ALONE_SHARE, COUNTS_SHARE
from trafficdp.query.columns import Column, End, default_name, identifier
from trafficdp.query.filter import Filter
from trafficdp.query.having import Having
from trafficdp.query.options import Options

TABLE = "fixes"


@dataclass(frozen=True, slots=True)
class Question:
    """One question in its normal form: however it was written, equal questions are equal here.

    ``by_cell`` says whether it is grouped by place, which are zones for ``resolution`` None; if not,
    ``resolution`` is that of a hexagon that holds the whole study area. ``by_slot``: by slot; if not,
    ``slot_kind`` is WHOLE_PERIOD. ``order`` is (number of the column, descending). Columns, ``having``, order
    and limit only arrange the answer; ``remarks`` say how the text was read.
    """

    explain: bool
    options: Options
    columns: tuple[Column, ...]
    resolution: int | None
    slot_kind: SlotKind
    by_slot: bool
    filter: Filter
    by_cell: bool = True
    having: Having | None = None
    order: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def counts(self) -> bool:
        """Whether it asks for numbers of vehicles or of records."""
        asked = {column.kind for column in self.columns}
        asked |= set() if self.having is None else {each.kind for each in self.having.meanings()}
        return any(kind.counts for kind in asked)

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """What must be drawn with noise, in the order of Statistic; none for a question about counts."""
        asked = {column.kind.statistic for column in self.columns}
        return tuple(statistic for statistic in Statistic if statistic in asked)

    def grid(self, config: Config) -> Grid:
        """Return what it bins."""
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

    def bound(self, config: Config) -> ContributionBound:
        """Return how speeds are clipped; raises ConfigError for a bound that does not fit the step."""
        if self.options.speed_bound is None:
            return config.bound
        return replace(config.bound, upper=self.options.speed_bound)

    def configured(self, config: Config) -> Config:
        """Return the configuration under which this question is the whole map."""
        settings, options, statistics = config.map, self.options, self.statistics
        if config.relation.hides_presence:
            # a mean is measured with everything else: a variance and counts are about it
            statistics = tuple(each for each in Statistic if each in {Statistic.MEAN, *statistics})
            share = COUNTS_SHARE if self.statistics else COUNTS_ALONE_SHARE
            settings = replace(
                settings,
                apart=self.by_slot,
                publish_counts=self.counts,
                counts_share=share if self.counts else 0,
            )
        tolerance = {
            statistic: settings.tolerance.get(
                statistic, float(config.bound.upper) if statistic is Statistic.VARIANCE else 1.0
            )
            for statistic in statistics
        }
        changed = replace(
            settings,
            adaptive=None,
            statistics=statistics,
            tolerance=tolerance,
            mechanism={each: self._mechanism(settings, each) for each in statistics},
            answer=True,
            min_vehicles=settings.min_vehicles if options.min_vehicles is None else options.min_vehicles,
            interval_level=settings.interval_level
            if options.interval_level is None
            else float(options.interval_level),
        )
        return replace(
            config, grid=self.grid(config), bound=self.bound(config), map=changed, loss=options.epsilon
        )

    def _mechanism(self, settings: MapSettings, statistic: Statistic) -> str:
        """An answer's interval is a theorem's, unless the configuration names a mechanism."""
        named = settings.mechanism.get(statistic, AUTO)
        return BASELINE if named == AUTO else named

    def without_names(self, config: Config) -> Question:
        """Return the question without words of the asker's: every column once, by the name it has anyway."""
        unit = config.map.display_unit
        first = {(column.kind, column.end): column.digits for column in reversed(self.columns)}
        shown = list(dict.fromkeys((column.kind, column.end) for column in self.columns))
        columns = tuple(
            Column(kind, end, default_name(kind, unit) + end.value, first[kind, end]) for kind, end in shown
        )
        places = [shown.index((column.kind, column.end)) + 1 for column in self.columns]
        order = tuple((places[place - 1], down) for place, down in self.order)
        return replace(self, columns=columns, order=order)

    def plain(self, config: Config) -> Question:
        """Return the question as manifests publish it: what is asked, without how the answer is arranged."""
        unit = config.map.display_unit
        kinds = dict.fromkeys(column.kind for column in self.columns)
        columns = tuple(Column(kind, End.VALUE, default_name(kind, unit)) for kind in kinds)
        return replace(self, columns=columns, explain=False, having=None, order=(), limit=None)

    def to_sql(self, config: Config) -> str:
        """Return the question in one spelling, which reads back as the same question."""
        cell = "cell" if self.resolution is None else f"h3({self.resolution})"
        slot = f"slot('{self.slot_kind.value}')"
        shown = [_written(column, self, cell, slot, config.map.display_unit) for column in self.columns]
        where = self.filter.to_sql(config.grid.period, config.grid.resolution)
        keys = [*([cell] if self.by_cell else []), *([slot] if self.by_slot else [])]
        parts = [
            "EXPLAIN" if self.explain else "",
            f"SELECT WITH DIFFERENTIAL_PRIVACY {self.options.to_sql()} {', '.join(shown)}",
            f"FROM {TABLE}",
            f"WHERE {' AND '.join(where)}" if where else "",
            f"GROUP BY {', '.join(keys)}" if keys else "",
            "" if self.having is None else f"HAVING {self.having.to_sql()}",
            "ORDER BY " + ", ".join(f"{place}{' DESC' if down else ''}" for place, down in self.order)
            if self.order
            else "",
            "" if self.limit is None else f"LIMIT {self.limit}",
        ]
        return " ".join(part for part in parts if part)


def _written(column: Column, question: Question, cell: str, slot: str, unit: SpeedUnit) -> str:
    """Return a column with its name, where that is not the one it would have anyway."""
    expression = column.expression(cell, slot)
    default = default_name(column.kind, unit)
    # an interval follows the name of its column
    renamed = column.end is not End.VALUE and any(
        each.kind is column.kind and each.end is End.VALUE and each.name != default
        for each in question.columns
    )
    if column.name == default + column.end.value and not renamed:
        return expression
    return f"{expression} AS {identifier(column.name)}"
