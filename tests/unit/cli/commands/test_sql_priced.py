"""`trafficdp sql` asks the vault what it recognises as a priced question, and charges who asks."""

import csv
import io
import json
import sys

import pytest

MORE = """
[[analysts]]
name = "newsroom"
epsilon_per_vehicle = 7

[[areas]]
name = "north"
bbox = [16.20, 48.20, 16.60, 48.30]
"""
MEAN = (
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 6, force = TRUE) cell, COUNT(*) AS n, "
    "AVG(speed) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM fixes GROUP BY cell ORDER BY n DESC"
)
AS = ("--as", "newsroom")


@pytest.fixture
def city(filled):
    """A city with an analyst and an area; nothing is released yet."""
    filled.config.write_text(filled.config.read_text() + MORE)
    filled.promise()
    return filled


def ledger(command):
    return command("--json", "ledger").json


def test_a_question_is_charged_answered_and_kept(city, command):
    result = command("sql", MEAN, *AS)
    assert result.code == 0
    assert "m_low" in result.out
    assert "charged as newsroom: at most epsilon" in result.err
    assert "counts are exact" in result.err
    assert (city.store / "releases" / "r0001" / "manifest.json").exists()
    found = ledger(command)
    assert [entry["analyst"] for entry in found["entries"]] == [None, None, "newsroom", None]
    (analyst,) = found["analysts"]
    assert analyst["charges"] == 1
    assert analyst["largest_spent"] == found["largest_spent"]


def test_the_second_time_is_free_and_free_sql_sees_the_answer(city, command):
    first = command("--json", "sql", MEAN, *AS).json
    again = command("--json", "sql", MEAN.lower().replace("force = true", "force=true"), *AS)
    assert "nothing was charged" in again.err
    assert again.json["rows"] == first["rows"]
    assert (again.json["charged"], again.json["release"]) == ("0", "r0001")
    released = command("--json", "sql", "SELECT hex_id AS cell, speed_mean_ms AS m FROM cells").json["rows"]
    assert {row["cell"]: row["m"] for row in released} == {row["cell"]: row["m"] for row in first["rows"]}


def test_explain_shows_the_price_and_spends_nothing(city, command):
    result = command("sql", "EXPLAIN " + MEAN, *AS)
    assert result.code == 0
    for words in ("vehicles charged", "half width", "left for the analyst", "by accounting equal"):
        assert words in result.out
    assert ledger(command)["entries"][2:] == []


def test_every_format_takes_an_answer(city, command):
    command("sql", MEAN, *AS)
    rows = list(csv.DictReader(io.StringIO(command("sql", MEAN, "--to", "csv", *AS).out, newline="")))
    assert rows
    assert json.loads(command("sql", MEAN, "--to", "json", *AS).out)[0]["cell"] == rows[0]["cell"]
    for name in ("a.parquet", "a.geojson", "a.csv", "a.json"):
        assert command("sql", MEAN, name, *AS).code == 0
    shapes = json.loads((city.folder / "a.geojson").read_text())["features"]
    assert [shape["properties"]["hex_id"] for shape in shapes] == [row["cell"] for row in rows]
    assert shapes[0]["geometry"]["type"] == "Polygon"


@pytest.mark.parametrize(
    ("code", "arguments", "what"),
    [
        (2, (MEAN,), "nobody says who asks"),
        (2, (MEAN, "--as", "mayor"), "no such analyst"),
        (
            2,
            (MEAN.replace("AVG", "SUM"), *AS),
            "SELECT: this aggregate is not measured; got SUM(speed); try AVG(speed)",
        ),
        (2, (MEAN, "--file", "x.duckdb", *AS), "for the store, not for a file"),
        (3, (MEAN.replace("epsilon = 6", "epsilon = 8"), *AS), "of analyst newsroom"),
        (5, (MEAN.replace("epsilon = 6, force = TRUE", "epsilon = 0.01"), *AS), "too inaccurate to publish"),
    ],
)
def test_refusals_have_their_exit_codes_and_spend_nothing(city, command, refusal, code, arguments, what):
    assert what in refusal(code, "sql", *arguments)
    assert ledger(command)["entries"][2:] == []


def test_status_shows_what_every_analyst_may_spend_and_has_spent(city, command):
    assert "newsroom: may spend epsilon 7; has spent 0 of a vehicle" in command("status").out
    command("sql", MEAN, *AS)
    (analyst,) = command("--json", "status").json["analysts"]
    assert (analyst["name"], analyst["budget"], analyst["charges"]) == ("newsroom", "7", 1)
    assert "newsroom" in command("ledger").out
    city.change('name = "newsroom"', 'name = "archive"')
    city.promise()
    assert "newsroom: not in the configuration" in command("status").out


def test_a_piped_script_mixes_free_and_priced_statements(city, command, monkeypatch):
    text = f"{MEAN};\nSELECT count(*) AS cells FROM cells;\nEXPLAIN {MEAN};"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    done = command("sql", *AS)
    assert done.code == 0, done.err
    assert "cells" in done.out
    assert "answered before" in done.out


def test_the_shell_runs_as_the_analyst_and_sees_what_it_released(released, on_terminal):
    released.config.write_text(released.config.read_text() + MORE)
    released.promise()
    asked = MEAN.replace("epsilon = 6", "epsilon = 0.5")
    typed = f"{asked};\nSELECT max(release_id) AS newest FROM cells;\n\\q\n"
    code, said = on_terminal(["sql", *AS], typed.encode())
    assert code == 0
    assert "charged as newsroom" in said
    assert "r0002" in said
