"""A vehicle leaves the store: whole, out of the files, under an entry that does not name it."""

import hashlib
import json
from types import SimpleNamespace

import pytest

from trafficdp.errors import StoreBehindError, StoreKeyError, UsageError
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release import forgetting
from trafficdp.store import vault
from trafficdp.store.vault import Vault

GONE = [
    "the data is the version that was charged",
    "the published scales cost no vehicle more than it was charged",
    "the manifest's epsilon is the largest recomputed loss",
    "every number follows from what was measured",
    "what was drawn has the law that was charged (half of it is found with probability 0.00)",
]


@pytest.fixture
def plate(small_city):
    """The third vehicle of the first day, as nobody's feed spells it."""
    return small_city.PLATES[2].replace(" ", "  ").upper()


def pseudonym(city, plate):
    return VehicleKey.load(city.key).pseudonyms([plate], "")[0].as_py()


def number_of(city, plate):
    rows = city.sql("SELECT vehicle_id FROM vehicles WHERE hmac = ?", [pseudonym(city, plate)])
    return rows[0][0] if rows else None


def tables(city, small_city):
    found = small_city.tables_of(city.vault)
    return {name: set(rows) for name, rows in found.items()}


def test_what_is_of_the_vehicle_goes_and_nothing_else(released, small_city, plate):
    number, secret = number_of(released, plate), pseudonym(released, plate)
    fixes, pairs = (
        dict(released.sql(f"SELECT vehicle_id, count(*) FROM {table} GROUP BY vehicle_id"))
        for table in ("fixes", "contributions")
    )
    assert fixes[number] > 0
    assert pairs[number] > 0
    assert secret in released.vault.read_bytes()
    before = tables(released, small_city)

    found = released.open().forget([plate, f"  {plate}  ", "", "not there"])

    assert (found.vehicles, found.unknown) == (1, 1)
    after = tables(released, small_city)
    assert number_of(released, plate) is None
    for table, rows in (("fixes", fixes), ("contributions", pairs)):
        assert len(before[table] - after[table]) == rows[number]
        assert not after[table] - before[table]
        assert released.sql(f"SELECT count(*) FROM {table} WHERE vehicle_id = ?", [number]) == [(0,)]
    # what it was charged stays, under a number that no identifier leads to
    assert after["vehicle_charges"] == before["vehicle_charges"]
    (entry,) = after["ledger"] - before["ledger"]
    said = json.loads(entry[1])
    assert sorted(said) == ["at", "kind", "nonce", "sequence", "vehicles"]
    assert (said["kind"], said["vehicles"]) == ("forgetting", 1)
    assert before["ledger"] < after["ledger"]
    for unchanged in ("meta", "releases"):
        assert after[unchanged] == before[unchanged]
    assert secret not in released.vault.read_bytes()
    with Vault.open(released.store) as opened:
        assert vault.problems(opened) == []


def test_no_file_of_the_store_knows_its_pseudonym_any_more(released, plate):
    secret = pseudonym(released, plate)
    released.open().forget([plate])
    for path in released.folder.rglob("*"):
        if path.is_file() and path.suffix != ".csv":
            assert secret not in path.read_bytes(), path
    names = {path.name for path in released.store.iterdir()}
    assert names <= {".lock", "vault.duckdb", "released.duckdb", "releases"}


def test_verify_says_why_older_releases_can_no_longer_be_recomputed(released, plate):
    released.open().forget([plate])
    found = {each.name: each.found for each in released.open().verify("r0001") if not each.passed}
    assert list(found) == GONE
    for text in found.values():
        assert text.startswith("vehicles were forgotten since (entry 3 of the ledger)")


def test_a_release_after_it_is_charged_to_the_others_and_verified(released, small_city, plate):
    number = number_of(released, plate)
    spent = small_city.spent(released)
    workspace = released.open()
    workspace.forget([plate])
    workspace.release(force=True)
    assert all(each.passed for each in workspace.verify("r0002"))
    after = small_city.spent(released)
    assert after[number] == spent[number]
    assert sum(after.values()) > sum(spent.values())


def test_a_vehicle_that_comes_back_is_a_new_one(released, small_city):
    # the one with the largest number: its successor must not inherit its charges
    newest = max(small_city.PLATES[:10], key=lambda name: number_of(released, name))
    number = number_of(released, newest)
    workspace = released.open()
    workspace.forget([newest])
    workspace.ingest([released.days[2]])
    numbers = {number_of(released, name) for name in small_city.PLATES} - {None}
    assert number not in numbers


def test_a_plan_that_was_saved_before_is_refused(released, plate):
    workspace = released.open()
    workspace.plan(save="spring")
    workspace.forget([plate])
    with pytest.raises(UsageError, match="data"):
        workspace.release(plan="spring", force=True)


def test_data_before_its_first_record_stay_as_they_were(released, small_city):
    workspace = released.open()
    workspace.ingest([released.days[2]])
    # drives on the second day only
    workspace.forget([small_city.PLATES[12]])
    assert all(each.passed for each in workspace.verify("r0001"))


def test_who_is_not_there_changes_nothing(released):
    before = released.dump()
    assert released.open().forget(["KA 99 X 1"]).vehicles == 0
    assert released.dump() == before
    with pytest.raises(UsageError, match="no vehicle is named"):
        released.open().forget(["", "  ", "n/a".replace("/", "")])


def test_another_key_forgets_nobody(released, plate, tmp_path):
    released.key.unlink()
    VehicleKey.create(released.key)
    before = hashlib.sha256(released.vault.read_bytes()).hexdigest()
    with pytest.raises(StoreKeyError):
        released.open().forget([plate])
    assert hashlib.sha256(released.vault.read_bytes()).hexdigest() == before


def test_a_store_from_a_backup_forgets_nobody(released, plate):
    backup = released.vault.read_bytes()
    workspace = released.open()
    workspace.ingest([released.days[2]])
    workspace.release(force=True)
    released.vault.write_bytes(backup)
    with pytest.raises(StoreBehindError):
        workspace.forget([plate])
    assert number_of(released, plate) is not None


def test_only_a_stream_that_runs_keeps_its_vehicles(monkeypatch):
    streams = [SimpleNamespace(release_id="s0001", ended=True)]
    stub = SimpleNamespace(has_streams=lambda vault: True, all_streams=lambda vault: streams)
    monkeypatch.setattr(forgetting, "vault_stream", stub)
    forgetting._require_no_running_stream(None)
    streams.append(SimpleNamespace(release_id="s0002", ended=False))
    with pytest.raises(UsageError, match=r"running[^']*s0002") as refused:
        forgetting._require_no_running_stream(None)
    assert "s0001" not in str(refused.value)
