"""The ``[map]`` table of the configuration: what is released a hexagon and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from trafficdp.config_reading import Table, naming
from trafficdp.mechanisms.baseline import NAME as BASELINE
from trafficdp.mechanisms.registry import MECHANISMS
from trafficdp.model.bound import ContributionBound
from trafficdp.model.speed_unit import SpeedUnit, parse_speed_unit
from trafficdp.model.statistic import Statistic
from trafficdp.planner.ladder import RUNGS
from trafficdp.planner.mechanism_allocation import AUTO, require_releasable

MAP_KEYS = (
    "resolution",
    "slot",
    "speed_bound",
    "speed_unit",
    "speed_step",
    "display_unit",
    "min_vehicles",
    "statistics",
    "tolerance",
    "refuse_above",
    "interval_level",
    "publish_counts",
    "mechanism",
    "rung",
    "day_parts",
)
"""Grid and bound are read from the same table by config.py."""
MECHANISM_NAMES = (AUTO, *(mechanism.name for mechanism in MECHANISMS))
UNITS = '"m/s", "km/h" or "mph"'


@dataclass(frozen=True, slots=True)
class MapSettings:
    """What is released a bin and how it is shown.

    ``statistics`` are in the order of Statistic. ``tolerance`` (for each of them) is the error that
    matters equally for each, in the unit of the speed bound (squared for the variance). ``refuse_above``
    is a share of U. ``rung`` is "best" or one of planner.ladder.RUNGS. ``mechanism`` names, a
    statistic, what releases it: "baseline", "auto" or another name of the registry. ``allow_idealised`` is
    never read from a file: only a command's switch sets it.
    """

    display_unit: SpeedUnit
    min_vehicles: int
    statistics: tuple[Statistic, ...]
    tolerance: Mapping[Statistic, float]
    refuse_above: float
    interval_level: float
    publish_counts: bool
    rung: str
    mechanism: Mapping[Statistic, str]
    allow_idealised: bool = False

    def with_mechanism(
        self, wanted: str | Mapping[Statistic, str], *, allow_idealised: bool = False
    ) -> MapSettings:
        """Return the same settings with another mechanism, for all statistics or for those named.

        Raises UsageError for an unknown mechanism, one that cannot estimate its statistic and, unless
        ``allow_idealised``, one without an exact sampler.
        """
        named = dict.fromkeys(self.statistics, wanted) if isinstance(wanted, str) else wanted
        for statistic, name in named.items():
            require_releasable(name, statistic, allow_idealised=allow_idealised)
        return replace(self, mechanism={**self.mechanism, **named}, allow_idealised=allow_idealised)


def read_map(settings: Table, bound: ContributionBound) -> MapSettings:
    """Return the settings of the map; raise ConfigError, naming the key, for a wrong one."""
    statistics = _statistics(settings)
    level = float(settings.positive("interval_level", "a number between 0 and 1", Fraction(95, 100)))
    if level >= 1:
        raise settings.wrong("interval_level", "a number between 0 and 1")
    refuse_above = float(settings.positive("refuse_above", "a share of U above 0, at most 1", Fraction(1, 8)))
    if refuse_above > 1:
        raise settings.wrong("refuse_above", "a share of U above 0, at most 1")
    mechanism = _mechanism(settings, statistics)
    rung = settings.choice("rung", ("best", *RUNGS), "best")
    if rung != "best" and set(mechanism.values()) != {BASELINE}:
        raise settings.wrong("rung", '"best", or mechanism = "baseline": other mechanisms have no rungs')
    display = settings.text("display_unit", UNITS, bound.unit.value)
    return MapSettings(
        display_unit=parse_speed_unit(display, where=settings.where("display_unit")),
        min_vehicles=settings.integer("min_vehicles", 1, 10**9, 5),
        statistics=statistics,
        tolerance=_tolerance(settings, statistics, bound),
        refuse_above=refuse_above,
        interval_level=level,
        publish_counts=settings.flag("publish_counts", False),
        rung=rung,
        mechanism=mechanism,
    )


def _mechanism(settings: Table, statistics: tuple[Statistic, ...]) -> dict[Statistic, str]:
    if isinstance(settings.take("mechanism", "") if settings.has("mechanism") else "", dict):
        given = settings.table("mechanism", [item.value for item in Statistic])
        named = {item: given.choice(item.value, MECHANISM_NAMES, BASELINE) for item in statistics}
        where = {item: given.where(item.value) for item in statistics}
    else:
        word = settings.choice("mechanism", MECHANISM_NAMES, BASELINE)
        named = dict.fromkeys(statistics, word)
        where = dict.fromkeys(statistics, settings.where("mechanism"))
    for statistic, name in named.items():
        with naming(where[statistic]):
            require_releasable(name, statistic, allow_idealised=False)
    return named


def _statistics(settings: Table) -> tuple[Statistic, ...]:
    if not settings.has("statistics"):
        return (Statistic.MEAN, Statistic.VARIANCE)
    expected = "a list of " + ", ".join(f'"{item.value}"' for item in Statistic)
    words = settings.texts("statistics", expected)
    if not set(words) <= {item.value for item in Statistic}:
        raise settings.wrong("statistics", expected, got=", ".join(words)[:60])
    return tuple(item for item in Statistic if item.value in words)


def _tolerance(
    settings: Table, statistics: tuple[Statistic, ...], bound: ContributionBound
) -> dict[Statistic, float]:
    tolerance = {item: bound.upper if item is Statistic.VARIANCE else Fraction(1) for item in Statistic}
    if settings.has("tolerance"):
        given = settings.table("tolerance", [item.value for item in Statistic])
        for item in Statistic:
            tolerance[item] = given.positive(
                item.value, "a number above 0, in the unit of speed_bound", tolerance[item]
            )
    return {item: float(tolerance[item]) for item in statistics}
