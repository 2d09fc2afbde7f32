"""`trafficdp compare` where nothing about a vehicle is public: both kinds of noise, by size of the fleet."""

import json
from fractions import Fraction
from importlib.resources import files

import jsonschema
import pytest

from trafficdp.model import NeighbouringRelation, Statistic
from trafficdp.planner.allocation import FLEETS
from trafficdp.privacy.conversion import ApproxDP, approx_to_rho
from trafficdp.privacy.loss import PureDP

SCHEMA = json.loads((files("trafficdp.cli") / "schemas" / "compare.schema.json").read_text())
RHO = approx_to_rho(
    ApproxDP(PureDP.of(4).pico, Fraction("0.000001")), NeighbouringRelation.ADD_OR_REMOVE_USER
)


@pytest.fixture(params=["", "delta = 1e-6\n"], ids=["pure", "by delta"])
def hidden(request, small_city, tmp_path, monkeypatch):
    city = small_city.City(tmp_path / "compared")
    small_city.write_hidden(city.folder, delta=request.param)
    city.by_delta = bool(request.param)
    monkeypatch.chdir(city.folder)
    return city


@pytest.fixture
def compared(hidden, command):
    hidden.open().ingest([hidden.days[1]])

    def compared(*arguments):
        result = command("--store", "city.store", "--json", "compare", *arguments)
        assert (result.code, result.err) == (0, "")
        jsonschema.validate(result.json, SCHEMA, format_checker=jsonschema.FormatChecker())
        return result.json

    return compared


# both kinds of noise are compared whatever the store counts in
ONE = pytest.mark.parametrize("hidden", ["delta = 1e-6\n"], indirect=True)


def test_both_kinds_of_noise_keep_to_one_epsilon_whatever_the_store_counts_in(hidden, compared):
    found = compared()
    gaussian, laplace = found["maps"]
    assert gaussian["costs"] == {"epsilon": None, "rho": str(RHO), "delta": "0.000001"}
    assert laplace["costs"]["delta"] is laplace["costs"]["rho"] is None
    assert float(laplace["costs"]["epsilon"]) == pytest.approx(4, abs=1e-9)
    assert (found["rho"] is None, found["epsilon"] is None) == (not hidden.by_delta, hidden.by_delta)
    assert found["statistics"] == []
    for way in found["maps"]:
        assert [each["vehicles"] for each in way["fleets"]] == sorted({120, *FLEETS})
        # the expected fleet is one of them
        (expected,) = (each for each in way["fleets"] if each["vehicles"] == 120)
        assert way["skill"]["mean"] == expected["skill"]
        assert all(each["refused"] for each in way["fleets"] if each["skill"]["skill"] < 0.1)
    # what this store would make is what `plan` says
    plan = hidden.open().plan()
    own = gaussian if hidden.by_delta else laplace
    assert own["skill"]["mean"]["skill"] == plan.allocation.skill[Statistic.MEAN].expected


@ONE
def test_nothing_of_the_store_is_looked_at_and_nothing_is_spent(hidden, compared):
    before = compared()
    workspace = hidden.open()
    workspace.ingest([hidden.days[2]])
    assert compared() == before
    assert [row.facts["kind"] for row in workspace.ledger()] == ["promise"]


@ONE
def test_less_epsilon_is_further_off_and_people_read_why(hidden, compared, command):
    much, little = compared("--epsilon", "8"), compared("--epsilon", "0.05")
    for one, other in zip(much["maps"], little["maps"], strict=True):
        assert one["skill"]["mean"]["expected_error"] < other["skill"]["mean"]["expected_error"]
    assert all(each["refused"] for way in little["maps"] for each in way["fleets"][:2])
    out = command("--store", "city.store", "compare", "--epsilon", "0.05").out
    for said in ("at epsilon 0.05, by the size of the fleet", "120 (expected)", "refused", "average, "):
        assert said in out
    assert "would be refused all the same" in out
    assert "Nothing in the store was looked at" in out
    assert "Nothing was spent." in out
