"""Files of knowledge in the configuration: what one must say, and what belongs to other kinds of sources."""

from datetime import date

import pytest

from trafficdp.model import SpeedUnit

TABLE = '[[knowledge]]\nkind = "timetable"\npath = "gtfs.zip"\nlicence = "CC-BY-4.0"\n'

SPEEDS = '[[knowledge]]\nkind = "speeds"\npath = "gtfs.zip"\nlicence = "CC0"\ncolumn = "maxspeed"\n'


@pytest.fixture
def text(minimal, document_text, tmp_path):
    (tmp_path / "gtfs.zip").touch()
    return document_text(minimal)


def test_a_timetable_has_a_file_a_licence_and_perhaps_a_date(load, text):
    (plain,) = load(text + TABLE).knowledge
    assert (plain.release, plain.path.name, plain.licence, plain.date) == (
        None,
        "gtfs.zip",
        "CC-BY-4.0",
        None,
    )
    (dated,) = load(f'{text}{TABLE}date = "2026-01-31"\n').knowledge
    assert dated.date == date(2026, 1, 31)


def test_typical_speeds_have_a_column_and_perhaps_a_unit_and_classes(load, text):
    (plain,) = load(text + SPEEDS).knowledge
    assert (plain.column, plain.speed_unit, plain.classes) == ("maxspeed", None, None)
    (whole,) = load(
        text + SPEEDS + 'speed_unit = "mph"\nclasses = { motorway = 70, lane = 12.5 }\n'
    ).knowledge
    assert (whole.speed_unit, whole.classes) == (
        SpeedUnit.MILES_PER_HOUR,
        (("motorway", 70.0), ("lane", 12.5)),
    )


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("classes = { motorway = 0 }", "a speed above 0 for every class"),
        ("classes = {}", "a speed above 0 for every class"),
        ("classes = 50", "a speed above 0 for every class"),
        ('speed_unit = "knots"', '"m/s", "km/h" or "mph"'),
        ('release = "newest"', "to be left out"),
    ],
)
def test_what_is_wrong_with_typical_speeds_is_said(refusal, text, added, said):
    assert said in refusal(f"{text}{SPEEDS}{added}\n")
    assert "column is missing" in refusal(text + SPEEDS.replace('column = "maxspeed"\n', ""))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('licence = "CC-BY-4.0"\n', 'licence = "CC0"\ncolumn = "speed"\n', "to be left out"),
        ('licence = "CC-BY-4.0"\n', "", "licence is missing"),
        ('path = "gtfs.zip"\n', "", "path is missing"),
        ("gtfs.zip", "other.zip", "path does not exist"),
        ("timetable", "shapes", 'one of "release", "timetable", "speeds"'),
        ('kind = "timetable"\n', "", "release is missing"),
        ('licence = "CC-BY-4.0"\n', 'licence = "CC0"\nrelease = "newest"\n', "release is not valid"),
        ('kind = "timetable"\n', 'release = "newest"\n', "to be left out"),
    ],
)
def test_what_is_wrong_with_a_timetable_is_said(refusal, text, old, new, said):
    assert said in refusal(text + TABLE.replace(old, new))
