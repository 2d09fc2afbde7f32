"""The configuration file (TOML) as typed, frozen objects. No other room parses configuration.

Nothing that decides the guarantee or the meaning of a number is defaulted: neighbouring relation, study
area, period, units of speed, speed bound, resolution, budget and time zone must be chosen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from importlib import resources
from pathlib import Path

from trafficdp.config.analysts import read_analysts
from trafficdp.config.area import read_area, read_areas
from trafficdp.config.map import MAP_KEYS, UNITS, MapSettings, finest_resolution, read_map
from trafficdp.config.reading import (
    Table,
    naming,
    parse_toml,
    read_text,
    refuse_placeholders,
)
from trafficdp.config.source import declaration_json, read_sources
from trafficdp.config.stream import STREAM_KEYS, StreamSettings, read_stream
from trafficdp.errors import ConfigError, UsageError
from trafficdp.mechanisms.simulated.trial import MadeUpCities
from trafficdp.model.area import StudyArea
from trafficdp.model.bound import ContributionBound
from trafficdp.model.grid import DEFAULT_DAY_PARTS, DayPart, Grid
from trafficdp.model.period import Period
from trafficdp.model.privacy_unit import NeighbouringRelation
from trafficdp.model.slot import SlotKind
from trafficdp.model.source import SourceDeclaration
from trafficdp.model.speed_unit import parse_speed_unit
from trafficdp.planner.allocation import Request
from trafficdp.planner.zcdp_allocation import ZCDPRequest
from trafficdp.privacy.analyst import Analyst
from trafficdp.privacy.budget import BudgetPolicy
from trafficdp.privacy.loss import LARGEST_LOSS, PICO, PureDP
from trafficdp.privacy.loss_kind import LossKind
from trafficdp.privacy.zcdp import ZCDP
from trafficdp.privacy.zcdp_budget import ZCDPBudget

__all__ = ["City", "Config", "MapSettings", "declaration_json", "load_config", "read_places", "template"]

_TOP = ("store", "key_file", "city", "privacy", "budget", "map", "stream", "source", "analysts", "areas")
_BUDGET = ("epsilon_per_vehicle", "epsilon_per_vehicle_a_year", "epsilon_per_vehicle_a_month")
_ZCDP_BUDGET = ("rho_per_vehicle", "delta")
_CITY = ("name", "publisher", "time_zone", "study_area", "period")
_EPSILON = "a number above 0, at most 1,000,000, with at most 12 decimals, such as 4"
_RHO = "a number above 0, at most 1,000,000, with at most 12 decimals, such as 0.5"


@dataclass(frozen=True, slots=True)
class City:
    """Who publishes, and whose clock the slots follow (an IANA time zone)."""

    name: str
    publisher: str
    time_zone: str


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. ``epsilon`` None: it must be given with the release.

    ``store`` and ``key_file`` are already relative to the configuration file's folder; None: not set.
    ``policy`` is the whole of [budget], ``budget`` its total alone. Where losses are rho, ``rho`` stands for
    ``epsilon``.
    ``analysts`` may ask priced questions; ``areas`` are places that these may name.
    """

    city: City
    grid: Grid
    bound: ContributionBound
    relation: NeighbouringRelation
    epsilon: PureDP | None
    policy: BudgetPolicy | ZCDPBudget
    map: MapSettings
    sources: tuple[SourceDeclaration, ...]
    key_file: Path | None
    store: Path | None
    analysts: tuple[Analyst, ...] = ()
    areas: Mapping[str, StudyArea] = field(default_factory=dict)
    stream: StreamSettings | None = None
    rho: ZCDP | None = None

    @property
    def budget(self) -> PureDP:
        """What a vehicle may lose over all time, in epsilon; raise UsageError where losses are rho."""
        if isinstance(self.policy, ZCDPBudget):
            raise _in_rho()
        return self.policy.total

    @property
    def zcdp_budget(self) -> ZCDPBudget:
        """The budget in rho; raise UsageError where losses are epsilon."""
        if isinstance(self.policy, ZCDPBudget):
            return self.policy
        raise _in_epsilon()

    def zcdp_request(self, rho: ZCDP | None = None) -> ZCDPRequest:
        """Return what is asked of the planner, with ``rho`` instead of the configured one if given.

        Raises UsageError where losses are epsilon, ConfigError when there is no rho.
        """
        if not isinstance(self.policy, ZCDPBudget):
            raise _in_epsilon()
        chosen = self.rho if rho is None else rho
        if chosen is None:
            raise ConfigError(
                "[privacy] rho is missing",
                expected=_RHO,
                todo="set it in the configuration file, or give --rho",
            )
        return ZCDPRequest(
            rho=chosen,
            bound=self.bound,
            tolerance=self.map.tolerance,
            min_vehicles=self.map.min_vehicles,
            refuse_above=self.map.refuse_above,
            interval_level=self.map.interval_level,
            mechanism=self.map.mechanism,
        )

    def request(self, epsilon: PureDP | None = None) -> Request:
        """Return what is asked of the planner, with ``epsilon`` instead of the configured one if given.

        Raises ConfigError when there is neither, UsageError where losses are rho.
        """
        if isinstance(self.policy, ZCDPBudget):
            raise _in_rho()
        chosen = self.epsilon if epsilon is None else epsilon
        if chosen is None:
            raise ConfigError(
                "[privacy] epsilon is missing",
                expected=_EPSILON,
                todo="set it in the configuration file, or give --epsilon",
            )
        return Request(
            epsilon=chosen,
            bound=self.bound,
            tolerance=self.map.tolerance,
            min_vehicles=self.map.min_vehicles,
            refuse_above=self.map.refuse_above,
            interval_level=self.map.interval_level,
            rung=self.map.rung,
            mechanism=self.map.mechanism,
            trial=MadeUpCities,
            allow_idealised=self.map.allow_idealised,
        )


def _in_rho() -> UsageError:
    return UsageError(
        "this store counts its budget in rho: only maps by a zCDP mechanism are planned and released",
        todo='release with --rho (in Python: Workspace.zcdp), or use a store of kind "pure"',
    )


def _in_epsilon() -> UsageError:
    return UsageError(
        "this store counts its budget in epsilon",
        got="a wish for rho",
        todo='ask with epsilon, or make a new store with [budget] kind = "zcdp"',
    )


def template() -> str:
    """Return the commented configuration file that ``trafficdp init`` writes."""
    return resources.files("trafficdp.cli").joinpath("templates/trafficdp.toml").read_text(encoding="utf-8")


def read_places(path: Path) -> tuple[Path | None, Path | None]:
    """Return (store, key_file) of a configuration file in which other keys may still be open choices.

    Raises ConfigError for a file that cannot be read, is not TOML, or names a wrong place.
    """
    return _places(Table(_document(path), "", _TOP), path.parent)


def load_config(path: Path) -> Config:
    """Read the configuration file at ``path``.

    Raises ConfigError, which names the key as ``[map] resolution``, for a file that cannot be read or is
    not TOML, for keys that are unknown, missing, wrong or still placeholders, and for a GeoJSON study
    area that cannot be read.
    """
    document = _document(path)
    refuse_placeholders(document, name=path.name)
    table = Table(document, "", _TOP)
    city = table.section("city", _CITY)
    privacy = table.section("privacy", ("relation", "epsilon", "rho"))
    budget = table.section("budget", ("kind", *_BUDGET, *_ZCDP_BUDGET))
    settings = table.section("map", MAP_KEYS)
    store, key_file = _places(table, path.parent)
    relation = _relation(privacy)
    kind = LossKind(budget.choice("kind", [each.value for each in LossKind], LossKind.PURE.value))
    _require_kind_of_keys(kind, table, privacy, budget, settings)
    bound = _bound(settings)
    named_city = City(_name(city, "name"), _name(city, "publisher"), city.time_zone("time_zone"))
    return Config(
        city=named_city,
        grid=_grid(city, settings, named_city.time_zone, path.parent),
        bound=bound,
        relation=relation,
        epsilon=_loss(privacy, "epsilon") if privacy.has("epsilon") else None,
        policy=_zcdp_budget(budget) if kind is LossKind.ZCDP else _policy(budget, named_city.time_zone),
        map=read_map(settings, bound, kind),
        sources=read_sources(table.take("source", "")) if table.has("source") else (),
        key_file=key_file,
        store=store,
        analysts=read_analysts(table.take("analysts", "")) if table.has("analysts") else (),
        areas=read_areas(table.take("areas", ""), path.parent) if table.has("areas") else {},
        stream=read_stream(table.section("stream", STREAM_KEYS)) if table.has("stream") else None,
        rho=ZCDP(_loss(privacy, "rho").pico) if privacy.has("rho") else None,
    )


def _document(path: Path) -> dict[str, object]:
    text = read_text(path, what="the configuration file", todo="run `trafficdp init` or give --config FILE")
    return parse_toml(text, name=path.name)


def _places(table: Table, folder: Path) -> tuple[Path | None, Path | None]:
    store, key_file = _place(table, "store", folder), _place(table, "key_file", folder)
    # realpath, unlike Path.resolve, takes a loop of links and an overlong name as they are
    inside = store and key_file and Path(os.path.realpath(key_file)).is_relative_to(os.path.realpath(store))
    if inside:
        raise table.wrong("key_file", "a file outside the store", todo="keep the key apart from the store")
    return store, key_file


def _place(table: Table, key: str, folder: Path) -> Path | None:
    if not table.has(key):
        return None
    expected = "a path with a name of its own, relative to the configuration file"
    text = table.text(key, expected)
    if Path(text).name in ("", ".."):
        raise table.wrong(key, expected)
    return folder / text


def _name(city: Table, key: str) -> str:
    name = city.text(key, "a name that may be printed on every map")
    if name.casefold() == "unknown":
        raise city.wrong(key, "a name that may be printed on every map")
    return name


def _relation(privacy: Table) -> NeighbouringRelation:
    relation = NeighbouringRelation(privacy.choice("relation", [item.value for item in NeighbouringRelation]))
    if relation is NeighbouringRelation.ADD_OR_REMOVE_USER:
        raise ConfigError(
            '[privacy] relation = "add_or_remove_user" is not implemented in this version',
            got="a wish to protect everything about a vehicle, even how often and where it was seen",
            expected='"replace_user_values", which protects the speeds of every vehicle and takes its '
            "number of records in each hexagon and slot as public",
            todo="choose replace_user_values if that may be public; otherwise do not release with this tool",
        )
    return relation


def _loss(table: Table, key: str) -> PureDP:
    number = table.positive(key, _EPSILON)
    if number * PICO > LARGEST_LOSS:
        raise table.wrong(key, _EPSILON)
    return PureDP.of(number)


def _require_kind_of_keys(
    kind: LossKind, table: Table, privacy: Table, budget: Table, settings: Table
) -> None:
    """Refuse what the other kind of loss is asked with, and what only pure epsilon can release."""
    pure = kind is LossKind.PURE
    foreign = [
        *((budget, key) for key in (_ZCDP_BUDGET if pure else _BUDGET)),
        (privacy, "rho" if pure else "epsilon"),
        *(() if pure else ((settings, key) for key in ("rung", "resolutions"))),
        *(() if pure else ((table, key) for key in ("stream", "analysts"))),
    ]
    for where, key in foreign:
        if where.has(key):
            other = LossKind.ZCDP if pure else LossKind.PURE
            raise where.wrong(key, f'[budget] kind = "{other.value}" with it, or to be left out')


def _zcdp_budget(budget: Table) -> ZCDPBudget:
    rho = _loss(budget, "rho_per_vehicle")
    expected = "a number from 10^-300 to below 1, such as 1e-6"
    delta = budget.positive("delta", expected)
    if not Fraction(1, 10**300) <= delta < 1:
        raise budget.wrong("delta", expected)
    # the shortest decimal of it; conversions read it as the decimal it is written as
    return ZCDPBudget(
        ZCDP(rho.pico), f"{Decimal(repr(float(delta))):f}" if delta >= 1e-12 else repr(float(delta))
    )


def _policy(budget: Table, time_zone: str) -> BudgetPolicy:
    total = widest = _loss(budget, _BUDGET[0])
    periodic: list[PureDP | None] = []
    for key in _BUDGET[1:]:
        ceiling = _loss(budget, key) if budget.has(key) else None
        if ceiling is not None and ceiling > widest:
            raise budget.wrong(key, f"at most {widest}, the ceiling of the longer time: else it never counts")
        widest = ceiling or widest
        periodic.append(ceiling)
    a_year, a_month = periodic
    return BudgetPolicy(total, a_year, a_month, time_zone)


def _bound(settings: Table) -> ContributionBound:
    upper = settings.positive("speed_bound", "a speed above 0, in speed_unit")
    step = settings.positive("speed_step", "a speed above 0 that divides speed_bound", Fraction(1, 100))
    unit = parse_speed_unit(settings.text("speed_unit", UNITS), where=settings.where("speed_unit"))
    with naming(settings.where("speed_bound")):
        return ContributionBound(upper, step, unit)


def _grid(city: Table, settings: Table, time_zone: str, folder: Path) -> Grid:
    days = city.table("period", ("from", "to"))
    first, last = days.day("from"), days.day("to")
    with naming(city.where("period")):
        period = Period(first, last, time_zone)
    resolution = finest_resolution(settings)
    slot_kind = SlotKind(settings.choice("slot", [kind.value for kind in SlotKind], "whole_period"))
    area = read_area(city, "study_area", folder)
    parts = _day_parts(settings) if settings.has("day_parts") else DEFAULT_DAY_PARTS
    with naming(settings.where("day_parts")):
        return Grid(resolution, slot_kind, area, period, parts)


def _day_parts(settings: Table) -> tuple[DayPart, ...]:
    expected = 'a list such as [ { name = "night", from = 22, to = 6 }, ... ]'
    parts = []
    for number, item in enumerate(settings.items("day_parts", expected), start=1):
        part = Table(item, f"{settings.where('day_parts')}[{number}].", ("name", "from", "to"))
        parts.append(
            DayPart(part.text("name", "a name"), part.integer("from", 0, 23), part.integer("to", 0, 24))
        )
    if len({part.name for part in parts}) != len(parts):
        raise settings.wrong("day_parts", "another name for every part", got="a name given twice")
    return tuple(parts)
