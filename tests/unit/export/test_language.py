"""Pages in the language of the city: catalogues are whole, no sentence is left in code, and all is plain."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import replace
from datetime import date
from string import Formatter

import numpy as np
import pytest
from jinja2 import Environment, nodes
from languages import CATALOGUES, ENGLISH_WORDS, EXPORT, TEMPLATES, Texts, messages, read, written

from trafficdp.binning.cells import polygons_of
from trafficdp.binning.places import slot_facts
from trafficdp.export.files.disclosure import guarantee_in_words
from trafficdp.export.files.language import ENGLISH, PLACES, Language
from trafficdp.export.files.tables import reasons, withheld_because
from trafficdp.export.map.html_map import html_bytes
from trafficdp.export.notebook import release_card
from trafficdp.export.report.report import report_html
from trafficdp.mechanisms.pooling.calibrated import calibration
from trafficdp.model import Knowledge, KnowledgeKind, NeighbouringRelation, Period, SlotKind, Statistic, Zones
from trafficdp.privacy.budget import BudgetChange, BudgetPolicy, ChangedFact, weaknesses
from trafficdp.privacy.loss import ZCDP, PureDP

LANGUAGES = [*CATALOGUES]
SENTENCE = re.compile("[A-Za-z]{2} +[A-Za-z]{2}|^[A-Z][a-z]")
TOKENS = {
    *(
        "use strict",
        "ArrowRight",
        "ArrowLeft",
        "ArrowDown",
        "ArrowUp",
        "Enter",
        "Escape",
        "Polygon",
        "#ABCDEF",
    ),
    *("under", "edges", "over", "cells", "bold "),
}
"""What scripts write that nobody reads: names of keys and shapes."""


def test_there_are_german_french_and_spanish():
    assert LANGUAGES == ["de", "es", "fr"]


def holes(text):
    return sorted({name for _, name, _, _ in Formatter().parse(text) if name})


@pytest.mark.parametrize("tag", LANGUAGES)
def test_a_catalogue_has_every_message_and_no_other(tag):
    """TRAFFICDP_WRITE_CATALOGUES=1 adds new messages, to be translated, and removes old ones."""
    text = CATALOGUES[tag].read_text(encoding="utf-8")
    texts = read(CATALOGUES[tag])
    head = texts.pop("")[0]
    if os.environ.get("TRAFFICDP_WRITE_CATALOGUES") == "1":
        CATALOGUES[tag].write_text(written(head, texts), encoding="utf-8")
    assert text == written(head, texts)
    assert f"Language: {tag}\n" in head
    for key in messages():
        one = key if isinstance(key, str) else key[0]
        assert len(texts[one]) == (1 if isinstance(key, str) else 2), one
        for form in texts[one]:
            assert form.strip(), one
            assert holes(form) in [holes(each) for each in ((key,) if one == key else key)], one
            assert re.findall("<[^>]*>", form) == re.findall("<[^>]*>", one), one
            # a message may stand in an attribute
            assert not {'"', "'"} & {*re.sub("<[^>]*>", "", form)}, one


def bare(template):
    """What a template has of words outside of marks, HTML and expressions alike."""
    source = template.read_text(encoding="utf-8")
    environment = Environment()
    plain = "".join(
        value if kind == "data" else "§" if kind == "variable_begin" else ""
        for _, kind, value in environment.lex(source)
    )
    if template.suffix == ".html":
        texts = (re.sub("trafficdp( verify)?|SHA-256", "", text) for _, text in Texts(plain).found)
        yield from (text for text in texts if re.search("[A-Za-z]{3}", text))
    if template.suffix == ".js":
        code = re.sub("(?m)^ *//.*$", "", plain)
        for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code):
            if (
                text not in TOKENS
                and SENTENCE.search(text)
                and not re.search(r"px|sans-serif|[#.\[<=]", text)
            ):
                yield text
    tree = environment.parse(source)
    marked = {
        id(each)
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Name) and call.node.name in ("_", "ngettext")
        for each in call.args
    }
    for each in tree.find_all(nodes.Const):
        if isinstance(each.value, str) and id(each) not in marked and SENTENCE.search(each.value):
            yield each.value


@pytest.mark.parametrize(
    "template", [each for each in TEMPLATES if each.suffix != ".css"], ids=lambda each: each.name
)
def test_templates_have_no_words_outside_of_marks(template):
    assert [*bare(template)] == []


def test_a_sentence_that_is_left_is_seen(tmp_path):
    left = {
        "a.html": '<p>{{ n }} vehicles</p><i title="Look {{ at }}"></i>{{ x ~ "is far" }}{{ _("kept") }}',
        "b.js": 'say("no record here"); say({{ _("kept too") | tojson }}); say("Play");',
    }
    found = []
    for name, text in left.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        found.append([*bare(tmp_path / name)])
    assert found == [["§ vehicles", "Look §", "is far"], ["no record here", "Play"]]


MODULES = (
    "map/html_map.py",
    "map/drawing.py",
    "files/language.py",
    "site.py",
    "files/classes.py",
)
"""What makes pages; that reports have no sentence in Python: ``report/test_sentences.py``."""


def unmarked(node):
    """Sentences in Python that pages may say and no catalogue has; documentation and errors are none."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    marked = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("gettext", "ngettext")
    if docstring or isinstance(node, ast.Raise):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and SENTENCE.search(node.value):
        yield node.value
    for each in node.keywords if marked else ast.iter_child_nodes(node):
        yield from unmarked(each)


@pytest.mark.parametrize("module", MODULES)
def test_python_has_no_words_outside_of_marks(module):
    left = {*unmarked(ast.parse((EXPORT / module).read_text(encoding="utf-8")))}
    # a name of gettext's own, in the head of every catalogue
    assert left - messages().keys() - {"Plural-Forms"} == set()


def test_a_sentence_that_is_left_in_python_is_seen():
    source = 'say(language.gettext("is kept", of="is seen")); "is documented"; f"{n} is far"'
    assert [*unmarked(ast.parse(source))] == ["is seen", " is far"]


def in_language(release, tag):
    disclosed = release.disclosure
    return replace(
        release, disclosure=replace(disclosed, catalogue=replace(disclosed.catalogue, language=tag))
    )


def stated(release):
    """What manifests and tables say in English, of every kind that pages repeat."""
    for relation in NeighbouringRelation:
        yield guarantee_in_words(relation, "4")
        yield guarantee_in_words(relation, "40")
        yield guarantee_in_words(relation, "4.12", rho="0.5", delta="1e-6")
    yield from weaknesses(BudgetPolicy(PureDP.of("30")))
    yield from weaknesses(BudgetPolicy(ZCDP.of("1"), delta="0.01"), 1000)
    for held in ((0.959, 0.78, 0.917), (0.98, None, None), (0.98, 0.95, None)):
        yield calibration(*held).in_words
    yield from filter(None, reasons(release).values())
    yield withheld_because(release)
    for kind in KnowledgeKind:
        known = Knowledge(kind=kind, name="r0001", sha256="a" * 64, share=0.5)
        yield known.in_words
        yield replace(known, licence="CC-BY-4.0", date="2026-01-02").in_words
    facts = (
        ChangedFact(what="budget a vehicle", before="epsilon 4", after="epsilon 8"),
        ChangedFact(what="budget a year", before="none", after="epsilon 2"),
    )
    yield BudgetChange(entry=3, at="2026-03-05T10:00:00Z", reason="wanted", changed=facts).in_words
    yield from (
        each.words for each in Statistic if each.value.startswith("vehicle_") and each.value != "vehicle_mean"
    )
    period = Period(date(2026, 3, 2), date(2026, 3, 8), "Europe/Vienna")
    for kind, slot in (
        (SlotKind.WHOLE_PERIOD, 0),
        (SlotKind.WEEKDAY_WEEKEND_HOUR, 7),
        (SlotKind.WEEKDAY, 3),
        (SlotKind.DAY_PART, 1),
    ):
        yield slot_facts([slot], kind, period)[slot].label


@pytest.mark.parametrize("tag", LANGUAGES)
def test_what_manifests_say_is_found_again(tag, city):
    language = Language.of(tag)
    for text in stated(city):
        said = language.translate_sentence(text)
        assert said != text
        assert not ENGLISH_WORDS.search(said), said
    assert (
        ENGLISH.translate_sentence("fewer than 5 vehicles were seen here")
        == "fewer than 5 vehicles were seen here"
    )


def test_facts_come_with_it():
    german, french = Language.of("de"), Language.of("fr")
    assert (
        german.translate_sentence("fewer than 5 vehicles were seen here")
        == "hier waren weniger als 5 Fahrzeuge"
    )
    assert german.translate_sentence("2016-11-24 to 2016-11-27") == "24.11.2016 bis 27.11.2016"
    assert german.translate_sentence("Shell Road near Old City (2)", PLACES) == "Shell Road bei Old City (2)"
    assert french.translate_sentence("2.1 km north of Harbour", PLACES) == "à 2,1 km au nord de Harbour"
    assert german.translate_sentence("March", PLACES) == "March"
    reason = "on 2026-03-05: delta from 0.1 to 0.2. Reason: moved from here to there; none"
    assert german.translate_sentence(reason).endswith("Grund: moved from here to there; none")


def test_the_language_is_that_of_the_tag_and_english_where_there_is_no_catalogue():
    assert [Language.of(tag).tag for tag in ("de", "de-AT", "FR-ca", "es-419")] == ["de", "de", "fr", "es"]
    assert {Language.of(tag) for tag in (None, "", "en", "en-GB", "tlh", "../de", "d")} == {ENGLISH}
    assert Language.of("de") is Language.of("de-CH")


def test_numbers_and_days_are_written_as_the_language_does():
    written_so = {tag: Language.of(tag).fixed(1234567.5, 1) for tag in ("en", "de", "fr", "es")}
    assert written_so == {
        "en": "1,234,567.5",
        "de": "1.234.567,5",
        "fr": "1\u202f234\u202f567,5",
        "es": "1\u202f234\u202f567,5",
    }
    assert Language.of("de").signed(-0.04, 1) == "0,0"
    assert Language.of("de").signed(-1.25, 2) == "−1,25"
    day = date(2026, 3, 5)
    assert [Language.of(tag).long_date(day) for tag in ("en", "de", "fr", "es")] == [
        "5 March 2026",
        "5. März 2026",
        "5 mars 2026",
        "5 de marzo de 2026",
    ]


def test_a_number_takes_its_form_of_the_language():
    assert [Language.of("fr").form_of(number) for number in (0, 1, 2)] == [0, 0, 1]
    assert [Language.of("de").form_of(number) for number in (0, 1, 2)] == [1, 0, 1]


@pytest.mark.parametrize("tag", LANGUAGES)
def test_a_page_says_nothing_in_english(tag, any_release):
    page = html_bytes(in_language(any_release, tag)).decode()
    assert f'<html lang="{tag}">' in page
    for element, text in Texts(page).found:
        if "Tuned on" not in text and element != "title":
            assert not ENGLISH_WORDS.search(text.replace("City of Austin", "")), text


@pytest.mark.parametrize("tag", LANGUAGES)
def test_a_report_says_nothing_in_english(tag, any_release):
    page = report_html(in_language(any_release, tag)).decode()
    assert f'<html lang="{tag}">' in page
    for _, text in Texts(page).found:
        if "Tuned on" not in text:
            assert not ENGLISH_WORDS.search(text.replace("City of Austin", "")), text


@pytest.mark.parametrize("tag", LANGUAGES)
def test_places_beside_a_timetable_are_called_as_elsewhere(tag, scheduled):
    near = replace(scheduled, place=np.full(len(scheduled.cell), "Ring Road near Market", dtype=object))
    page = report_html(in_language(near, tag)).decode()
    assert page.count("Ring Road") > 10
    assert "near Market" not in page


@pytest.mark.parametrize("tag", LANGUAGES)
def test_a_card_of_a_notebook_says_nothing_in_english(tag, any_release):
    for _, text in Texts(release_card(in_language(any_release, tag))).found:
        assert not ENGLISH_WORDS.search(text.replace("City of Austin", "")), text


@pytest.mark.parametrize("tag", LANGUAGES)
def test_a_report_of_what_changed_says_nothing_in_english(tag, city, earlier_city):
    page = report_html(in_language(city, tag), earlier_city).decode()
    for _, text in Texts(page).found:
        assert not ENGLISH_WORDS.search(text.replace("City of Austin", "")), text


@pytest.mark.browser
@pytest.mark.xdist_group("browser")
@pytest.mark.parametrize("tag", LANGUAGES)
@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.prove)])
def test_the_map_speaks_it_on_every_screen(tag, width, rush_hours, chromium, map_page, tmp_path):
    language = Language.of(tag)
    (tmp_path / "map.html").write_bytes(html_bytes(in_language(rush_hours, tag)))
    page = map_page(chromium.new_page(viewport={"width": width, "height": 844}))
    page.go((tmp_path / "map.html").as_uri())
    page.press("ArrowRight", "ArrowUp", "ArrowUp")
    page.settle()
    seen = page.text("body")
    assert not ENGLISH_WORDS.search(seen.replace("City of Austin", "")), seen
    low, high, value = re.search(
        r"(\d[\d,.]*) \w+ (\d[\d,.]*) km/h\D*(\d[\d,.]*)", page.text("#card")
    ).groups()
    between = language.gettext("between {low} and {high} {unit}, most likely {value}")
    line = between.format(low=low, high=high, unit="km/h", value=value)
    assert page.text("#card p") == line[0].upper() + line[1:]
    assert page.text("#summary").startswith(f"37 {language.gettext('hexagons')}")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    for each in page.page.locator("#card dt, #card dd, button, label").all():
        assert each.evaluate("each => each.scrollWidth <= each.clientWidth + 1"), each.inner_text()
    assert page.complaints == []
    page.page.close()


def test_zones_keep_their_own_names(city):
    names = tuple(f"Mill near Lake {number}" for number in range(1, 62))
    shapes = tuple(polygons_of(np.unique(city.cell)))
    grid = replace(city.grid, resolution=None, zones=Zones("zones.gpkg", "a" * 64, names, shapes))
    place, cell = np.array(names, dtype=object), np.arange(1, 62, dtype=np.uint64)
    zoned = in_language(replace(city, grid=grid, place=place, cell=cell), "de")
    assert "Mill near Lake" in report_html(zoned).decode()
    assert "Mill near Lake" in html_bytes(zoned).decode()
    assert "Mill bei Lake" not in report_html(zoned).decode() + html_bytes(zoned).decode()


# Ease of reading, from 0 (hard) to 100: Flesch, and what others fitted for their languages in the same form.
# What ends at a colon or semicolon counts as a sentence (Flesch 1948).

VOWELS = re.compile("[aeiouyäöüáéíóúàâèêëîïôœùûÿ]+")
SCALES = {
    # Flesch 1948; Amstad 1978; Kandel, Moles 1958; Fernández Huerta 1959
    "en": lambda words, syllables: 206.835 - 1.015 * words - 84.6 * syllables,
    "de": lambda words, syllables: 180 - words - 58.5 * syllables,
    "fr": lambda words, syllables: 207 - 1.015 * words - 73.6 * syllables,
    "es": lambda words, syllables: 206.84 - 1.02 * words - 60 * syllables,
}


def syllables(word, tag):
    """About how many syllables a word has: groups of vowels, without those that are mute."""
    word = word.lower()
    if tag == "es":
        # two strong vowels are two syllables
        word = re.sub("(?<=[aeoáéíóú])(?=[aeoáéíóú])", "-", re.sub("qu|gu(?=[eiéí])", "q", word))
    if tag == "fr":
        word = re.sub(r"(?<=[^aeiouyé])(e|es|ent)$", "", re.sub("qu|gu(?=[eiéè])", "q", word))
    if tag == "en":
        word = re.sub(r"(?<=[^aeiouyl])e$|(?<=[aeiou][^aeioutd])ed$|(?<=[^aeiouyxszg])es$", "", word)
    return max(1, len(VOWELS.findall(word)))


def ease(texts, tag):
    """The ease of reading of ``texts``, all together."""
    sentences = [
        words
        for text in texts
        for sentence in re.split(r"[.:;!?](?:\s|$)", text)
        if (words := re.findall("[^\\W\\d_]+", re.sub(r"\S*[\d_/]\S*|\w+\.\w+", " ", sentence)))
    ]
    words = [word for sentence in sentences for word in sentence]
    return SCALES[tag](len(words) / len(sentences), sum(syllables(word, tag) for word in words) / len(words))


@pytest.mark.parametrize("tag", ["en", *LANGUAGES])
def test_the_citizens_page_is_plain(tag, rush_hours):
    page = html_bytes(in_language(rush_hours, tag)).decode()
    sentences = [text for element, text in Texts(page).found if element in ("p", "li")]
    assert len(sentences) > 20
    assert ease(sentences, tag) >= 60


def test_the_scale_tells_plain_from_heavy():
    assert ease(["The cat sat on the mat. It was warm."], "en") > 100
    assert ease(["Die Katze sitzt auf dem Dach. Es ist warm."], "de") > 80
    heavy = "Die Gewährleistung der Vertraulichkeit personenbezogener Geschwindigkeitsinformationen erfolgt"
    assert ease([heavy], "de") < 0
