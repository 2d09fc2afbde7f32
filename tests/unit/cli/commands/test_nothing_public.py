"""What commands say where nothing about a vehicle is public: one account, no number of vehicles."""

import json
from importlib.resources import files

import jsonschema
import pytest

from trafficdp.cli.commands.releases import _price

SCHEMA = json.loads((files("trafficdp.cli") / "schemas" / "plan.schema.json").read_text())
BUDGET = "budget that all vehicles share"


@pytest.fixture
def hidden(small_city, tmp_path, monkeypatch):
    """A city with one day read."""
    city = small_city.City(tmp_path / "hidden")
    small_city.write_hidden(city.folder)
    monkeypatch.chdir(city.folder)
    city.open().ingest([city.days[1]])
    return city


def test_one_account_is_charged_and_no_number_of_vehicles_is_told(hidden, command, refusal):
    told = command("plan").out
    assert "All vehicles share one budget. The release costs epsilon 4; the budget has 9 left." in told
    assert "After it, epsilon 5 is left." in told
    plan = hidden.open().plan()
    assert _price(plan).startswith(
        f"This takes epsilon 4 from the {BUDGET}. It then has epsilon 5 left. What is spent never comes back."
    )
    assert f"the {BUDGET} has epsilon 5 left" in command("release", "--yes").out
    assert "All vehicles share one budget: it may spend epsilon 9, and has spent 4." in command("ledger").out
    assert "budget           epsilon 9 for all vehicles together; spent: 4" in command("status").out
    said = command("plan", "--epsilon", 6).out
    assert f"The {BUDGET} has epsilon 5 left, less than the map costs." in said
    assert "It can pay epsilon 5: add --within-budget." in said
    refused = refusal(3, "release", "--yes", "--epsilon", 6)
    assert "since all vehicles share one budget" in refused
    facts = command("--json", "plan", "--epsilon", 6).json
    jsonschema.validate(facts, SCHEMA)
    able = facts["affordable"]
    assert {name for name, value in able.items() if value is None} == {*able} - {"loss"}
    whole = command("--json", "plan").json
    assert f"About {whole['numbers_expected']} of the {whole['bins']} hexagons of the study area" in told
    for text in (told, said, refused):
        assert "1 vehicle" not in text
        assert "some vehicle" not in text


def test_a_slot_that_is_not_measured_is_said_before_and_after_the_charge(hidden, command):
    said = "The map shows no times: every hexagon has one number for the whole period and none by hour of day"
    assert "shows no times" not in command("plan").out
    told = command("plan", "--slot", "hour_of_day").out
    assert said in told
    assert "GROUP BY slot" in told
    assert _price(hidden.open().with_map(slot_kind="hour_of_day").plan()).startswith(said)
    assert said in command("release", "--yes", "--slot", "hour_of_day").out
    frame = hidden.open().map("r0001").to_frame()
    assert frame["hex_id"].is_unique


def test_a_fleet_that_nobody_declared_is_no_guess(hidden, command, refusal):
    declared = hidden.config.read_text()
    hidden.config.write_text(declared.replace("fleet = 120\n", ""))
    for arguments in (("plan",), ("release", "--yes"), ("compare",)):
        assert "write [map] fleet = NUMBER" in refusal(2, *arguments)
    hidden.config.write_text(declared)
    assert command("release", "--force", "--yes").code == 0
    hidden.config.write_text(declared.replace("fleet = 120\n", ""))
    assert "(as release r0001 found, with noise)" in command("plan").out


def test_one_vehicle_is_charged_in_the_singular(small_city, tmp_path):
    city = small_city.City(tmp_path / "one")
    city.config.write_text(city.config.read_text().replace("min_vehicles = 3", "min_vehicles = 1"))
    rows = city.days[1].read_text().splitlines()
    city.days[1].write_text("\n".join([rows[0], *(row for row in rows if row.startswith("mh 99"))]) + "\n")
    workspace = city.open()
    workspace.ingest([city.days[1]])
    price = _price(workspace.plan(suggestions=False))
    assert price.startswith("This charges 1 vehicle at most epsilon 8. It then has at least epsilon 12 left.")
