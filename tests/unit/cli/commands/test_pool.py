"""`trafficdp pool`: one map of several releases, on a terminal and as files, for nothing."""

import json
import re
from itertools import pairwise

import pandas as pd
import pytest


@pytest.fixture
def two_days(filled, command):
    """A city with a release of either day."""
    filled.change("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 20")
    filled.promise()
    period = r"period = \{.*?\}"
    text = filled.config.read_text(encoding="utf-8")
    for day in re.findall(r"\d{4}-\d\d-\d\d", re.search(period, text)[0]):
        own = f'period = {{ from = "{day}", to = "{day}" }}'
        filled.config.write_text(re.sub(period, own, text), encoding="utf-8")
        assert command("release", "--yes", "--force", "--epsilon", "4").code == 0
    return filled


def test_one_map_of_two_days_is_told_and_costs_nothing(two_days, command, tmp_path):
    before = command("--json", "ledger").json
    found = command("--json", "pool", "r0002", "r0001").json
    assert command("--json", "ledger").json == before
    assert found["releases"] == ["r0001", "r0002"]
    told = command("pool", "r0001", "r0002")
    assert f"weighted by {found['weighted_by']}: {len(found['bins'])} numbers" in " ".join(told.out.split())
    rows = pd.DataFrame(found["bins"])
    assert rows.periods.between(1, 2).all()
    names = ("low", "low_80", "low_50", "high_50", "high_80", "high")
    ends = [rows[f"speed_mean_ms_{name}"] for name in names]
    assert all((one <= other).all() for one, other in pairwise(ends))
    assert found["expected_error"] == pytest.approx(rows.speed_mean_ms_expected_error.mean())
    page = tmp_path / "month.html"
    assert command("pool", "r0001", "r0002", "--output", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert "2 releases as one map: r0001 and r0002." in text
    assert text.count('<tr><th scope="row">') == len(rows)
    slowest = rows.loc[rows.speed_mean_ms.idxmin()]
    assert text.index(f"<td>{slowest.hex_id}</td>") == min(
        text.index(f"<td>{each}</td>") for each in rows.hex_id
    )
    files = {ending: tmp_path / f"month.{ending}" for ending in ("csv", "parquet", "json", "geojson")}
    for path in files.values():
        assert command("pool", "r0001", "r0002", "--output", path).code == 0
    assert pd.read_parquet(files["parquet"]).to_dict("records") == found["bins"]
    assert pd.read_csv(files["csv"]).to_dict("records") == found["bins"]
    features = json.loads(files["geojson"].read_text(encoding="utf-8"))["features"]
    assert [each["properties"] for each in features] == found["bins"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("r0001",), "two releases or more"),
        (("r0001", "r0001"), "two releases or more"),
        (("r0001", "r0009"), "r0009"),
        (("r0001", "r0002", "--output", "month.doc"), "csv, geojson, html, json, parquet"),
    ],
)
def test_what_cannot_be_pooled_is_one_line_and_exit_code_2(two_days, command, arguments, said):
    result = command("pool", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1


def test_records_are_not_counted_twice(two_days, command):
    assert command("release", "--yes", "--force", "--epsilon", "4", "--again").code == 0
    assert "overlapping periods" in command("pool", "r0001", "r0002", "r0003").err
    two_days.change("resolution = 6", "resolution = 7")
    assert command("release", "--yes", "--force", "--epsilon", "4").code == 0
    assert "differ in their places" in command("pool", "r0001", "r0004").err


def test_a_site_links_what_changed_since_the_map_of_earlier_days(two_days, command, tmp_path):
    site = tmp_path / "site"
    assert command("site", site).code == 0
    for folder in ("latest", "r0002"):
        assert "What changed" in (site / folder / "index.html").read_text(encoding="utf-8")
        assert "Changes of speed in" in (site / folder / "changes.html").read_text(encoding="utf-8")
    assert 'href="latest/changes.html"' in (site / "index.html").read_text(encoding="utf-8")
    assert not (site / "r0001" / "changes.html").exists()
    assert command("withdraw", "--yes", "r0001").code == 0
    assert command("site", site).code == 0
    assert not [*site.rglob("changes.html")]
