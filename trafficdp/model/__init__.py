"""The public nouns: place, time, grid, bound, counts, statistic, assumptions. Import them from here.

What a file is: ``area`` says where, ``slot`` and ``period`` when; ``grid`` crosses them. ``counts`` says who
has how many records in which bin; ``bound`` and ``speed_unit`` what a speed may be; ``statistic`` what is
asked; ``privacy_unit`` who is protected and what is assumed. ``source``, ``context`` and ``zones`` are what a
city declares; ``json_codec`` writes any of them, ``order`` sorts.
"""

from trafficdp.model.area import (
    DAYS,
    EVERYTHING,
    HOURS_A_WEEK,
    Place,
    Selection,
    StudyArea,
    by_day,
    hours_in_words,
)
from trafficdp.model.bound import ContributionBound
from trafficdp.model.context import ContextFile, ContextKind, ContextLayer
from trafficdp.model.counts import Counts, Visits
from trafficdp.model.grid import DEFAULT_DAY_PARTS, DayPart, Grid, Mosaic, among, levels_of, resolution_of
from trafficdp.model.json_codec import Says, as_json, from_json, hinted
from trafficdp.model.order import largest_two, number_pairs, stable_order
from trafficdp.model.period import Period, zone_of
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
from trafficdp.model.source import FORMATS, Dialect, SourceDeclaration, UnitPeriod
from trafficdp.model.speed_unit import SpeedUnit, parse_speed_unit
from trafficdp.model.statistic import OF_MAPS, QUANTILES, Statistic
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
    "kinds_of",
    "largest_two",
    "levels_of",
    "number_pairs",
    "parse_speed_unit",
    "resolution_of",
    "stable_order",
    "zone_of",
]
