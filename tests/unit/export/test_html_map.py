from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from trafficdp.errors import DataError
from trafficdp.export.html_map import html_bytes, write_html


def page_of(release):
    return html_bytes(release).decode()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_nothing_on_the_page_asks_a_network(any_release):
    page = page_of(any_release)
    assert re.findall(r"""(?:https?:)?//[a-z0-9-]+\.[a-z]""", page) == []
    assert "@import" not in page
    assert '<link rel="icon" href="data:,">' in page
    assert "default-src 'none'" in page
    assert not re.search(r"<(?:script|img|iframe|source|link)[^>]+(?:src|href)=\"(?!data:)", page)


def test_every_cell_is_drawn_once(any_release):
    page = page_of(any_release)
    cells = re.search(r'<g id="cells">(.*?)</g>', page, re.S)[1]
    assert cells.count("<path") == len(np.unique(any_release.cell)) == len(data_of(page)["cells"])


def test_the_page_carries_the_published_numbers(rush_hours):
    from trafficdp.privacy.published import published_frame

    data, table = data_of(page_of(rush_hours)), published_frame(rush_hours)
    assert len(data["views"]) == 3
    for slot, view in zip([7, 8, 17], data["views"], strict=True):
        rows = table[table["slot"] == slot]
        assert [data["cells"][cell] for cell in view["bins"]] == list(rows["h3"])
        value = [None if each != each else each for each in rows["speed_mean_kmh"]]
        assert view["statistics"][0]["value"] == value


def test_a_withheld_cell_is_grey_and_said_to_be(city):
    data = data_of(page_of(city))
    letters, status = data["views"][0]["statistics"][0]["letters"], city.status
    assert [letter == "w" for letter in letters] == [each == "withheld" for each in status]
    assert [letter == "u" for letter in letters] == [each == "uninformative" for each in status]
    assert "withheld: fewer than 5 vehicles" in page_of(city)


def test_a_cell_without_a_bin_in_a_slot_has_its_own_look(rush_hours):
    keep = np.ones(rush_hours.bins, dtype=bool)
    keep[0] = False
    estimates = {
        statistic: replace(
            estimate,
            **{
                name: getattr(estimate, name)[keep]
                for name in (
                    "value", "low", "high", "noise_scale", "expected_error", "status",
                )
            },
            recipe={name: values[keep] for name, values in estimate.recipe.items()},
        )
        for statistic, estimate in rush_hours.estimates.items()
    }  # fmt: skip
    fewer = replace(
        rush_hours,
        cell=rush_hours.cell[keep],
        slot=rush_hours.slot[keep],
        status=rush_hours.status[keep],
        estimates=estimates,
    )
    views = data_of(page_of(fewer))["views"]
    assert [view["statistics"][0]["letters"].count("n") for view in views] == [1, 0, 0]
    assert len(views[0]["bins"]) == len(views[1]["bins"]) - 1


def test_hatching_in_the_legend_is_as_fine_as_on_the_map(any_release):
    page = page_of(any_release)
    size = int(re.search(r'<pattern id="h0" patternUnits="userSpaceOnUse" width="(\d+)"', page)[1])
    swatches = re.findall(r'<svg aria-hidden="true" viewBox="0 0 (\d+) ', page)
    assert swatches
    assert {int(width) for width in swatches} == {4 * size}


def test_the_slot_list_is_there_only_with_several_slots(city, rush_hours):
    assert 'id="slot"' not in page_of(city)
    assert page_of(rush_hours).count("<option") == 3 + 3


def test_the_promise_is_on_the_page(city):
    page = page_of(city)
    assert "How fast any one vehicle drove" in page
    assert "where and when it drove" in page
    assert 'href="manifest.json"' in page
    assert "Traffic speeds: Austin" in page


def test_a_forced_release_says_so(city):
    honesty = {**city.disclosure["honesty"], "forced": True}
    forced = replace(city, disclosure={**city.disclosure, "honesty": honesty})
    assert "Released in spite of a warning" in page_of(forced)
    assert "Released in spite of a warning" not in page_of(city)


def test_names_cannot_break_out_of_the_page(make_release, city):
    import h3

    from trafficdp.model.slot import SlotKind
    from trafficdp.privacy.release import SlotFacts

    evil = '</script><script>alert(1)</script>"&'
    page = page_of(
        make_release(
            [h3.latlng_to_cell(30.27, -97.74, 7)],
            place=evil,
            slot_kind=SlotKind.DAY_PART,
            slots={0: SlotFacts(evil, None, None), 1: SlotFacts("day", None, None)},
        )
    )
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert "&lt;script&gt;alert(1)" in page


def test_the_same_release_gives_the_same_bytes(rush_hours, tmp_path):
    write_html(rush_hours, tmp_path / "map.html")
    assert (tmp_path / "map.html").read_bytes() == html_bytes(rush_hours)


def test_a_release_without_bins_has_no_map(city):
    empty = replace(city, cell=city.cell[:0], slot=city.slot[:0], status=city.status[:0], estimates={})
    with pytest.raises(DataError, match="no bins"):
        html_bytes(empty)


def test_a_release_without_disclosure_has_no_map(city):
    with pytest.raises(DataError, match="disclosure"):
        html_bytes(replace(city, disclosure={}))


@pytest.fixture
def chromium(tmp_path):
    """Runs headless Chromium on a page and returns the DOM after its scripts, and what it logged."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium on this machine, and CI may not skip the browser tests")
        pytest.skip("no chromium on this machine")

    def dump(page: str) -> tuple[str, str]:
        target = tmp_path / "map.html"
        target.write_text(page, "utf-8")
        ran = subprocess.run(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                "--enable-logging=stderr", "--log-level=0", "--virtual-time-budget=5000",
                f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", target.as_uri(),
            ],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return ran.stdout, "\n".join(line for line in ran.stderr.splitlines() if "CONSOLE" in line)

    return dump


@pytest.mark.browser
@pytest.mark.parametrize("name", ["city", "rush_hours", "fiji", "globe"])
def test_the_map_is_drawn_in_a_browser_without_network_or_complaint(name, chromium, request):
    release = request.getfixturevalue(name)
    dom, console = chromium(page_of(release))
    cells = len(np.unique(release.cell))
    assert console == ""
    assert f'data-drawn="{cells}"' in dom
    assert len(re.findall(r'<path class="k[0-6a-guwn]" d="M', dom)) == cells
    assert re.search(rf'id="summary"[^>]*>{(release.slot == release.slot[0]).sum()} cells: ', dom)


@pytest.mark.browser
def test_choosing_statistic_slot_and_cell_changes_what_is_shown(rush_hours, chromium):
    clicks = """<script>
    document.getElementById("listing").open = true;
    document.getElementById("statistic").value = "1";
    document.getElementById("statistic").dispatchEvent(new Event("change"));
    document.getElementById("later").click();
    var map = document.getElementById("map");
    map.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
    map.dispatchEvent(new KeyboardEvent("keydown", {key: "+"}));
    </script></body>"""
    page = page_of(rush_hours)
    dom, console = chromium(page.replace("</body>", clicks))
    row = data_of(page)["views"][1]["statistics"][1]
    card = re.search(r'id="card">(.*?)</section>', dom, re.S)[1]
    assert console == ""
    assert f"{row['value'][0]:g} (km/h)²" in card if row["value"][0] is not None else "withheld" in card
    assert "08:00 to 09:00" in card
    shown = re.findall(r'<path class="k(.)" d="M', dom)
    assert "".join(shown) == row["letters"]
    assert re.findall(r'<section class="legend" data-statistic="(\d)">', dom) == ["1"]
    assert re.search(r'class="zoomed"', dom)


@pytest.mark.browser
def test_the_browser_test_sees_a_broken_script(city, chromium):
    dom, console = chromium(page_of(city).replace("JSON.parse(", "JSON.parze("))
    assert "data-drawn" not in dom
    assert "parze" in console
