"""What a report says of the release as a whole, from its disclosure: the facts an engineer looks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

FACTS: Mapping[str, str] = MappingProxyType(
    {
        "made": "Made",
        "data": "Data",
        "grid": "Grid",
        "speeds": "Speeds",
        "guarantee": "Guarantee",
        "noise": "Noise",
        "budget": "Budget",
        "intervals": "Intervals",
        "data_version": "Data version",
        "ledger": "Ledger",
        "check": "Check it with",
    }
)


def sum_of_releases(loss_sum: str, budget: str, quantity: str = "epsilon") -> str:
    """Where this release stands in the city's budget; ``quantity`` is what it counts in."""
    return f"With this release, all so far add up to {quantity} {loss_sum}; no vehicle may pass {budget}."


def noise_in_words(claims: Collection[str]) -> str:
    """How the noise came, for readers; ``claims`` are theorems that are only claimed, or empty."""
    said = "added to every number before it left the store; manifest.json says how it was drawn"
    return said + "".join(sorted(claims))


def clipping_in_words(bound: str, step: str, unit: str) -> str:
    """What is done to every speed first."""
    return (
        f"clipped to 0 to {bound} {unit}, then rounded to {step} {unit}; no record is left out for its speed"
    )


def grid_in_words(places: str, slots: str, time_zone: str) -> str:
    """What the bins are; ``places`` is such as "H3 hexagons of resolution 7"."""
    return f"{places}; slots: {slots}; time zone {time_zone}"


def guarantee_in_short(definition: str, loss: str, relation: str) -> str:
    """The promise as an engineer reads it; ``loss`` is such as "epsilon 4"."""
    return f"{definition}; {loss}; neighbouring relation {relation}"


def budget_in_words(before: str, after: str, budget: str, quantity: str = "epsilon") -> str:
    """The place in the budget; ``quantity`` is what it counts in."""
    return f"{quantity} {before} before this release, {after} after it, of {budget} for every vehicle"


def intervals_in_words(level: str, kind: str) -> str:
    """What the intervals of the files are."""
    return f"in the files {level} %, {kind}; on this page simultaneous over all that is compared (Bonferroni)"


def verify_with(release: str) -> str:
    """How the publisher checks the release."""
    return f"trafficdp verify {release}"
