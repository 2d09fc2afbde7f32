"""The schema is stated once, in SQL files: every table and column says what it is."""

from importlib.resources import files

import duckdb
import pytest

from trafficdp.store.store_files import script

TABLES = {
    "tables/vault": {
        "meta",
        "vehicles",
        "ingests",
        "fixes",
        "contributions",
        "ledger",
        "vehicle_charges",
        "releases",
    },
    "tables/released": {"releases", "publications", "cells"},
    "tables/release_index": {"release_index"},
    "tables/spending": {"spending", "charge_totals", "spending_a_month"},
    "tables/stream": {"streams", "stream_state", "stream_files", "stream_counts", "stream_publications"},
}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_and_column_carries_a_comment(name):
    with duckdb.connect() as connection:
        connection.execute(script(name))
        if name == "tables/released":
            connection.execute(script("tables/speeds"))
        silent = connection.execute(
            "SELECT table_name, NULL FROM duckdb_tables() WHERE trim(coalesce(comment, '')) = '' "
            "UNION ALL SELECT table_name, column_name FROM duckdb_columns() "
            "WHERE NOT internal AND trim(coalesce(comment, '')) = ''"
        ).fetchall()
        found = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
    assert silent == []
    assert {name for (name,) in found} >= TABLES[name]


def test_every_view_carries_a_comment():
    with duckdb.connect() as connection:
        connection.execute(script("tables/released"))
        connection.execute(script("views/released"))
        views = connection.execute(
            "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal ORDER BY view_name"
        ).fetchall()
    assert {"budget", "latest_cells"} <= {name for name, _ in views}
    assert [name for name, comment in views if not comment] == []


def test_every_sql_file_opens_with_a_comment_that_says_what_it_is():
    root = files("trafficdp.store").joinpath("sql")
    texts = {
        f"{folder.name}/{file.name}": file.read_text(encoding="utf-8")
        for folder in root.iterdir()
        for file in folder.iterdir()
    }
    assert len(texts) >= 7
    assert all(text.startswith("-- ") for text in texts.values()), texts.keys()


def test_a_store_has_exactly_the_stated_tables(filled):
    with duckdb.connect() as connection:
        connection.execute(script("tables/vault"))
        stated = connection.execute(
            "SELECT table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() "
            "WHERE NOT internal ORDER BY ALL"
        ).fetchall()
    found = filled.sql(
        "SELECT table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() "
        "WHERE database_name = 'it' AND NOT internal ORDER BY ALL"
    )
    assert found == stated
