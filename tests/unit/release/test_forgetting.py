"""A vehicle leaves the store: whole, out of the files, alike whether it was known, and keeps its account."""

import hashlib
import json
from types import SimpleNamespace

import pytest

from trafficdp.errors import StoreBehindError, StoreKeyError, UsageError
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release import intake
from trafficdp.store import vault
from trafficdp.store.vault import Vault

pytestmark = pytest.mark.usefixtures("tables_alone")

GONE = [
    "the data is the version that was charged",
    "the published scales cost no vehicle more than it was charged",
    "the manifest's epsilon is the largest recomputed loss",
    "every number follows from what was measured",
    "the noise has the distribution that was charged (half as much is noticed with probability 0.00)",
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
    number = number_of(released, plate)
    fixes = dict(released.sql("SELECT vehicle_id, count(*) FROM fixes GROUP BY vehicle_id"))
    assert fixes[number] > 0
    assert number in {vehicle for _, _, vehicle, *_ in released.contributions()}
    before = tables(released, small_city)

    found = released.open().forget([plate, f"  {plate}  ", "", "not there"])

    assert (found.identifiers, found.vehicles, found.unknown) == (2, 1, 1)
    after = tables(released, small_city)
    assert len(before["fixes"] - after["fixes"]) == fixes[number]
    assert not after["fixes"] - before["fixes"]
    assert released.sql("SELECT count(*) FROM fixes WHERE vehicle_id = ?", [number]) == [(0,)]
    assert not after["contributions"]
    (entry,) = after["ledger"] - before["ledger"]
    said = json.loads(entry[1])
    assert sorted(said) == ["at", "identifiers", "kind", "nonce", "sequence"]
    assert (said["kind"], said["identifiers"]) == ("forgetting", 2)
    assert before["ledger"] < after["ledger"]
    # what it was charged stays, and the keyed hash by which it will be known again
    assert number_of(released, plate) == number
    for unchanged in ("meta", "releases", "vehicles", "vehicle_charges"):
        assert after[unchanged] == before[unchanged]
    with Vault.open(released.store) as opened:
        assert vault.problems(opened) == []


def test_no_file_of_the_store_knows_the_pseudonym_of_who_was_not_charged(filled, plate):
    secret = pseudonym(filled, plate)
    assert secret in filled.vault.read_bytes()
    filled.open().forget([plate])
    for path in filled.folder.rglob("*"):
        if path.is_file() and path.suffix != ".csv":
            assert secret not in path.read_bytes(), path
    assert {path.name for path in filled.store.iterdir()} <= {".lock", "vault.duckdb", "released.duckdb"}


def test_verify_says_why_older_releases_can_no_longer_be_recomputed(released, plate):
    released.open().forget([plate])
    found = {each.name: each.found for each in released.open().verify("r0001") if not each.passed}
    assert list(found) == GONE
    for text in found.values():
        assert text.startswith("vehicles were forgotten since (entry 4 of the ledger)")


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


def test_where_nothing_is_public_no_pseudonym_stays(small_city, two_cities, tmp_path, plate):
    """There is one account, which knows no vehicle; what follows from no record of a release still holds."""
    city = small_city.City(tmp_path)
    small_city.write_hidden(city.folder)
    workspace = city.open()
    workspace.ingest([city.days[1]])
    release = workspace.release()
    secret = pseudonym(city, plate)
    assert secret in city.vault.read_bytes()
    workspace.forget([plate])
    assert secret not in city.vault.read_bytes()
    passed = {each.name: each.passed for each in workspace.verify(release.id)}
    assert not passed["the data is the version that was charged"]
    assert passed["the published scales cost no vehicle more than it was charged"]
    assert passed["anyone can recompute its numbers"]


def test_a_vehicle_that_comes_back_has_the_account_that_it_had(released, small_city, plate):
    number, before = number_of(released, plate), small_city.spent(released)
    workspace = released.open()
    workspace.forget([plate])
    # the same rows, in another file
    copy = released.folder / "copy.csv"
    copy.write_text(released.days[1].read_text(encoding="utf-8") + "\n", encoding="utf-8")
    workspace.ingest([copy, released.days[2]])
    assert number_of(released, plate) == number
    assert released.sql("SELECT count(*) FROM fixes WHERE vehicle_id = ?", [number])[0][0] > 0
    workspace.release(force=True)
    assert small_city.spent(released)[number] > before[number] > 0
    assert all(each.passed for each in workspace.verify("r0002"))


def test_who_was_not_charged_leaves_no_number_that_somebody_has(filled, small_city):
    newest = max(small_city.PLATES[:10], key=lambda name: number_of(filled, name))
    workspace = filled.open()
    workspace.forget([newest])
    assert number_of(filled, newest) is None
    workspace.ingest([filled.days[2]])
    workspace.release(force=True)
    assert all(each.passed for each in workspace.verify("r0001"))


def test_a_plan_that_was_saved_before_is_refused(released, plate):
    workspace = released.open()
    workspace.plan(save="spring")
    workspace.forget([plate])
    with pytest.raises(UsageError, match="data"):
        workspace.release(plan="spring", force=True)


@pytest.mark.parametrize("known", [True, False])
def test_known_or_not_the_same_things_happen(released, small_city, plate, known):
    """All data gets new names, also what was read before the vehicle's first record; verify says the same."""
    workspace = released.open()
    workspace.ingest([released.days[2]])
    # drives on the second day only
    plate = small_city.PLATES[12] if known else "KA 99 X 1"
    before = tables(released, small_city)
    names = [row for (row,) in released.sql("SELECT data_version FROM ingests")]
    assert (workspace.forget([plate]).vehicles == 1) is known
    after = tables(released, small_city)
    (entry,) = after["ledger"] - before["ledger"]
    assert json.loads(entry[1])["identifiers"] == 1
    assert not {*names} & {row for (row,) in released.sql("SELECT data_version FROM ingests")}
    assert [each.name for each in workspace.verify("r0001") if not each.passed] == GONE
    # what was asked before is a new question
    assert not workspace.release(force=True).is_reused
    if not known:
        assert after["fixes"] == before["fixes"]


def test_an_empty_store_knows_nobody(city):
    workspace = city.open()
    with pytest.raises(UsageError, match="the store is empty"):
        workspace.forget(["KA 99 X 1"])
    assert city.sql("SELECT count(*) FROM ledger") == [(0,)]


def test_nobody_is_forgotten_by_an_empty_list(released):
    before = released.dump()
    with pytest.raises(UsageError, match="no vehicle is named"):
        released.open().forget(["", "  ", "n/a".replace("/", "")])
    assert released.dump() == before


def test_a_pseudonym_of_a_file_that_was_undone_goes_too(city, plate):
    """Also where its namespace stands in no configuration any more."""
    text = city.open() and city.config.read_text(encoding="utf-8")
    city.config.write_text(text.replace("[[source]]\n", '[[source]]\nnamespace = "tram"\n'), encoding="utf-8")
    city.open().ingest([city.days[1]])
    (secret,) = VehicleKey.load(city.key).pseudonyms([plate], "tram").to_pylist()
    city.open().undo_ingest(city.days[1])
    city.config.write_text(text, encoding="utf-8")
    found = "SELECT count(*) FROM vehicles WHERE hmac = ?"
    assert city.sql(found, [secret]) == [(1,)]
    assert city.open().forget([plate]).vehicles == 1
    assert city.sql(found, [secret]) == [(0,)]


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
    stub = SimpleNamespace(all_streams=lambda vault: streams)
    monkeypatch.setattr(intake, "vault_releases", stub)
    intake._require_no_running_stream(None)
    streams.append(SimpleNamespace(release_id="s0002", ended=False))
    with pytest.raises(UsageError, match=r"running[^']*s0002") as refused:
        intake._require_no_running_stream(None)
    assert "s0001" not in str(refused.value)
