"""`trafficdp sql` answers from released.duckdb alone, in the form that is asked for."""

import csv
import io
import json
import os
import pty
import shutil
import sys

import pyarrow.parquet as pq
import pytest

MEANS = "SELECT hex_id, speed_mean_ms FROM latest_cells ORDER BY hex_id"


@pytest.fixture
def cells(released):
    """The rows of the release, from its own file."""
    with (released.store / "releases" / "r0001" / "cells.csv").open(encoding="utf-8", newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: row["hex_id"])


def test_a_table_shows_every_digit(cells, command):
    result = command("sql", "--table", MEANS)
    assert result.code == 0
    assert result.err == ""
    for row in cells:
        assert row["hex_id"] in result.out
        assert row["speed_mean_ms"] in result.out
    assert f"{len(cells)} rows" in result.out


def test_json_has_columns_and_rows(cells, command):
    found = command("--json", "sql", MEANS).json
    assert found["columns"] == [
        {"name": "hex_id", "type": "string"},
        {"name": "speed_mean_ms", "type": "double"},
    ]
    assert [row["hex_id"] for row in found["rows"]] == [row["hex_id"] for row in cells]


def test_csv_goes_where_no_terminal_is_unless_another_form_is_asked_for(cells, command):
    assert command("sql", MEANS).out == command("sql", MEANS, "--to", "csv").out
    rows = list(csv.DictReader(io.StringIO(command("sql", MEANS).out, newline="")))
    assert [row["hex_id"] for row in rows] == [row["hex_id"] for row in cells]
    assert [row["hex_id"] for row in json.loads(command("sql", MEANS, "--to", "json").out)] == [
        row["hex_id"] for row in cells
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.json", "a.geojson", "a.GeoJSON"])
def test_a_file_has_the_format_of_its_name(cells, released, command, name):
    result = command("--json", "sql", MEANS, name)
    path = released.folder / name
    assert result.json == {
        "file": name,
        "format": name.lower().partition(".")[2],
        "rows": len(cells),
        "bytes": path.stat().st_size,
    }
    if name.endswith("parquet"):
        assert pq.read_table(path).num_rows == len(cells)


def test_geojson_can_be_asked_for_whatever_the_name(cells, released, command):
    assert command("sql", MEANS, "map.txt", "--to", "geojson").code == 0
    found = json.loads((released.folder / "map.txt").read_text(encoding="utf-8"))
    assert [feature["id"] for feature in found["features"]] == [row["hex_id"] for row in cells]


def test_the_file_alone_is_enough(released, tmp_path, command, monkeypatch):
    alone = tmp_path / "elsewhere"
    alone.mkdir()
    shutil.copy(released.store / "released.duckdb", alone / "it.duckdb")
    shutil.rmtree(released.folder)
    monkeypatch.chdir(alone)
    assert command("sql", "--file", "it.duckdb", "FROM budget").code == 0
    assert [path.name for path in alone.iterdir()] == ["it.duckdb"]


def test_neither_lock_nor_vault_nor_key_is_touched(released, command, script):
    with (released.store / ".lock").open("r+") as lock:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
        before = released.dump()
        assert command("--wait", "0", "sql", "FROM budget").code == 0
        assert released.dump() == before
    for path in released.folder.glob("*.key*"):
        path.unlink()
    (released.store / "vault.duckdb").unlink()
    assert command("sql", "FROM budget").code == 0


def test_the_store_can_be_named(released, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("--store", str(released.store), "sql", "FROM budget").code == 0
    assert command("--config", str(released.config), "sql", "FROM budget").code == 0


def test_a_long_result_says_that_it_is_cut(released, command):
    result = command("sql", "--table", "FROM range(1001)")
    assert result.out.rstrip().endswith("1,001 rows")
    assert "first 1,000 of 1,001 rows" in result.err
    assert len(command("sql", "FROM range(1001)", "--to", "csv").out.split()) == 1002


def test_a_pipe_is_a_script(released, small_city):
    reading, writing = os.pipe()
    os.write(writing, b"SELECT 1 AS a;\nSELECT ';' AS b")
    os.close(writing)
    shell = small_city.forked(["sql", "--to", "csv"], reading, "out", "err")
    os.close(reading)
    assert small_city.ended(shell) == 0
    assert (released.folder / "err").read_bytes() == b""
    assert (released.folder / "out").read_bytes() == b"a\r\n1\r\nb\r\n;\r\n"


def test_a_script_stops_at_its_first_error(released, command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"SELECT 1 AS a; oops; SELECT 2")))
    result = command("sql", "--to", "csv")
    assert result.code == 2
    assert result.out.split() == ["a", "1"]
    assert result.err.startswith("trafficdp: syntax error")


def test_a_terminal_is_a_shell(released, small_city):
    ours, theirs = pty.openpty()
    os.write(ours, b"\\d\nSELECT 40 +\n2 AS answer;\noops;\n\\d budget\n\\q\n")
    shell = small_city.forked(["sql"], theirs, "out", "err")
    os.close(theirs)
    assert small_city.ended(shell) == 0
    os.close(ours)
    text = (released.folder / "out").read_text(encoding="utf-8")
    for expected in ("latest_cells", "One row a release", "answer", "42", "sum_of_epsilons"):
        assert expected in text
    assert "trafficdp: syntax error" in (released.folder / "err").read_text(encoding="utf-8")


@pytest.mark.parametrize("columns", [80, 400])
def test_a_terminal_shows_first_where_and_how_fast_in_at_most_120_columns(
    cells, released, on_terminal, columns
):
    code, shown = on_terminal(["sql", "FROM latest_cells"], columns=columns)
    assert code == 0
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= min(columns, 120)
    header = next(line for line in lines if "hex_id" in line).split()
    assert {"hex_id", "place", "speed_mean_ms"} <= set(header)
    assert {"\u2026", "..."} & set(header)
    # no name is broken
    for row in cells:
        assert any(row["hex_id"] in line and row["place"] in line for line in lines)
    assert f"{len(cells)} rows" in " ".join(lines)


def test_help_names_the_options(command):
    text = command("sql", "--help").out
    for name in ("--to", "--file", "--timeout", "geojson"):
        assert name in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("SELECT 1", "x.txt"), "does not say its format"),
        (("SELECT 1", "x.csv", "--table"), "--table is for the screen"),
        (("SELECT 1", "--to", "csv", "--table"), "--table is for the screen"),
        (("SELECT 1", "--to", "xlsx"), "to is unknown"),
        (("SELECT 1", "--to", "geojson"), "GeoJSON needs a column of cells"),
        (("SELECT 1", "nowhere/x.csv"), "x.csv"),
        (("SELECT 1", "city.store/released.duckdb", "--to", "csv"), "overwrite the released database"),
        (("SELECT 1", "--file", "nowhere"), "no released database"),
        (("SELECT 1", "--file", "city.store/vault.duckdb"), "the vault"),
        (("SELECT 1", "--timeout", "0"), "timeout"),
        (("SELECT 1", "--timeout", "soon"), "--timeout"),
        (("DROP TABLE cells",), "may only read"),
        (("",), "no statement"),
        (("SELECT 1; SELECT 2",), "one at a time"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_and_changes_nothing(released, refusal, arguments, said):
    before = released.dump()
    assert said in refusal(2, "sql", *arguments)
    assert released.dump() == before


def test_bad_data_is_exit_code_4(released, refusal):
    assert "Could not convert" in refusal(4, "sql", "SELECT 'x'::INTEGER")
    assert "H3 cells" in refusal(4, "sql", "SELECT 'x' AS hex_id", "--to", "geojson")


def test_a_released_database_that_cannot_be_read_is_exit_code_6_and_says_who_knows_more(released, refusal):
    (released.store / "released.duckdb").write_bytes(b"x")
    message = refusal(6, "sql", "SELECT 1")
    assert "not a released database, or it is damaged" in message
    assert "trafficdp doctor" in message


def test_two_formats_at_once_are_refused(released, refusal):
    assert "two formats" in refusal(2, "--json", "sql", "SELECT 1", "--to", "csv")


def test_a_store_without_a_release_has_views_or_says_so(empty, refusal):
    assert "trafficdp release" in refusal(2, "sql", "FROM budget")


def test_times_are_those_of_the_citys_clocks_in_every_form(released, command):
    query = "SELECT DISTINCT slot_start FROM cells"
    assert "2026-03-02T00:00:00+01:00" in command("sql", "--table", query).out
    assert command("--json", "sql", query).json["rows"] == [{"slot_start": "2026-03-02T00:00:00+01:00"}]
    assert "2026-03-02" in command("sql", query, "--to", "csv").out
    assert "+01:00" in command("sql", query, "--to", "csv").out
    for listing in ("releases", "ledger"):
        assert "(Europe/Vienna)" in command(listing).out
    (released_at,) = [each["created_at"] for each in command("--json", "releases").json["releases"]]
    charged_at, *_ = [each["at"] for each in command("--json", "ledger").json["entries"]]
    manifest = json.loads((released.store / "releases" / "r0001" / "manifest.json").read_text("utf-8"))
    for moment in (released_at, charged_at, manifest["identity"]["created_at"]):
        assert moment.endswith(("+01:00", "+02:00"))
