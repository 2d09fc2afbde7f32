"""The public nouns: place, time, grid, bound, counts, statistic, assumptions. Import them from here.

Only the rooms that stand right on it name its files: what the guarantee rests on is seen at a glance. What a
file is: ``grid`` says where and when, and crosses them; ``slot`` what a time of day is. ``counts`` says who
has how many records in which bin; ``speed`` what a speed may be and what is asked of it; ``privacy_unit`` who
is protected and what is assumed. ``context`` and ``zones`` are what a city declares beside; ``json_codec``
writes any of them, ``order`` sorts.
"""

from trafficdp.model.context import ContextFile, ContextKind, ContextLayer
from trafficdp.model.counts import Counts, Visits
from trafficdp.model.grid import (
    DAYS,
    DEFAULT_DAY_PARTS,
    EVERYTHING,
    HOURS_A_WEEK,
    DayPart,
    Grid,
    Mosaic,
    Period,
    Place,
    Selection,
    StudyArea,
    among,
    by_day,
    hours_in_words,
    levels_of,
    resolution_of,
    zone_of,
)
from trafficdp.model.json_codec import Says, as_json, from_json, hinted
from trafficdp.model.order import largest_two, number_pairs, stable_order
from trafficdp.model.privacy_unit import (
    COUNTS_PUBLIC,
    DECLARED_BOUNDS,
    DEFAULT_FLEET,
    NOTHING_PUBLIC,
    ONE_VEHICLE_ONE_IDENTIFIER,
    VALIDITY_PUBLIC,
    VEHICLE_NOT_TRIP,
    Assumption,
    NeighbouringRelation,
)
from trafficdp.model.slot import LONGER, OFFSET, SlotKind, kinds_of
from trafficdp.model.speed import (
    FORMATS,
    OF_MAPS,
    QUANTILES,
    UTF16,
    ContributionBound,
    Dialect,
    SourceDeclaration,
    SpeedUnit,
    Statistic,
    UnitPeriod,
    is_line_encoding,
    parse_speed_unit,
)
from trafficdp.model.zones import NOWHERE, Zones

__all__ = [
    "COUNTS_PUBLIC",
    "DAYS",
    "DECLARED_BOUNDS",
    "DEFAULT_DAY_PARTS",
    "DEFAULT_FLEET",
    "EVERYTHING",
    "FORMATS",
    "HOURS_A_WEEK",
    "LONGER",
    "NOTHING_PUBLIC",
    "NOWHERE",
    "OFFSET",
    "OF_MAPS",
    "ONE_VEHICLE_ONE_IDENTIFIER",
    "QUANTILES",
    "UTF16",
    "VALIDITY_PUBLIC",
    "VEHICLE_NOT_TRIP",
    "Assumption",
    "ContextFile",
    "ContextKind",
    "ContextLayer",
    "ContributionBound",
    "Counts",
    "DayPart",
    "Dialect",
    "Grid",
    "Mosaic",
    "NeighbouringRelation",
    "Period",
    "Place",
    "Says",
    "Selection",
    "SlotKind",
    "SourceDeclaration",
    "SpeedUnit",
    "Statistic",
    "StudyArea",
    "UnitPeriod",
    "Visits",
    "Zones",
    "among",
    "as_json",
    "by_day",
    "from_json",
    "hinted",
    "hours_in_words",
    "is_line_encoding",
    "kinds_of",
    "largest_two",
    "levels_of",
    "number_pairs",
    "parse_speed_unit",
    "resolution_of",
    "stable_order",
    "zone_of",
]
