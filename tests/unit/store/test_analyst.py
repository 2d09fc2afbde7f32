"""A session opens what is released and nothing else, and survives what happens to its process."""

import os
import signal
import subprocess
import sys
import time

import duckdb
import pyarrow as pa
import pytest

from trafficdp.errors import DataError, StoreDamagedError, UsageError
from trafficdp.store import analyst
from trafficdp.store.analyst import LONGEST_QUERY, AnalystSession
from trafficdp.store.analyst_worker import MOST_ROWS
from trafficdp.store.released import build_released
from trafficdp.store.store_files import RELEASED_NAME


def built(folder):
    folder.mkdir()
    build_released(folder, [])
    return folder / RELEASED_NAME


@pytest.fixture
def path(tmp_path):
    return built(tmp_path / "store")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """One for all who ask: nothing is kept between two queries."""
    with AnalystSession(built(tmp_path_factory.mktemp("asked") / "store"), timeout=5) as opened:
        yield opened


@pytest.fixture
def own_session(path):
    with AnalystSession(path, timeout=5) as opened:
        yield opened


def test_rows_come_with_unique_names(session):
    assert session.run("SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a").to_pylist() == [
        {"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4}
    ]


def test_what_is_refused_leaves_the_session_ready_for_a_table(own_session):
    with pytest.raises(UsageError, match="may only read"):
        own_session.run("WITH x AS (COPY (SELECT 1) TO 'x.csv') FROM x")
    own_session.keep("kept", pa.record_batch({"n": [7]}))
    assert own_session.run("FROM kept").to_pylist() == [{"n": 7}]


def test_times_with_a_zone_are_in_utc_where_nothing_was_released(session):
    (row,) = session.run("SELECT TIMESTAMPTZ '2026-03-03 07:00:00+05:30' AS at").to_pylist()
    assert row["at"].isoformat() == "2026-03-03T01:30:00+00:00"


def test_large_results_arrive_whole(session):
    table = session.run("SELECT range AS n FROM range(1000000)")
    assert table.num_rows == 1_000_000
    assert table.column("n").to_numpy().sum() == 999_999 * 500_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "VALUES (1)",
        "FROM cells",
        "TABLE cells",
        "DESCRIBE cells",
        "SHOW TABLES",
        "SUMMARIZE cells",
        "SELECT 1;",
    ],
)
def test_whatever_reads_is_answered(session, query):
    assert session.run(query).num_columns > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "query", ["EXPLAIN SELECT 1", "explain analyze from cells", "EXPLAIN (ANALYZE) SELECT 1"]
)
def test_explain_explains(session, query):
    assert session.run(query).num_rows == 1


@pytest.mark.slow
def test_errors_are_the_engines_words_without_its_excerpts(session):
    with pytest.raises(UsageError) as caught:
        session.run("SELECT spede_mean\nFROM cells")
    message = str(caught.value)
    assert 'Referenced column "spede_mean"' in message
    assert "speed_mean_status" in message
    assert "LINE" not in message
    assert "\n" not in message


@pytest.mark.slow
def test_a_value_that_does_not_fit_is_a_data_error(session):
    with pytest.raises(DataError, match="Could not convert"):
        session.run("SELECT 'x'::INTEGER")


@pytest.mark.slow
def test_a_query_of_more_than_the_limit_is_refused(session):
    with pytest.raises(UsageError, match="too long"):
        session.run("-" * (LONGEST_QUERY + 1))


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["range(1000)", "range(100000)"])
def test_a_result_of_more_than_the_limit_is_refused_and_the_next_is_answered(session, rows, monkeypatch):
    monkeypatch.setattr(analyst, "LARGEST_RESULT", 4000)
    with pytest.raises(UsageError, match="too large"):
        session.run(f"FROM {rows}")
    assert session.run("SELECT 1 AS a").num_rows == 1


@pytest.mark.slow
def test_more_rows_than_the_limit_are_refused(session):
    with pytest.raises(UsageError, match="too many rows"):
        session.run(f"SELECT NULL FROM range({MOST_ROWS + 1})")
    assert session.run(f"SELECT NULL FROM range({10**6})").num_rows == 10**6


@pytest.mark.slow
def test_a_killed_process_is_an_error_once(own_session):
    os.kill(own_session._worker._process.pid, signal.SIGKILL)
    own_session._worker._process.wait()
    assert own_session.run("SELECT 1 AS a").num_rows == 1


@pytest.mark.slow
def test_a_result_that_is_no_table_is_an_error_once(session, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(analyst._Worker, "_result", lambda self, deadline: b"cut off")
        with pytest.raises(UsageError, match="broke the engine"):
            session.run("SELECT 1 AS a")
    assert session.run("SELECT 2 AS a").to_pylist() == [{"a": 2}]


@pytest.mark.slow
def test_a_closed_session_leaves_no_process_and_opens_again(own_session):
    process = own_session._worker._process
    own_session.close()
    own_session.close()
    assert process.returncode is not None
    assert own_session.run("SELECT 1").num_rows == 1


def test_the_environment_of_the_caller_stays_outside(path, monkeypatch):
    monkeypatch.setenv("CITY_PASSWORD", "hunter2")
    with AnalystSession(path) as session:
        with open(f"/proc/{session._worker._process.pid}/environ", "rb") as file:
            assert b"hunter2" not in file.read()


@pytest.mark.slow
def test_a_module_in_the_current_folder_is_not_imported(path, tmp_path, monkeypatch):
    (tmp_path / "duckdb.py").write_text("raise SystemExit('taken over')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with AnalystSession(path) as session:
        assert session.run("SELECT 1").num_rows == 1


@pytest.mark.slow
def test_the_process_ends_with_its_parent(path):
    code = (
        "import os, sys; from pathlib import Path; from trafficdp.store.analyst import AnalystSession\n"
        "session = AnalystSession(Path(sys.argv[1])); print(session._worker._process.pid, flush=True)\n"
        "os._exit(0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    pid = int(result.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if " Z " in file.read():
                    return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    pytest.fail("the process is still there")


@pytest.mark.parametrize("name", ["nowhere.duckdb", ".", "a\0b", "x" * 5000])
def test_no_file_is_a_usage_error(tmp_path, name):
    with pytest.raises(UsageError, match="no released database"):
        AnalystSession(tmp_path / name)


@pytest.mark.slow
def test_a_vault_is_refused_by_its_name_and_by_its_tables(path):
    vault = path.with_name("vault.duckdb")
    link = path.with_name("link.duckdb")
    with duckdb.connect(str(vault)) as connection:
        connection.execute("CREATE TABLE fixes (a INT)")
    link.symlink_to(vault)
    for disguise in (vault, link):
        with pytest.raises(UsageError, match="vault"):
            AnalystSession(disguise)
    with pytest.raises(StoreDamagedError, match="not a released database"):
        AnalystSession(vault.rename(path.with_name("copy.duckdb")))


def test_a_released_database_that_holds_vehicles_is_refused(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE vehicles (hmac BLOB)")
    with pytest.raises(StoreDamagedError, match="not a released database"):
        AnalystSession(path)


@pytest.mark.parametrize("content", [b"", b"not a database", b"DUCK" * 5000])
def test_what_is_no_database_is_a_data_error(tmp_path, content):
    path = tmp_path / "x.duckdb"
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError, match="not a released database, or it is damaged"):
        AnalystSession(path)
    assert path.read_bytes() == content


def test_a_damaged_database_is_said_to_be_damaged(path):
    content = bytearray(path.read_bytes())
    content[4096 * 3 :] = os.urandom(len(content) - 4096 * 3)
    path.write_bytes(content)
    with pytest.raises(StoreDamagedError):
        AnalystSession(path)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), 1e9])
def test_a_timeout_must_be_a_time(path, timeout):
    with pytest.raises(UsageError, match="timeout"):
        AnalystSession(path, timeout=timeout)


def test_a_quote_in_the_path_is_only_a_quote(path):
    odd = path.with_name("it's; DROP TABLE cells --.duckdb")
    path.rename(odd)
    with AnalystSession(odd) as session:
        assert session.run("FROM cells").num_rows == 0
