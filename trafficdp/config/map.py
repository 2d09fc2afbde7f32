"""The ``[map]`` table of the configuration: what is released a hexagon and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from trafficdp._validate import one_of
from trafficdp.config.reading import Table, exact_number, naming
from trafficdp.errors import UsageError
from trafficdp.mechanisms.gaussian.gaussian_twin import GaussianTwin
from trafficdp.mechanisms.laplace.baseline import NAME as BASELINE
from trafficdp.mechanisms.laplace.ladder import BY_NAME
from trafficdp.mechanisms.registry import PURE_MECHANISMS, ZCDP_MECHANISMS
from trafficdp.model.bound import ContributionBound
from trafficdp.model.longer_slot import LONGER
from trafficdp.model.slot import SlotKind
from trafficdp.model.speed_unit import SpeedUnit, parse_speed_unit
from trafficdp.model.statistic import Statistic
from trafficdp.planner.adaptive import DETAIL
from trafficdp.planner.adaptive_map import AdaptiveSettings
from trafficdp.planner.mechanism_allocation import AUTO, require_releasable
from trafficdp.planner.zcdp_allocation import require_zcdp
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.published import DECIMALS

MAP_KEYS = (
    "resolution",
    "resolutions",
    "max_half_width",
    "longer_slots",
    "detail",
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
"""Grid and bound are read from the same table by file.py."""
ZCDP_NAMES = tuple(mechanism.name for mechanism in ZCDP_MECHANISMS)
MECHANISM_NAMES = (AUTO, *(mechanism.name for mechanism in PURE_MECHANISMS))
UNITS = '"m/s", "km/h" or "mph"'


@dataclass(frozen=True, slots=True)
class MapSettings:
    """What is released a bin and how it is shown.

    ``statistics`` are in the order of Statistic. ``tolerance`` (for each of them) is the error that
    matters equally for each, in the unit of the speed bound (squared for the variance). ``refuse_above``
    is a share of U. ``rung`` is "best" or one of mechanisms.laplace.ladder.BY_NAME. ``mechanism`` names, a
    statistic, what releases it: "baseline", "auto" or another name of the registry. ``allow_idealised`` is
    never read from a file: only a command's switch sets it. ``adaptive`` for a map of several resolutions.
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
    adaptive: AdaptiveSettings | None = None
    kind: LossKind = LossKind.PURE

    def with_mechanism(
        self, wanted: str | Mapping[Statistic, str], *, allow_idealised: bool = False
    ) -> MapSettings:
        """Return the same settings with another mechanism, for all statistics or for those named.

        Raises UsageError for an unknown mechanism, one that cannot estimate its statistic and, unless
        ``allow_idealised``, one without an exact sampler.
        """
        named = dict.fromkeys(self.statistics, wanted) if isinstance(wanted, str) else wanted
        for statistic, name in named.items():
            _require(self.kind, name, statistic, allow_idealised=allow_idealised)
        return replace(self, mechanism={**self.mechanism, **named}, allow_idealised=allow_idealised)

    def with_rung(self, name: str) -> MapSettings:
        """Return the same settings with another accounting; UsageError for an unknown one."""
        rung = one_of(("best", *BY_NAME), rung=name)
        if rung != "best" and set(self.mechanism.values()) != {BASELINE}:
            raise UsageError(
                "only the baseline has rungs",
                got=f"rung={rung!r} beside another mechanism",
                todo='with_map(mechanism="baseline") as well',
            )
        return replace(self, rung=rung)


def _require(kind: LossKind, name: str, statistic: Statistic, *, allow_idealised: bool) -> None:
    if kind is LossKind.PURE:
        require_releasable(name, statistic, allow_idealised=allow_idealised)
    else:
        require_zcdp(name, statistic)


def read_map(settings: Table, bound: ContributionBound, kind: LossKind = LossKind.PURE) -> MapSettings:
    """Return the settings of the map; raise ConfigError, naming the key, for a wrong one."""
    statistics = _statistics(settings)
    level = float(settings.positive("interval_level", "a number between 0 and 1", Fraction(95, 100)))
    if level >= 1:
        raise settings.wrong("interval_level", "a number between 0 and 1")
    refuse_above = float(settings.positive("refuse_above", "a share of U above 0, at most 1", Fraction(1, 8)))
    if refuse_above > 1:
        raise settings.wrong("refuse_above", "a share of U above 0, at most 1")
    mechanism = _mechanism(settings, statistics, kind)
    rung = settings.choice("rung", ("best", *BY_NAME), "best")
    if kind is LossKind.PURE and rung != "best" and set(mechanism.values()) != {BASELINE}:
        raise settings.wrong("rung", '"best", or mechanism = "baseline": other mechanisms have no rungs')
    display = parse_speed_unit(
        settings.text("display_unit", UNITS, bound.unit.value), where=settings.where("display_unit")
    )
    return MapSettings(
        display_unit=display,
        min_vehicles=settings.integer("min_vehicles", 1, 10**9, 5),
        statistics=statistics,
        tolerance=_tolerance(settings, statistics, bound),
        refuse_above=refuse_above,
        interval_level=level,
        publish_counts=settings.flag("publish_counts", False),
        rung=rung,
        mechanism=mechanism,
        kind=kind,
        adaptive=_adaptive(settings, bound, display) if settings.has("resolutions") else None,
    )


def finest_resolution(settings: Table) -> int:
    """Return ``resolution``, or the finest of ``resolutions`` where there are several."""
    if not settings.has("resolutions"):
        for key in ("max_half_width", "longer_slots", "detail"):
            if settings.has(key):
                raise settings.wrong(key, "resolutions = [...] beside it: it is about maps of several")
        return settings.integer("resolution", 0, 15)
    several = _resolutions(settings)
    # a resolution beside them decides nothing, but must not contradict them
    if settings.has("resolution") and settings.integer("resolution", 0, 15) not in several:
        raise settings.wrong("resolution", "one of resolutions, or none at all")
    return several[0]


def _resolutions(settings: Table) -> tuple[int, ...]:
    expected = "a list of H3 resolutions from 0 to 15, such as [6, 7, 8]"
    given = settings.items("resolutions", expected)
    if not all(type(item) is int and 0 <= item <= 15 for item in given) or not given:
        raise settings.wrong("resolutions", expected)
    if len({*given}) != len(given):
        raise settings.wrong("resolutions", "every resolution once")
    return tuple(sorted((int(str(item)) for item in given), reverse=True))


def _adaptive(settings: Table, bound: ContributionBound, display: SpeedUnit) -> AdaptiveSettings:
    expected = 'a width such as "5 km/h", or a number in speed_unit'
    if not settings.has("max_half_width"):
        raise settings.wrong("resolutions", "max_half_width beside it: how narrow intervals shall be")
    word = settings.take("max_half_width", "")
    unit, number = bound.unit, exact_number(word)
    if isinstance(word, str):
        written, _, name = word.strip().partition(" ")
        unit = parse_speed_unit(name.strip(), where=settings.where("max_half_width"))
        try:
            number = exact_number(Decimal(written))
        except InvalidOperation:
            number = None
    if number is None or number <= 0:
        raise settings.wrong("max_half_width", expected)
    detail = exact_number(settings.take("detail", "")) if settings.has("detail") else Fraction(DETAIL)
    if detail is None or detail < 0:
        raise settings.wrong("detail", "a number of at least 0")
    kind = SlotKind(settings.choice("slot", [kind.value for kind in SlotKind], "whole_period"))
    known = [longer.value for longer in LONGER[kind]]
    expected = f"a list of {', '.join([*known] or [kind.value])}: what slots of kind {kind.value} add up to"
    longer = settings.texts("longer_slots", expected) if settings.has("longer_slots") else ()
    if not set(longer) <= {*known, kind.value}:
        raise settings.wrong("longer_slots", expected, got=", ".join(longer)[:60])
    return AdaptiveSettings(
        _resolutions(settings),
        number * unit.factor_to(bound.unit),
        display.factor_to(bound.unit) / 10**DECIMALS,
        float(detail),
        tuple(each for each in LONGER[kind] if each.value in longer),
    )


def _mechanism(settings: Table, statistics: tuple[Statistic, ...], kind: LossKind) -> dict[Statistic, str]:
    pure = kind is LossKind.PURE
    names = MECHANISM_NAMES if pure else ZCDP_NAMES
    usual = BASELINE if pure else GaussianTwin.name
    if isinstance(settings.take("mechanism", "") if settings.has("mechanism") else "", dict):
        given = settings.table("mechanism", [item.value for item in Statistic])
        named = {item: given.choice(item.value, names, usual) for item in statistics}
        where = {item: given.where(item.value) for item in statistics}
    else:
        word = settings.choice("mechanism", names, usual)
        named = dict.fromkeys(statistics, word)
        where = dict.fromkeys(statistics, settings.where("mechanism"))
    for statistic, name in named.items():
        with naming(where[statistic]):
            _require(kind, name, statistic, allow_idealised=False)
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
