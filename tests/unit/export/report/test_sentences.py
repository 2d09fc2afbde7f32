"""Every sentence a report can write, in a golden file; TRAFFICDP_WRITE_GOLDEN=1 writes it anew: read it."""

from __future__ import annotations

import inspect
import os
import re
from datetime import date
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafficdp.export.report import fact_sentences, phrases, sentences
from trafficdp.export.report.certainty import Interval
from trafficdp.export.report.findings import Order, Standing
from trafficdp.export.report.phrases import AREAS, AREAS_AND_TIMES, WORDS
from trafficdp.model import OF_MAPS, Statistic
from trafficdp.privacy.disclosure import BinNumbers

GOLDEN = Path(__file__).parent / "golden" / "report_sentences.txt"
MEDIAN_AND_P85 = Statistic.VEHICLE_MEDIAN, Statistic.VEHICLE_P85
MEAN, VARIANCE = WORDS[Statistic.MEAN], WORDS[Statistic.VARIANCE]
EARLIER = "release r0001 of 3 to 5 March 2026"
ONE, TWO = (Standing(0, 3),), (Standing(0, 3), Standing(1, 2))


def numbers(total, released, withheld, uninformative, constant):
    return BinNumbers(
        total=total,
        released=released,
        withheld=withheld,
        uninformative=uninformative,
        constant=constant,
    )


CASES = {
    sentences.title: [("Austin",)],
    sentences.subtitle: [(date(2016, 11, 24), date(2016, 11, 27), "City of Austin", "r0001")],
    sentences.coverage: [
        (MEAN, AREAS, numbers(61, 47, 9, 5, 0), 5),
        (MEAN, AREAS, numbers(1, 1, 0, 0, 0), 5),
        (VARIANCE, AREAS_AND_TIMES, numbers(1200, 1000, 100, 0, 100), 5),
        (MEAN, AREAS, numbers(5, 1, 1, 1, 1), 3),
        (MEAN, AREAS, numbers(5, 0, 0, 5, 0), 3),
        (MEAN, AREAS, numbers(61, 47, 9, 5, 0), 5, True),
    ],
    sentences.nothing_informative: [(MEAN,), (VARIANCE,)],
    sentences.average_is: [
        (MEAN, AREAS, 47, Interval(38.47, 33.4, 43.5), "km/h", 1),
        (MEAN, AREAS, 1, Interval(8.2, 7.11, 9.5), "m/s", 2),
        (VARIANCE, AREAS_AND_TIMES, 1000, Interval(8.31, 6.2, 11.4), "km/h", 1),
    ],
    sentences.order_in_words: [
        (MEAN, AREAS, Order(1, (), (), 0, 0)),
        (MEAN, AREAS, Order(47, (), (), 0, 0)),
        (VARIANCE, AREAS_AND_TIMES, Order(47, (), (), 0, 0)),
        (MEAN, AREAS, Order(47, ONE, TWO, 0, 0)),
        (MEAN, AREAS, Order(47, ONE, TWO, 1, 2)),
        (MEAN, AREAS, Order(47, ONE, TWO, 0, 2)),
        (VARIANCE, AREAS_AND_TIMES, Order(47, ONE, TWO, 3, 0)),
    ],
    sentences.list_caption: [
        (MEAN, AREAS, True, 5, 12),
        (MEAN, AREAS, False, 3, 3),
        (VARIANCE, AREAS_AND_TIMES, True, 1, 1),
    ],
    sentences.all_caption: [(AREAS, 6), (AREAS, 1)],
    sentences.told_from: [(MEAN, True), (MEAN, False), (VARIANCE, True), (VARIANCE, False)],
    sentences.others: [(12, 41), (1000, 2001)],
    sentences.none_told: [(MEAN, AREAS, True), (VARIANCE, AREAS_AND_TIMES, False)],
    sentences.times_intro: [(MEAN, 6, "km/h", "80"), (MEAN, 1, "mph", "60")],
    sentences.times_told: [(MEAN, "08:00-09:00", "03:00-04:00", 3.2, "km/h", 1)],
    sentences.times_not_told: [()],
    sentences.change_counts: [
        (AREAS, MEAN, EARLIER, 47, 0, 0),
        (AREAS, MEAN, EARLIER, 1, 0, 0),
        (AREAS, MEAN, EARLIER, 47, 1, 4),
        (AREAS, MEAN, EARLIER, 47, 0, 1),
        (AREAS_AND_TIMES, VARIANCE, EARLIER, 5, 5, 0),
    ],
    sentences.change_of_average: [
        (AREAS, MEAN, 47, Interval(2.0, 0.1, 3.9), "km/h", 1),
        (AREAS, MEAN, 47, Interval(-2.0, -3.9, -0.1), "km/h", 1),
        (AREAS, MEAN, 47, Interval(1.0, -1.2, 3.1), "km/h", 1),
        (AREAS, MEAN, 47, Interval(1.0, 0.0, 3.1), "km/h", 1),
        (AREAS, MEAN, 1, Interval(0.0, -1.25, 1.25), "m/s", 2),
    ],
    sentences.change_caption: [(MEAN, True, 5, 9), (MEAN, False, 2, 2), (VARIANCE, True, 1, 1)],
    sentences.change_by: [("km/h",)],
    sentences.none_changed: [(MEAN, AREAS, True), (MEAN, AREAS_AND_TIMES, False)],
    sentences.change_map_caption: [(MEAN, EARLIER, None), (MEAN, EARLIER, "08:00-09:00")],
    sentences.change_map_in_words: [(1, 2, 3, MEAN), (0, 1, 40, MEAN)],
    sentences.nothing_in_common: [(EARLIER,)],
    sentences.earlier_release: [("r0001", date(2026, 3, 3), date(2026, 3, 5))],
    sentences.meaning: [("95",)],
    sentences.meaning_of_calibrated: [()],
    sentences.reading: [("95", MEAN, "16.2", "km/h", "65 km/h", "hexagon")],
    sentences.map_title: [(MEAN, "Austin", "hexagon"), (VARIANCE, "Austin", "zone")],
    sentences.map_caption: [(MEAN, "km/h", None), (VARIANCE, "km/h", "08:00-09:00")],
    sentences.map_in_words: [(47, 12, 9, 5, 0), (1, 0, 1, 1, 1), (0, 0, 0, 0, 3)],
    sentences.marks_in_words: [(MEAN, False), (VARIANCE, True)],
    sentences.legend_hatched: [("95", "16.2", "km/h")],
    sentences.legend_noisy: [()],
    sentences.legend_empty: [()],
    sentences.legend_change: [(MEAN,), (VARIANCE,)],
    sentences.panel_name: [("P1", "4.1 km north")],
    sentences.panel_title: [(MEAN, "P1: 4.1 km north")],
    sentences.section_heading: [(VARIANCE,), (WORDS[Statistic.VEHICLE_MEAN],)],
    sentences.value_and_unit: [(MEAN, "km/h")],
    sentences.only_records: [("Monday 08:00-09:00",)],
    sentences.what_it_is: [(each, "km/h") for each in (*OF_MAPS, *MEDIAN_AND_P85)],
    fact_sentences.sum_of_releases: [("8", "12")],
    fact_sentences.clipping_in_words: [("65", "0.01", "km/h")],
    fact_sentences.grid_in_words: [("H3 hexagons of resolution 7", "hour of day", "Asia/Kolkata")],
    fact_sentences.noise_in_words: [([""],), (["", "; unenforced: Theorem 3"],)],
    fact_sentences.guarantee_in_short: [
        ("pure epsilon-differential privacy, user level", "epsilon 4", "replace_user_values")
    ],
    fact_sentences.budget_in_words: [("4", "8", "12")],
    fact_sentences.intervals_in_words: [("95", "per bin, two-sided")],
    fact_sentences.verify_with: [("r0001",)],
    phrases.days: [
        (date(2026, 3, 3), date(2026, 3, 3)),
        (date(2026, 3, 3), date(2026, 3, 5)),
        (date(2026, 3, 3), date(2026, 4, 5)),
        (date(2025, 12, 30), date(2026, 1, 2)),
    ],
    phrases.span: [(0.0, 1234.56, 1)],
    phrases.signed_span: [(-1.25, 3.1, 1), (-0.01, 0.0, 1)],
}  # fmt: skip
CONSTANTS = (
    "HEADINGS",
    "COLUMNS",
    "NO_NOISE_LAW",
    "FORCED",
    "TOO_MANY_TIMES",
    "FULL_ACCOUNT",
    "CHANGE_OF_RECORDS",
    "ONE_TO_COMPARE",
)


def public_functions(module):
    found = inspect.getmembers(module, inspect.isfunction)
    return {each for name, each in found if each.__module__ == module.__name__ and not name.startswith("_")}


def golden():
    lines = []
    for name in CONSTANTS:
        value = getattr(sentences, name)
        texts = [f"{key}: {text}" for key, text in value.items()] if not isinstance(value, str) else [value]
        lines += [f"{name}: {text}" for text in texts]
    lines += [f"FACTS: {key}: {text}" for key, text in fact_sentences.FACTS.items()]
    for function, calls in CASES.items():
        for arguments in calls:
            said = function(*arguments)
            lines += [f"{function.__name__}: {text}" for text in ([said] if isinstance(said, str) else said)]
    return "\n".join(lines) + "\n"


def test_every_sentence_is_the_one_that_was_read_and_approved():
    if os.environ.get("TRAFFICDP_WRITE_GOLDEN") == "1":
        GOLDEN.write_text(golden(), encoding="utf-8")
    assert golden() == GOLDEN.read_text(encoding="utf-8")


def test_no_sentence_is_left_out():
    known = public_functions(sentences) | public_functions(fact_sentences)
    assert known - set(CASES) == set()
    constants = {
        name for name in vars(sentences) if name.isupper() and isinstance(vars(sentences)[name], str)
    }
    assert constants - {"AREAS"} <= set(CONSTANTS)


def test_the_template_has_no_words_of_its_own():
    folder = Path(sentences.__file__).parents[1] / "templates"
    template = "".join(
        (folder / f"{name}.html").read_text(encoding="utf-8") for name in ("report", "picture")
    )
    text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}", "", template, flags=re.S)
    text = re.sub(r"<[^>]*>", " ", text)
    assert text.split() == ["km"]


CLAIMS = re.compile(r"clearly", re.I)


@given(st.integers(2, 1000), st.sampled_from([MEAN, VARIANCE]))
def test_no_order_is_claimed_of_a_silent_order(compared, words):
    said = sentences.order_in_words(words, AREAS, Order(compared, (), (), 0, 0))
    assert not CLAIMS.search(said)
    assert "No area can be told apart" in said


@pytest.mark.slow
@given(st.floats(-50, 0), st.floats(0, 50), st.integers(1, 99))
def test_no_change_of_an_average_is_claimed_of_an_interval_that_holds_0(low, high, number):
    found = Interval((low + high) / 2, low, high)
    said = sentences.change_of_average(AREAS, MEAN, number, found, "km/h", 1)
    assert not CLAIMS.search(said)
    assert said.endswith("no change can be told.")


@given(st.integers(1, 99))
def test_no_change_is_claimed_where_none_was_found(number):
    assert not CLAIMS.search(sentences.change_counts(AREAS, MEAN, EARLIER, number, 0, 0))


@pytest.mark.parametrize(("fell", "rose"), list(product((0, 1, 3), repeat=2)))
def test_what_is_claimed_to_have_changed_is_counted(fell, rose):
    said = sentences.change_counts(AREAS, MEAN, EARLIER, 9, fell, rose)
    assert ("clearly slower" in said) == (fell > 0)
    assert ("clearly faster" in said) == (rose > 0)
    assert f"other {9 - fell - rose}" in said or not fell + rose
