"""Rows in, rows out: what each SQL statement makes of a few rows."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from trafficdp.sensitive import Fixes, fixes_schema
from trafficdp.store.store_files import registered, script
from trafficdp.store.vault import SCHEMA_VERSION, Vault
from trafficdp.store.vault_fixes import FileDetails, Incoming


@pytest.fixture
def vault():
    with duckdb.connect() as connection:
        connection.execute(script("tables/vault"))
        meta = "INSERT INTO meta VALUES ('schema_version', ?), ('store_id', 'this')"
        connection.execute(meta, [SCHEMA_VERSION])
        yield connection


def incoming(*rows):
    columns = zip(*rows, strict=True)
    return pa.table(
        [
            pa.array(list(column), pa.binary(32) if place == 0 else None)
            for place, column in enumerate(columns)
        ],
        fixes_schema().names,
    )


def fix(vehicle, time_us, speed=100):
    return (bytes([vehicle]) * 32, time_us, 21.1, 72.8, speed, "kmh", False)


def ingest(vault, number, *rows):
    """Read a file of these rows, its vehicles in one part each."""
    file = Incoming(Vault(vault, Path("vault.duckdb")))
    table = incoming(*rows)
    for name in ("vehicle", "speed_unit"):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(name).dictionary_encode())
    file.add(Fixes(table.cast(fixes_schema())))
    added = file.finish().get(0, 0)
    file.note(FileDetails(f"{number}.csv", str(number), "buses", "{}", "{}"), added)
    return added


def numbered(vault):
    """Return (vehicle_id, first byte of the pseudonym)."""
    rows = vault.execute("SELECT vehicle_id, hmac FROM vehicles ORDER BY 1").fetchall()
    return [(number, pseudonym[0]) for number, pseudonym in rows]


def test_new_vehicles_are_numbered_in_the_order_of_their_pseudonyms(vault):
    ingest(vault, 1, fix(9, 1), fix(3, 2), fix(9, 3))
    assert vault.execute("SELECT vehicle_id, hmac FROM vehicles ORDER BY 1").fetchall() == [
        (1, b"\3" * 32),
        (2, b"\t" * 32),
    ]


def test_known_vehicles_keep_their_number_and_new_ones_follow(vault):
    ingest(vault, 1, fix(9, 1))
    ingest(vault, 2, fix(1, 2), fix(9, 2), fix(5, 2))
    assert [
        hmac[0] for _, hmac in vault.execute("SELECT vehicle_id, hmac FROM vehicles ORDER BY 1").fetchall()
    ] == [
        9,
        1,
        5,
    ]


def test_a_fix_of_a_known_vehicle_and_instant_is_left_out_and_the_earlier_one_stays(vault):
    assert ingest(vault, 1, fix(1, 10, speed=100), fix(1, 20, speed=200)) == 2
    assert ingest(vault, 2, fix(1, 20, speed=999), fix(1, 30, speed=300), fix(2, 20, speed=400)) == 2
    rows = vault.execute(
        "SELECT vehicle_id, time_us, speed_centi, ingest_id FROM fixes ORDER BY ALL"
    ).fetchall()
    assert rows == [(1, 10, 100, 1), (1, 20, 200, 1), (1, 30, 300, 2), (2, 20, 400, 2)]


def test_every_column_of_a_fix_arrives_as_it_was(vault):
    ingest(vault, 4, (b"\7" * 32, 123456789, -33.5, 151.25, -7, "mph", True))
    assert vault.execute("SELECT * FROM fixes").fetchall() == [
        (1, 123456789, -33.5, 151.25, -7, "mph", True, 1)
    ]


def test_a_statement_that_fails_says_its_own_error_and_not_that_of_letting_go(vault):
    def fail():
        with registered(vault, "incoming_vehicles", incoming(fix(1, 1))):
            vault.execute(script("statements/number_vehicles")).fetchall()
            vault.execute("INSERT INTO vehicles SELECT * FROM vehicles").fetchall()

    vault.begin()
    with pytest.raises(duckdb.ConstraintException):
        fail()
    vault.rollback()
    assert vault.execute("SELECT count(*) FROM vehicles").fetchall() == [(0,)]
