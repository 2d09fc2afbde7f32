"""The committed curves are whole, and the guide says of them what they hold."""

import csv
import itertools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EPSILONS, FLEETS = (0.25, 0.5, 1, 2, 4, 8, 16), (100, 1_000, 10_000, 100_000)
BY_EPSILON = ("flat", "baseline", "worst_case_clipping", "partial_pooling")
BY_FLEET = ("flat", "baseline", "partial_pooling", "hidden")


@pytest.fixture(scope="module")
def error():
    """{(by, at, map): error in m/s}."""
    with (ROOT / "data" / "accuracy" / "curves.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["by"], float(row["at"]), row["map"]): float(row["error"]) for row in csv.DictReader(file)
        }


def test_every_point_is_there_and_more_budget_and_more_vehicles_help(error):
    points = {("epsilon", at, name) for at in EPSILONS for name in BY_EPSILON}
    points |= {("vehicles", at, name) for at in FLEETS for name in BY_FLEET}
    assert error.keys() == points
    for by, values, names in (
        ("epsilon", EPSILONS, BY_EPSILON[1:]),
        ("vehicles", FLEETS, BY_FLEET[1:]),
    ):
        for name in names:
            assert all(
                error[by, less, name] > error[by, more, name] for less, more in itertools.pairwise(values)
            )
    assert all(
        error["epsilon", at, "partial_pooling"] < error["epsilon", at, "flat"] for at in EPSILONS if at >= 0.5
    )


def test_the_guide_says_of_the_curves_what_they_hold(error, pages):
    said = " ".join(pages.section("docs/guides/which-mechanism.md", "How far off maps are").split())
    day = [error["epsilon", 4, name] for name in ("partial_pooling", *BY_EPSILON[0::2], "baseline")]
    assert (
        f"partial pooling is {day[0]:.2f} m/s off on average, one city-wide average {day[1]:.2f}, "
        f"worst-case clipping {day[2]:.2f} and Laplace and block noise {day[3]:.2f}"
    ) in said
    least, most = ({name: error["vehicles", at, name] for name in BY_FLEET} for at in (100, 100_000))
    assert (
        f"partial pooling is {least['partial_pooling']:.2f} m/s off with 100 vehicles and "
        f"{most['partial_pooling']:.2f} with 100,000; where nothing about a vehicle is public (delta 10⁻⁶) "
        f"{least['hidden']:.2f} and {most['hidden']:.2f}; "
        f"the city-wide average {least['flat']:.2f} and {most['flat']:.2f}"
    ) in said


@pytest.mark.parametrize("name", ["beside", "curves"])
def test_the_pictures_are_there_and_small(name):
    picture = (ROOT / "docs" / "images" / f"{name}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000
