"""`plan --save` and `release --plan`: what was frozen is what is drawn, or nothing is."""

import hashlib
import json

import duckdb
import pytest

from trafficdp.privacy.ledger import canonical
from trafficdp.release.planning import SavedPlan
from trafficdp.release.specification import Specification


@pytest.fixture
def saved(filled, command):
    """A city with a plan called "spring", at epsilon 5."""
    assert command("plan", "--epsilon", "5", "--save", "spring").code == 0
    return filled


@pytest.fixture
def file(saved):
    return saved.store / "plans" / "spring.json"


def specification_of(city, name):
    with duckdb.connect(str(city.store / "vault.duckdb"), read_only=True) as vault:
        pieces = vault.execute(
            "SELECT piece FROM release_pieces WHERE release_id = ? AND part = 'allocation' ORDER BY number",
            [name],
        ).fetchall()
    return Specification.from_json(b"".join(piece for (piece,) in pieces).decode())


def test_a_release_of_a_saved_plan_draws_its_very_calibrated(saved, file, command):
    # what would be planned now is another map at another epsilon
    saved.change("epsilon = 6", "epsilon = 2")
    saved.change('min_vehicles = 3\naccounting = "best"', 'min_vehicles = 10\naccounting = "basic"')
    assert command("release", "--yes", "--plan", "spring").code == 0
    specification = specification_of(saved, "r0001")
    assert specification.calibrated == SavedPlan.from_json(file.read_text()).calibrated
    assert specification.request.min_vehicles == 3
    assert command("verify", "r0001").code == 0
    ledger = command("--json", "ledger").json
    assert ledger["entries"][1]["epsilon"] == "5"


def test_a_saved_plan_of_another_map_needs_no_change_of_the_configuration(filled, command):
    found = command("--json", "plan", "--max-half-width", "3", "--epsilon", "2", "--save", "found").json
    assert found["map"]["resolution"] != 6
    assert command("release", "--yes", "--plan", "found", "--force").code == 0
    manifest = json.loads((filled.store / "releases" / "r0001" / "manifest.json").read_text())
    assert manifest["coverage"]["resolution"] == found["map"]["resolution"]
    assert command("verify", "r0001").code == 0


def test_a_saved_plan_is_refused_once_the_data_has_changed(saved, feed, command, refusal):
    rows = [row.replace("W-00", "X-00") for row in feed("2026-03-03")[:300]]
    assert command("--quiet", "ingest", saved.write("day3.csv", rows)).code == 0
    before = saved.dump()
    message = refusal(2, "release", "--yes", "--plan", "spring")
    assert "the data is not what this plan was made from" in message
    assert saved.dump() == before


def test_a_plan_that_was_tampered_with_is_refused(saved, file, refusal):
    content = json.loads(file.read_text())
    content["loss_pico"] -= 10**12
    file.write_text(json.dumps(content))
    assert "not what was saved" in refusal(4, "release", "--yes", "--plan", "spring")
    file.write_text("{")
    assert "not what was saved" in refusal(4, "release", "--yes", "--plan", "spring")


def test_a_plan_that_lies_about_its_loss_is_refused(saved, file, refusal):
    content = json.loads(file.read_text())
    del content["sha256"]
    content["loss_pico"] -= 10**12
    content["sha256"] = hashlib.sha256(canonical(content).encode()).hexdigest()
    file.write_text(canonical(content))
    assert "does not cost what it says" in refusal(4, "release", "--yes", "--plan", "spring")


def test_another_speed_bound_is_another_plan(saved, refusal):
    saved.change("speed_bound = 20", "speed_bound = 30")
    saved.promise()
    assert "another speed bound" in refusal(2, "release", "--yes", "--plan", "spring")


def test_a_saved_plan_takes_no_other_wishes(saved, refusal):
    assert "its own epsilon" in refusal(2, "release", "--yes", "--plan", "spring", "--epsilon", "3")
    assert "its own epsilon" in refusal(2, "release", "--yes", "--plan", "spring", "--within-budget")


def test_an_unknown_plan_names_those_there_are(saved, refusal):
    message = refusal(2, "release", "--yes", "--plan", "winter")
    assert "there is no such plan" in message
    assert "spring" in message


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "a" * 65, "ä"])
def test_a_name_that_is_no_name_is_refused(filled, refusal, name):
    refusal(2, "plan", "--save", name)
    assert not (filled.store / "plans").exists()


def test_only_the_owner_reads_a_plan(file):
    assert file.stat().st_mode & 0o077 == 0


def test_a_plan_holds_no_vehicle(file):
    text = file.read_text()
    assert "W-0001" not in text
    assert "hmac" not in text


def test_a_refused_plan_can_be_saved_but_is_refused_when_released(filled, command, refusal):
    assert command("plan", "--epsilon", "0.5", "--save", "little").code == 0
    refusal(5, "release", "--yes", "--plan", "little")
    assert command("release", "--yes", "--plan", "little", "--force").code == 0


def test_what_a_killed_save_left_is_removed_by_the_next_command(filled, command):
    assert command("plan", "--save", "mine").code == 0
    leftover = filled.store / "plans" / ".other.json.new"
    leftover.write_text("{")
    assert command("plan").code == 0
    assert [path.name for path in (filled.store / "plans").iterdir()] == ["mine.json"]
