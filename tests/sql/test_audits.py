"""Each audit selects nothing in a sound database, and finds the row that was planted for it."""

import duckdb
import pytest

from trafficdp.errors import StoreDamagedError
from trafficdp.store.store_files import script
from trafficdp.store.vault import Vault, audit, problems

ONE = "(SELECT min(vehicle_id) FROM vehicle_charges)"
PLANTED = {
    "a (vehicle, instant) twice": "INSERT INTO fixes SELECT * FROM fixes LIMIT 1",
    "a record of an unknown vehicle": "UPDATE fixes SET vehicle_id = 999 WHERE vehicle_id = 1",
    "a record of an unknown file": "UPDATE fixes SET ingest_id = 9 WHERE vehicle_id = 1",
    "a record off the globe or with an unknown unit": (
        "UPDATE fixes SET latitude = 'NaN' WHERE vehicle_id = 1"
    ),
    "contributions of an unknown vehicle or job": (
        "INSERT INTO imported VALUES ('grid', 1, 1, 0, 1, 1, 1, 1)"
    ),
    "contributions of a vehicle to a hexagon twice in a job, or of no record": (
        "INSERT INTO imported VALUES ('grid', 1, 1, 0, 1, 0, 0, 0)"
    ),
    "records beside imported contributions": "INSERT INTO imports VALUES (1, 'job', 'grid')",
    "a gap in the numbers of files": "UPDATE ingests SET ingest_id = 2",
    "a charge that is not positive or has no entry": (
        f"UPDATE vehicle_charges SET loss_pico = 0 WHERE vehicle_id = {ONE}"
    ),
    "a release without its charge": "UPDATE releases SET sequence = 77",
    "a charge without its release": "DELETE FROM releases",
    "a vehicle charged twice for one release": "INSERT INTO vehicle_charges FROM vehicle_charges LIMIT 1",
    "a charge to an unknown vehicle": f"UPDATE vehicle_charges SET vehicle_id = 999 WHERE vehicle_id = {ONE}",
    "a gap in the ledger": "DELETE FROM ledger WHERE sequence = 1",
    "a vehicle whose pseudonym is not 32 bytes": "UPDATE vehicles SET hmac = 'short' WHERE vehicle_id = 1",
    "a release without its allocation, or without its values when they are drawn": (
        "DELETE FROM release_pieces WHERE part = 'facts'"
    ),
    "a piece of an unknown release": "INSERT INTO release_pieces VALUES ('r0009', 'bins', 1, 'a'::BLOB)",
    "a gap in the pieces of a release": "DELETE FROM release_pieces WHERE part = 'bins' AND number = 2",
    "a published release without values": "UPDATE releases SET drawn = false",
}


def test_a_sound_vault_passes_its_audits(released):
    with Vault.open(released.store) as vault:
        assert problems(vault) == []
        audit(vault)


@pytest.mark.parametrize("problem", PLANTED)
def test_a_planted_bad_row_in_the_vault_is_found(released, problem):
    with Vault.open(released.store) as vault:
        vault.connection.execute(PLANTED[problem])
        found = dict(problems(vault))
        assert found.get(problem, 0) >= 1
        with pytest.raises(StoreDamagedError, match="audits"):
            audit(vault)


def test_every_audit_of_the_vault_has_its_bad_row():
    texts = script("audits/vault")
    assert all(f"'{problem}'" in texts for problem in PLANTED)
    assert texts.count("HAVING count(*) > 0") == len(PLANTED)


CELL = (
    "INSERT INTO cells (release_id, hex_id, place, resolution, cell, slot, slot_kind, slot_label, status, "
    "speed_mean_kmh, speed_mean_kmh_low, speed_mean_kmh_high) "
    "SELECT '{release}', '87608b0a5ffffff', 'Old City', 7, {cell}, 0, 'whole', 'whole period', '{status}', "
    "{mean}, {low}, {high}"
)
QUANTILE = (
    "INSERT INTO quantiles (release_id, hex_id, cell, slot, quantile, speed_kmh, rank_low, rank_high, "
    "status) SELECT release_id, hex_id, {cell}, slot, 0.5, {speed}, {rank}, 2, 'released' FROM cells LIMIT 1"
)
RELEASED_AUDITS = ("audits/released", "audits/speeds")
RELEASED_PLANTED = {
    "a quantile of an unknown bin": QUANTILE.format(cell=7, speed=1, rank=1),
    "a quantile without ranks": QUANTILE.format(cell="cell", speed=1, rank="NULL"),
    "a withheld quantile with a number, or another one without": QUANTILE.format(
        cell="cell", speed="NULL", rank=1
    ),
    "a speed in a unit that its release is not in": "UPDATE releases SET speed_unit = 'mph'",
    "a release twice": "INSERT INTO releases SELECT * FROM releases LIMIT 1",
    "a bin twice in a release": "INSERT INTO cells SELECT * FROM cells LIMIT 1",
    "cells of an unknown or withdrawn release": CELL.format(
        release="r0009", cell=7, status="released", mean=1, low=0, high=2
    ),
    "cells of an unknown publication": "UPDATE cells SET publication = 7",
    "a publication twice or out of order": "INSERT INTO publications VALUES ('s0001', 2, '2026-03-03', 4)",
    "a withheld bin with a number": CELL.format(
        release="r0001", cell=7, status="withheld", mean=1, low=0, high=2
    ),
    "a number outside its interval": CELL.format(
        release="r0001", cell=7, status="released", mean=3, low=0, high=2
    ),
    "a number without an interval": CELL.format(
        release="r0001", cell=7, status="released", mean=1, low=0, high="NULL"
    ),
}


def audited(path, statement=None):
    with duckdb.connect(str(path)) as connection:
        if statement:
            connection.execute(statement)
        found = [
            connection.execute(script(name), {"release_id": None}).fetchall() for name in RELEASED_AUDITS
        ]
    return {what for rows in found for what, _ in rows}


def test_a_sound_released_database_passes_its_audits(released):
    assert audited(released.released) == set()


@pytest.mark.parametrize("problem", RELEASED_PLANTED)
def test_a_planted_bad_row_in_the_released_database_is_found(released, problem):
    assert problem in audited(released.released, RELEASED_PLANTED[problem])


def test_every_audit_of_the_released_database_has_its_bad_row():
    stated = "".join(map(script, RELEASED_AUDITS))
    assert stated.count("HAVING count(*) > 0") == len(RELEASED_PLANTED)
    assert all(f"'{problem}'" in stated for problem in RELEASED_PLANTED)
