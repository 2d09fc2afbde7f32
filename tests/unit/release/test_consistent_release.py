"""Hexagons made consistent with larger ones, from configuration to verification."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from trafficdp.binning.cells import cells_from_text, parents_of
from trafficdp.errors import UsageError
from trafficdp.export.report.findings import findings
from trafficdp.export.report.noise_law import law_of
from trafficdp.model import Statistic, resolution_of
from trafficdp.noise.source import SimulatedNoise

MEAN = Statistic.MEAN

LOSSES = "the published scales cost no vehicle more than it was charged"


def drive(city):
    """Replace the records: thirty vehicles in sixteen hexagons; the first always in the last of these."""
    for day, path in city.days.items():
        rows = ["plate,at,latitude,longitude,speed"]
        for vehicle in range(30):
            at = datetime(2026, 3, 2 + day, 8, tzinfo=timezone(timedelta(hours=5, minutes=30)))
            for record in range(20 if vehicle else 60):
                at += timedelta(seconds=200)
                place = (3 * vehicle + record) % 16 if vehicle else 15
                latitude, longitude = 21.12 + 0.012 * (place % 4), 72.72 + 0.012 * (place // 4)
                speed = 20 + (vehicle * 37 + record * 11 + day * 3) % 41
                rows.append(f"VEHICLE {vehicle},{at.isoformat()},{latitude},{longitude},{speed}")
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def made(small_city, tmp_path_factory):
    """A city with a release of means, and its release."""
    folder = tmp_path_factory.mktemp("consistent") / "city"
    city = small_city.City(folder, resolution="8", epsilon="12", accounting="consistent", statistics='"mean"')
    drive(city)
    city.open().ingest(list(city.days.values()))
    return city, city.open().release(force=True)


@pytest.fixture
def released(small_city, tmp_path, made):
    """A copy of both."""
    city, release = made
    shutil.copytree(city.folder, tmp_path / "city")
    copy = small_city.at(tmp_path / "city")
    return copy, replace(release, folder=copy.store / "releases" / release.id)


def manifest_of(release):
    return json.loads((release.folder / "manifest.json").read_text(encoding="utf-8"))


def failed(city):
    return {check.name for check in city.open().verify("r0001") if not check.passed}


def test_a_release_with_parents_is_verified_from_counts_and_its_files(released):
    city, release = released
    assert failed(city) == set()
    manifest = manifest_of(release)
    parents = manifest["noise"]["parents"]
    assert manifest["noise"]["kind"] == "consistent"
    number = max(parents["of"]) + 1
    assert number == len(parents["half_width"]) == len(parents["shift"]) > 0
    table = pd.read_parquet(release.folder / "mechanism.parquet")
    numbered = table[table["speed_mean_status"] != "withheld"].reset_index(drop=True)
    of = np.array(parents["of"])
    assert len(of) == len(numbered)
    above = parents_of(cells_from_text(list(numbered["h3"])), 7)
    for parent in range(number):
        mine = np.flatnonzero(of == parent)
        assert len(mine) > 1
        # all released hexagons of one larger one, in one block
        assert np.array_equal(mine, np.flatnonzero(above == above[mine[0]]))
        assert numbered["speed_mean_block"][mine].nunique() == 1
    assert "larger hexagons" in " ".join(manifest["post_processing"])
    assert "noise_seed" not in json.dumps(manifest)
    # what is drawn for parents is said; their numbers are nowhere
    assert set(parents) == {"of", "half_width", "shift"}
    assert set(resolution_of(cells_from_text(list(table["h3"])))) == {8}


@pytest.mark.parametrize("name", ["half_width", "shift", "of"])
def test_parents_that_were_altered_are_caught(released, name):
    city, release = released
    document = manifest_of(release)
    parents = document["noise"]["parents"]
    if name == "half_width":
        parents[name] = [max(width // 4, 1) for width in parents[name]]
    elif name == "shift":
        parents[name] = [shift + 2 for shift in parents[name]]
    else:
        parents[name] = [-1] * len(parents[name])
    (release.folder / "manifest.json").write_text(json.dumps(document), encoding="utf-8")
    assert {LOSSES, "every file is the one that was published"} <= failed(city)


def test_a_changed_scale_is_caught(released):
    city, release = released
    path = release.folder / "mechanism.parquet"
    table = pd.read_parquet(path)
    for name in [name for name in table if name.endswith("_block_scale")]:
        table[name] /= 2
    table.to_parquet(path)
    assert LOSSES in failed(city)


def test_every_reader_of_a_release_takes_it(released, tmp_path):
    city, release = released
    city.open().city_report(release.id, tmp_path / "report.html")
    assert (release.folder / "map.html").stat().st_size > 0
    rows = city.sql("SELECT h3, speed_mean_kmh FROM cells ORDER BY cell", database="released")
    assert len(rows) == len(release.to_frame())
    mean = findings(release.release, None).statistics[0]
    assert mean.statistic is MEAN
    assert np.all((mean.certain.low <= mean.certain.value) & (mean.certain.value <= mean.certain.high))
    assert mean.average.low < mean.average.value < mean.average.high
    assert len(city.open().releases()) == 1


@pytest.mark.slow
def test_the_law_that_reports_read_bounds_what_was_drawn(made):
    city, release = made
    allocation = city.open().with_map(accounting="consistent").plan().allocation
    calibrated = allocation.calibrated
    rows = np.flatnonzero(release.release.estimates[MEAN].noise["block"] >= 0)
    law = law_of(release.release, MEAN).at(rows)
    family = calibrated.family()
    children = calibrated.parents.children
    # nothing but published columns is known to it
    np.testing.assert_array_equal(law.plain.size, family.raw.size[: len(rows)])
    ratio = law.spread[children] / family.combination.spread
    assert np.all((ratio >= 1 - 1e-9) & (ratio <= np.sqrt(1.5) * (1 + 1e-9)))
    assert np.all(np.delete(law.spread, children) == 0)
    runs, drawn_by = 4_000, calibrated.noise
    number = int(drawn_by.block.max()) + 1
    drawn = SimulatedNoise(5).block(
        np.tile(drawn_by.half_width, runs),
        (drawn_by.block + number * np.arange(runs)[:, None]).ravel(),
        np.full(number * runs, drawn_by.scale),
    )
    noise = drawn.reshape(runs, -1) * family.raw.unit
    matrix = np.array([family.values(unit) for unit in np.eye(noise.shape[1])])
    noise = noise @ matrix
    for error in (0.3, 0.02):
        half = law.half_width(error) - law.bias
        missed = (np.abs(noise) > half).sum(axis=0)
        assert np.all(binom.sf(missed - 1, runs, error) > 1e-9)
        missed = int((np.abs(noise.mean(axis=1)) > law.average_half_width(error)).sum())
        assert binom.sf(missed - 1, runs, error) > 1e-9
    # an eighth of it is caught
    missed = int((np.abs(noise.mean(axis=1)) > law.average_half_width(0.02) / 8).sum())
    assert binom.sf(missed - 1, runs, 0.02) < 1e-9
    twice = law.times(2.0)
    np.testing.assert_allclose(twice.half_width(0.1), 2 * law.half_width(0.1))


def test_the_plan_says_what_it_buys(released, capsys):
    from trafficdp.cli.words.options import Output
    from trafficdp.cli.words.plan_facts import plan_facts
    from trafficdp.cli.words.plan_words import show

    city, _ = released
    plan = city.open().with_map(accounting="consistent").plan()
    show(Output(as_json=False, quiet=False), plan, plan_facts(plan))
    said = " ".join(capsys.readouterr().out.split())
    assert "larger hexagons are measured as well" in said
    assert plan.allocation.chosen.in_words() in plan.allocation.reason
    other = city.open().with_map(accounting="blocks").plan()
    assert other.allocation.chosen.name == "blocks"
    assert other.allocation.loss == plan.allocation.loss
    with pytest.raises(UsageError, match="accounting"):
        city.open().with_map(accounting="nonsense")
    with pytest.raises(UsageError, match="only the baseline has accountings"):
        city.open().with_map(accounting="consistent", mechanism="auto")


def test_a_map_of_several_resolutions_counts_every_fix_in_one_published_number_at_most(small_city, tmp_path):
    city = small_city.City(
        tmp_path / "city",
        resolution='8\nresolutions = [6, 7, 8]\nmax_half_width = "22 km/h"\ndetail = 0.5',
        statistics='"mean"',
        epsilon="12",
        accounting="consistent",
    )
    drive(city)
    city.open().ingest(list(city.days.values()))
    fine = city.open().counts()
    release = city.open().release(force=True)
    assert failed(city) == set()
    parents = manifest_of(release)["noise"]["parents"]
    assert len(parents["half_width"]) > 0
    table = release.to_frame()
    published = cells_from_text(list(table[table["status"] != "withheld"]["h3"]))
    held = sum(np.isin(parents_of(fine.cell, r), published).astype(int) for r in (6, 7, 8))
    assert held.max() == 1
    half = (table["speed_mean_kmh_high"] - table["speed_mean_kmh_low"]) / 2
    assert float(half.max()) <= 22
