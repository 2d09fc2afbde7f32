"""The configuration file (TOML) as typed, frozen objects. No other package parses configuration.

Nothing that decides the guarantee or the meaning of a number is defaulted: neighbouring relation, study
area, period, units of speed, speed bound, resolution, budget and time zone must be chosen.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from trafficdp import model
from trafficdp.config import table as t
from trafficdp.config.document import PLACES, exact_number, load_document, one_line_text, places
from trafficdp.config.map import CONTEXT, KNOWLEDGE, Map
from trafficdp.config.settings import NAMED, PUBLISH, City, Config, StreamSettings
from trafficdp.privacy.budget import Analyst, BudgetPolicy
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.ledger import canonical
from trafficdp.privacy.loss import ZCDP, Loss, LossKind, PureDP

# The ``[[source]]`` tables: what the city declares about its files.


UNIT_BY_SPECIFICATION = ("gtfs_rt", "gtfs_rt_csv", "tides", "mds", "siri")
"""Formats whose specification says metres a second."""
_WITH_OPERATOR = ("csv", "parquet", "gpkg", "json", "xml", "gtfs_rt", "gtfs_rt_csv")
_WITH_PAIRS = ("csv", "json", "xml")
_WORDS_FOR_TIME = ("iso8601", "epoch_s", "epoch_ms", "epoch_us")
_DIRECTIVES = set("aAbBcdfGHIjmMpSuUVwWxXyYzZ%")
_UNITS = '"m/s", "km/h", "mph", or a list such as [{ unit = "mph", to = "2015-12-31" }, ...]'
_TIMES = (
    '"iso8601", "epoch_s", "epoch_ms", "epoch_us", "seconds since 2026-03-02T06:00:00+01:00" or a strptime '
    'pattern such as "%d/%m/%Y %H:%M:%S"'
)
_EXAMPLE = (
    'columns = { vehicle = "...", time = "...", latitude = "...", longitude = "...", speed = "..." }, '
    "the names in your files"
)
_PLACES = {"latitude", "longitude", "geometry"}
_COLUMN = t.text("the name of a column in your files")


def _file(value: object) -> str | None:
    name = one_line_text(value)
    if name and "/" in name:
        raise t.Refused(todo="leave the folder out; it is given to `trafficdp ingest`")
    return name


def _time_format(value: object) -> str | None:
    word = one_line_text(value)
    if model.start_of_seconds(word or "") is not None:
        return word
    directives = {*re.findall(r"%(.?)", word or "")}
    return word if word in _WORDS_FOR_TIME or (directives and directives <= _DIRECTIVES) else None


def _mark(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) == 1 and value not in "\r\n" else None


def _byte(value: object) -> str | None:
    return _mark(value) if isinstance(value, str) and value.isascii() and value != "\0" else None


def _or_nothing(parse: Callable[[object], str | None], expected: str) -> t.Reads:
    return t.Reads(lambda value: "" if value == "" else parse(value), expected)


def _encoding(value: object) -> str | None:
    return value.lower() if isinstance(value, str) and model.is_line_encoding(value) else None


class Columns(t.Table):
    """The table ``columns`` of a source: for each of our names, what the source calls the column."""

    vehicle: Annotated[str | None, _COLUMN] = None
    time: Annotated[str | None, _COLUMN] = None
    latitude: Annotated[str | None, _COLUMN] = None
    longitude: Annotated[str | None, _COLUMN] = None
    speed: Annotated[str | None, _COLUMN] = None
    geometry: Annotated[str | None, _COLUMN] = None
    operator: Annotated[str | None, _COLUMN] = None
    longitude_latitude: Annotated[str | None, _COLUMN] = None
    latitude_longitude: Annotated[str | None, _COLUMN] = None


class Unit(t.Table):
    """One entry of ``speed_unit``: a unit and the first and last day (both included) on which it holds."""

    unit: Annotated[model.SpeedUnit, t.UNIT]
    first: Annotated[t.Day | None, Field(alias="from")] = None
    last: Annotated[t.Day | None, Field(alias="to")] = None

    def period(self) -> model.UnitPeriod:
        """Return the entry as a ``UnitPeriod``; raise Refused if the last day is before the first."""
        period = model.UnitPeriod(self.unit, self.first, self.last)
        if period.last is not None and period.last < (period.first or date.min):
            raise t.Refused("to", expected="a day not before the one of from", got=_span(period))
        return period


class Source(t.Table):
    """A table ``[[source]]``: one kind of input file, how it is read and what its columns mean."""

    name: Annotated[str, t.text('a name for the source, such as "buses"')]
    format: Annotated[str, t.choice(model.FORMATS)]
    files: Annotated[
        tuple[Annotated[str, t.Reads(_file, "")], ...],
        Field(min_length=1, description='a list of file names or patterns such as ["*.csv.gz"]'),
        t.Once,
    ]
    units: Annotated[
        tuple[Annotated[model.UnitPeriod, t.Built(Unit, Unit.period)], ...] | None,
        BeforeValidator(lambda value: [{"unit": value}] if isinstance(value, str) else value),
        Field(min_length=1, alias="speed_unit", description=_UNITS),
    ] = None
    columns: Annotated[Columns | None, Field(description=_EXAMPLE)] = None
    time_format: Annotated[str, t.Reads(_time_format, _TIMES)] = "iso8601"
    time_zone: Annotated[str | None, t.ZONE] = None
    sentinels: Annotated[
        tuple[Annotated[Fraction, t.Reads(exact_number, "")], ...],
        Field(description="a list of numbers in the source's unit, such as [113.9952]; [] for none"),
    ] = ()
    missing_speed: Annotated[str, t.choice(("reject", "derive"))] = "reject"
    namespace: Annotated[str, _or_nothing(one_line_text, "text without line breaks")] = ""
    min_kept: Annotated[
        Fraction, t.number("a share of rows from 0 to 1, such as 0.9", lambda share: 0 <= share <= 1)
    ] = Fraction(0)

    records: Annotated[str, _or_nothing(one_line_text, 'a path such as "result.vehicles"')] = ""
    operator_separator: Annotated[str, _or_nothing(one_line_text, 'text such as ":"')] = ""
    header: Annotated[bool, t.SWITCH] = True
    delimiter: Annotated[str, t.Reads(_byte, 'what separates fields, such as ";" or "\\t"')] = ","
    quote: Annotated[str, _or_nothing(_byte, 'what surrounds text, such as "\'"; "" for nothing')] = '"'
    decimal: Annotated[str, t.Reads(_mark, 'the decimal mark of numbers, "." or ","')] = "."
    thousands: Annotated[str, _or_nothing(_mark, 'what groups digits, such as "."; "" for nothing')] = ""
    encoding: Annotated[str, t.Reads(_encoding, 'an encoding such as "utf-8", "cp1252" or "utf-16"')] = (
        "utf-8"
    )

    def declaration(self) -> model.SourceDeclaration:
        """Return the table as a ``SourceDeclaration``; raise Refused for keys that contradict one another."""
        offsets = {*re.findall(r"%(.)", self.time_format)}
        if offsets and self.time_zone is None and not {"z", "Z"} & offsets:
            raise t.Refused(
                "time_zone",
                what=t.MISSING,
                got=f'time_format = "{self.time_format}", which reads no offset',
                expected='the zone of the clock that wrote the times, such as "America/Chicago"',
            )
        if self.format == "xml" and not self.records:
            raise t.Refused("records", what=t.MISSING, expected="the name of the element that is a record")
        if self.units is None and self.format not in UNIT_BY_SPECIFICATION:
            raise t.Refused("speed_unit", what=t.MISSING)
        units = self.units or (model.UnitPeriod(model.SpeedUnit.METRES_PER_SECOND),)
        in_order = sorted(units, key=lambda each: each.first or date.min)
        for before, after in itertools.pairwise(in_order):
            if before.last is None or after.first is None or after.first <= before.last:
                raise t.Refused(
                    "speed_unit",
                    expected="one unit for every day",
                    got=f"{before.unit.label} {_span(before)} and {after.unit.label} {_span(after)}",
                    todo="end the earlier period the day before the later one begins (both days count)",
                )
        # at most 12 decimals and 13 digits before them: the division is exact in 28 digits
        sentinels = tuple(Decimal(each.numerator) / Decimal(each.denominator) for each in self.sentinels)
        own = dict(self) | {"units": units, "columns": self._columns(), "sentinels": sentinels}
        dialect = model.Dialect(**{each.name: own.pop(each.name) for each in fields(model.Dialect)})
        if dialect.decimal == dialect.thousands or dialect.delimiter in (dialect.quote, ""):
            raise t.Refused(
                "decimal" if dialect.decimal == dialect.thousands else "delimiter",
                expected="another mark for each",
                got=f"{dialect.decimal} {dialect.thousands} {dialect.delimiter} {dialect.quote}",
            )
        if not dialect.header and dialect.encoding == "utf-16":
            raise t.Refused(
                "encoding",
                expected='"utf-16-le" or "utf-16-be" where header = false: no first record may tell which',
                got=dialect.encoding,
            )
        return model.SourceDeclaration(**own, dialect=dialect)

    def _columns(self) -> dict[str, str]:
        free = self.format in ("csv", "parquet", "gpkg", "json", "xml")
        if self.columns is None and free:
            raise t.Refused("columns", what=t.MISSING)
        columns: dict[str, str] = {} if self.columns is None else self.columns.model_dump(exclude_none=True)
        if self.format == "gpkg" and {*model.PAIRS, *_PLACES} & {*columns}:
            raise t.Refused("columns", expected="no position: a layer has its points", got=", ".join(columns))
        if "geometry" in columns and (self.format != "parquet" or {"latitude", "longitude"} & {*columns}):
            raise t.Refused(
                "columns",
                expected="geometry (parquet only), or latitude and longitude, not both",
                got=f"format {self.format} with {', '.join(columns)}",
            )
        pairs = [name for name in model.PAIRS if name in columns]
        if pairs and (self.format not in _WITH_PAIRS or len(pairs) > 1 or _PLACES & {*columns}):
            raise t.Refused(
                "columns",
                expected=f"{' or '.join(model.PAIRS)} ({', '.join(_WITH_PAIRS)} only), or latitude and "
                "longitude",
                got=f"format {self.format} with {', '.join(columns)}",
            )
        operator = columns.get("operator")
        if operator is not None and columns.get("vehicle") == model.FILE_NAME:
            raise t.Refused(
                "columns", expected="no operator where a file is named by its vehicle", got=operator
            )
        if operator is not None and self.format not in _WITH_OPERATOR:
            known = f"operator in {', '.join(_WITH_OPERATOR)} only"
            raise t.Refused("columns", expected=known, got=f"format {self.format}")
        if operator is not None and self.format == "gtfs_rt" and operator not in model.OPERATOR_FIELDS:
            known = f"one of {', '.join(model.OPERATOR_FIELDS)}"
            raise t.Refused("columns", "operator", expected=known, got=operator)
        for ours, name in columns.items() if self.format == "csv" and not self.header else ():
            if (ours, name) != ("vehicle", model.FILE_NAME) and not re.fullmatch(r"[1-9]\d{0,2}", name):
                position = 'the place of a column, from "1", where header = false'
                raise t.Refused("columns", ours, expected=position, got=name)
        place = next(((each,) for each in ("geometry", *pairs) if each in columns), ("latitude", "longitude"))
        speed = ("speed",) if self.missing_speed == "reject" else ()
        required = ("vehicle", "time", *(() if self.format == "gpkg" else place), *speed)
        missing = [key for key in required if free and key not in columns]
        if missing:
            raise t.Refused("columns", missing[0], what=t.MISSING)
        names = list(columns.values())
        shared = [key for key, name in columns.items() if names.count(name) > 1]
        if shared:
            raise t.Refused(
                "columns", expected="another column for each", got=f"one column for {', '.join(shared)}"
            )
        return columns


SOURCE = t.Built(Source, Source.declaration)
"""A source as readers know it."""


def declaration_json(source: model.SourceDeclaration) -> str:
    """Return canonical JSON of everything that decides what the reader makes of a file of ``source``.

    Equal declarations give equal text: columns are sorted, sentinels are sorted plain decimals. The name
    of the source, its file patterns and min_kept are left out, for they change nothing in what is read.
    """
    left_out = ("name", "files", "min_kept")
    facts = {each.name: getattr(source, each.name) for each in fields(source) if each.name not in left_out}
    units = [
        {
            "unit": each.unit.value,
            "first": each.first and str(each.first),
            "last": each.last and str(each.last),
        }
        for each in sorted(source.units, key=lambda each: each.first or date.min)
    ]
    sentinels = [f"{value.normalize():f}" for value in sorted(set(source.sentinels))]
    own = {"columns": dict(source.columns), "sentinels": sentinels, "dialect": asdict(source.dialect)}
    return canonical(facts | own | {"units": units})


def _span(period: model.UnitPeriod) -> str:
    first = "the beginning" if period.first is None else period.first.isoformat()
    last = "the end" if period.last is None else period.last.isoformat()
    return f"from {first} to {last}"


# The tables ``[privacy]``, ``[budget]``, ``[[analysts]]``, and the whole file.


_CEILINGS = ("epsilon_per_vehicle", "epsilon_per_vehicle_a_year", "epsilon_per_vehicle_a_month")
DELTA = t.number("a number from 10^-12 to below 1, such as 1e-6", lambda delta: 0 < delta < 1)


class Privacy(t.Table):
    """The table ``[privacy]``: the neighbouring relation, and the loss of a release by default."""

    relation: Annotated[model.NeighbouringRelation, t.choice(model.NeighbouringRelation)]
    epsilon: Annotated[PureDP | None, t.loss("4")] = None
    rho: Annotated[ZCDP | None, t.loss("0.5", ZCDP)] = None
    delta: Annotated[Fraction | None, DELTA] = None
    accept_weak_promise: Annotated[bool, t.SWITCH] = False

    def to_loss(self, epsilon: PureDP) -> Loss:
        """Return ``epsilon`` itself without a ``delta``; else the largest rho that implies (epsilon, delta).

        Raises Refused where there is none.
        """
        if self.delta is None:
            return epsilon
        with t.naming("privacy", "delta"):
            return approx_to_rho(ApproxDP(epsilon.pico, self.delta), self.relation)


class Budget(t.Table):
    """The table ``[budget]``: the most privacy loss that a store may ever cost a vehicle.

    Ceilings of epsilon for all time, a year and a month, or one of rho; where presence is hidden, the one
    shared ``epsilon``.
    """

    epsilon: Annotated[PureDP | None, t.loss("8")] = None
    epsilon_per_vehicle: Annotated[PureDP | None, t.loss("4")] = None
    epsilon_per_vehicle_a_year: Annotated[PureDP | None, t.loss("4")] = None
    epsilon_per_vehicle_a_month: Annotated[PureDP | None, t.loss("4")] = None
    kind: Annotated[LossKind, t.choice(LossKind)] = LossKind.PURE
    rho_per_vehicle: Annotated[ZCDP | None, t.loss("0.5", ZCDP)] = None
    delta: Annotated[Fraction | None, DELTA] = None

    def shared_policy(self, privacy: Privacy) -> BudgetPolicy:
        """Return the one budget that all vehicles share, for stores where presence is hidden.

        Raises Refused where there is none.
        """
        if self.epsilon is None:
            raise t.Refused("budget", "epsilon", what=t.MISSING)
        total = privacy.to_loss(self.epsilon)
        delta = None if privacy.delta is None else _decimal(privacy.delta)
        return BudgetPolicy(total, delta=delta, relation=privacy.relation)

    def policy_per_vehicle(self, time_zone: str) -> BudgetPolicy:
        """Return the budget of each vehicle, for stores with public counts.

        Years and months begin by the clocks of ``time_zone``. Raises Refused if a ceiling is missing, or is
        above the ceiling of a longer time, so that it has no effect.
        """
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
    """A table ``[[analysts]]``: who may ask priced questions, and what these may cost each vehicle."""

    name: Annotated[str, t.text("a name such as newsroom")]
    budget: Annotated[PureDP, t.loss("2"), Field(alias="epsilon_per_vehicle")]

    def analyst(self, privacy: Privacy) -> Analyst:
        """Return the analyst, with a budget in epsilon, or in rho where ``privacy`` has a delta."""
        return Analyst(self.name, privacy.to_loss(self.budget))


_OF = {
    LossKind.ZCDP: (("budget", "rho_per_vehicle"), ("budget", "delta"), ("privacy", "rho")),
    LossKind.PURE: (
        *(("budget", key) for key in _CEILINGS),
        *(("privacy", "epsilon"), ("map", "accounting"), ("map", "resolutions"), ("stream",), ("analysts",)),
    ),
}
"""What is of one kind of loss alone."""
_PER_VEHICLE = "[budget] epsilon_per_vehicle instead: every vehicle has an account of its own"
_SHARED = "[budget] epsilon instead: all vehicles share one budget"
_IN_RHO = "[privacy] epsilon with delta beside it, to count in rho"
_ONE_WAY = "to be left out: one mechanism makes the map"
_OTHERS: Mapping[model.NeighbouringRelation, Mapping[tuple[str, ...], str]] = {
    model.NeighbouringRelation.ADD_OR_REMOVE_USER: {
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
    model.NeighbouringRelation.REPLACE_USER_VALUES: {
        ("budget", "epsilon"): _PER_VEHICLE,
        ("privacy", "delta"): '[budget] kind = "zcdp" with rho_per_vehicle and delta, to count in rho',
    },
}
"""What is of the other relation alone, and what to write instead."""


class Document(t.Table):
    """The whole configuration file but for the keys ``store`` and ``key_file``, which ``document`` reads."""

    city: City
    privacy: Privacy
    budget: Budget
    map: Map
    stream: StreamSettings | None = None
    publish: Annotated[model.CatalogueEntry, PUBLISH] = model.NO_CATALOGUE_ENTRY
    source: tuple[Annotated[model.SourceDeclaration, SOURCE], ...] = ()
    analysts: tuple[AnalystTable, ...] = ()
    areas: tuple[Annotated[tuple[str, model.StudyArea], NAMED], ...] = ()
    context: tuple[Annotated[model.ContextFile, CONTEXT], ...] = ()
    knowledge: Annotated[
        tuple[Annotated[model.KnowledgeSource, KNOWLEDGE], ...], Field(max_length=model.MOST_SOURCES)
    ] = ()

    def to_config(self) -> Config:
        """Return the file as a ``Config``; raise Refused for keys that contradict one another."""
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
        policy = (
            self.budget.shared_policy(privacy)
            if hidden
            else self.budget.policy_per_vehicle(self.city.time_zone)
        )
        with t.naming("city", "period"):
            period = model.Period(self.city.period.first, self.city.period.last, self.city.time_zone)
        config = Config(
            city=self.city,
            grid=self.map.grid(self.city.study_area, period),
            relation=relation,
            loss=privacy.to_loss(privacy.epsilon) if privacy.epsilon else privacy.rho,
            policy=policy,
            map=self.map.add_remove_settings(policy.kind)
            if hidden
            else self.map.public_counts_settings(policy.kind),
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
    try:
        config = Document.model_validate(tables, context=path.parent).to_config()
    except ValidationError as error:
        # keys that nobody knows before all others
        first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
        refused = first.get("ctx", {}).get("error", t.Refused())
        key = (*first["loc"], *refused.key)
        raise t.config_error(Document, tables, key, first["type"], refused) from error
    except t.Refused as error:
        raise t.config_error(Document, tables, error.key, "", error) from error
    return replace(config, store=store, key_file=key_file)
