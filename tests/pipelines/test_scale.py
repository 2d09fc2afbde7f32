"""The committed curves are whole, and the guide's table of what Spark costs is made of them."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
STEPS = {
    "simulate", "records", "ingest", "first plan", "plan", "release", "charges", "spark", "shuffle", "import",
}  # fmt: skip
MILLION = 1_000_000


@pytest.fixture(scope="module")
def cities():
    """{vehicles: {step: row}}, smallest first."""
    with (ROOT / "data" / "scale" / "curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in sorted(rows, key=lambda row: int(row["vehicles"])):
        found.setdefault(int(row["vehicles"]), {})[row["step"]] = {
            name: float(value) for name, value in row.items() if name != "step"
        }
    return found


def one_machine(city):
    """Processor seconds for the sums of a city: ingest, and what the first plan did more than the second."""
    return city["ingest"]["cpu_seconds"] + max(
        0.0, city["first plan"]["cpu_seconds"] - city["plan"]["cpu_seconds"]
    )


def by_spark(city):
    return city["spark"]["cpu_seconds"] + city["import"]["cpu_seconds"]


def test_every_step_of_every_city_is_there(cities):
    assert len(cities) >= 4
    assert max(city["spark"]["records"] for city in cities.values()) > 99 * MILLION
    for vehicles, city in cities.items():
        assert set(city) == STEPS
        assert len({(row["records"], row["pairs"]) for row in city.values()}) == 1
        assert 90 * vehicles < city["spark"]["records"] < 130 * vehicles
        for step in ("ingest", "spark", "import", "release"):
            assert min(city[step][name] for name in ("cpu_seconds", "peak_mb", "bytes")) > 0


def three_digits(number):
    """``number`` as it is read: 1,310 for 1312."""
    return f"{float(f'{number:.3g}'):,.6g}"


def test_the_guides_table_is_made_of_the_curves(cities, pages):
    _, _, *rows = pages.rows(pages.section("docs/guides/spark.md", "What it costs"))
    assert rows == [
        [
            f"{city['spark']['records'] / MILLION:.3g} million",
            f"{one_machine(city):.0f} s",
            f"{city['spark']['cpu_seconds']:.0f} s",
            f"{city['import']['cpu_seconds']:.0f} s",
            f"{three_digits(city['records']['bytes'] / MILLION)} MB",
            f"{three_digits(city['shuffle']['bytes'] / MILLION)} MB",
            f"{three_digits(city['spark']['bytes'] / MILLION)} MB",
        ]
        for city in cities.values()
    ]


def test_the_break_even_that_the_guide_tells_follows(cities, pages):
    told = pages.told("spark")
    records = [city["spark"]["records"] / MILLION for city in cities.values()]
    slopes = [
        np.polyfit(records, [of(city) for city in cities.values()], 1)[0] for of in (one_machine, by_spark)
    ]
    said = re.search(
        r"A million records more take ([\d.]+) processor seconds .*? and ([\d.]+) by Spark", told
    )
    assert said.groups() == tuple(f"{slope:.2g}" for slope in slopes)
    ratio = re.search(r"Spark needs about ([\d.]+) times the cores", told).group(1)
    assert ratio == f"{slopes[1] / slopes[0]:.2g}"
    largest = list(cities.values())[-1]
    shares = re.search(r"shuffles (\d+) bytes a record and hands over (\d+)", told).groups()
    assert shares == tuple(
        f"{largest[step]['bytes'] / largest['spark']['records']:.0f}" for step in ("shuffle", "spark")
    )
