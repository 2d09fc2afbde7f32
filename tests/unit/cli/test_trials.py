"""What new users try, step by step, as they would type it."""

import tomllib
from datetime import datetime

import pandas as pd
import pytest

import trafficdp

HEADER = "Kennzeichen;Zeitpunkt;Breite;Länge;Geschwindigkeit (m/s)"


def as_a_spreadsheet_writes_it(rows):
    """Return rows of a feed as a German office has them: cp1252, semicolons, decimal commas, local order."""
    lines = [HEADER]
    for row in rows:
        plate, at, *numbers = row.split(",")
        when = datetime.fromisoformat(at).strftime("%d.%m.%Y %H:%M:%S")
        lines.append(";".join([plate, when, *(number.replace(".", ",") for number in numbers)]))
    return ("\r\n".join(lines) + "\r\n").encode("cp1252")


@pytest.mark.store
def test_an_officers_semicolon_file_becomes_a_map_at_the_second_attempt(empty, feed, command):
    """The first attempt says what only the officer knows, the zone of the clock; the second draws the map."""
    rows = [*feed("2026-03-02"), *feed("2026-03-03")]
    name = empty.write("flotte.csv", as_a_spreadsheet_writes_it(rows))
    suggested = command("suggest", name).out
    assert suggested.count('"CHOOSE"') == 1
    assert tomllib.loads(suggested)["source"][0]["encoding"] == "cp1252"
    text = empty.config.read_text()
    empty.config.write_text(text[: text.index("[[source]]")] + suggested, encoding="utf-8")
    first = command("ingest", name)
    assert (first.code, first.out) == (2, "")
    assert "CHOOSE" in first.err
    assert "time_zone" in first.err
    empty.change('"CHOOSE"', '"UTC"')
    told = command("--json", "ingest", name).json["files"][0]
    assert (told["rows_in"], told["rows_kept"]) == (len(rows), len(rows))
    assert command("release", "--yes").code == 0
    assert (empty.store / "releases" / "r0001" / "map.html").stat().st_size > 100_000


@pytest.mark.store
def test_an_analyst_is_led_from_a_question_that_cannot_be_to_its_number(released, command):
    """No clause, then no budget named: every refusal ends in one thing that works."""
    assert command("sql", "FROM latest_cells").code == 0
    asked = "SELECT WITH DIFFERENTIAL_PRIVACY avg(f.speed) FROM fixes f WHERE extract(hour FROM f.time) < 12"
    refused = command("sql", asked)
    assert refused.code == 2
    works = refused.err.split("; try ")[1].strip()
    line = asked.replace("DIFFERENTIAL_PRIVACY", f"DIFFERENTIAL_PRIVACY {works}")
    price = command("--json", "sql", f"EXPLAIN {line}").json
    assert price["charged"] == "0"
    # the one number of the city and its interval, unasked
    answer = command("--json", "sql", line).json
    assert [each["name"] for each in answer["columns"]] == [
        "speed_mean_ms",
        "speed_mean_ms_low",
        "speed_mean_ms_high",
    ]
    (row,) = answer["rows"]
    assert row["speed_mean_ms_low"] <= row["speed_mean_ms"] <= row["speed_mean_ms_high"]
    assert command("--json", "sql", line).json["charged"] == "0"


@pytest.mark.store
def test_a_data_scientist_goes_from_a_frame_to_a_map_in_a_notebook(empty, feed):
    """A frame of pandas with times of its own, one source: no name, no file, no other import."""
    columns = ["bus", "at", "lat", "lng", "v"]
    rows = [row.split(",") for row in [*feed("2026-03-02"), *feed("2026-03-03")]]
    frame = pd.DataFrame(rows, columns=columns).astype({"lat": float, "lng": float, "v": float})
    city = trafficdp.open()
    (told,) = city.ingest(frame)
    assert told.added == len(frame)
    plan = city.plan(max_half_width="0.7 km/h")
    assert "would be refused" not in repr(plan)
    release = city.release(plan.loss)
    hexagons = release.to_geodataframe()
    assert hexagons["speed_mean_ms"].notna().any()
    assert set(plan.to_frame()["hex_id"]) <= set(hexagons["hex_id"])
    slowest = city.ask(
        "SELECT place, speed_mean_ms FROM latest_cells ORDER BY speed_mean_ms LIMIT 1"
    ).to_frame()
    assert slowest["speed_mean_ms"].item() == hexagons["speed_mean_ms"].min()
    for shown in (city, plan, release):
        assert len(repr(shown)) < 1_000
        assert shown._repr_html_().startswith("<")
