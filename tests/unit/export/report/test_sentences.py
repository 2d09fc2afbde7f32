"""Every sentence a report can write, in a golden file; TRAFFICDP_WRITE_GOLDEN=1 writes it anew: read it.

Words stand in ``report_words.html``, in one macro a sentence: not in Python, and not in other templates.
"""

from __future__ import annotations

import ast
import os
import re
from datetime import date
from itertools import product
from pathlib import Path
from types import SimpleNamespace as Facts

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, nodes, pass_context
from jinja2.compiler import CodeGenerator

import trafficdp.export
from trafficdp.export.files import language
from trafficdp.export.files.language import ENGLISH, render_sentence
from trafficdp.export.report.certainty import Interval
from trafficdp.export.report.page import (
    AgainstTimetable,
    CityComparison,
    LegendLine,
    Order,
    RankedBin,
    TimeDifference,
)
from trafficdp.model import OF_MAPS, Period, Statistic
from trafficdp.privacy.disclosure import BinNumbers
from trafficdp.privacy.release import LedgerReference

GOLDEN = Path(__file__).parent / "golden" / "report_sentences.txt"
EXPORT = Path(trafficdp.export.__file__).parent
WORDS = "report_words.html"
LABELS = ("HEADING", "COLUMN", "FACT")
MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE
MEDIAN_AND_P85 = Statistic.VEHICLE_MEDIAN, Statistic.VEHICLE_P85
EARLIER = "release r0001 of 3 to 5 March 2026"
CHANGED = ("fell", "rose", "unsure", "absent")
PROMISE = Facts(
    unit=Facts(protected="How fast it drove.", not_protected=("Where it drove.", "When it drove.")),
    guarantee=Facts(
        in_words="A guess is right 60 % of the time.",
        quantity="epsilon",
        sum_of_maxima="8",
        budget_per_vehicle="12",
    ),
    accounting=Facts(budget_changes=(Facts(in_words="on 2026-03-06: budget a vehicle from 8 to 12."),)),
    honesty=Facts(forced=False, weaknesses=(), counts_revealed="The list of bins reveals visits."),
)
WARNED = Facts(forced=True, weaknesses=("Delta is large.",), counts_revealed="It reveals nothing.")
ONE, TWO = (RankedBin(0, 3),), (RankedBin(0, 3), RankedBin(1, 2))


def numbers(total, released, withheld, uninformative, constant):
    return BinNumbers(
        total=total,
        released=released,
        withheld=withheld,
        uninformative=uninformative,
        constant=constant,
    )


def looks(*numbers):
    return dict(zip(("coloured", "hatched", "withheld", "noisy", "empty"), numbers, strict=True))


CASES = {
    "title": [("Austin",)],
    "subtitle": [(Period(date(2016, 11, 24), date(2016, 11, 27), "UTC"), "City of Austin", "r0001")],
    "forced": [()],
    "weak_promise": [()],
    "only_records": [("Monday 08:00-09:00",)],
    "coverage": [
        (MEAN, False, numbers(61, 47, 9, 5, 0), 5, False),
        (MEAN, False, numbers(1, 1, 0, 0, 0), 5, False),
        (VARIANCE, True, numbers(1200, 1000, 100, 0, 100), 5, False),
        (MEAN, False, numbers(5, 1, 1, 1, 1), 3, False),
        (MEAN, False, numbers(5, 0, 0, 5, 0), 3, False),
        (MEAN, False, numbers(61, 47, 9, 5, 0), 5, True),
    ],
    "nothing_informative": [(MEAN,), (VARIANCE,)],
    "no_noise_law": [()],
    "average_is": [
        (MEAN, False, 47, Interval(38.47, 33.4, 43.5), "km/h", 1),
        (MEAN, False, 1, Interval(8.2, 7.11, 9.5), "m/s", 2),
        (VARIANCE, True, 1000, Interval(8.31, 6.2, 11.4), "km/h", 1),
    ],
    "order_in_words": [
        (MEAN, False, Order(1, (), (), 0, 0)),
        (MEAN, False, Order(47, (), (), 0, 0)),
        (VARIANCE, True, Order(47, (), (), 0, 0)),
        (MEAN, False, Order(47, ONE, TWO, 0, 0)),
        (MEAN, False, Order(47, ONE, TWO, 1, 2)),
        (MEAN, False, Order(47, ONE, TWO, 0, 2)),
        (VARIANCE, True, Order(47, ONE, TWO, 3, 0)),
    ],
    "beside_the_city": [
        (False, CityComparison(21.5, 17, 3, 8), "km/h", 1),
        (True, CityComparison(5.25, 17, 1, 0), "m/s", 2),
        (False, CityComparison(21.5, 17, 0, 2), "km/h", 1),
        (True, CityComparison(21.5, 17, 0, 0), "km/h", 1),
    ],
    "ranking_caption": [(True, False, 5, 17), (False, True, 2, 4)],
    "map_by": [("Survey of nowhere",)],
    "between": [(0.8,)],
    "ends": [(("18", "24"),)],
    "chance_to_be": [("slower",)],
    "chance": [(0.996,), (0.004,), (0.874,)],
    "sorting": [()],
    "list_caption": [("slower", False, 5, 12), ("faster", False, 3, 3), ("steadier", True, 1, 1)],
    "all_caption": [(6, False), (1, False)],
    "told_from": [("slower",)],
    "others": [(12, 41), (1000, 2001)],
    "none_told": [("slower", False), ("more varied", True)],
    "times_intro": [(MEAN, 6, 80.0, "km/h"), (MEAN, 1, 60.0, "mph")],
    "too_many_times": [()],
    "times_told": [(MEAN, TimeDifference("08:00-09:00", "03:00-04:00", 3.2), "km/h", 1)],
    "times_not_told": [()],
    "beside_the_timetable": [
        (False, AgainstTimetable(15, 1, 2, ())),
        (True, AgainstTimetable(1200, 0, 0, ())),
    ],
    "about_the_timetable": [()],
    "late_caption": [(5, 9), (1, 1)],
    "scheduled_in": [("km/h",)],
    "of_scheduled": [()],
    "none_late": [()],
    "change_counts": [
        (MEAN, False, EARLIER, 47, 0, 0),
        (MEAN, False, EARLIER, 1, 0, 0),
        (MEAN, False, EARLIER, 47, 1, 4),
        (MEAN, False, EARLIER, 47, 0, 1),
        (VARIANCE, True, EARLIER, 5, 5, 0),
    ],
    "change_of_average": [
        (MEAN, False, 47, Interval(2.0, 0.1, 3.9), "km/h", 1),
        (MEAN, False, 47, Interval(-2.0, -3.9, -0.1), "km/h", 1),
        (MEAN, False, 47, Interval(1.0, -1.2, 3.1), "km/h", 1),
        (MEAN, False, 47, Interval(1.0, 0.0, 3.1), "km/h", 1),
        (MEAN, False, 1, Interval(0.0, -1.25, 1.25), "m/s", 2),
    ],
    "change_of_records": [()],
    "change_caption": [("slower", 5, 9), ("faster", 2, 2), ("steadier", 1, 1)],
    "change_by": [("km/h",)],
    "none_changed": [("slower", False), ("faster", True)],
    "change_map_caption": [(MEAN, EARLIER, ""), (MEAN, EARLIER, "08:00-09:00")],
    "change_map_in_words": [
        (MEAN, {"fell": 1, "rose": 2, "unsure": 3}),
        (MEAN, {"fell": 0, "rose": 1, "unsure": 40}),
    ],
    "nothing_in_common": [(EARLIER,)],
    "earlier_release": [("r0001", Period(date(2026, 3, 3), date(2026, 3, 5), "UTC"))],
    "meaning": [(0.95,)],
    "meaning_of_calibrated": [()],
    "about_records": [(65.0, "km/h")],
    "nothing_claimed": [()],
    "reading_of_map": [(MEAN, "hexagon", 0.8)],
    "fixed_limits": [()],
    "intervals_wider": [()],
    "intervals_alike": [()],
    "map_title": [(MEAN, "Austin", "hexagon", ""), (VARIANCE, "Austin", "zone", "08:00-09:00")],
    "map_caption": [(MEAN, "km/h", ""), (VARIANCE, "km/h", "08:00-09:00")],
    "map_in_words": [(looks(47, 12, 9, 5, 0),), (looks(1, 0, 1, 1, 1),), (looks(0, 0, 0, 0, 3),)],
    "marks_in_words": [(MEAN, None, False), (VARIANCE, None, True), (MEAN, True, False)],
    "legend": [
        (LegendLine(None, "class", "10 to 20"), MEAN),
        (LegendLine(None, "hatched"), MEAN),
        (LegendLine(None, "withheld", "withheld: fewer than 5 vehicles"), MEAN),
        *((LegendLine(None, look), VARIANCE) for look in ("noisy", "empty", *CHANGED)),
    ],
    "panel_name": [("P1", "4.1 km north")],
    "panel_title": [(MEAN, "P1: 4.1 km north")],
    "value_and_unit": [(MEAN, "km/h"), (VARIANCE, "km/h")],
    "noun": [(each,) for each in (*OF_MAPS, *MEDIAN_AND_P85)],
    "below": [(MEAN,), (VARIANCE,)],
    "above": [(MEAN,), (VARIANCE,)],
    "what_it_is": [(each, "km/h") for each in (*OF_MAPS, *MEDIAN_AND_P85)],
    "sum_of_releases": [(Facts(quantity="epsilon", sum_of_maxima="8", budget_per_vehicle="12"),)],
    "made": [("2026-03-05 10:30 (Asia/Kolkata)", Facts(name="trafficdp", version="1.2"))],
    "sources": [(["buses"],), (["buses", "trams", "taxis"],), ([],)],
    "clipping": [(Facts(clip_high="65", clip_unit="km/h", step="0.01"),)],
    "grid": [("H3 hexagons of resolution 7", "hour_of_day", "Asia/Kolkata")],
    "noise": [([""],), (["", "; unenforced: Theorem 3"],)],
    "guarantee": [
        (
            Facts(definition="pure epsilon-differential privacy, user level", in_short="epsilon 4"),
            "replace_user_values",
        )
    ],
    "budget": [
        ("rho", Facts(sum_of_maxima_before="4", sum_of_maxima_after="8", budget_per_vehicle="12"))
    ],
    "intervals": [(0.95, "per bin, two-sided")],
    "ledger": [(LedgerReference(2, "bb"),)],
    "protection": [(PROMISE,)],
    "promise": [(PROMISE,), (Facts(**{**vars(PROMISE), "honesty": WARNED}),)],
    "verify_with": [("r0001",)],
    "full_account": [()],
    "days": [
        (date(2026, 3, 3), date(2026, 3, 3)),
        (date(2026, 3, 3), date(2026, 3, 5)),
        (date(2026, 3, 3), date(2026, 4, 5)),
        (date(2025, 12, 30), date(2026, 1, 2)),
    ],
    "month": [(date(2026, month, 1),) for month in range(1, 13)],
    "span": [(Interval(0.0, 0.0, 1234.56), 1)],
    "signed_span": [(Interval(0.0, -1.25, 3.1), 1), (Interval(0.0, -0.01, 0.0), 1)],
}  # fmt: skip


def golden(words):
    """All labels and sentences of the template ``words``."""
    lines = [f"{name}: {key}: {text}" for name in LABELS for key, text in getattr(words, name).items()]
    for name, calls in CASES.items():
        lines += [f"{name}: {getattr(words, name)(*facts).unescape()}" for facts in calls]
    return "\n".join(lines) + "\n"


def template(name):
    """The syntax of a template."""
    return language._environment(ENGLISH).parse((EXPORT / "templates" / name).read_text(encoding="utf-8"))


def test_every_sentence_is_the_one_that_was_read_and_approved():
    text = golden(language._environment(ENGLISH).get_template(WORDS).module)
    if os.environ.get("TRAFFICDP_WRITE_GOLDEN") == "1":
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def marking(branches):
    """What compiles templates so that every branch is put down in ``branches``, to be marked when taken."""

    class Marking(CodeGenerator):
        def visit_Template(self, node, frame=None):
            branching = list(node.find_all((nodes.Macro, nodes.For, nodes.If, nodes.CondExpr)))
            others = [each for one in branching if isinstance(one, nodes.If) for each in one.elif_]
            for one in branching:
                if isinstance(one, nodes.CondExpr):
                    one.expr1, one.expr2 = marked(one, one.expr1), marked(one, one.expr2)
                    continue
                one.body.insert(0, nodes.Output([marked(one, nodes.Const(""))], lineno=one.lineno))
                if isinstance(one, nodes.If) and one not in others:
                    one.else_.insert(0, nodes.Output([marked(one, nodes.Const(""))], lineno=one.lineno))
            super().visit_Template(node, frame)

    def marked(one, value):
        number = nodes.Const(len(branches))
        branches.append(one.lineno)
        return nodes.Filter(value, "marked", [number], [], None, None, lineno=one.lineno)

    return Marking


def test_every_branch_of_every_sentence_is_in_the_golden_file():
    environment: Environment = language._environment.__wrapped__(ENGLISH)
    branches, taken = [], set()

    @pass_context
    def mark(context, value, number):
        taken.add(number)
        return value

    environment.filters["marked"] = mark
    environment.code_generator_class = marking(branches)
    assert golden(environment.get_template(WORDS).module) == GOLDEN.read_text(encoding="utf-8")
    assert len(branches) > len(CASES)
    lines = sorted({line for number, line in enumerate(branches) if number not in taken})
    assert lines == [], f"lines of {WORDS} with a branch that no case of this file takes"


def test_every_sentence_and_label_is_used():
    words = template(WORDS)
    calls = {
        macro.name: {each.node.name for each in macro.find_all(nodes.Call) if hasattr(each.node, "name")}
        for macro in words.find_all(nodes.Macro)
    }
    labels = {
        (each.target.name, pair.key.value)
        for each in words.find_all(nodes.Assign)
        if each.target.name in LABELS
        for pair in each.node.items
    }
    used = set(re.findall(r'said\("(\w+)"', (EXPORT / "notebook.py").read_text(encoding="utf-8")))
    for page in map(template, ("report.html", "site.html", "picture.html", "card.html")):
        for each in page.find_all(nodes.Getattr):
            of = each.node
            if isinstance(of, nodes.Name) and of.name == "say":
                used.add(each.attr)
            if isinstance(of, nodes.Getattr) and of.attr in LABELS:
                used.add((of.attr, each.attr))
    while further := {name for each in used for name in calls.get(each, ())} - used:
        used |= further
    assert calls.keys() - used == set()
    assert labels - used == set()


def test_the_other_templates_have_no_words_of_their_own():
    text = ""
    for name in ("report", "picture", "card"):
        text += (EXPORT / "templates" / f"{name}.html").read_text(encoding="utf-8")
    outside = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", text, flags=re.S)
    assert re.sub(r"<[^>]*>", " ", outside).split() == ["km"]
    # nor inside what is put in
    inside = re.findall(r"'[^']*'|\"[^\"]*\"", " ".join(re.findall(r"\{[%{].*?[%}]\}", text, flags=re.S)))
    assert [each for each in inside if is_prose(each[1:-1])] == []


def is_prose(text):
    """Whether people would read ``text``: it has a word among others, or with a capital. No name, no path."""
    words = [each for each in text.split() if re.fullmatch(r"[A-Za-z]{2,}[.,:;]?", each)]
    return bool(words) and (len(text.split()) > 1 or bool(re.fullmatch("[A-Z][a-z]{2,}", words[0])))


SAID_IN_ERRORS = ("_facts",)
"""What two releases must share, in ``change.py``: only an error says it."""
ON_NO_PAGE = ("loss_chart.py", "chart_picture.py")
"""The picture of `trafficdp plan --chart`."""
MODULES = [each.name for each in sorted((EXPORT / "report").glob("*.py")) if each.name not in ON_NO_PAGE]


def prose_in(node):
    """What people would read of the texts in the syntax ``node``: docstrings and errors are left out."""
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if docstring or isinstance(node, ast.Raise) or getattr(node, "name", "") in SAID_IN_ERRORS:
        return []
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [each.value if isinstance(getattr(each, "value", 0), str) else "0" for each in parts]
    found = [text for text in ["".join(texts)] if is_prose(text)]
    return found + [text for each in ast.iter_child_nodes(node) for text in prose_in(each)]


@pytest.mark.parametrize("name", MODULES)
def test_python_has_no_sentence_of_its_own(name):
    assert prose_in(ast.parse((EXPORT / "report" / name).read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    ['say = "No change can be told."', 'f"{low} to {high}"', 'COLUMN = {"mark": "Mark"}', 'show(f"all {n}")'],
)
def test_a_sentence_in_python_would_be_noticed(source):
    assert prose_in(ast.parse(source))


CLAIMS = re.compile(r"clearly", re.I)


@given(st.integers(2, 1000), st.sampled_from([MEAN, VARIANCE]))
def test_no_order_is_claimed_of_a_silent_order(compared, statistic):
    text = render_sentence("order_in_words", statistic, False, Order(compared, (), (), 0, 0))
    assert not CLAIMS.search(text)
    assert "intervals overlap, so this page calls no area" in text


@pytest.mark.slow
@given(st.floats(-50, 0), st.floats(0, 50), st.integers(1, 99))
def test_no_change_of_an_average_is_claimed_of_an_interval_that_holds_0(low, high, number):
    found = Interval((low + high) / 2, low, high)
    text = render_sentence("change_of_average", MEAN, False, number, found, "km/h", 1)
    assert not CLAIMS.search(text)
    assert text.endswith("there is no clear change.")


@given(st.integers(1, 99))
def test_no_change_is_claimed_where_none_was_found(number):
    assert not CLAIMS.search(render_sentence("change_counts", MEAN, False, EARLIER, number, 0, 0))


@pytest.mark.parametrize(("fell", "rose"), list(product((0, 1, 3), repeat=2)))
def test_what_is_claimed_to_have_changed_is_counted(fell, rose):
    text = render_sentence("change_counts", MEAN, False, EARLIER, 9, fell, rose)
    assert ("clearly slower" in text) == (fell > 0)
    assert ("clearly faster" in text) == (rose > 0)
    assert f"other {9 - fell - rose}" in text or not fell + rose
