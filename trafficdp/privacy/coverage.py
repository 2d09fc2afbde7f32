"""Where and when a release holds, and what a text or number of a disclosure may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from trafficdp.model import ContextKind, Says, SlotKind, SpeedUnit

_LABELS = [unit.label for unit in SpeedUnit]
# what the JSON Schema says of a text or number that is used in several places
Text = Annotated[
    str,
    Says(
        {
            "minLength": 1,
            "pattern": r"\S",
            "not": {"pattern": r"^\s*[Uu][Nn][Kk][Nn][Oo][Ww][Nn]\s*$"},
        }
    ),
]
Sha256 = Annotated[str, Says({"pattern": "^[0-9a-f]{64}$"})]
Loss = Annotated[
    str,
    Says({"pattern": r"^(0|[1-9][0-9]*)(\.[0-9]{1,12})?$", "description": "decimal number, exact to 1e-12"}),
]
Exact = Annotated[
    str,
    Says(
        {
            "pattern": r"^(0|[1-9][0-9]*)((\.[0-9]{1,12})|(/[1-9][0-9]*))?$",
            "description": "decimal number or ratio, exact",
        }
    ),
]
Day = Annotated[str, Says({"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"})]
Moment = Annotated[
    str, Says({"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[+-][0-9]{2}:[0-9]{2}$"})
]
Slots = Annotated[str, Says({"enum": [kind.value for kind in SlotKind]})]
UnitLabel = Annotated[str, Says({"enum": _LABELS})]
StatisticUnit = Annotated[str, Says({"enum": [*_LABELS, *(f"({label})²" for label in _LABELS)]})]
Column = Annotated[
    str,
    Says(
        {
            "pattern": r"^speed_(mean|vehicle_(mean|median|p[0-9]{2}))_(ms|kmh|mph)$"
            r"|^speed_variance_(ms|kmh|mph)2$"
        }
    ),
]
Counted = Annotated[int, Says({"minimum": 1})]
Number = Annotated[int, Says({"minimum": 0})]
Hour = Annotated[int, Says({"minimum": 0, "maximum": 24})]
Resolution = Annotated[int, Says({"minimum": 0, "maximum": 15})]
Positive = Annotated[float, Says({"exclusiveMinimum": 0})]
Ring = Annotated[tuple[tuple[float, float], ...], Says({"minItems": 4})]
Rings = Annotated[tuple[Ring, ...], Says({"minItems": 1})]
Texts = Annotated[tuple[Text, ...], Says({"minItems": 1})]
SettingName = Annotated[str, Says({"pattern": "^[a-z][a-z0-9_]{0,63}$"})]


@dataclass(frozen=True, kw_only=True)
class Polygon:
    """A GeoJSON polygon, (longitude, latitude)."""

    type: Annotated[str, Says({"const": "Polygon"})]
    coordinates: Rings


@dataclass(frozen=True, kw_only=True)
class MultiPolygon:
    """Several GeoJSON polygons."""

    type: Annotated[str, Says({"const": "MultiPolygon"})]
    coordinates: Annotated[tuple[Rings, ...], Says({"minItems": 1})]


@dataclass(frozen=True, kw_only=True)
class DeclaredPeriod:
    """First and last day, in the time zone of the city."""

    first: Day
    last: Day
    time_zone: Text


@dataclass(frozen=True, kw_only=True)
class NamedHours:
    """A part of the day: from ``first_hour`` to before ``end_hour``."""

    name: Text
    first_hour: Hour
    end_hour: Hour


@dataclass(frozen=True, kw_only=True)
class SelectedPlace:
    """A place of a selection."""

    name: Text
    area_sha256: Sha256
    area: Polygon | MultiPolygon


@dataclass(frozen=True, kw_only=True)
class Selected:
    """What of area and period counts at all, when it is not everything."""

    in_words: Text
    hours_of_week: Annotated[
        tuple[Annotated[int, Says({"minimum": 0, "maximum": 167})], ...] | None,
        Says({"minItems": 1, "uniqueItems": True}),
    ]
    places: tuple[Annotated[tuple[SelectedPlace, ...], Says({"minItems": 1})], ...]
    cells: Annotated[
        tuple[Annotated[str, Says({"pattern": "^[0-9a-f]{1,16}$"})], ...] | None,
        Says({"minItems": 1, "uniqueItems": True}),
    ]


@dataclass(frozen=True, kw_only=True)
class BinsOfLevel:
    """How many bins of one resolution and slot kind are published."""

    resolution: Resolution
    slot_kind: Slots
    bins: Number


@dataclass(frozen=True, kw_only=True)
class SeveralResolutions:
    """The resolutions of a map of several, how many bins of each are published, and what was asked."""

    resolutions: Annotated[tuple[Resolution, ...], Says({"minItems": 1, "uniqueItems": True})]
    published_bins: Annotated[tuple[BinsOfLevel, ...], Says({"minItems": 1})]
    max_half_width: Text
    unit: Text
    in_words: Text


@dataclass(frozen=True, kw_only=True)
class PublicLayer:
    """A file of a public map that is drawn around the numbers and names hexagons."""

    kind: Annotated[str, Says({"enum": [kind.value for kind in ContextKind]})]
    file: Text
    sha256: Sha256
    attribution: Text


@dataclass(frozen=True, kw_only=True)
class CityZones:
    """The file whose polygons the map is cut into; ``zones`` says how many there are."""

    file: Text
    sha256: Sha256
    zones: Number


@dataclass(frozen=True, kw_only=True)
class BinNumbers:
    """How many bins there are in all and of each status."""

    total: Number
    released: Number
    constant: Number
    withheld: Number
    uninformative: Number


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Where and when."""

    place: Text
    study_area: Polygon | MultiPolygon
    study_area_sha256: Sha256
    resolution: Resolution | None
    period: DeclaredPeriod
    slot_kind: Slots
    day_parts: tuple[NamedHours, ...]
    bin_list: Text
    min_vehicles: Number
    bins: BinNumbers
    selection: Selected | None = None
    mosaic: SeveralResolutions | None = None
    context: tuple[PublicLayer, ...] = ()
    zones: CityZones | None = None
