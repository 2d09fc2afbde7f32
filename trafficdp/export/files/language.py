"""The language of pages and the templates they are made from: English as it stands in the code, or another.

A language is one file, ``languages/TAG.po`` (gettext): texts, plurals, names of months, and how numbers and
days are written. Manifests and tables stay English; what pages repeat of them is found again in the catalogue
by the message it was made from (STATED, PLACES).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from markupsafe import Markup

from trafficdp.export.files.catalogue import TITLES
from trafficdp.export.files.disclosure import COUNTS_REVEALED, MOSAIC, NOT_PROTECTED, PROTECTED
from trafficdp.mechanisms.protocol import ASSUMPTIONS
from trafficdp.model import DAYS, DEFAULT_DAY_PARTS, OF_MAPS, SlotKind
from trafficdp.privacy.disclosure import CONCENTRATED, INTERVAL_KINDS, PURE
from trafficdp.privacy.estimate import BinStatus

if TYPE_CHECKING:
    import jinja2


_FOLDER = files("trafficdp.export").joinpath("languages")
_FIELD = re.compile(r'^(msgid|msgid_plural|msgstr(?:\[\d\])?) ((?:"(?:[^"\\]|\\.)*"\s*)+)', re.MULTILINE)
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_HOLE = re.compile(r"\\\{(\w+)\\\}")
_WEEKDAY = "[MTWFS][a-z]+day"
_HOLES = {
    **dict.fromkeys(("first", "last", "number"), "[0-9:.-]+"),
    "hours": "[0-9:-]+(?: and [0-9:-]+)*",
    "weekday": _WEEKDAY,
    "weekdays": f"{_WEEKDAY}.*",
}
"""What holds in holes of these names; any text in others."""
_VERBATIM = ("reason", "file", "release", "analyst")
"""Holes in which nothing is translated."""
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_NUMBER = re.compile(r"[\d,]*\.?\d+")
_TAG = re.compile("[a-z]{2,3}")


@dataclass(frozen=True, eq=False)
class Language:
    """A language: its ``tag``, the ``texts`` for every English message, and which plural a number takes."""

    tag: str
    texts: Mapping[str, tuple[str, ...]]
    form_of: Callable[[int], int]

    @classmethod
    def of(cls, tag: str | None) -> Language:
        """Return the language of a BCP 47 tag; English where there is no catalogue of it, or no tag."""
        found = _TAG.match((tag or "").lower())
        return ENGLISH if found is None else _read(found[0]) or ENGLISH

    def gettext(self, message: str, /, **facts: object) -> str:
        """Return the translation of ``message``, with ``facts`` in place of its {names}."""
        text = self.texts.get(message, (message,))[0]
        return text.format(**facts) if facts else text

    def ngettext(self, one: str, many: str, number: int, /, **facts: object) -> str:
        """Return the translation of ``one`` or ``many``, as ``number`` needs, with ``facts`` filled in."""
        text = self.texts.get(one, (one, many))[self.form_of(number)]
        return text.format(**facts) if facts else text

    def number(self, text: str) -> str:
        """Return ``text``, a number in English form ("1,234.5"), with the separators of this language."""
        # an example, so that a translator sees what it decides
        example = self.gettext("1,234.5")
        return text.translate({ord(","): example[1], ord("."): example[5]})

    def fixed(self, number: float, digits: int = 0) -> str:
        """Return ``number`` with ``digits`` decimals and the separators of this language."""
        return self.number(f"{number:,.{digits}f}")

    def signed(self, number: float, digits: int) -> str:
        """Return ``number`` with a sign, such as "+1.2" or "−1.2"; what rounds to 0 has none."""
        text = self.fixed(abs(number), digits)
        if not any(digit in text for digit in "123456789"):
            return text
        return f"−{text}" if number < 0 else f"+{text}"

    def localise_dates(self, text: str | date) -> str:
        """Return ``text`` with its ISO dates (2026-03-05) written as this language writes dates."""
        form = self.gettext("{year}-{month}-{day}")
        return _DAY.sub(lambda found: form.format(year=found[1], month=found[2], day=found[3]), str(text))

    def long_date(self, day: date) -> str:
        """Return ``day`` in words, in English such as "5 March 2026"."""
        return self.gettext("{day} {month} {year}", day=day.day, month=self.month(day), year=day.year)

    def month(self, day: date) -> str:
        """Return the name of the month of ``day``."""
        return self.gettext(MONTHS[day.month - 1])

    def translate_sentence(self, text: str, among: tuple[str, ...] | None = None) -> str:
        """Return the translation of ``text``, an English sentence made of a known message and facts.

        The messages tried are those of ``among``, else STATED.
        """
        if not self.texts:
            return text
        among = STATED if among is None else among
        if text in among:
            return self.gettext(text)
        for pattern, message in _patterns(among):
            found = pattern.fullmatch(text)
            if found is not None:
                facts = {
                    name: each if name in _VERBATIM else self.translate_sentence(each, among)
                    for name, each in found.groupdict().items()
                }
                return self.gettext(message, **facts)
        return self.number(text) if _NUMBER.fullmatch(text) else self.localise_dates(text)


@cache
def _read(tag: str) -> Language | None:
    """Return the language of ``languages/TAG.po``, None where that is not there."""
    from gettext import c2py

    path = _FOLDER.joinpath(f"{tag}.po")
    if not path.is_file():
        return None
    texts = dict(catalogue_entries(path.read_text(encoding="utf-8")))
    head = dict(line.split(": ", 1) for line in texts.pop("")[0].splitlines())
    return Language(tag, texts, c2py(head["Plural-Forms"].partition("plural=")[2].rstrip(";")))


def catalogue_entries(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every message of a translation catalogue (the text of a .po file) with its translated forms."""
    for block in re.split(r"\n\s*\n", text):
        found = {
            name: "".join(json.loads(each) for each in _LITERAL.findall(value))
            for name, value in _FIELD.findall(block)
        }
        if found:
            yield found["msgid"], tuple(found[name] for name in sorted(found) if name.startswith("msgstr"))


@cache
def _patterns(messages: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    """What texts look like that were made from ``messages`` with holes."""

    def hole(found: re.Match[str]) -> str:
        return f"(?P<{found[1]}>{_HOLES.get(found[1], '.+?')})"

    return [(re.compile(_HOLE.sub(hole, re.escape(each))), each) for each in messages if "{" in each]


ENGLISH = Language("en", {}, lambda number: int(number != 1))
"""As it stands in the code."""
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
STATED = (
    *PROTECTED.values(),
    *dict.fromkeys(text for texts in NOT_PROTECTED.values() for text in texts),
    *COUNTS_REVEALED.values(),
    *dict.fromkeys(each.text for assumptions in ASSUMPTIONS.values() for each in assumptions),
    *(*DAYS, *MONTHS, MOSAIC),
    *TITLES.values(),
    # of grids and slots
    *("hexagon", "hexagons", "zone", "zones", "{number} zones of {file}"),
    *(kind.value.replace("_", " ") for kind in SlotKind),
    *("weekday {hours}", "weekend {hours}", "{part} ({hours})"),
    *(part.name for part in DEFAULT_DAY_PARTS),
    # of statistics and files
    *(each.description for each in OF_MAPS),
    "{quantile} of each vehicle's own mean speed (each vehicle weighs the same)",
    *("median over vehicles", "{number}th percentile over vehicles"),
    *("under {limit}", "{limit} and more"),
    *("H3 hexagons of resolution {resolution}", "{size} MB", "{size} kB", "{size} bytes"),
    # of statuses, and why a bin has no number
    *(status.value for status in BinStatus),
    "unknown",
    *("6 or 7 in 10", "8 or 9 in 10"),
    "withheld: none",
    "withheld: fewer than {number} vehicles, or no budget for so narrow an interval",
    "withheld: fewer than {number} vehicles",
    "the statistic can only be this one number; no noise was needed",
    "fewer than {number} vehicles were seen here, or the budget did not reach for so narrow an interval",
    "fewer than {number} vehicles were seen here",
    "too little is known for the number to say much",
    # of the guarantee
    "Suppose that somebody has two equally likely guesses about {accounts}, and chooses one. Without this "
    "release the choice is right 50 % of the time; with everything that it publishes, at most {right} "
    "(epsilon = {epsilon}).",
    "Suppose that somebody has two equally likely guesses about {accounts}, and chooses one. Without this "
    "release the choice is right 50 % of the time; with everything that it publishes, at most {right} "
    "(rho = {rho}, and so epsilon = {epsilon} at delta = {delta}).",
    "how fast one vehicle drove",
    "one vehicle: here, or not here at all",
    "practically always",
    "{share} % of the time",
    "The budget of epsilon {epsilon} is larger than {largest}: when it is spent, a vehicle is hardly "
    "protected.",
    "Delta {delta} is larger than one divided by the number of vehicles: one of them may be without any "
    "protection.",
    "Delta {delta} is larger than {largest}: with that chance a vehicle may not be protected.",
    # of changes of the budget
    "on {day}: {facts}. Reason: {reason}",
    *("budget a vehicle", "budget for all vehicles together", "budget a year", "budget a month"),
    *("budget of analyst {analyst}", "time zone of years and months", "speed bound", "none"),
    *(PURE, CONCENTRATED, "rho {rho} (epsilon {epsilon} at delta {delta})", "epsilon {epsilon}"),
    *("epsilon", "rho"),
    # of intervals
    *INTERVAL_KINDS.values(),
    "Tuned on days of buses in Austin, intervals that should hold {level} % of places held {held}; no "
    "theorem stands behind them.",
    "{held} and {other} % on a day of taxis in San Francisco",
    "{held} % on other days there ({worst} % on the worst map)",
    "{held} % on other days there",
    # of what was known before
    *("the earlier release {release} ({facts})", "the earlier release {release}"),
    *("the timetable {file} ({facts})", "the timetable {file}"),
    *("the typical speeds of {file} ({facts})", "the typical speeds of {file}"),
    "{fact}; {facts}",
    "{what} from {before} to {after}",
    # of a selection of records
    *("within {number} listed hexagons", "within {number} listed hexagon", "within {places}"),
    *("{place} or {other}", "{when}, {weekdays}", "{weekdays} {hours}"),
    *("{weekday} and {weekdays}", "{weekday} to {weekdays}"),
    *("{first} and {last}", "{first} to {last}"),
)
"""Messages that manifests and tables are made from; of two that could be confused the longer first."""
PLACES = (
    "in the middle",
    "unnamed",
    "{name} ({number})",
    "{street} near {place}",
    "near {place}",
    "{street}, {way}",
    "{street} at {other}",
    "{distance} km {way} of {place}",
    "{distance} km {way}",
    *("east", "north-east", "north", "north-west", "west", "south-west", "south", "south-east"),
)
"""Messages that names of hexagons are made from."""


# How templates become pages: in one language, escaped, strict about names, the same bytes every time.


@cache
def _environment(language: Language) -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trafficdp.export", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "fixed": language.fixed,
        "signed": language.signed,
        "written": language.number,
        "dates": language.localise_dates,
        "month": language.month,
        "long_date": language.long_date,
        "translated": language.translate_sentence,
        "place": lambda text: language.translate_sentence(text, PLACES),
    }
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}

    # a message may hold marks of HTML; what is put into its holes is escaped
    def gettext(message: str, /, **facts: object) -> Markup:
        text = Markup(language.gettext(message))
        return text.format(**facts) if facts else text

    def ngettext(one: str, many: str, number: int, /, **facts: object) -> Markup:
        text = Markup(language.ngettext(one, many, number))
        return text.format(**facts) if facts else text

    environment.globals |= {"_": gettext, "ngettext": ngettext, "language": language.tag}
    return environment


def fill_template(template: str, language: Language, **values: object) -> str:
    """Return the text of the file ``template`` in ``language``, with ``values`` filled in."""
    return _environment(language).get_template(template).render(**values)


def render_sentence(sentence: str, *facts: object, language: Language = ENGLISH) -> str:
    """Return, as plain text, the sentence that the macro ``sentence`` of ``report_words.html`` makes.

    ``facts`` are the macro's arguments.
    """
    macro = getattr(_environment(language).get_template("report_words.html").module, sentence)
    text: str = macro(*facts).unescape()
    return text
