"""Following a suggestion: another map of the same city."""

import shutil
from pathlib import Path

import pytest

import trafficdp
from trafficdp.errors import UsageError
from trafficdp.model import SlotKind

pytestmark = pytest.mark.usefixtures("two_cities")

SAMPLE = Path(trafficdp.__file__).parents[1] / "data" / "sample"


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    folder = tmp_path_factory.mktemp("city")
    for each in (SAMPLE / "trafficdp.toml", *SAMPLE.glob("*.geojson"), *SAMPLE.glob("*.zip")):
        shutil.copy(each, folder)
    city = trafficdp.open(folder / "trafficdp.toml", create=True)
    city.ingest(sorted(SAMPLE.glob("*.csv.gz")))
    return city


def test_another_map_changes_the_map_and_nothing_else(city):
    other = city.with_map(resolution=5, slot_kind=SlotKind.DAY, min_vehicles=9)
    assert (other.config.grid.resolution, other.config.grid.slot_kind) == (5, SlotKind.DAY)
    assert other.config.map.min_vehicles == 9
    assert other.config.grid.area == city.config.grid.area
    assert other.config.grid.period == city.config.grid.period
    assert (other.config.policy.total, other.config.loss) == (city.config.policy.total, city.config.loss)
    assert (other.store, other.key_file) == (city.store, city.key_file)
    assert (city.config.grid.resolution, city.config.map.min_vehicles) == (7, 5)


@pytest.mark.slow
def test_a_map_with_nothing_changed_plans_the_same(city):
    before, after = city.plan(), city.with_map().plan()
    assert after.loss == before.loss
    assert after.allocation.counts.bins == before.allocation.counts.bins


def test_a_slot_may_be_named_by_its_word(city):
    assert city.with_map(slot_kind="hour_of_day").config.grid.slot_kind is SlotKind.HOUR_OF_DAY


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"resolution": 16}, "resolution=16"),
        ({"resolution": True}, "resolution=True"),
        ({"slot_kind": "fortnight"}, "got 'fortnight'"),
        ({"min_vehicles": 0}, "min_vehicles=0"),
    ],
)
def test_a_wrong_map_is_refused_by_name(city, wrong, named):
    with pytest.raises(UsageError, match=named):
        city.with_map(**wrong)


@pytest.mark.slow
def test_every_suggestion_of_a_refused_plan_passes_when_it_is_followed(city):
    hourly = city.with_map(slot_kind=SlotKind.HOUR_OF_DAY, mechanism="baseline")
    refused = hourly.plan("2.5")
    assert refused.verdict.refused
    found = refused.suggestions
    assert found.epsilon is not None
    if found.slot_kind is not None:
        assert not hourly.with_map(slot_kind=found.slot_kind).plan("2.5").verdict.refused
    assert not hourly.plan(found.epsilon).verdict.refused
    if found.resolution is not None:
        assert not hourly.with_map(resolution=found.resolution).plan("2.5").verdict.refused


@pytest.mark.slow
def test_releases_of_another_map_are_charged_to_the_same_budget(city):
    first = city.with_map(resolution=6).release("5", force=True)
    assert first.release.grid.resolution == 6
    assert str(city.plan().budget_left) == "7"
    assert all(check.passed for check in city.verify(first.id))
