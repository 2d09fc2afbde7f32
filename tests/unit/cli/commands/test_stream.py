"""`trafficdp stream`: what it says and leaves behind."""

import json
import os
from datetime import date, timedelta
from importlib import resources

import jsonschema
import pytest

from trafficdp.ingest import read as ingest_read

STREAM = "[stream]\npublish_every = 5\nlateness = 1\nrecords_per_vehicle = 200\n\n[[source]]"


@pytest.fixture
def live(empty):
    empty.change("[[source]]", STREAM)
    return empty


def test_a_replay_publishes_and_says_where(live, command):
    result = command("stream", "--replay", "0", "day1.csv.gz")
    assert result.code == 0
    assert result.out.splitlines()[0].startswith("s0001: publication ")
    assert "city.store/releases/s0001/live.geojson" in result.out
    document = json.loads((live.store / "releases/s0001/live.geojson").read_text(encoding="utf-8"))
    assert document["features"]
    checks = command("verify", "s0001")
    assert checks.code == 0
    assert "FAILED" not in checks.out


def test_as_json_it_counts_what_became_of_the_fixes_for_the_curator(live, command):
    facts = command("--json", "stream", "--replay", "0", "day1.csv.gz").json
    assert facts["stream"] == "s0001"
    assert facts["ended"]
    assert facts["records"]["accepted"] == 60 * 40
    assert facts["outside_the_guarantee"] == ["records"]


def test_its_entries_in_the_ledger_meet_the_schema(live, command):
    command("stream", "--replay", "0", "day1.csv.gz")
    facts = command("--json", "ledger").json
    schema = json.loads(
        resources.files("trafficdp.cli").joinpath("schemas/ledger.schema.json").read_text(encoding="utf-8")
    )
    jsonschema.validate(facts, schema)
    kinds = [entry["kind"] for entry in facts["entries"]]
    assert (kinds[0], kinds[1], kinds[-1]) == ("promise", "stream", "stream_end")
    assert [entry["epsilon"] for entry in facts["entries"] if entry["epsilon"]] == ["6"]


def test_a_folder_can_be_taken_once_and_again_without_any_change(live, command):
    later = date.today() + timedelta(days=366)
    live.change('to = "2026-03-03"', f'to = "{later}"')
    live.change("publish_every = 5", "publish_every = 10080")
    folder = live.folder / "arriving"
    folder.mkdir()
    (live.folder / "day1.csv.gz").rename(folder / "day1.csv.gz")
    first = command("--json", "stream", "--once", str(folder)).json
    before = live.dump()
    assert command("--json", "stream", "--once", str(folder)).json == first
    assert live.dump() == before
    assert not first["ended"]
    assert command("--json", "stream", "--end").json["ended"]


def test_the_newest_publication_can_be_exported(live, command):
    command("stream", "--replay", "0", "day1.csv.gz")
    assert command("export", "s0001", "out.csv", "--to", "csv").code == 0
    header = (live.folder / "out.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header.startswith("hex_id,")
    assert "speed_mean_ms_low" in header
    # how noise was drawn is no word for people
    assert "noise_terms" not in header


def test_what_cannot_be_followed_is_refused_before_a_charge(live, refusal):
    before = live.dump()
    assert "nothing to follow" in refusal(2, "stream")
    assert "no stream is running" in refusal(2, "stream", "--end")
    assert live.dump() == before


def test_an_epsilon_above_the_budget_is_exit_3(live, refusal):
    live.change("epsilon = 6", "epsilon = 13")
    before = live.dump()
    assert "budget" in refusal(3, "stream", "--replay", "0", "day1.csv.gz")
    assert live.dump() == before


def test_without_its_table_there_is_no_stream(empty, refusal):
    assert "[stream] is missing" in refusal(2, "stream", "--replay", "0", "day1.csv.gz")


def test_lines_of_standard_input_lie_in_no_file_while_they_are_read(live, command, feed, monkeypatch):
    rows = "\n".join(["bus,at,lat,lng,v", *feed("2026-03-02")[:500], ""]).encode()
    for path in live.folder.glob("day*.csv.gz"):
        path.unlink()
    temporary = live.folder / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    reading, writing = os.pipe()
    os.write(writing, rows)
    os.close(writing)
    seen = []
    real = ingest_read.read_file

    def looked(*arguments, **options):
        files = [path for path in live.folder.rglob("*") if path.is_file()]
        seen.append([path.name for path in files if b"W-0000" in path.read_bytes()])
        return real(*arguments, **options)

    monkeypatch.setattr(ingest_read, "read_file", looked)
    with os.fdopen(reading) as lines, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", lines)
        facts = command("--json", "stream", "-").json
    assert sum(facts["records"].values()) == 500
    assert seen == [[]]
    assert list(temporary.iterdir()) == []


def test_a_stream_called_wrongly_is_refused_before_a_charge(live, refusal):
    before = live.dump()
    assert "a stream follows one folder" in refusal(2, "stream", "a", "b")
    live.change('format = "csv"', 'format = "mds"')
    changed = live.dump()
    assert "lines of CSV; got the source buses with format mds" in refusal(2, "stream", "-")
    assert live.dump() == changed
    assert {name: held for name, held in changed.items() if name != "trafficdp.toml"} == {
        name: held for name, held in before.items() if name != "trafficdp.toml"
    }
