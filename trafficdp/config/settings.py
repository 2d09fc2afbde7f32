"""What a city has configured, as typed, frozen objects; ``file`` reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator, ValidationInfo

from trafficdp import model
from trafficdp.config import table as t
from trafficdp.config.document import exact_number, one_line_text, read_text
from trafficdp.errors import ConfigError, UsageError
from trafficdp.planner.request import MapSettings, Request
from trafficdp.privacy import budget
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import LOSSES, Loss, LossKind, PureDP, exact_text

# The ``[stream]`` table of the configuration: how a map is published as its records arrive.


class StreamSettings(t.Table):
    """How a stream is published. Times in minutes of stream time.

    ``epsilon`` None: that of [privacy]. ``records_per_vehicle``: how many records every vehicle is sure to
    have taken over the whole period. ``records_per_step``: the most of one vehicle that count in one step; 0:
    all.
    """

    epsilon: Annotated[PureDP | None, t.loss("2")] = None
    publish_every: Annotated[int, t.whole(1, 10_080)]
    lateness: Annotated[int, t.whole(0, 10_080)] = 5
    records_per_vehicle: Annotated[int, t.whole(1, 10**9)]
    records_per_step: Annotated[int, t.whole(0, 10**9)] = 0


# Areas in the configuration file: a box, or polygons of a GeoJSON file beside it.


LARGEST_GEOJSON = 64 << 20
"""Bytes of the file of an area."""


def _file(value: object, info: ValidationInfo[Path]) -> Path:
    if (name := one_line_text(value)) is None:
        raise t.Refused
    return info.context / name


class Area(t.Table):
    """A study area, given either as a bounding box or as a GeoJSON file."""

    bbox: Annotated[Any, Field(description="[west, south, east, north] in degrees")] = None
    geojson: Annotated[
        Path | None, PlainValidator(_file), Field(description="the name of a GeoJSON file")
    ] = None

    def study_area(self) -> model.StudyArea:
        """Return the area that ``bbox`` or ``geojson`` describes.

        Raises Refused unless exactly one of them is given and valid, ConfigError for a file that is no
        GeoJSON.
        """
        if self.geojson is None and self.bbox is not None:
            corners = [exact_number(item) for item in self.bbox] if isinstance(self.bbox, list) else []
            degrees = [float(corner) for corner in corners if corner is not None]
            if len(corners) != 4 or len(degrees) != 4:
                raise t.Refused("bbox")
            with t.naming("bbox"):
                return model.StudyArea.from_bbox(*degrees)
        if self.geojson is None or self.bbox is not None:
            raise t.Refused(
                what=": neither bbox nor geojson" if self.bbox is None else ": both bbox and geojson",
                expected='either { bbox = [west, south, east, north] } or { geojson = "area.geojson" }',
                todo="give one of them",
            )
        with t.naming("geojson"):
            content = read_text(
                self.geojson, what="the file", todo="correct its name", largest=LARGEST_GEOJSON
            )
            try:
                return model.StudyArea.from_geojson(content, where=self.geojson.name)
            except RecursionError as error:
                what = f"study area {self.geojson.name} is not GeoJSON"
                raise ConfigError(what, expected="polygons in WGS84") from error


class NamedArea(Area):
    """An area with a name by which questions refer to it."""

    name: Annotated[str, t.text("a name that questions call the area by")]


DRAWN = t.Built(Area, Area.study_area)
"""An area that is drawn in a table of its own."""
NAMED = t.Built(NamedArea, lambda area: (area.name, area.study_area()))
"""(name, area)."""


def _known(value: object) -> str | None:
    """Return one line of text that a manifest takes: "unknown" says nothing."""
    return None if str(value).strip().casefold() == "unknown" else one_line_text(value)


Name = Annotated[str, t.Reads(_known, "a name that may be printed on every map")]


_ADDRESS = re.compile(r"https?://[^\s/?#\"<>]+[^\s\"<>]*")
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")
_EMAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+\.[^\s@<>\"]+")
_CATALOGUES = [each.name for each in files("trafficdp.export").joinpath("languages").iterdir()]
LANGUAGES = sorted({"en", *(name.removesuffix(".po") for name in _CATALOGUES if name.endswith(".po"))})
"""What pages can be in."""
_LANGUAGE = re.compile(rf"({'|'.join(LANGUAGES)})(-[A-Za-z0-9]{{2,8}})*")


def _written_as(expected: str, *patterns: re.Pattern[str]) -> t.Reads:
    """Read one line that one of ``patterns`` matches as a whole."""

    def parse(value: object) -> str | None:
        found = _known(value)
        return found if found and any(each.fullmatch(found) for each in patterns) else None

    return t.Reads(parse, expected)


_LANGUAGE_TAG = _written_as(
    f'a language that pages are in ({", ".join(LANGUAGES)}), also with a country, such as "de-AT"', _LANGUAGE
)


class Publish(t.Table):
    """What open-data portals are told of every release; all of it may be left out."""

    licence: Annotated[
        str | None,
        _written_as('an SPDX identifier such as "CC-BY-4.0", or an http address', _LICENCE, _ADDRESS),
    ] = None
    contact: Annotated[str | None, _written_as("an e-mail address or an http address", _EMAIL, _ADDRESS)] = (
        None
    )
    landing_page: Annotated[
        str | None, _written_as('an address such as "https://data.example.org/speeds/"', _ADDRESS)
    ] = None
    keywords: Annotated[
        tuple[Annotated[str, t.Reads(_known, "")], ...],
        Field(description='a list of different words such as ["buses", "open data"]'),
        t.Once,
    ] = ()
    language: Annotated[str | None, _LANGUAGE_TAG] = None


PUBLISH = t.Built(Publish, lambda publish: model.CatalogueEntry(**dict(publish)))
"""What portals are told."""


class Days(t.Table):
    """First and last day, both included."""

    first: Annotated[t.Day, Field(alias="from")]
    last: Annotated[t.Day, Field(alias="to")]


class City(t.Table):
    """Who publishes, and whose clock the slots follow (an IANA time zone); where and when is mapped."""

    name: Name
    publisher: Name
    time_zone: Annotated[str, t.ZONE]
    study_area: Annotated[model.StudyArea, DRAWN]
    period: Days


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. ``loss`` None: it must be given with the release.

    ``store`` and ``key_file`` are already relative to the configuration file's folder; None: not set.
    ``policy`` is the whole of [budget].
    ``analysts`` may ask priced questions; ``areas`` are places that these may name. ``context`` names the
    public layers that are drawn with a map, ``knowledge`` the sources of speeds that it starts from.
    ``accept_weak_promise``: see ``check_promise``. ``catalogue`` is what portals are told.
    """

    city: City
    grid: model.Grid
    relation: model.NeighbouringRelation
    loss: Loss | None
    policy: budget.BudgetPolicy
    map: MapSettings
    sources: tuple[model.SourceDeclaration, ...]
    key_file: Path | None
    store: Path | None
    analysts: tuple[budget.Analyst, ...] = ()
    areas: Mapping[str, model.StudyArea] = field(default_factory=dict)
    stream: StreamSettings | None = None
    context: tuple[model.ContextFile, ...] = ()
    knowledge: tuple[model.KnowledgeSource, ...] = ()
    accept_weak_promise: bool = False
    catalogue: model.CatalogueEntry = model.NO_CATALOGUE_ENTRY

    @property
    def measured_grid(self) -> model.Grid:
        """The grid on which noise is added: ``grid``, or ``grid`` with one slot for the whole period.

        The latter where presence is hidden, unless the settings have each slot measured on its own.
        """
        in_one = self.relation.hides_presence and not self.map.per_slot
        return replace(self.grid, slot_kind=model.SlotKind.WHOLE_PERIOD) if in_one else self.grid

    def requested_loss(self, loss: Loss | str | float | None) -> Loss | None:
        """Return ``loss`` as a ``Loss``; None stays None.

        A bare number is an epsilon where presence is hidden, else an epsilon or a rho as the budget counts.
        """
        kind = LossKind.PURE if self.relation.hides_presence else self.policy.kind
        return loss if loss is None or isinstance(loss, Loss) else LOSSES[kind].of(loss)

    def require_public_counts(self, what: str, instead: str) -> None:
        """Raise UsageError where presence is hidden: ``what`` needs public counts of records.

        ``instead`` is the message's advice.
        """
        if self.relation.hides_presence:
            raise UsageError(
                f"{what} rests on public counts of records, and here nothing about a vehicle is public",
                got='[privacy] relation = "add_or_remove_user"',
                todo=instead,
            )

    @property
    def promise(self) -> budget.Promise:
        """What a store of this configuration promises: its budget, speed bound and analysts' budgets."""
        bound = self.map.bound
        words = f"{exact_text(bound.upper)} {bound.unit.label}"
        return budget.Promise(self.policy, words, self.analysts)

    def check_promise(self, vehicles: int | None) -> None:
        """Raise ConfigError if the promise is weak for this many ``vehicles``, unless that is accepted.

        See ``budget.weaknesses``. ``vehicles`` is None where their number is not public.
        """
        found = () if self.accept_weak_promise else budget.weaknesses(self.policy, vehicles)
        if found:
            raise ConfigError(
                "the promise to vehicles is weak",
                got=" ".join(found).rstrip("."),
                expected=f"a budget of at most epsilon {budget.LARGEST_EPSILON}, and a delta of at most "
                f"{budget.LARGEST_DELTA} and of at most one divided by the number of vehicles",
                todo="choose smaller numbers, or set accept_weak_promise = true in [privacy], which every "
                "map and report then says in red",
            )

    def request(self, loss: Loss | None = None) -> Request:
        """Return the planner's request for the configured map, at ``loss`` (None: the configured one).

        Raises ConfigError when there is neither, UsageError for one of another kind than the budget's.
        """
        kind = self.policy.kind
        if (chosen := loss or self.loss) is None:
            raise ConfigError(
                f"[privacy] {kind.quantity} is missing",
                expected=t.loss("4" if kind is LossKind.PURE else "0.5").expected,
                todo=f"set it in the configuration file, or give --{kind.quantity}",
            )
        if isinstance(chosen, PureDP) and self.relation.hides_presence and self.policy.delta is not None:
            chosen = approx_to_rho(ApproxDP(chosen.pico, Fraction(self.policy.delta)), self.relation)
        if chosen.kind is not kind:
            raise UsageError(
                f"this store counts its budget in {kind.quantity}",
                got=f"a wish for {chosen.kind.quantity}",
                todo=f"ask with --{kind.quantity}, or make a new store with another [budget] kind",
            )
        settings: dict[str, Any] = {each.name: getattr(self.map, each.name) for each in fields(self.map)}
        settings["fleet"] = self.map.fleet or model.DEFAULT_FLEET
        return Request(**settings, loss=chosen, relation=self.relation, simulate=True)
