"""The chart of loss against error: a picture without colour alone, within its frame, legible by contrast."""

import io
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image

from trafficdp.errors import UsageError
from trafficdp.export.report.loss_chart import (
    ACCENT,
    HEIGHT,
    INK,
    KINDS,
    MUTED,
    WIDTH,
    Line,
    LossChart,
    chart_bytes,
    in_words,
)

SVG = "{http://www.w3.org/2000/svg}"
NAMES = [f"way {number}" for number in range(10)]


def line(name, factor, chosen=False):
    return Line(name, tuple((error, factor / error) for error in (0.5, 1.0, 2.0, 4.0)), chosen)


CHART = LossChart(
    title="Loss <against> error & more",
    subtitle="means of 12 bins",
    unit="m/s",
    lines=tuple(line(name, 2.0**number, number == 2) for number, name in enumerate(NAMES)),
    planned=(1.0, 4.0),
    left=20.0,
)


def parsed(chart=CHART):
    return ElementTree.fromstring(chart_bytes(chart, "svg"))


def written(chart=CHART):
    """The words of the picture, each with its place in the drawing: (x, y, text, style)."""
    found = []
    for node in parsed(chart).iter(f"{SVG}text"):
        style, moved = node.get("style", ""), node.get("transform", "")
        place = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", moved)
        x, y = place.groups() if place else (node.get("x"), node.get("y"))
        found.append((float(x), float(y), node.text, style))
    return found


def curves(chart=CHART):
    """The styles and points of the lines: paths of four points."""
    found = []
    for node in parsed(chart).iter(f"{SVG}path"):
        points = re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", node.get("d"))
        if len(points) == 4 and "z" not in node.get("d"):
            found.append((node.get("style"), [(float(x), float(y)) for x, y in points]))
    return found


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_line_is_named_beside_the_picture_and_in_the_words_for_those_who_do_not_see_it():
    texts = [text for _, _, text, _ in written()]
    for name in NAMES:
        assert name in texts
        assert name in in_words(CHART)
    assert parsed().find(f"{SVG}title").text == CHART.title
    assert parsed().find(f"{SVG}desc").text == in_words(CHART)


def test_all_ink_has_a_contrast_of_seven_to_one_on_white():
    drawn = chart_bytes(CHART, "svg").decode()
    inks = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawn)) - {"#ffffff", "#d9d9d9", "#000000"}
    assert inks == {INK, ACCENT, MUTED}
    for ink in inks:
        assert 1.05 / (luminance(ink) + 0.05) >= 7


def test_no_two_lines_share_dashes_and_width():
    styles = [style for style, _ in curves()]
    assert len(styles) == len(NAMES)
    assert len(set(styles)) == len(NAMES)


def test_lines_are_straight_and_inside_the_frame():
    for _, points in curves():
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
        assert max(slopes) - min(slopes) < 0.01
        assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)


def test_names_never_lie_on_one_another():
    same = replace(CHART, lines=tuple(line(name, 4.0) for name in NAMES))
    heights = sorted(y for _, y, text, _ in written(same) if text in NAMES)
    assert len(heights) == len(NAMES)
    assert all(b - a >= 12 for a, b in pairwise(heights))
    assert max(heights) < HEIGHT


def test_the_chosen_line_is_drawn_boldly():
    (style,) = [style for _, _, text, style in written() if text == "way 2"]
    assert "700" in style
    widths = [re.search(r"stroke-width: ([\d.]+)", style) for style, _ in curves()]
    wide = [2 if each is None else float(each.group(1)) for each in widths]
    assert wide.index(max(wide)) == 2


def test_what_is_left_is_drawn_only_inside_the_frame():
    assert "left for every vehicle: 20" in [text for _, _, text, _ in written()]
    far = replace(CHART, left=1e9)
    assert not [text for _, _, text, _ in written(far) if "left for every" in text]


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e4])
def test_axes_have_some_ticks_at_every_scale(scale):
    lines = tuple(
        Line(each.name, tuple((error * scale, loss) for error, loss in each.points)) for each in CHART.lines
    )
    chart = replace(CHART, lines=lines, planned=(scale, 4.0))
    numbers = [text for _, _, text, _ in written(chart) if re.fullmatch(r"[\d.e+-]+", text)]
    assert 4 <= len(numbers) <= 24


def test_the_picture_needs_nothing_from_outside():
    drawn = chart_bytes(CHART, "svg").decode()
    assert not re.search(r'href="(?!#)', drawn)
    assert "<script" not in drawn


def test_a_line_without_points_is_left_out():
    chart = replace(CHART, lines=(*CHART.lines[:2], Line("nothing", ())))
    assert "nothing" not in [text for _, _, text, _ in written(chart)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_is_what_its_name_says_and_the_same_every_time(kind):
    drawn = chart_bytes(CHART, kind)
    assert drawn.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF-"}[kind])
    assert chart_bytes(CHART, kind) == drawn
    if kind == "png":
        with Image.open(io.BytesIO(drawn)) as picture:
            assert picture.size == (2 * WIDTH, 2 * HEIGHT)
            colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
        assert {(0x0B, 0x3D, 0x91), (255, 255, 255)} <= colours


def test_another_kind_of_picture_is_refused():
    with pytest.raises(UsageError, match="pdf, png, svg"):
        chart_bytes(CHART, "jpg")
