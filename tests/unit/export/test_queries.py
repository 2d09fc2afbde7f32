"""The ten questions of the guide give what the published table says, computed another way."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import duckdb
import h3
import numpy as np
import pages
import pandas as pd
import pytest

from trafficdp.export.report.change_files import ChangeTable
from trafficdp.export.write import write_release
from trafficdp.privacy.release import published_frame

GUIDE = "docs/guides/queries.md"
PLAIN = """
import json, sys
import duckdb
questions = json.load(sys.stdin)
print(json.dumps([duckdb.sql(each).fetchall() for each in questions], default=str))
assert not {"trafficdp", "pandas"} & {name.partition(".")[0] for name in sys.modules}
"""
"""What anybody runs in the folder of a release who has DuckDB and nothing of ours."""
ENDS = ["speed_mean_kmh", "speed_mean_kmh_low", "speed_mean_kmh_high"]


@pytest.fixture(scope="module")
def table(rush_hours):
    return published_frame(rush_hours)


@pytest.fixture(scope="module")
def known(table):
    return table[table.status.isin(["released", "constant"])]


@pytest.fixture(scope="module")
def joined(table):
    """What the guide joins: a corridor, districts, schools in the middle and beside it."""
    cells = sorted(table.hex_id.unique())
    points = [h3.cell_to_latlng(cell) for cell in cells]
    return {
        "corridor.csv": pd.DataFrame({"hex_id": cells[3:12], "km": np.linspace(0.4, 1.2, 9)}),
        "districts.csv": pd.DataFrame(
            {
                "hex_id": cells,
                "district": np.where(np.arange(len(cells)) % 3 == 0, "North", "South"),
                "people": np.arange(len(cells)) * 100 + 50,
            }
        ),
        "schools.csv": pd.DataFrame(
            {
                "school": [f"School {number}" for number in range(len(cells))],
                "lon": [lng + 0.003 for _, lng in points],
                "lat": [lat - 0.002 for lat, _ in points],
            }
        ),
    }


@pytest.fixture(scope="module")
def ask(rush_hours, joined, make_release, tmp_path_factory):
    """``ask(number)``: the rows of a question of the guide, in the folder of a release."""
    folder = tmp_path_factory.mktemp("release")
    write_release(rush_hours, folder)
    cells = sorted(published_frame(rush_hours).hex_id.unique())
    other = make_release(
        cells, slot_kind=rush_hours.grid.slot_kind, slots=dict(rush_hours.slots), first_seed=50
    )
    changed = ChangeTable.of(rush_hours, replace(other, id="R0000"))
    changed.write(folder / "changes.parquet")
    for name, rows in joined.items():
        rows.to_csv(folder / name, index=False)
    questions = pages.blocks(GUIDE, "sql")
    assert len(questions) == 10
    assert re.findall(r"(?m)^## (\d+)\.", pages.text(GUIDE)) == [str(number) for number in range(1, 11)]

    def answer(number, format="parquet"):
        text = questions[number - 1]
        text = re.sub(r"'(\w+\.\w+)'", lambda found: f"'{folder / found[1]}'", text)
        with duckdb.connect() as connection:
            return connection.sql(text.replace("cells.parquet", f"cells.{format}")).df()

    answer.changed, answer.folder, answer.questions = changed, folder, questions
    return answer


@pytest.mark.parametrize("number", range(1, 10))
def test_the_csv_gives_the_same_answer(ask, number):
    pd.testing.assert_frame_equal(ask(number, "csv"), ask(number), check_dtype=False)


def test_a_process_that_has_nothing_of_ours_gets_the_same_answers(ask):
    found = subprocess.run(
        [sys.executable, "-I", "-c", PLAIN],
        input=json.dumps(ask.questions),
        cwd=ask.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    for number, rows in enumerate(json.loads(found.stdout), 1):
        expected = ask(number)
        assert len(expected)
        pd.testing.assert_frame_equal(
            pd.DataFrame(rows, columns=expected.columns), expected, check_dtype=False
        )


def test_1_slow_for_certain(ask, known):
    expected = known.sort_values(["speed_mean_kmh_high", "hex_id"]).head(10)
    pd.testing.assert_frame_equal(
        ask(1), expected[["place", "slot_label", *ENDS]].reset_index(drop=True), check_dtype=False
    )


def test_2_worst_hour(ask, known):
    found = ask(2).set_index("hex_id")
    assert len(found) > 20
    assert found.for_certain.nunique() == 2
    for hex_id, rows in known.groupby("hex_id"):
        if len(rows) > 1:
            worst = rows.loc[rows.speed_mean_kmh.idxmin()]
            assert found.worst[hex_id] == worst.slot_label
            clear = (worst.speed_mean_kmh_high < rows.speed_mean_kmh_low).any()
            assert found.for_certain[hex_id] == clear
        else:
            assert hex_id not in found.index


def test_3_the_day(ask, known):
    expected = known.groupby("slot").speed_mean_kmh.agg(["mean", "count"])
    assert np.allclose(ask(3).speed, expected["mean"])
    assert ask(3).hexagons.tolist() == expected["count"].tolist()


def test_4_share_below_a_limit(ask, known):
    low, high = known.speed_mean_kmh_low, known.speed_mean_kmh_high
    expected = [(high < 20).sum(), ((low < 20) & (high >= 20)).sum(), (low >= 20).sum()]
    assert ask(4).iloc[0].tolist() == expected
    assert sum(expected) == len(known)


def test_5_least_steady(ask, table):
    rows = table[(table.speed_mean_status == "released") & (table.speed_variance_status == "released")]
    share = np.sqrt(rows.speed_variance_kmh2_low) / rows.speed_mean_kmh_high
    assert np.allclose(ask(5).at_least_of_the_mean, share.sort_values(ascending=False).head(10))


def test_6_corridor(ask, known, joined):
    rows = joined["corridor.csv"].merge(known, on="hex_id")
    rows["minutes"] = 60 * rows.km / rows.speed_mean_kmh
    expected = rows.groupby("slot")[["km", "minutes"]].sum()
    assert np.allclose(ask(6)[["km", "minutes"]], expected)
    assert (ask(6).at_best <= ask(6).minutes).all()


def test_7_districts(ask, known, joined):
    rows = joined["districts.csv"].merge(known[known.slot == 8], on="hex_id")
    for district, some in rows.groupby("district"):
        found = ask(7).set_index("district").loc[district]
        assert np.isclose(found.speed, some.speed_mean_kmh.mean())
        assert np.isclose(found.speed_where_people_live, np.average(some.speed_mean_kmh, weights=some.people))


def test_8_larger_hexagons(ask, known):
    parents = known.assign(parent=[h3.cell_to_parent(cell, 6) for cell in known.hex_id])
    expected = parents.groupby(["parent", "slot"]).speed_mean_kmh.mean()
    assert ask(8).parent.tolist() == expected.index.get_level_values("parent").tolist()
    assert np.allclose(ask(8).speed, expected)


def test_9_change(ask):
    changed = ask.changed
    likely = changed.table.iloc[[*changed.slower, *changed.faster]]
    expected = likely.sort_values(["change_kmh", "hex_id", "slot"])
    assert 0 < len(expected) < len(changed.table)
    assert ask(9).hex_id.tolist() == expected.hex_id.tolist()
    assert np.allclose(ask(9).change_kmh, expected.change_kmh)


def test_10_points(ask, joined):
    schools = joined["schools.csv"].sort_values("school")
    inside = [h3.latlng_to_cell(lat, lon, 7) for lat, lon in zip(schools.lat, schools.lon, strict=True)]
    assert ask(10).hex_id.tolist() == inside
