"""`trafficdp budget`: what is promised, and the one way to another promise."""

import json
from itertools import pairwise

import pytest

HIGHER = ("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 20")


def test_a_budget_that_is_spent_is_raised_with_a_reason_and_all_show_it(released, command, refusal):
    assert command("release", "--yes", "--again").code == 0
    released.change(*HIGHER)
    before = released.dump()
    for words in (
        ["status"],
        ["plan"],
        ["release", "--yes", "--again"],
        ["ledger"],
        ["withdraw", "--yes", "r0001"],
    ):
        said = refusal(2, *words)
        assert "got budget a vehicle: epsilon 20; expected budget a vehicle: epsilon 12" in said
        assert 'restore the configuration, or run `trafficdp budget raise --reason "..."`' in said
    assert released.dump() == before
    shown = command("budget").out
    assert "budget a vehicle: epsilon 12\n" in shown
    assert "the configuration says otherwise: budget a vehicle epsilon 20\n" in shown
    raised = command("budget", "raise", "--reason", "the council wants a map a week")
    assert raised.out == (
        "budget a vehicle: epsilon 12 before, epsilon 20 from now on\n"
        "every later release shows it, with the reason\n"
    )
    change = "budget a vehicle from epsilon 12 to epsilon 20. Reason: the council wants a map a week"
    for words in (["budget"], ["status"], ["ledger"], ["doctor"]):
        assert change in command(*words).out, words
    for words, key in (
        ("budget", "changes"),
        ("status", "budget_changes"),
        ("ledger", "budget_changes"),
    ):
        (entry,) = command("--json", words).json[key]
        assert entry["reason"] == "the council wants a map a week"
        assert entry["changed"] == [
            {"what": "budget a vehicle", "before": "epsilon 12", "after": "epsilon 20"}
        ]
    assert command("release", "--yes", "--again").code == 0


def test_every_later_release_shows_a_raise_and_its_reason_and_earlier_ones_do_not(
    released, command, tmp_path
):
    released.change(*HIGHER)
    reason = "a map a week, <b>decided</b> by the council"
    assert command("budget", "raise", "--reason", reason).code == 0
    assert command("release", "--yes", "--again").code == 0
    (change,) = command("--json", "budget").json["changes"]
    for name, changes in (("r0001", []), ("r0002", [change])):
        folder = released.store / "releases" / name
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        assert manifest["accounting"].get("budget_changes", []) == changes
        page = (folder / "map.html").read_text(encoding="utf-8")
        assert command("report", name, str(tmp_path / f"{name}.html")).code == 0
        report = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        for text in (page, report):
            said = "from epsilon 12 to epsilon 20. Reason: a map a week, &lt;b&gt;decided&lt;/b&gt; by"
            assert text.count(said) == len(changes)
            assert "<b>decided" not in text
        said = command("verify", name).out
        assert "ok     the budget is the one that the ledger promised (changed on " in said
        assert "budget a vehicle from epsilon 12 to epsilon 20. Reason: a map a week" in said
    path = released.store / "releases" / "r0002" / "manifest.json"
    for before, after in (
        ("epsilon 12", "epsilon 19"),
        ("the council", "nobody"),
        ('"budget_per_vehicle": "20"', '"budget_per_vehicle": "30"'),
    ):
        text = path.read_text(encoding="utf-8")
        assert before in text
        path.write_text(text.replace(before, after), encoding="utf-8")
        assert "FAILED the budget is the one that the ledger promised" in command("verify", "r0002").out
        path.write_text(text, encoding="utf-8")


@pytest.mark.slow
def test_raises_that_race_are_made_one_after_the_other(released, command, small_city):
    racing = {}
    for budget in (13, 15, 15):
        configuration = released.folder / f"{budget}.toml"
        configuration.write_text(released.config.read_text().replace(HIGHER[0], f"{HIGHER[0][:-2]}{budget}"))
        words = "--config", str(configuration), "budget", "raise", "--reason", f"{budget} is right"
        said = released.folder / f"said {len(racing)}"
        racing[said] = small_city.forked(words, stderr=said)
    codes = [small_city.ended(child) for child in racing.values()]
    ended = [said.read_bytes().count(b"\n") or code for said, code in zip(racing, codes, strict=True)]
    found = command("--json", "budget").json
    changes = [each["changed"][0] for each in found["changes"]]
    # the second of two that say the same finds nothing to change, unless another came between
    assert len(changes) == ended.count(0) in (2, 3)
    assert all(before["after"] == after["before"] for before, after in pairwise(changes))
    assert {each["after"] for each in changes} == {"epsilon 13", "epsilon 15"}
    assert found["promised"]["budget a vehicle"] == changes[-1]["after"]
    assert "whole" in command("doctor").out


def test_a_raise_needs_its_reason_and_something_to_raise(released, refusal):
    before = released.dump()
    assert 'add --reason "..."' in refusal(2, "budget", "raise")
    assert "the configuration says what the store promises" in refusal(
        2, "budget", "raise", "--reason", "why"
    )
    assert "no such action" in refusal(2, "budget", "lower")
    assert "trafficdp budget raise" in refusal(2, "budget", "--reason", "why")
    assert released.dump() == before


def test_an_empty_store_follows_its_configuration(empty, command):
    assert "the configuration counts until the first file or charge" in command("budget").out
    assert command("--json", "budget").json["promised"] is None
    empty.change(*HIGHER)
    assert command("ingest", "day1.csv.gz").code == 0
    assert json.loads(command("--json", "budget").out)["promised"]["budget a vehicle"] == "epsilon 20"
