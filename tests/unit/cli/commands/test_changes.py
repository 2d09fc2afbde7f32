"""`trafficdp changes`: what became slower or faster, on a terminal, as files and as a page, for nothing."""

import json
import re

import pandas as pd

from trafficdp.export.report.change_files import LIKELY
from trafficdp.mechanisms.several_maps import CHANGED


def test_changes_are_told_and_cost_nothing(twice, command):
    before = command("--json", "ledger").json
    told = command("changes", "r0001", "r0002")
    assert told.code == 0
    found = command("--json", "changes", "r0001", "r0002").json
    assert command("--json", "ledger").json == before
    rows = pd.DataFrame(found["changes"])
    likely = {word: int((rows[f"{word}_chance"] >= LIKELY).sum()) for word in ("slower", "faster")}
    assert {word: found[word] for word in likely} == likely
    assert (found["earlier"], found["release"], found["changed_by"]) == ("r0001", "r0002", CHANGED)
    assert f"Of {len(rows)} numbers in both, {likely['slower']} are likely slower" in " ".join(
        told.out.split()
    )
    assert (rows.change_ms_low_95 <= rows.change_ms_low_80).all()
    assert (rows.change_ms_low_80 <= rows.change_ms).all()
    assert (rows.change_ms <= rows.change_ms_high_80).all()
    assert (rows.slower_chance + rows.faster_chance <= 1.001).all()


def test_files_say_the_same(twice, command, tmp_path):
    rows = command("--json", "changes", "r0001", "r0002").json["changes"]
    files = {
        ending: tmp_path / f"changes.{ending}" for ending in ("csv", "parquet", "json", "geojson", "html")
    }
    for path in files.values():
        assert command("changes", "r0001", "r0002", "--output", path).code == 0
    assert pd.read_parquet(files["parquet"]).to_dict("records") == rows
    assert pd.read_csv(files["csv"]).to_dict("records") == rows
    assert json.loads(files["json"].read_text(encoding="utf-8")) == rows
    features = json.loads(files["geojson"].read_text(encoding="utf-8"))["features"]
    assert [each["properties"] for each in features] == rows
    assert {each["geometry"]["type"] for each in features} == {"Polygon"}
    page = files["html"].read_text(encoding="utf-8")
    assert "Changes of speed in Small City" in page
    for word in ("slower", "faster"):
        listed = sum(row[f"{word}_chance"] >= LIKELY for row in rows)
        table = re.search(f"<caption>Likely {word} than before.*?</table>", page, re.DOTALL)
        assert (table[0].count("<tr>") - 1 if table else 0) == listed


def test_the_table_answers_sql(twice, command, tmp_path):
    assert command("changes", "r0001", "r0002", "--output", tmp_path / "changes.parquet").code == 0
    many = len(pd.read_parquet(tmp_path / "changes.parquet"))
    asked = "SELECT count(*) AS many FROM changes WHERE slower_chance <= 1"
    told = command("--json", "sql", asked, "--with", tmp_path / "changes.parquet")
    assert told.json["rows"] == [{"many": many}]


def test_what_cannot_be_done_is_one_line_and_exit_code_2(twice, refusal):
    assert "r0009" in refusal(2, "changes", "r0001", "r0009")
    assert "itself" in refusal(2, "changes", "r0001", "r0001")
    for file, said in (
        ("page.doc", "csv, geojson, html, json, parquet"),
        ("nowhere/page.html", "folder that does not exist"),
    ):
        assert said in refusal(2, "changes", "r0001", "r0002", "--output", file)


def test_maps_of_other_places_or_slots_are_refused_by_what_differs(twice, command):
    twice.change("resolution = 6", "resolution = 7")
    assert command("release", "--yes", "--force").code == 0
    assert "differ in their places" in command("changes", "r0001", "r0003").err
