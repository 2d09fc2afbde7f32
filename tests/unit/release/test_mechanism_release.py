"""Every mechanism from the configuration to `verify`: charged, drawn, published, read, and priced again."""

import json
import shutil
from dataclasses import replace

import duckdb
import jsonschema
import numpy as np
import pandas as pd
import pytest
from small_city import EPSILON, FILES, failed

from trafficdp import workspace
from trafficdp.bounding.arrays import CountCap
from trafficdp.cli.main import run as command_line
from trafficdp.errors import ConfigError, InsufficientBudgetError, UsageError
from trafficdp.export.files.manifest import SCHEMA
from trafficdp.mechanisms import per_statistic_map
from trafficdp.mechanisms.per_statistic.arrays import Pooled
from trafficdp.mechanisms.per_statistic_map import mechanism_named, mechanisms_of, settings_of
from trafficdp.model import Statistic
from trafficdp.noise.source import SecureNoise
from trafficdp.privacy.disclosure import Setting
from trafficdp.privacy.loss import LossKind
from trafficdp.release import curator

pytestmark = pytest.mark.usefixtures("two_cities")

EXACT = [each.name for each in mechanisms_of(LossKind.PURE) if not each.idealised and each.name != "baseline"]
PICO = 10**12


def statistics_of(name):
    known = (Statistic.MEAN, Statistic.VARIANCE)
    return ", ".join(
        f'"{each.value}"' for each in known if each in mechanism_named(name, LossKind.PURE).statistics
    )


def opened(city, name, **changes):
    """The city's workspace with one mechanism for all statistics that it knows, by its configuration."""
    city.open(statistics=statistics_of(name), **changes)
    text = city.config.read_text(encoding="utf-8")
    city.config.write_text(text.replace("[map]", f'[map]\nmechanism = "{name}"'), encoding="utf-8")
    return workspace.open_workspace(city.config)


def release_by(city, name):
    city.open().ingest([city.days[1]])
    opened(city, name).release(force=True)


def test_later_defaults_change_neither_what_is_verified_nor_what_is_executed(filled, monkeypatch):
    """A count cap of another rule would price every vehicle anew: what was written down is what counts."""
    here = opened(filled, "pooled")
    here.plan(save="spring", suggestions=False)
    planned = here.plan(suggestions=False).allocation.calibrated.to_facts()
    here.release(force=True)
    assert here.plan(suggestions=False).allocation.calibrated.to_facts() == planned
    later = tuple(
        replace(each, means=Pooled(CountCap.MEDIAN)) if each.name == "pooled" else each
        for each in per_statistic_map.MECHANISMS
    )
    monkeypatch.setattr(per_statistic_map, "MECHANISMS", later)
    assert mechanism_named("pooled", LossKind.PURE).means.cap is CountCap.MEDIAN
    assert failed(filled) == {}
    again = opened(filled, "pooled", budget=40)
    assert again.plan(suggestions=False).allocation.calibrated.to_facts() != planned
    done = again.release(plan="spring", force=True, again=True).release
    for settings in done.disclosure.noise.settings.values():
        assert settings == (Setting(name="cap", value="argmax"),)
    assert failed(filled, "r0002") == {}


def manifest_of(city, release="r0001"):
    return city.store / "releases" / release / "manifest.json"


ONE_OF_A_KIND = ("worst_case_clipping_exact", "fixed_quantile_best_fit", "two_stage", "akmv", "pooled")
"""The others take the same way to a release: their steps are in tests/golden, and audited in tests/audit."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ONE_OF_A_KIND else pytest.mark.prove) for name in EXACT],
)
def test_a_mechanism_named_in_the_configuration_is_released_verified_and_read(filled, name, small_city):
    here = opened(filled, name)
    planned = here.plan(suggestions=False)
    done = here.release(force=True)
    assert failed(filled) == {}
    # the charge is the largest of the losses, at most what was asked, and nearly all of it
    charges = small_city.charges_by_plate_order(filled)
    largest = max(each[2] for each in charges.values())
    assert largest == planned.loss.pico
    assert 7.5 * PICO <= largest <= 8 * PICO

    document = json.loads(manifest_of(filled).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(document)
    assert document["noise"]["kind"] == "mechanism"
    assert set(document["noise"]["mechanisms"].values()) == {name}
    for settings in document["noise"]["settings"].values():
        stated = {each["name"]: each["value"] for each in settings}
        assert stated == settings_of(mechanism_named(name, LossKind.PURE))
    assert not document["honesty"]["idealised_mechanisms"]
    for stated in document["mechanisms"]:
        assert stated["mechanism"] == name
        assert stated["citation"] == mechanism_named(name, LossKind.PURE).citation
        assert stated["interval_basis"]
        assert ("unenforced" in stated) != mechanism_named(name, LossKind.PURE).enforced
        assert 0 < stated["share"] <= 1

    frame = pd.read_parquet(filled.store / "releases/r0001/mechanism.parquet")
    for statistic, estimate in done.release.estimates.items():
        column = frame[f"{statistic.stem}_epsilon"].to_numpy()
        np.testing.assert_array_equal(column, estimate.noise["epsilon"])
        np.testing.assert_array_equal(np.isnan(column), done.release.status == "withheld")
        assert not [each for each in frame if "lattice" in each]
    with duckdb.connect(filled.released, read_only=True) as connection:
        for statistic in done.release.estimates:
            rows = connection.execute(f"SELECT {statistic.stem}_epsilon FROM cells ORDER BY cell, slot")
            stored = np.array([each[0] for each in rows.fetchall()], dtype=np.float64)
            np.testing.assert_array_equal(stored, frame[f"{statistic.stem}_epsilon"].to_numpy())
    for name in ("map.geojson", "cells.csv", "cells.parquet", "map.html"):
        assert (done.folder / name).stat().st_size > 0


def test_choices_that_are_not_what_was_charged_are_found_in_the_draws(filled, monkeypatch):
    """The dearest is always taken; every other check holds."""

    def dearest(self, cost, weight, start, scale, runs=1):
        own = np.where(weight > 0, cost, -1)
        ends = zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
        return np.array([[low + int(own[low:high].argmax()) for low, high in ends]], dtype=np.int64)

    monkeypatch.setattr(SecureNoise, "choose", dearest)
    opened(filled, "akmv", epsilon=800, budget=1000).release(force=True)
    found = failed(filled)
    assert list(found.values()) == ["other noise, other choices, or other sums"]
    assert [name for name in found if "of choices among many close numbers with 0." in name] == [*found]


TAMPERING = {
    "more epsilon than was charged": lambda frame: frame.assign(
        speed_mean_epsilon=frame["speed_mean_epsilon"] * 2
    ),
    "no epsilon": lambda frame: frame.drop(columns="speed_mean_epsilon"),
    "an endless epsilon": lambda frame: frame.assign(speed_mean_epsilon=np.inf),
    "a negative epsilon": lambda frame: frame.assign(speed_mean_epsilon=-frame["speed_mean_epsilon"]),
    "epsilon as text": lambda frame: frame.assign(speed_mean_epsilon="much"),
    "epsilon nowhere": lambda frame: frame.assign(speed_mean_epsilon=np.nan),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_a_published_epsilon_that_was_changed_is_caught(prepared, how):
    city, _ = prepared(release_by, "worst_case_clipping_exact")
    path = city.store / "releases/r0001/mechanism.parquet"
    TAMPERING[how](pd.read_parquet(path)).to_parquet(path)
    assert failed(city, only=[FILES, EPSILON]).keys() == {FILES, EPSILON}


@pytest.mark.parametrize(
    "calibrated",
    [
        {"kind": "mechanism", "mechanisms": {"mean": "two_stage"}},
        {"kind": "mechanism", "mechanisms": {"mean": "wishes"}},
        {"kind": "mechanism", "mechanisms": {"mean": "akmv"}, "settings": {"variance": []}},
        {
            "kind": "mechanism",
            "mechanisms": {"mean": "akmv", "variance": "akmv"},
            "settings": {"mean": [{"name": "wishes", "value": 3}]},
        },
        {"kind": "mechanism"},
        {"kind": "laplace"},
        {"kind": "wishes"},
        None,
    ],
    ids=range(8),
)
def test_a_manifest_that_names_another_calibrated_mechanism_is_caught(prepared, calibrated):
    city, _ = prepared(release_by, "akmv")
    document = json.loads(manifest_of(city).read_text(encoding="utf-8"))
    document["noise"] = calibrated
    manifest_of(city).write_text(json.dumps(document), encoding="utf-8")
    assert failed(city, only=[FILES, EPSILON]).keys() == {FILES, EPSILON}


class Died(BaseException):
    """What a test raises where a process would die."""


@pytest.mark.parametrize(
    "boundary",
    # tests/crash dies at all of them under an accounting, the test below after the charge
    [
        pytest.param(name, marks=() if name == "values drawn" else pytest.mark.prove)
        for name in curator.BOUNDARIES
    ],
)
def test_a_crash_costs_one_charge_and_never_draws_twice(filled, boundary, monkeypatch, small_city):
    def reached(name):
        if name == boundary:
            raise Died

    here = opened(filled, "levy_best_fit")
    with monkeypatch.context() as patched:
        patched.setattr(curator, "failpoint", reached)
        with pytest.raises(Died):
            here.release(force=True)
    # the same command again: it finishes what was begun, or finds it done
    again = opened(filled, "levy_best_fit", budget=40).release(force=True)
    assert again.id == "r0001"
    entries = [entry["kind"] for entry in small_city.ledger_entries(filled)]
    assert entries.count("charge") == 1
    assert failed(filled) == {}
    values = again.release.estimates[Statistic.MEAN].value
    np.testing.assert_array_equal(filled.open().map(again.id).release.estimates[Statistic.MEAN].value, values)


def test_another_mechanism_is_another_question(filled, monkeypatch, small_city):
    def reached(name):
        if name == "charged":
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(curator, "failpoint", reached)
        with pytest.raises(Died):
            opened(filled, "pooled", budget=40).release(force=True)
    other = opened(filled, "array_averaging_best_fit", budget=40).release(force=True)
    assert other.id == "r0002"
    assert other.release.disclosure.noise.mechanisms == {
        "mean": "array_averaging_best_fit",
        "variance": "array_averaging_best_fit",
    }
    assert failed(filled, "r0001") == failed(filled, "r0002") == {}
    assert [entry["kind"] for entry in small_city.ledger_entries(filled)].count("charge") == 2


def test_budget_refuses_a_mechanism_before_anything_is_written(filled):
    here = opened(filled, "two_stage", budget=7)
    before = filled.dump()
    with pytest.raises(InsufficientBudgetError):
        here.release(force=True)
    assert filled.dump() == before


def test_python_chooses_a_mechanism_too(filled):
    here = filled.open().with_map(mechanism={Statistic.MEAN: "array_averaging_best_fit"})
    done = here.release(force=True)
    assert done.release.disclosure.noise.mechanisms == {
        "mean": "array_averaging_best_fit",
        "variance": "baseline",
    }
    assert failed(filled) == {}
    with pytest.raises(UsageError, match="cannot estimate the vehicle mean"):
        filled.open(statistics='"vehicle_mean"').with_map(mechanism="pooled")
    with pytest.raises(UsageError, match="unknown mechanism"):
        filled.open().with_map(mechanism="guess")


# the honesty gate


def test_an_idealised_mechanism_is_refused_in_a_configuration_with_the_switch_to_use(filled):
    with pytest.raises(ConfigError, match=r"release --allow-idealised-noise huber") as caught:
        opened(filled, "huber")
    assert "no exact sampler" in str(caught.value)
    with pytest.raises(UsageError, match="allow-idealised-noise"):
        filled.open().with_map(mechanism="huber")


def test_the_switch_releases_an_idealised_mechanism_and_the_manifest_says_so(filled):
    done = filled.open(statistics='"mean"').release(force=True, allow_idealised_noise="huber")
    honesty = done.release.disclosure.honesty
    assert honesty.idealised_mechanisms is True
    (stated,) = done.release.disclosure.mechanisms
    assert stated.idealised
    assert "--allow-idealised-noise" in stated.sampler
    assert failed(filled) == {}
    document = json.loads(manifest_of(filled).read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(document)


def test_the_curator_itself_refuses_idealised_noise_that_nobody_allowed(filled, monkeypatch):
    real = workspace.Planning.plan

    def sneaked(self, *given):
        from dataclasses import replace

        found = real(self, *given)
        event = replace(found.allocation.event, idealised=True)
        return replace(found, allocation=replace(found.allocation, event=event))

    monkeypatch.setattr(workspace.Planning, "plan", sneaked)
    before = filled.dump()
    with pytest.raises(UsageError, match="no exact sampler"):
        filled.open().release(force=True)
    assert filled.dump() == before


# auto


@pytest.mark.usefixtures("few_runs")
def test_auto_says_why_in_plan_and_manifest(filled):
    here = opened(filled, "baseline").with_map(mechanism="auto")
    planned = here.plan(suggestions=False).allocation
    assert planned.reason.startswith("auto: ")
    assert "simulated cities" in planned.reason
    done = here.release(force=True)
    assert planned.reason in done.release.disclosure.honesty.tuning_data
    assert failed(filled) == {}


@pytest.mark.usefixtures("few_runs")
def test_auto_never_looks_at_a_value(filled, small_city, tmp_path):
    """The same records with every speed another, or 0: the same choice, the same epsilon everywhere."""
    found = []
    for speed in (None, "0", "64"):
        other = small_city.City(tmp_path / f"city{speed}")
        # under one key vehicles keep their order, which the simulated cities depend on
        shutil.copy(filled.key, other.key)
        rows = filled.days[1].read_text(encoding="utf-8").splitlines()
        if speed is not None:
            rows = [rows[0], *(f"{row.rpartition(',')[0]},{speed}" for row in rows[1:])]
        other.days[1].write_text("\n".join(rows) + "\n", encoding="utf-8")
        there = other.open().with_map(mechanism="auto")
        there.ingest([other.days[1]])
        allocation = there.plan(suggestions=False).allocation
        counts = allocation.counts.samples_per_bin.tolist()
        found.append((counts, allocation.reason, allocation.loss))
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("few_runs", "two_cities")
def test_a_plan_says_which_mechanism_and_why_and_suggests_only_what_would_pass(filled, capsys):
    def told(name):
        opened(filled, name)
        assert command_line(["--config", str(filled.config), "plan"]) == 0
        return " ".join(capsys.readouterr().out.split())

    text = told("akmv")
    assert "Mechanism: akmv." in text
    assert "Why: mean: akmv was asked for by name" in text
    needed = opened(filled, "akmv").plan().suggestions.epsilon
    assert not opened(filled, "akmv").plan(str(needed), suggestions=False).verdict.refused
    text = told("baseline")
    assert "Why: auto: " not in text
    assert "by accounting" in text
    # what passes by joint noise passes under auto: it prefers what says enough
    hopeless = filled.open().with_map(mechanism="auto")
    suggested = hopeless.plan("0.1").suggestions
    assert suggested.epsilon is not None
    assert not hopeless.plan(str(suggested.epsilon), suggestions=False).verdict.refused
