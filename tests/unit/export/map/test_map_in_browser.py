"""The map in a real Chromium, opened from a file: what it paints, says and asks for."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager
from functools import partial

import h3
import numpy as np
import pytest
from PIL import ImageColor

from trafficdp.binning.cells import polygons_of
from trafficdp.export.files.classes import WIDTHS, breaks_of, hatch_limit, letters_of, width_breaks
from trafficdp.export.files.geojson import geojson_bytes
from trafficdp.export.map.drawing import Drawing
from trafficdp.export.map.html_map import LOOKS, html_bytes
from trafficdp.model.statistic import Statistic
from trafficdp.privacy.published import published_frame

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def middles(release):
    polygons = polygons_of(np.unique(release.cell))
    rings = Drawing.of(polygons).rings(polygons)
    ends = np.cumsum(rings.corners)
    boxes = [rings.point[end - n : end] for n, end in zip(rings.corners, ends, strict=True)]
    return np.array([box.mean(axis=0) for box in boxes])


def rows_of(release, statistic, slot):
    table = published_frame(release).iloc[np.flatnonzero(release.slot == slot)]
    column = statistic.column(release.display_unit)
    numbers = [table[column + suffix].to_numpy() for suffix in ("", "_low", "_high")]
    return (*numbers, table[f"{statistic.stem}_status"].to_numpy(dtype=object))


def letters_now(release, statistic, slot):
    """The class of every cell with a bin in the slot, by the rules of the map, without the page."""
    unit = release.display_unit
    return letters_of(
        *rows_of(release, statistic, slot),
        breaks_of(statistic, release.bound, unit),
        hatch_limit(statistic, release.bound, unit),
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


@pytest.mark.parametrize("name", ["city", "rush_hours", "fiji", "globe", "pentagon"])
def test_the_map_is_drawn_without_network_or_complaint(name, drawn, request):
    release = request.getfixturevalue(name)
    page = drawn(release)
    assert page.page.evaluate("document.documentElement.dataset.drawn") == str(len(np.unique(release.cell)))
    first = (release.slot == release.slot[0]).sum()
    assert page.text("#summary").startswith(f"{first} cells: ")


def test_a_broken_script_would_be_seen(city, chromium, map_page, tmp_path):
    page = html_bytes(city).decode().replace("JSON.parse(", "JSON.parze(")
    (tmp_path / "map.html").write_text(page, "utf-8")
    broken = map_page(chromium.new_page())
    broken.page.goto((tmp_path / "map.html").as_uri())
    assert broken.page.get_attribute("html", "data-drawn") is None
    assert any("parze" in complaint for complaint in broken.complaints)
    broken.page.close()


@pytest.mark.parametrize("number", [0, 1])
def test_every_cell_is_painted_in_the_colour_of_its_class(number, city, drawn):
    page, statistic = drawn(city), list(city.estimates)[number]
    page.page.select_option("#statistic", str(number))
    letters = letters_now(city, statistic, 0)
    assert len(set(letters)) > 6
    assert_painted(page.colours(middles(city)), letters)


def test_the_uncertainty_switch_colours_by_the_width_of_the_interval(city, drawn):
    page = drawn(city)
    page.page.select_option("#show", "uncertainty")
    _, low, high, _ = rows_of(city, Statistic.MEAN, 0)
    breaks = width_breaks(Statistic.MEAN, city.bound, city.display_unit)
    classes = np.searchsorted(breaks, np.nan_to_num(high - low), side="right")
    letters = np.where(np.isnan(low), "w", np.array(list(WIDTHS))[classes])
    assert len(set(letters)) > 3
    assert_painted(page.colours(middles(city)), letters)
    shown = page.page.locator(".legend:visible")
    assert shown.count() == 1
    assert "Width of the 95 % interval, km/h" in shown.inner_text()


def test_hovering_tells_mean_interval_variance_and_public_counts(calendar, drawn):
    page = drawn(calendar)
    first = np.flatnonzero(calendar.slot == calendar.slot[0])
    status = calendar.estimates[Statistic.MEAN].status[first]
    cell = int(np.flatnonzero(status == "released")[3])
    row = published_frame(calendar).iloc[first[cell]]
    x, y = page.on_screen(middles(calendar))[cell]
    page.page.mouse.move(x, y)
    card = page.text("#card")
    assert f"{row['speed_mean_kmh']:.10g} km/h" in card
    assert f"{row['speed_mean_kmh_low']:.10g} to {row['speed_mean_kmh_high']:.10g} km/h (95 %)" in card
    assert f"Variance\n{row['speed_variance_kmh2']:.10g} (km/h)²" in card
    assert f"Vehicles\n{row['vehicles']}" in card
    assert row["h3"] in card
    assert row["slot_label"] in card


def test_pointing_finds_the_cell_under_the_pointer_anywhere_in_it(city, drawn):
    page, cells = drawn(city), np.unique(city.cell)
    polygons = polygons_of(cells)
    rings = Drawing.of(polygons).rings(polygons)
    for number in (0, 7, 30, 60):
        end = int(np.cumsum(rings.corners)[number])
        corners = rings.point[end - rings.corners[number] : end]
        for corner in corners:
            inner = corner + 0.08 * (corners.mean(axis=0) - corner)
            x, y = page.on_screen(inner[None])[0]
            page.page.mouse.move(x, y)
            assert f"{cells[number]:x}" in page.text("#card")


def test_the_slider_the_buttons_and_play_turn_the_slots(rush_hours, drawn):
    page = drawn(rush_hours)
    shown = []

    def note():
        page.settle()
        shown.append(page.text("#slot-name"))

    note()
    page.page.focus("#slot")
    page.page.keyboard.press("ArrowRight")
    note()
    assert page.page.get_attribute("#slot", "aria-valuetext") == shown[-1]
    page.page.click("#later")
    note()
    page.page.click("#later")
    note()
    assert shown == ["07:00 to 08:00", "08:00 to 09:00", "17:00 to 18:00", "07:00 to 08:00"]
    page.press(" ")
    assert page.text("#play") == "Pause"
    page.wait("#slot-name:text('08:00 to')")
    assert_painted(page.colours(middles(rush_hours)), letters_now(rush_hours, Statistic.MEAN, 8))
    page.page.click("#play")
    assert page.page.get_attribute("#play", "aria-pressed") == "false"
    now = page.text("#slot-name")
    page.page.wait_for_timeout(1_300)
    assert page.text("#slot-name") == now


def test_who_asks_for_less_motion_gets_slower_slots(rush_hours, drawn):
    page = drawn(rush_hours, reduced_motion="reduce")
    page.page.click("#play")
    page.page.wait_for_timeout(1_500)
    assert page.text("#slot-name") == "07:00 to 08:00"
    page.wait("#slot-name:text('08:00 to')")


def test_keys_move_zoom_and_come_back(city, drawn):
    page = drawn(city)
    whole = page.page.get_attribute("#map", "viewBox")
    page.press("ArrowRight")
    first = page.text("#card")
    page.press("ArrowRight")
    assert page.text("#card") != first
    page.press("+", "+", "+", "+")
    assert float(page.page.get_attribute("#map", "viewBox").split()[2]) < float(whole.split()[2]) / 4
    for _ in range(12):
        page.press("ArrowLeft")
    x, y, width, height = map(float, page.page.get_attribute("#map", "viewBox").split())
    picked = page.page.evaluate(
        """(() => { const b = document.getElementById("pick").getBBox();
        return [b.x + b.width / 2, b.y + b.height / 2]; })()"""
    )
    assert x <= picked[0] <= x + width
    assert y <= picked[1] <= y + height
    page.press("0")
    assert page.page.get_attribute("#map", "viewBox") == whole


def test_a_zoomed_map_is_dragged_and_painted_where_it_lies(city, drawn):
    page = drawn(city)
    page.press("+", "+")
    before = page.page.get_attribute("#map", "viewBox")
    frame = page.page.locator("#map").bounding_box()
    x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    page.page.mouse.move(x, y)
    page.page.mouse.down()
    page.page.mouse.move(x + 60, y + 25, steps=4)
    page.page.mouse.up()
    assert page.page.get_attribute("#map", "viewBox") != before
    points, letters = middles(city), letters_now(city, Statistic.MEAN, 0)
    places = page.on_screen(points) - [frame["x"], frame["y"]]
    visible = ((places > 15) & (places < [frame["width"] - 15, frame["height"] - 15])).all(axis=1)
    assert 5 < visible.sum() < len(points)
    assert_painted(page.colours(points[visible]), letters[visible])


def test_the_table_lists_what_is_shown(rush_hours, drawn):
    page = drawn(rush_hours)
    page.page.click("#listing summary")
    page.wait("#listing tbody tr >> nth=0")
    lines = page.page.locator("#listing tbody tr")
    assert lines.count() == 37
    row = published_frame(rush_hours).iloc[0]
    assert row["h3"] in lines.first.inner_text()


def test_twenty_thousand_cells_are_drawn_and_found(make_release, drawn):
    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), 82)[:20_000]
    release = make_release(cells, statistics=(Statistic.MEAN, Statistic.VARIANCE))
    page = drawn(release)
    assert page.page.evaluate("document.documentElement.dataset.drawn") == "20000"
    x, y = page.on_screen(middles(release)[12_345:12_346])[0]
    page.page.mouse.move(x, y)
    assert f"{np.unique(release.cell)[12_345]:x}" in page.text("#card")
    page.page.click("#listing summary")
    page.wait("#listing tbody tr >> nth=0")
    assert page.page.locator("#listing tbody tr").count() == 2_000
    assert page.page.locator("#cut").is_visible()


@contextmanager
def served(folder):
    handler = partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
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
        assert "12.5 km/h" in page.text("#card")
        assert "11.25 to 13.75 km/h" in page.text("#card")
        assert set(page.asked) == {f"{address}/live.html", f"{address}/live.geojson"}
        assert page.complaints == []
        page.page.close()
