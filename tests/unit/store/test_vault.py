"""The vault: made once, opened by its own version only, kept from other eyes."""

import json
import os
import stat
import subprocess
import sys

import duckdb
import pytest

import trafficdp
from trafficdp.errors import (
    DataError,
    StoreBusyError,
    StoreDamagedError,
    StoreFullError,
    StoreKeyError,
    StoreReadOnlyError,
    StoreUnavailableError,
    StoreVersionError,
    UsageError,
)
from trafficdp.ingest.vehicle_key import VehicleKey
from trafficdp.release.status import create_store
from trafficdp.store.vault import Vault

pytestmark = pytest.mark.usefixtures("two_cities")


def test_a_store_is_not_made_over_another(filled):
    before = filled.dump()
    with pytest.raises(UsageError, match="there is a store here already"):
        create_store(filled.store, filled.key)
    assert filled.dump() == before
    assert len(list(filled.folder.glob("*.head"))) == 1


def test_a_folder_without_a_store_is_left_as_it_is(city, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(StoreUnavailableError, match="there is no store here"):
        trafficdp.open(city.config, store=empty).status()
    assert list(empty.iterdir()) == []


def test_a_store_of_another_schema_version_is_refused(filled):
    filled.sql("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    with pytest.raises(StoreVersionError, match="schema version 999") as caught:
        filled.open().status()
    assert caught.value.exit_code == 6


def test_a_foreign_database_is_refused_as_another_version(filled):
    filled.vault.unlink()
    duckdb.connect(str(filled.vault)).close()
    with pytest.raises(StoreVersionError, match="schema version none"):
        filled.open().status()


@pytest.mark.parametrize("content", [b"not a database", b"\0" * 20000], ids=["text", "zeros"])
def test_a_vault_that_is_no_database_is_said_to_be_damaged(filled, content):
    filled.vault.write_bytes(content)
    with pytest.raises(StoreUnavailableError) as caught:
        filled.open().status()
    assert caught.value.exit_code == 6
    assert "\n" not in str(caught.value)


def test_a_vault_with_flipped_bytes_gives_no_bug(filled):
    sound = filled.vault.read_bytes()
    refused = []
    for start in range(0, len(sound), len(sound) // 12):
        filled.vault.write_bytes(sound[:start] + bytes(4096) + sound[start + 4096 :])
        try:
            filled.open().plan(suggestions=False)
        except StoreUnavailableError as error:
            refused.append(str(error))
    assert refused
    assert not any("\n" in text for text in refused)


def test_a_flipped_bit_in_the_header_is_damage(filled):
    content = bytearray(filled.vault.read_bytes())
    assert content[8:12] == b"DUCK"
    content[12] ^= 1
    filled.vault.write_bytes(bytes(content))
    with pytest.raises(StoreDamagedError, match="cannot be read"):
        filled.open().status()


def test_only_the_owner_reads_the_vault_and_what_duckdb_writes_beside_it(filled):
    seen = {}
    with Vault.open(filled.store) as vault:
        with vault.transaction("trying"):
            vault.connection.execute("INSERT INTO meta VALUES ('colour', 'green')")
        for path in filled.store.iterdir():
            if path.name.startswith("vault"):
                seen[path.name] = stat.S_IMODE(path.stat().st_mode)
    assert seen == {"vault.duckdb": 0o600, "vault.duckdb.wal": 0o600, "vault.duckdb.tmp": 0o700}
    assert not (filled.store / "vault.duckdb.tmp").exists()
    assert os.umask(0o022) == 0o022


def test_rows_that_a_killed_command_spilled_are_removed(filled):
    spilled = filled.store / "vault.duckdb.tmp" / "reduction"
    spilled.mkdir(parents=True)
    (spilled / "duckdb_temp_storage-0.tmp").write_bytes(b"rows")
    filled.open().status()
    assert not spilled.parent.exists()


@pytest.mark.parametrize("name", ["md:city", 'o\'brien "x" 100% a#b ünïcode;--'])
def test_stores_lie_under_any_name(city, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workspace = trafficdp.open(city.config, store=name, create=True)
    workspace.ingest([city.days[1]])
    done = workspace.release(again=True, force=True)
    assert done.folder.is_dir()
    assert all(check.passed for check in workspace.verify(done.id))
    assert (tmp_path / name / "vault.duckdb").exists()


@pytest.mark.parametrize(("name", "letter"), [("who?", "question mark"), ("a\\b", "backslash")])
def test_a_name_that_duckdb_takes_for_another_is_refused_before_anything_is_made(
    city, tmp_path, name, letter
):
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=f"cannot lie under a name with a {letter}"):
        trafficdp.open(city.config, store=tmp_path / name / "s", create=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_nobody_else_enters_the_folders_of_a_store_whatever_the_mask(city):
    before = os.umask(0)
    try:
        workspace = city.open()
        workspace.ingest([city.days[1]])
        workspace.plan(save="mine")
        workspace.release(again=True, force=True)
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(city.folder)): stat.S_IMODE(path.stat().st_mode)
        for path in (city.store, *city.store.rglob("*"))
    }
    folders = ("city.store", "city.store/plans", "city.store/releases", "city.store/releases/r0001")
    assert [modes[name] for name in folders] == [0o700] * 4
    private = ("vault.duckdb", ".lock", "plans/mine.json")
    assert [modes[f"city.store/{name}"] for name in private] == [0o600] * 3


def test_a_folder_that_was_there_is_closed_to_others(city):
    city.store.mkdir(mode=0o755)
    city.open()
    assert stat.S_IMODE(city.store.stat().st_mode) == 0o700


KILLED = """
import json, os, sys
from pathlib import Path
from trafficdp.release.status import create_store
from trafficdp.store import store_files
from trafficdp.store.store_files import Head

def die(*_arguments):
    os._exit(9)

write = Head.write
instant = {
    "before the head": lambda: setattr(Head, "write", die),
    "after the head": lambda: setattr(Head, "write", lambda *arguments: (write(*arguments), die())),
    "while the vault is made": lambda: setattr(store_files, "script", die),
}
for name, store, key in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        instant[name]()
        create_store(Path(store), Path(key))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, Path(store, "vault.duckdb").exists(), flush=True)
"""


@pytest.mark.slow
def test_an_init_that_was_killed_leaves_nothing_once_it_was_repeated(small_city, tmp_path):
    instants = ("before the head", "after the head", "while the vault is made")
    cities = {instant: small_city.City(tmp_path / instant) for instant in instants}
    # the children share one start of Python
    killed = [(instant, str(city.store), str(city.key)) for instant, city in cities.items() for _ in range(2)]
    command = [sys.executable, "-c", KILLED, json.dumps(killed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["9 False"] * len(killed), done.stderr
    for city in cities.values():
        create_store(city.store, city.key)
        assert {path.name for path in city.store.iterdir()} == {".lock", "vault.duckdb"}
        with Vault.open(city.store) as vault:
            assert city.head().name == f"city.store.key.{vault.store_id}.head"


def test_a_store_behind_a_symbolic_link_is_the_same_store(filled, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(filled.store)
    workspace = trafficdp.open(filled.config, store=link)
    assert workspace.status().records == filled.open().status().records


def test_a_key_inside_the_store_is_refused_through_a_link_too(city, tmp_path):
    store = tmp_path / "s"
    store.mkdir()
    (tmp_path / "elsewhere").symlink_to(store)
    text = city.config.read_text(encoding="utf-8")
    city.config.write_text(f'key_file = "{tmp_path}/elsewhere/key"\n{text}', encoding="utf-8")
    with pytest.raises(UsageError, match="key must not lie in the store"):
        trafficdp.open(city.config, store=store, create=True)


def test_another_key_is_refused(filled, tmp_path):
    filled.key.unlink()
    VehicleKey.create(filled.key)
    before = filled.dump()
    for command in (
        lambda: filled.open().ingest([filled.days[2]]),
        lambda: filled.open().release(again=True, force=True),
    ):
        with pytest.raises(StoreKeyError, match="not the key of this store") as caught:
            command()
        assert caught.value.exit_code == 6
    assert filled.dump() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_read_or_write_is_refused(filled, mode):
    filled.key.chmod(mode)
    with pytest.raises(StoreKeyError, match="open to other users") as caught:
        filled.open().ingest([filled.days[2]])
    assert caught.value.exit_code == 6


def test_a_missing_key_is_said_to_be_missing(filled):
    filled.key.unlink()
    with pytest.raises(StoreKeyError, match="there is no key"):
        filled.open().release(again=True, force=True)


def test_a_store_whose_making_failed_can_be_made(city, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(StoreFullError):
            city.open()
    assert not (city.store / "vault.duckdb").exists()
    city.open().ingest([city.days[1]])
    assert city.open().release(again=True, force=True).id == "r0001"


def test_a_read_only_store_says_so(filled, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode, **options: mode != os.W_OK)
    with pytest.raises(StoreReadOnlyError) as caught:
        filled.open().status()
    assert caught.value.exit_code == 6


def test_a_vault_that_another_program_has_open_is_busy(filled):
    program = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(filled.vault)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreBusyError, match="another program"):
            filled.open().status()
        other.stdin.close()
        other.wait()
    assert filled.open().status().files == 1


def test_a_failed_transaction_leaves_nothing(filled):
    before = filled.dump()

    def fail(vault):
        with vault.transaction("trying"):
            vault.facts["colour"] = "green"
            vault.connection.execute("INSERT INTO meta VALUES ('colour', 'green')")
            raise DataError("on purpose")

    with Vault.open(filled.store) as vault:
        with pytest.raises(DataError, match="on purpose"):
            fail(vault)
        assert "colour" not in vault.facts
    assert filled.dump() == before
