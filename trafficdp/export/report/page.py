"""What a report shows, ready for its template: sentences, pictures, lists and diagrams. No HTML here."""

from __future__ import annotations

from dataclasses import dataclass

from trafficdp.export.map.picture import Picture
from trafficdp.export.report.panel import Panel
from trafficdp.privacy.disclosure import Disclosure


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture with its name, what it shows in words, and the line under it."""

    picture: Picture
    title: str
    description: str
    caption: str


@dataclass(frozen=True, slots=True)
class LegendLine:
    """A sample of a look, and what it means."""

    sample: Picture
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A list: its caption, column headings, and rows whose first text heads the row.

    ``instead`` is what is said when there is no row.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    instead: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it."""

    heading: str
    sentences: tuple[str, ...]
    figure: Figure | None
    legend: tuple[LegendLine, ...]
    tables: tuple[Table, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """The part on time slots: small maps and diagrams."""

    heading: str
    sentences: tuple[str, ...]
    maps: tuple[Figure, ...]
    panels: tuple[Panel, ...]
    panel_titles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole report."""

    title: str
    subtitle: str
    generator: str
    warnings: tuple[str, ...]
    messages: tuple[str, ...]
    main: Section
    times: Times | None
    others: tuple[Section, ...]
    change: Section | None
    reading: tuple[str, ...]
    disclosed: Disclosure
    sum_in_words: str
    facts: tuple[tuple[str, str], ...]
    full_account: str
