"""The ledger in the vault: chained, and each vehicle's account pinned by it."""

import re
import shutil
from contextlib import suppress

import numpy as np
import pytest

from trafficdp._durable import new_token
from trafficdp.errors import StoreBehindError, StoreDamagedError
from trafficdp.store import vault_ledger
from trafficdp.store.store_files import Head
from trafficdp.store.vault import Vault

pytestmark = pytest.mark.usefixtures("two_cities", "tables_alone")

ONE = "(SELECT max(vehicle_id) FROM vehicle_charges)"
TAMPERED = {
    "an account is lowered": f"UPDATE vehicle_charges SET loss_pico = loss_pico - 1 WHERE vehicle_id = {ONE}",
    "an account is deleted": f"DELETE FROM vehicle_charges WHERE vehicle_id = {ONE}",
    "all accounts are deleted": "DELETE FROM vehicle_charges",
    "two vehicles are swapped": "UPDATE vehicle_charges SET vehicle_id = 12 - vehicle_id",
    "a charge is moved to another entry": "UPDATE vehicle_charges SET sequence = 3",
    "an account is added to no charge": "INSERT INTO vehicle_charges VALUES (3, 3, 1)",
    "a sum of accounts is lowered": f"UPDATE spending SET loss_pico = loss_pico - 1 WHERE vehicle_id = {ONE}",
    "a sum of accounts is deleted": f"DELETE FROM spending WHERE vehicle_id = {ONE}",
    "what a charge cost at most is lowered": "UPDATE charge_totals SET largest_pico = largest_pico - 1",
    "an entry is edited": "UPDATE ledger SET entry = replace(entry, 'pico\":8', 'pico\":7')",
    "an entry is deleted": "DELETE FROM ledger WHERE sequence = 2",
    "a hash is edited": "UPDATE ledger SET head_hash = repeat('0', 64) WHERE sequence = 2",
    "an entry is no JSON": "UPDATE ledger SET entry = '{' WHERE sequence = 2",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_verify_finds_a_tampered_ledger_or_account(released, what):
    workspace = released.open()
    assert all(check.passed for check in workspace.verify("r0001"))
    released.sql(TAMPERED[what])
    found = []
    with suppress(StoreDamagedError):
        found = workspace.verify("r0001")
    assert not any(check.passed for check in found[:1])


@pytest.mark.parametrize("what", TAMPERED)
def test_what_no_head_remembers_is_checked_before_the_next_release(released, what):
    released.sql(TAMPERED[what])
    with Vault.open(released.store) as vault:
        Head(released.key, vault.store_id).write(None)
    before = released.dump()
    with pytest.raises(StoreDamagedError) as caught:
        released.open().release(again=True, force=True)
    assert caught.value.exit_code == 6
    assert released.dump() == before


def test_what_the_head_remembers_is_not_read_again(released, monkeypatch):
    read = []
    sound = vault_ledger.ledger_rows
    monkeypatch.setattr(
        vault_ledger,
        "ledger_rows",
        lambda vault, after=0: read.append(sound(vault, after)) or sound(vault, after),
    )
    workspace = released.open()
    for _ in range(2):
        assert workspace.release(4, force=True, again=True)
    assert [len(rows) for rows in read] == [0, 0]


def test_a_ledger_cut_at_its_end_is_behind_its_head(released):
    released.sql("DELETE FROM ledger WHERE sequence = 3")
    with pytest.raises(StoreBehindError):
        released.open().release(again=True, force=True)


def test_spending_is_looked_up_for_the_vehicles_asked_in_their_order(released, small_city):
    charges = small_city.charges_by_plate_order(released)
    asked = np.array([11, 3, 999, 1], dtype=np.int64)
    with Vault.open(released.store) as vault:
        found = vault_ledger.spent(vault, asked).tolist()
        assert found == [sum(charges.get(vehicle, {}).values()) for vehicle in asked.tolist()]
        assert found[2] == 0
        vehicles, losses = vault_ledger.charges_of(vault, 2)
        assert dict(zip(vehicles.tolist(), losses.tolist(), strict=True)) == {
            vehicle: account[2] for vehicle, account in charges.items()
        }
        totals = vault_ledger.totals(vault)
    assert (totals.largest, totals.sum_of_maxima) == (8 * 10**12, 8 * 10**12)


UNKNOWN = "INSERT INTO vehicle_charges SELECT sequence, 77, 5 FROM vehicle_charges LIMIT 1"
WITHOUT_SUMS = {
    "none are kept": ("DROP TABLE spending", "DROP TABLE charge_totals"),
    "they were emptied": ("DELETE FROM spending", "DELETE FROM charge_totals"),
    "a version that does not know them charged": (UNKNOWN,),
}


def spending_of(city):
    """All that is asked of the sums: every account, by all charges and by each analyst's, and the totals."""
    vehicles = np.arange(0, 90)
    with Vault.open(city.store) as vault:
        return [
            (
                vault_ledger.spent(vault, vehicles, analyst=name).tolist(),
                vault_ledger.totals(vault, analyst=name),
            )
            for name in (None, "newsroom", "nobody")
        ]


@pytest.fixture
def charged(released):
    """Charges of the curator's and of two analysts'."""
    losses = {None: 3, "newsroom": 5, "university": 7}
    with Vault.open(released.store) as vault:
        for turn in range(2):
            for name, loss in losses.items():
                with vault.transaction("a test"):
                    asked_by = {} if name is None else {"analyst": name}
                    entry = vault_ledger.add_entry(vault, {"kind": "charge", **asked_by})
                    paying = np.arange(1 + turn, 6)
                    vault_ledger.add_charges(vault, entry.sequence, paying, paying * loss, name)
    return released


@pytest.mark.parametrize("what", WITHOUT_SUMS)
def test_sums_that_are_kept_say_what_adding_up_says(charged, what):
    before = spending_of(charged)
    assert [totals.largest for _, totals in before[1:]] == [2 * 5 * 5, 0]
    assert before[0][1].largest == max(before[0][0]) > 8 * 10**12 - 1
    assert [totals.sum_of_maxima for _, totals in before] == [8 * 10**12 + 2 * 5 * 15, 2 * 5 * 5, 0]
    assert before[1][0][:7] == [0, 5, 20, 30, 40, 50, 0]
    for statement in WITHOUT_SUMS[what]:
        charged.sql(statement)
    added_up = spending_of(charged)
    unknown = 5 if what.startswith("a version") else 0
    assert added_up[0][0][77] == unknown
    added_up[0][0][77] -= unknown
    assert added_up == before
    # the next charge keeps them again
    with Vault.open(charged.store) as vault, vault.transaction("a test"):
        entry = vault_ledger.add_entry(vault, {"kind": "charge", "analyst": "newsroom"})
        vault_ledger.add_charges(vault, entry.sequence, np.array([1]), np.array([2]), "newsroom")
    kept = charged.sql("SELECT loss_pico FROM spending WHERE vehicle_id = 1 AND analyst = 'newsroom'")
    assert kept == [(5 + 2,)]
    assert spending_of(charged)[1][0][1] == 5 + 2
    assert charged.sql("SELECT sum(vehicles) FROM charge_totals") == charged.sql(
        "SELECT count(*) FROM vehicle_charges"
    )


def test_a_charge_that_is_undone_leaves_the_sums_as_they_were(charged):
    before = spending_of(charged)
    with Vault.open(charged.store) as vault, suppress(ZeroDivisionError), vault.transaction("a test"):
        vault_ledger.add_charges(vault, 2, np.array([1, 2]), np.array([9, 9]))
        raise ZeroDivisionError
    assert spending_of(charged) == before


def test_nothing_is_spent_in_a_new_store(filled):
    with Vault.open(filled.store) as vault:
        assert vault_ledger.spent(vault, np.array([1, 2])).tolist() == [0, 0]
        assert vault_ledger.totals(vault) == vault_ledger.Totals(0, 0)
        assert [row.facts["kind"] for row in vault_ledger.ledger_rows(vault)] == ["promise"]
        vault_ledger.check_accounts(vault, [])


def test_every_entry_has_random_bits_of_its_own(released, small_city, tmp_path):
    """Published hashes of entries tell no guess from another: nobody knows 256 bits of what they are of."""
    other = small_city.at(shutil.copytree(released.folder, tmp_path / "other"))
    for city in (released, other):
        city.open().withdraw("r0001")
    # but for these bits the last entries of both stores could say the same
    entries = [entry for city in (released, other) for entry in small_city.ledger_entries(city)[-1:]]
    entries += small_city.ledger_entries(released)[:-1]
    nonces = [entry["nonce"] for entry in entries]
    assert len({*nonces}) == len(nonces) == 5
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in nonces)


def test_tokens_are_made_of_fair_bits():
    bits = np.unpackbits(np.frombuffer(bytes.fromhex("".join(new_token() for _ in range(400))), np.uint8))
    # of 400 fair coins each of 256 bits is within 7 standard deviations, and so is every pair of tokens
    table = bits.reshape(400, 256).astype(np.int64)
    assert np.abs(table.sum(axis=0) - 200).max() < 7 * 10
    apart = (table[1:] != table[:-1]).sum(axis=1)
    assert np.abs(apart - 128).max() < 7 * 8
