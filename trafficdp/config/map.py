"""The tables ``[map]``, ``[[knowledge]]``, ``[[context]]``: what is released, and beside what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo

from trafficdp import model
from trafficdp.config import table as t
from trafficdp.config.document import exact_number, one_line_text
from trafficdp.errors import UsageError, did_you_mean, one_of
from trafficdp.mechanisms.names import AUTO, BASELINE, BY_NAME, PROVED
from trafficdp.planner.request import COUNTS_PERCENT, DETAIL, AdaptiveSettings, MapSettings
from trafficdp.privacy.loss import LossKind

# The ``[[context]]`` tables of the configuration: public layers that are drawn around the numbers.


def file_beside(value: object, info: ValidationInfo[Path]) -> Path:
    """Return the path of a file that is named relative to the configuration."""
    name = one_line_text(value)
    if name is None or "://" in name:
        raise t.Refused
    path: Path = info.context / name
    if not path.exists():
        raise t.Refused(what=" does not exist", got=str(path), todo="correct its name, or leave it out")
    return path


class Context(t.Table):
    """A table ``[[context]]``: one public layer that is drawn with a map, read from a file."""

    file: Annotated[
        Path,
        PlainValidator(file_beside),
        Field(
            description="a file beside the configuration, such as streets.gpkg, or a folder of static GTFS"
        ),
    ]
    kind: Annotated[
        model.ContextKind, t.choice(each for each in model.ContextKind if each is not model.ContextKind.TILES)
    ]
    name: Annotated[str | None, t.text("the name of a column with names")] = None
    attribution: Annotated[str, t.text("who made the layer, as its licence wants it to be said")]


def _classes(value: object) -> tuple[tuple[str, float], ...] | None:
    found = {name: exact_number(each) for name, each in value.items()} if isinstance(value, dict) else {}
    fits = found and all(each is not None and each > 0 for each in found.values())
    return tuple((name, float(each or 0)) for name, each in found.items()) if fits else None


_KEYS = {
    model.KnowledgeKind.RELEASE: (("release",), ()),
    model.KnowledgeKind.TIMETABLE: (("path", "licence"), ("date",)),
    model.KnowledgeKind.SPEEDS: (("path", "licence", "column"), ("date", "speed_unit", "classes")),
}
"""What a source of each kind needs, and what it may have besides."""


class KnowledgeTable(t.Table):
    """A table ``[[knowledge]]``: a public source of speeds, the map's expectation before it measures."""

    kind: Annotated[model.KnowledgeKind, t.choice(model.KnowledgeKind)] = model.KnowledgeKind.RELEASE
    release: Annotated[str | None, t.text('"newest", or the name of an earlier release such as "r0001"')] = (
        None
    )
    path: Annotated[
        Path | None,
        PlainValidator(file_beside),
        Field(description="a file beside the configuration: a .zip of static GTFS, or roads with speeds"),
    ] = None
    column: Annotated[str | None, t.text("the name of a column with speeds, or with classes of road")] = None
    speed_unit: Annotated[model.SpeedUnit | None, t.UNIT] = None
    classes: Annotated[
        tuple[tuple[str, float], ...] | None,
        t.Reads(_classes, "a speed above 0 for every class of road, such as { motorway = 100, street = 30 }"),
    ] = None
    licence: Annotated[str | None, t.text("the licence of the file, such as CC-BY-4.0")] = None
    date: Annotated[t.Day | None, Field(description="the day on which the file was published")] = None

    def source(self) -> model.KnowledgeSource:
        """Return the table as a ``KnowledgeSource``; raise Refused for keys that its kind does not have."""
        needed, further = _KEYS[self.kind]
        for key in needed:
            if getattr(self, key) is None:
                raise t.Refused(key, what=t.MISSING)
        for key in KnowledgeTable.model_fields:
            if key not in ("kind", *needed, *further) and getattr(self, key) is not None:
                raise t.Refused(key, expected=f'to be left out: it says nothing of kind = "{self.kind}"')
        return model.KnowledgeSource(**dict(self))


KNOWLEDGE = t.Built(KnowledgeTable, KnowledgeTable.source)
"""A source that is still to be read."""


_TILES = re.compile(r"https://[\w.-]+(:\d+)?/[\w.~%/{}?=&@-]*", re.ASCII)


def _address(value: object) -> str | None:
    address = one_line_text(value) or ""
    places = sorted(re.findall(r"{.*?}", address))
    return address if _TILES.fullmatch(address) and places == ["{x}", "{y}", "{z}"] else None


class Tiles(t.Table):
    """The server from which the map's page loads background tiles: the only thing that the page loads."""

    url: Annotated[
        str, t.Reads(_address, 'an address such as "https://tiles.example.org/{z}/{x}/{y}.png", with https')
    ]
    attribution: Annotated[str, t.text("who made the tiles, as their licence wants it to be said")]


TILES = t.Built(
    Tiles, lambda each: model.ContextFile(each.url, model.ContextKind.TILES, None, each.attribution)
)
"""Tiles under the hexagons."""
CONTEXT = t.Built(
    Context, lambda each: model.ContextFile(each.file, each.kind, each.name, each.attribution)
)  # fmt: skip
"""A layer that is still to be read."""


# The ``[map]`` table of the configuration: what is released a hexagon and how it is shown.


_TOLERANCE = t.number("a number above 0, in the unit of speed_bound")


def with_accounting(
    settings: MapSettings, name: str, kind: LossKind, *, instead_of_auto: bool = True
) -> MapSettings:
    """Return ``settings`` with the accounting ``name`` of the baseline mechanism, at losses of ``kind``.

    "best" changes no mechanism; another name sets every statistic's mechanism to the baseline. Where
    mechanisms are "auto", that is done only with ``instead_of_auto``. Raises UsageError for an unknown name
    and for settings with another mechanism.
    """
    accounting = one_of(("best", *BY_NAME), accounting=name)
    if accounting == "best":
        return replace(settings, accounting=accounting)
    may_be = {BASELINE, AUTO} if instead_of_auto else {BASELINE}
    if kind is not LossKind.PURE or not set(settings.mechanism.values()) <= may_be:
        raise UsageError(
            "only the baseline has accountings",
            got=f"accounting={accounting!r} beside another mechanism",
            todo='with_map(mechanism="baseline") as well',
        )
    mechanism = dict.fromkeys(settings.statistics, BASELINE)
    return replace(settings, accounting=accounting, mechanism=mechanism)


def with_mechanism(
    settings: MapSettings,
    wanted: str | Mapping[model.Statistic, str],
    kind: LossKind,
    *,
    allow_idealised: bool = False,
) -> MapSettings:
    """Return ``settings`` with another mechanism, for all statistics or for those named.

    Raises UsageError for a mechanism that is unknown at losses of ``kind``, one that cannot estimate its
    statistic and, unless ``allow_idealised``, one without an exact sampler.
    """
    # mechanisms take a moment to load: only who names one waits for it
    from trafficdp.mechanisms.registry import require_releasable, require_together

    named = dict.fromkeys(settings.statistics, wanted) if isinstance(wanted, str) else wanted
    for statistic, name in named.items():
        if name != AUTO:
            require_releasable(name, statistic, kind, allow_idealised=allow_idealised)
    mechanism = {**settings.mechanism, **named}
    require_together(mechanism)
    return replace(settings, mechanism=mechanism, allow_idealised=allow_idealised)


def _width(value: object) -> tuple[Fraction, model.SpeedUnit | None] | None:
    written, _, unit = value.strip().partition(" ") if isinstance(value, str) else (value, "", None)
    width = exact_number(written)
    if width is None or width <= 0:
        return None
    return width, None if unit is None else model.parse_speed_unit(unit, where="")


def _other_names(parts: tuple[model.DayPart, ...]) -> tuple[model.DayPart, ...]:
    if len({part.name for part in parts}) != len(parts):
        raise t.Refused(expected="another name for every part", got="a name given twice")
    return parts


class Part(t.Table):
    """A part of the day, from ``first_hour`` to ``end_hour`` of the local clock."""

    name: Annotated[str, t.text("a name")]
    first_hour: Annotated[int, t.whole(0, 23, "from")]
    end_hour: Annotated[int, t.whole(0, 24, "to")]


class Tolerance(t.Table):
    """For each statistic, the error that counts as equally bad in a map; None: the speed bound's number.

    In the unit of the speed bound, squared for the variance.
    """

    mean: Annotated[Fraction, _TOLERANCE] = Fraction(1)
    variance: Annotated[Fraction | None, _TOLERANCE] = None
    vehicle_mean: Annotated[Fraction, _TOLERANCE] = Fraction(1)


class Mechanisms(t.Table):
    """For each statistic, the name of the mechanism that releases it; which exist depends on the loss."""

    mean: object = None
    variance: object = None
    vehicle_mean: object = None


class ZonesFile(t.Table):
    """A file of district polygons that take the place of hexagons; ``name`` is the column of their names."""

    file: Annotated[
        Path,
        PlainValidator(file_beside),
        Field(description="a file beside the configuration, such as districts.gpkg"),
    ]
    name: Annotated[str | None, t.text("the name of a column with names")] = None


class Map(t.Table):
    """The table ``[map]``: places and slots, the speed bound, statistics and their mechanisms."""

    resolution: Annotated[int | None, t.whole(0, 15)] = None
    zones: Annotated[
        ZonesFile | None, BeforeValidator(lambda each: {"file": each} if isinstance(each, str) else each)
    ] = None
    resolutions: Annotated[
        tuple[Annotated[int, t.whole(0, 15)], ...],
        Field(min_length=1, description="a list of H3 resolutions from 0 to 15, such as [6, 7, 8]"),
        t.Once,
    ] = ()
    max_half_width: Annotated[
        tuple[Fraction, model.SpeedUnit | None] | None,
        t.Reads(_width, 'a width such as "5 km/h", or a number in speed_unit'),
    ] = None
    longer_slots: Annotated[
        tuple[Annotated[model.SlotKind, t.choice(model.SlotKind)], ...],
        Field(min_length=1, description='a list of kinds of slot, such as ["whole_period"]'),
        t.Once,
    ] = ()
    detail: Annotated[Fraction, t.number("a number of at least 0", lambda detail: detail >= 0)] = Fraction(
        DETAIL
    )
    slot: Annotated[model.SlotKind, t.choice(model.SlotKind)] = model.SlotKind.WHOLE_PERIOD
    speed_bound: Annotated[Fraction, t.number("a speed above 0, in speed_unit")]
    speed_unit: Annotated[model.SpeedUnit, t.UNIT]
    speed_step: Annotated[Fraction, t.number("a speed above 0 that divides speed_bound")] = Fraction(1, 100)
    display_unit: Annotated[model.SpeedUnit | None, t.UNIT] = None
    min_vehicles: Annotated[int, t.whole(1, 10**9)] = 5
    fleet: Annotated[int | None, t.whole(1, 10**9)] = None
    statistics: Annotated[
        tuple[Annotated[model.Statistic, t.choice(model.OF_MAPS)], ...],
        Field(
            min_length=1, description="a list of " + ", ".join(f'"{item.value}"' for item in model.OF_MAPS)
        ),
        t.Once,
    ] = (model.Statistic.MEAN, model.Statistic.VARIANCE)
    tolerance: Tolerance = Tolerance()
    interval_level: Annotated[Fraction, t.number("a number between 0 and 1", lambda level: 0 < level < 1)] = (
        Fraction(95, 100)
    )
    publish_counts: Annotated[bool, t.SWITCH] = False
    mechanism: Annotated[
        Mechanisms,
        BeforeValidator(
            lambda word: word if isinstance(word, dict) else dict.fromkeys(Mechanisms.model_fields, word)
        ),
    ] = Mechanisms()
    accounting: Annotated[str, t.choice(("best", *BY_NAME))] = "best"
    tiles: Annotated[model.ContextFile | None, TILES] = None
    day_parts: Annotated[
        tuple[Annotated[model.DayPart, t.Built(Part, lambda part: model.DayPart(**dict(part)))], ...],
        Field(min_length=1, description='a list such as [ { name = "night", from = 22, to = 6 }, ... ]'),
        AfterValidator(_other_names),
    ] = model.DEFAULT_DAY_PARTS

    def grid(self, area: model.StudyArea, period: model.Period) -> model.Grid:
        """Return the grid of places and time slots over ``area`` and ``period``.

        Places are the zones, the hexagons of ``resolution``, or those of the finest of ``resolutions``.
        Raises Refused for keys that contradict one another.
        """
        resolution, zones, of_several = self.resolution, None, ("max_half_width", "longer_slots", "detail")
        if self.zones is not None:
            for key in ("resolution", "resolutions", *of_several):
                if key in self.model_fields_set:
                    raise t.Refused("map", key, expected="to be left out: it is about hexagons, beside zones")
            # it takes a moment to load what reads maps: only who has zones waits for it
            from trafficdp.context.read import read_zones

            with t.naming("map", "zones"):
                zones = read_zones(self.zones.file, self.zones.name)
        elif self.resolutions:
            # a resolution beside them decides nothing, but must not contradict them
            if resolution is not None and resolution not in self.resolutions:
                raise t.Refused("map", "resolution", expected="one of resolutions, or none at all")
            resolution = max(self.resolutions)
        else:
            for key in of_several:
                if key in self.model_fields_set:
                    several = "resolutions = [...] beside it: it is about maps of several"
                    raise t.Refused("map", key, expected=several)
            if resolution is None:
                hexagons = "resolution, the size of the hexagons, or zones, a file of districts"
                raise t.Refused("map", "resolution", what=t.MISSING, expected=hexagons)
        with t.naming("map", "day_parts"):
            return model.Grid(resolution, self.slot, area, period, self.day_parts, zones=zones)

    def public_counts_settings(self, kind: LossKind) -> MapSettings:
        """Return the map's settings where counts of records are public; ``kind`` is the loss, epsilon or rho.

        Raises Refused for keys that contradict one another.
        """
        with t.naming("map", "speed_bound"):
            bound = model.ContributionBound(self.speed_bound, self.speed_step, self.speed_unit)
        statistics = tuple(item for item in model.OF_MAPS if item in self.statistics)
        mechanism: dict[model.Statistic, str] = {}
        for item in statistics:
            word = getattr(self.mechanism, item)
            if word is None:
                # an accounting, "best" too, is one of the baseline; several resolutions have a half width
                named = "accounting" in self.model_fields_set or self.resolutions
                word = PROVED[kind] if named else AUTO
            elif word != AUTO:
                from trafficdp.mechanisms.registry import names_of, require_releasable

                names, key = (AUTO, *names_of(kind)), ("map", "mechanism", item.value)
                if not isinstance(word, str) or word not in names:
                    known = "one of " + ", ".join(f'"{name}"' for name in names)
                    raise t.Refused(*key, expected=known, todo=did_you_mean(str(word), names))
                with t.naming(*key):
                    require_releasable(word, item, kind)
            mechanism[item] = word
        if len({*mechanism.values()}) > 1:
            from trafficdp.mechanisms.registry import require_together

            with t.naming("map", "mechanism"):
                require_together(mechanism)
        if kind is LossKind.PURE and self.accounting != "best" and set(mechanism.values()) != {BASELINE}:
            no_accountings = '"best", or mechanism = "baseline": other mechanisms have no accountings'
            raise t.Refused("map", "accounting", expected=no_accountings)
        return MapSettings(
            bound,
            self.min_vehicles,
            float(self.interval_level),
            self.display_unit or self.speed_unit,
            self.publish_counts,
            accounting=self.accounting,
            tolerance={
                item: float(getattr(self.tolerance, item.value) or bound.upper) for item in statistics
            },
            mechanism=mechanism,
            adaptive=self._adaptive(bound) if self.resolutions else None,
        )

    def add_remove_settings(self, kind: LossKind) -> MapSettings:
        """Return the map's settings under ADD_OR_REMOVE_USER, where nothing about a vehicle is public.

        ``kind`` is the loss, epsilon or rho. Raises Refused for statistics that such a map does not have.
        """
        if unknown := [each for each in self.statistics if each is model.Statistic.VEHICLE_MEAN]:
            raise t.Refused("map", "statistics", expected='"mean", perhaps "variance"', got=unknown[0])
        if model.Statistic.MEAN not in self.statistics:
            raise t.Refused("map", "statistics", expected='"mean" beside a variance', got="a variance alone")
        public = self.model_copy(update={"min_vehicles": 1, "mechanism": Mechanisms()})
        percent = COUNTS_PERCENT if self.publish_counts else 0
        return replace(public.public_counts_settings(kind), fleet=self.fleet, counts_percent=percent)

    def _adaptive(self, bound: model.ContributionBound) -> AdaptiveSettings:
        if self.max_half_width is None:
            narrow = "max_half_width beside it: how narrow intervals shall be"
            raise t.Refused("map", "resolutions", expected=narrow)
        from trafficdp.privacy.release import DECIMALS

        known = model.LONGER[self.slot]
        if not {*self.longer_slots} <= {*known, self.slot}:
            words = ", ".join(known or [self.slot])
            expected = f"a list of {words}: what slots of kind {self.slot} add up to"
            raise t.Refused("map", "longer_slots", expected=expected, got=", ".join(self.longer_slots))
        width, unit = self.max_half_width
        return AdaptiveSettings(
            tuple(sorted(self.resolutions, reverse=True)),
            width * (unit or bound.unit).factor_to(bound.unit),
            (self.display_unit or bound.unit).factor_to(bound.unit) / 10**DECIMALS,
            float(self.detail),
            tuple(each for each in known if each in self.longer_slots),
        )
