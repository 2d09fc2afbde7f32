"""What `plan` says of errors before anything is spent is what a release then says of itself."""

import importlib
import os
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import trafficdp
from trafficdp.binning.places import declared_bins
from trafficdp.export.files.classes import HATCHED, UNINFORMATIVE, class_letters, shown_breaks
from trafficdp.mechanisms.pooling import add_remove_map as add_remove_map_module
from trafficdp.mechanisms.pooling.add_remove_design import AddRemoveDesign
from trafficdp.mechanisms.pooling.add_remove_map import add_remove_map, measure_all
from trafficdp.mechanisms.simulated_cities import true_statistic
from trafficdp.model import SlotKind, Statistic
from trafficdp.noise.source import SimulatedNoise
from trafficdp.planner.allocation import precision
from trafficdp.privacy.estimate import BinStatus
from trafficdp.privacy.loss import PICO, LossKind
from trafficdp.sensitive import SensitiveInputs

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "data" / "sample"
MEAN = Statistic.MEAN
DRAWS = 6


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    store = tmp_path_factory.mktemp("sample") / "store"
    city = trafficdp.open(SAMPLE / "trafficdp.toml", store=store, create=True)
    city.ingest(sorted(SAMPLE.glob("*.csv.gz")))
    return city


def samples_of(city):
    """Every speed of the city: this is a test of what a release would say."""
    from trafficdp.engine.duckdb_reduce import read_samples
    from trafficdp.store.vault_fixes import data_version

    with city._curator("evaluation") as curator:
        asked = (city.config.grid, city.config.map.bound, data_version(curator.vault).ingest_id)
        return read_samples(curator.vault.connection, *asked)


def said(calibrated, values, informative):
    """Mean expected error and median half width of releases' means, over draws."""
    found = []
    for seed in range(DRAWS):
        own = calibrated.run(values, SimulatedNoise(seed), interval_level=0.95)[MEAN]
        rows = own.status != BinStatus.UNINFORMATIVE.value if informative else slice(None)
        found.append((own.expected_error[rows].mean(), np.median(own.high[rows] - own.low[rows]) / 2))
    return np.mean(found, axis=0)


def assert_foreseen(city, epsilon):
    allocation = city.plan(epsilon, suggestions=False).allocation
    assert allocation.intervals_from_trials(MEAN)
    data = samples_of(city).select(allocation.keep)
    values = SensitiveInputs(data.contributions(), lambda: data)
    error, half_width = said(allocation.calibrated, values, informative=False)
    assert allocation.errors()[MEAN].mean() == pytest.approx(error, rel=0.25)
    assert precision(allocation).median == pytest.approx(half_width, rel=0.25)


@pytest.mark.parametrize("epsilon", ["1", "4", "6"])
def test_a_plan_of_the_sample_foretells_its_release(sample, epsilon):
    assert_foreseen(sample, epsilon)


@pytest.mark.parametrize("relation", ["sample", "nothing_public"])
def test_fewer_than_a_third_of_the_samples_coloured_hexagons_are_hatched(relation, request):
    """At the budget of its configuration, as the page hatches; in each of six draws."""
    city = request.getfixturevalue(relation)
    allocation, data = city.plan(suggestions=False).allocation, samples_of(city)
    data = data.select(allocation.keep) if relation == "sample" else data
    values = SensitiveInputs(data.contributions(), lambda: data)
    breaks = shown_breaks(MEAN, city.config.map.bound, city.config.map.display_unit)
    for seed in range(DRAWS):
        own = allocation.calibrated.run(values, SimulatedNoise(seed), interval_level=0.95)[MEAN]
        ends = own.posterior["low_80"], own.posterior["high_80"]
        letters = class_letters(own.value, *ends, own.status, breaks)
        coloured = letters[letters != UNINFORMATIVE]
        assert len(coloured) >= 10
        assert np.isin(coloured, [*HATCHED]).mean() < 1 / 3


@pytest.mark.real
@pytest.mark.parametrize("slot", [SlotKind.WHOLE_PERIOD, SlotKind.HOUR_OF_DAY])
@pytest.mark.parametrize(
    ("day", "every"),
    [
        ("2016-02-07", 3),
        *(
            pytest.param(day, 1, marks=pytest.mark.prove)
            for day in ("2016-02-07", "2015-03-18", "2015-06-07")
        ),
    ],
)
def test_a_plan_of_a_real_day_foretells_its_release(day, every, slot, tmp_path, monkeypatch):
    """Of days that chose no constant."""
    if not os.environ.get("TRAFFICDP_REAL_DATA"):
        pytest.skip("TRAFFICDP_REAL_DATA is not set")
    monkeypatch.syspath_prepend(str(ROOT / "pipelines"))
    capmetro = importlib.import_module("capmetro")
    city = trafficdp.open(capmetro.config_of((day,), tmp_path), store=tmp_path / "store", create=True)
    city.ingest(capmetro.files_of((day,)))
    resolutions = (7, 8) if slot is SlotKind.WHOLE_PERIOD else (7,)
    for resolution, epsilon in [*product(resolutions, ("1", "4"))][::every]:
        assert_foreseen(city.with_map(resolution=resolution, slot_kind=slot), epsilon)


@pytest.fixture(scope="module")
def nothing_public(tmp_path_factory):
    """The sample's study area, in a store where nothing about a vehicle is public."""
    folder = tmp_path_factory.mktemp("nothing_public")
    text = (SAMPLE / "trafficdp.toml").read_text(encoding="utf-8")
    for old, new in (
        ('"replace_user_values"', '"add_or_remove_user"'),
        ("epsilon_per_vehicle", "epsilon"),
        ("min_vehicles = 5", "fleet = 217"),
        ('["mean", "variance"]', '["mean"]'),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "trafficdp.toml").write_text(text, encoding="utf-8")
    for each in (*SAMPLE.glob("*.geojson"), *SAMPLE.glob("*.zip")):
        shutil.copy(each, folder)
    city = trafficdp.open(folder / "trafficdp.toml", store=folder / "store", create=True)
    city.ingest(sorted(SAMPLE.glob("*.csv.gz")))
    return city


@pytest.mark.parametrize(("epsilon", "within"), [("4", 0.3), ("6", 0.3)])
def test_it_foretells_the_numbers_of_a_map_of_which_nothing_is_public(nothing_public, epsilon, within):
    allocation = nothing_public.plan(epsilon, suggestions=False).allocation
    data = samples_of(nothing_public)
    values = SensitiveInputs(data.contributions(), lambda: data)
    error, half_width = said(allocation.calibrated, values, informative=True)
    assert allocation.errors()[MEAN].mean() == pytest.approx(error, rel=within)
    assert precision(allocation).median == pytest.approx(half_width, rel=within)


def held_of_the_sample(city, loss_kind, loss):
    """(share of means that 80 % intervals hold, share of values at an end of theirs, mean error)."""
    data = samples_of(city).contributions()
    seen = data.counts.users_per_bin >= 5
    truth = true_statistic(data, MEAN)[seen]
    places = np.unique(declared_bins(city.config.grid)[0])
    design = AddRemoveDesign(places, data.bound, loss_kind, loss, variance=False)
    at = design.place_numbers(data.counts.cell, data.counts.slot)[0][seen]
    found = []
    for seed in range(DRAWS):
        own = add_remove_map(design, measure_all(design, data, SimulatedNoise(seed))).mean
        (low, high), value = (end[at] for end in own.ends[0.8]), own.value[at]
        held, at_an_end = (low <= truth) & (truth <= high), (value <= low) | (value >= high)
        found.append((held.mean(), at_an_end.mean(), np.abs(value - truth).mean()))
    return np.mean(found, axis=0)


@pytest.mark.parametrize(
    ("loss_kind", "loss"),
    [*((LossKind.PURE, each * PICO) for each in (1, 4, 6, 12)), (LossKind.ZCDP, PICO // 4)],
)
def test_intervals_of_the_sample_hold_its_means_where_nothing_is_public(nothing_public, loss_kind, loss):
    """Simulated noise of fixed seeds: a city whose vehicles' residuals are short, and hardly clipped."""
    held, at_an_end, off = held_of_the_sample(nothing_public, loss_kind, loss)
    assert held >= 0.75
    assert at_an_end < 0.35
    assert off < 3.5


def test_residuals_that_are_taken_for_too_long_put_intervals_beyond_the_truth(nothing_public, monkeypatch):
    monkeypatch.setitem(add_remove_map_module.OTHERS, LossKind.PURE, 2.0)
    held, at_an_end, _ = held_of_the_sample(nothing_public, LossKind.PURE, 6 * PICO)
    assert held < 0.6
    assert at_an_end > 0.35
