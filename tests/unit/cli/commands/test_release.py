"""`trafficdp release`, `releases`, `ledger`, `export`, `verify`: what they say and leave behind."""

import copy
import csv
import json
import re
from importlib import resources

import geopandas
import jsonschema
import pytest
import yaml

from trafficdp.cli.main import run

FILES = [
    *("cells.csv", "cells.parquet", "datapackage.json", "dataset.jsonld"),
    *("manifest.json", "map.geojson", "map.html", "mechanism.parquet"),
]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def weak(filled):
    """A city whose release would be too inaccurate."""
    filled.change("epsilon = 6", "epsilon = 0.01")
    return filled


def test_a_release_names_its_files_and_they_are_there(filled, command):
    result = command("release", "--yes")
    assert result.code == 0
    assert result.out.startswith("released r0001 for epsilon ")
    for name in FILES:
        assert f"city.store/releases/r0001/{name}" in result.out
    assert sorted(path.name for path in (filled.store / "releases/r0001").iterdir()) == FILES
    assert "uninformative" not in result.out


def test_release_as_json_names_loss_and_files(filled, command):
    facts = command("--json", "release", "--yes").json
    assert facts["release"] == "r0001"
    assert facts["files"] == FILES
    assert 0 < float(facts["epsilon"]) <= 6


def test_a_release_that_says_too_little_is_exit_5_with_a_way_out_and_changes_nothing(weak, refusal):
    before = weak.dump()
    message = refusal(5, "release", "--yes")
    assert "the release would be too inaccurate to publish; got an expected error of the mean of" in message
    assert " makes it pass: " in message
    assert "epsilon " in message
    assert weak.dump() == before


def test_force_releases_it_marked_and_the_manifest_says_so(weak, command):
    result = command("release", "--yes", "--force")
    assert result.code == 0
    assert "are marked as uninformative" in result.out
    folder = weak.store / "releases" / "r0001"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert '"forced": true' in json.dumps(manifest)
    rows = rows_of(folder / "cells.csv")
    assert {row["status"] for row in rows} <= {"uninformative", "withheld"}
    assert "uninformative" in {row["status"] for row in rows}
    assert command("verify", "r0001").code == 0


def test_what_needs_no_force_is_not_called_forced(released):
    manifest = (released.store / "releases/r0001/manifest.json").read_text()
    assert '"forced": false' in manifest
    assert '"forced": true' not in manifest


def test_the_count_of_numbers_and_withheld_bins_is_that_of_the_file(filled, command):
    filled.change("min_vehicles = 3", "min_vehicles = 100")
    said = command("release", "--yes").out.splitlines()[0]
    rows = rows_of(filled.store / "releases/r0001/cells.csv")
    withheld = sum(row["status"] == "withheld" for row in rows)
    assert withheld > 0
    assert said.endswith(f": {len(rows) - withheld} bins with numbers, {withheld} withheld")


def test_the_same_release_again_is_the_one_there_is_and_costs_nothing_unless_that_is_asked(filled, command):
    assert "at least epsilon 6 left" in command("release", "--yes").out
    before = command("--json", "ledger").json
    said = command("plan").out
    assert "Release r0001 is this same map of the same data" in said
    again = command("release", "--yes")
    assert "release r0001 is this same map of the same data, so nothing was charged" in again.out
    assert "at least epsilon 6 left" in again.out
    facts = command("--json", "release", "--yes").json
    assert (facts["release"], facts["charged"], facts["left"]) == ("r0001", False, "6")
    assert command("--json", "ledger").json == before
    facts = command("--json", "release", "--yes", "--again").json
    assert (facts["release"], facts["charged"], facts["left"]) == ("r0002", True, "0")


@pytest.mark.parametrize("spoil", ["withdrawn", "new data", "another map"])
def test_what_is_not_the_same_is_charged(filled, command, feed, spoil):
    assert command("--quiet", "release", "--yes").code == 0
    if spoil == "withdrawn":
        assert command("--quiet", "withdraw", "--yes", "r0001").code == 0
    elif spoil == "new data":
        row = feed("2026-03-03")[0].replace("T06:", "T09:")
        assert command("--quiet", "ingest", filled.write("more.csv", [row])).code == 0
    more = ("--resolution", "5") if spoil == "another map" else ()
    assert command("--json", "release", "--yes", *more).json["release"] == "r0002"


def test_the_map_that_was_suggested_is_released_without_editing_a_file(weak, command, refusal):
    refusal(5, "release", "--yes")
    refused = command("--json", "plan").json["suggestions"]
    assert refused["epsilon"] is not None
    before = weak.config.read_text()
    options = ("--resolution", "4", "--slot", "day", "--min-vehicles", "7", "--epsilon", "2")
    planned = command("--json", "plan", *options).json
    sizes = {"resolution": 4, "slot": "day", "min_vehicles": 7}
    assert planned["map"] == {**sizes, "slot_not_measured": None}
    assert planned["epsilon"] == "2"
    done = command("--json", "release", "--yes", *options).json
    manifest = json.loads((weak.store / "releases" / done["release"] / "manifest.json").read_text())
    assert manifest["coverage"]["resolution"] == 4
    assert weak.config.read_text() == before
    assert "resolution" in refusal(2, "plan", "--resolution", "16")
    assert "whole_period" in refusal(2, "plan", "--slot", "hourly")


def test_when_the_budget_is_the_obstacle_it_is_said_first(filled, command, refusal):
    assert command("--quiet", "release", "--yes", "--epsilon", "11.999").code == 0
    # so little is left that what could be paid would say too little as well
    assert "privacy budget exceeded" in refusal(3, "release", "--yes", "--epsilon", "0.01")
    assert "--within-budget" in refusal(3, "release", "--yes", "--epsilon", "0.01")
    assert command("plan", "--epsilon", "0.01").out.startswith("The budget does not allow this. ")


@pytest.fixture
def typed(on_terminal):
    """``typed(answers, ...)``: (code, what a terminal shows) of commands, one after the other, answered."""

    def typed(answers, *commands):
        def work():
            for arguments in commands:
                print(f"exit {run(arguments)}", flush=True)

        code, shown = on_terminal(work, answers)
        assert code == 0
        found = re.findall(r"(.*?) ?\bexit (\d+)", " ".join(shown.split()))
        assert len(found) == len(commands)
        return [(int(code), told) for told, code in found]

    return typed


def test_on_a_terminal_it_asks_before_it_charges_and_says_what_will_be_left(filled, typed):
    no, none, yes, free, again = typed(
        b"n\ny\n",
        ["release"],
        ["--json", "releases"],
        ["release"],
        # what costs nothing is not asked
        ["release"],
        ["release", "--again", "--yes"],
    )
    assert (no[0], "Nothing was charged." in no[1]) == (2, True)
    assert (
        "This charges 800 vehicles, each at most epsilon 6. Every one then has at least epsilon 6 left."
        in no[1]
    )
    assert '"releases": []' in none[1]
    assert (yes[0], "[y/N]" in yes[1], "released r0001" in yes[1]) == (0, True, True)
    assert (free[0], "[y/N]" in free[1], "nothing was charged" in free[1]) == (0, False, True)
    assert (again[0], "[y/N]" in again[1], "released r0002" in again[1]) == (0, False, True)


def test_on_a_terminal_it_asks_again_where_little_was_kept_of_what_is_new(filled, command, typed):
    rows = [
        "W-1,2026-03-02T23:00:00Z,48.2,16.3,5",
        *(f"W-{n},2026-03-02T23:00:00Z,16.3,48.2,5" for n in "234"),
    ]
    assert "WARNING" in command("ingest", filled.write("late.csv", rows)).err
    no, none, yes, again, last = typed(
        b"y\nn\ny\ny\nn\n",
        ["release"],
        ["--json", "releases"],
        ["release"],
        # what was asked once is not asked again
        ["release", "--again"],
        ["--json", "releases"],
    )
    asked = "For your eyes only, outside the privacy guarantee: ingest kept 1 of 4 rows of late.csv."
    assert (no[0], asked in no[1], "Nothing was charged." in no[1]) == (2, True, True)
    assert "r0001" not in none[1]
    assert (yes[0], asked in yes[1], "released r0001" in yes[1]) == (0, True, True)
    assert (again[0], asked in again[1]) == (2, False)
    assert "r0002" not in last[1]


def test_who_says_yes_before_is_told_nothing_of_the_rows(filled, command):
    before = command("release", "--yes")
    filled.write(
        "late.csv", ["W-1,2026-03-02T23:00:00Z,16.3,48.2,5", "W-2,2026-03-02T23:00:00Z,48.2,16.3,5"] * 2
    )
    assert command("ingest", "late.csv").code == 0
    after = command("release", "--yes")
    assert (after.code, after.err) == (before.code, before.err)
    assert "rows" not in after.out


def test_what_cannot_be_taken_back_is_asked_for_on_a_terminal(released, typed):
    no, still, withdrawn, forgot = typed(
        b"n\ny\nNOT-THERE\n\x04y\n",
        ["withdraw", "r0001"],
        ["--json", "releases"],
        ["withdraw", "r0001"],
        ["forget"],
    )
    assert (no[0], "Nothing was withdrawn." in no[1]) == (2, True)
    assert "removes the files and rows of r0001 for good. What it cost stays spent" in no[1]
    assert '"withdrawn"' not in still[1]
    assert (withdrawn[0], "withdrew r0001" in withdrawn[1]) == (0, True)
    assert (forgot[0], "the records of 1 identifier out of the store for good" in forgot[1]) == (0, True)


@pytest.mark.parametrize("arguments", [("release", "--again"), ("withdraw", "r0001"), ("forget",)])
def test_without_a_terminal_it_needs_yes_and_nothing_is_done_before(released, refusal, arguments):
    before = released.dump()
    assert "run the same command with --yes" in refusal(2, *arguments)
    assert released.dump() == before


def test_a_file_is_written_in_the_format_that_it_is_named_for(released, command, refusal):
    for name, format in (
        ("a.gpkg", "gpkg"),
        ("a.PARQUET", "geoparquet"),
        ("a.yaml", "registry"),
        ("a.fgb", "flatgeobuf"),
        ("a.shp.zip", "shapefile"),
    ):
        assert command("--json", "export", "r0001", name).json["format"] == format
    assert command("--json", "export", "r0001", "b.csv", "--to", "html").json["format"] == "html"
    assert "add --to FORMAT" in refusal(2, "export", "r0001", "map.kml")


def test_every_format_is_written_and_read_back(released, command):
    bins = len(rows_of(released.store / "releases/r0001/cells.csv"))
    maps = ("geojson", "gpkg", "flatgeobuf", "shapefile", "pmtiles")
    for name in (*maps, "csv", "geoparquet", "html", "registry"):
        out = released.folder / f"map.{name}"
        result = command("--json", "export", "r0001", "--to", name, out)
        assert result.json == {
            "release": "r0001",
            "format": name,
            "file": str(out),
            "bytes": out.stat().st_size,
        }
    assert len(geopandas.read_file(released.folder / "map.geojson")) == bins
    assert len(geopandas.read_file(released.folder / "map.gpkg", layer="trafficdp")) == bins
    assert len(geopandas.read_parquet(released.folder / "map.geoparquet")) == bins
    assert len(rows_of(released.folder / "map.csv")) == bins
    assert yaml.safe_load((released.folder / "map.registry").read_text())["tier"] == 3
    assert (released.folder / "map.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_exporting_costs_nothing_and_replaces_the_file_whole(released, command):
    before = command("--json", "ledger").json
    (released.folder / "out.csv").write_text("old " * 100_000)
    assert command("export", "r0001", "out.csv", "--to", "csv").code == 0
    assert (released.folder / "out.csv").read_bytes() == (
        released.store / "releases/r0001/cells.csv"
    ).read_bytes()
    assert command("--json", "ledger").json == before


def schema():
    text = resources.files("trafficdp.cli").joinpath("schemas/ledger.schema.json").read_text(encoding="utf-8")
    return json.loads(text)


def test_every_ledger_is_valid_by_its_schema(filled, command):
    def entries():
        facts = command("--json", "ledger").json
        jsonschema.validate(facts, schema())
        return [(entry["kind"], entry["release"]) for entry in facts["entries"]]

    assert entries() == [("promise", None)]
    assert command("--quiet", "release", "--yes").code == 0
    assert command("--quiet", "release", "--yes", "--epsilon", "5").code == 0
    assert command("--quiet", "withdraw", "--yes", "r0001").code == 0
    assert entries() == [
        ("promise", None),
        ("charge", "r0001"),
        ("publication", "r0001"),
        ("charge", "r0002"),
        ("publication", "r0002"),
        ("withdrawal", "r0001"),
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ledger: ledger.update(vehicle="x"),
        lambda ledger: ledger.pop("sum_of_maxima"),
        lambda ledger: ledger.update(largest_spent=6),
        lambda ledger: ledger["entries"][1].update(vehicle="x"),
        lambda ledger: ledger["entries"][1].update(kind="refund"),
        lambda ledger: ledger["entries"][1].update(epsilon=None),
        lambda ledger: ledger["entries"][1].update(epsilon="-1"),
        lambda ledger: ledger["entries"][2].update(epsilon="1"),
        lambda ledger: ledger["entries"][2].update(at="yesterday"),
        lambda ledger: ledger["entries"][2].update(sequence=0),
        lambda ledger: ledger["entries"][2].update(head_hash="x"),
    ],
)
def test_the_schema_of_the_ledger_is_strict(released, command, spoil):
    ledger = copy.deepcopy(command("--json", "ledger").json)
    spoil(ledger)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(ledger, schema())


def test_the_ledger_prints_exact_losses(filled, command):
    assert command("--quiet", "release", "--yes", "--epsilon", "5.123456789012").code == 0
    exact = command("--json", "ledger").json["entries"][1]["epsilon"]
    assert exact.startswith("5.12345678")
    assert exact in command("ledger").out
    assert exact in command("releases").out


def test_verify_lists_its_checks(released, command):
    result = command("--json", "verify", "r0001")
    assert result.json["verified"] is True
    assert len(result.json["checks"]) >= 8
    lines = command("verify", "r0001").out.splitlines()
    assert len(lines) == len(result.json["checks"])
    assert all(line.startswith("ok     ") for line in lines)


def test_status_counts_what_is_there(released, command):
    facts = command("--json", "status").json
    assert (facts["records"], facts["vehicles"], facts["files"], facts["releases"]) == (4800, 800, 2, 1)
    assert facts["unfinished"] == 0
    assert float(facts["budget"]) - float(facts["largest_spent"]) == pytest.approx(facts["left_pico"] / 1e12)
    assert "4,800 of 800 vehicles, from 2 files" in command("status").out


def test_the_demo_makes_a_map_that_verifies_and_says_where_it_is(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    result = command("demo", "--into", "city")
    assert (result.code, result.err) == (0, "")
    for name in ("map.html", "map.geojson", "manifest.json"):
        place = f"city/city.store/releases/r0001/{name}"
        assert place in result.out
        assert (tmp_path / place).is_file()
    assert command("--config", "city/trafficdp.toml", "verify", "r0001").code == 0
    assert "the demo's folder exists" in command("demo", "--into", "city").err
