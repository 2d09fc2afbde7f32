"""What a store promises lives in its ledger: no edit of the configuration changes it without a word."""

import json

import pytest

import trafficdp
from trafficdp.errors import InsufficientBudgetError, UsageError
from trafficdp.release import curator
from trafficdp.store import vault_ledger
from trafficdp.store.vault import Vault

pytestmark = pytest.mark.usefixtures("two_cities")

ANALYST = """
[[analysts]]
name = "newsroom"
epsilon_per_vehicle = 2
"""


@pytest.fixture
def edit(filled, small_city):
    """``edit(old, new)``: change the configuration of ``filled`` by hand; returns its workspace.

    Weak promises are accepted.
    """
    text = filled.config.read_text(encoding="utf-8")
    filled.config.write_text(
        text.replace("[privacy]\n", f"[privacy]\n{small_city.ACCEPTED}"), encoding="utf-8"
    )

    def edit(old, new):
        text = filled.config.read_text(encoding="utf-8")
        assert text.count(old) == 1
        filled.config.write_text(text.replace(old, new), encoding="utf-8")
        return trafficdp.open(filled.config)

    return edit


def test_a_ceiling_that_is_spent_is_not_lifted_by_a_line_in_the_configuration(filled, edit):
    edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 20")
    workspace = filled.open()
    workspace.release("20", force=True)
    before = filled.dump()
    higher = edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 200")
    with pytest.raises(UsageError) as caught:
        higher.release("20", force=True, again=True)
    assert "budget a vehicle: epsilon 200; expected budget a vehicle: epsilon 20" in str(caught.value)
    assert "trafficdp budget raise --reason" in str(caught.value)
    assert filled.dump() == before


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 19", "budget a vehicle: epsilon 19"),
        (
            "epsilon_per_vehicle = 20",
            "epsilon_per_vehicle = 20\nepsilon_per_vehicle_a_year = 9",
            "budget a year: epsilon 9, time zone of years and months: Asia/Kolkata",
        ),
        ("speed_bound = 65", "speed_bound = 60", "speed bound: 60 km/h"),
        ("[[source]]", ANALYST + "[[source]]", "budget of analyst newsroom: epsilon 2"),
        ('"replace_user_values"\n', '"add_or_remove_user"\n', "neighbouring relation"),
    ],
)
def test_every_command_is_refused_under_another_promise_and_says_both(filled, edit, old, new, what):
    if "relation" in what:
        text = filled.config.read_text(encoding="utf-8")
        text = text.replace("min_vehicles = 3\n", "").replace("epsilon_per_vehicle", "epsilon")
        filled.config.write_text(text, encoding="utf-8")
    other = edit(old, new)
    before = filled.dump()
    for call in (
        other.status,
        other.plan,
        other.release,
        other.ledger,
        other.releases,
        lambda: other.ingest([filled.days[2]]),
        lambda: other.withdraw("r0001"),
        lambda: other.verify("r0001"),
    ):
        with pytest.raises(UsageError, match="otherwise than the store promises") as caught:
            call()
        assert what in caught.value.got
        assert caught.value.expected
    assert filled.dump() == before


def test_a_raise_is_an_entry_with_its_reason_and_what_it_changed(filled, edit):
    filled.open().release("20", force=True)
    higher = edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 30")
    (changed,) = higher.raise_budget("  the council decided to publish twice ")
    assert (changed.before, changed.after) == ("epsilon 20", "epsilon 30")
    entry = higher.ledger()[-1]
    assert entry.facts["kind"] == "promise"
    assert entry.facts["reason"] == "the council decided to publish twice"
    head = json.loads(filled.head().read_text(encoding="ascii"))
    assert (head["sequence"], head["head_hash"]) == (entry.sequence, entry.head_hash)
    (change,) = higher.status().budget_changes
    assert (change.entry, change.changed) == (entry.sequence, (changed,))
    with pytest.raises(InsufficientBudgetError):
        higher.release("11", force=True, again=True)
    assert higher.release("10", force=True, again=True).id == "r0002"


def test_a_lower_ceiling_a_role_and_a_speed_bound_are_taken_too(filled, edit):
    edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 9")
    edit("speed_bound = 65", "speed_bound = 60")
    other = edit("[[source]]", ANALYST + "[[source]]")
    assert {each.what for each in other.raise_budget("less is needed")} == {
        "budget a vehicle",
        "speed bound",
        "budget of analyst newsroom",
    }
    with pytest.raises(InsufficientBudgetError):
        other.release("10", force=True)
    gone = edit(ANALYST, "")
    (changed,) = gone.raise_budget("the newsroom asks no more")
    assert (changed.before, changed.after) == ("epsilon 2", "none")


def test_until_the_first_file_the_promise_follows_the_configuration(small_city, tmp_path):
    city = small_city.City(tmp_path / "new")
    city.open()
    small_city.write_config(city.folder, budget=7)
    workspace = trafficdp.open(city.config)
    with pytest.raises(UsageError, match="promised nothing yet"):
        workspace.raise_budget("too early")
    workspace.ingest([city.days[1]], dry_run=True)
    assert workspace.ledger() == []
    workspace.ingest([city.days[1]])
    (entry,) = workspace.ledger()
    assert entry.facts["promise"]["policy"]["total"] == "epsilon 7"
    small_city.write_config(city.folder, budget=8)
    with pytest.raises(UsageError, match="epsilon 8; expected budget a vehicle: epsilon 7"):
        trafficdp.open(city.config).status()


@pytest.mark.parametrize("reason", ["", "  ", "unknown", "two\nlines", "x" * 501])
def test_a_reason_says_something_that_can_be_published(filled, edit, reason):
    before = filled.dump()
    other = edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 30")
    with pytest.raises(UsageError, match="for a reason"):
        other.raise_budget(reason)
    assert filled.dump() == before


def test_nothing_to_change_is_no_entry(filled):
    before = filled.dump()
    with pytest.raises(UsageError, match="says what the store promises"):
        filled.open().raise_budget("why not")
    assert filled.dump() == before


def test_the_curator_asks_the_ledger_whatever_promise_is_handed_in(filled, edit, monkeypatch):
    """The second line: a release that comes by with a higher ceiling is refused by the curator itself."""
    filled.open().release("20", force=True)
    higher = edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 200")
    before = filled.dump()
    monkeypatch.setattr(vault_ledger, "require_promise", lambda vault, configured: None)
    with pytest.raises(InsufficientBudgetError):
        higher.release("20", force=True, again=True)
    assert filled.dump() == before


@pytest.mark.parametrize("boundary", curator.CHANGE_BOUNDARIES)
def test_a_raise_that_dies_is_done_or_finished_by_the_next_command(filled, edit, boundary, monkeypatch):
    higher = edit("epsilon_per_vehicle = 20", "epsilon_per_vehicle = 30")

    def die(name):
        if name == boundary:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(curator, "failpoint", die)
        with pytest.raises(KeyboardInterrupt):
            higher.raise_budget("dies on the way")
    entry = higher.ledger()[-1]
    head = json.loads(filled.head().read_text(encoding="ascii"))
    assert (head["sequence"], head["head_hash"]) == (entry.sequence, entry.head_hash)


def test_an_ingest_that_dies_before_the_head_is_written_is_remembered(small_city, tmp_path, monkeypatch):
    city = small_city.City(tmp_path / "new")
    workspace = city.open()
    with monkeypatch.context() as patched:
        patched.setattr(curator.Curator, "write_head", lambda self: None)
        workspace.ingest([city.days[1]])
    assert json.loads(city.head().read_text(encoding="ascii"))["sequence"] == 0
    workspace.releases()
    assert json.loads(city.head().read_text(encoding="ascii"))["sequence"] == 1


def test_a_promise_is_read_as_it_was_written(filled):
    with Vault.open(filled.store) as vault:
        assert vault_ledger.promise_in_force(vault).facts() == filled.open().config.promise.facts()
