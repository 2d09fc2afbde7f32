"""What analysts find in released.duckdb: views with comments, in every DuckDB they may have."""

import json
import os
import re
import subprocess
from decimal import Decimal

import duckdb
import pytest

from trafficdp.errors import UsageError
from trafficdp.store.analyst import COLUMNS, TABLES, AnalystSession
from trafficdp.store.released import STORAGE_VERSION
from trafficdp.store.store_files import RELEASED_NAME

VIEWS = {
    "assumptions",
    "budget",
    "latest_cells",
    "manifest",
    "mechanisms",
    "not_protected",
    "post_processing",
    "sources",
    "worst_case_bias",
}


@pytest.fixture(scope="module")
def store(small_city, _released):
    return small_city.at(_released).store


@pytest.fixture(scope="module")
def session(store):
    with AnalystSession(store / RELEASED_NAME) as opened:
        yield opened


@pytest.fixture(scope="module")
def manifest(store):
    return json.loads((store / "releases" / "r0001" / "manifest.json").read_text(encoding="utf-8"))


def rows(session, sql):
    return session.run(sql).to_pylist()


def test_every_table_and_view_says_what_it_is(session):
    found = rows(session, TABLES)
    assert {each["name"] for each in found if each["kind"] == "view"} == VIEWS
    tables = {each["name"] for each in found if each["kind"] == "table"}
    assert tables == {"cells", "publications", "quantiles", "releases"}
    assert [each["name"] for each in found if not each["comment"]] == []


def test_every_column_says_what_it_is(session):
    # latest_cells has the columns of cells
    silent = {(each["name"], each["column"]) for each in rows(session, COLUMNS) if not each["comment"]}
    assert {name for name, _ in silent} <= {"latest_cells"}
    listed = rows(session, COLUMNS)
    assert {each["column"] for each in listed if each["name"] == "latest_cells"} == {
        each["column"] for each in listed if each["name"] == "cells"
    }


@pytest.mark.parametrize(
    ("named", "works"),
    [("r0001", "ask latest_cells"), ("records", "AVG(speed) FROM records"), ("main.Fixes", "FROM records")],
)
def test_a_table_that_is_not_there_names_one_that_is(session, named, works):
    with pytest.raises(UsageError, match=f"does not exist; .*{re.escape(works)}") as refused:
        session.run(f"SELECT 1 FROM {named}")
    assert len(str(refused.value)) <= 160


def test_the_lists_are_those_of_the_manifest(session, manifest):
    order = "ORDER BY number"
    assert rows(session, f"SELECT code, text FROM assumptions {order}") == manifest["honesty"]["assumptions"]
    for view, group in (("not_protected", manifest["unit"]["not_protected"]),):
        assert [each["text"] for each in rows(session, f"SELECT text FROM {view} {order}")] == group
    steps = [each["text"] for each in rows(session, f"SELECT text FROM post_processing {order}")]
    assert steps == manifest["post_processing"]


def test_mechanisms_biases_and_sources_are_those_of_the_manifest(session, manifest):
    for found, said in zip(rows(session, "FROM mechanisms"), manifest["mechanisms"], strict=True):
        assert {name: value for name, value in found.items() if name != "release_id"} == {
            name: said[name] for name in found if name != "release_id"
        }
    said = manifest["uncertainty"]["worst_case_bias"]
    assert rows(session, "SELECT bias, statistic, unit FROM worst_case_bias") == said
    (source,) = rows(session, "SELECT name, format, speed, cleaning FROM sources")
    (expected,) = manifest["data"]["sources"]
    assert source == {name: expected[name] for name in source}


def test_the_sentences_are_those_of_the_manifest(session, manifest):
    (found,) = rows(session, "FROM manifest")
    assert found == {
        "release_id": "r0001",
        "publisher": manifest["identity"]["publisher"],
        "place": manifest["coverage"]["place"],
        "supersedes": None,
        "question": None,
        "selection": None,
        "software_version": manifest["identity"]["software"]["version"],
        "definition": manifest["guarantee"]["definition"],
        "guarantee": manifest["guarantee"]["in_words"],
        "privacy_unit": "vehicle",
        "protected": manifest["unit"]["protected"],
        "counts_revealed": manifest["honesty"]["counts_revealed"],
        "bin_list": manifest["coverage"]["bin_list"],
        "bounding": manifest["bounds"]["method"],
        "composition": manifest["accounting"]["composition"],
        "interval_kind": manifest["uncertainty"]["interval_kind"],
        "intervals_simultaneous": False,
        "tuning_data": manifest["honesty"]["tuning_data"],
        "forced": True,
    }


def test_the_budget_adds_up_and_names_no_vehicle(session, manifest):
    (found,) = rows(session, "FROM budget")
    accounting = manifest["accounting"]
    assert found == {
        "releases": 1,
        "sum_of_epsilons": Decimal(accounting["sum_of_maxima_after"]),
        "budget_per_vehicle": Decimal(accounting["budget_per_vehicle"]),
        "left_for_every_vehicle": Decimal(accounting["left_for_every_vehicle"]),
    }


def test_the_latest_cells_are_those_of_the_newest_release_that_stands(released):
    workspace = released.open()
    assert workspace.release(again=True, force=True).id == "r0002"
    newest = "SELECT DISTINCT release_id FROM latest_cells"
    budget = "SELECT releases, sum_of_epsilons FROM budget"
    with AnalystSession(released.store / RELEASED_NAME) as session:
        assert rows(session, newest) == [{"release_id": "r0002"}]
        before = rows(session, budget)
    workspace.withdraw("r0002")
    with AnalystSession(released.store / RELEASED_NAME) as session:
        assert rows(session, newest) == [{"release_id": "r0001"}]
        # budget never comes back
        assert rows(session, budget) == before
        assert before[0]["releases"] == 2


def test_an_empty_store_has_views_that_answer(tmp_path):
    from trafficdp.store.released import build_released

    build_released(tmp_path, [])
    with AnalystSession(tmp_path / RELEASED_NAME) as session:
        for view in VIEWS:
            assert session.run(f"FROM {view}").num_rows == (1 if view == "budget" else 0)


def test_no_vehicle_is_in_the_file(store, small_city):
    released = (store / RELEASED_NAME).read_bytes()
    with duckdb.connect(str(store / "vault.duckdb"), read_only=True) as vault:
        hashes = [row[0] for row in vault.execute("SELECT hmac FROM vehicles").fetchall()]
    assert hashes
    assert not [
        pseudonym for pseudonym in hashes if pseudonym in released or pseudonym.hex().encode() in released
    ]
    for plate in small_city.PLATES:
        assert plate.encode() not in released


READ_ALL = """
import duckdb, json, sys
connection = duckdb.connect(sys.argv[1], read_only=True)
found = {"version": duckdb.__version__, "rows": {}, "comments": {}}
names = [row[0] for row in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()]
for name in names:
    count = connection.execute("SELECT count(*) FROM (SELECT * FROM " + name + ")").fetchone()[0]
    texts = connection.execute("SELECT COLUMNS(*)::VARCHAR FROM " + name + " ORDER BY ALL").fetchall()
    found["rows"][name] = [count, texts]
views = "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
tables = "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal"
found["comments"] = dict(connection.execute(views + " UNION ALL " + tables).fetchall())
print(json.dumps(found))
"""


def _read_all(python, path):
    result = subprocess.run(
        [python, "-c", READ_ALL, str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TZ": "UTC"},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_duckdb_1_5_reads_the_same_rows_and_comments(store, tmp_path):
    python = os.environ.get("TRAFFICDP_DUCKDB_1_5_PYTHON")
    if not python:
        pytest.skip("TRAFFICDP_DUCKDB_1_5_PYTHON names no interpreter that has DuckDB 1.5")
    import sys

    path = store / RELEASED_NAME
    before = path.read_bytes()
    old, new = _read_all(python, path), _read_all(sys.executable, path)
    assert old["version"].startswith("1.5.")
    assert set(old["rows"]) == VIEWS | {"cells", "publications", "quantiles", "releases"}
    assert old["rows"] == new["rows"]
    assert old["comments"] == new["comments"]
    assert path.read_bytes() == before


def test_the_file_is_written_in_a_format_that_old_clients_know(store):
    assert STORAGE_VERSION == "v1.2.0"
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{store / RELEASED_NAME}' AS released (READ_ONLY)")
        ((tags,),) = connection.execute(
            "SELECT tags FROM duckdb_databases() WHERE database_name = 'released'"
        ).fetchall()
    assert "v1.2.0" in str(tags)


def test_every_view_is_in_its_file_with_a_comment_of_its_grain():
    from trafficdp.store.store_files import script

    text = script("views/released")
    for view in VIEWS:
        assert re.search(rf"CREATE VIEW {view} AS -- (.*\n-- )?One row", text)
        assert f"COMMENT ON VIEW {view} IS '" in text
