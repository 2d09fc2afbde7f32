"""`trafficdp plan`: schema, words, and suggestions that pass when they are followed."""

import copy
import json
from importlib import resources

import jsonschema
import pytest

import trafficdp
from trafficdp.mechanisms.names import ACCOUNTINGS


def schema(name):
    text = (
        resources.files("trafficdp.cli").joinpath(f"schemas/{name}.schema.json").read_text(encoding="utf-8")
    )
    return json.loads(text)


PLANS = jsonschema.Draft202012Validator(schema("plan"))


def objects(node):
    """Every part of a schema that describes an object with named properties, conditions aside."""
    if isinstance(node, dict):
        if node.get("type") == "object" and "properties" in node and "additionalProperties" in node:
            yield node
        for key, inner in node.items():
            if key not in ("if", "then", "else"):
                yield from objects(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from objects(inner)


@pytest.mark.parametrize("name", ["plan", "compare", "ledger"])
def test_the_schemas_are_package_data_valid_and_closed(name):
    content = schema(name)
    jsonschema.Draft202012Validator.check_schema(content)
    closed = list(objects(content))
    assert closed[0] is content
    assert len(closed) >= 2
    for each in closed:
        if isinstance(each["additionalProperties"], bool):
            assert each["additionalProperties"] is False
            # costs and fleets are told where nothing about a vehicle is public
            assert {*each["required"]} >= {*each["properties"]} - {"costs", "fleets"}


@pytest.fixture
def valid_plan(command):
    """``valid_plan(...)``: the plan as JSON, valid by its schema."""

    def valid_plan(*arguments):
        result = command("--json", "plan", *arguments)
        assert result.code == 0, result.err
        PLANS.validate(result.json)
        return result.json

    return valid_plan


@pytest.mark.parametrize("epsilon", ["0.01", "10000", "0.333333333333"])
def test_every_plan_is_valid_by_its_schema(filled, valid_plan, epsilon):
    plan = valid_plan("--epsilon", epsilon)
    assert plan["epsilon"] == epsilon
    assert plan["budget_left"] == "12"
    assert float(plan["loss"]) <= float(epsilon)
    assert [accounting["accounting"] for accounting in plan["accountings"]] == [*ACCOUNTINGS]


@pytest.mark.parametrize(
    ("statistics", "accounting"),
    [
        ("mean", "basic"),
        ("mean", "exact"),
        ("variance", "exact"),
        ("variance", "best"),
        ("vehicle_mean", "best"),
    ],
)
def test_plans_of_every_statistic_and_accounting_are_valid(
    filled, valid_plan, command, statistics, accounting
):
    filled.change('accounting = "best"', f'statistics = ["{statistics}"]\naccounting = "{accounting}"')
    plan = valid_plan()
    assert plan["statistic"] == statistics
    assert set(plan["accountings"][0]["by_statistic"]) == {statistics}
    said = command("plan").out
    assert ("(m/s)²" in said) == (statistics == "variance")


def test_what_a_accounting_needs_for_the_noise_of_the_release_is_what_its_errors_say(filled, valid_plan):
    plan = valid_plan()
    by_name = {accounting["accounting"]: accounting for accounting in plan["accountings"]}
    chosen = by_name[plan["chosen"]]
    assert chosen["epsilon"] == pytest.approx(float(plan["epsilon"]), rel=1e-9)
    for accounting in plan["accountings"]:
        assert accounting["epsilon"] >= chosen["epsilon"] * (1 - 1e-9)
        assert accounting["worst_error"] >= chosen["worst_error"] * (1 - 1e-9)
        assert accounting["mean_error"] <= accounting["worst_error"]
        assert accounting["at_worst_error"] == plan["at_worst_error"]


@pytest.mark.parametrize("mechanism", ["pooled", "partial_pooling", "flat"])
def test_a_plan_names_the_mechanism_that_is_released(filled, valid_plan, command, mechanism):
    filled.change('accounting = "best"', f'mechanism = "{mechanism}"')
    # so much is not refused, and nothing else is suggested
    much = ("--epsilon", "12")
    plan = valid_plan(*much)
    assert plan["chosen"] not in ACCOUNTINGS
    assert f"Mechanism: {plan['chosen']}" in command("plan", *much).out
    assert command("release", *much, "--force", "--yes").code == 0
    manifest = json.loads((filled.store / "releases" / "r0001" / "manifest.json").read_text())
    assert {each["mechanism"] for each in manifest["mechanisms"]} == {plan["chosen"]}


SPOILT = [
    lambda plan: plan.update(extra=1),
    lambda plan: plan.pop("floor"),
    lambda plan: plan.update(epsilon=6),
    lambda plan: plan.update(epsilon="-6"),
    lambda plan: plan.update(chosen=None),
    lambda plan: plan.update(unit="knots"),
    lambda plan: plan.update(bins=0),
    lambda plan: plan.update(accountings=[]),
    lambda plan: plan.update(refused=True),
    lambda plan: plan.update(suggestions={}),
    lambda plan: plan["accountings"][0].update(extra=1),
    lambda plan: plan["accountings"][0].pop("mean_error"),
    lambda plan: plan["accountings"][0].update(worst_error=-1),
    lambda plan: plan["accountings"][0]["by_statistic"].update(median={"worst_error": 1, "mean_error": 1}),
    lambda plan: plan["accountings"][0]["by_statistic"]["mean"].update(extra=1),
]


@pytest.fixture(scope="module")
def kept():
    """One plan, for the tests that only look at it."""
    return {}


@pytest.mark.parametrize("spoil", SPOILT)
def test_the_schema_of_the_plan_is_strict(filled, valid_plan, kept, spoil):
    plan = copy.deepcopy(kept.get("plan") or kept.setdefault("plan", valid_plan()))
    spoil(plan)
    with pytest.raises(jsonschema.ValidationError):
        PLANS.validate(plan)


@pytest.mark.store
@pytest.mark.parametrize("statistic", ["mean", "variance"])
def test_whoever_is_shown_other_units_is_told_in_them_everywhere(
    filled, valid_plan, command, refusal, tmp_path, statistic
):
    filled.change("min_vehicles = 3", f'min_vehicles = 3\nstatistics = ["{statistic}"]')
    wished = ("--max-half-width", "30" if statistic == "variance" else "5 m/s")
    # each m/s is 3.6 km/h
    factor = 3.6 if statistic == "mean" else 3.6**2
    before, asked = valid_plan(), valid_plan(*wished)
    filled.change("min_vehicles = 3", 'min_vehicles = 3\ndisplay_unit = "km/h"')
    after, wide = valid_plan(), valid_plan(*wished)
    assert (before["unit"], after["unit"]) == ("ms", "kmh")
    assert wide["answer"]["max_half_width"] == pytest.approx(factor * asked["answer"]["max_half_width"])
    assert wide["answer"]["loss_for_the_median_bin"] == asked["answer"]["loss_for_the_median_bin"]
    for name in ("value", "threshold", "at_worst_error", "floor"):
        assert after[name] == pytest.approx(factor * before[name]), name
    for name in ("median_half_width", "worst_half_width"):
        assert after["interval"][name] == pytest.approx(factor * before["interval"][name])
    for name in ("expected_error", "flat_error"):
        assert after["skill"][statistic][name] == pytest.approx(factor * before["skill"][statistic][name])
    for one, other in zip(before["accountings"], after["accountings"], strict=True):
        assert other["epsilon"] == one["epsilon"]
        assert other["worst_error"] == pytest.approx(factor * one["worst_error"])
    chart = tmp_path / "chart.svg"
    said = command("plan", "--chart", chart, *wished).out
    refused = refusal(5, "release", "--yes", "--epsilon", "0.01")
    for text in (said, refused, chart.read_text(), repr(trafficdp.open().plan())):
        assert "km/h" in text
        assert "m/s" not in text
    (frame,) = [trafficdp.open().plan().to_frame()]
    assert [name for name in frame if name.endswith("_expected_error")] == [
        "speed_mean_kmh_expected_error" if statistic == "mean" else "speed_variance_kmh2_expected_error"
    ]


def test_planning_spends_nothing_and_changes_nothing(filled, command):
    before = filled.dump()
    assert command("plan").out.rstrip().endswith("Nothing was spent.")
    assert filled.dump() == before


def test_the_plan_says_in_one_plain_sentence_what_its_numbers_mean(filled, command, valid_plan):
    plan = valid_plan()
    (accounting,) = [
        accounting for accounting in plan["accountings"] if accounting["accounting"] == plan["chosen"]
    ]
    (sentence,) = [line for line in command("plan").out.splitlines() if line.startswith("In plain words:")]
    assert f"{accounting['mean_error']:.3g} m/s off" in sentence
    assert "on a scale from 0 to 20 m/s." in sentence


def test_a_plan_says_how_many_numbers_will_say_something(filled, command):
    few, whole = (command("--json", "plan", "--epsilon", each).json for each in ("0.1", 6))
    says, bins = few["numbers_expected"], few["bins"]
    assert 0 < says < bins
    said = command("plan", "--epsilon", "0.1").out
    assert f"In simulated cities {says} of these numbers are informative; for {bins - says} the noise" in said
    assert whole["numbers_expected"] == whole["bins"] == bins
    assert f"In simulated cities all {bins} of these numbers are informative." in command("plan").out
    # their statuses follow from counts
    assert command("release", "--yes", "--force", "--epsilon", "0.1").code == 0
    manifest = json.loads((filled.store / "releases/r0001/manifest.json").read_text())
    assert manifest["coverage"]["bins"]["uninformative"] == bins - says


def test_the_table_of_the_plan_fits_80_columns(filled, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = command("plan").out.split("epsilon: ")[0]
    assert max(len(line) for line in table.splitlines()) <= 80
    assert all(accounting in table for accounting in ("basic", "grid_count", "exact", "equal"))


def test_a_plan_that_costs_more_than_is_left_says_so(released, command):
    said = command("plan", "--epsilon", "8").out
    assert "every vehicle on this map has at least epsilon 6 left" in said
    assert "with exit code 3" in said
    assert "with exit code 3" not in command("plan", "--epsilon", "5").out


@pytest.fixture
def refused(empty, command):
    """A city that says too little hour by hour: 40 buses in its centre, four in each of ten suburbs."""
    rows = []
    for bus in range(40):
        for hour in range(6, 18):
            suburb = f"48.2,{16.21 + 0.035 * (bus // 4):.3f}"
            for minute, place in ((0, "48.14,16.4"), (20, suburb), (40, "48.14,16.4")):
                rows.append(f"W-{bus},2026-03-02T{hour:02d}:{minute:02d}:00Z,{place},{5 + bus % 7}")
    empty.change("resolution = 6", "resolution = 7")
    empty.change('slot = "whole_period"', 'slot = "hour_of_day"')
    assert command("--quiet", "ingest", empty.write("hours.csv", rows)).code == 0
    return empty


def follow(city, lever, value):
    """Write a suggestion into the configuration; return the arguments to follow it with."""
    if lever == "epsilon":
        return ("--epsilon", repr(value))
    setting = {
        "slot": ('slot = "hour_of_day"', f'slot = "{value}"'),
        "resolution": ("resolution = 7", f"resolution = {value}"),
    }[lever]
    city.change(*setting)
    return ()


@pytest.mark.parametrize(
    ("accounting", "epsilon"), [("best", "8"), pytest.param("basic", "32", marks=pytest.mark.prove)]
)
def test_every_suggestion_passes_when_it_is_followed(refused, valid_plan, epsilon, accounting):
    refused.change("epsilon = 6", f"epsilon = {epsilon}")
    refused.change('accounting = "best"', f'accounting = "{accounting}"')
    before = valid_plan()
    assert before["refused"] is True
    assert before["suggestions"]["epsilon"] > float(epsilon)
    original = refused.config.read_text()
    for lever in ("epsilon", "resolution", "slot"):
        value = before["suggestions"][lever]
        if value is None:
            # the planner found no such setting: none that one could try passes
            assert no_setting_passes(refused, lever, valid_plan)
            continue
        after = valid_plan(*follow(refused, lever, value))
        refused.config.write_text(original)
        assert after["refused"] is False
        assert after["suggestions"] is None
        assert after["value"] <= after["threshold"]


def test_what_is_suggested_is_told(refused, valid_plan, command):
    refused.change("epsilon = 6", "epsilon = 24")
    suggestions = valid_plan()["suggestions"]
    assert suggestions["fleet"] is None
    said = command("plan").out
    for word in (f"epsilon {suggestions['epsilon']:.3g}", f'slot "{suggestions["slot"]}"'):
        assert word in said


def no_setting_passes(city, lever, valid_plan):
    original = city.config.read_text()
    settings = {
        "resolution": (6, 5, 4, 2, 0),
        "slot": ("day_part", "whole_period"),
        "epsilon": (1e6,),
    }[lever]
    passed = []
    for setting in settings:
        city.config.write_text(original)
        arguments = follow(city, lever, setting)
        try:
            passed.append(not valid_plan(*arguments)["refused"])
        except AssertionError:
            # no bin is left
            passed.append(False)
    city.config.write_text(original)
    return not any(passed)


def test_a_suggestion_beyond_the_budget_is_marked_in_the_plan(refused, command, valid_plan):
    refused.change("epsilon_per_vehicle = 12", "epsilon_per_vehicle = 2.5")
    refused.promise()
    needed = valid_plan()["suggestions"]["epsilon"]
    assert needed > 2.5
    assert f"(Epsilon {needed:.3g} is more than is left: epsilon 2.5.)" in command("plan").out
