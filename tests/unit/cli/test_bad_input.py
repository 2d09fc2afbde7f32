"""Bad files, configurations, stores and disks: one line, the right exit code, and nothing changed."""

import gzip
import json
import os
import re
import resource
import stat
import subprocess
from types import SimpleNamespace

import duckdb
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from searching import examples

from trafficdp.cli.main import run

GOOD = "W-0001,2026-03-02T06:00:00Z,48.2,16.3,5"

FILES = {
    "empty.csv": (b"", "empty.csv is empty"),
    "header.csv": (b"bus,at,lat,lng,v\n", "header.csv has no rows"),
    "blank.csv": (b"\n\n\n", "does not begin with column names"),
    "missing.csv": (b"bus,at,lat,v\nW-1,2026-03-02T06:00:00Z,48.2,5\n", "lacks the column lng"),
    "renamed.csv": (b"plate,when,lat,lng,v\n" + GOOD.encode() + b"\n", "lacks the columns bus, at"),
    "twice.csv": (b"bus,at,lat,lng,v,v\n" + GOOD.encode() + b",5\n", "two columns of one name"),
    "semicolons.csv": (b"bus;at;lat;lng;v\nW-1;x;1;2;3\n", 'write delimiter = ";"'),
    "headless.csv": (GOOD.encode() + b"\n" + GOOD.encode() + b"\n", "a first line that holds values"),
    "times.csv": (b"bus,at,lat,lng,v\nW-1,yesterday,48.2,16.3,5\n", "not a single time of times.csv"),
    "local.csv": (b"bus,at,lat,lng,v\nW-1,2026-03-02 06:00:00,48.2,16.3,5\n", "not a single time"),
    "latin.csv": ("bus,at,lat,lng,v\nÄ-1,2026-03-02T06:00:00Z,48.2,16.3,5\n".encode("latin-1"), "UTF-8"),
    "ragged.csv": (b"bus,at,lat,lng,v\n1,2\n3,4\n", "no rows that fit its header"),
    "binary.csv": (bytes(range(256)) * 8, "binary.csv"),
    "zip.csv": (b"PK\x03\x04" + bytes(100), "truncated zip archive"),
    "plain.csv.gz": (None, "is not a gzip file"),
    "cut.csv.gz": (None, "damaged or truncated gzip"),
    "nothing.csv.gz": (None, "is empty"),
    "other.txt": (b"bus,at,lat,lng,v\n", "no declared source reads other.txt; expected a name that matches"),
    "parquet.csv": (b"PAR1" + bytes(100), "is a Parquet file"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("flags", [(), ("--dry-run",)], ids=["ingest", "dry-run"])
def test_a_bad_file_is_exit_4_and_the_good_one_before_it_is_not_kept(filled, feed, refusal, name, flags):
    content, says = FILES[name]
    packed = gzip.compress("\n".join(["bus,at,lat,lng,v", *feed("2026-03-02")]).encode())
    content = {
        "plain.csv.gz": b"bus,at,lat,lng,v\n",
        "cut.csv.gz": packed[: len(packed) // 2],
        "nothing.csv.gz": gzip.compress(b""),
    }.get(name, content)
    (filled.folder / name).write_bytes(content)
    good = filled.write("good.csv", [GOOD])
    before = filled.dump()
    message = refusal(4, "ingest", *flags, good, name)
    assert says in message
    assert name in message
    assert filled.dump() == before


def test_a_folder_or_nothing_is_exit_4(filled, refusal):
    (filled.folder / "folder.csv").mkdir()
    before = filled.dump()
    assert "folder.csv is a folder" in refusal(4, "ingest", "folder.csv")
    assert "there is no file nothing.csv" in refusal(4, "ingest", "day1.csv.gz", "nothing.csv")
    assert "is a folder" in refusal(4, "ingest", "")
    assert filled.dump() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_exit_4(filled, refusal):
    name = filled.write("secret.csv", [GOOD])
    (filled.folder / name).chmod(0)
    assert "Permission denied" in refusal(4, "ingest", name)


def test_rows_that_say_nothing_are_rejected_by_rule_and_counted(empty, command):
    bad = {
        "missing_vehicle": ",2026-03-02T06:00:00Z,48.2,16.3,5",
        "unreadable_time": "W-1,soon,48.2,16.3,5",
        "missing_position": "W-2,2026-03-02T06:00:00Z,,16.3,5",
        "position_off_globe": "W-3,2026-03-02T06:00:00Z,95,16.3,5",
        "zero_position": "W-4,2026-03-02T06:00:00Z,0,0,5",
        "outside_area": "W-5,2026-03-02T06:00:00Z,40,16.3,5",
        "missing_speed": "W-6,2026-03-02T06:00:00Z,48.2,16.3,",
        "unreadable_speed": "W-7,2026-03-02T06:00:00Z,48.2,16.3,inf",
        "malformed_row": "W-8,2026-03-02T06:00:00Z",
        "duplicate_in_file": GOOD,
    }
    name = empty.write("bad.csv", [GOOD, *bad.values()])
    (report,) = command("--json", "ingest", name).json["files"]
    assert report["rows_in"] == 11
    assert report["rows_kept"] == 1
    assert report["rejected"] == dict.fromkeys(bad, 1)
    text = command("ingest", "--dry-run", name).out
    for rule in bad:
        assert rule in text


CONFIGURATIONS = [
    (
        "resolution = 6",
        "resolution = 16",
        "[map] resolution is not valid; got resolution = 16; expected an int",
    ),
    ("resolution = 6", "resoluton = 6", "unknown key [map] resoluton; expected resolution"),
    ("resolution = 6", "resolution = 6.5", "[map] resolution"),
    ("speed_bound = 20", "speed_bound = 0", "[map] speed_bound is not valid; got speed_bound = 0"),
    ("speed_bound = 20", "speed_bound = -20", "[map] speed_bound"),
    ("speed_bound = 20", "speed_bound = nan", "[map] speed_bound"),
    ("speed_bound = 20", "speed_bound = inf", "[map] speed_bound"),
    ("epsilon = 6", "epsilon = 0", "[privacy] epsilon is not valid"),
    ("epsilon = 6", "epsilon = -6", "[privacy] epsilon"),
    ("epsilon = 6", "epsilon = nan", "[privacy] epsilon"),
    ("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 1e400", "[budget] epsilon_per_vehicle"),
    ('speed_unit = "m/s"\nmin', 'speed_unit = "knots"\nmin', "[map] speed_unit"),
    ('speed_unit = "m/s"\ncol', 'speed_unit = "furlongs"\ncol', '[[source]] "buses" speed_unit'),
    ("replace_user_values", "add_or_remove_user", "[budget] epsilon instead: all vehicles share one budget"),
    ("replace_user_values", "CHOOSE", "has 1 key still to be chosen; got [privacy] relation"),
    ("Europe/Vienna", "Europe/Wien", "[city] time_zone"),
    ('from = "2026-03-02"', 'from = "2026-02-30"', "[city] period.from"),
    ("16.20, 48.10, 16.60, 48.30", "16.20, 48.30, 16.60, 48.10", "[city] study_area.bbox"),
    ("[map]", "[mpa]", "unknown key mpa"),
    ('store = "city.store"', 'store = "city.store', "is not TOML; got line 1:"),
    ("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 1,5", "write decimals with a point (2.5, not 2,5)"),
    ("resolution = 6", "resolution = 6\nresolution = 7", "name every key, and every [table], once"),
    ("[map]", "[city]\n[map]", "got line 1"),
    ("bbox = [16.20, 48.10, 16.60, 48.30]", "bbox = [16.20, 48.10]", "got bbox = [16.20, 48.10]"),
    ('store = "city.store"', 'store = ""', "store is not valid"),
    ('store = "city.store"', 'store = "."', "store is not valid"),
    ('store = "city.store"', 'store = ".."', "store is not valid"),
    ('store = "city.store"', 'store = "/"', "store is not valid"),
]


@pytest.mark.parametrize(("old", "new", "says"), CONFIGURATIONS, ids=lambda value: value[:32])
def test_a_wrong_configuration_is_exit_2_naming_the_key(released, refusal, old, new, says):
    before = {name: held for name, held in released.dump().items() if name != "trafficdp.toml"}
    released.change(old, new)
    for arguments in (
        ("plan",),
        (
            "release",
            "--yes",
        ),
        ("ingest", "day1.csv.gz"),
        ("status",),
    ):
        assert says in refusal(2, *arguments)
    assert {name: held for name, held in released.dump().items() if name != "trafficdp.toml"} == before


VALUES = st.one_of(
    st.integers(-3, 20).map(str),
    st.sampled_from(
        ["nan", "-inf", "1e400", "true", "[]", "{}", '""', '"CHOOSE"', '"m/s"', "2026-03-02", "0.5", "'mph'"]
    ),
    st.text(max_size=6).map(json.dumps),
    st.text(max_size=4),
)


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.integers(0, 30), value=VALUES, cut=st.booleans())
@example(line=8, value="4", cut=False)
@example(line=15, value='"2.5"', cut=False)
def test_no_change_of_a_line_of_the_configuration_is_a_bug(filled, capfd, line, value, cut):
    original = filled.config.read_text()
    lines = original.splitlines()
    line %= len(lines)
    key = lines[line].partition("=")[0]
    lines[line] = "" if cut else f"{key}= {value}"
    capfd.readouterr()
    try:
        filled.config.write_text("\n".join(lines), encoding="utf-8", errors="replace")
        code = run(["plan"])
    finally:
        filled.config.write_text(original)
    out, err = capfd.readouterr()
    assert code in (0, 2, 4, 6), err
    if code:
        assert out == ""
        assert err.count("\n") == 1


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_to_a_file_is_a_bug(empty, capfd, data):
    rows = [GOOD.replace("0001", f"{n:04d}") for n in range(20)]
    content = bytearray("\n".join(["bus,at,lat,lng,v", *rows, ""]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=5))
    if data.draw(st.booleans()):
        content = bytearray(gzip.compress(bytes(content))[: data.draw(st.integers(1, 400))])
    (empty.folder / "damaged.csv").write_bytes(bytes(content))
    capfd.readouterr()
    code = run(["ingest", "--dry-run", "damaged.csv"])
    out, err = capfd.readouterr()
    assert code in (0, 4), err
    if code:
        assert out == ""
        assert err.startswith("trafficdp: ")
        assert err.count("\n") == 1


EVERY = [
    ("status",),
    ("plan",),
    ("release", "--yes", "--again"),
    ("releases",),
    ("ledger",),
    ("ingest", "day1.csv.gz"),
    ("verify", "r0001"),
    ("withdraw", "--yes", "r0001"),
    ("export", "r0001", "--to", "csv", "out.csv"),
]


@pytest.mark.parametrize("arguments", EVERY, ids=lambda value: value[0])
def test_without_a_store_every_command_is_exit_6(empty, refusal, arguments):
    message = refusal(6, "--store", "none.store", *arguments)
    assert "none.store" in message
    assert not (empty.folder / "none.store").exists()


@pytest.mark.parametrize("arguments", EVERY, ids=lambda value: value[0])
def test_without_a_configuration_every_command_is_exit_2(empty, refusal, arguments):
    empty.config.unlink()
    assert "run `trafficdp init` or give --config FILE" in refusal(2, *arguments)


@pytest.mark.parametrize("arguments", EVERY, ids=lambda value: value[0])
def test_a_store_of_another_version_is_exit_6_and_untouched(released, refusal, arguments):
    with duckdb.connect(str(released.store / "vault.duckdb")) as vault:
        vault.execute("UPDATE meta SET value = '0' WHERE key = 'schema_version'")
    before = released.dump()
    message = refusal(6, *arguments)
    assert "the store was made by another version of trafficdp; got schema version 0" in message
    assert released.dump() == before


@pytest.mark.parametrize("content", [b"", b"not a database", bytes(8192)], ids=["empty", "text", "zeros"])
def test_a_vault_that_is_no_database_is_exit_6(released, refusal, content):
    (released.store / "vault.duckdb").write_bytes(content)
    for arguments in (
        ("status",),
        (
            "release",
            "--yes",
        ),
    ):
        refusal(6, *arguments)


def test_another_key_or_none_is_exit_6(released, refusal):
    before = released.dump()
    key = released.folder / "city.store.key"
    kept = key.read_text()
    key.write_text(f"trafficdp-key-1 {'1' * 64}\n")
    for arguments in (
        ("ingest", "day1.csv.gz"),
        (
            "release",
            "--yes",
        ),
    ):
        assert "this is not the key of this store" in refusal(6, *arguments)
    key.unlink()
    for arguments in (
        ("ingest", "day1.csv.gz"),
        (
            "release",
            "--yes",
        ),
    ):
        assert "there is no key at" in refusal(6, *arguments)
    key.write_text(kept)
    key.chmod(0o640)
    assert "chmod 600" in refusal(6, "release", "--yes")
    key.chmod(0o600)
    assert released.dump() == before


@pytest.mark.parametrize(
    "arguments",
    [("release", "--yes", "--again"), ("ingest", "new.csv"), ("withdraw", "--yes", "r0001")],
    ids=lambda value: value[0],
)
def test_a_store_that_may_not_be_written_is_exit_6(released, refusal, monkeypatch, arguments):
    released.write("new.csv", [GOOD])
    before = released.dump()
    # tests may run as root, whom no permission stops
    denied = SimpleNamespace(access=lambda *_arguments: False, W_OK=os.W_OK)
    with monkeypatch.context() as patched:
        patched.setattr("trafficdp.store.vault.os", denied)
        assert "no permission to write" in refusal(6, *arguments)
    assert released.dump() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_exit_6(released, refusal):
    before = released.dump()
    mode = stat.S_IMODE(released.store.stat().st_mode)
    released.store.chmod(0o500)
    try:
        refusal(6, "release", "--yes")
    finally:
        released.store.chmod(mode)
    assert released.dump() == before


@pytest.mark.parametrize("verb", ["release", "ingest"])
def test_a_full_disk_is_exit_6_and_the_store_as_it_was(filled, feed, script, command, verb):
    rows = [row.replace("W-", f"X{n}-") for n in range(12) for row in feed("2026-03-02")]
    arguments = {"release": ["release", "--yes"], "ingest": ["ingest", filled.write("more.csv", rows)]}[verb]
    before = filled.dump()

    def limit():
        # the kernel then says "File too large" where a full disk says "No space left"
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        [script, *arguments], capture_output=True, text=True, preexec_fn=limit, timeout=60, check=False
    )
    assert done.returncode == 6, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("trafficdp: ")
    assert done.stderr.count("\n") == 1
    assert re.search("the disk is full|no space left", done.stderr)
    assert filled.dump() == before
    assert command(*arguments).code == 0


def test_an_export_to_a_full_disk_leaves_no_file(released, refusal, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    before = released.dump()
    with monkeypatch.context() as patched:
        patched.setattr("trafficdp._durable.os.fsync", full)
        assert "no space left" in refusal(6, "export", "r0001", "--to", "csv", "out.csv")
    assert released.dump() == before


def test_a_geopackage_to_a_full_disk_is_exit_6_and_leaves_no_file(released, script, command):
    before = released.dump()

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        [script, "export", "r0001", "--to", "gpkg", "out.gpkg"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        timeout=60,
        check=False,
        env={**os.environ, "TMPDIR": str(released.folder)},
    )
    assert done.returncode == 6, done.stderr
    assert done.stderr == "trafficdp: cannot write out.gpkg: no space left; free some space and try again\n"
    assert released.dump() == before
    assert command("export", "r0001", "--to", "gpkg", "out.gpkg").code == 0


def test_what_was_withdrawn_is_gone_and_stays_charged(released, command, refusal):
    spent = command("--json", "ledger").json["largest_spent"]
    assert command("withdraw", "--yes", "r0001").out == "withdrew r0001; its budget stays spent\n"
    before = released.dump()
    assert "is withdrawn already" in refusal(2, "withdraw", "--yes", "r0001")
    assert "withdrawn" in refusal(2, "export", "r0001", "--to", "csv", "out.csv")
    assert "withdrawn" in refusal(4, "verify", "r0001")
    assert released.dump() == before
    assert not (released.store / "releases" / "r0001").exists()
    assert command("--json", "ledger").json["largest_spent"] == spent
    (release,) = command("--json", "releases").json["releases"]
    assert release["status"] == "withdrawn"


def test_a_release_past_the_budget_is_exit_3_in_one_sentence(released, refusal):
    before = released.dump()
    message = refusal(3, "release", "--yes", "--epsilon", "7")
    assert (
        "privacy budget exceeded; got a release that costs epsilon 7; expected at most the remaining 6"
        in message
    )
    assert released.dump() == before


def test_a_tampered_manifest_fails_to_verify_with_exit_4(released, command):
    path = released.store / "releases" / "r0001" / "manifest.json"
    path.write_text(path.read_text().replace("Small City Transport", "Somebody else"))
    result = command("--json", "verify", "r0001")
    assert result.code == 4
    assert result.json["verified"] is False
    assert result.err.startswith("trafficdp: release r0001 does not verify; got ")
    assert result.err.count("\n") == 1
    for text in ("", "{", "[]", '{"accounting": 5}', "\udcff"):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        assert command("verify", "r0001").code in (4, 6)


def test_a_dry_run_writes_nothing(empty, command):
    before = empty.dump()
    result = command("--json", "ingest", "--dry-run", "day1.csv.gz")
    assert result.json["dry_run"] is True
    assert result.json["files"][0]["new"] == 0
    assert empty.dump() == before


def test_planning_an_empty_store_says_what_to_do(empty, refusal):
    for verb in (("plan",), ("release", "--yes")):
        assert "the store is empty; run `trafficdp ingest FILE...` first" in refusal(2, *verb)


def test_planning_a_period_without_records_says_what_to_do(filled, refusal):
    filled.change('from = "2026-03-02", to = "2026-03-03"', 'from = "2025-03-02", to = "2025-03-03"')
    for verb in (("plan",), ("release", "--yes")):
        assert "no record lies in the study area and the period" in refusal(2, *verb)
