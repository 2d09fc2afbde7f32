"""The public nouns: place, time, grid, bound, counts, statistic, assumptions. Import them from here.

Only the rooms that stand right on it name its files: what the guarantee rests on is seen at a glance. What a
file is: ``grid`` says where and when, and crosses them; ``counts`` who is protected, what is assumed, and who
has how many records in which bin; ``speed`` what a speed may be, what is asked of it and known before.
``context`` is the study area and what a city declares beside; ``json_codec`` writes any of them.
"""

# several names on a line
# fmt: off
from trafficdp.model.context import (
    NO_CATALOGUE_ENTRY, NOWHERE, CatalogueEntry, ContextFile, ContextKind, ContextLayer, StudyArea, Zones,
)
from trafficdp.model.counts import (
    COUNTS_PUBLIC, DECLARED_BOUNDS, DEFAULT_FLEET, NOTHING_PUBLIC, ONE_VEHICLE_ONE_IDENTIFIER,
    VALIDITY_PUBLIC, VEHICLE_NOT_TRIP, Assumption, Counts, NeighbouringRelation, Visits, largest_two,
    number_pairs, stable_order, unique_by_counting,
)
from trafficdp.model.grid import (
    DAYS, DEFAULT_DAY_PARTS, EVERYTHING, HOURS_A_WEEK, LONGER, OFFSET, DayPart, Grid, Mosaic, Period,
    Place, Selection, SlotKind, are_pairs_of, hours_by_day, hours_in_words, levels_of, resolution_of,
    rfc3339, slot_kinds_of, zone_of,
)
from trafficdp.model.json_codec import (
    Coded, Counted, Moment, Schema, Text, as_json, fields_with_hints, from_json,
)
from trafficdp.model.speed import (
    FILE_NAME, FORMATS, MOST_SOURCES, NEWEST, OF_MAPS, OPERATOR_FIELDS, PAIRS, QUANTILES, UTF16, Clip,
    ContributionBound, Dialect, Knowledge, KnowledgeKind, KnowledgeSource, KnownSpeeds, MapRequest,
    PlaceSpeeds, SourceDeclaration, SpeedUnit, Statistic, UnitPeriod, is_line_encoding, parse_speed_unit,
    start_of_seconds,
)
