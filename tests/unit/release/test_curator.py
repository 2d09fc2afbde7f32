"""The one door: charges within the budget, noise that is drawn once, a ledger that never shrinks."""

import json
import shutil
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest

import trafficdp
from trafficdp.errors import (
    AllocationError,
    DataError,
    InsufficientBudgetError,
    StoreBehindError,
    StoreDamagedError,
    UninformativeReleaseError,
    UsageError,
)
from trafficdp.mechanisms.blocks.calibrated import CalibratedBlocks
from trafficdp.mechanisms.laplace.calibrated import CalibratedLaplace
from trafficdp.planner.allocation import Allocation
from trafficdp.privacy.ledger import GENESIS
from trafficdp.release import curator, publication

pytestmark = pytest.mark.usefixtures("tables_alone")

PICO = 10**12


# the budget


def test_spending_exactly_the_budget_succeeds(filled, small_city):
    filled.open(budget=16).release(again=True, force=True)
    filled.open().release(again=True, force=True)
    assert max(small_city.spent(filled).values()) == 16 * PICO


def test_a_billionth_of_epsilon_too_much_is_refused_in_one_sentence_and_nothing_is_written(released):
    workspace = released.open(budget="15.999999999")
    before = released.dump()
    with pytest.raises(InsufficientBudgetError) as caught:
        workspace.release(again=True, force=True)
    assert caught.value.exit_code == 3
    assert caught.value.remaining == Fraction(7_999_999_999, 10**9)
    assert caught.value.requested == 8
    assert "costs epsilon 8.000000000000;" in str(caught.value)
    assert "remaining 7.999999999000;" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert released.dump() == before


def test_the_command_line_refuses_with_exit_3_and_one_line(released, small_city, tmp_path):
    released.open(budget=15)
    before = released.dump()
    out, err = tmp_path / "out", tmp_path / "err"
    words = ["--config", released.config, "release", "--yes", "--again", "--force"]
    assert small_city.ended(small_city.forked(words, stdout=out, stderr=err)) == 3
    assert out.read_bytes() == b""
    said = err.read_text(encoding="utf-8")
    assert len(said.splitlines()) == 1
    assert "epsilon 8;" in said
    assert "remaining 7;" in said
    assert released.dump() == before


def test_a_withdrawal_gives_no_budget_back(released, small_city):
    before = small_city.spent(released)
    workspace = released.open(budget=15)
    workspace.withdraw("r0001")
    assert small_city.spent(released) == before
    with pytest.raises(InsufficientBudgetError):
        workspace.release(again=True, force=True)
    with pytest.raises(UsageError, match="withdrawn already"):
        workspace.withdraw("r0001")


def test_a_vehicle_in_no_released_bin_pays_nothing(released, small_city):
    vehicles = {vehicle for (vehicle,) in released.sql("SELECT vehicle_id FROM vehicles")}
    paying = set(small_city.spent(released))
    assert len(vehicles) == 11
    assert len(paying) == 10
    ((entry,),) = released.sql("SELECT entry FROM ledger WHERE sequence = 2")
    assert json.loads(entry)["vehicles_charged"] == 10


def test_vehicles_of_the_second_day_pay_for_the_second_day_only(released, small_city):
    workspace = released.open(first="2026-03-04", last="2026-03-04")
    workspace.ingest([released.days[2]])
    second = workspace.release(again=True, force=True)
    accounts = small_city.charges_by_plate_order(released)
    assert second.release.ledger.sequence == 4
    both = {vehicle for vehicle, account in accounts.items() if set(account) == {2, 4}}
    first_only = {vehicle for vehicle, account in accounts.items() if set(account) == {2}}
    second_only = {vehicle for vehicle, account in accounts.items() if set(account) == {4}}
    assert (len(first_only), len(both), len(second_only)) == (5, 5, 5)
    assert all(check.passed for name in ("r0001", "r0002") for check in workspace.verify(name))


def test_what_is_refused_as_uninformative_is_not_charged(filled):
    workspace = filled.open(epsilon=1)
    before = filled.dump()
    with pytest.raises(UninformativeReleaseError) as caught:
        workspace.release(again=True)
    assert caught.value.exit_code == 5
    assert filled.dump() == before
    assert workspace.release(force=True).id == "r0001"


def test_a_disclosure_that_no_manifest_takes_is_refused_before_the_charge(filled, monkeypatch):
    workspace = filled.open()
    before = filled.dump()
    monkeypatch.setattr(Allocation, "composition", "unknown")
    with pytest.raises(DataError, match="manifest is not complete"):
        workspace.release(again=True, force=True)
    assert filled.dump() == before
    assert workspace.releases() == []


# second lines: what holds though a check before it is missing


def test_the_door_itself_refuses_what_the_budget_does_not_allow(filled, small_city, monkeypatch):
    """Whoever asks it, and whatever was checked before: a second charge of 8 where 15 are allowed."""
    ask = curator.Curator.release

    def twice(self, *given, **named):
        ask(self, *given, **named)
        return ask(self, *given, **named)

    monkeypatch.setattr(curator.Curator, "release", twice)
    with pytest.raises(InsufficientBudgetError):
        filled.open(budget=15).release(again=True, force=True)
    assert max(small_city.spent(filled).values()) == 8 * PICO
    assert len(small_city.charges(filled)) == 1


@pytest.mark.parametrize("accounting", ["equal", "blocks"])
def test_nothing_is_measured_twice_for_one_charge(filled, small_city, monkeypatch, accounting):
    """The meter stops at the charge, in the rehearsal before it and in the draw behind it."""
    execute_release = curator.execute_release

    def twice(*given):
        execute_release(*given)
        return execute_release(*given)

    words = "cost a vehicle more than it was charged"
    workspace, before = filled.open(accounting=accounting), filled.dump()
    with monkeypatch.context() as patch:
        patch.setattr(curator, "execute_release", twice)
        with pytest.raises(AllocationError, match=words):
            workspace.release(again=True, force=True)
        assert filled.dump() == before
        patch.setattr(curator.Curator, "_rehearse", lambda *_: None)
        with pytest.raises(AllocationError, match=words):
            workspace.release(again=True, force=True)
    assert filled.sql("SELECT count(*) FROM release_pieces WHERE part = 'measured'") == [(0,)]
    # what was charged is drawn once, by the next command
    assert [each.id for each in workspace.releases()] == ["r0001"]
    assert len(small_city.charges(filled)) == 1


# the ledger and its witnesses


@pytest.mark.parametrize(
    ("accounting", "calibrated"),
    [
        ("blocks", CalibratedBlocks),
        ("equal", CalibratedLaplace),
    ],
)
@pytest.mark.parametrize("share", [0.5, 1 - 1e-9])
def test_a_charge_that_does_not_cover_the_loss_is_refused_before_it_is_made(
    filled, monkeypatch, accounting, calibrated, share
):
    def cheaper(self):
        event = kept(self)
        return replace(event, loss_per_user=(event.loss_per_user * share).astype("int64"))

    kept = calibrated.event
    monkeypatch.setattr(calibrated, "event", cheaper)
    before = filled.dump()
    # by the second price, or by the meter of the rehearsal
    words = "vehicles would lose more than they are charged|cost a vehicle more than it was charged"
    with pytest.raises(AllocationError, match=words) as caught:
        filled.open(accounting=accounting).release(again=True, force=True)
    assert caught.value.exit_code == 1
    assert filled.dump() == before


def test_noise_that_shrinks_on_its_way_into_the_order_is_refused_before_the_charge(filled, monkeypatch):
    def shrunk(self):
        facts = json.loads(kept(self))
        half_width = [max(1, width // 3) for width in facts["calibrated"]["half_width"]]
        return json.dumps({**facts, "calibrated": {**facts["calibrated"], "half_width": half_width}})

    kept = curator.Specification.to_json
    monkeypatch.setattr(curator.Specification, "to_json", shrunk)
    before = filled.dump()
    with pytest.raises(AllocationError, match="10 vehicles would lose more"):
        filled.open(accounting="blocks").release(again=True, force=True)
    assert filled.dump() == before


def test_statuses_that_are_foreseen_are_those_of_the_release(released):
    bins = json.loads(released.kept("allocation"))["disclosure"]["coverage"]["bins"]
    manifest = json.loads((released.store / "releases/r0001/manifest.json").read_text(encoding="utf-8"))
    assert bins == manifest["coverage"]["bins"]
    assert bins["released"]
    assert manifest["honesty"]["idealised_mechanisms"] is False


def test_a_manifest_carries_number_and_hash_of_its_charge(released):
    manifest = json.loads((released.store / "releases/r0001/manifest.json").read_text(encoding="utf-8"))
    rows = released.sql("SELECT sequence, head_hash FROM ledger ORDER BY sequence")
    accounting = manifest["accounting"]
    assert (accounting["ledger_sequence"], accounting["head_hash"]) == rows[1]
    head = json.loads(released.head().read_text(encoding="ascii"))
    assert (head["sequence"], head["head_hash"]) == rows[-1]


@pytest.fixture
def restored(released):
    """A city whose vault was replaced by a copy from before its second release."""
    workspace = released.open(budget=40)
    old = released.folder / "backup.duckdb"
    shutil.copy(released.vault, old)
    workspace.release(again=True, force=True)
    shutil.copy(old, released.vault)
    return released


def refuses(city, error=StoreBehindError):
    before = city.dump()
    with pytest.raises(error) as caught:
        city.open().release(again=True, force=True)
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)
    assert city.dump() == before


def test_an_old_vault_refuses_by_head_and_manifests(restored):
    refuses(restored)


def test_an_old_vault_refuses_by_its_head_alone(restored):
    shutil.rmtree(restored.store / "releases")
    refuses(restored)


def test_an_old_vault_refuses_by_a_manifest_alone(restored):
    # the head went back with the backup, the releases did not
    rows = restored.sql("SELECT sequence, head_hash FROM ledger ORDER BY sequence")
    head = json.loads(restored.head().read_text(encoding="ascii"))
    restored.head().write_text(
        json.dumps({**head, "sequence": len(rows), "head_hash": rows[-1][1]}), encoding="ascii"
    )
    refuses(restored)


def test_an_old_vault_without_its_head_refuses(restored):
    shutil.rmtree(restored.store / "releases")
    restored.head().unlink()
    refuses(restored)


def test_a_missing_head_refuses_even_a_sound_vault(released):
    released.head().unlink()
    refuses(released)


def test_a_garbled_head_refuses(released):
    released.head().write_bytes(b"{")
    refuses(released, StoreDamagedError)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"accounting": 3}', "[" * 100_000], ids=range(5))
def test_a_manifest_that_says_nothing_of_the_ledger_is_found_by_verify_and_is_no_bug(released, content):
    (released.store / "releases/r0001/manifest.json").write_text(content, encoding="utf-8")
    # the remembered head vouches for the ledger: old manifests are not read for a new release
    assert released.open().release(again=True, force=True).id == "r0002"
    failed = [each.found for each in released.open().verify("r0001") if not each.passed]
    assert failed
    assert not any("bug" in found for found in failed)


def test_a_new_store_with_the_same_key_does_not_forgive_the_old_one(restored, tmp_path, small_city):
    text = restored.config.read_text(encoding="utf-8")
    other = tmp_path / "other"
    other.mkdir()
    (other / "trafficdp.toml").write_text(f'key_file = "{restored.key}"\n{text}', encoding="utf-8")
    fresh = trafficdp.open(other / "trafficdp.toml", create=True)
    fresh.ingest([restored.days[1]])
    assert fresh.release(again=True, force=True).id == "r0001"
    assert len(list(restored.folder.glob("*.head"))) == 2
    with pytest.raises(StoreBehindError):
        restored.open().release(again=True, force=True)
    assert fresh.release(again=True, force=True).id == "r0002"


def test_commands_that_only_read_still_work_behind_a_head(restored):
    workspace = restored.open()
    assert [each.id for each in workspace.releases()] == ["r0001"]
    assert len(workspace.ledger()) == 4
    assert workspace.status().releases == 1
    failed = [check.name for check in workspace.verify("r0001") if not check.passed]
    assert failed[0] == "the ledger has every entry that its head and the manifests name"


def test_a_folder_in_the_way_of_the_next_release_is_refused_before_the_charge(released):
    (released.store / "releases/r0002").mkdir()
    refuses(released)


def test_the_head_of_an_empty_ledger_is_the_start_and_the_first_file_writes_the_promise(small_city, tmp_path):
    city = small_city.City(tmp_path / "new")
    workspace = city.open()

    def head():
        facts = json.loads(city.head().read_text(encoding="ascii"))
        return facts["sequence"], facts["head_hash"]

    assert head() == (0, GENESIS)
    workspace.ingest([city.days[1]])
    (entry,) = workspace.ledger()
    assert head() == (1, entry.head_hash)
    assert entry.facts["kind"] == "promise"


def test_the_second_price_is_of_every_bin_that_is_published(monkeypatch, counts_of):
    counts, priced = counts_of([[1, 1, 0], [1, 0, 0], [1, 1, 1]]), []
    frozen = SimpleNamespace(
        bins_kept=lambda counts: counts.users_per_bin >= 2, calibrated=None, public_facts=lambda kept: kept
    )
    monkeypatch.setattr(
        curator, "calibrated_from_facts", lambda _, kept: SimpleNamespace(steps=kept.users_per_bin.tolist)
    )

    def check_steps(steps, loss):
        priced.append((steps, loss))
        raise AllocationError("too little")

    monkeypatch.setattr(curator, "check_steps", check_steps)
    with pytest.raises(AllocationError):
        curator.Curator._rehearse(None, frozen, SimpleNamespace(counts=counts), "loss")
    assert priced == [([2, 3], "loss")]


@pytest.mark.parametrize(("whole", "first"), [(False, 5), (True, 0)])
def test_the_ledger_is_checked_from_what_the_head_remembers_or_from_its_beginning(monkeypatch, whole, first):
    asked = []
    ledger = SimpleNamespace(
        Entries=lambda vault: "entries",
        ledger_rows=lambda vault, after: asked.append(after),
        check_accounts=lambda vault, rows, after: asked.append(after),
    )
    monkeypatch.setattr(curator, "vault_ledger", ledger)
    monkeypatch.setattr(curator, "vault_releases", SimpleNamespace(all_releases=lambda vault: []))
    monkeypatch.setattr(publication, "manifests", lambda store, known: {})
    behind = SimpleNamespace(store=None, vault=None, head=SimpleNamespace(verify=lambda entries: 5))
    curator.Curator.check_not_behind(behind, whole=whole)
    assert asked == [first, first]
