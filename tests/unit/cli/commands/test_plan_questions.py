"""`trafficdp plan` as users ask: which epsilon, which map, who can pay, what would it take, in a picture."""

import json
import re
from importlib import resources
from xml.etree import ElementTree

import jsonschema
import pytest

PLANS = jsonschema.Draft202012Validator(
    json.loads(
        resources.files("trafficdp.cli").joinpath("schemas/plan.schema.json").read_text(encoding="utf-8")
    )
)
KMH = "km/h"


@pytest.fixture
def plan(command):
    """``plan(...)``: the plan as JSON, valid by its schema."""

    def plan(*arguments):
        result = command("--json", "plan", *arguments)
        assert (result.code, result.err) == (0, "")
        assert result.out.isascii()
        PLANS.validate(result.json)
        return result.json

    return plan


@pytest.mark.parametrize("where", ["", " in every bin"])
def test_the_epsilon_for_a_half_width_is_the_least_that_gives_it(filled, plan, where):
    found = plan("--max-half-width", f"2{where}")
    needed = {"median": "loss_for_the_median_bin", "every": "loss_for_every_bin"}
    kind = "every" if where else "median"
    width = "worst_half_width" if where else "median_half_width"
    assert found["answer"]["in_bins"] == kind
    assert found["epsilon"] == found["answer"][needed[kind]]
    assert found["interval"][width] <= 2
    # three significant digits: the next smaller number of them does not do
    less = plan("--epsilon", f"{float(found['epsilon']) * 0.99:.6f}")
    assert less["interval"][width] > 2
    assert float(found["answer"]["loss_for_every_bin"]) >= float(found["answer"]["loss_for_the_median_bin"])


def test_the_half_width_that_is_planned_is_that_of_the_released_intervals(filled, plan, command):
    promised = plan("--epsilon", "12")["interval"]
    assert command("release", "--yes", "--epsilon", "12").code == 0
    rows = (filled.store / "releases" / "r0001" / "cells.csv").read_text().splitlines()
    names = rows[0].split(",")
    low, high = names.index("speed_mean_ms_low"), names.index("speed_mean_ms_high")
    widths = [float(row.split(",")[high]) - float(row.split(",")[low]) for row in rows[1:]]
    # nothing was clamped: speeds lie far inside 0 to 20
    assert max(widths) / 2 == pytest.approx(promised["worst_half_width"], abs=0.002)


def test_a_half_width_may_be_given_in_any_unit_of_speed(filled, plan):
    by_metres = plan("--max-half-width", "2 m/s")
    assert plan("--max-half-width", f"7.2 {KMH}")["epsilon"] == by_metres["epsilon"]
    assert plan("--max-half-width", "2")["epsilon"] == by_metres["epsilon"]


def test_the_epsilon_for_a_half_width_does_not_depend_on_the_configured_one(filled, plan):
    before = plan("--max-half-width", "0.5")["epsilon"]
    filled.change("epsilon = 6\n", "epsilon = 0.000001\n")
    assert plan("--max-half-width", "0.5")["epsilon"] == before
    filled.change("epsilon = 0.000001\n", "")
    assert plan("--max-half-width", "0.5")["epsilon"] == before


def test_the_finest_map_keeps_to_both_and_can_be_planned_as_it_is_said(filled, plan):
    found = plan("--max-half-width", "3", "--epsilon", "2")
    (chosen,) = [each for each in found["answer"]["maps"] if each["chosen"]]
    assert chosen["fits"]
    assert chosen["half_width"] <= 3
    assert all(each["bins"] <= chosen["bins"] for each in found["answer"]["maps"] if each["fits"])
    sizes = {key: chosen[key] for key in ("resolution", "slot", "min_vehicles")}
    assert found["map"] == {**sizes, "slot_not_measured": None}
    for each in found["answer"]["maps"]:
        assert each["fits"] == (each["half_width"] <= 3)
        assert (each["loss_needed"] is None) == each["fits"]
    filled.change("resolution = 6", f"resolution = {chosen['resolution']}")
    filled.change("min_vehicles = 3", f"min_vehicles = {chosen['min_vehicles']}")
    again = plan("--epsilon", "2")
    assert again["interval"]["median_half_width"] == pytest.approx(chosen["half_width"])
    assert again["bins"] == chosen["bins"]


def test_a_finer_map_than_the_configured_one_is_found_where_it_fits(filled, plan):
    filled.change("resolution = 6", "resolution = 4")
    found = plan("--max-half-width", "10", "--epsilon", "12")
    assert found["map"]["resolution"] > 4


def test_without_any_map_the_nearest_is_named_with_exit_code_5(filled, refusal):
    message = refusal(5, "plan", "--max-half-width", "0.05", "--epsilon", "0.5")
    assert "no map is that precise at that epsilon" in message
    for word in ("would take epsilon", "the narrowest is", "times as many vehicles"):
        assert word in message


def test_a_half_width_below_the_rounding_of_speeds_has_no_epsilon(filled, refusal):
    message = refusal(5, "plan", "--max-half-width", "0.001")
    assert "no epsilon makes the intervals so narrow" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epsilon", "2", "--rho", "2"),
        ("--max-half-width", "in every bin"),
        ("--max-half-width", "0"),
        ("--max-half-width", "-1"),
        ("--max-half-width", "fast"),
        ("--max-half-width", "5 knots"),
        ("--max-half-width", "1e400"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(filled, refusal, arguments):
    refusal(2, "plan", *arguments)


def test_a_variance_has_no_unit_of_speed(filled, refusal, plan):
    filled.change("min_vehicles = 3", 'min_vehicles = 3\nstatistics = ["variance"]')
    assert "(m/s)²" in refusal(2, "plan", "--max-half-width", "5 m/s")
    assert plan("--max-half-width", "50")["statistic"] == "variance"


def test_vehicles_that_cannot_pay_are_counted_and_the_epsilon_for_all_is_said(released, plan, command):
    found = plan("--epsilon", "11")["affordable"]
    assert 0 < found["vehicles_short"] <= found["vehicles_charged"]
    assert found["vehicles_with_nothing_left"] == 0
    possible = found["loss"]
    assert float(possible) < 11
    refused = command("release", "--yes", "--epsilon", "11")
    assert refused.code == 3
    assert plan("--epsilon", possible)["affordable"]["vehicles_short"] == 0
    assert command("release", "--yes", "--epsilon", possible, "--force").code == 0


def test_within_the_budget_every_vehicle_can_pay(released, plan, command):
    found = plan("--epsilon", "11", "--within-budget")
    assert found["affordable"]["vehicles_short"] == 0
    assert float(found["epsilon"]) <= 6
    assert "not for 11 as asked" in command("plan", "--epsilon", "11", "--within-budget").out
    assert command("release", "--yes", "--epsilon", "11", "--within-budget", "--force").code == 0


def test_an_exhausted_vehicle_is_said_with_the_bins_it_spares(released, plan, command):
    released.change("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 6")
    released.promise()
    found = plan()["affordable"]
    assert found["loss"] is None
    assert found["vehicles_with_nothing_left"] > 0
    assert 0 <= found["bins_without_those"] <= 4
    said = command("plan").out
    assert f"{found['vehicles_with_nothing_left']} of them ha" in said
    assert " nothing left. " in said
    assert "With enough budget it could be released" in said
    assert "It may be released" not in said


def test_a_refused_map_says_how_many_more_vehicles_it_would_take(filled, plan, command):
    found = plan("--epsilon", "0.5")
    assert found["refused"]
    growth = found["growth"]
    needed, there_is = float(growth["loss_needed"]), float(growth["loss_there_is"])
    assert there_is == 0.5
    assert growth["times_as_many_vehicles"] == pytest.approx(needed / there_is)
    assert (growth["days_there_are"], growth["days_measured"]) == (2, 1)
    # the same buses drive on both days: simulated speeds may tell more of two than of one, by chance
    assert growth["days_needed"] is None or growth["days_needed"] > 2
    said = command("plan", "--epsilon", "0.5").out
    assert "times as many vehicles" in said
    assert ("protected over all of its days" in said) == (growth["days_needed"] is None)
    assert plan("--epsilon", "12")["growth"] is None


def test_the_chart_is_a_picture_of_the_accountings_that_needs_nothing_else(filled, plan, tmp_path):
    file = tmp_path / "plan.svg"
    found = plan("--chart", str(file))
    text = file.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    # nothing is fetched: what is drawn twice is named within the file
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', text))
    words = "".join(root.itertext())
    assert f"planned: epsilon {found['epsilon']}" in words
    for name in ("basic: G x eps", "equal noise", "block noise"):
        assert name in words


def test_a_chart_that_cannot_be_written_is_one_line(filled, command):
    result = command("plan", "--chart", "no/such/folder/plan.svg")
    assert result.code in (2, 6)
    assert result.err.count("\n") == 1


def test_every_accounting_is_compared_with_its_proofs(filled, plan, command, tmp_path):
    file = tmp_path / "plan.svg"
    full = plan("--every-accounting", "20", "--chart", str(file))["full_comparison"]
    assert full["complete"]
    curves = {curve["accounting"]: curve["points"] for curve in full["curves"]}
    assert len(curves) == 10
    for basic, grid_count, exact, equal in zip(
        *(curves[name] for name in ("basic", "grid_count", "exact", "equal")), strict=True
    ):
        assert basic["epsilon"] >= grid_count["epsilon"] >= exact["epsilon"] * (1 - 1e-9)
        assert exact["epsilon"] >= equal["epsilon"] * (1 - 1e-9)
    for proof in full["proofs"]:
        assert proof["least_bins"] <= proof["best_bins"] <= proof["clip_user_bins"]
        assert proof["clip_user_bins"] <= proof["bins_of_the_busiest"]
    said = command("plan", "--every-accounting", "60")
    assert "proved: no suppression" in said.out
    assert said.err == ""
    assert not {"\x1b", "…"} & {*said.out}
    assert "Clip-User" in "".join(ElementTree.fromstring(file.read_text()).itertext())


def test_the_full_comparison_is_about_means(filled, refusal):
    filled.change("min_vehicles = 3", 'min_vehicles = 3\nstatistics = ["variance"]')
    assert "about means" in refusal(2, "plan", "--every-accounting", "60")


def test_the_largest_epsilon_can_be_planned(filled, plan):
    assert float(plan("--epsilon", "1000000")["loss"]) <= 1_000_000


def test_a_refusal_says_when_the_suggested_epsilon_is_beyond_what_is_left(filled, refusal):
    filled.change("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 0.6")
    filled.promise()
    message = refusal(5, "release", "--yes", "--epsilon", "0.5")
    assert ", but only 0.6 is left" in message
    filled.change("epsilon_per_vehicle = 0.6", "epsilon_per_vehicle = 12")
    filled.promise()
    assert " is left" not in refusal(5, "release", "--yes", "--epsilon", "0.5")
