"""`trafficdp doctor`: it says what is whole and what to restore, on any store, and changes nothing."""

import os
import subprocess
import sys

import duckdb
import pytest

from trafficdp.ingest.vehicle_key import VehicleKey

LEAVE_A_LOG = """
import duckdb, os, sys
vault = duckdb.connect(sys.argv[1])
vault.execute("INSERT INTO meta VALUES ('colour', 'green')")
os._exit(0)
"""


def traces(city):
    """Return name, mode, time of change and bytes of all that lies in the city's folder."""
    found = {}
    for path in sorted(city.folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(city.folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def vault_sql(city, statement):
    with duckdb.connect(str(city.store / "vault.duckdb")) as vault:
        vault.execute(statement)


def cut(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])


def other_key(city):
    key = city.folder / "city.store.key"
    key.unlink()
    VehicleKey.create(key)


def head(city):
    (path,) = city.folder.glob("*.head")
    return path


def edited_plan(city):
    path = city.store / "plans" / "mine.json"
    path.write_text(path.read_text().replace('"min_vehicles":3', '"min_vehicles":2'))


RELEASED = "releases/r0001"
DAMAGES = {
    "a cut vault": (lambda city: cut(city.store / "vault.duckdb", 0.3), "vault.duckdb", "restore the newest"),
    "no vault": (lambda city: (city.store / "vault.duckdb").unlink(), "vault.duckdb", "restore the newest"),
    "a vault that is text": (
        lambda city: (city.store / "vault.duckdb").write_text("text"),
        "vault.duckdb",
        "restore the newest",
    ),
    "another key": (other_key, "the key", "point key_file to the key"),
    "no key": (lambda city: (city.folder / "city.store.key").unlink(), "the key", "put back the key"),
    "an entry altered": (
        lambda city: vault_sql(city, "UPDATE ledger SET entry = replace(entry, '6', '5')"),
        "the ledger",
        "restore the newest",
    ),
    "an account altered": (
        lambda city: vault_sql(city, "UPDATE vehicle_charges SET loss_pico = 1 WHERE vehicle_id = 1"),
        "the vehicles' accounts",
        "restore the newest",
    ),
    "no head": (lambda city: head(city).unlink(), "the ledger's head", "where the key is backed up"),
    "a head of nothing": (
        lambda city: head(city).write_text("{}"),
        "the ledger's head",
        "where the key is backed up",
    ),
    "an older vault": (
        lambda city: vault_sql(city, "DELETE FROM ledger; DELETE FROM vehicle_charges"),
        "the ledger's head",
        "restore the newest backup",
    ),
    "a changed file": (
        lambda city: (city.store / RELEASED / "cells.csv").write_text("hex_id\n"),
        "the files of the releases",
        "restore the files from what was published",
    ),
    "a lost folder": (
        lambda city: (city.store / RELEASED).rename(city.folder / "away"),
        "the files of the releases",
        "restore the files from what was published",
    ),
    "a folder of no release": (
        lambda city: (city.store / "releases" / "r0009").mkdir(),
        "the files of the releases",
        "restore the files",
    ),
    "a cut released.duckdb": (
        lambda city: cut(city.store / "released.duckdb", 0.5),
        "released.duckdb",
        "restore",
    ),
    "no released.duckdb": (
        lambda city: (city.store / "released.duckdb").unlink(),
        "released.duckdb",
        "the next release, too, writes it anew",
    ),
    "an edited plan": (edited_plan, "the saved plan mine", "plan and save again"),
    "an open store": (lambda city: city.store.chmod(0o755), "permissions", "chmod"),
    "an open key": (lambda city: (city.folder / "city.store.key").chmod(0o644), "the key", "chmod 600"),
}


def test_a_whole_store_is_exit_0(planned, command):
    result = command("doctor")
    assert result.code == 0
    assert result.err == ""
    assert {line.split()[0] for line in result.out.splitlines()} == {"whole"}
    facts = command("--json", "doctor").json
    assert facts["whole"] is True
    assert {
        "permissions",
        "vault.duckdb",
        "the key",
        "table fixes",
        "the ledger",
        "the vehicles' accounts",
        "the ledger's head",
        "the files of the releases",
        "released.duckdb",
        "the saved plan mine",
    } <= {each["what"] for each in facts["findings"]}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_named_with_the_way_out_and_nothing_changes(planned, command, damage):
    harm, what, todo = DAMAGES[damage]
    harm(planned)
    before = traces(planned)
    result = command("--json", "doctor")
    assert traces(planned) == before
    assert result.code == 6, result
    assert result.err.startswith("trafficdp: the store is not whole; got ")
    assert result.err.count("\n") == 1
    assert result.json["whole"] is False
    damaged = {each["what"]: each for each in result.json["findings"] if each["state"] == "damaged"}
    assert todo in damaged[what]["todo"]
    assert damaged[what]["found"]
    assert what != "released.duckdb" or "vault.duckdb" not in damaged[what]["found"]
    assert not any("doctor" in each["todo"] for each in damaged.values())


def test_a_log_that_a_killed_command_left_is_read_and_stays(planned, command):
    vault = planned.store / "vault.duckdb"
    subprocess.run([sys.executable, "-c", LEAVE_A_LOG, str(vault)], check=True, timeout=60)
    assert vault.with_name("vault.duckdb.wal").exists()
    vault.with_name("vault.duckdb.wal").chmod(0o600)
    before = traces(planned)
    assert command("doctor").code == 0
    assert traces(planned) == before


def test_no_trace_is_left_in_a_store_without_a_lock(planned, command):
    (planned.store / ".lock").unlink()
    before = traces(planned)
    assert command("doctor").code == 0
    assert traces(planned) == before


def test_leftovers_and_heads_of_other_stores_are_named_and_no_fault(planned, command):
    (planned.store / "plans" / ".other.json.new").write_text("{")
    (planned.store / ".vault.duckdb.abc.new").write_text("")
    orphan = planned.folder / "city.store.key.abc.head"
    orphan.write_text("{}")
    result = command("--json", "doctor")
    assert result.code == 0
    notes = {each["what"]: each["found"] for each in result.json["findings"] if each["state"] == "note"}
    assert notes == {
        "leftovers": ".other.json.new, .vault.duckdb.abc.new",
        "other heads beside the key": orphan.name,
    }


def test_a_store_that_is_held_is_not_looked_at(planned, refusal):
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); "
            "sys.stdin.read()",
            str(planned.store / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        holder.stdout.readline()
        assert "the store is in use" in refusal(6, "--wait", "0", "doctor")
        holder.stdin.close()


def test_a_stream_is_looked_at_too(empty, command):
    empty.change(
        "[[source]]", "[stream]\npublish_every = 5\nlateness = 1\nrecords_per_vehicle = 200\n\n[[source]]"
    )
    assert command("stream", "--replay", "0", "day1.csv.gz").code == 0
    assert command("doctor").code == 0
    live = empty.store / "releases" / "s0001" / "cells.parquet"
    os.truncate(live, 100)
    facts = command("--json", "doctor").json["findings"]
    assert {"s0001: changed, missing or foreign: cells.parquet"} == {
        each["found"] for each in facts if each["state"] == "damaged"
    }
    vault_sql(empty, "UPDATE stream_publications SET facts = '{}' WHERE number = 2")
    facts = command("--json", "doctor").json["findings"]
    assert "the releases in the vault" in {each["what"] for each in facts if each["state"] == "damaged"}
