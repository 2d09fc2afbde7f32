"""The committed table of maps where nothing about a vehicle is public: beside one number and others."""

from pathlib import Path

import pytest

REPORT = Path(__file__).resolve().parents[2] / "data" / "accuracy" / "presence.md"


def rows(heading):
    lines = REPORT.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {heading} "))
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return table
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


@pytest.mark.parametrize(("resolution", "less"), [(7, 0.6), (6, 0.6)])
def test_maps_are_nearer_than_one_number_on_every_day(resolution, less):
    own = [row for row in rows("days") if row[0].endswith(f"resolution {resolution}")]
    assert len(own) == 12
    for row in own:
        flat, error, coverage = float(row[4]), float(row[5].split()[0]), float(row[7].rstrip("%"))
        assert error < flat
        assert coverage >= 95
        if row[2].startswith("zCDP") and row[3] == "4":
            assert error < less * flat


def test_the_error_is_a_quarter_of_that_of_the_best_other_tool():
    *others, own = rows("tool")
    assert len(others) >= 4
    for place in (1, 2):
        assert float(own[place]) <= min(float(row[place]) for row in others) / 4
