"""`trafficdp compare`: the offers and the choice, from public counts; nothing is spent, no speed is read."""

import json
import shutil
from importlib.resources import files

import jsonschema
import pytest

import trafficdp
from trafficdp.mechanisms.laplace.calibrated import Baseline
from trafficdp.mechanisms.per_statistic_map import mechanism_named, mechanisms_of, tried_by_auto
from trafficdp.model import Statistic
from trafficdp.planner.choose import SIMULATED_ERROR_TOLERANCE
from trafficdp.privacy.loss import LossKind
from trafficdp.release import results

SCHEMA = json.loads((files("trafficdp.cli") / "schemas" / "compare.schema.json").read_text())


pytestmark = [pytest.mark.xdist_group("compare"), pytest.mark.usefixtures("few_runs")]


@pytest.fixture
def compared(filled, command):
    def compared(*arguments):
        result = command("--json", "compare", *arguments)
        assert (result.code, result.err) == (0, "")
        jsonschema.validate(result.json, SCHEMA, format_checker=jsonschema.FormatChecker())
        return result.json

    return compared


@pytest.fixture(scope="module")
def kept():
    """What one comparison found, for the tests that only look at it."""
    return {}


@pytest.fixture
def found(kept, compared, filled):
    """The comparison of the filled city as it is configured, and its folder before and after."""
    if not kept:
        before = filled.dump()
        kept["found"] = compared()
        kept["dumps"] = before, filled.dump()
    return kept["found"]


def test_it_shows_every_applicable_mechanism_once_a_statistic(found):
    assert [each["statistic"] for each in found["statistics"]] == ["mean", "variance"]
    for each in found["statistics"]:
        names = [offer["mechanism"] for offer in each["mechanisms"]]
        statistic = Statistic(each["statistic"])
        assert names == [m.name for m in mechanisms_of(LossKind.PURE) if statistic in m.statistics]


def offered_within(found, total):
    """Assert what holds of every comparison: no offer loses more than ``total``, best is exact and least."""
    assert float(found["epsilon"]) == total
    for each in found["statistics"]:
        able = [offer for offer in each["mechanisms"] if offer["unavailable"] is None]
        assert all(float(offer["loss"]) <= total for offer in able)
        exact = [offer for offer in able if not offer["idealised"]]
        (best,) = [offer for offer in able if offer["mechanism"] == each["best"]]
        free = {each.name for each in tried_by_auto(LossKind.PURE)}
        least = min(o["simulated_error"] for o in exact if o["mechanism"] in free)
        assert least <= best["simulated_error"] <= least * (1 + SIMULATED_ERROR_TOLERANCE)
        assert not mechanism_named(each["best"], LossKind.PURE).idealised
        assert each["best"] in each["reason"]


def test_nobody_loses_more_than_the_epsilon_and_the_best_is_exact_and_least(found):
    offered_within(found, 6)


def test_more_epsilon_means_less_error_and_another_seed_another(filled, compared):
    filled.change("min_vehicles = 3", 'min_vehicles = 3\nstatistics = ["mean"]')

    def least_error(found):
        (mean,) = found["statistics"]
        (best,) = [offer for offer in mean["mechanisms"] if offer["mechanism"] == mean["best"]]
        return best["median_error"]

    little, much = (compared("--epsilon", epsilon) for epsilon in ("2", "50"))
    offered_within(little, 2)
    offered_within(much, 50)
    assert least_error(little) > least_error(much)
    other = compared("--epsilon", "2", "--seed", "2")
    assert (little["seed"], other["seed"]) == (1, 2)
    assert little["statistics"] != other["statistics"]


def test_simulations_are_blind_to_the_stores_speeds(found, filled, command, feed):
    for each in found["statistics"]:
        assert all(
            (o["simulated_error"] is None) == (o["unavailable"] is not None) for o in each["mechanisms"]
        )
    # again, every speed another, in another store under the same key: vehicles keep their order
    shutil.copy(filled.folder / "city.store.key", filled.folder / "other.store.key")
    rows = [row.rpartition(",") for day in ("2026-03-02", "2026-03-03") for row in feed(day)]
    filled.write("others.csv", [f"{head},{float(speed) + 0.25:.2f}" for head, _, speed in rows])
    assert command("--store", "other.store", "init").code == 0
    assert command("--store", "other.store", "ingest", "others.csv").code == 0
    assert command("--store", "other.store", "--json", "compare").json == found


def test_nothing_is_spent_and_nothing_is_written(found, kept):
    before, after = kept["dumps"]
    assert before == after


def test_people_read_a_table_with_the_choice_and_its_reason(filled, command):
    out = command("compare").out
    for mechanism in mechanisms_of(LossKind.PURE):
        assert mechanism.name in out
    # a choice among whole maps, and the best of each statistic alone
    assert out.count("<-") == 3
    assert (out.count("auto: "), out.count("best: ")) == (1, 3)
    assert "Whole maps in simulated cities" in out
    assert "one city-wide average" in out
    assert "errors in simulated cities" in out
    assert "Nothing was spent." in out
    assert "simulated: mean error" in out
    theorems = [line.split(": ")[1] for line in out.splitlines() if line.startswith("unenforced: ")]
    claimed = [name for names in theorems for name in names.split(", ")]
    marked = [line.split()[0] for line in out.splitlines() if ", unenforced" in line]
    for mechanism in mechanisms_of(LossKind.PURE):
        assert claimed.count(mechanism.name) == (0 if mechanism.enforced else 1)
        assert marked.count(mechanism.name) == (0 if mechanism.enforced else len(mechanism.statistics[:2]))


@pytest.mark.store
def test_errors_are_told_in_the_unit_of_the_map(filled, compared, command):
    filled.change("min_vehicles = 3", 'min_vehicles = 3\nstatistics = ["variance"]')
    before = compared()
    filled.change("min_vehicles = 3", 'min_vehicles = 3\ndisplay_unit = "km/h"')
    after = compared()
    assert (before["unit"], after["unit"]) == ("ms", "kmh")
    ((one,), (other,)) = (each["statistics"] for each in (before, after))
    assert (one["best"], other["constant_error"]) == (
        other["best"],
        pytest.approx(3.6**2 * one["constant_error"]),
    )
    for old, new in zip(one["mechanisms"], other["mechanisms"], strict=True):
        for name in ("median_error", "worst_error", "simulated_error"):
            wanted = old[name] if old[name] is None else pytest.approx(3.6**2 * old[name])
            assert new[name] == wanted
    for old, new in zip(before["maps"], after["maps"], strict=True):
        for name in ("expected_error", "flat_error"):
            told = new["skill"]["variance"][name]
            assert told == pytest.approx(3.6**2 * old["skill"]["variance"][name])
    assert "(km/h)²" in other["reason"]
    assert "m/s" not in other["reason"]
    assert "Expected error of the variance alone, (km/h)²" in command("compare").out


def test_what_is_only_claimed_is_marked_with_its_theorem(found):
    for each in found["statistics"]:
        for offer in each["mechanisms"]:
            enforced = mechanism_named(offer["mechanism"], LossKind.PURE).enforced
            assert (offer["unenforced"] is None) == enforced
            assert enforced or len(offer["unenforced"]) > 10


def test_a_mechanism_that_cannot_is_listed_with_its_reason(filled, command, monkeypatch):
    real = results.choose

    class Cannot(Baseline):
        name = "cannot"

        def steps(self, *_):
            from trafficdp.errors import UsageError

            raise UsageError("this one cannot")

    def of_two(*given, **more):
        return real(*given, (mechanisms_of(LossKind.PURE)[0], Cannot()), **more)

    monkeypatch.setattr(results, "choose", of_two)
    result = command("compare")
    assert result.code == 0
    assert "unavailable: cannot: this one cannot." in result.out
    found = command("--json", "compare").json
    jsonschema.validate(found, SCHEMA)
    assert found["statistics"][0]["mechanisms"][1]["unavailable"] == "this one cannot"


def test_a_plan_in_python_has_the_same_as_a_frame(found, filled):
    facts = found
    frame = trafficdp.open(filled.config).plan(suggestions=False).compare()
    assert frame["statistic"].unique().tolist() == [each["statistic"] for each in facts["statistics"]]
    told = [offer for each in facts["statistics"] for offer in each["mechanisms"]]
    assert frame["mechanism"].tolist() == [offer["mechanism"] for offer in told]
    for column in ("median_error", "worst_error", "simulated_error"):
        assert frame[column].tolist() == pytest.approx([offer[column] for offer in told])
    assert frame["exact"].tolist() == [not offer["idealised"] for offer in told]
    assert frame[frame["best"]]["mechanism"].tolist() == [each["best"] for each in facts["statistics"]]


def test_an_empty_store_and_a_wrong_epsilon_are_one_line(empty, refusal):
    assert "empty" in refusal(2, "compare")
    assert "epsilon" in refusal(2, "compare", "--epsilon", "much")
    refusal(2, "compare", "--seed", "-1")
