"""The committed figures of a map cut by regions are what the script works out, and say what is claimed."""

import csv
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REGIONS = runpy.run_path(str(ROOT / "pipelines" / "regions.py"))


@pytest.fixture(scope="module")
def figures():
    return REGIONS["figures"]()


def test_the_committed_table_is_what_the_script_works_out(figures):
    with (ROOT / "data" / "scale" / "regions.csv").open(encoding="utf-8", newline="") as file:
        committed = {row["figure"]: float(row["value"]) for row in csv.DictReader(file)}
    assert list(committed) == list(figures)
    assert list(committed.values()) == pytest.approx(list(figures.values()), rel=1e-6)


def test_nothing_is_lost_by_cutting_and_much_by_forgetting_the_sum(figures):
    assert figures["load: largest sum over regions"] == pytest.approx(
        figures["load: largest of the uncut city"], rel=1e-12
    )
    assert figures["load: largest in any one region"] < figures["load: largest sum over regions"]
    assert figures["epsilon: largest loss, by regions"] <= REGIONS["EPSILON"]
    # every region rounds up by 10^-9 at most
    assert figures["epsilon: most that any vehicle differs"] <= REGIONS["ROUNDED_UP"]
    assert figures["epsilon: largest loss, every region by itself"] > 1.5 * REGIONS["EPSILON"]
