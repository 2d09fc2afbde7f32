"""The report in headless Chromium at three widths: contrast of every text, nothing cut off, also in grey."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pytest
from PIL import Image

from trafficdp.export.files.classes import COLOURS
from trafficdp.export.report.report import report_html

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]
WIDTHS = (360, 768, 1440)
AUDIT = """() => {
const ratio = (a, b) => {
  const light = c => {
    const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const parts = c.slice(0, 3).map(v => linear(v / 255));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};
const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
const ground = element => {
  for (let e = element; e; e = e.parentElement) {
    const found = numbers(getComputedStyle(e).backgroundColor);
    if (found.length === 3 || found[3] > 0) return found;
  }
  return [255, 255, 255];
};
const seen = {texts: 0, least: 99, worst: ""};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.textContent.trim() || ["SCRIPT", "STYLE", "title", "desc"].includes(parent.tagName)) continue;
  const style = getComputedStyle(parent), inside = parent.namespaceURI.endsWith("svg");
  const before = parent.previousElementSibling;
  const over = inside && parent.ownerSVGElement.classList.contains("map") && before.tagName === "circle"
    ? numbers(getComputedStyle(before).fill) : ground(inside ? parent.ownerSVGElement : parent);
  const found = ratio(numbers(inside ? style.fill : style.color), over);
  seen.texts += 1;
  if (found < seen.least) { seen.least = found; seen.worst = node.textContent.trim().slice(0, 60); }
}
const page = document.documentElement;
seen.width = innerWidth;
seen.overflow = page.scrollWidth - page.clientWidth;
seen.height = page.scrollHeight;
return seen;
}"""


def widen(page, width):
    page.set_viewport_size({"width": width, "height": 1400})


@pytest.fixture
def opened(chromium, tmp_path):
    """``opened(html, width)``: the page from a file, which asked for nothing and never complained."""
    pages, asked, complaints = [], [], []

    def opened(html, width):
        (tmp_path / "report.html").write_text(html, "utf-8")
        page = chromium.new_page()
        widen(page, width)
        pages.append(page)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((tmp_path / "report.html").as_uri())
        return page

    yield opened
    for page in pages:
        page.close()
    assert [url for url in asked if not url.endswith("report.html") and url != "data:,"] == []
    assert complaints == []


@pytest.mark.parametrize("name", ["city", "rush_hours"])
def test_every_text_is_readable_and_nothing_is_cut_off(name, opened, request, earlier_city):
    release = request.getfixturevalue(name)
    page = opened(report_html(release, earlier_city if name == "city" else None).decode(), WIDTHS[0])
    for width in WIDTHS:
        widen(page, width)
        seen = page.evaluate(AUDIT)
        assert seen["least"] >= 4.5, seen["worst"]
        assert seen["texts"] > 150
        assert seen["overflow"] <= 0
        assert seen["width"] == width


def test_the_audit_sees_pale_text_and_a_page_that_is_too_wide(city, opened):
    page = report_html(city).decode()
    pale = page.replace("figcaption{font-size:.875rem;color:#404040", "figcaption{color:#aaaaaa")
    assert pale != page
    assert opened(pale, 768).evaluate(AUDIT)["least"] < 4.5
    wide = page.replace("<main ", '<main style="width:2000px" ')
    assert opened(wide, 768).evaluate(AUDIT)["overflow"] > 0


def test_the_map_can_be_read_in_colour_and_in_grey_at_every_width(city, opened):
    html = report_html(city).decode()
    figure = re.search(r"<figure>.*?</figure>", html, re.S)[0]
    drawn = [colour for colour in COLOURS if f'fill="{colour}"' in figure]
    assert len(drawn) >= 5
    page = opened(html, WIDTHS[0])
    for width in WIDTHS:
        widen(page, width)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        assert picture.width == width
        pixels = np.asarray(picture).reshape(-1, 3)
        grey = np.asarray(picture.convert("L")).reshape(-1)
        shades = []
        for colour in drawn:
            exact = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)])
            mine = np.all(pixels == exact, axis=1)
            assert mine.sum() > 150, colour
            shades.append(int(np.median(grey[mine])))
        assert shades == sorted(shades)
        assert min(np.diff(shades)) >= 12
        # a margin of paper on both sides
        rows = np.asarray(picture)
        assert np.all(rows[:, :8] >= 230)
        assert np.all(rows[:, -8:] >= 230)


def test_a_thousand_cells_are_drawn_in_seconds(thousand, opened):
    started = time.monotonic()
    page = report_html(thousand).decode()
    written = time.monotonic() - started
    seen = opened(page, 1440).evaluate(AUDIT)
    assert seen["overflow"] <= 0
    assert len(page) < 400_000
    assert written < 10
