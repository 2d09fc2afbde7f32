"""A release under `add_or_remove_user`: one account, every declared hexagon, numbers anyone can recompute."""

import itertools
import json
import re
import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from importlib import resources

import jsonschema
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trafficdp
from trafficdp.binning.places import declared_bins
from trafficdp.cli.plan_words import plan_facts
from trafficdp.errors import (
    AllocationError,
    ConfigError,
    DataError,
    InsufficientBudgetError,
    UninformativeReleaseError,
    UsageError,
    VerificationError,
)
from trafficdp.export import write
from trafficdp.export.files.manifest import validate_manifest
from trafficdp.export.map import html_map
from trafficdp.mechanisms.pooling import add_remove_calibrated, add_remove_map
from trafficdp.model import SlotKind, SpeedUnit, Statistic
from trafficdp.planner.allocate import allocate
from trafficdp.planner.allocation import assess_utility
from trafficdp.privacy.conversion import gaussian_to_approx, zcdp_to_approx
from trafficdp.privacy.loss import ZCDP, PureDP
from trafficdp.release import recomputation
from trafficdp.release.recomputation import run_checks, verify_public

pytestmark = pytest.mark.store

SCHEMA = json.loads(
    resources.files("trafficdp.cli").joinpath("schemas/plan.schema.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module", autouse=True)
def _maps_are_tried_once(small_city):
    """What is charged, published and told must be right for any number of tries."""
    with pytest.MonkeyPatch.context() as patched:
        small_city.try_maps_once(patched.setattr)
        yield


@pytest.fixture(scope="module", params=["pure", "by delta"])
def hidden(request, small_city, tmp_path_factory):
    """A city of which nothing about a vehicle is public, with one release."""
    city = small_city.City(tmp_path_factory.mktemp("hidden"))
    by_delta = request.param == "by delta"
    settings = {"delta": "delta = 1e-6\n", "slot": "day"} if by_delta else {"slot": "hour_of_day"}
    small_city.write_hidden(city.folder, **settings)
    workspace = city.open()
    workspace.ingest(list(city.days.values()))
    city.released_map = workspace.release()
    city.workspace, city.by_delta = workspace, by_delta
    return city


PURE = pytest.mark.parametrize(
    "hidden", ["pure", pytest.param("by delta", marks=pytest.mark.prove)], indirect=True
)
"""What is suggested follows from the same search under either noise."""


@pytest.fixture(scope="module")
def told_too_little(hidden):
    """The plan of a map of so little epsilon that it is refused, with what would pass."""
    return hidden.workspace.plan(0.3)


@pytest.mark.slow
def test_every_declared_bin_has_a_row_and_none_is_withheld(hidden):
    frame, grid = hidden.released_map.to_frame(), hidden.workspace.config.measured_grid
    cells, slots = declared_bins(grid)
    assert [int(text, 16) for text in frame["hex_id"]] == cells.tolist()
    assert frame["slot"].tolist() == slots.tolist()
    assert set(frame["status"]) <= {"released", "uninformative"}
    assert frame["vehicles"].isna().all()
    assert frame["records"].isna().all()
    assert not frame["speed_mean_kmh"].isna().any()
    assert frame["hex_id"].is_unique
    ends = [frame[f"speed_mean_kmh{end}"] for end in ("_low", "_low_80", "", "_high_80", "_high")]
    assert all((less <= more).all() for less, more in itertools.pairwise(ends))
    assert set(frame["speed_mean_status"]) <= {"released", "uninformative"}
    # most of the study area is driven by nobody
    assert (frame["speed_mean_status"] == "uninformative").mean() > 0.5
    chances = frame["speed_mean_slower_chance"] + frame["speed_mean_faster_chance"]
    assert chances.between(0, 1.002).all()


def test_what_was_measured_has_one_row_a_hexagon(hidden):
    measured = pd.read_parquet(hidden.released_map.folder / "measurements.parquet")
    assert measured["hex_id"].tolist() == hidden.released_map.to_frame()["hex_id"].tolist()


@pytest.mark.slow
def test_slots_that_are_not_measured_are_nowhere_and_the_plan_says_so(hidden, tmp_path):
    config, done = hidden.workspace.config, hidden.released_map
    assert config.grid.slot_kind is not SlotKind.WHOLE_PERIOD
    assert done.release.grid.slot_kind is SlotKind.WHOLE_PERIOD
    assert done.to_frame()["slot_label"].nunique() == 1
    listed = hidden.sql("SELECT hex_id, slot_label FROM cells", database="released")
    assert len(listed) == len({cell for cell, _ in listed}) == done.release.bins
    page = (done.folder / "map.html").read_text(encoding="utf-8")
    hidden.workspace.city_report("r0001", tmp_path / "report.html")
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="play"' not in page
    assert 'id="slot"' not in page
    assert "through the day" not in report.lower()
    assert "00:00" not in report
    facts = plan_facts(hidden.workspace.plan())
    assert facts["map"]["slot"] == "whole_period"
    assert facts["map"]["slot_not_measured"] == config.grid.slot_kind.value
    # what is asked for by its own name is no other question
    small = hidden.workspace.with_map(slot_kind="whole_period")
    assert plan_facts(small.plan())["map"]["slot_not_measured"] is None
    assert small.plan().earlier_release == "r0001"


def test_a_large_map_is_written_as_tables_alone(hidden, tmp_path, monkeypatch):
    release = hidden.released_map.release
    monkeypatch.setattr(write, "MOST_BINS_OF_TEXT", release.bins - 1)
    facts = write.write_release(release, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(facts)
    assert set(facts) == {
        *("cells.parquet", "measurements.parquet", "manifest.json"),
        *("datapackage.json", "dataset.jsonld"),
    }
    checks = verify_public(tmp_path)
    assert all(check.passed for check in checks), checks
    write.export(release, "csv", tmp_path / "on demand.csv")
    assert len(pd.read_csv(tmp_path / "on demand.csv")) == release.bins


@pytest.mark.slow
def test_an_asking_that_nobody_paid_for_is_refused_before_the_charge(hidden, monkeypatch):
    rehearsed, once = [], add_remove_map.measure_all

    def twice(design, contributions, measure, known):
        rehearsed.append((design.size, contributions.counts.pairs))
        add_remove_map.measure_fleet(design, contributions, measure)
        return once(design, contributions, measure, known)

    monkeypatch.setattr(add_remove_map, "measure_all", twice)
    before = hidden.dump()
    with pytest.raises(AllocationError, match="cost a vehicle more than it was charged"):
        hidden.workspace.release(again=True, force=True)
    assert hidden.dump() == before
    # of all places, and of nobody's records
    assert rehearsed == [(len(hidden.released_map.release.cell), 1)]


def test_the_release_verifies_with_the_store_and_without(hidden, tmp_path):
    checks = hidden.workspace.verify("r0001")
    assert all(check.passed for check in checks), checks
    assert checks[-1].name == "anyone can recompute its numbers"
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    public = verify_public(away)
    assert len(public) == 7
    assert all(check.passed for check in public), public


@pytest.mark.parametrize(
    ("column", "change", "found"),
    [
        ("speed_mean_weight", lambda values: values + 2**22, "every number"),
        ("speed_mean_map_1", lambda values: values + 0.01, "asked about"),
        ("speed_variance_spread", lambda values: values * 3 + 2**30, "every number"),
        ("speed_mean_city_power", lambda values: values * 0 + 0.9, "asked about"),
        ("hex_id", lambda values: values[::-1].to_numpy(), "hexagons, or the listed zones"),
    ],
)
def test_other_measurements_are_noticed_by_anyone(hidden, tmp_path, column, change, found):
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    table = pd.read_parquet(away / "measurements.parquet")
    table[column] = change(table[column])
    table.to_parquet(away / "measurements.parquet", index=False, compression="zstd")
    failed = [check.name for check in verify_public(away) if not check.passed]
    assert "every file is the one that the manifest lists" in failed
    assert any(found in name for name in failed), failed


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.prove)])
def test_every_column_of_both_tables_is_recomputed(hidden, tmp_path, monkeypatch, every):
    """One value of each column, in a row that is not the first, is another."""
    recomputed = ("hexagons", "every number", "what was")

    def chosen(checks):
        return run_checks((name, check) for name, check in checks if name.startswith(recomputed))

    monkeypatch.setattr(recomputation, "run_checks", chosen)
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    for name in ("cells.parquet", "measurements.parquet"):
        sound = pq.read_table(away / name)
        # of a third under one noise another third under the other
        for column in sound.column_names[hidden.by_delta if every > 1 else 0 :: every]:
            values = sound.column(column).to_pylist()
            one = values[len(values) // 2]
            if one is None or column in ("place", "bbox"):
                # a name comes from layers that are not published; the box follows from the geometry
                continue
            if isinstance(one, int | float):
                other = 2 * one + 1000
            elif isinstance(one, datetime):
                other = one + timedelta(hours=1)
            else:
                other = next((each for each in values if each != one), f"{one}x")
            values[len(values) // 2] = other
            at, field = sound.column_names.index(column), sound.schema.field(column)
            pq.write_table(sound.set_column(at, field, pa.array(values, field.type)), away / name)
            assert [check for check in verify_public(away) if not check.passed], column
        pq.write_table(sound, away / name)


ALSO = "cells.csv, map.geojson and map.html say what cells.parquet says"


@pytest.mark.parametrize("name", ["cells.csv", "map.geojson"])
def test_the_tables_in_text_say_the_same_numbers(hidden, tmp_path, name):
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    sound = (away / name).read_bytes()
    numbers = re.findall(rb"\d+\.\d{3}", sound)
    (away / name).write_bytes(sound.replace(numbers[-1], b"99.999"))
    assert {check.name: check.found for check in verify_public(away)}[ALSO] == f"other numbers in {name}"


@pytest.mark.parametrize(
    "column", ["value_0_0", "low_0_0", "outer_high_0_0", "faster_0_0", "status_0_1", "h3_low"]
)
def test_the_page_shows_the_same_numbers(hidden, tmp_path, monkeypatch, column):
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    sound = html_map.pack

    def other(columns):
        kind, numbers = columns[column]
        changed = np.array(numbers)
        changed[-1] += 1
        return sound({**columns, column: (kind, changed)})

    monkeypatch.setattr(html_map, "pack", other)
    (away / "map.html").write_bytes(html_map.html_bytes(hidden.released_map.release))
    assert {check.name: check.found for check in verify_public(away)}[ALSO] == "other numbers in map.html"


def test_the_published_table_is_compared_part_by_part(hidden, tmp_path, monkeypatch):
    rows = len(hidden.released_map.to_frame())
    monkeypatch.setattr(recomputation, "ROWS_AT_ONCE", rows // 3 + 1)
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    assert all(check.passed for check in verify_public(away))
    table = pd.read_parquet(away / "cells.parquet")
    low = next(name for name in table if name.endswith("_low"))
    changed, promoted = table.copy(), table.copy()
    changed.loc[len(table) - 1, low] -= 1
    useless = table.index[table["speed_mean_status"] == "uninformative"][0]
    promoted.loc[useless, ["status", "speed_mean_status"]] = "released"
    for other, found in (
        (changed, f"other numbers in {low}"),
        (promoted, "other numbers in speed_mean_status, status"),
        (table.iloc[:-1], "other rows in cells.parquet"),
    ):
        other.to_parquet(away / "cells.parquet", index=False)
        assert found in [check.found for check in verify_public(away)]


def test_a_cheaper_claim_is_noticed_by_anyone(hidden, tmp_path):
    away = tmp_path / "away"
    shutil.copytree(hidden.released_map.folder, away)
    manifest = json.loads((away / "manifest.json").read_text())
    manifest["noise"]["pico"] *= 2
    (away / "manifest.json").write_text(json.dumps(manifest))
    failed = [check.name for check in verify_public(away) if not check.passed]
    assert "the noise costs what the manifest says" in failed


def test_other_files_are_no_public_release(tmp_path):
    with pytest.raises(VerificationError, match="anyone can verify"):
        verify_public(tmp_path)


def test_there_is_one_account_and_it_is_nobodys(hidden):
    charged = hidden.sql("SELECT vehicle_id, loss_pico FROM vehicle_charges")
    loss = hidden.workspace.config.request().loss
    assert [vehicle for vehicle, _ in charged] == [0]
    assert 0 <= loss.pico - charged[0][1] <= 10**6
    manifest = json.loads((hidden.released_map.folder / "manifest.json").read_text())
    assert manifest["unit"]["neighbouring_relation"] == "add_or_remove_user"
    told = hidden.sql("SELECT relation FROM releases", database="released")
    assert told == [("add_or_remove_user",)]
    assert {each["code"] for each in manifest["honesty"]["assumptions"]} >= {"nothing_public"}
    assert "counts_public" not in json.dumps(manifest)
    assert manifest["bounds"]["bins_per_vehicle"] is None
    assert "calibrated" in manifest["uncertainty"]["interval_kind"]
    assert all(source["speed"] == "mixed" for source in manifest["data"]["sources"])
    assert manifest["coverage"]["slot_kind"] == "whole_period"


def test_rho_is_told_with_the_delta_of_gaussian_noise_and_no_other_is_believed(hidden):
    document = json.loads((hidden.released_map.folder / "manifest.json").read_text())
    validate_manifest(document)
    told = document["guarantee"]
    if told.get("rho") is None:
        assert told.get("conversion") is None
        return
    assert "Gaussian" in told["conversion"]
    exact = gaussian_to_approx(ZCDP.of(told["rho"]), told["delta"])
    assert Fraction(told["epsilon"]) == exact.epsilon
    assert hidden.workspace.status().epsilon_spent == PureDP(exact.pico)
    assert 3.99 < exact.epsilon <= 4
    # of a store with public counts the same rho would say less
    for name, wrong in (
        ("epsilon", str(PureDP(zcdp_to_approx(ZCDP.of(told["rho"]), told["delta"]).pico))),
        ("conversion", "Canonne, Kamath, Steinke 2020, Proposition 12"),
    ):
        with pytest.raises(DataError, match=r"contradicts itself at .*epsilon"):
            validate_manifest({**document, "guarantee": {**told, name: wrong}})


def test_an_epsilon_that_gaussian_noise_cannot_be_accounted_for_is_refused(small_city, tmp_path):
    city = small_city.City(tmp_path / "huge")
    small_city.write_hidden(city.folder, delta="delta = 1e-6\n", epsilon="4000")
    text = city.config.read_text().replace("epsilon = 9", "epsilon = 9000")
    city.config.write_text(text.replace("[privacy]\n", f"[privacy]\n{small_city.ACCEPTED}"))
    workspace = city.open()
    workspace.ingest([city.days[1]])
    with pytest.raises(UsageError, match="smaller epsilon"):
        workspace.release(force=True)
    assert workspace.status().largest_spent.pico == 0


MANY = 9_300_000
"""So many records at a million steps: the sum of their squares does not fit 64 bits."""


def test_a_vehicle_with_millions_of_records_in_a_bin_changes_what_is_released_and_nothing_else(
    small_city, tmp_path
):
    city = small_city.City(tmp_path / "many")
    small_city.write_hidden(city.folder)
    city.config.write_text(city.config.read_text().replace("speed_step = 0.01", "speed_step = 0.000065"))
    workspace = city.open()
    workspace.ingest([city.days[1]])
    workspace.release(force=True)
    # some drive where they did on both days: what is kept of the first is brought up to date by the second
    for part, number in {"fixes": MANY, "total": MANY * 10**6, "total_of_squares": 2**63 - 1}.items():
        city.forge(part, number)
    workspace.ingest([city.days[2]])
    workspace.release(force=True)
    assert [entry["kind"] for entry in small_city.ledger_entries(city)] == [
        "promise",
        *["charge", "publication"] * 2,
    ]
    squares = {fixes: squares for *_, fixes, _, squares in city.contributions() if fixes >= MANY}
    assert max(squares) > MANY
    assert set(squares.values()) == {2**63 - 1}


@pytest.mark.slow
def test_plans_see_nothing_of_the_store(hidden, monkeypatch):
    def looked(*_, **__):
        raise AssertionError("a record was read")

    monkeypatch.setattr("trafficdp.release.curator.reduce_fixes", looked)
    monkeypatch.setattr("trafficdp.release.curator.read_samples", looked)
    monkeypatch.setattr("trafficdp.store.vault_fixes.load_contributions", looked)
    plan = hidden.workspace.plan()
    assert plan.affordable.paying == 1
    assert plan.allocation.counts.users == 1
    assert not plan.verdict.refused
    # a wish is an epsilon, whatever the store counts in
    assert hidden.workspace.plan(4).loss == plan.loss
    more = hidden.workspace.plan("40")
    assert more.verdict.value < plan.verdict.value


def test_the_fleet_is_that_of_an_earlier_release_where_none_is_declared(hidden, tmp_path):
    away = tmp_path / "away"
    shutil.copytree(hidden.folder, away)
    (away / "trafficdp.toml").write_text(
        (hidden.folder / "trafficdp.toml").read_text().replace("fleet = 120\n", "")
    )
    workspace = trafficdp.open(away / "trafficdp.toml", store=away / "city.store")
    found = hidden.released_map.release.estimates[Statistic.MEAN].noise["city_vehicles"][0]
    plan = workspace.plan(suggestions=False)
    assert plan.allocation.request.fleet == round(float(found))
    assert "release r0001" in plan.allocation.request.fleet_by
    # another size of fleet is no other question
    assert plan.earlier_release == "r0001"
    assert hidden.workspace.plan().allocation.request.fleet == 120


@pytest.mark.slow
@PURE
def test_a_map_that_says_too_little_is_refused_and_what_would_pass_is_told(hidden, told_too_little):
    workspace = hidden.workspace
    refused = told_too_little
    assert refused.verdict.refused
    assert refused.allocation.skill[Statistic.MEAN].expected < 0.1
    with pytest.raises(UninformativeReleaseError, match="makes it pass"):
        workspace.release(0.3)
    would = refused.suggestions
    assert not workspace.plan(would.epsilon).verdict.refused
    larger = replace(refused.allocation.request, fleet=would.fleet)
    assert not assess_utility(allocate(refused.allocation.counts, larger)).refused
    if would.resolution is not None:
        assert not workspace.with_map(resolution=would.resolution).plan(0.3).verdict.refused


@pytest.mark.slow
@PURE
def test_a_plan_names_other_fleets(hidden, told_too_little):
    plan = hidden.workspace.plan()
    facts = plan_facts(plan)
    jsonschema.validate(facts, SCHEMA)
    jsonschema.validate(plan_facts(told_too_little), SCHEMA)
    others = facts["fleet"]["others"]
    per_second = replace(plan.allocation.request, display_unit=SpeedUnit.METRES_PER_SECOND)
    shown = plan_facts(replace(plan, allocation=replace(plan.allocation, request=per_second)))["fleet"][
        "others"
    ]
    for one, other in zip(others, shown, strict=True):
        assert 3.6 * other["expected_error"] == pytest.approx(one["expected_error"])
    assert [each["vehicles"] for each in others] == [100, 1_000, 10_000, 100_000]
    assert others[0]["skill"] < others[-1]["skill"]
    assert 0 < others[0]["numbers_expected"] <= facts["numbers_expected"] < others[-1]["numbers_expected"]
    assert others[-1]["numbers_expected"] <= facts["bins"]


def test_the_store_is_charged_until_it_has_no_more(small_city, tmp_path):
    city = small_city.City(tmp_path / "one")
    small_city.write_hidden(city.folder)
    workspace = city.open()
    workspace.ingest([city.days[1]])
    assert workspace.release(4).id == "r0001"
    workspace.ingest([city.days[2]])
    assert workspace.release(4).id == "r0002"
    with pytest.raises(InsufficientBudgetError):
        workspace.release(4, again=True)
    left = workspace.plan(4, within_budget=True, suggestions=False)
    assert float(left.loss.exact) == pytest.approx(1, abs=1e-6)
    assert float(workspace.status().largest_spent.exact) == pytest.approx(8, abs=1e-6)


def test_a_store_has_one_relation_for_life(hidden, small_city, tmp_path):
    city = small_city.City(tmp_path / "other")
    city.open().ingest([city.days[1]])
    small_city.write_hidden(city.folder)
    with pytest.raises(UsageError, match="got neighbouring relation: "):
        city.open().plan()
    shutil.copytree(hidden.folder, tmp_path / "hidden")
    there = small_city.at(tmp_path / "hidden")
    small_city.write_config(there.folder)
    with pytest.raises(UsageError, match="got neighbouring relation: "):
        there.open().plan()


def test_what_needs_counts_is_refused_with_a_reason(hidden):
    workspace = hidden.workspace
    for refused in (
        lambda: workspace.live(),
        lambda: workspace.counts(),
        lambda: workspace.with_map(min_vehicles=4),
        lambda: workspace.with_map(mechanism="auto"),
        lambda: workspace.release(allow_idealised_noise="huber"),
        lambda: workspace.plan(max_half_width=3.0),
    ):
        with pytest.raises(UsageError, match=r"public counts") as error:
            refused()
        # what to do under this relation, never to take the weaker one
        assert error.value.todo
        assert "replace_user_values" not in str(error.value)


def test_a_restricted_grid_is_refused(small_city, tmp_path):
    city = small_city.City(tmp_path / "city")
    small_city.write_hidden(city.folder)
    text = city.config.read_text().replace("resolution = 7", "resolutions = [6, 7]\nmax_half_width = 5")
    city.config.write_text(text)
    with pytest.raises(ConfigError, match="resolutions"):
        city.open()


def test_means_alone_verify_too(small_city, tmp_path):
    city = small_city.City(tmp_path / "means")
    small_city.write_hidden(city.folder, statistics='"mean"', epsilon="9")
    workspace = city.open()
    workspace.ingest(list(city.days.values()))
    done = workspace.release()
    assert list(done.release.estimates) == [Statistic.MEAN]
    assert all(check.passed for check in workspace.verify("r0001"))
    assert np.all(done.release.estimates[Statistic.MEAN].value <= 65)


def test_reviewers_get_the_guaranteed_sets_and_public_files_have_none(hidden, tmp_path):
    done = hidden.released_map
    hidden.workspace.export(done.id, "guaranteed", tmp_path / "sets.csv")
    table, frame = pd.read_csv(tmp_path / "sets.csv"), done.to_frame()
    assert table["hex_id"].tolist() == frame["hex_id"].tolist()
    low, high = (table[f"speed_mean_kmh_guaranteed_{end}"].to_numpy() for end in ("low", "high"))
    # the theorem's set, by the plan of the same map and the published answers
    calibrated = hidden.workspace.plan(float(done.release.disclosure.guarantee.epsilon)).allocation.calibrated
    noise = done.release.estimates[Statistic.MEAN].noise
    answers = add_remove_calibrated.answers_from_columns({Statistic.MEAN: noise})
    summary = add_remove_map.summarise_all_rounds(calibrated.design, answers)
    factor = done.release.request.factor(Statistic.MEAN)
    ends = add_remove_map.target_interval(calibrated.design, summary, 0.95)
    for end, exact in zip((low, high), ends, strict=True):
        np.testing.assert_allclose(end, exact * factor, atol=2e-3)
    for file in done.folder.glob("*.csv"):
        assert "guaranteed_low" not in file.read_text(encoding="utf-8")
    assert not [name for name in frame if "guaranteed_" in name]


def test_where_counts_are_public_there_are_no_guaranteed_sets(released, tmp_path):
    workspace = trafficdp.open(released.config)
    with pytest.raises(UsageError, match=r"no guaranteed sets.*add_or_remove_user"):
        workspace.export("r0001", "guaranteed", tmp_path / "sets.csv")
    assert not (tmp_path / "sets.csv").exists()
