"""`trafficdp budget`: what is promised, and the one way to another promise."""

import json

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
