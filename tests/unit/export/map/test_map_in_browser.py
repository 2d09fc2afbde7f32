"""The map in a real Chromium, opened from a file: what it paints, says and asks for."""

from __future__ import annotations

import http.server
import io
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib.resources import files

import h3
import numpy as np
import pytest
import shapely
from PIL import Image, ImageColor

from trafficdp.binning.cells import polygons_of
from trafficdp.export.files.classes import (
    CHANCE_BREAKS,
    CHANCES,
    HATCHED,
    PLAIN,
    SHARE_BREAKS,
    WIDTHS,
    NumberRead,
    class_letters,
    hatch_limits,
    number_in_words,
    round_to_interval,
    shown_breaks,
    shown_largest,
    shown_numbers,
    shown_width_breaks,
)
from trafficdp.export.files.tables import geojson_bytes
from trafficdp.export.map.html_map import LOOKS, html_bytes
from trafficdp.model import ContextKind, ContextLayer, ContributionBound, SpeedUnit, Statistic
from trafficdp.privacy.release import published_frame

MS = SpeedUnit.METRES_PER_SECOND
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def middles(release):
    """Latitude and longitude of the middle of every hexagon, shape (C, 2)."""
    west, south, east, north = shapely.bounds(polygons_of(np.unique(release.cell))).T
    return np.column_stack([(south + north) / 2, (west + east) / 2])


def rows_of(release, statistic, slot):
    table = published_frame(release).iloc[np.flatnonzero(release.slot == slot)]
    numbers = shown_numbers(table, statistic, release.request.display_unit)
    return (*numbers, table[f"{statistic.stem}_status"].to_numpy(dtype=object))


def letters_now(release, statistic, slot):
    """The class of every cell with a bin in the slot, by the rules of the map, without the page."""
    unit = release.request.display_unit
    return class_letters(
        *rows_of(release, statistic, slot),
        shown_breaks(statistic, release.request.bound, unit),
    )


def assert_painted(found, letters):
    """Every little square has its class's colour; where the class has an ink, nothing but the two mixed."""
    for square, letter in zip(found, letters, strict=True):
        look = LOOKS[str(letter)]
        colour = np.array(ImageColor.getrgb(look.colour))
        if look.ink is None:
            assert (square == colour).all(), letter
            continue
        ink = np.array(ImageColor.getrgb(look.ink))
        assert (np.abs(square - colour).max(axis=1) <= 8).any(), letter
        assert (np.abs(square - ink).max(axis=1) <= 90).any(), letter
        assert (square >= np.minimum(colour, ink) - 3).all(), letter
        assert (square <= np.maximum(colour, ink) + 3).all(), letter


@pytest.mark.parametrize("name", ["fiji", "globe", "pentagon"])
def test_the_map_is_drawn_without_network_or_complaint(name, drawn, request):
    """As every other map here is: ``drawn`` looks into that."""
    drawn(request.getfixturevalue(name))


def test_a_broken_script_would_be_seen(city, chromium, map_page, tmp_path):
    page = html_bytes(city).decode().replace("JSON.parse(", "JSON.parze(")
    (tmp_path / "map.html").write_text(page, "utf-8")
    broken = map_page(chromium.new_page())
    broken.page.goto((tmp_path / "map.html").as_uri())
    assert broken.page.get_attribute("html", "data-drawn") is None
    assert any("parze" in complaint for complaint in broken.complaints)
    broken.page.close()


def test_every_cell_is_painted_in_the_colour_of_its_class_and_of_its_intervals_width(city, drawn):
    page = drawn(city)
    # the mean last, for what follows
    for number in (1, 0):
        page.page.select_option("#statistic", str(number))
        letters = letters_now(city, list(city.estimates)[number], 0)
        assert len(set(letters)) > 6
        assert_painted(page.colours(middles(city)), letters)
    page.page.select_option("#show", "certainty")
    value, low, high, _ = rows_of(city, Statistic.MEAN, 0)
    _, down, up = round_to_interval(*(np.nan_to_num(each) for each in (value, low, high)))
    breaks = shown_width_breaks(Statistic.MEAN, city.request.bound, city.request.display_unit)
    classes = np.searchsorted(breaks, up - down + 1e-9, side="right")
    letters = np.where(np.isnan(low), "w", np.array(list(WIDTHS))[classes])
    assert len(set(letters)) > 3
    assert_painted(page.colours(middles(city)), letters)
    shown = page.page.locator(".legend:visible")
    assert shown.count() == 1
    assert "how far apart the two numbers are that it lies between, km/h" in shown.inner_text()


def in_ten(chance):
    """Chances as they are read."""
    chance = np.asarray(chance)
    read = np.clip(np.floor(10 * chance + 0.5 + 1e-9), 1, 9)
    return np.where(chance < 0.05, 0, np.where(chance > 0.95, 10, read)).astype(int)


def test_a_layer_shows_what_is_likely_slower_or_faster_than_the_city(pooled, drawn):
    page = drawn(pooled)
    assert_painted(page.colours(middles(pooled)), letters_now(pooled, Statistic.MEAN, 0))
    page.page.focus("#show")
    page.page.keyboard.press("End")
    table = published_frame(pooled)
    slower, faster = (
        np.searchsorted(CHANCE_BREAKS, in_ten(table[f"speed_mean_{each}_chance"].fillna(0)), side="right")
        for each in ("slower", "faster")
    )
    letters = np.array(list(CHANCES))[3 - slower + faster]
    for status, letter in (("withheld", "w"), ("uninformative", "u")):
        letters[table["speed_mean_status"] == status] = letter
    assert set(letters) >= {*"hijk", "m", "w", "u"}
    assert_painted(page.colours(middles(pooled)), letters)
    legend = page.page.locator(".legend:visible").inner_text()
    assert "chance to be slower or faster than the city by a fifth" in legend
    assert "slower: more than 19 in 20" in legend
    # of a statistic without a posterior nothing of the kind is known
    page.page.select_option("#statistic", "1")
    assert page.page.input_value("#show") == "value"
    assert page.page.locator("#show option[value=slower]").is_disabled()
    assert_painted(page.colours(middles(pooled)), letters_now(pooled, Statistic.VARIANCE, 0))


def test_a_layer_shows_what_is_surely_slower_or_faster_than_the_timetable(scheduled, drawn):
    page, table = drawn(scheduled), published_frame(scheduled)
    page.page.select_option("#show", "timetable")
    share, low, high = (table[f"speed_mean_of_scheduled{end}"].to_numpy() for end in ("", "_low", "_high"))
    sure = (high < 1) | (low > 1)
    classes = np.array([*"hijlmo"])[
        np.searchsorted(SHARE_BREAKS, 100 * np.nan_to_num(share) + 1e-9, side="right")
    ]
    letters = np.where(sure, classes, "k")
    for status, letter in (("withheld", "w"), ("uninformative", "u")):
        letters[table["speed_mean_status"] == status] = letter
    assert set(letters) >= {*"hikmowu"}
    assert_painted(page.colours(middles(scheduled)), letters)
    legend = page.page.locator(".legend:visible").inner_text()
    assert "per cent of the scheduled speed, where surely below or above it" in legend
    assert "85 to 100" in legend
    cell = int(np.flatnonzero(letters == "h")[0])
    page.point_at(middles(scheduled)[cell])
    speed = table["speed_mean_kmh_scheduled"][cell]
    ends = f"{np.floor(100 * low[cell]):.0f} to {np.ceil(100 * high[cell]):.0f}"
    assert f"Timetable\n{ends} % of the scheduled {speed:.0f} km/h" in page.text("#card")
    # nothing runs there
    page.point_at(middles(scheduled)[-1])
    assert "Timetable" not in page.text("#card")
    page.page.select_option("#statistic", "1")
    assert page.page.input_value("#show") == "value"
    assert page.page.locator("#show option[value=timetable]").is_disabled()


def test_the_box_says_between_which_numbers_how_often_and_how_likely(pooled, drawn):
    page, table = drawn(pooled), published_frame(pooled)
    known = table["speed_mean_status"] == "released"
    cell = int(np.flatnonzero(known & table["speed_mean_slower_chance"].between(0.6, 0.8))[0])
    row = table.iloc[cell]
    page.point_at(middles(pooled)[cell])
    most = shown_largest(Statistic.MEAN, pooled.request.bound, pooled.request.display_unit)
    read = number_in_words(*row[["speed_mean_kmh", "speed_mean_kmh_low_80", "speed_mean_kmh_high_80"]], most)
    card = page.text("#card")
    line = f"etween {read.low} and {read.high} km/h, most likely {read.value}"
    assert f"B{line}" in card
    assert f"b{line}" in page.text(".tip")
    low, high = np.floor(row["speed_mean_kmh_low"]), np.ceil(row["speed_mean_kmh_high"])
    assert f"4 times in 5 it is between these; 19 times in 20 between {low:.0f} and {high:.0f}" in card
    slower = int(in_ten(row["speed_mean_slower_chance"]))
    assert f"Compared\n{slower} in 10 that it is slower than the city by a fifth, " in card
    assert "interval" not in card.lower()
    assert "released" not in card
    # what says too little is not compared
    page.point_at(middles(pooled)[int(np.flatnonzero(table["speed_mean_status"] == "uninformative")[0])])
    card = page.text("#card")
    assert "uninformative: too little is known" in card
    assert "etween" in card
    assert "most likely" not in card.splitlines()[2]
    assert "Compared" not in card


@pytest.mark.parametrize("unit", list(SpeedUnit))
@pytest.mark.parametrize("statistic", [Statistic.MEAN, Statistic.VARIANCE])
def test_the_page_writes_and_colours_numbers_by_one_rule(statistic, unit, chromium):
    """Near every edge of a class and of reading, in the script: what is written lies in the class painted."""
    breaks = np.array(shown_breaks(statistic, ContributionBound(Fraction(30), Fraction(1, 100), MS), unit))
    near = np.concatenate([np.linspace(-1.1, 1.1, 45), [-0.5005, -0.5, -0.4995, -0.0005, 0.0, 0.0005]])
    limits = np.unique(hatch_limits(breaks))
    halves = [0.004, 0.0499, 0.05, 0.4, 0.9, *limits / 2, limits[-1] / 2 + 0.6]
    value, half = (
        np.round(each.ravel(), 3) for each in np.meshgrid((breaks[:, None] + near).ravel(), halves)
    )
    value = np.maximum(value, 0.0)
    numbers = value, np.maximum(np.round(value - half, 3), 0.0), np.round(value + half, 3)
    page = chromium.new_page()
    page.add_script_tag(content=files("trafficdp.export").joinpath("templates/map_data.js").read_text())
    found = page.evaluate(
        """text => { const [value, low, high, breaks, limits] = JSON.parse(text);
        window.data = {statuses: ["released"], chances: [], point: "."};
        return JSON.stringify(value.map((each, i) => {
          const one = {value: each, low: low[i], high: high[i], status: 0}, read = rounded(one, 1e9);
          return [read.value, read.low, read.high, look({breaks, limits}, one, "value")]; })); }""",
        # as text, for playwright looks at numbers one by one
        json.dumps([*(each.tolist() for each in numbers), breaks.tolist(), list(hatch_limits(breaks))]),
    )
    page.close()
    letters = class_letters(*numbers, np.full(len(value), "released", dtype=object), tuple(breaks))
    assert set(letters) == {*PLAIN, *HATCHED}
    found, columns = json.loads(found), (each.tolist() for each in numbers)
    for (*written, _), *one in zip(found, *columns, strict=True):
        assert NumberRead(*written) == number_in_words(*one, 1e9)
    painted = np.array([letter for *_, letter in found])
    assert painted.tolist() == letters.tolist()
    read, low, high = np.array([written for *written, _ in found], dtype=float).T
    number = np.searchsorted(breaks, read, side="right")
    wide = high - low > np.array(hatch_limits(breaks))[number] + 1e-9
    assert (painted == np.where(wide, np.array([*HATCHED])[number], np.array([*PLAIN])[number])).all()


def test_a_number_in_the_box_lies_in_the_class_of_its_colour(pooled, drawn):
    """What is written is read back from the page, and looked up in the legend."""
    page = drawn(pooled)
    breaks = np.array(shown_breaks(Statistic.MEAN, pooled.request.bound, pooled.request.display_unit))
    letters, seen = letters_now(pooled, Statistic.MEAN, 0), 0
    boxes = page.page.evaluate(
        """async names => { const found = [];
        for (const name of names) {
          const shown = new Promise(done => addEventListener("hashchange", done, { once: true }));
          location.hash = "#h=" + name;
          await shown;
          found.push(document.getElementById("card").innerText);
        }
        return found; }""",
        (names := [f"{cell:x}" for cell in np.unique(pooled.cell)]),
    )
    for letter, name, box in zip(letters, names, boxes, strict=True):
        assert name in box
        found = re.search(r"most likely ([0-9.]+)", box)
        if found and letter != "u":
            number = int(np.searchsorted(breaks, float(found[1]), side="right"))
            assert letter in (PLAIN[number], HATCHED[number])
            seen += 1
    assert seen > 40


def test_hovering_tells_mean_interval_variance_and_public_counts(calendar, drawn):
    page = drawn(calendar)
    first = np.flatnonzero(calendar.slot == calendar.slot[0])
    status = calendar.estimates[Statistic.MEAN].status[first]
    cell = int(np.flatnonzero(status == "released")[3])
    row = published_frame(calendar).iloc[first[cell]]
    page.point_at(middles(calendar)[cell])
    card, numbers = page.text("#card"), {}
    for statistic in (Statistic.MEAN, Statistic.VARIANCE):
        largest = shown_largest(statistic, calendar.request.bound, calendar.request.display_unit)
        value, low, high = shown_numbers(row.to_frame().T, statistic, calendar.request.display_unit)
        numbers[statistic] = number_in_words(value[0], low[0], high[0], largest)
    mean, deviation = numbers[Statistic.MEAN], numbers[Statistic.VARIANCE]
    assert f"Between {mean.low} and {mean.high} km/h, most likely {mean.value}" in card
    assert "at least 19 times in 20 it is between these" in card
    said = f"between {deviation.low} and {deviation.high} km/h, most likely {deviation.value}"
    assert f"Standard deviation\n{said}" in card
    assert f"Vehicles\n{row['vehicles']}" in card
    assert row["hex_id"] in card
    assert card.startswith(row["place"])
    assert row["place"] in page.text(".tip")
    assert row["slot_label"] in card


def test_pointing_finds_the_cell_under_the_pointer_anywhere_in_it(city, drawn):
    page, cells = drawn(city), np.unique(city.cell)
    for number, polygon in enumerate(polygons_of(cells)):
        if number not in (0, 30):
            continue
        corners = np.array(polygon.exterior.coords)[:-1, ::-1]
        for corner in corners:
            page.point_at(corner + 0.08 * (corners.mean(axis=0) - corner))
            assert f"{cells[number]:x}" in page.text("#card")


def test_the_table_lists_what_is_shown_and_slider_buttons_and_play_turn_the_slots(rush_hours, drawn):
    page = drawn(rush_hours)
    page.page.click("#listing summary")
    page.wait("#listing tbody tr >> nth=0")
    lines = page.page.locator("#listing tbody tr")
    assert lines.count() == 37
    assert published_frame(rush_hours).iloc[0]["hex_id"] in lines.first.inner_text()
    page.page.click("#listing summary")
    shown = []

    def note(slot):
        page.wait(f"#slot-name:text('{slot:02d}:00 to')")
        page.settle()
        shown.append(page.text("#slot-name"))

    note(7)
    page.page.focus("#slot")
    page.page.keyboard.press("ArrowRight")
    note(8)
    assert page.page.get_attribute("#slot", "aria-valuetext") == shown[-1]
    page.page.click("#later")
    note(17)
    page.page.click("#later")
    note(7)
    assert shown == ["07:00 to 08:00", "08:00 to 09:00", "17:00 to 18:00", "07:00 to 08:00"]
    page.page.clock.install()
    page.press(" ")
    assert page.text("#play") == "Pause"
    page.page.clock.run_for(1_000)
    page.wait("#slot-name:text('08:00 to')")
    assert_painted(page.colours(middles(rush_hours)), letters_now(rush_hours, Statistic.MEAN, 8))
    page.page.click("#play")
    assert page.page.get_attribute("#play", "aria-pressed") == "false"
    now = page.text("#slot-name")
    page.page.clock.run_for(1_300)
    assert page.text("#slot-name") == now


def test_who_asks_for_less_motion_gets_slower_slots(rush_hours, drawn):
    page = drawn(rush_hours, reduced_motion="reduce")
    # the page's clock stands still but for what is said here
    page.page.clock.install(time=0)
    page.page.clock.pause_at(1_000)
    page.page.click("#play")
    page.page.clock.run_for(1_500)
    assert page.text("#slot-name") == "07:00 to 08:00"
    page.page.clock.run_for(1_000)
    page.wait("#slot-name:text('08:00 to 09:00')")


def test_the_first_map_needs_no_later_slot(rush_hours, chromium, map_page, tmp_path):
    """As far as it has come over a slow line, the page draws its first slot."""
    whole = html_bytes(rush_hours)
    arrived = whole[: whole.index(b'<script type="application/json" class="later">')]
    (tmp_path / "map.html").write_bytes(arrived)
    page = map_page(chromium.new_page()).go((tmp_path / "map.html").as_uri())
    assert_painted(page.colours(middles(rush_hours)), letters_now(rush_hours, Statistic.MEAN, 7))
    assert page.complaints == []
    page.page.close()


PATHS = """(() => {
  const canvas = CanvasRenderingContext2D.prototype;
  window.filled = [];
  for (const name of ["fill", "stroke"]) {
    const own = canvas[name];
    canvas[name] = function (...given) {
      const pane = this.canvas.closest(".leaflet-pane");
      if (pane) { window.filled.push(pane.className.match(/leaflet-(\\w+)-pane/)[1]); }
      return own.apply(this, given);
    };
  }
})()"""


def test_hexagons_are_painted_in_few_paths_and_before_streets(make_release, chromium, map_page, tmp_path):
    roads = ContextLayer(
        ContextKind.ROADS, "roads.gpkg", "c" * 64, "Survey of nowhere", ("Shell Road",),
        (shapely.LineString([(-97.9, 30.27), (-97.6, 30.27)]),),
    )  # fmt: skip
    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), 29)[:2_500]
    (tmp_path / "map.html").write_bytes(html_bytes(make_release(cells, context=(roads,))))
    page = map_page(chromium.new_page(viewport={"width": 390, "height": 844}))
    page.page.add_init_script(PATHS)
    page.go((tmp_path / "map.html").as_uri()).settle()
    panes = page.page.evaluate("window.filled")
    assert {"cells", "edges", "over", "outline"} <= set(panes)
    first = panes[: panes.index("edges")]
    assert set(first) == {"cells"}
    assert panes.count("cells") < len(cells) / 10
    assert page.complaints == []
    page.page.close()


def view(page):
    """West, south, east, north of what is seen."""
    text = page.page.evaluate("document.getElementById('map').leaflet.getBounds().toBBoxString()")
    return np.array(text.split(","), dtype=float)


def test_keys_move_zoom_and_come_back(city, drawn):
    page = drawn(city)
    whole = view(page)
    page.press("ArrowRight")
    first = page.text("#card")
    page.press("ArrowRight")
    assert page.text("#card") != first
    page.press("+", "+", "+", "+", "+")
    page.settle()
    assert np.ptp(view(page)[[0, 2]]) < np.ptp(whole[[0, 2]]) / 4
    for _ in range(12):
        page.press("ArrowLeft")
    around = page.page.locator("#map").bounding_box()
    picked = page.page.locator("path.pick").bounding_box()
    for side, size in (("x", "width"), ("y", "height")):
        middle = picked[side] + picked[size] / 2
        assert around[side] <= middle <= around[side] + around[size]
    page.press("0")
    np.testing.assert_allclose(view(page), whole)


def test_a_zoomed_map_is_dragged_and_painted_where_it_lies(city, drawn):
    page = drawn(city)
    page.press("+", "+", "+", "+")
    page.settle()
    before = view(page)
    frame = page.page.locator("#map").bounding_box()
    x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    page.page.mouse.move(x + 60, y + 25, steps=4)
    page.page.wait_for_timeout(200)
    page.page.mouse.up()
    assert view(page)[0] < before[0]
    points, letters = middles(city), letters_now(city, Statistic.MEAN, 0)
    places = page.on_screen(points) - [frame["x"], frame["y"]]
    visible = ((places > 15) & (places < [frame["width"] - 15, frame["height"] - 15])).all(axis=1)
    assert 5 < visible.sum() < len(points)
    assert_painted(page.colours(points[visible]), letters[visible])


def test_the_wheel_and_two_fingers_zoom(city, drawn, chromium, map_page, tmp_path):
    page = drawn(city)
    whole = view(page)
    page.page.mouse.move(*page.on_screen(middles(city)[30][None])[0].tolist())
    page.page.mouse.wheel(0, -600)
    page.page.wait_for_function(
        "w => document.getElementById('map').leaflet.getBounds().getWest() > w", arg=whole[0]
    )
    phone = map_page(chromium.new_page(viewport={"width": 360, "height": 740}, has_touch=True))
    phone.go((tmp_path / "map.html").as_uri())
    before = view(phone)
    phone.page.evaluate(
        """() => { const map = document.getElementById("map"), r = map.getBoundingClientRect();
        const x = r.left + r.width / 2, y = r.top + r.height / 2;
        const fingers = far => [-1, 1].map(side => new Touch({ identifier: side + 2, target: map,
          clientX: x + side * far, clientY: y }));
        const send = (name, target, far) => target.dispatchEvent(new TouchEvent(name, { bubbles: true,
          cancelable: true, touches: far ? fingers(far) : [], changedTouches: fingers(far || 90) }));
        send("touchstart", map, 30); send("touchmove", document, 60); send("touchmove", document, 90);
        return new Promise(done => setTimeout(() => { send("touchend", document, 0); done(); }, 100)); }"""
    )
    phone.page.wait_for_function(
        """wide => { const seen = document.getElementById("map").leaflet.getBounds();
        return seen.getEast() - seen.getWest() < wide; }""",
        arg=np.ptp(before[[0, 2]]) / 1.5,
    )
    phone.page.close()


def test_what_is_clicked_stays_and_its_address_leads_back(city, drawn):
    page, cell = drawn(city), 20
    name = f"{np.unique(city.cell)[cell]:x}"
    page.page.mouse.click(*page.on_screen(middles(city)[cell][None])[0].tolist())
    assert page.page.evaluate("location.hash") == f"#h={name}"
    page.point_at(middles(city)[25])
    assert name in page.text("#card")
    page.press("Escape")
    assert page.page.evaluate("location.hash") == ""
    page.point_at(middles(city)[26])
    assert name not in page.text("#card")
    page.page.evaluate("name => { location.hash = '#h=' + name; }", f"{np.unique(city.cell)[3]:x}")
    page.wait(f"#card:has-text('{np.unique(city.cell)[3]:x}')")


def test_typing_finds_a_street_a_place_and_a_hexagon(surrounded, drawn):
    page = drawn(surrounded)
    for wanted, found in (
        ("Shell", "Shell Road"),
        ("Harb", "km north-west of Harbour"),
        ("harbour", "Harbour"),
    ):
        page.page.fill("#search", wanted)
        options = page.page.locator("#found option").evaluate_all("all => all.map(each => each.value)")
        assert any(found in each for each in options)
        page.page.press("#search", "Enter")
        assert page.page.locator("#card.pinned").count() == 1
    page.page.fill("#search", f"{np.unique(surrounded.cell)[5]:x}")
    page.page.press("#search", "Enter")
    assert f"{np.unique(surrounded.cell)[5]:x}" in page.text("#card")
    page.page.fill("#search", "Atlantis")
    page.page.press("#search", "Enter")
    assert "Nothing here is called “Atlantis”" in page.text("#summary")


def test_public_layers_are_drawn_named_attributed_and_saved(surrounded, drawn):
    page = drawn(surrounded)
    page.settle()
    written = page.page.locator(".name").all_inner_texts()
    assert {"Shell Road", "Harbour"} <= set(written)
    assert len(written) == len(set(written))
    assert page.text("#sources") == "Map: Survey of nowhere (public domain)"
    for pane in ("under", "edges", "over"):
        inked = page.page.evaluate(
            """pane => { const c = document.querySelector(`.leaflet-${pane}-pane canvas`);
            return c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(byte => byte > 0); }""",
            pane,
        )
        assert inked, pane
    # the picture that is saved holds map, legend and sources
    with page.page.expect_download() as download:
        page.page.click("#save")
    with Image.open(download.value.path()) as picture:
        around = page.page.locator("#map").bounding_box()
        assert picture.width > 2 * around["width"]
        assert picture.height > 2 * around["height"] + 100
        colours = {colour[:3] for _, colour in picture.convert("RGB").getcolors(1 << 24)}
    letters = set(letters_now(surrounded, Statistic.MEAN, 0))
    assert {ImageColor.getrgb(LOOKS[str(each)].colour) for each in letters} <= colours


def test_without_javascript_there_is_a_table(rush_hours, chromium, tmp_path):
    (tmp_path / "map.html").write_bytes(html_bytes(rush_hours))
    page = chromium.new_page(java_script_enabled=False)
    page.goto((tmp_path / "map.html").as_uri())
    lines = page.locator("#plain tbody tr")
    assert lines.count() == 37
    row = published_frame(rush_hours).iloc[0]
    assert row["hex_id"] in lines.first.inner_text()
    assert row["place"] in lines.first.inner_text()
    # nothing that only a script can use stands before it
    assert not page.locator("select, button, input, #map").filter(visible=True).count()
    assert lines.first.bounding_box()["y"] < 300
    page.close()


def test_twenty_thousand_cells_are_drawn_and_found(make_release, drawn):
    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), 82)[:20_000]
    release = make_release(cells, statistics=(Statistic.MEAN, Statistic.VARIANCE))
    page = drawn(release)
    page.point_at(middles(release)[12_345])
    assert f"{np.unique(release.cell)[12_345]:x}" in page.text("#card")
    page.page.click("#listing summary")
    page.wait("#listing tbody tr >> nth=0")
    assert page.page.locator("#listing tbody tr").count() == 2_000
    assert page.page.locator("#cut").is_visible()


@contextmanager
def served(folder):
    handler = partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def test_a_live_map_takes_up_what_arrives_and_asks_for_nothing_else(city, chromium, map_page, tmp_path):
    (tmp_path / "live.html").write_bytes(html_bytes(city, live_seconds=1))
    (tmp_path / "live.geojson").write_bytes(geojson_bytes(city))
    with served(tmp_path) as address:
        page = map_page(chromium.new_page()).go(f"{address}/live.html")
        page.wait("html[data-reloads]")
        assert_painted(page.colours(middles(city)), letters_now(city, Statistic.MEAN, 0))
        collection = json.loads((tmp_path / "live.geojson").read_text())
        kept = [
            feature for feature in collection["features"] if feature["properties"]["status"] == "released"
        ]
        kept[0]["properties"] |= {
            "speed_mean_kmh": 12.5, "speed_mean_kmh_low": 11.25, "speed_mean_kmh_high": 13.75,
        }  # fmt: skip
        collection["features"] = kept[:1]
        (tmp_path / "new").write_text(json.dumps(collection))
        (tmp_path / "new").rename(tmp_path / "live.geojson")
        page.wait("html[data-drawn='1']")
        page.press("ArrowRight")
        assert "Between 11 and 14 km/h, most likely 13" in page.text("#card")
        assert set(page.asked) == {f"{address}/live.html", f"{address}/live.geojson"}
        assert page.complaints == []
        page.page.close()


def test_tiles_are_asked_of_their_server_alone_and_lie_under_the_hexagons(city, chromium, map_page, tmp_path):
    layer = ContextLayer(
        ContextKind.TILES, "https://tiles.example.org/{z}/{x}/{y}.png", "0" * 64, "Example City", (), ()
    )
    release = replace(city, grid=replace(city.grid, context=(layer,)))
    (tmp_path / "map.html").write_bytes(html_bytes(release))
    picture = io.BytesIO()
    Image.new("RGB", (256, 256), "#ff0000").save(picture, "png")
    page = map_page(chromium.new_page(viewport={"width": 800, "height": 600}))
    page.page.route(
        "**/*.png", lambda route: route.fulfill(body=picture.getvalue(), content_type="image/png")
    )
    page.go((tmp_path / "map.html").as_uri())
    page.wait("#map:not(:has(img.leaflet-tile:not(.leaflet-tile-loaded))):has(img.leaflet-tile)")
    page.settle()
    asked = [each for each in page.asked if not each.startswith("file:")]
    assert asked
    assert all(re.fullmatch(r"https://tiles\.example\.org/\d+/\d+/\d+\.png", each) for each in asked)
    assert page.complaints == []
    assert "Example City" in page.text("#sources")
    assert "tiles.example.org, which so learns who looks where" in page.text("#sources")
    pixels = np.asarray(Image.open(io.BytesIO(page.page.locator("#map").screenshot())).convert("RGB"))
    # red around the hexagons, and nowhere red alone where they lie
    assert (pixels == [255, 0, 0]).all(axis=2).mean() > 0.1
    page.page.screenshot(path=tmp_path / "tiles.png")
    page.page.close()
