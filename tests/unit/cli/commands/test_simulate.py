"""`trafficdp simulate`: what it writes is what it says, and the five commands work on it."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_says_what_it_made(command, there):
    result = command("--json", "simulate", "--vehicles", "20", "--days", "1", "--resolution", "6")
    assert (result.code, result.err) == (0, "")
    made = result.json
    assert Path(made["folder"]) == Path("simulated")
    assert sum(pq.read_metadata(feed).num_rows for feed in made["feeds"]) == made["rows"]
    truth = pq.read_table(made["truth"]).to_pandas()
    assert truth.records.sum() == made["records"] < made["rows"]
    assert "resolution = 6" in Path(made["configuration"]).read_text(encoding="utf-8")


def test_the_city_can_be_released(command, there):
    assert command("simulate", "--vehicles", "30", "--days", "1", "--into", "city").code == 0
    options = ("--config", "city/trafficdp.toml", "--store", "store")
    assert command(*options, "init").code == 0
    feeds = sorted(map(str, Path("city").glob("records-*.parquet")))
    assert command(*options, "ingest", *feeds).code == 0
    result = command(*options, "release", "--yes", "--force")
    assert (result.code, result.err) == (0, "")


def test_a_variation_is_another_city(command, there):
    rows = {}
    for name in ("usual", "half_speeds"):
        result = command("--json", "simulate", "--vehicles", "20", "--days", "1", "--into", name,
                         "--variation", name)  # fmt: skip
        rows[name] = result.json["rows"]
    # as far at half the speed takes twice as long
    assert rows["half_speeds"] > 1.5 * rows["usual"]


def test_a_city_like_a_released_map(command, there, released):
    (map_file,) = released.store.glob("releases/*/map.geojson")
    result = command("simulate", "--vehicles", "5", "--days", "1", "--like", str(map_file))
    assert (result.code, result.err) == (0, "")
    assert "truth" in result.out
    other = there / "other.geojson"
    other.write_text("{}", encoding="utf-8")
    assert command("simulate", "--into", "other", "--like", str(other)).code == 4


@pytest.mark.parametrize(
    "wrong", [("--vehicles", "0"), ("--variation", "usuall"), ("--into", "."), ("--like", "none.geojson")]
)
def test_a_wrong_call_is_told_and_leaves_nothing(command, there, wrong):
    result = command("simulate", *wrong)
    assert result.code == 2
    assert len(result.err.splitlines()) == 1
    assert not list(there.iterdir())
