"""`trafficdp site`: the folder that a city puts on a web server."""

import json
import os

import pytest

QUESTION = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, force = TRUE) AVG(speed) AS mean FROM records"
)
NEWSROOM = '[[analysts]]\nname = "newsroom"\nepsilon_per_vehicle = 2\n'


@pytest.fixture
def asked(filled, command):
    """A city with a map, a withdrawn one, another map and the answer to a question."""
    filled.change("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 20")
    filled.config.write_text(f"{filled.config.read_text()}\n{NEWSROOM}")
    filled.promise()
    for _ in range(3):
        assert command("release", "--yes", "--again").code == 0
    assert command("withdraw", "r0002", "--yes").code == 0
    assert command("sql", "--as", "newsroom", QUESTION).code == 0
    return filled


def test_maps_are_published_and_answers_where_they_are_asked_for(asked, command, tmp_path):
    site = tmp_path / "site"
    result = command("site", str(site))
    assert result.code == 0
    assert "index.html" in result.out
    assert {*os.listdir(site)} == {
        *("index.html", "catalog.jsonld", "site.json"),
        *("latest", "r0001", "r0002", "r0003"),
    }
    assert os.listdir(site / "r0002") == ["index.html"]
    assert "against" not in (site / "r0001/report.html").read_text("utf-8")
    # the map before it of the same area is the one that was not withdrawn since
    assert "release r0001" not in (site / "r0003/report.html").read_text("utf-8")
    assert command("--json", "site", str(site), "--answers").json["changed"][0] == "r0004/cells.csv"
    assert "AVG(speed)" in (site / "r0004/index.html").read_text("utf-8")
    latest = json.loads((site / "latest/manifest.json").read_text("utf-8"))
    assert latest["identity"]["release"] == "r0003"
    changed = command("--json", "site", str(site)).json["changed"]
    assert not (site / "r0004").exists()
    assert "index.html" in changed


def test_a_site_costs_nothing_and_says_the_same_twice(released, command, tmp_path):
    before = command("--json", "ledger").json
    first = command("--json", "site", str(tmp_path / "one")).json["changed"]
    assert command("--json", "site", str(tmp_path / "two")).json["changed"] == first
    assert command("--json", "site", str(tmp_path / "two")).json["changed"] == []
    for name in first:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert command("--json", "ledger").json == before


def test_a_store_without_releases_makes_a_page_that_says_so(filled, command, tmp_path):
    assert command("site", str(tmp_path / "site")).code == 0
    assert "Nothing is published yet" in (tmp_path / "site/index.html").read_text("utf-8")


def test_the_store_is_no_site(released, command):
    result = command("site", str(released.store))
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "not a site" in result.err
