"""What every published column means and is measured in: stated once, for all files."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.model import QUANTILES, Counted, NeighbouringRelation, Statistic, Text
from trafficdp.privacy.disclosure import Sha256
from trafficdp.privacy.estimate import POSTERIOR_SHARES, POSTERIOR_SPEEDS, BinStatus
from trafficdp.privacy.release import Release

INSTANTS = ("slot_start", "slot_end")
"""Columns that are timestamps where a format has them, else text."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column of a file. ``unit`` is None where a unit makes no sense (text, identifiers)."""

    name: Text
    unit: Text | None
    description: Text


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One written file: its name within the release, SHA-256 (hexadecimal), size and columns."""

    name: Text
    sha256: Sha256
    bytes: Counted
    columns: tuple[ColumnFacts, ...]


def published_statistics(release: Release) -> tuple[Statistic, ...]:
    """Return the statistics of ``release`` in the order of the published table."""
    return tuple(statistic for statistic in Statistic if statistic in release.estimates)


def withheld_because(release: Release) -> str:
    """Return why a bin of ``release`` is withheld, short enough for a legend."""
    if release.disclosure.unit.neighbouring_relation == NeighbouringRelation.ADD_OR_REMOVE_USER:
        return "withheld: none"
    budget = "" if release.grid.mosaic is None else ", or no budget for so narrow an interval"
    return f"withheld: fewer than {release.request.min_vehicles} vehicles{budget}"


def reasons(release: Release) -> dict[str, str | None]:
    """Return, a bin status, why the bin carries no number or one not to lean on (None: nothing to say)."""
    return {
        BinStatus.RELEASED.value: None,
        BinStatus.CONSTANT.value: "the statistic can only be this one number; no noise was needed",
        BinStatus.WITHHELD.value: f"fewer than {release.request.min_vehicles} vehicles were seen here"
        + ("" if release.grid.mosaic is None else ", or the budget did not reach for so narrow an interval"),
        BinStatus.UNINFORMATIVE.value: "too little is known for the number to say much",
    }


def column_facts(release: Release) -> dict[str, ColumnFacts]:
    """Return the facts of all columns of ``published_frame(release)``, by name and in its order."""
    zone = release.grid.period.time_zone
    relation = release.disclosure.unit.neighbouring_relation
    noisy = "noisy number of " if relation == NeighbouringRelation.ADD_OR_REMOVE_USER else ""
    level = format(100 * release.request.interval_level, ".6g")
    zones = release.grid.zones
    places = (
        (
            ColumnFacts("hex_id", None, "H3 index of the cell, hexadecimal text"),
            ColumnFacts("place", None, "where the hexagon lies, in words, by public layers alone"),
            ColumnFacts("resolution", None, "H3 resolution of the cell, 0 to 15"),
        )
        if zones is None
        else (
            ColumnFacts("hex_id", None, f"number of the zone: its place in {zones.file}, from 1"),
            ColumnFacts("place", None, f"name of the zone in {zones.file}"),
            ColumnFacts("resolution", None, "empty: zones have none"),
        )
    )
    columns = [
        *places,
        ColumnFacts("slot", None, "number of the time slot within its kind"),
        ColumnFacts("slot_kind", None, "how time is cut into slots"),
        ColumnFacts("slot_label", None, f"the slot in words, local time of {zone}"),
        ColumnFacts("slot_start", None, "start of the slot, RFC 3339 with offset; empty when it recurs"),
        ColumnFacts("slot_end", None, "end of the slot, RFC 3339 with offset; empty when it recurs"),
        ColumnFacts(
            "status", None, "what became of the bin: " + ", ".join(status.value for status in BinStatus)
        ),
        ColumnFacts(
            "vehicles", "vehicles", f"{noisy}vehicles seen in the bin; empty unless counts are published"
        ),
        ColumnFacts(
            "records", "records", f"{noisy}GPS records in the bin; empty unless counts are published"
        ),
    ]
    for statistic in published_statistics(release):
        name, stem = statistic.column(release.request.display_unit), statistic.stem
        unit, found = statistic.unit(release.request.display_unit), release.estimates[statistic].posterior
        columns += [
            ColumnFacts(name, unit, statistic.description),
            ColumnFacts(f"{name}_low", unit, f"lower end of the {level} % interval of {name}"),
            ColumnFacts(f"{name}_high", unit, f"upper end of the {level} % interval of {name}"),
            ColumnFacts(
                f"{name}_noise_scale", unit, f"average size of the noise in {name} (Laplace noise: its scale)"
            ),
            ColumnFacts(f"{name}_expected_error", unit, _error_in_words(statistic, name, release)),
            *(_ranks(name, level) if statistic in QUANTILES else ()),
            *(
                ColumnFacts(f"{name}_{each}", unit, text)
                for each, text in POSTERIOR_SPEEDS.items()
                if each in found
            ),
            *(
                ColumnFacts(f"{stem}_{each}", None, text)
                for each, text in POSTERIOR_SHARES.items()
                if each in found
            ),
            ColumnFacts(f"{stem}_status", None, f"what became of {name} in the bin"),
            ColumnFacts(
                f"{stem}_interval_kind",
                None,
                "guaranteed (a theorem for every bin), ranks (the same, in ranks) or calibrated (by a "
                "posterior, as often as on the days it was tried on); empty where there is no interval",
            ),
        ]
    return {facts.name: facts for facts in columns}


def _ranks(name: str, level: str) -> tuple[ColumnFacts, ...]:
    text = (
        "which vehicle, counted from the slowest, has the speed that is the {} end of the {} % interval of {}"
    )
    return tuple(
        ColumnFacts(f"{name}_rank_{end}", "vehicles", text.format(word, level, name))
        for end, word in (("low", "lower"), ("high", "upper"))
    )


def _error_in_words(statistic: Statistic, name: str, release: Release) -> str:
    if release.estimates[statistic].posterior:
        return f"how far {name} is expected to be off on average, by the posterior"
    text = f"worst-case mean absolute error of {name}"
    if statistic is Statistic.VARIANCE and Statistic.MEAN in release.estimates:
        # a noisy mean can pull a good variance down: its interval is not affected
        return f"{text}, before it is kept within mean (U - mean) of the released mean"
    return text
