"""What is protected, against which change, and what is assumed to be public anyway."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

DEFAULT_FLEET = 1_000
"""How many vehicles are expected where nothing about one is public and nobody says."""


class NeighbouringRelation(StrEnum):
    """Which two data sets must be hard to tell apart.

    REPLACE_USER_VALUES: they differ in the values (speeds) of one vehicle, in all bins at once; how many
    records each vehicle has in each bin is equal in both and treated as public. The papers' relation.
    ADD_OR_REMOVE_USER: one of them has one vehicle more; nothing about a vehicle is public.
    """

    REPLACE_USER_VALUES = "replace_user_values"
    ADD_OR_REMOVE_USER = "add_or_remove_user"

    @property
    def hides_presence(self) -> bool:
        """Whether nothing about a vehicle is public."""
        return self is NeighbouringRelation.ADD_OR_REMOVE_USER

    @property
    def may_refuse_by_counts(self) -> bool:
        """Whether a file may be refused for how few of its rows are kept: only where counts are public."""
        return not self.hides_presence


@dataclass(frozen=True, slots=True)
class Assumption:
    """One thing that the guarantee takes for granted. Printed on every release."""

    code: str
    text: str


COUNTS_PUBLIC = Assumption(
    "counts_public",
    "How many records each vehicle has in each bin, and so when and where a vehicle drove, is treated as "
    "public. Only the speeds are protected.",
)
VALIDITY_PUBLIC = Assumption(
    "validity_public",
    "Whether a record carries a usable speed (present, readable, not a sentinel of the device) is treated "
    "as public.",
)
NOTHING_PUBLIC = Assumption(
    "nothing_public",
    "Nothing about a vehicle is treated as public: not whether it is in the data, nor where, when, how often "
    "and how fast it drove. Study area, period, hexagons and slots were declared before any record was seen.",
)
DECLARED_BOUNDS = Assumption(
    "declared_bounds",
    "The speed bound, study area, period, resolution and slots were declared without looking at speeds.",
)
ONE_VEHICLE_ONE_IDENTIFIER = Assumption(
    "one_vehicle_one_identifier",
    "Each vehicle has one identifier (after normalising case, spaces and hyphens). A vehicle that appears "
    "under two identifiers is protected under each separately, so its loss may be up to the sum of both.",
)
VEHICLE_NOT_TRIP = Assumption(
    "independent_vehicles",
    "One vehicle's speeds are protected, not what many vehicles have in common: that traffic on a street "
    "was slow is what the map is for.",
)
