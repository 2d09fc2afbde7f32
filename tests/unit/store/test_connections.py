"""Whatever opens DuckDB opens it in one place, and it prints nothing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import trafficdp
from trafficdp.errors import StoreUnavailableError, UsageError
from trafficdp.store import store_files
from trafficdp.store.analyst import AnalystSession
from trafficdp.store.store_files import attached, connect, store_failures
from trafficdp.store.vault import Vault

SETTING = "SELECT current_setting('enable_progress_bar')"
# a program without a file, as Python run by hand: there DuckDB shows its progress of its own accord
LONG = """
import os, sys, duckdb
from trafficdp.store.store_files import connect
connection = duckdb.connect() if sys.argv[1] == "bare" else connect()
((shown,),) = connection.execute("SELECT current_setting('enable_progress_bar')").fetchall()
# to set the time turns the bar on, for this very statement too
if shown:
    connection.execute("SET progress_bar_time = 1")
connection.execute("SELECT sum(hash(a.range * b.range)) FROM range(100000) a, range(1000) b").fetchall()
"""


@pytest.mark.slow
def test_a_connection_is_opened_in_one_place_but_where_no_store_may_be_named():
    """The analyst's process has its own, and so has what reads timetables, which must know no store."""
    found = set()
    for path in Path(trafficdp.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and node.attr == "connect"
                and ast.unparse(node) == "duckdb.connect"
            ):
                found.add(path.name)
    assert found == {"store_files.py", "analyst_worker.py", "timetable.py"}


def test_no_connection_draws_a_bar(monkeypatch, city, tmp_path):
    seen = []

    def noted(*arguments, **options):
        made = connect(*arguments, **options)
        seen.extend(made.execute(SETTING).fetchall())
        return made

    monkeypatch.setattr(store_files, "_idle", {})
    monkeypatch.setattr(store_files, "connect", noted)
    workspace = city.open()
    workspace.ingest([city.days[1]])
    # what reads and releases next starts anew, and is looked at too
    store_files._idle.clear()
    workspace.release(again=True, force=True)
    with Vault.open(city.store) as opened:
        seen += opened.connection.execute(SETTING).fetchall()
    assert len(seen) >= 4
    assert set(seen) == {(False,)}
    with AnalystSession(city.released) as session:
        assert session.run(SETTING).to_pydict() == {"current_setting('enable_progress_bar')": [False]}


def test_one_duckdb_serves_file_after_file_but_never_two_at_once_and_none_after_an_error(tmp_path):
    def used(name, option="READ_WRITE"):
        return attached(tmp_path / name, "it", option)

    with used("first") as first, used("second") as second:
        assert first is not second
        first.execute("CREATE TABLE numbers AS FROM range(3)")
    with used("first", "READ_ONLY") as again:
        assert again is first
        assert again.execute("FROM numbers").fetchall() == [(0,), (1,), (2,)]
    (tmp_path / "second").replace(tmp_path / "first")
    with used("first") as swapped:
        assert swapped.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
    with pytest.raises(duckdb.CatalogException), used("first") as failed:
        failed.execute("BEGIN; FROM numbers")
    with used("first") as other:
        assert other is not failed


def test_whoever_is_refused_leaves_nothing_but_duckdb_itself(tmp_path):
    def used(option="READ_WRITE"):
        return attached(tmp_path / "it", "it", option)

    seen = []

    def refused():
        with used() as first:
            seen.append(first)
            first.execute("CREATE TABLE kept AS FROM range(3)")
            first.begin()
            first.execute("CREATE TABLE lost AS FROM range(3)")
            raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        refused()
    with used("READ_ONLY") as again:
        assert [again] == seen
        assert again.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("kept",)]
        again.begin()
        again.rollback()
    with pytest.raises(StoreUnavailableError), used() as failed, store_failures("asking"):
        failed.execute("FROM nowhere")
    with used() as other:
        assert other is not failed


def test_what_spilled_is_not_used_again(tmp_path):
    def used(name):
        return attached(tmp_path / name, "it", "READ_WRITE", str(tmp_path / "spill"), memory_limit="50MB")

    with used("first") as first:
        first.execute("CREATE TEMP TABLE numbers AS SELECT hash(range) FROM range(1000)")
    with used("second") as second:
        assert second is first
        assert second.execute("SELECT current_setting('temp_directory')").fetchall() == [
            (str(tmp_path / "spill"),)
        ]
        second.execute("CREATE TABLE it.many AS SELECT hash(range) AS number FROM range(3000000)")
        second.execute("CREATE TEMP TABLE sorted AS FROM it.many ORDER BY number")
        assert [*(tmp_path / "spill").iterdir()]
    assert not [*(tmp_path / "spill").glob("*")]
    with used("first") as third:
        assert third is not second


@pytest.mark.slow
@pytest.mark.parametrize("how", ["bare", "ours"])
def test_a_long_statement_prints_nothing(how):
    done = subprocess.run(
        [sys.executable, "-c", LONG, how], capture_output=True, timeout=120, check=True, env=dict(os.environ)
    )
    assert bool(done.stdout) is (how == "bare")
    assert done.stderr == b""
