"""The configuration file (TOML) as typed, frozen objects. No other package parses configuration.

Nothing that decides the guarantee or the meaning of a number is defaulted: neighbouring relation, study
area, period, units of speed, speed bound, resolution, budget and time zone must be chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from trafficdp.config import table as t
from trafficdp.config.document import PLACES, load_document, places
from trafficdp.config.map import CONTEXT, KNOWLEDGE, Map
from trafficdp.config.settings import NAMED, PUBLISH, City, Config, StreamSettings
from trafficdp.config.source import SOURCE
from trafficdp.model import (
    MOST_SOURCES,
    NO_CATALOGUE_ENTRY,
    CatalogueEntry,
    ContextFile,
    KnowledgeSource,
    NeighbouringRelation,
    Period,
    SourceDeclaration,
    StudyArea,
)
from trafficdp.privacy.budget import Analyst, BudgetPolicy
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import ZCDP, Loss, LossKind, PureDP

_CEILINGS = ("epsilon_per_vehicle", "epsilon_per_vehicle_a_year", "epsilon_per_vehicle_a_month")
DELTA = t.number("a number from 10^-12 to below 1, such as 1e-6", lambda delta: 0 < delta < 1)


class Privacy(t.Table):
    """What is protected, and what a release costs unless another wish is given."""

    relation: Annotated[NeighbouringRelation, t.choice(NeighbouringRelation)]
    epsilon: Annotated[PureDP | None, t.loss("4")] = None
    rho: Annotated[ZCDP | None, t.loss("0.5", ZCDP)] = None
    delta: Annotated[Fraction | None, DELTA] = None
    accept_weak_promise: Annotated[bool, t.SWITCH] = False

    def counted(self, epsilon: PureDP) -> Loss:
        """Return ``epsilon``, or the largest rho that keeps to it at ``delta``."""
        if self.delta is None:
            return epsilon
        with t.naming("privacy", "delta"):
            return approx_to_rho(ApproxDP(epsilon.pico, self.delta), self.relation)


class Budget(t.Table):
    """The ceilings: three of one kind of loss, two of the other; ``epsilon`` where presence is hidden."""

    epsilon: Annotated[PureDP | None, t.loss("8")] = None
    epsilon_per_vehicle: Annotated[PureDP | None, t.loss("4")] = None
    epsilon_per_vehicle_a_year: Annotated[PureDP | None, t.loss("4")] = None
    epsilon_per_vehicle_a_month: Annotated[PureDP | None, t.loss("4")] = None
    kind: Annotated[LossKind, t.choice(LossKind)] = LossKind.PURE
    rho_per_vehicle: Annotated[ZCDP | None, t.loss("0.5", ZCDP)] = None
    delta: Annotated[Fraction | None, DELTA] = None

    def of_store(self, privacy: Privacy) -> BudgetPolicy:
        """Return the ceiling of the one account of a store; raise Refused if it is missing."""
        if self.epsilon is None:
            raise t.Refused("budget", "epsilon", what=t.MISSING)
        total = privacy.counted(self.epsilon)
        delta = None if privacy.delta is None else _decimal(privacy.delta)
        return BudgetPolicy(total, delta=delta, relation=privacy.relation)

    def policy(self, time_zone: str) -> BudgetPolicy:
        """Return the ceilings; raise Refused if one is missing, or never counts."""
        if self.kind is LossKind.ZCDP:
            if self.rho_per_vehicle is None or self.delta is None:
                missing = "delta" if self.rho_per_vehicle else "rho_per_vehicle"
                raise t.Refused("budget", missing, what=t.MISSING)
            return BudgetPolicy(self.rho_per_vehicle, delta=_decimal(self.delta))
        total, *periodic = (getattr(self, key) for key in _CEILINGS)
        if total is None:
            raise t.Refused("budget", _CEILINGS[0], what=t.MISSING)
        widest = total
        for key, ceiling in zip(_CEILINGS[1:], periodic, strict=True):
            if ceiling is not None and ceiling > widest:
                least = f"at most {widest}, the ceiling of the longer time: else it never counts"
                raise t.Refused("budget", key, expected=least)
            widest = ceiling or widest
        return BudgetPolicy(total, periodic[0], periodic[1], time_zone)


def _decimal(delta: Fraction) -> str:
    # the shortest decimal of it; conversions read it as the decimal it is written as
    return f"{Decimal(repr(float(delta))):f}"


class AnalystTable(t.Table):
    """Who may ask priced questions, and for how much."""

    name: Annotated[str, t.text("a name such as newsroom")]
    budget: Annotated[PureDP, t.loss("2"), Field(alias="epsilon_per_vehicle")]

    def analyst(self, privacy: Privacy) -> Analyst:
        """Return the role; its share is counted as the store's account is."""
        return Analyst(self.name, privacy.counted(self.budget))


_OF = {
    LossKind.ZCDP: (("budget", "rho_per_vehicle"), ("budget", "delta"), ("privacy", "rho")),
    LossKind.PURE: (
        *(("budget", key) for key in _CEILINGS),
        *(("privacy", "epsilon"), ("map", "accounting"), ("map", "resolutions"), ("stream",), ("analysts",)),
    ),
}
"""What is of one kind of loss alone."""
_SHARED = "[budget] epsilon instead: all vehicles share one budget"
_IN_RHO = "[privacy] epsilon with delta beside it, to count in rho"
_ONE_WAY = "to be left out: one mechanism makes the map"
_OTHERS: Mapping[NeighbouringRelation, Mapping[tuple[str, ...], str]] = {
    NeighbouringRelation.ADD_OR_REMOVE_USER: {
        ("budget", _CEILINGS[0]): _SHARED,
        **{("budget", key): f"{_SHARED}, over all time" for key in _CEILINGS[1:]},
        **{("budget", key): _IN_RHO for key in ("kind", "rho_per_vehicle", "delta")},
        ("privacy", "rho"): _IN_RHO,
        ("map", "min_vehicles"): "to be left out: every hexagon gets a number, and one of which nothing is "
        "known is marked",
        ("map", "mechanism"): _ONE_WAY,
        ("map", "accounting"): _ONE_WAY,
        ("map", "resolutions"): "[map] resolution, the same for all: where hexagons are small would tell "
        "where vehicles drove",
        ("stream",): "to be left out: ingest as files come, and release a map now and then",
    },
    NeighbouringRelation.REPLACE_USER_VALUES: {
        (
            "budget",
            "epsilon",
        ): "[budget] epsilon_per_vehicle instead: every vehicle has an account of its own",
        ("privacy", "delta"): '[budget] kind = "zcdp" with rho_per_vehicle and delta, to count in rho',
    },
}
"""What is of the other relation alone, and what to write instead."""


class Document(t.Table):
    """The whole file, below the places that ``document`` reads."""

    city: City
    privacy: Privacy
    budget: Budget
    map: Map
    stream: StreamSettings | None = None
    publish: Annotated[CatalogueEntry, PUBLISH] = NO_CATALOGUE_ENTRY
    source: tuple[Annotated[SourceDeclaration, SOURCE], ...] = ()
    analysts: tuple[AnalystTable, ...] = ()
    areas: tuple[Annotated[tuple[str, StudyArea], NAMED], ...] = ()
    context: tuple[Annotated[ContextFile, CONTEXT], ...] = ()
    knowledge: Annotated[
        tuple[Annotated[KnowledgeSource, KNOWLEDGE], ...], Field(max_length=MOST_SOURCES)
    ] = ()

    def config(self) -> Config:
        """Return the configuration; raise Refused for what does not go together."""
        relation, counted = self.privacy.relation, self.budget.kind
        instead = {key: f'{todo} (relation = "{relation.value}")' for key, todo in _OTHERS[relation].items()}
        if not (hidden := relation.hides_presence):
            # nor what only the other kind of loss can release
            other = next(each for each in LossKind if each is not counted)
            instead |= dict.fromkeys(
                _OF[other], f'[budget] kind = "{other.value}" with it, or to be left out'
            )
        for (*section, key), todo in instead.items():
            table: Any = getattr(self, section[0]) if section else self
            # "best" is what the template says, and contradicts no relation
            usual = hidden and key == "accounting" and table.accounting == "best"
            if key in table.model_fields_set and not usual:
                raise t.Refused(*section, key, expected=todo)
        for several, names in {
            "source": [each.name for each in self.source],
            "analysts": [each.name.casefold() for each in self.analysts],
            "areas": [name.casefold() for name, _ in self.areas],
        }.items():
            for at, name in enumerate(names):
                if name in names[:at]:
                    one = f"another name for every {several.removesuffix('s')}"
                    raise t.Refused(
                        several, at, "name", what=" is given twice", expected=one, todo="rename one"
                    )
        privacy = self.privacy
        policy = self.budget.of_store(privacy) if hidden else self.budget.policy(self.city.time_zone)
        with t.naming("city", "period"):
            period = Period(self.city.period.first, self.city.period.last, self.city.time_zone)
        config = Config(
            city=self.city,
            grid=self.map.grid(self.city.study_area, period),
            relation=relation,
            loss=privacy.counted(privacy.epsilon) if privacy.epsilon else privacy.rho,
            policy=policy,
            map=self.map.hidden(policy.kind) if hidden else self.map.settings(policy.kind),
            sources=self.source,
            key_file=None,
            store=None,
            analysts=tuple(each.analyst(privacy) for each in self.analysts),
            areas=dict(self.areas),
            context=self.context if self.map.tiles is None else (*self.context, self.map.tiles),
            stream=self.stream,
            knowledge=self.knowledge,
            accept_weak_promise=privacy.accept_weak_promise,
            catalogue=self.publish,
        )
        config.check_promise(config.map.fleet)
        return config


def template() -> str:
    """Return the commented configuration file that ``trafficdp init`` writes."""
    return resources.files("trafficdp.cli").joinpath("templates/trafficdp.toml").read_text(encoding="utf-8")


def load_config(path: Path) -> Config:
    """Read the configuration file at ``path``.

    Raises ConfigError, which names the key as ``[map] resolution``, for a file that cannot be read or is
    not TOML, for keys that are unknown, missing, wrong or still placeholders, and for a GeoJSON study
    area that cannot be read.
    """
    document = load_document(path)
    t.refuse_placeholders(document, name=path.name)
    store, key_file = places(document, path.parent)
    tables = {key: value for key, value in document.items() if key not in PLACES}
    return replace(t.read(Document, tables, path.parent, Document.config), store=store, key_file=key_file)
