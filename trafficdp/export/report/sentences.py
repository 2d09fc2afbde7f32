"""Every sentence and heading that a report can write, and nothing else: ``report.html`` holds no words.

The rule for all of them: none claims more than the interval it was made from. What compares says "clearly",
a word that ``meaning`` defines; where intervals overlap or hold 0 a sentence says that nothing can be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType

from trafficdp.export.files.shown import error_digits
from trafficdp.export.report.certainty import Interval
from trafficdp.export.report.findings import Order
from trafficdp.export.report.phrases import (
    AREAS,
    Things,
    Words,
    capital,
    days,
    has_or_have,
    is_or_are,
    listed,
    signed_span,
    span,
)
from trafficdp.model import Statistic
from trafficdp.privacy.disclosure import BinNumbers

HEADINGS: Mapping[str, str] = MappingProxyType(
    {
        "short": "In short",
        "map": "The map",
        "legend": "Legend",
        "times": "By time of day",
        "days": "By time",
        "change": "What changed",
        "reading": "How to read this page",
        "privacy": "What is protected, and what is not",
        "protected": "Protected.",
        "not_protected": "Not protected:",
        "assumptions": "This rests on:",
        "facts": "The facts",
        "skip": "Skip to the content",
    }
)
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "mark": "Mark",
        "where": "Where",
        "when": "When",
        "cell": "Cell (H3)",
        "zone": "Zone",
        "interval": "Interval",
    }
)
NO_NOISE_LAW = (
    "This release does not say how its noise is distributed in a form by which numbers can be compared. So "
    "nothing is compared here; every number can be read with its own interval in the files."
)
FORCED = (
    "Released in spite of a warning: the expected errors are so large that this release would have been "
    "refused. Its numbers say little."
)
TOO_MANY_TIMES = "Too many times and areas to draw: see the interactive map (map.html or `trafficdp export`)."
FULL_ACCOUNT = (
    "The whole account of this release is in manifest.json, every number with its interval in cells.csv or "
    "cells.parquet."
)
CHANGE_OF_RECORDS = (
    "A change is one of the records: it may also come from other vehicles, or other routes, being recorded."
)
ONE_TO_COMPARE = "There is one number only, so there is nothing to compare."


def title(place: str) -> str:
    """Heading of the page."""
    return f"Traffic speeds in {place}"


def subtitle(first: date, last: date, publisher: str, release: str) -> str:
    """Line under the heading."""
    return f"{days(first, last)}. Published by {publisher}. Release {release}."


def coverage(
    words: Words,
    things: Things,
    bins: BinNumbers,
    least: int,
    narrow: bool = False,
) -> str:
    """How many numbers there are, and why not more. ``least``: vehicles below which one is withheld.

    ``narrow``: an interval of a declared width was asked for, which the budget may not have reached.
    """
    reasons = []
    compared, withheld, noisy = bins.released, bins.withheld, bins.uninformative
    if withheld:
        also = ", or the budget did not reach for an interval as narrow as asked" if narrow else ""
        reasons.append(
            f"{withheld:,} {is_or_are(withheld)} withheld because fewer than {least} vehicles were seen{also}"
        )
    if noisy:
        reasons.append(f"{noisy:,} {is_or_are(noisy)} too noisy to say much")
    if bins.constant:
        reasons.append(f"{bins.constant:,} can only be one number")
    tail = f": {listed(reasons)}" if reasons else ""
    have = f"{compared:,} of {things.count(bins.total)} {has_or_have(compared)}"
    return f"{have} a {words.noun} that can be compared{tail}."


def nothing_informative(words: Words) -> str:
    """Instead of any comparison."""
    return (
        f"No {words.noun} of this release says enough to be compared: the noise that protects the vehicles "
        "is too large, or too few vehicles were seen. So none is compared here."
    )


def average_is(words: Words, things: Things, number: int, found: Interval, unit: str, digits: int) -> str:
    """One figure for the city, with its interval."""
    over = f"Averaged over these {things.count(number)}, each counting once, the" if number > 1 else "The"
    value = f"{found.value:,.{min(digits, error_digits(found.low, found.high))}f}"
    return f"{over} {words.noun} is {value} {unit} ({span(found.low, found.high, digits)})."


def order_in_words(words: Words, things: Things, order: Order) -> str:
    """Who can be told apart, in one sentence."""
    if order.compared == 1:
        return ONE_TO_COMPARE
    if order.silent:
        return (
            f"No {things.one} can be told apart from another: all {order.compared:,} intervals overlap. None "
            f"is called {words.below} or {words.above} here."
        )
    if not order.low_half and not order.high_half:
        return (
            f"Some {things.many} are clearly {words.below} or {words.above} than others, but none is clearly "
            f"{words.below}, or clearly {words.above}, than half of the others."
        )
    parts = [
        f"{things.count(number)} {is_or_are(number)} clearly {word} than at least half of the others"
        for number, word in ((order.low_half, words.below), (order.high_half, words.above))
        if number
    ]
    return f"{listed(parts)}."


def list_caption(words: Words, things: Things, lowest: bool, shown: int, told: int) -> str:
    """Caption of the list of those that can be told to be below (or above) others."""
    name = f"{capital(things.many)} clearly {words.below if lowest else words.above} than others"
    return name if shown == told else f"{name}: the first {shown} of {told:,}"


def told_from(words: Words, below: bool) -> str:
    """Heading of the column that counts the others."""
    return f"Clearly {words.below if below else words.above} than"


def others(number: int, compared: int) -> str:
    """Return "12 of 40 others"."""
    return f"{number:,} of {compared - 1:,} others"


def none_told(words: Words, things: Things, below: bool) -> str:
    """Instead of an empty list."""
    return f"No {things.one} is clearly {words.below if below else words.above} than others."


def times_intro(words: Words, drawn: int, unit: str, top: str) -> str:
    """Before the diagrams of areas over time."""
    which = "the area" if drawn == 1 else f"the {drawn} areas"
    return (
        f"Diagrams for {which} with most numbers and least noise, chosen without looking at speeds. Line: "
        f"the {words.noun}, from 0 to {top} {unit}. Band: where it lies, for all times and areas at once."
    )


def times_told(words: Words, lowest: str, highest: str, gap: float, unit: str, digits: int) -> str:
    """The two times of one area that are furthest apart."""
    return f"{lowest}: clearly {words.below} than {highest}, by at least {gap:,.{digits}f} {unit}."


def times_not_told() -> str:
    """One area whose times overlap."""
    return "No two of its times can be told apart."


def change_counts(things: Things, words: Words, earlier: str, number: int, fell: int, rose: int) -> str:
    """How many changed, out of ``number`` in common."""
    if not fell and not rose:
        return f"Against {earlier}, no change can be told: both have numbers for {things.count(number)}."
    parts = [
        f"{things.count(n)} {is_or_are(n)} clearly {word}"
        for n, word in ((fell, words.below), (rose, words.above))
        if n
    ]
    rest = number - fell - rose
    tail = f"; for the other {rest:,} no change can be told" if rest else ""
    return f"Against {earlier}, {listed(parts)}{tail}."


def change_of_average(
    things: Things, words: Words, number: int, found: Interval, unit: str, digits: int
) -> str:
    """Whether the average over what both releases have rose or fell."""
    over = f"Averaged over the {things.count(number)} in both, the" if number > 1 else "The"
    if found.low > 0:
        return f"{over} {words.noun} clearly rose, by {span(found.low, found.high, digits)} {unit}."
    if found.high < 0:
        return f"{over} {words.noun} clearly fell, by {span(-found.high, -found.low, digits)} {unit}."
    ends = signed_span(found.low, found.high, digits)
    return f"{over} {words.noun} may have changed by {ends} {unit}: no change can be told."


def change_caption(words: Words, fell: bool, shown: int, told: int) -> str:
    """Caption of a list of changes."""
    name = f"Clearly {words.below if fell else words.above} than before"
    return name if shown == told else f"{name}: the first {shown} of {told:,}"


def change_by(unit: str) -> str:
    """Heading of the column of changes."""
    return f"Change, {unit}"


def nothing_in_common(earlier: str) -> str:
    """Two releases without a common number."""
    return f"No number can be compared with {earlier}: no area and time has one in both releases."


def earlier_release(release: str, first: date, last: date) -> str:
    """How the earlier release is called."""
    return f"release {release} of {days(first, last)}"


def meaning(level: str) -> str:
    """What "clearly" means."""
    return (
        "“Clearly” has one meaning here: everything this page says with that word, every interval in its "
        "lists and diagrams and every average hold together, all at once, with a probability of at least "
        f"{level} %. That is over the noise that was added to protect the vehicles."
    )


def meaning_of_calibrated() -> str:
    """The same where intervals rest on trials."""
    return (
        "“Clearly” has one meaning here: two calibrated intervals do not overlap. No theorem holds for them. "
        "In simulated cities on other counts at most one such comparison in twenty was wrong, in every "
        "variation that was tried."
    )


def reading(
    level: str, words: Words, limit: str, unit: str, bound: str, noun: str, *, calibrated: bool = False
) -> tuple[str, ...]:
    """How to read the page, point by point; the map is of hexagons, or whatever ``noun`` says.

    ``calibrated``: intervals rest on trials.
    """
    return (
        meaning_of_calibrated() if calibrated else meaning(level),
        "It does not cover how well the recorded vehicles stand for all traffic: the numbers are about the "
        f"records of these vehicles, with speeds above {bound} counted as {bound}.",
        "Where two intervals overlap, or the interval of a change holds 0, nothing is claimed: the truth may "
        "lie either way.",
        f"Map: darker is lower. Hatched {noun}s have a {level} % interval of their own wider than {limit} "
        f"{unit}. Two {noun}s of different colours need not differ in {words.noun}.",
        "The limits of the colours are fixed and do not depend on the data.",
        "Intervals here are those of the interactive map and of the files."
        if calibrated
        else "Intervals here are wider than those on the interactive map and in the files: those hold one by "
        "one, these all at once.",
    )


def map_title(words: Words, place: str, noun: str) -> str:
    """Name of the map, of hexagons or whatever ``noun`` says."""
    return f"Map of {place}: {words.noun} by {noun}"


def map_caption(words: Words, unit: str, when: str | None) -> str:
    """Line under the map; ``when`` is the time it shows, if there are several."""
    shown = f"{capital(words.noun)}, {unit}"
    return f"{shown}." if when is None else f"{shown}, {when}: the time with most numbers."


def map_in_words(coloured: int, hatched: int, withheld: int, noisy: int, empty: int) -> str:
    """What a map shows, for those who cannot see it."""
    parts = [f"{AREAS.count(coloured)} {is_or_are(coloured)} coloured by class, {hatched:,} of them hatched"]
    parts += [
        f"{number:,} {is_or_are(number)} {what}" for number, what in ((withheld, "withheld"),) if number
    ]
    parts += [f"{noisy:,} {is_or_are(noisy)} too noisy to colour"] if noisy else []
    parts += [f"{empty:,} {has_or_have(empty)} no record"] if empty else []
    return f"{listed(parts)}."


def marks_in_words(words: Words, diagrams: bool) -> str:
    """What the marks on a map are."""
    return (
        f"Marks: 1, 2, ... clearly {words.below} than others; A, B, ... clearly {words.above}"
        f"{'; P1, P2, ... see the diagrams' if diagrams else ''}."
    )


def change_map_in_words(fell: int, rose: int, unsure: int, words: Words) -> str:
    """What the map of changes shows."""
    parts = [
        f"{AREAS.count(fell)} {is_or_are(fell)} clearly {words.below}",
        f"{rose:,} {is_or_are(rose)} clearly {words.above}",
        f"in {unsure:,} no change can be told",
    ]
    return f"{listed(parts)}."


def legend_hatched(level: str, limit: str, unit: str) -> str:
    """Legend of hatching."""
    return f"hatched: {level} % interval wider than {limit} {unit}"


def legend_noisy() -> str:
    """Legend of uninformative hexagons."""
    return "too noisy to colour"


def legend_empty() -> str:
    """Legend of hexagons without a record at the time shown."""
    return "no record at this time"


def legend_change(words: Words) -> tuple[str, str, str, str]:
    """Legend of changes: fell, rose, not told, nothing to compare."""
    return (
        f"clearly {words.below}",
        f"clearly {words.above}",
        "no change can be told",
        "no number to compare",
    )


def panel_name(mark: str, place: str) -> str:
    """Name of a diagram."""
    return f"{mark}: {place}"


def panel_title(words: Words, name: str) -> str:
    """Name of a diagram for those who cannot see it."""
    return f"{capital(words.noun)} by time, {name}"


def what_it_is(statistic: Statistic, unit: str) -> str:
    """What a number is."""
    if statistic is Statistic.VARIANCE:
        return (
            "Each number is the standard deviation of speed over GPS records: how far speeds usually lie "
            f"from their mean, in {unit}. The files hold its square, the variance; averages are of that."
        )
    return f"Each number is the {statistic.description}, in {unit}."


def value_and_unit(words: Words, unit: str) -> str:
    """Heading of the column of values."""
    return f"{capital(words.noun)}, {unit}"


def section_heading(words: Words) -> str:
    """Heading of a statistic after the first."""
    return capital(words.noun)


def none_changed(words: Words, things: Things, fell: bool) -> str:
    """Instead of an empty list of changes."""
    return f"No {things.one} is clearly {words.below if fell else words.above} than before."


def change_map_caption(words: Words, earlier: str, when: str | None) -> str:
    """Line under the map of changes."""
    shown = f"Change of the {words.noun} against {earlier}"
    return f"{shown}." if when is None else f"{shown}, {when}."


def all_caption(things: Things, number: int) -> str:
    """Caption of the list of all numbers, where they are few."""
    return f"All {things.count(number)}, from north to south" if number > 1 else capital(things.one)


def only_records(selection: str) -> str:
    """Which records count, where not all do."""
    return f"Only these records count: {selection}."
