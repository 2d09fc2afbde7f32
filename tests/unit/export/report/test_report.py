"""The page a city shows: complete, honest, accessible, and the same in a browser, in grey and on paper."""

from __future__ import annotations

import builtins
import os
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from trafficdp.errors import DataError, UsageError
from trafficdp.export.files.classes import COLOURS, HATCHED, PLAIN, ink_on, number_in_words
from trafficdp.export.files.language import render_sentence
from trafficdp.export.map.drawing import CHANGE_COLOURS, FELL, ROSE, UNSURE, WITHHELD_COLOUR
from trafficdp.export.report.change import changes
from trafficdp.export.report.change_files import ChangeTable
from trafficdp.export.report.findings import changed_rows, findings
from trafficdp.export.report.page import CityComparison
from trafficdp.export.report.report import pdf_writer, report_html, report_pdf, write_report
from trafficdp.model import Selection, SlotKind, SpeedUnit, Statistic, StudyArea
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.release import SlotFacts

VOID = {"meta", "link", "br", "img"}


class Tree(HTMLParser):
    """A page as a list of (tag, attributes, ancestors, text inside)."""

    def __init__(self, page):
        super().__init__()
        self.open, self.found = [], []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "in": [each["tag"] for each in self.open], "text": "", **dict(attrs)}
        self.found.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.found.append({"tag": tag, "in": [each["tag"] for each in self.open], "text": "", **dict(attrs)})

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, *tags):
        return [each for each in self.found if each["tag"] in tags]


def page_of(release, earlier=None):
    return report_html(release, earlier).decode()


def text_of(page):
    body = re.sub(r"<style>.*?</style>", "", page, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", body).split()).replace("&#39;", "'")


def sharpened(release, factor):
    """The release with that much less noise and narrower intervals."""
    estimates = {
        statistic: replace(
            each,
            low=each.value - (each.value - each.low) * factor,
            high=each.value + (each.high - each.value) * factor,
            noise_scale=each.noise_scale * factor,
        )
        for statistic, each in release.estimates.items()
    }
    return replace(release, estimates=estimates)


@pytest.fixture(scope="module")
def sharp(city):
    return sharpened(city, 0.02)


@pytest.fixture(scope="module")
def sharp_earlier(earlier_city):
    return sharpened(earlier_city, 0.02)


@pytest.fixture(scope="module")
def parts(make_release):
    import h3

    slots = {0: SlotFacts("night (22:00-06:00)", None, None), 1: SlotFacts("day (06:00-22:00)", None, None)}
    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 7), 1)
    return make_release(
        cells, slot_kind=SlotKind.DAY_PART, slots=slots, statistics=(Statistic.VEHICLE_MEAN,),
        display_unit=SpeedUnit.METRES_PER_SECOND,
    )  # fmt: skip


def test_every_kind_of_release_has_a_report(any_release):
    page = page_of(any_release)
    tree = Tree(page)
    assert len(tree.all("h1")) == 1
    assert "How fast any one vehicle drove" in page
    several = len(np.unique(any_release.slot)) > 1
    assert ('id="times"' in page) == several
    assert len(tree.all("figure")) >= len(any_release.estimates) - 1


@pytest.mark.parametrize("name", ["city", "sharp", "parts", "rush_hours"])
def test_the_same_releases_give_the_same_bytes(name, request):
    release = request.getfixturevalue(name)
    assert report_html(release) == report_html(release)


def test_the_lists_name_what_can_be_told_apart(sharp):
    found = findings(sharp, None).statistics[0]
    table, highest = Tree(page_of(sharp)).all("table")[:2]
    for each, word in ((table, "slower"), (highest, "faster")):
        assert f"Areas clearly {word} than others" in each["text"]
        assert f"Clearly {word} than" in each["text"]
    lowest = found.order.low[0]
    row = found.certain.rows[lowest.position]
    assert format(int(sharp.cell[row]), "x") in table["text"]
    assert render_sentence("others", lowest.others, found.order.compared) in table["text"]
    value = format(sharp.estimates[Statistic.MEAN].value[row] * 3.6, ".1f")
    assert value in table["text"]


def test_a_posterior_compares_with_the_city_and_ranks_by_the_ends_of_intervals(pooled):
    page, mean = page_of(pooled), pooled.estimates[Statistic.MEAN]
    rows = np.flatnonzero(mean.status == BinStatus.RELEASED.value)
    slower, faster = (mean.posterior[f"{each}_chance"][rows] for each in ("slower", "faster"))
    compared = CityComparison(12 * 3.6, len(rows), (slower >= 0.95).sum(), (faster >= 0.95).sum())
    assert compared.slower > 0
    assert render_sentence("beside_the_city", False, compared, "km/h", 1) in page
    assert page.count(render_sentence("sorting")) == 1
    for below, table in zip((True, False), Tree(page).all("table"), strict=False):
        assert render_sentence("ranking_caption", below, False, 5, len(rows)) in table["text"]
        end, sign = ("low_80", 1) if below else ("high_80", -1)
        first = rows[np.argsort(sign * mean.posterior[end][rows])[:5]]
        cells = [format(int(pooled.cell[row]), "x") for row in first]
        assert re.findall(r"\b87[0-9a-f]{13}\b", table["text"]) == cells
        chance = mean.posterior["slower_chance" if below else "faster_chance"]
        for row in first:
            assert render_sentence("chance", chance[row]) in table["text"]
            ends = (mean.posterior[each][row] * 3.6 for each in ("low_80", "high_80"))
            read = number_in_words(mean.value[row] * 3.6, *ends, 108)
            assert render_sentence("ends", (read.low, read.high)) in table["text"]


@pytest.mark.parametrize("slot_kind", [SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY])
def test_a_change_of_calibrated_numbers_is_that_of_the_command_and_clear_of_no_slot(pooled, slot_kind):
    # as it is published, without a law of its noise
    mean = replace(pooled.estimates[Statistic.MEAN], noise={})
    pooled = replace(pooled, estimates={Statistic.MEAN: mean})
    sharp = {name: mean.value + sign * 0.05 for name, sign in (("low_80", -1), ("high_80", 1))}
    pooled = replace(pooled, estimates={Statistic.MEAN: replace(mean, posterior=mean.posterior | sharp)})
    moved = np.where(np.arange(pooled.bins) % 2, 25.0, 0.0)
    was = {name: each + moved for name, each in sharp.items()}
    before = replace(mean, value=mean.value + moved, posterior=mean.posterior | was)
    earlier = replace(pooled, id="R0000", estimates={Statistic.MEAN: before})
    rows = np.flatnonzero(mean.status == BinStatus.RELEASED.value)
    table = ChangeTable.of(pooled, earlier).table
    if slot_kind is not SlotKind.WHOLE_PERIOD:
        one = {"grid": replace(pooled.grid, slot_kind=slot_kind)}
        told = changes(replace(pooled, **one), replace(earlier, **one), Statistic.MEAN, 0.05, 0.05)
        assert told.value.min() < -20
        assert np.all((told.low <= 0) & (told.high >= 0))
        return
    fell = int((table.change_kmh_high_95 < 0).sum())
    assert (table.change_kmh_high_95 < 0).tolist() == (moved[rows] > 0).tolist()
    assert 0 < fell < len(rows)
    section = re.search(r'<section aria-labelledby="change">.*?</section>', page_of(pooled, earlier), re.S)[0]
    assert (
        f"{fell} areas are clearly slower; for the other {len(rows) - fell} there is no clear change"
        in text_of(section)
    )
    assert "Averaged" not in section
    assert render_sentence("change_of_records") in section


def test_no_change_is_claimed_against_the_same_numbers(sharp):
    page = page_of(sharp, replace(sharp, id="R0000"))
    section = re.search(r'<section aria-labelledby="change">.*?</section>', page, re.S)[0]
    assert "clearly" not in text_of(section)
    assert "no clear change" in text_of(section)


def test_changes_are_listed_with_their_intervals(sharp, sharp_earlier):
    page = page_of(sharp, sharp_earlier)
    changed = findings(sharp, sharp_earlier).changes
    rose = int(np.argmax(changed.low))
    assert changed.low[rose] > 0
    section = re.search(r'<section aria-labelledby="change">.*?</section>', page, re.S)[0]
    for each, word, sign in zip(Tree(section).all("table"), ("slower", "faster"), "−+", strict=True):
        assert f"Clearly {word} than before" in each["text"]
        assert set(re.findall("[−+]", each["text"])) == {sign}
    section = text_of(section)
    fell, risen = (len(each) for each in changed_rows(changed.low, changed.high))
    assert fell != risen
    assert f"{fell} areas are clearly slower and {risen} areas are clearly faster" in section
    assert f"+{changed.low[rose]:.1f} to +{changed.high[rose]:.1f}" in section
    assert "R0000 of 17 to 20 November 2016" in section
    assert render_sentence("change_of_records") in section


def test_a_change_at_a_time_of_day_says_when_and_nothing_in_common_says_so(rush_hours):
    later = sharpened(rush_hours, 0.001)
    faster = {
        name: replace(each, value=each.value + 1, low=each.low + 1, high=each.high + 1)
        for name, each in later.estimates.items()
    }
    earlier = replace(later, id="R0000", estimates=faster)
    section = re.search(r'<section aria-labelledby="change">.*?</section>', page_of(later, earlier), re.S)[0]
    assert render_sentence("none_changed", "faster", True) in section
    assert re.search("<td>(07|08|17):00 to (08|09|18):00</td><td>−", section)
    unlike = {
        name: replace(each, status=np.full(later.bins, BinStatus.WITHHELD.value, dtype=object))
        for name, each in faster.items()
    }
    # in short, and where changes would be told
    assert page_of(later, replace(earlier, estimates=unlike)).count("No number can be compared with") == 2


def test_more_times_than_can_be_drawn_are_left_to_the_map(make_release):
    import h3

    slots = {hour: SlotFacts(f"part {hour}", None, None) for hour in range(49)}
    cells = [h3.latlng_to_cell(30.27, -97.74, 7)]
    page = page_of(make_release(cells, slot_kind=SlotKind.DAY_PART, slots=slots))
    assert render_sentence("too_many_times") in page
    assert 'class="small-maps"' not in page


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"area": StudyArea.from_bbox(10, 50, 11, 51)}, r"study area.*got the area within \[.*\] in R0001"),
        ({"resolution": 6}, r"differ in their places.*H3 hexagons of resolution 6 in R0000"),
        (
            {"selection": Selection((3,))},
            r"differ in their selection of records.*got all of the area and period",
        ),
    ],
)
def test_what_makes_two_releases_incomparable_is_said_in_words(sharp, change, says):
    earlier = replace(sharp, id="R0000", grid=replace(sharp.grid, **change))
    with pytest.raises(UsageError, match=says) as caught:
        page_of(sharp, earlier)
    assert not re.search("[0-9a-f]{12}", str(caught.value))


def test_wide_noise_leaves_nothing_to_claim(city):
    estimates = {
        statistic: replace(
            each,
            low=np.where(np.isnan(each.value), np.nan, 0.0),
            high=np.where(np.isnan(each.value), np.nan, statistic.largest(30)),
        )
        for statistic, each in city.estimates.items()
    }
    text = text_of(page_of(replace(city, estimates=estimates)))
    assert text.count("intervals overlap, so this page calls no") == 3
    before, after = text.split("How to read this page")
    assert "clearly" not in before.lower()
    assert after.count("Clearly") == 1


def test_a_release_with_nothing_informative_says_so(city):
    status = np.where(city.status == BinStatus.WITHHELD, BinStatus.WITHHELD, BinStatus.UNINFORMATIVE).astype(
        object
    )
    estimates = {each: replace(one, status=status) for each, one in city.estimates.items()}
    page = page_of(replace(city, status=status, estimates=estimates))
    assert page.count("is accurate enough to be compared") == 3
    assert Tree(page).all("table") == []
    # the map still shows where there were vehicles
    assert len(Tree(page).all("figure")) == 1


def test_a_release_that_does_not_publish_its_noise_is_shown_and_not_compared(city):
    estimates = {each: replace(one, noise={}) for each, one in city.estimates.items()}
    page = page_of(replace(city, estimates=estimates))
    assert render_sentence("no_noise_law") in page
    assert Tree(page).all("table") == []


def test_what_clearly_means_is_said_of_the_intervals_that_are_there(city):
    stated = tuple(replace(each, interval_kind="calibrated") for each in city.disclosure.mechanisms)
    calibrated = replace(city, disclosure=replace(city.disclosure, mechanisms=stated))
    for release, *meant in (
        (city, render_sentence("meaning", 0.95), render_sentence("intervals_wider")),
        (calibrated, render_sentence("meaning_of_calibrated"), render_sentence("intervals_alike")),
    ):
        page = page_of(release)
        assert [page.count(each) for each in meant] == [1, 1]


def test_few_areas_that_cannot_be_told_apart_are_listed_in_full(make_release):
    import h3

    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 7), 1)
    few = make_release(cells, statistics=(Statistic.MEAN,))
    estimate = few.estimates[Statistic.MEAN]
    wide = replace(estimate, low=estimate.value * 0, high=estimate.value * 0 + 30)
    page = page_of(replace(few, estimates={Statistic.MEAN: wide}))
    compared = int((estimate.status == BinStatus.RELEASED.value).sum())
    assert f"All {compared} areas" in page
    assert len(Tree(page).all("tr")) == compared + 1


def test_a_forced_release_says_so(city):
    honesty = replace(city.disclosure.honesty, forced=True)
    forced = replace(city, disclosure=replace(city.disclosure, honesty=honesty))
    assert render_sentence("forced") in page_of(forced)
    assert render_sentence("forced") not in page_of(city)


def test_which_records_count_is_said_and_must_be_the_same_for_a_change(city, earlier_city):
    assert "Only these records count" not in page_of(city)
    mornings = replace(city.grid, selection=Selection(hours_of_week=(7, 8)))
    selected = replace(city, grid=mornings)
    assert render_sentence("only_records", mornings.selection.in_words()) in text_of(page_of(selected))
    with pytest.raises(UsageError, match="selection of records"):
        report_html(selected, earlier_city)


def test_the_promise_is_the_manifests(city):
    text = text_of(page_of(city))
    unit, honesty = city.disclosure.unit, city.disclosure.honesty
    for promise in (unit.protected, *unit.not_protected, honesty.counts_revealed):
        assert promise in text
    for each in honesty.assumptions:
        assert each.text in text
    assert city.disclosure.guarantee.in_words in text
    assert "replace_user_values" in text


def test_nothing_on_the_page_asks_a_network(any_release):
    page = page_of(any_release)
    assert re.findall(r"""(?:https?:)?//[a-z0-9-]+\.[a-z]""", page) == []
    assert "@import" not in page
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert re.findall(r'(?:src|href)="(?!data:,"|#content")', page) == []


def test_names_cannot_break_out_of_the_page(make_release):
    import h3

    evil = '</title><script>alert(1)</script>"&'
    release = make_release(
        [h3.latlng_to_cell(30.27, -97.74, 7)],
        place=evil,
        slot_kind=SlotKind.DAY_PART,
        slots={0: SlotFacts(evil, None, None), 1: SlotFacts("day", None, None)},
    )
    told = release.disclosure
    first, *mechanisms = told.mechanisms
    told = replace(
        told,
        identity=replace(told.identity, publisher=evil),
        data=replace(told.data, sources=(replace(told.data.sources[0], name=evil),)),
        mechanisms=(replace(first, unenforced=evil), *mechanisms),
    )
    page = page_of(replace(release, disclosure=told))
    assert "<script" not in page
    assert page.count("&lt;script") > 6


@pytest.mark.parametrize("name", ["city", "sharp", "rush_hours", "parts"])
def test_the_page_has_the_structure_that_screen_readers_use(name, request):
    tree = Tree(page_of(request.getfixturevalue(name)))
    (html,) = tree.all("html")
    assert html["lang"] == "en"
    assert (
        len(tree.all("main")) == len(tree.all("header")) == len(tree.all("h1")) == len(tree.all("title")[:1])
    )
    ids = [each["id"] for each in tree.found if "id" in each]
    assert len(ids) == len(set(ids))
    for each in tree.found:
        for name_of in each.get("aria-labelledby", "").split():
            assert name_of in ids
    levels = [int(each["tag"][1]) for each in tree.all("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(each.get("aria-labelledby") in ids for each in tree.all("section"))
    for each in tree.all("th"):
        assert each["scope"] in ("col", "row")
        assert each["text"]
    assert len(tree.all("caption")) == len(tree.all("table"))
    for each in tree.all("svg"):
        if each.get("aria-hidden") != "true":
            assert each["role"] == "img"
            assert len(each["aria-labelledby"].split()) == 2
    described = [each for each in tree.all("title", "desc") if "svg" in each["in"]]
    assert described
    assert all(each["text"].strip() for each in described)


def luminance(colour):
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Contrast ratio of WCAG 2.2."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_classes_are_told_apart_in_grey():
    grey = [luminance(colour) for colour in COLOURS]
    assert grey == sorted(grey)
    # lightness, which eyes see evenly: at least 9 steps of 100 from class to class
    lightness = [116 * value ** (1 / 3) - 16 if value > 0.008856 else 903.3 * value for value in grey]
    assert min(np.diff(lightness)) > 9


def test_hatching_and_signs_stand_out_from_what_is_under_them():
    for plain, hatched, colour in zip(PLAIN, HATCHED, COLOURS, strict=True):
        assert ink_on(plain) == ink_on(hatched)
        assert contrast(ink_on(hatched), colour) >= 3
    assert contrast("#4d4d4d", WITHHELD_COLOUR) >= 3
    assert contrast("#ffffff", CHANGE_COLOURS[FELL]) >= 3
    assert contrast("#000000", CHANGE_COLOURS[ROSE]) >= 3
    # outlines of cells, whatever they lie on
    assert contrast("#595959", "#ffffff") >= 3
    grey = [luminance(CHANGE_COLOURS[each]) for each in (FELL, ROSE, UNSURE)]
    assert grey == sorted(grey)


def test_every_colour_of_text_in_the_style_sheet_is_readable_on_every_ground_there():
    from pathlib import Path

    from trafficdp.export.report import report

    css = (Path(report.__file__).parents[1] / "templates" / "report.css").read_text("utf-8")
    inks = {each if len(each) == 7 else "#" + "".join(2 * c for c in each[1:])
            for each in re.findall(r"[{;]color:(#[0-9a-f]+)", css)}  # fmt: skip
    grounds = {each if len(each) == 7 else "#" + "".join(2 * c for c in each[1:])
               for each in re.findall(r"background:(#[0-9a-f]+)", css)}  # fmt: skip
    assert len(inks) >= 3
    assert len(grounds) >= 3
    assert min(contrast(ink, ground) for ink in inks for ground in grounds) >= 4.5


def test_a_report_is_written_by_the_ending_of_its_name(city, tmp_path):
    write_report(city, tmp_path / "page.HTML")
    assert (tmp_path / "page.HTML").read_bytes() == report_html(city)
    with pytest.raises(UsageError, match="format"):
        write_report(city, tmp_path / "page.docx")
    with pytest.raises(UsageError, match="folder that does not exist"):
        write_report(city, tmp_path / "nowhere" / "page.html")


def test_a_release_without_bins_has_no_report(city):
    empty = replace(city, cell=city.cell[:0], slot=city.slot[:0], status=city.status[:0], estimates={})
    with pytest.raises(DataError, match="no bins"):
        report_html(empty)


@pytest.fixture
def weasyprint():
    """Skips where PDF cannot be written; but continuous integration has what it needs."""
    try:
        return pdf_writer()
    # the warning: libharfbuzz-subset0 is missing
    except (UsageError, DeprecationWarning) as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["city", "rush_hours", pytest.param("fiji", marks=pytest.mark.prove)])
def test_a_pdf_is_tagged_and_made_without_complaint(name, request, weasyprint, caplog):
    document = report_pdf(request.getfixturevalue(name))
    assert document.startswith(b"%PDF-1.7")
    inside = document + b"".join(
        zlib.decompress(stream)
        for stream in re.findall(rb"FlateDecode[^>]*>>\nstream\n(.*?)\nendstream", document, re.S)
    )
    for mark in (b"pdfuaid:part", b"/StructTreeRoot", b"/Lang", b"/Figure", b"/H1", b"/TH"):
        assert mark in inside
    assert len(document) < 400_000
    assert caplog.text == ""


@pytest.mark.slow
def test_a_pdf_of_the_same_release_has_the_same_bytes(parts, weasyprint, tmp_path):
    write_report(parts, tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes() == report_pdf(parts)


@pytest.mark.parametrize(
    ("error", "hint"),
    [(ImportError("no"), r"trafficdp\[report\]"), (OSError("no"), "apt-get install libpango")],
)
def test_what_pdf_needs_is_said_when_it_is_missing(error, hint, monkeypatch, city, tmp_path):
    real = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("weasyprint"):
            raise error
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=hint) as caught:
        write_report(city, tmp_path / "page.pdf")
    assert "print it from a browser" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
