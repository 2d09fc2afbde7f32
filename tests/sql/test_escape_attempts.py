"""Whatever an analyst types reads what is released, or is refused in one line. Nothing is written."""

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import trafficdp
from trafficdp.errors import DataError, UsageError
from trafficdp.store.analyst import AnalystSession

WORKER = Path(trafficdp.__file__).parent / "store" / "analyst_worker.py"

FILES = """
    SELECT * FROM read_csv('@vault')
    SELECT * FROM read_csv('/etc/passwd', columns={'a': 'VARCHAR'})
    SELECT * FROM read_text('/etc/passwd')
    SELECT * FROM read_blob('@vault')
    SELECT * FROM read_blob('@key')
    SELECT * FROM read_json('@store/x.json')
    SELECT * FROM read_parquet('@store/*.parquet')
    SELECT * FROM parquet_metadata('@store/x.parquet')
    SELECT * FROM read_duckdb('@vault', table_name='fixes')
    SELECT * FROM sniff_csv('/etc/passwd')
    SELECT * FROM glob('/etc/*')
    SELECT * FROM '/etc/passwd'
    SELECT * FROM '@vault'
    SELECT * FROM '@folder/x.csv'
    SELECT * FROM 'https://example.org/x.csv'
    SELECT * FROM read_csv('https://example.org/x.csv')
    SELECT * FROM read_parquet('s3://bucket/x.parquet')
    SELECT * FROM query('SELECT * FROM read_text(''/etc/passwd'')')
    SELECT * FROM query_table('@vault')
    FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''/etc/passwd'')'))
    SELECT (SELECT content FROM read_text('/etc/passwd'))
    EXPLAIN ANALYZE SELECT * FROM read_text('/etc/passwd')
    SELECT * FROM duckdb_extensions()
    .read @folder/x.sql
    .shell ls
    \\! ls
"""
WRITES = """
    COPY (SELECT 1) TO '@folder/new.csv'
    COPY (SELECT 1) TO '@released'
    COPY (SELECT 1) TO '@released' (USE_TMP_FILE false)
    COPY (SELECT 1) TO '@released.wal'
    COPY cells TO '@released.wal' (FORMAT parquet)
    COPY cells FROM '@folder/x.csv'
    COPY FROM DATABASE released TO memory
    WITH x AS (COPY (SELECT 1) TO '@released.wal') FROM x
    WITH x AS (COPY (SELECT 1) TO '@released' (USE_TMP_FILE false)) FROM x
    WITH RECURSIVE x AS (COPY (SELECT 1) TO '@released.wal') FROM x
    SELECT * FROM (WITH x AS (COPY (SELECT 1) TO '@released.wal') FROM x)
    SELECT (WITH x AS (COPY (SELECT 1) TO '@released.wal') SELECT 1 FROM x)
    SELECT 1 UNION ALL (WITH x AS (COPY (SELECT 1) TO '@released.wal') SELECT 1 FROM x)
    FROM query('WITH x AS (COPY (SELECT 1) TO ''@released.wal'') FROM x')
    EXPLAIN COPY (SELECT 1) TO '@released.wal'
    EXPLAIN ANALYZE COPY (SELECT 1) TO '@released.wal'
    EXPLAIN /* x */ ANALYZE COPY (SELECT 1) TO '@released.wal'
    EXPLAIN (ANALYZE) COPY (SELECT 1) TO '@released.wal'
    EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '@released.wal') FROM x
    PIVOT (WITH x AS (COPY (SELECT 1 AS a) TO '@released.wal') FROM x) ON a
    WITH x AS (COPY (SELECT 1 AS a) TO '@released.wal') PIVOT x ON Count
    EXPORT DATABASE '@folder/all'
    IMPORT DATABASE '@folder/all'
    INSERT INTO releases SELECT * FROM releases
    WITH x AS (INSERT INTO cells SELECT * FROM cells RETURNING *) FROM x
    WITH x AS (DELETE FROM cells RETURNING *) FROM x
    WITH x AS (UPDATE cells SET vehicles = 1 RETURNING *) FROM x
    UPDATE cells SET speed_mean_kmh = 0
    DELETE FROM cells
    MERGE INTO cells USING releases ON false WHEN MATCHED THEN DELETE
    TRUNCATE cells
    DROP TABLE cells
    DROP VIEW budget
    ALTER TABLE cells RENAME TO mine
    COMMENT ON TABLE cells IS 'mine'
    CREATE TABLE mine AS SELECT 1
    CREATE TABLE memory.mine AS SELECT 1
    CREATE TEMP TABLE mine AS SELECT * FROM range(100000000000)
    CREATE VIEW mine AS SELECT 1
    CREATE MACRO mine() AS 1
    CREATE FUNCTION mine() AS TABLE FROM read_text('/etc/passwd')
    CREATE SECRET mine (TYPE s3)
    CREATE PERSISTENT SECRET mine (TYPE http)
    CREATE TYPE mine AS ENUM ('a')
    CREATE SEQUENCE mine
    CREATE SCHEMA mine
    CREATE INDEX mine ON cells (cell)
    SELECT 1 INTO mine
    CHECKPOINT
    FORCE CHECKPOINT released
    VACUUM
    ANALYZE
"""
DOORS = """
    ATTACH '@vault'
    ATTACH '@vault' AS v (READ_ONLY)
    ATTACH '@released' AS mine
    ATTACH '@folder/new.duckdb'
    ATTACH ':memory:' AS mine
    ATTACH 'https://example.org/x.duckdb'
    DETACH released
    USE memory
    INSTALL httpfs
    FORCE INSTALL spatial FROM 'https://example.org'
    LOAD httpfs
    LOAD '@folder/x.duckdb_extension'
    UPDATE EXTENSIONS
    SET enable_external_access = true
    SET lock_configuration = false
    SET GLOBAL memory_limit = '100GB'
    SET memory_limit = '100GB'
    SET temp_directory = '@folder'
    SET VARIABLE mine = 1
    SET allowed_directories = ['/']
    SET python_enable_replacements = true
    SET TimeZone = 'Asia/Kolkata'
    RESET ALL
    RESET enable_external_access
    PRAGMA enable_external_access
    PRAGMA enable_profiling
    PRAGMA database_list
    PRAGMA memory_limit = '100GB'
    CALL pragma_version()
    CALL enable_logging(storage='file')
    CALL force_checkpoint('released')
    PREPARE mine AS SELECT 1
    EXECUTE mine
    DEALLOCATE mine
    BEGIN
    COMMIT
    ROLLBACK
    SELECT 1; SELECT 2
    SELECT 1; ATTACH '@vault'
    SELECT 1; DROP TABLE cells;
    SELECT ?
    SELECT $1
    SELECT * FROM fixes
    SELECT * FROM vehicles
    SELECT * FROM vault.fixes
    SELECT * FROM treasure
    SELECT getenv('HOME')
    SELECT system('ls')
    SELECT * FROM arrow_scan(1, 1, 1)
    SELECT * FROM arrow_scan(1::POINTER, 1::POINTER, 1::POINTER)
    SELECT * FROM pandas_scan(1)
    SELECT * FROM python_map_function((SELECT 1))
    SELECT currval('x')
"""
GREEDY = (
    "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t",
    "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a FROM t) FROM t",
    "SELECT sum(sin(a.range * b.range)) FROM range(100000000) a, range(1000000) b",
    "SELECT pg_sleep(1000)",
    "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",
    "FROM range(100000000000)",
    "SELECT NULL FROM range(100000000000)",
    "FROM range(1000000000) ORDER BY random()",
    "SELECT range(1000000000)",
    "SELECT length(repeat('a', 4000000000))",
    "SELECT lpad('a', 2000000000, 'b')",
    "SELECT printf('%2000000000d', 1)",
    "SELECT string_agg(range::VARCHAR) FROM range(1000000000)",
    "SELECT list_resize([1], 2000000000)",
    "SELECT list(a) FROM range(100000) a, range(100000) b",
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "SELECT " + "[" * 20_000 + "]" * 20_000,
    "SELECT " + "+".join(["1"] * 40_000),
    "SELECT " + "NOT " * 20_000 + "true",
    "SELECT " + "CASE WHEN true THEN " * 4000 + "1" + " END" * 4000,
    "SELECT * FROM " + "(SELECT * FROM " * 5000 + "cells" + ")" * 5000,
    "SELECT 1" + " UNION ALL SELECT 1" * 5000,
    "SELECT '" + "x" * 100_000 + "'",
)
"""Queries that ask for too much of something."""
HARMLESS = {
    "SELECT * FROM duckdb_secrets()": 0,
    "SELECT * FROM duckdb_logs()": 0,
    "SELECT * FROM which_secret('s3://x', 's3')": 0,
    "SELECT * FROM read_blob('@released.wal')": 0,
    "SELECT write_log('x')": 1,
    "SELECT * FROM checkpoint()": 0,
    "SELECT current_setting('enable_external_access')": 1,
    "SELECT * FROM duckdb_temporary_files()": 0,
    "SELECT setseed(0.5)": 1,
    # brackets around a whole statement fall away while it is read: they nest nothing
    "(" * 10_000 + "SELECT 1" + ")" * 10_000: 1,
    "SELECT * FROM duckdb_databases() WHERE path IS NOT NULL": 1,
}
"""What is answered, with so many rows, and does no harm."""


def attempts(block):
    return [line.strip() for line in block.strip().splitlines()]


def refused(session, sql):
    with pytest.raises((UsageError, DataError)) as caught:
        session.run(sql)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    for internal in ("Traceback", ".py", "LINE 1", "duckdb.", "Error:", "0x"):
        assert internal not in message
    return message


@pytest.mark.parametrize("attempt", attempts(FILES))
def test_no_file_and_no_network_is_read(place, session, attempt):
    refused(session, place.filled_in(attempt))
    assert place.is_untouched()


@pytest.mark.parametrize("attempt", attempts(WRITES))
def test_nothing_is_written_made_or_changed(place, session, attempt):
    refused(session, place.filled_in(attempt))
    assert place.is_untouched()


@pytest.mark.parametrize("attempt", attempts(DOORS))
def test_no_door_opens(place, session, attempt):
    treasure = session.run("SELECT 1 AS plate")
    refused(session, place.filled_in(attempt))
    assert treasure.num_rows == 1
    assert place.is_untouched()


@pytest.mark.parametrize("attempt", GREEDY, ids=lambda text: text[:40])
def test_a_query_that_asks_for_too_much_ends_in_time_and_the_next_one_is_answered(
    place, session, monkeypatch, attempt
):
    with monkeypatch.context() as patch:
        patch.setattr(session, "timeout", 0.1)
        began = time.monotonic()
        refused(session, attempt)
        assert time.monotonic() - began < session.timeout + 4
    assert session.run("SELECT 1 AS one").to_pylist() == [{"one": 1}]
    assert place.is_untouched()


@pytest.mark.parametrize("query", HARMLESS)
def test_what_is_answered_does_no_harm(place, session, query):
    assert session.run(place.filled_in(query)).num_rows == HARMLESS[query]
    assert place.is_untouched()


def test_the_released_file_may_be_read_only_through_its_tables(place, session):
    assert "files" in refused(session, f"FROM read_blob('{place.released}')")


def test_nothing_is_kept_between_two_queries(session):
    assert session.run("PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)").num_rows == 1
    for _ in range(2):
        assert session.run("SELECT table_name FROM duckdb_tables() WHERE temporary").num_rows == 0
        assert session.run("SELECT type_name FROM duckdb_types() WHERE NOT internal").num_rows == 0


def test_variables_of_python_are_not_tables(session):
    import pandas as pd

    treasure = pd.DataFrame({"plate": ["KA 01"]})
    assert "treasure" in refused(session, "SELECT * FROM treasure")
    assert len(treasure) == 1


BEHIND_THE_FIRST_WALL = textwrap.dedent(
    """
    import importlib.util, json, sys
    spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    connection = worker.open_released(sys.argv[2])
    worker.restrict_process()
    outcomes = {}
    for sql in json.loads(sys.argv[3]):
        try:
            connection.execute(sql).fetchall()
            outcomes[sql] = "done"
        except Exception as error:
            outcomes[sql] = worker.error_facts(error)["kind"]
    print(json.dumps(outcomes))
    """
)


def test_the_kernel_stops_what_gets_past_the_syntax_tree(place):
    hidden = [
        place.filled_in(text)
        for text in (
            "COPY (SELECT 1) TO '@released' (USE_TMP_FILE false)",
            "COPY (SELECT 1) TO '@released.wal'",
            "EXPLAIN ANALYZE COPY (SELECT 1) TO '@released.wal'",
            "WITH x AS (COPY (SELECT 1) TO '@released.wal') FROM x",
            "SELECT content FROM read_blob('@released')",
        )
    ]
    result = subprocess.run(
        [sys.executable, "-P", "-c", BEHIND_THE_FIRST_WALL, WORKER, place.released, json.dumps(hidden)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=place.folder,
    )
    assert result.returncode == 0, result.stderr
    assert set(json.loads(result.stdout).values()) == {"file"}
    assert place.is_untouched()


def test_it_works_without_vault_key_and_lock_and_where_nothing_can_be_written(place, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    copy = alone / "anything.duckdb"
    copy.write_bytes(place.released.read_bytes())
    copy.chmod(0o400)
    alone.chmod(0o500)
    try:
        with AnalystSession(copy) as session:
            assert session.run("SELECT count(*) AS n FROM releases").to_pylist() == [{"n": 1}]
        assert [path.name for path in alone.iterdir()] == ["anything.duckdb"]
    finally:
        alone.chmod(0o700)
