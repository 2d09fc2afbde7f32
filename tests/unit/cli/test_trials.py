"""What new users try, step by step, as they would type it."""

import tomllib
from datetime import datetime

HEADER = "Kennzeichen;Zeitpunkt;Breite;Länge;Geschwindigkeit (m/s)"


def as_a_spreadsheet_writes_it(rows):
    """Return rows of a feed as a German office has them: cp1252, semicolons, decimal commas, local order."""
    lines = [HEADER]
    for row in rows:
        plate, at, *numbers = row.split(",")
        when = datetime.fromisoformat(at).strftime("%d.%m.%Y %H:%M:%S")
        lines.append(";".join([plate, when, *(number.replace(".", ",") for number in numbers)]))
    return ("\r\n".join(lines) + "\r\n").encode("cp1252")


def test_a_semicolon_file_becomes_a_map_at_the_first_attempt(empty, feed, command):
    """Only the zone of the clock is for the officer to say."""
    rows = feed("2026-03-02")
    name = empty.write("flotte.csv", as_a_spreadsheet_writes_it(rows))
    suggested = command("suggest", name).out
    assert suggested.count('"CHOOSE"') == 1
    assert tomllib.loads(suggested)["source"][0]["encoding"] == "cp1252"
    text = empty.config.read_text()
    chosen = suggested.replace('"CHOOSE"', '"UTC"')
    empty.config.write_text(text[: text.index("[[source]]")] + chosen, encoding="utf-8")
    told = command("--json", "ingest", name).json["files"][0]
    assert (told["rows_in"], told["rows_kept"]) == (len(rows), len(rows))
    released = command("release", "--yes")
    assert released.code == 0, released.err
    assert (empty.store / "releases" / "r0001" / "map.html").exists()
