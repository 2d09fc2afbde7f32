from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from dataclasses import replace

import h3
import numpy as np
import pytest

from trafficdp.errors import DataError
from trafficdp.export.files.classes import shown_numbers
from trafficdp.export.map.html_map import LIBRARY, html_bytes
from trafficdp.model import Statistic
from trafficdp.privacy.release import published_frame


def page_of(release):
    return html_bytes(release).decode()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def columns_of(page):
    """Every packed column by name, and those with thousandths as numbers with NaN for nothing."""
    text = re.search(r'<script type="text/plain" id="numbers">(.*?)</script>', page, re.S)[1]
    columns = unpacked(data_of(page)["parts"], text)
    for later in re.findall(r'<script type="application/json" class="later">(.*?)</script>', page, re.S):
        columns |= unpacked(**json.loads(later))
    return columns


def unpacked(parts, numbers):
    packed, start, columns = zlib.decompress(base64.b64decode(numbers)), 0, {}
    for part in parts:
        size = int(part["type"][1])
        piece = np.frombuffer(packed[start : start + part["length"] * size], np.uint8)
        start += len(piece)
        whole = np.frombuffer(piece.reshape(size, part["length"]).T.tobytes(), "<" + part["type"])
        if re.match(
            "(value|low|high|outer_low|outer_high|slower|faster|scheduled|share|share_low|share_high)_",
            part["name"],
        ):
            whole = np.where(whole == -(2**31), np.nan, whole / 1000)
        columns[part["name"]] = whole
    assert start == len(packed)
    return columns


def names_of(columns):
    return [
        f"{int(high) << 32 | int(low):x}"
        for high, low in zip(columns["h3_high"], columns["h3_low"], strict=True)
    ]


def test_nothing_on_the_page_asks_a_network(any_release):
    # what the library says of itself is text; that nothing is fetched is seen in the browser
    page = page_of(any_release).replace(LIBRARY["script"], "").replace(LIBRARY["css"], "")
    assert re.findall(r"""(?:https?:)?//[a-z0-9-]+\.[a-z]""", page) == []
    assert "@import" not in page
    assert '<link rel="icon" href="data:,">' in page
    assert "default-src 'none'" in page
    assert not re.search(r"<(?:script|img|iframe|source|link)[^>]+(?:src|href)=\"(?!data:)", page)


def test_every_cell_is_drawn_once(any_release):
    columns = columns_of(page_of(any_release))
    assert names_of(columns) == [f"{cell:x}" for cell in np.unique(any_release.cell)]
    assert columns["rings"].sum() == len(columns["corners"])
    assert columns["corners"].sum() == len(columns["dx"]) == len(columns["dy"])


def test_the_page_carries_the_published_numbers(rush_hours):
    page, table = page_of(rush_hours), published_frame(rush_hours)
    columns, names = columns_of(page), np.array(names_of(columns_of(page)))
    assert data_of(page)["slots"] == ["07:00 to 08:00", "08:00 to 09:00", "17:00 to 18:00"]
    for place, slot in enumerate([7, 8, 17]):
        rows = table[table["slot"] == slot]
        assert names[columns[f"cell_{place}"]].tolist() == list(rows["hex_id"])
        for number, statistic in enumerate(rush_hours.estimates):
            shown = shown_numbers(rows, statistic, rush_hours.request.display_unit)
            for name, expected in zip(("value", "low", "high"), shown, strict=True):
                np.testing.assert_array_equal(columns[f"{name}_{place}_{number}"], expected)


def test_the_page_carries_what_a_posterior_says(pooled, scheduled):
    assert "timetable" not in page_of(pooled).partition("<main>")[2].partition("<aside>")[0]
    page, table = page_of(scheduled), published_frame(scheduled)
    columns, statistics = columns_of(page), data_of(page)["statistics"]
    own = statistics[0]["columns"]
    assert own["low"] == "speed_mean_kmh_low_80"
    assert own["outer_low"] == "speed_mean_kmh_low"
    for name, column in own.items():
        np.testing.assert_array_equal(columns[f"{name}_0_0"], table[column], err_msg=name)
    assert {"share_low", "scheduled"} < own.keys()
    assert [each["chances"] for each in statistics] == [True, False, False]
    assert [each["timetable"] for each in statistics] == [True, False, False]
    assert [each["often"] for each in statistics] == ["4 times in 5", *["at least 19 times in 20"] * 2]
    assert not {"slower_0_1", "outer_low_0_1"} & columns.keys()


def test_the_page_says_how_intervals_without_a_theorem_did_elsewhere(city, pooled):
    assert "<strong>Mean:</strong> Tuned on simulated days.</p>" in page_of(pooled)
    assert "calibration" not in page_of(city).split("</style>")[-1].split("<script")[0]
    # what is guaranteed is said of the others alone
    guaranteed = "<strong>{}:</strong> at least 19 times in 20 the statistic of the clipped speeds"
    assert guaranteed.format("Standard deviation, Mean by vehicle") in page_of(pooled)
    assert guaranteed.format("Mean, Standard deviation, Mean by vehicle") in page_of(city)


def test_the_chance_to_be_slower_is_a_choice_only_where_something_is_known_of_it(city, pooled):
    assert '<option value="slower">' in page_of(pooled)
    assert '<option value="slower">' not in page_of(city)


def test_counts_are_on_the_page_only_when_they_are_public(city, calendar):
    assert not {"vehicles_0", "records_0"} & columns_of(page_of(city)).keys()
    columns = columns_of(page_of(calendar))
    rows = calendar.slot == np.unique(calendar.slot)[1]
    np.testing.assert_array_equal(columns["vehicles_1"], calendar.vehicles[rows])
    np.testing.assert_array_equal(columns["records_1"], calendar.records[rows])


def test_a_withheld_cell_is_said_to_be_in_the_legend(city):
    assert "withheld: fewer than 5 vehicles" in page_of(city)


@pytest.mark.slow
def test_the_first_slot_stands_before_the_script_and_every_other_behind_it(rush_hours):
    first, *later = page_of(rush_hours).split('<script type="application/json" class="later">')
    assert "DecompressionStream" in first
    assert len(later) == 2
    assert not set(columns_of(first)) & {"cell_1", "cell_2"}
    assert set(columns_of(first)) > {"cell_0", "value_0_0", "dx", "places"}


def test_a_page_of_twenty_thousand_cells_takes_less_than_a_megabyte(make_release):
    cells = h3.grid_disk(h3.latlng_to_cell(30.27, -97.74, 9), 81)[:20_000]
    statistics = (Statistic.MEAN, Statistic.VARIANCE)
    assert len(html_bytes(make_release(cells, statistics=statistics))) < 1_000_000


def test_the_first_of_many_slots_needs_few_bytes(large_city):
    """What a telephone must have read before it draws."""
    first, *later = html_bytes(large_city).split(b'<script type="application/json" class="later">')
    assert len(later) == 23
    assert len(first) < 430_000
    assert len(gzip.compress(first)) < 180_000


def test_the_slot_slider_is_there_only_with_several_slots(city, rush_hours):
    assert '<input type="range" id="slot"' not in page_of(city)
    assert '<input type="range" id="slot" min="0" max="2"' in page_of(rush_hours)


def test_the_promise_is_on_the_page(city):
    page = page_of(city)
    assert "How fast any one vehicle drove" in page
    assert "where and when it drove" in page
    assert 'href="manifest.json"' in page
    assert "Traffic speeds: Austin" in page


def test_a_forced_release_says_so(city):
    honesty = replace(city.disclosure.honesty, forced=True)
    forced = replace(city, disclosure=replace(city.disclosure, honesty=honesty))
    assert "Released in spite of a warning" in page_of(forced)
    assert "Released in spite of a warning" not in page_of(city)


def test_names_cannot_break_out_of_the_page(make_release, city):
    import h3

    from trafficdp.model import SlotKind
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
    assert page.count("</script>") == 5
    assert "&lt;script&gt;alert(1)" in page


def test_the_same_release_gives_the_same_bytes(rush_hours):
    assert html_bytes(rush_hours) == html_bytes(rush_hours)


def test_a_release_without_bins_has_no_map(city):
    empty = replace(city, cell=city.cell[:0], slot=city.slot[:0], status=city.status[:0], estimates={})
    with pytest.raises(DataError, match="no bins"):
        html_bytes(empty)
