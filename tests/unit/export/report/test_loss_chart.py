"""The chart of loss against error: a picture without colour alone, within its frame, legible by contrast."""

import io
import math
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from PIL import Image

from trafficdp.errors import UsageError
from trafficdp.export.report.chart_picture import chart_bytes, checked_kind
from trafficdp.export.report.loss_chart import HEIGHT, WIDTH, Line, LossChart, in_words, loss_chart

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
    return ElementTree.fromstring(loss_chart(chart))


def curves(chart=CHART):
    """The paths of the lines, without marks (which are moved into place) and frame."""
    return [
        node
        for node in parsed(chart).iter(f"{SVG}path")
        if node.get("d").count("L") == 3 and node.get("transform") is None
    ]


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_line_is_named_beside_the_picture_and_in_the_words_for_those_who_do_not_see_it():
    texts = [node.text for node in parsed().iter(f"{SVG}text")]
    for name in NAMES:
        assert name in texts
        assert name in in_words(CHART)
    assert parsed().find(f"{SVG}title").text == CHART.title
    assert parsed().find(f"{SVG}desc").text == in_words(CHART)


def test_all_ink_has_a_contrast_of_seven_to_one_on_white_and_differs_in_grey_from_the_grid():
    drawn = loss_chart(CHART)
    inks = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', drawn)) - {"#ffffff", "#d9d9d9"}
    assert len(inks) >= 2
    for ink in inks:
        assert 1.05 / (luminance(ink) + 0.05) >= 7


def test_no_two_lines_share_both_dashes_and_marks():
    paths = curves()
    assert len(paths) == len(NAMES)
    dashes = [node.get("stroke-dasharray", "") + node.get("stroke-width") for node in paths]
    assert len(set(dashes)) == len(NAMES)


def test_lines_are_straight_and_inside_the_frame():
    for node in curves():
        points = [tuple(map(float, part.split())) for part in node.get("d")[1:].split("L")]
        slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(points)]
        assert max(slopes) - min(slopes) < 0.01
        assert all(0 < x < WIDTH and 0 < y < HEIGHT for x, y in points)


def test_names_never_lie_on_one_another():
    same = replace(CHART, lines=tuple(line(name, 4.0) for name in NAMES))
    nodes = [node for node in parsed(same).iter(f"{SVG}text") if node.text in NAMES]
    heights = sorted(float(node.get("y")) for node in nodes)
    assert all(b - a >= 15 for a, b in pairwise(heights))
    assert max(heights) < HEIGHT


def test_the_chosen_line_is_drawn_boldly():
    (bold,) = [node for node in parsed().iter(f"{SVG}text") if node.text == "way 2"]
    assert bold.get("font-weight") == "bold"


def test_what_is_left_is_drawn_only_inside_the_frame():
    words = " ".join(node.text for node in parsed().iter(f"{SVG}text"))
    assert "left for every vehicle: 20" in words
    far = replace(CHART, left=1e9)
    words = " ".join(node.text for node in parsed(far).iter(f"{SVG}text"))
    assert "left for every" not in words


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e4])
def test_axes_have_some_ticks_at_every_scale(scale):
    lines = tuple(
        Line(each.name, tuple((error * scale, loss) for error, loss in each.points)) for each in CHART.lines
    )
    chart = replace(CHART, lines=lines, planned=(scale, 4.0))
    numbers = [
        node.text for node in parsed(chart).iter(f"{SVG}text") if re.fullmatch(r"[\d.e+-]+", node.text)
    ]
    assert 4 <= len(numbers) <= 24
    assert all(math.isfinite(float(number)) for number in numbers)


def test_the_picture_needs_nothing_from_outside():
    assert "href" not in loss_chart(CHART)
    assert "<script" not in loss_chart(CHART)


def test_a_line_without_points_is_left_out():
    chart = replace(CHART, lines=(*CHART.lines[:2], Line("nothing", ())))
    assert "nothing" not in loss_chart(chart)


@pytest.mark.slow
def test_a_picture_is_what_its_name_says_and_shows_what_the_svg_does():
    pdf, png = (chart_bytes(CHART, kind) for kind in ("pdf", "png"))
    assert pdf.startswith(b"%PDF-")
    assert chart_bytes(CHART, "svg") == loss_chart(CHART).encode()
    assert chart_bytes(CHART, "png") == png
    with Image.open(io.BytesIO(png)) as picture:
        assert picture.size == (2 * WIDTH, 2 * HEIGHT)
        inks = picture.convert("RGB")
        # the ring around what is planned, where the SVG has it
        ring = next(node for node in parsed().iter(f"{SVG}circle") if node.get("r") == "9")
        at = [round(2 * float(ring.get(each))) for each in ("cx", "cy")]
        assert inks.getpixel((at[0], at[1] - 18)) == (0x0B, 0x3D, 0x91)
        assert inks.getpixel((2, 2)) == (255, 255, 255)


def test_without_matplotlib_a_picture_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr("trafficdp.export.report.chart_picture.find_spec", lambda name: None)
    assert checked_kind("svg") == "svg"
    with pytest.raises(UsageError, match=r"trafficdp\[notebook\]"):
        checked_kind("png")
    with pytest.raises(UsageError, match="pdf, png, svg"):
        checked_kind("jpg")
