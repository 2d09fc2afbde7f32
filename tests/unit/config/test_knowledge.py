"""Timetables in the configuration: what one must say, and what belongs to other kinds of sources."""

from datetime import date

import pytest

TABLE = '[[knowledge]]\nkind = "timetable"\npath = "gtfs.zip"\nlicence = "CC-BY-4.0"\n'


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


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('licence = "CC-BY-4.0"\n', "", "licence is missing"),
        ('path = "gtfs.zip"\n', "", "path is missing"),
        ("gtfs.zip", "other.zip", "path does not exist"),
        ("timetable", "shapes", 'one of "release", "timetable"'),
        ('kind = "timetable"\n', "", "release is missing"),
        ('licence = "CC-BY-4.0"\n', 'licence = "CC0"\nrelease = "newest"\n', "release is not valid"),
        ('kind = "timetable"\n', 'release = "newest"\n', "to be left out"),
    ],
)
def test_what_is_wrong_with_a_timetable_is_said(refusal, text, old, new, said):
    assert said in refusal(text + TABLE.replace(old, new))
