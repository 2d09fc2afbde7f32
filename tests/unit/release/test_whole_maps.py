"""Maps of one piece from the configuration to `verify`: by name, by `auto`, in both kinds of loss."""

import json
import re

import numpy as np
import pytest

from trafficdp import workspace
from trafficdp.config.map import with_mechanism
from trafficdp.errors import ConfigError, UsageError
from trafficdp.mechanisms.registry import PUBLIC_COUNTS
from trafficdp.model import Statistic
from trafficdp.privacy.loss import LossKind

MEAN, VARIANCE = Statistic.MEAN, Statistic.VARIANCE


def opened(city, mechanism, **changes):
    """The city's workspace with ``mechanism`` as it is written in the configuration."""
    # with something to change, the configuration is written anew
    city.open(**{"accounting": "best", **changes})
    text = city.config.read_text(encoding="utf-8")
    city.config.write_text(text.replace("[map]", f"[map]\nmechanism = {mechanism}"), encoding="utf-8")
    return workspace.open_workspace(city.config)


@pytest.mark.parametrize("name", PUBLIC_COUNTS)
def test_a_map_of_one_piece_is_charged_published_and_verified(filled, name):
    here = opened(filled, f'"{name}"')
    done = here.release(force=True)
    assert all(check.passed for check in here.verify(done.id))
    stated = {each.statistic: each for each in done.release.disclosure.mechanisms}
    assert {each.mechanism for each in stated.values()} == {name}
    kinds = {each.interval_kind for each in stated.values()}
    assert kinds == {"calibrated"}
    said = done.release.disclosure.uncertainty.interval_kind
    assert said.startswith("calibrated: ")
    trials = stated["speed_mean_kmh"].calibration
    assert trials.level == 0.95
    for share in (trials.held_on_other_days, trials.held_on_worst_map, trials.held_in_other_city):
        assert f"{int(100 * share + 1e-9)} %" in trials.in_words
    assert "taxis in San Francisco" in trials.in_words
    page = (done.folder / "map.html").read_text(encoding="utf-8")
    assert page.count(f"<strong>Mean:</strong> {trials.in_words}") == 1
    for each in stated.values():
        assert (each.calibration is None) == (each.interval_kind == "guaranteed")
    report = here.city_report(done.id, filled.folder / "report.html").read_text(encoding="utf-8")
    assert said in report
    # no law of noise, no claims
    assert not re.search(r"(is|are) clearly", report)
    assert done.release.disclosure.guarantee.epsilon == "8"
    for statistic in (MEAN, VARIANCE):
        estimate = done.release.estimates[statistic]
        there = ~np.isnan(estimate.value)
        assert there.any()
        assert np.all(estimate.low[there] <= estimate.value[there])
        assert np.all(estimate.value[there] <= estimate.high[there])
        assert (name == "flat") == (len(np.unique(estimate.value[there])) == 1)
    # the same columns in the files, and in SQL
    said = ("speed_mean_kmh_low_80", "speed_mean_kmh_city", "speed_mean_slower_chance")
    frame = done.to_geodataframe()
    listed = filled.sql(
        f"SELECT {', '.join(said)} FROM latest_cells ORDER BY cell, slot", database="released"
    )
    held = np.array([[np.nan if each is None else each for each in row] for row in listed], dtype=float)
    np.testing.assert_array_equal(held, frame[list(said)].to_numpy(dtype=float))
    assert frame["speed_mean_slower_chance"].notna().sum() == there.sum()
    first = json.loads(next(done.folder.glob("*.geojson")).read_text(encoding="utf-8"))["features"][0]
    assert set(said) <= first["properties"].keys()
    skill = stated["speed_mean_kmh"].skill
    assert skill.skill == pytest.approx(1 - skill.expected_error / skill.flat_error)
    assert "one city-wide average" in skill.in_words


def test_auto_takes_the_map_of_least_error_in_simulated_cities_and_says_so(filled):
    here = opened(filled, '"auto"')
    planned = here.plan(suggestions=False)
    allocation = planned.allocation
    errors = {
        name: max(1 - skill.expected for skill in own.values()) for name, own in allocation.considered.items()
    }
    assert {*PUBLIC_COUNTS} == errors.keys()
    taken = next(name for name, own in allocation.considered.items() if own is allocation.tried)
    assert errors[taken] <= min(errors.values()) * 1.03
    assert allocation.skill is allocation.tried
    assert allocation.reason.startswith("auto: ")
    assert all(f"{name} " in allocation.reason for name in PUBLIC_COUNTS)
    done = here.release(force=True)
    assert all(check.passed for check in here.verify(done.id))
    released = done.release.disclosure.mechanisms
    assert [each.skill for each in released] == [planned.skill[each] for each in (MEAN, VARIANCE)]
    assert released[0].skill.skill == allocation.skill[MEAN].expected


def test_a_saved_plan_of_one_piece_is_released_as_it_is(filled):
    here = opened(filled, '"partial_pooling"')
    planned = here.plan(save="spring", suggestions=False).allocation.calibrated.to_facts()
    done = opened(filled, '"baseline"').release(plan="spring", force=True)
    assert done.release.disclosure.mechanisms[0].mechanism == planned["kind"] == "partial_pooling"
    assert all(check.passed for check in here.verify(done.id))


def test_one_piece_is_for_all_statistics_or_for_none(filled):
    with pytest.raises(ConfigError, match="releases all statistics together"):
        opened(filled, '{ mean = "partial_pooling" }')
    settings = opened(filled, '"baseline"').config.map
    with pytest.raises(UsageError, match="releases all statistics together"):
        with_mechanism(settings, {MEAN: "flat"}, LossKind.PURE)
    assert with_mechanism(settings, "flat", LossKind.PURE).mechanism == {MEAN: "flat", VARIANCE: "flat"}


@pytest.mark.parametrize("name", PUBLIC_COUNTS)
def test_means_over_vehicles_are_of_one_piece_too(filled, name):
    here = opened(filled, f'"{name}"', statistics='"vehicle_mean", "mean"')
    done = here.release(force=True)
    assert all(check.passed for check in here.verify(done.id))
    assert {each.mechanism for each in done.release.disclosure.mechanisms} == {name}
    frame = done.to_geodataframe()
    assert frame["speed_vehicle_mean_kmh"].notna().any()
    assert (frame["speed_vehicle_mean_kmh"].notna() == frame["speed_mean_kmh"].notna()).all()
