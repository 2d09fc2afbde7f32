"""The figures on plans of the baseline that the guide tells of Austin's buses."""

import os
from pathlib import Path

import pytest

from trafficdp.cli.main import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
DAYS = ("2016-11-24", "2016-11-25", "2016-11-26", "2016-11-27")


@pytest.fixture(scope="module")
def austin(tmp_path_factory):
    feeds = os.environ.get("TRAFFICDP_REAL_DATA")
    if not feeds:
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    folder = tmp_path_factory.mktemp("austin")
    text = (ROOT / "pipelines" / "austin.toml").read_text(encoding="utf-8")
    (folder / "trafficdp.toml").write_text(text.replace("[map]", '[map]\nmechanism = "baseline"'))
    files = [str(Path(feeds) / "capmetro" / f"{day}.csv.gz") for day in DAYS]
    before = Path.cwd()
    try:
        os.chdir(folder)
        assert run(["--quiet", "init"]) == 0
        assert run(["--quiet", "ingest", *files]) == 0
    finally:
        os.chdir(before)
    return folder


@pytest.mark.real
def test_the_guide_tells_what_a_half_width_of_ten_miles_an_hour_takes(austin, command, monkeypatch, pages):
    monkeypatch.chdir(austin)
    told = pages.told("which-map")
    answer = command("--json", "plan", "--max-half-width", "10 mph").json["answer"]
    median, every = answer["loss_for_the_median_bin"], answer["loss_for_every_bin"]
    assert f"take epsilon {median} in the median hexagon of resolution 7, and {every} in every one" in told
    maps = command("--json", "plan", "--max-half-width", "10 mph", "--epsilon", "4").json["answer"]["maps"]
    fitting = {each["resolution"]: each for each in maps if each["fits"]}
    for resolution, words in (
        (7, "resolution 7 where at least {min_vehicles} buses drive ({bins} hexagons, {share} %"),
        (6, "resolution 6 from {min_vehicles} buses on ({bins} hexagons, {share} %)"),
        (4, "resolution 4 as it is ({bins} hexagons)"),
    ):
        found = fitting[resolution]
        assert words.format(share=round(100 * found["share_of_records"]), **found) in told
